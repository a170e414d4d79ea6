"""Producer ids: allocated in blocks by a conditional counter, never reused (protocol, "Ids").

Rule: a block belongs to one process, and the ids that it does not use are lost. A block whose allocation was not
answered is lost, too.

Not here: the epochs and sequences of producers, which the log has (``append.checks``).
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
        """Return an id that no other producer has or will get.

        Raises:
            StoreUnavailableError, ContendedError: No block could be allocated.
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
        attempts = Attempts(runtime, "the producer id counter")
        while True:
            with attempts:
                item = items.get([key]).get(key)
                first = 0 if item is None else int(str(item.value["next"]))
                version = runtime.fresh_version() if item is None else item.version + 1
                expected = None if item is None else item.version
                try:
                    # A process that loses this write reads the counter again, so that no id is in two blocks.
                    items.write([Put(key, {"next": first + limits.PRODUCER_IDS_PER_BLOCK}, version, expected)])
                except NoAnswer as error:
                    raise VersionMoved(key) from error  # that block is lost, so the next one is taken
                return range(first, first + limits.PRODUCER_IDS_PER_BLOCK)
