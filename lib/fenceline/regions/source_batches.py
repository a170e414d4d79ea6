"""The batches of one source segment: checked against its entry, numbered, and sorted into taken and left ("Pulling").

Rule: a body must be what its entry says: offsets, size, CRCs, count of records. Its records must be decodable, since a
reader here would fail at others. Of another body nothing is used.

Rule: batches are whole, and below the source's last stable offset. Aborted ones are left, and so are markers that do
not travel.

Not here: which batches share a segment; see ``packing``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from fenceline.format import control
from fenceline.format.batch import BatchHeader, MalformedBatch, decode, has_right_crc, headers
from fenceline.format.replicated_batch import stripped
from fenceline.log.state import AbortedTransaction as AbortedHere
from fenceline.model.results import AbortedTransaction, SegmentEntry
from fenceline.regions.peer import PeerProblem

MAGIC = 2


class Looked(NamedTuple):
    """A source batch that was looked at.

    Attributes:
        batch: As this region appends it; ``None`` if it is left.
        records: Its data records; 0 for a marker.
        number: The own number of the last data record up to its end.
        next_offset: The source offset after it.
    """

    batch: bytes | None
    records: int
    number: int
    next_offset: int


def checked(entry: SegmentEntry, body: bytes) -> Sequence[tuple[int, BatchHeader]]:
    """Return (position, header) of each batch of a segment's body.

    Raises:
        PeerProblem: The body is not what the entry says.
    """
    try:
        batches = list(headers(body))
    except MalformedBatch as error:
        raise _unlike(entry, str(error)) from error
    if len(body) != entry.bytes:
        raise _unlike(entry, f"it has another size: bytes={len(body)} announced={entry.bytes}")
    offset, records = entry.base_offset, 0
    for at, header in batches:
        count = 1 if header.is_control else header.last_offset_delta + 1
        if header.base_offset != offset or header.magic != MAGIC or header.count != count or count < 1:
            raise _unlike(entry, f"a batch has other offsets: offset={offset} base={header.base_offset}")
        if not has_right_crc(body, at, header):
            raise _unlike(entry, f"a batch does not match its CRC: offset={offset}")
        if not header.is_control:
            try:
                decode(body, at)
            except MalformedBatch as error:
                raise _unlike(entry, str(error)) from error
        offset = header.next_offset
        records += 0 if header.is_control else header.count
    if offset != entry.next_offset or records != entry.records:
        raise _unlike(entry, f"it ends elsewhere: offset={offset} records={records} announced={entry.records}")
    return batches


def looked_at(
    entry: SegmentEntry, body: bytes, *, start: int, stable: int, count: int, number: int | None
) -> Iterator[Looked]:
    """Yield each batch of an own segment of the source that ends after ``start`` and by ``stable``.

    Args:
        start: The source offset to read next. The batch that holds it is taken whole.
        stable: The source's last stable offset.
        count: The own number of the last record taken. No record up to it is taken again.
        number: The own number of the last data record below ``start``; ``None`` if it is not known.

    Raises:
        PeerProblem: The body is not what the entry says, its numbers do not follow ``number``, or a marker that travels
            cannot be read.
    """
    assert entry.of_origin is not None
    batches = checked(entry, body)
    counted = entry.of_origin.own_records
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
        batch = stripped(body, at, header) if _is_taken(entry, body, at, header) else None
        yield Looked(batch, 0 if header.is_control else header.count, counted, header.next_offset)


def passed_on(entry: SegmentEntry, body: bytes, *, count: int) -> tuple[list[bytes], int]:
    """Return the batches of another region's segment after its record with the own number ``count``, and their records.

    Raises:
        PeerProblem: The body is not what the entry says, or ``count`` lies within a batch.
    """
    assert entry.of_origin is not None
    number, taken = (entry.of_origin.count or 0) - entry.records, 0
    if number < 0:
        raise _unlike(entry, f"it has more records than its numbers allow: records={entry.records}")
    found: list[bytes] = []
    for at, header in checked(entry, body):
        records = 0 if header.is_control else header.count
        number += records
        if not records and not control.travels(_marker_type(entry, body, at, header)):
            raise _unlike(entry, f"a marker in it does not travel: offset={header.base_offset}")
        if records and number <= count:
            found.clear()  # the markers before it are here, too
            continue
        if records and number - records < count:
            raise _unlike(entry, f"the number lies within a batch: number={count}")
        found.append(stripped(body, at, header))
        taken += records
    return found, taken


def _is_taken(entry: SegmentEntry, body: bytes, at: int, header: BatchHeader) -> bool:
    if not header.is_control:
        return not (header.is_transactional and is_aborted(entry.aborted, header))
    return control.travels(_marker_type(entry, body, at, header))


def is_aborted(aborted: Sequence[AbortedTransaction] | Sequence[AbortedHere], header: BatchHeader) -> bool:
    """Return True if a transactional batch lies within an aborted transaction of its producer."""
    return any(
        one.producer_id == header.producer_id and one.first_offset <= header.base_offset < one.last_offset
        for one in aborted
    )


def _marker_type(entry: SegmentEntry, body: bytes, at: int, header: BatchHeader) -> int:
    """Return a marker's type.

    Raises:
        PeerProblem: It cannot be read, and this region must read it: it travels, or its type is unknown.
    """
    try:
        marker_type = control.type_of(body, at, header)
        if control.travels(marker_type):
            control.parse_marker(body, at, header)
    except MalformedBatch as error:
        raise _unlike(entry, f"a marker cannot be read: offset={header.base_offset}") from error
    return marker_type


def _unlike(entry: SegmentEntry, what: str) -> PeerProblem:
    return PeerProblem(f"a segment is not what it was announced as: {what} segment={entry.base_offset}")
