"""The object store's own clock, which no process's clock can make wrong.

Rule: a time of the store is that of an object that is made for this purpose alone. An object that is left by a process
that died, or that may not delete, is deleted by a later call of the sweeper's.

Not here: what grows old by this clock; see ``sweeper`` and ``compaction.tombstones``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import AlreadyExists, ObjectSummary, Unavailable


def store_now(context: Context) -> int:
    """Return a time, in ms, that the object store's own clock has reached.

    The time is that of an object that is made for this purpose alone.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The store could not be asked.
    """
    key = keys.clock_key(context.runtime.fresh_id())
    listed: Sequence[ObjectSummary] = ()
    attempts = Attempts(context.runtime, "the store's time")
    while True:
        with attempts:
            with suppress(AlreadyExists):  # made by an earlier attempt
                context.objects.create(key, b"clock", {})
            listed = context.objects.list(keys.CLOCK_PREFIX)
            if not listed:
                # This process was frozen, and another run deleted the object.
                raise Unavailable(f"the clock object was deleted before it was listed; try again: key={key}")
            break
    now_ms = max(line.modified_at for line in listed)  # each a time that is past
    with suppress(Unavailable):  # left to the next run
        for line in listed:
            if line.key == key or now_ms - line.modified_at >= limits.CLOCK_MS:  # the second: left by a run that died
                context.objects.delete(line.key)
    return now_ms
