"""The batches of one source segment: checked, numbered, and packed into segments of this region ("Pulling").

Rule: a body must agree with its entry in offsets, size, CRCs and count of records. Otherwise nothing of it is used.

Rule: batches are taken whole, and below the source's last stable offset. Aborted batches are left, and so are markers
that do not travel.

Rule: a batch that is taken has the form of one that a producer here may send, because otherwise readers here would miss
records of this region, fail, or read the same ones for ever. The batches before one of another form are taken. Those
after it are not, unless an operator skips it.

Rule: one segment has up to 1 MiB, or one larger batch. Decompressed it has up to 64 MiB, unless it comes from one
source segment, because a third region that pulls it must check it in one go.

Rule: a segment's numbers are dense: (count - records, count]. Where aborted records lie between, another segment begins
(I17), so that each record's number is known from its segment alone.

Rule: a segment's position is the offset after the last source batch looked at, with the chain value of the source's
segment that holds the offset before.

Not here: fetching bodies, and appending segments; see ``apply_source``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from fenceline import limits
from fenceline.format import control
from fenceline.format.batch import BatchHeader, MalformedBatch, has_right_crc, headers
from fenceline.format.batch_check import check_taken
from fenceline.format.replicated_batch import stripped
from fenceline.format.segment import Replicated
from fenceline.model.results import AbortedTransaction, SegmentEntry
from fenceline.regions.peer import PeerProblem

BATCH_REFUSED = "a batch of the source is refused"  # begins each problem of this kind


class BatchRefused(PeerProblem):
    """The source's next batch to take has a form that no producer may send.

    Attributes:
        from_offset, to_offset: The batch's, in the source's log.
        number: The own number of the last data record up to its end.
    """

    def __init__(self, header: BatchHeader, number: int, reason: str) -> None:
        super().__init__(
            f"{BATCH_REFUSED}, and nothing after it is taken; append anew there what it should say, and skip it here: "
            f"from={header.base_offset} to={header.next_offset} reason={reason}"
        )
        self.from_offset, self.to_offset, self.number = header.base_offset, header.next_offset, number


class SourceBatch(NamedTuple):
    """A source batch that was looked at.

    Attributes:
        batch: The batch as this region appends it; ``None`` if it is left.
        records: How many data records it has; 0 for a marker.
        number: The own number of the last data record up to its end.
        next_offset: The source offset after it.
        decoded: Its decompressed bytes, if it is taken.
    """

    batch: bytes | None
    records: int
    number: int
    next_offset: int
    decoded: int = 0


def framed(entry: SegmentEntry, body: bytes) -> Sequence[tuple[int, BatchHeader]]:
    """Return (position, header) of each batch of a segment's body. No record is decoded.

    Raises:
        PeerProblem: The body does not agree with the entry.
    """
    try:
        batches = list(headers(body))
    except MalformedBatch as error:
        raise _unlike(entry, str(error)) from error
    if len(body) != entry.bytes:
        raise _unlike(entry, f"it has another size: bytes={len(body)} announced={entry.bytes}")
    offset, records = entry.base_offset, 0
    for at, header in batches:
        is_possible = header.last_offset_delta >= 0 and 0 <= header.count <= header.last_offset_delta + 1
        if header.base_offset != offset or not is_possible:
            raise _unlike(entry, f"a batch has other offsets: offset={offset} base={header.base_offset}")
        if not has_right_crc(body, at, header):
            raise _unlike(entry, f"a batch does not match its CRC: offset={offset}")
        offset = header.next_offset
        records += 0 if header.is_control else header.count
    if offset != entry.next_offset or records != entry.records:
        raise _unlike(entry, f"it ends elsewhere: offset={offset} records={records} announced={entry.records}")
    return batches


def looked_at(
    entry: SegmentEntry, body: bytes, *, start: int, stable: int, count: int, number: int | None
) -> Iterator[SourceBatch]:
    """Yield each batch of an own segment of the source that ends after ``start`` and by ``stable``.

    Args:
        start: The source offset to read next. The batch that holds it is taken whole.
        stable: The source's last stable offset.
        count: The own number of the last record taken. No record up to it is taken again.
        number: The own number of the last data record below ``start``; ``None`` if it is not known.

    Raises:
        PeerProblem: The body does not agree with the entry, or its numbers do not follow ``number``. No batch was
            yielded.
        BatchRefused: The batch after those that were yielded.
    """
    assert entry.of_origin is not None
    batches = framed(entry, body)
    counted = entry.of_origin.own_records
    aborted = _Aborted(entry.aborted)
    is_behind = False
    for at, header in batches:
        if header.next_offset > start and not is_behind:
            is_behind = True
            if counted < count or number not in (None, counted):
                raise _unlike(entry, f"its numbers do not follow: number={counted} count={count} expected={number}")
        counted += 0 if header.is_control else header.count
        if not is_behind:
            continue
        if header.next_offset > stable:
            return
        records = 0 if header.is_control else header.count
        try:
            decoded = _decoded(aborted, body, at, header)
        except MalformedBatch as error:
            raise BatchRefused(header, counted, str(error)) from error
        batch = None if decoded is None else stripped(body, at, header)
        yield SourceBatch(batch, records, counted, header.next_offset, decoded or 0)


def passed_on(
    entry: SegmentEntry, body: bytes, *, count: int, on_decoded: Callable[[int], object] = lambda _: None
) -> tuple[list[bytes], int]:
    """Return the batches of another region's segment after its record with the own number ``count``, and their records.

    Args:
        on_decoded: Called with the size of each batch's records, decompressed.

    Raises:
        PeerProblem: The body does not agree with the entry, or ``count`` lies within a batch. Or a batch is refused, or
            all of them are too large together, decompressed.
    """
    assert entry.of_origin is not None
    number, taken = (entry.of_origin.count or 0) - entry.records, 0
    if number < 0:
        raise _unlike(entry, f"it has more records than its numbers allow: records={entry.records}")
    found: list[bytes] = []
    decoded = 0
    for at, header in framed(entry, body):
        records = 0 if header.is_control else header.count
        number += records
        if not records and not control.travels(_readable_type(entry, body, at, header)):
            raise _unlike(entry, f"a marker in it does not travel: offset={header.base_offset}")
        if records and number <= count:
            found.clear()  # the markers before this batch are here, too
            continue
        if records and number - records < count:
            raise _unlike(entry, f"the number lies within a batch: number={count}")
        if records:
            size = _checked_size(entry, body, at, header)
            on_decoded(size)
            decoded += size
            if decoded > limits.FORWARDED_DECODED_BYTES_MAX:
                raise _unlike(entry, f"its records have too many bytes, decompressed: bytes={decoded}")
        found.append(stripped(body, at, header))
        taken += records
    return found, taken


def _decoded(aborted: _Aborted, body: bytes, at: int, header: BatchHeader) -> int | None:
    """Return a batch's decompressed bytes, if it is taken; ``None`` if it is left.

    Raises:
        MalformedBatch: The batch is to be taken, or may be, and this region cannot take it.
    """
    if header.is_control:
        return header.size if control.travels(marker_type_of(body, at, header)) else None
    if header.is_transactional and header in aborted:
        return None
    return check_taken(body, at, header)


class _Aborted:
    """The aborted transactions of a segment, by producer, because a source may name many, and each batch asks once."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._of: dict[int, tuple[list[int], list[int]]] = {}  # first offsets, and the highest marker up to each
        for one in sorted(aborted, key=attrgetter("first_offset")):
            firsts, lasts = self._of.setdefault(one.producer_id, ([], []))
            firsts.append(one.first_offset)
            lasts.append(max(one.last_offset, lasts[-1] if lasts else 0))

    def __contains__(self, header: BatchHeader) -> bool:
        """Return True if the transactional batch is one of an aborted transaction."""
        firsts, lasts = self._of.get(header.producer_id, ((), ()))
        at = bisect_right(firsts, header.base_offset)
        return at > 0 and header.base_offset < lasts[at - 1]


