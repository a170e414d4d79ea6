"""Comparison of a partition's records in two regions, by origin, incarnation of its topic and number ("Regions").

Rule: only records that both regions keep are compared. Each side is read once, into a SHA-256 for each block of 1,000
numbers. Where two blocks differ, both are read again, record by record. A number that the origin aborted is in neither
region. A number that one region gave up is no difference, if its SKIP marker is found between the records around it.

Not here: reading a side, through a service or from its stores; see the command ``verify``.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from fenceline.errors import OffsetOutOfRangeError
from fenceline.format.batch import headers
from fenceline.format.control import SKIP, parse_marker
from fenceline.model.results import Bounds, Page, ReadRecord, SegmentEntry, SegmentList

BLOCK_NUMBERS = 1_000

OnProgress = Callable[[int], object]


class Side(Protocol):
    """One partition in one region, as a comparison reads it."""

    @property
    def region(self) -> str: ...
    def bounds(self) -> Bounds: ...
    def read(self, offset: int) -> Page:
        """Return committed records from ``offset`` on, each with its identity."""
        ...

    def segments(self, offset: int) -> SegmentList: ...
    def body(self, entry: SegmentEntry) -> bytes: ...


class Life(NamedTuple):
    """The records of one region, in one incarnation of its topic."""

    origin: str
    topic_id: str


@dataclass(frozen=True, slots=True)
class Compared:
    """The result of the comparison of one life in one partition.

    Attributes:
        first_number, last_number: The numbers that both regions keep; ``None`` if there are none.
        records: How many records are in both regions and equal.
        differs_at: The first number that differs, or that one region lacks; ``None`` if there is none.
        problem: The difference there, or the reason why nothing was compared.
        lacks_at: With no number in common, the first number that one region keeps and the other never took.
    """

    partition: int
    life: Life
    first_number: int | None
    last_number: int | None
    records: int
    differs_at: int | None = None
    problem: str = ""
    lacks_at: int | None = None


@dataclass(slots=True)
class _Block:
    """A block's records on one side."""

    start_offset: int
    end_offset: int = 0  # after its last record
    last_number: int = 0
    records: int = 0
    digest: Any = field(default_factory=hashlib.sha256)

    def add(self, record: ReadRecord, number: int) -> None:
        self.digest.update(_octets_of(record, number))
        self.end_offset, self.last_number = record.offset + 1, number
        self.records += 1


@dataclass(slots=True)
class _Kept:
    """A life's records that one side keeps."""

    first: int
    last: int = 0
    blocks: dict[int, _Block] = field(default_factory=dict)
    repeated: tuple[int, int] | None = None  # the first number that came again or too late, and its offset


class _Found(NamedTuple):
    """One record of a block that was read again."""

    offset: int
    octets: bytes


def compare(partition: int, own: Side, peer: Side, *, on_progress: OnProgress = lambda _: None) -> list[Compared]:
    """Return the comparison of each life, with the first number that differs.

    Args:
        on_progress: Called with the number of offsets that were read since the last call.

    Raises:
        FencelineError: A side could not be read.
    """
    kept = [_scan(side, on_progress) for side in (own, peer)]
    lives = sorted({*kept[0], *kept[1]})
    return [_Comparison(partition, life, (own, peer), kept).result() for life in lives]


def keeps_records(side: Side) -> bool:
    """Return True if a side keeps any record.

    Raises:
        FencelineError: It could not be read.
    """
    return bool(_scan(side, lambda _: None))


def _scan(side: Side, on_progress: OnProgress) -> dict[Life, _Kept]:
    """Return the records that a side keeps, by life, at least up to its present last stable offset."""
    bounds = side.bounds()
    offset, end = bounds.log_start_offset, bounds.last_stable_offset
    found: dict[Life, _Kept] = {}
    while offset < end:
        try:
            page = side.read(offset)
        except OffsetOutOfRangeError as error:
            start = _log_start_above(offset, error)
            on_progress(min(start, end) - offset)
            # The records before are not kept, so they have no part in the comparison.
            found, offset = {}, start
            continue
        for record in page.records:
            _add(found, record)
        if page.position <= offset:
            break  # only an open transaction is left
        on_progress(min(page.position, end) - offset)
        offset = page.position
    return found


