"""Producer ids: allocated in blocks by a conditional counter, never reused (DESIGN.md, section 7, "Ids").

The rule: a block belongs to one process; what it does not use is lost. An unanswered allocation is lost, too.
"""

from __future__ import annotations

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import NoAnswer, Put, VersionMoved


class ProducerIds:
    """The ids that this process may hand out."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lock = context.runtime.lock()
        self._left = range(0)

    def take(self) -> int:
        """Return an id that nobody else has or gets.

        Raises:
            StoreUnavailableError, ContendedError: There is none to be had at the moment.
        """
        while True:
            with self._lock:
                if self._left:
                    taken, self._left = self._left[0], self._left[1:]
                    return taken
            block = self._allocate()
            with self._lock:
                if not self._left:
                    self._left = block

    def _allocate(self) -> range:
        key = keys.PRODUCER_ID_BLOCK
        items, runtime = self._context.items, self._context.runtime
        for attempt in Attempts(runtime, "the producer id counter"):
            with attempt:
                item = items.get([key]).get(key)
                first = 0 if item is None else int(str(item.value["next"]))
                version = runtime.fresh_version() if item is None else item.version + 1
                expected = None if item is None else item.version
                try:
                    # Whoever loses this write reads the counter again: no id is in two blocks.
                    items.write([Put(key, {"next": first + limits.PRODUCER_IDS_PER_BLOCK}, version, expected)])
                except NoAnswer as error:
                    raise VersionMoved(key) from error  # that block is lost: take the one behind it
                return range(first, first + limits.PRODUCER_IDS_PER_BLOCK)
        raise AssertionError