def marker_type_of(body: bytes, at: int, header: BatchHeader) -> int:
    """Return a marker's type.

    Raises:
        MalformedBatch: The marker cannot be read, and must be, because it travels, or its type is unknown.
    """
    try:
        if header.codec:  # no region compresses a marker, and a small compressed one could decode to much
            raise MalformedBatch("it is compressed")
        marker_type = control.type_of(body, at, header)
        if control.travels(marker_type):
            control.parse_marker(body, at, header)
    except MalformedBatch as error:
        raise MalformedBatch(f"a marker cannot be read: {error}") from error
    return marker_type


def _readable_type(entry: SegmentEntry, body: bytes, at: int, header: BatchHeader) -> int:
    try:
        return marker_type_of(body, at, header)
    except MalformedBatch as error:
        raise _unlike(entry, f"{error} offset={header.base_offset}") from error


def _checked_size(entry: SegmentEntry, body: bytes, at: int, header: BatchHeader) -> int:
    try:
        return check_taken(body, at, header)
    except MalformedBatch as error:
        raise _unlike(entry, f"{error} from={header.base_offset} to={header.next_offset}") from error


def _unlike(entry: SegmentEntry, what: str) -> PeerProblem:
    return PeerProblem(f"a segment is not what it was announced as: {what} segment={entry.base_offset}")


