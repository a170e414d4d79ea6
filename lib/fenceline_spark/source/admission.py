"""The size of a stream's batch: a limit of offsets, shared out over the partitions.

Rule: a batch has at most ``limit`` offsets in all, none of them below a partition's start, and each partition with
something left gets at least one while the limit allows. So a stream always goes on, and a small partition never waits
for a large one.

Not here: which offsets there are; see ``stream``.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import TypeVar

K = TypeVar("K")


def share(left: Mapping[K, int], limit: int) -> dict[K, int]:
    """Return how many offsets each partition gets of ``limit``, in proportion to what it has left.

    The sum is ``limit``, or all that is left. Of equal claims the first in order wins, so the same input gives the
    same shares.
    """
    waiting = {key: size for key, size in left.items() if size > 0}
    total = sum(waiting.values())
    if total <= limit:
        return {key: max(size, 0) for key, size in left.items()}
    order = sorted(waiting, key=lambda key: -waiting[key])  # stable: equal sizes keep their order
    shares = {key: max(size, 0) * limit // total for key, size in left.items()}
    raised = dict.fromkeys((key for key in order[:limit] if not shares[key]), 1)
    shares |= raised
    over = sum(shares.values()) - limit
    if over > 0:
        _take_from_the_largest(shares, over)
        return shares
    # The offsets that rounding left over go to the largest remainders.
    others = [key for key in order if key not in raised]
    others.sort(key=lambda key: -(waiting[key] * limit % total))
    for key in others[:-over]:
        shares[key] += 1
    return shares


def _take_from_the_largest(shares: dict[K, int], over: int) -> None:
    heap = [(-share, at, key) for at, (key, share) in enumerate(shares.items())]
    heapq.heapify(heap)
    for _ in range(over):
        share, at, key = heap[0]
        shares[key] -= 1
        heapq.heapreplace(heap, (share + 1, at, key))
