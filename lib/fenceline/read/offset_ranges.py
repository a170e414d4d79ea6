"""Disjoint ranges of offsets, which a subscription has acknowledged out of order, above its mark.

Rule: ranges are half-open and sorted, and never touch, because two that meet become one. Nothing is changed in place.

Not here: markers, and the stored form of ranges; see ``subscriptions``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Range: TypeAlias = tuple[int, int]  # [start, end)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """Disjoint ranges of offsets; ``starts[i]`` and ``ends[i]`` belong to the same range."""

    starts: Sequence[int] = ()
    ends: Sequence[int] = ()

    @classmethod
    def of(cls, ranges: Iterable[Range]) -> Acknowledged:
        """Return the set of all offsets in ``ranges``, which may overlap and come in any order."""
        return cls().including(ranges)

    def __len__(self) -> int:
        """Return the number of ranges."""
        return len(self.starts)

    def __contains__(self, offset: int) -> bool:
        return self.end_from(offset) > offset

    @property
    def ranges(self) -> list[Range]:
        return list(zip(self.starts, self.ends, strict=True))

    @property
    def count(self) -> int:
        """Return the number of offsets."""
        return sum(self.ends) - sum(self.starts)

    def end_from(self, offset: int) -> int:
        """Return the first offset at or after ``offset`` that is not in the set."""
        at = bisect_right(self.starts, offset) - 1
        return self.ends[at] if at >= 0 and offset < self.ends[at] else offset

    def including(self, ranges: Iterable[Range]) -> Acknowledged:
        """Return the set with all offsets of ``ranges`` added. Only the ranges that lie between these are visited."""
        added = sorted(ranges)
        if not added:
            return self
        low = bisect_left(self.ends, added[0][0])
        high = max(bisect_right(self.starts, max(end for _, end in added)), low)
        starts: list[int] = []
        ends: list[int] = []
        for start, end in sorted([*zip(self.starts[low:high], self.ends[low:high], strict=True), *added]):
            if ends and start <= ends[-1]:
                ends[-1] = max(ends[-1], end)
            else:
                starts.append(start)
                ends.append(end)
        return Acknowledged(
            (*self.starts[:low], *starts, *self.starts[high:]), (*self.ends[:low], *ends, *self.ends[high:])
        )

    def from_(self, mark: int) -> Acknowledged:
        """Return the set without the offsets below ``mark``."""
        at = bisect_right(self.ends, mark)
        if at < len(self.starts) and self.starts[at] < mark:
            return Acknowledged((mark, *self.starts[at + 1 :]), self.ends[at:])
        return self if at == 0 else Acknowledged(self.starts[at:], self.ends[at:])

    def part(self, low: int, high: int) -> Acknowledged:
        """Return the ranges numbered [low, high)."""
        return Acknowledged(self.starts[low:high], self.ends[low:high])


NOTHING = Acknowledged()


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """Return single offsets, in any order and perhaps repeated, as ranges that do not touch."""
    ranges: list[Range] = []
    for offset in sorted(set(offsets)):
        if ranges and ranges[-1][1] == offset:
            ranges[-1] = (ranges[-1][0], offset + 1)
        else:
            ranges.append((offset, offset + 1))
    return ranges
