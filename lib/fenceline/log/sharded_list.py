"""Lists of items that lie in several shards, in the byte order of their sort keys.

Rule: a list reads a bounded number of items, however few of them match, and says where the next one goes on. Writers
pay nothing for it, because it reads the items where they are.

Not here: what an item is (``transactions.listing``, ``access.listing``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fenceline import limits
from fenceline.format.item_size import size_of
from fenceline.log.context import Context
from fenceline.ports import Item

_SHARD_ITEMS_MAX = 128  # read at once
_FIRST_SHARD_ITEMS_MAX = 16  # read at once at first, from all shards side by side


@dataclass(slots=True)
class Reads:
    """The extent of one listing's reads, and the place where it stopped.

    Attributes:
        go_on_after: The last sort key that was looked at, where the listing read as much as it may.
    """

    items_max: int = limits.LISTED_ITEMS_MAX
    bytes_max: int = limits.LISTED_BYTES_MAX
    items: int = 0
    bytes: int = 0
    go_on_after: str | None = None

    @property
    def is_over(self) -> bool:
        return self.items >= self.items_max or self.bytes >= self.bytes_max


def items_after(
    context: Context, partitions: Sequence[str], start_after: str, limit: int, reads: Reads
) -> Iterator[Item]:
    """Yield the items of these partition keys after a sort key, in byte order, until ``reads`` is over.

    The shards are read side by side: at first as many items of each as a page of ``limit`` likely takes, then twice as
    many.

    Raises:
        Unavailable: The item store could not be asked.
    """
    shards = [_Shard(context, partition, start_after) for partition in partitions]
    # So many items, each a transaction with 500 partitions, fit in the memory of a function.
    size = min(4 + 3 * limit // len(shards), _FIRST_SHARD_ITEMS_MAX)
    last: str | None = None
    while shards:
        # The first round reads from every shard, so that each listing makes progress.
        if last is not None and reads.is_over:
            reads.go_on_after = last
            return
        hungry = [shard for shard in shards if not shard.items]
        context.runtime.gather([partial(shard.read, size) for shard in hungry])
        for shard in hungry:
            reads.items += max(len(shard.items), 1)
            reads.bytes += shard.bytes
        size = min(2 * size, _SHARD_ITEMS_MAX)
        shards = [shard for shard in shards if shard.items]
        while shards and all(shard.items for shard in shards):
            least = min(shards, key=lambda shard: shard.items[0].key.sort.encode())
            taken = least.items.pop(0)
            last = taken.key.sort
            yield taken
            if not least.items and least.is_read:
                shards.remove(least)


class _Shard:
    """A shard's items, as far as they are read and not yet taken."""

    def __init__(self, context: Context, partition: str, start_after: str) -> None:
        self._context = context
        self._partition = partition
        self._after = start_after
        self.items: list[Item] = []
        self.bytes = 0  # the stored size of these items
        self.is_read = False  # to its end

    def read(self, limit: int) -> None:
        self.items = list(self._context.items.query(self._partition, start_after=self._after, limit=limit))
        self.bytes = sum(size_of(item.key, item.value) for item in self.items)
        self.is_read = len(self.items) < limit
        if self.items:
            self._after = self.items[-1].key.sort