class Packed(NamedTuple):
    """A segment to append: its batches, and the position after them."""

    source: Replicated
    batches: Sequence[bytes]
    records: int


class Packer:
    """A sequence of batches in the source's order, packed into segments.

    Args:
        topic_id: The life of the source's topic.
        count: The own number of the last record taken.
    """

    def __init__(self, topic_id: str, count: int) -> None:
        self._topic_id = topic_id
        self._count = count
        self._next_offset = 0
        self._chain = ""
        self._batches: list[bytes] = []
        self._size = 0
        self._decoded = 0
        self._coming = 0  # the decompressed bytes of the batches that are taken next
        self._records = 0
        self._closed: list[Packed] = []

    def make_room(self, decoded: int) -> None:
        """End the segment that is being packed, if the next batches would be too much in it, decompressed.

        Args:
            decoded: The decompressed bytes of the next batches.
        """
        if self._decoded + decoded > limits.REPLICATED_DECODED_BYTES:
            self.close()
        self._coming = decoded

    def add(self, batches: Sequence[bytes], *, records: int, number: int) -> None:
        """Add batches that share a segment.

        Args:
            records: Their data records, with the own numbers (number - records, number].
            number: The own number of the last of these.
        """
        size = sum(map(len, batches))
        is_dense = not records or not self._records or number - records == self._count
        if self._batches and (not is_dense or self._size + size > limits.REPLICATED_BYTES_MAX):
            self.close()
        self._batches += batches
        self._size += size
        self._decoded, self._coming = self._decoded + self._coming, 0
        self._records += records
        if records:
            self._count = number

    def pass_by(self, next_offset: int, chain: str) -> None:
        """Note that the source was looked at up to ``next_offset``, in its segment with this chain value."""
        self._next_offset, self._chain = next_offset, chain

    def close(self) -> None:
        """End the segment that is being packed, if it has a batch."""
        if self._batches:
            source = Replicated(self._topic_id, self._next_offset, self._count, self._chain)
            self._closed.append(Packed(source, tuple(self._batches), self._records))
        self._batches, self._size, self._decoded, self._records = [], 0, 0, 0

    def closed(self) -> list[Packed]:
        """Return the segments that were closed since the last call, in order."""
        closed, self._closed = self._closed, []
        return closed
