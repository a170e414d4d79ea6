"""The markers that end transactions, segment by segment, as readers passed them last ("Readers of transactions").

Rule: segments are immutable, so any copy is valid. A page looks past its own end for the outcomes of its batches, and
the next page begins with the same segments. Their ends are remembered, so that their headers are read once for both.

Not here: which batch an outcome is for; see ``read.aborted``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import control
from fenceline.format.batch import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, MalformedBatch
from fenceline.format.segment import Segment
from fenceline.runtime import Runtime

_MARKER = TRANSACTIONAL | CONTROL  # the attributes of COMMIT and ABORT
# The record of each marker that ends a transaction, as this version writes it, and whether it is an ABORT.
_PLAIN_ENDS = {
    control.encode_transaction_marker(
        is_commit, producer_id=0, producer_epoch=0, base_offset=0, leader_epoch=-1, now_ms=0
    )[HEADER_BYTES:]: not is_commit
    for is_commit in (True, False)
}


class TransactionEnds(NamedTuple):
    """The ends of transactions in one segment.

    Attributes:
        last_offset: The segment's.
        by_producer: (offset, whether it is an ABORT) of each end, by offset.
    """

    last_offset: int
    by_producer: Mapping[int, Sequence[tuple[int, bool]]]


class SegmentEnds:
    """The ends of transactions in the segments that were passed last. Safe to share between threads."""

    def __init__(self, runtime: Runtime, ends_max: int = limits.SEGMENT_ENDS_MAX) -> None:
        self._lock = runtime.lock()
        self._ends_max = ends_max
        self._count = 0  # the producers in all of them; a segment without any counts as one
        self._segments: OrderedDict[tuple[str, str, int], TransactionEnds] = OrderedDict()

    def of(self, segment: Segment) -> TransactionEnds:
        """Return the ends in a segment.

        Raises:
            CorruptLogError: A marker cannot be read.
        """
        metadata = segment.metadata
        key = (metadata.chain, metadata.write_id, segment.base_offset)  # the chain binds the body, too
        with self._lock:
            known = self._segments.get(key)
            if known is not None:
                self._segments.move_to_end(key)
                return known
        found = TransactionEnds(segment.next_offset - 1, _ends(segment))
        with self._lock:
            if self._segments.setdefault(key, found) is found:
                self._count += _size(found)
            while self._count > self._ends_max:
                _, dropped = self._segments.popitem(last=False)
                self._count -= _size(dropped)
        return found


def _size(ends: TransactionEnds) -> int:
    return max(len(ends.by_producer), 1)


def _ends(segment: Segment) -> Mapping[int, Sequence[tuple[int, bool]]]:
    found: dict[int, tuple[tuple[int, bool], ...]] = {}
    body = segment.body
    for at, header in segment.batches:
        if header.attributes & _MARKER != _MARKER:
            continue
        is_abort = _PLAIN_ENDS.get(body[at + HEADER_BYTES : at + header.size])
        if is_abort is None:
            marker_type = _type_of(segment, at, header)
            if marker_type not in (control.ABORT, control.COMMIT):
                continue
            is_abort = marker_type == control.ABORT
        found[header.producer_id] = (*found.get(header.producer_id, ()), (header.base_offset, is_abort))
    return found


def _type_of(segment: Segment, at: int, header: BatchHeader) -> int:
    try:
        return control.type_of(segment.body, at, header)
    except MalformedBatch as error:
        raise CorruptLogError(
            f"a marker in the log cannot be read; restore it from a backup: {error!r} offset={header.base_offset}"
        ) from error
