"""The records of a stored batch from an offset on, decoded only as far as a page needs them.

Rule: if a page ends inside a batch, the process remembers the place of the next record, and the batch's decompressed
bytes. The page that begins at that record goes on from there, so that all pages of a batch together decode it about
once. The remembered bytes and places stay true, because a batch is immutable.

Not here: checking the batch's CRC, which ``segment.parse_segment`` did.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from aiokafka.record.default_records import DefaultRecord

from fenceline import limits
from fenceline.format import compression
from fenceline.format.batch import BatchHeader, MalformedBatch, payload_of, undecodable
from fenceline.format.segment import Segment, damaged_batch
from fenceline.runtime import Runtime

_Key: TypeAlias = tuple[str, int, int, int]  # the write id, and the batch's base offset, CRC and size


class PayloadPosition(NamedTuple):
    """The place where a record begins in a batch's payload. All records before it have lower offsets."""

    offset: int
    number: int  # how many records are before it
    position: int


_FIRST = PayloadPosition(0, 0, 0)


class _Known(NamedTuple):
    """One remembered batch: its payload, and places in it."""

    payload: memoryview | None  # None if the segment holds it uncompressed
    places: tuple[PayloadPosition, ...]  # the newest last


class UnpackedBatches:
    """The batches inside which pages ended last. Safe to share between threads."""

    def __init__(self, runtime: Runtime, bytes_max: int = limits.UNPACKED_CACHE_BYTES) -> None:
        self._lock = runtime.lock()
        self._bytes_max = bytes_max
        self._bytes = 0
        self._batches: OrderedDict[_Key, _Known] = OrderedDict()

    def find(self, key: _Key, offset: int) -> tuple[memoryview | None, PayloadPosition]:
        """Return a batch's payload, if it is remembered, and the last known place that is not after ``offset``."""
        with self._lock:
            known = self._batches.get(key)
            if known is None:
                return None, _FIRST
            self._batches.move_to_end(key)
        return known.payload, max((place for place in known.places if place.offset <= offset), default=_FIRST)

    def note(self, key: _Key, payload: memoryview | None, place: PayloadPosition) -> None:
        """Remember a place, and the payload if none is remembered; drop the batches that were used least lately."""
        size = 0 if payload is None else len(payload)
        if size > self._bytes_max:
            return
        with self._lock:
            known = self._batches.pop(key, None)
            if known is None:
                known = _Known(payload, ())
                self._bytes += size
            others = [one for one in known.places if one != place]
            places = (*others, place)[-limits.UNPACKED_PLACES_MAX :]
            self._batches[key] = known._replace(places=places)
            while self._bytes > self._bytes_max or len(self._batches) > limits.UNPACKED_BATCHES_MAX:
                _, dropped = self._batches.popitem(last=False)
                self._bytes -= 0 if dropped.payload is None else len(dropped.payload)


class Unpacking:
    """The records of one batch from about ``start`` on: some below it may come first. Iterate over it once.

    Raises:
        CorruptLogError: The records cannot be decoded. The iteration raises it at the first such record.
    """

    def __init__(self, unpacked: UnpackedBatches, segment: Segment, at: int, header: BatchHeader, start: int) -> None:
        self._unpacked = unpacked
        self._segment = segment
        self._at = at
        self._header = header
        self._key: _Key = (segment.metadata.write_id, header.base_offset, header.crc, header.size)
        found, self._place = unpacked.find(self._key, start)
        self._is_known = found is not None
        self._payload = self._unpacked_now() if found is None else found
        self._window = (
            self._place.number,
            self._place.position,
        )  # the number and position of the first record of the window in use

    def _unpacked_now(self) -> memoryview:
        try:
            return payload_of(self._segment.body, self._at, self._header)
        except MalformedBatch as error:
            raise damaged_batch(self._segment, error) from error

    def __iter__(self) -> Iterator[DefaultRecord]:
        header, at = self._header, self._at
        batch = memoryview(self._segment.body)[at : at + header.size]
        _, number, position = self._place
        try:
            for first, where, records in compression.windows(batch, self._payload, header.count, number, position):
                self._window = first, where
                yield from records
        except compression.DECODE_ERRORS as error:
            raise damaged_batch(self._segment, undecodable(at, error)) from error

    def stop_at(self, offset: int, taken: int) -> None:
        """Remember the record with this offset, which followed ``taken`` others here, as the next one to read."""
        first, position = self._window
        number = self._place.number + taken
        place = PayloadPosition(offset, number, compression.position_behind(self._payload, position, number - first))
        is_in_segment = not self._is_known and self._header.codec == 0
        self._unpacked.note(self._key, None if is_in_segment else self._kept(), place)

    def _kept(self) -> memoryview:
        return self._payload if self._is_known else compression.kept(self._payload)