def _add(found: dict[Life, _Kept], record: ReadRecord) -> None:
    life, number = _identity(record)
    kept = found.get(life)
    if kept is None:
        kept = found[life] = _Kept(number)
    elif number <= kept.last:
        kept.repeated = kept.repeated or (number, record.offset)
        return
    kept.last = number
    block = _block_of(number)
    if block not in kept.blocks:
        kept.blocks[block] = _Block(record.offset)
    kept.blocks[block].add(record, number)


class _Comparison:
    """The comparison of one life."""

    def __init__(
        self, partition: int, life: Life, sides: tuple[Side, Side], kept: Sequence[Mapping[Life, _Kept]]
    ) -> None:
        self._partition = partition
        self._life = life
        self._sides = sides
        self._kept = [one.get(life) for one in kept]
        self._skipped = [0, 0]  # by side: the number up to which it gave records up

    def result(self) -> Compared:
        own, peer = self._kept
        if own is None or peer is None:
            lacking = 0 if own is None else 1
            return self._with_none_in_common(lacking, f"{self._sides[lacking].region} keeps none of them")
        first, last = max(own.first, peer.first), min(own.last, peer.last)
        for side, kept in zip(self._sides, (own, peer), strict=True):
            if kept.repeated is not None:
                number, offset = kept.repeated
                problem = f"number {number} comes twice, or out of its order, in {side.region} at offset {offset}"
                return Compared(self._partition, self._life, first, last, 0, number, problem)
        if first > last:
            return self._with_none_in_common(0 if own.last < peer.first else 1, "the regions keep no record in common")
        records = 0
        for number in range(_block_of(first), _block_of(last) + 1):
            blocks = own.blocks.get(number), peer.blocks.get(number)
            if _are_equal(*blocks):
                records += 0 if blocks[0] is None else blocks[0].records
                continue
            equal, difference = self._look_closely(number, first, last)
            records += equal
            if difference is not None:
                return Compared(self._partition, self._life, first, last, records, *difference)
        return Compared(self._partition, self._life, first, last, records)

    def _with_none_in_common(self, lacking: int, why: str) -> Compared:
        """Return the comparison where the side ``lacking`` keeps no number that the other one keeps."""
        side, other = self._sides[lacking], self._sides[1 - lacking]
        here, there = self._kept[lacking], self._kept[1 - lacking]
        bounds = side.bounds()
        # A log without its start may have had them, and records of an earlier life are never taken later.
        is_known = here is not None or (bounds.log_start_offset == 0 and self._life.origin == other.region)
        number = None if there is None or not is_known else self._never_taken(lacking, here, there, bounds)
        if number is not None:
            why = f"{why}: {side.region} lacks number {number}, which {other.region} keeps"
        return Compared(self._partition, self._life, None, None, 0, None, why, number)

    def _never_taken(self, lacking: int, here: _Kept | None, there: _Kept, bounds: Bounds) -> int | None:
        """Return the first number that ``there`` keeps and the side neither took nor gave up; ``None`` if none is."""
        at, start = (0, 0) if here is None else (here.last, max(one.end_offset for one in here.blocks.values()))
        for skip in _skips(self._sides[lacking], start, bounds.last_stable_offset):
            if (skip["origin"], skip["origin_topic"]) == self._life:
                at += int(skip["count"])
        return None if there.last <= at else max(there.first, at + 1)

    def _look_closely(self, block: int, first: int, last: int) -> tuple[int, tuple[int, str] | None]:
        """Return how many records of a block are equal, and the first number that differs, with the difference."""
        found = [self._read_again(side, block) for side in (0, 1)]
        low = max(first, *(start for _, start in found))
        maps = [one for one, _ in found]
        equal = 0
        for number in sorted({*maps[0], *maps[1]}):
            if not low <= number <= last:
                continue
            own, peer = maps[0].get(number), maps[1].get(number)
            if own is not None and peer is not None:
                if own.octets != peer.octets:
                    return equal, (number, f"number {number} differs: {self._places(own.offset, peer.offset)}")
                equal += 1
                continue
            lacking = 0 if own is None else 1
            if not self._is_given_up(lacking, number, block, maps[lacking]):
                there, here = self._sides[1 - lacking].region, self._sides[lacking].region
                at = (own or peer or _Found(0, b"")).offset
                return equal, (number, f"{here} lacks number {number}, which is in {there} at offset {at}")
        return equal, None

    def _places(self, own: int, peer: int) -> str:
        return f"offset {own} in {self._sides[0].region}, offset {peer} in {self._sides[1].region}"

    def _read_again(self, side: int, block: int) -> tuple[dict[int, _Found], int]:
        """Return a block's records by number, and the number from which on the side still keeps them."""
        kept = self._kept[side]
        assert kept is not None
        wanted = kept.blocks.get(block)
        found: dict[int, _Found] = {}
        if wanted is None:
            return found, 0
        offset, low = wanted.start_offset, 0
        while offset < wanted.end_offset:
            try:
                page = self._sides[side].read(offset)
            except OffsetOutOfRangeError as error:
                offset = _log_start_above(offset, error)
                found, low = {}, wanted.last_number + 1
                continue
            for record in page.records:
                life, number = _identity(record)
                if life == self._life and record.offset < wanted.end_offset:
                    found[number] = _Found(record.offset, _octets_of(record, number))
            offset = page.position
        return found, min(found, default=low) if low else 0

    def _is_given_up(self, side: int, number: int, block: int, found: Mapping[int, _Found]) -> bool:
        """Return True if ``side`` lacks ``number`` because an operator gave it up there."""
        if self._life.origin == self._sides[side].region:
            return False  # no region gives up its own records
        if number > self._skipped[side]:
            self._skipped[side] = self._skipped_to(side, number, block, found)
        return number <= self._skipped[side]

    def _skipped_to(self, side: int, number: int, block: int, found: Mapping[int, _Found]) -> int:
        """Return the number up to which the side skipped, between the records around ``number``."""
        kept = self._kept[side]
        assert kept is not None
        before = max((one for one in found if one < number), default=None)
        after = min((one for one in found if one > number), default=None)
        if before is not None:
            at, start = before, found[before].offset + 1
        else:
            earlier = kept.blocks[max(one for one in kept.blocks if one < block)]
            at, start = earlier.last_number, earlier.end_offset
        if after is not None:
            end = found[after].offset
        else:
            end = kept.blocks[min(one for one in kept.blocks if one > block)].start_offset
        for skip in _skips(self._sides[side], start, end):
            if (skip["origin"], skip["origin_topic"]) == self._life:
                at += int(skip["count"])
        return at


