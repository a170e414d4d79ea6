"""Verify's ranges: parts of a partition's segments, each checked by itself, in any order, by threads or by processes.

Rule: a range depends only on the chain value that the segment before it has in its metadata. So ranges join up by
themselves: if each chain value follows from its neighbour's, all along the log, the whole chain holds. No partition is
held in memory, because a range has a bounded size, ranges are listed only as they are asked for, and only the metadata,
headers and markers of a checked range are kept, to be folded in order.

Not here: gaps between segments, and all that needs the state below them (``verify``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import compression, keys
from fenceline.format.batch import BatchHeader
from fenceline.format.segment import Segment, corrupt
from fenceline.log.context import Context
from fenceline.log.replay import fetched
from fenceline.ports import Damaged, NotFound, ObjectSummary


@dataclass(frozen=True, slots=True)
class Range:
    """Some segments that follow each other in the listing, with the source of the chain value below them."""

    lines: Sequence[ObjectSummary]
    chain: str | None = ""  # None: it is not known, and the first segment may have any
    before: str | None = None  # the key of the segment that carries the chain value, where it is not known


@dataclass(frozen=True, slots=True)
class Checked:
    """A range up to its end, or to the first segment that is not as it should be."""

    segments: Sequence[Segment]  # their bodies cut down to the markers
    problem: str = ""
    broken_base: int | None = None  # the base of the segment with the problem, if its key gives it


def ranges(context: Context, topic_id: str, partition: int, start: int, chain: str) -> Iterator[Range]:
    """Yield all segments that are listed from ``start`` on, by offset, in ranges of bounded size.

    Args:
        chain: The chain value of the log below ``start``.

    Raises:
        Unavailable: The store could not be asked.
    """
    after = keys.segment_key(topic_id, partition, start - 1) if start else ""
    before: str | None = None
    lines: list[ObjectSummary] = []
    size = 0
    while listed := context.objects.list(keys.log_prefix(topic_id, partition), after, limits.LIST_MAX):
        for line in listed:
            is_full = len(lines) == limits.VERIFY_RANGE_SEGMENTS or size + line.size > limits.VERIFY_RANGE_BYTES
            if lines and is_full:
                yield Range(lines, chain, before)
                before, lines, size = lines[-1].key, [], 0
            lines.append(line)
            size += line.size
        after = listed[-1].key
    if lines:
        yield Range(lines, chain, before)


def check_range(context: Context, range_: Range) -> Checked:
    """Check each segment of a range: size, CRCs, records, and its chain value against the one before it.

    Raises:
        Unavailable: The store could not be asked, or a segment was collected meanwhile.
    """
    segments: list[Segment] = []
    try:
        chain = range_.chain if range_.before is None else chain_of(context, range_.before)
        lines = list(takewhile(is_segment, range_.lines))
        for line, segment in fetched(context, lines):
            _check_segment(line, segment)
            if chain is not None and not segment.metadata.follows(chain, segment.body):
                what = "its chain value does not follow from its body and the chain"
                raise corrupt(line.key, segment.base_offset, what)
            chain = segment.metadata.chain
            segments.append(_outline(segment))
    except CorruptLogError as error:
        return Checked(segments, error.detail, keys.parse_segment_key(range_.lines[len(segments)].key)[2])
    if len(segments) < len(range_.lines):
        return Checked(
            segments, f"an object that is no segment lies among the segments: key={range_.lines[len(segments)].key}"
        )
    return Checked(segments)


def is_segment(line: ObjectSummary) -> bool:
    """Return True if the object's name is a segment's."""
    try:
        return line.key == keys.segment_key(*keys.parse_segment_key(line.key))
    except ValueError:
        return False


def chain_of(context: Context, key: str) -> str | None:
    """Return the chain value of the segment before a range; ``None`` if it has none.

    If that segment is damaged, its own range reports it.
    """
    try:
        return context.objects.get(key, 0, 1).metadata.get("chain")
    except (NotFound, Damaged):
        return None


def is_unlisted(context: Context, topic_id: str, partition: int, offset: int, base: int) -> bool:
    """Return True if there is a segment at ``offset`` that the listing lacked before ``base``.

    The segment was appended meanwhile: a listing made during appends may show a key and not the one before it, but it
    shows every segment that existed when it began.
    """
    if offset >= base:
        return False
    try:
        context.objects.get(keys.segment_key(topic_id, partition, offset), 0, 1)
    except NotFound:
        return False
    return True


def _outline(segment: Segment) -> Segment:
    """Return the segment with only the markers in its body, because these are folded."""
    kept: list[bytes] = []
    batches: list[tuple[int, BatchHeader]] = []
    size = 0
    for at, header in segment.batches:
        batches.append((size, header))
        if header.is_control:
            kept.append(segment.body[at : at + header.size])
            size += header.size
    return segment._replace(body=b"".join(kept), batches=batches)


def _check_segment(line: ObjectSummary, segment: Segment) -> None:
    if line.size != len(segment.body):
        raise CorruptLogError(f"a segment's size differs from its size in the listing: key={line.key}")
    for at, header in segment.batches:
        try:
            _check_records(segment, at, header)
        except compression.DECODE_ERRORS as error:
            what = f"a batch's records cannot be decoded: {compression.reason(error)}"
            raise corrupt(line.key, header.base_offset, what) from error


def _check_records(segment: Segment, at: int, header: BatchHeader) -> None:
    """Check each record's offset. Most of verify's time is spent in this loop."""
    batch = memoryview(segment.body)[at : at + header.size]
    if header.magic != 2 or header.codec >= len(compression.CODECS):
        raise CorruptLogError(f"no record batch of a known form: offset={header.base_offset} magic={header.magic}")
    payload = compression.payload(batch, header.codec, bytes_max=limits.DECOMPRESSED_BYTES_MAX)
    following = header.base_offset
    for record in compression.records(batch, payload, header.count):
        if record.offset != following:
            raise CorruptLogError(f"the offsets of a batch's records are not consecutive: offset={header.base_offset}")
        following += 1
    if following != header.next_offset:
        raise CorruptLogError(f"a batch does not hold the records that its header counts: offset={header.base_offset}")
