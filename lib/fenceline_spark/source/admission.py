"""How far a batch of a stream goes: what there is, shared out up to a limit.

Rule: at most ``limit`` offsets in all, none below a partition's start, and each partition with something left gets at
least one while the limit allows. So a stream always goes on, and a small partition never waits for a large one.

Not here: which offsets there are; see ``stream``.
"""

from __future__ import annotations

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
    shares = dict.fromkeys(left, 0)
    for key in order[:limit]:
        shares[key] = 1
    rest = limit - min(limit, len(order))
    wanted = {key: waiting[key] - shares[key] for key in order}
    still = sum(wanted.values())
    if not rest:
        return shares
    for key in order:
        shares[key] += wanted[key] * rest // still
    # What rounding left over goes to the largest remainders.
    over = limit - sum(shares.values())
    by_remainder = sorted(order, key=lambda key: -(wanted[key] * rest % still))
    for key in by_remainder[:over]:
        shares[key] += 1
    return shares