def _skips(side: Side, start: int, end: int) -> Iterator[Mapping[str, Any]]:
    """Yield the values of the SKIP markers from ``start`` up to, not including, ``end``."""
    offset = start
    while offset < end:
        listed = side.segments(offset)
        for entry in listed.segments:
            offset = entry.next_offset
            if entry.base_offset >= end:
                return
            # A segment of records alone holds no marker.
            if entry.records == entry.next_offset - entry.base_offset:
                continue
            body = side.body(entry)
            for at, header in headers(body):
                if header.is_control and start <= header.base_offset < end:
                    marker = parse_marker(body, at, header)
                    if marker.type == SKIP:
                        yield marker.value
        if not listed.segments:
            return


def _are_equal(own: _Block | None, peer: _Block | None) -> bool:
    if own is None or peer is None:
        return own is peer
    return bool(own.digest.digest() == peer.digest.digest())


def _block_of(number: int) -> int:
    return (number - 1) // BLOCK_NUMBERS


def _identity(record: ReadRecord) -> tuple[Life, int]:
    assert record.origin is not None
    assert record.origin_topic_id is not None
    assert record.number is not None
    return Life(record.origin, record.origin_topic_id), record.number


def _octets_of(record: ReadRecord, number: int) -> bytes:
    """Return number, timestamp, key, value and headers, so that no two different records give the same."""
    parts = [struct.pack(">qq", number, record.timestamp), _measured(record.key), _measured(record.value)]
    for name, value in record.headers:
        parts += [_measured(name.encode()), _measured(value)]
    octets = b"".join(parts)
    return struct.pack(">q", len(octets)) + octets


def _measured(octets: bytes | None) -> bytes:
    return struct.pack(">q", -1) if octets is None else struct.pack(">q", len(octets)) + octets


def _log_start_above(offset: int, error: OffsetOutOfRangeError) -> int:
    """Return the log start, which has passed ``offset`` meanwhile.

    Raises:
        OffsetOutOfRangeError: It has not: the log ends before ``offset``.
    """
    start = int(error.extra["log_start_offset"])
    if start <= offset:
        raise error
    return start
