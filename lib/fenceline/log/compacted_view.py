"""A compacted view as readers see it: which of its files holds an offset, and the records there ("Compaction").

Rule: a view is the files under one attempt's prefix. All of them exist before the pointer in the head leads to it, and
none is changed after. So a listing of that prefix is the view's index.

A file holds record batches with gaps between offsets, as Kafka's own compacted segments do. Its metadata says where
each block of about 2 MiB begins, so that a page costs a block and not a file, and lists the regions of the file's
replicated batches. A batch's base sequence, which has no other meaning because the batch has no producer id, is the
number of its region in that list, -1 for this region.

Not here: how a view is made; see ``compaction``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import checksummed, keys
from fenceline.format.batch import BatchHeader, MalformedBatch, has_right_crc, headers
from fenceline.format.crc32c import extended
from fenceline.format.segment import Replicated, Segment, SegmentMetadata, corrupt
from fenceline.log.checkpoint_items import CompactedView, Head
from fenceline.log.context import Context
from fenceline.ports import NotFound, Unavailable

_BLOCKS_AT_ONCE = 4  # fetched side by side when a view is read whole


@dataclass(frozen=True, slots=True)
class FileMetadata:
    """The user metadata of a view's file. Stored: never rename."""

    attempt: str
    appended_at: int  # ms, the compactor's clock
    records: int
    origins: Sequence[str]  # the regions of replicated batches, by number
    blocks: Sequence[tuple[int, int]]  # (base offset of the first batch, position in the body)
    checksum: str = ""  # the body's, as ``checksummed`` adds it

    def to_strings(self) -> dict[str, str]:
        first = self.blocks[0][0]
        origins = {"origins": ",".join(self.origins)} if self.origins else {}  # some stores drop an empty value
        return {
            "write-id": self.attempt,
            "appended-at": str(self.appended_at),
            "records": str(self.records),
            **origins,
            "blocks": ",".join(f"{offset - first:x}:{position:x}" for offset, position in self.blocks),
        }

    @classmethod
    def from_strings(cls, strings: Mapping[str, str], first: int) -> FileMetadata:
        """Return the metadata of the file whose first batch begins at ``first``.

        Raises:
            KeyError, ValueError: A member is missing or damaged.
        """
        blocks = [tuple(int(number, 16) for number in block.split(":")) for block in strings["blocks"].split(",")]
        return cls(
            strings["write-id"],
            int(strings["appended-at"]),
            int(strings["records"]),
            tuple(strings["origins"].split(",")) if "origins" in strings else (),
            tuple((first + offset, position) for offset, position in blocks),
            strings.get(checksummed.MEMBER, ""),
        )


class ViewFiles:
    """The files of one view, listed once, at the first read. Safe to share between threads."""

    def __init__(self, context: Context, topic_id: str, partition: int, view: CompactedView) -> None:
        self.view = view
        self._context = context
        self._topic_id = topic_id
        self._partition = partition
        self._files: list[tuple[int, int]] | None = None  # (base offset, size), by offset
        self._metadata: dict[int, FileMetadata] = {}

    def segments(self, start: int) -> Iterator[Segment]:
        """Yield the view's batches, from the block with the first record at or after ``start`` on.

        There are gaps between offsets, also within a batch. All batches of a yielded segment have one origin.

        Raises:
            CorruptLogError: The view is damaged.
            Unavailable: The store could not be asked, or a newer view has replaced this one.
        """
        files = self.files()
        at = max(bisect_right(files, start, key=lambda file: file[0]) - 1, 0)
        for base, size in files[at:]:
            blocks = self._blocks(base, size)
            first = max(bisect_right(blocks, start, key=lambda block: block[0]) - 1, 0)
            for _, position, end in blocks[first:]:
                key = f"{self._key(base)}#{position}"
                block = self._context.cache.get(key)
                if block is None:
                    block = self._block(base, position, end)
                    self._context.cache.put(key, block)
                yield from self._by_origin(base, block)

    def scan(self, start: int = 0, end: int | None = None) -> Iterator[Segment]:
        """Yield the files of the view, as ``segments`` does, for a copy of it, without filling the cache.

        A copy must read to the end, because each file is checked as a whole after its last segment.

        Args:
            start: The base offset of the first file that is read.
            end: Files from this base offset on are not read.
        """
        for base, size in self.files():
            if base < start or (end is not None and base >= end):
                continue
            blocks, crc = self._blocks(base, size), 0
            for at in range(0, len(blocks), _BLOCKS_AT_ONCE):
                some = blocks[at : at + _BLOCKS_AT_ONCE]
                calls = [lambda base=base, p=p, e=e: self._block(base, p, e) for _, p, e in some]
                for block in self._context.runtime.gather(calls):
                    crc = extended(crc, block.body)
                    yield from self._by_origin(base, block)
            if not checksummed.matches(self._described(base).checksum, crc):
                raise corrupt(self._key(base), base, "it does not match the checksum that is stored with it")

    def _key(self, base: int) -> str:
        return keys.compacted_key(self._topic_id, self._partition, self.view.horizon, self.view.attempt, base)

    def files(self) -> list[tuple[int, int]]:
        """Return (base offset, size in bytes) of each file, by offset; they are listed once.

        Raises:
            CorruptLogError, Unavailable: As ``segments``.
        """
        if self._files is None:
            files = list_files(self._context, self._topic_id, self._partition, self.view)
            if len(files) != self.view.files or sum(size for _, size in files) != self.view.bytes:
                raise self._lost("its files are not the ones that the compactor made")
            self._files = files
        return self._files

    def _blocks(self, base: int, size: int) -> list[tuple[int, int, int]]:
        """Return (base offset of the first batch, position, end) of a file's blocks."""
        blocks = self._described(base).blocks
        ends = [*(position for _, position in blocks[1:]), size]
        return [(offset, position, end) for (offset, position), end in zip(blocks, ends, strict=True)]

    def _described(self, base: int) -> FileMetadata:
        found = self._metadata.get(base)
        if found is None:
            key = self._key(base)
            try:
                found = FileMetadata.from_strings(self._context.objects.get(key, 0, 1).metadata, base)
            except NotFound as error:
                raise self._lost(f"a file is missing: key={key}") from error
            except (KeyError, ValueError) as error:
                raise corrupt(key, base, f"its metadata is incomplete or damaged: {error}") from error
            self._metadata[base] = found
        return found

    def _block(self, base: int, start: int, end: int) -> Segment:
        key = self._key(base)
        try:
            body = self._context.objects.get(key, start, end).body
        except NotFound as error:
            raise self._lost(f"a file is missing: key={key}") from error
        try:
            batches = tuple(headers(body))
        except MalformedBatch as error:
            raise corrupt(key, base, str(error)) from error
        if not batches:
            raise corrupt(key, base, f"a block is empty: position={start}")
        for position, header in batches:
            if not has_right_crc(body, position, header):
                raise corrupt(key, header.base_offset, "a batch does not match its CRC")
        for (_, one), (_, other) in pairwise(batches):
            if other.base_offset < one.next_offset:
                raise corrupt(key, other.base_offset, "its batches are out of order")
        return self._segment(base, body, batches, None)

    def _by_origin(self, base: int, block: Segment) -> Iterator[Segment]:
        origins = self._described(base).origins
        if not origins:
            yield block
            return
        for number, run in groupby(block.batches, key=lambda batch: batch[1].base_sequence):
            if number >= len(origins):
                raise corrupt(self._key(base), block.base_offset, f"a batch names an unknown origin: number={number}")
            yield self._segment(base, block.body, tuple(run), None if number < 0 else origins[number])

    def _segment(
        self, base: int, body: bytes, batches: tuple[tuple[int, BatchHeader], ...], origin: str | None
    ) -> Segment:
        described = self._described(base)
        metadata = SegmentMetadata(
            write_id=described.attempt,
            appended_at=described.appended_at,
            origin=origin or self._context.region,
            records=0,
            bytes=0,
            max_timestamp=-1,
            replicated=None if origin is None else Replicated("", 0, 0),
        )
        return Segment(batches[0][1].base_offset, batches[-1][1].next_offset, body, metadata, batches)

    def _lost(self, what: str) -> CorruptLogError | Unavailable:
        """Return the error for a missing file: the view is damaged, unless another view is in force by now."""
        key = keys.head_item(self._topic_id, self._partition)
        item = self._context.items.get([key]).get(key)
        view = None if item is None else Head.from_value(item.value).view
        if view is not None and view.attempt == self.view.attempt:
            prefix = keys.view_prefix(self._topic_id, self._partition, self.view.horizon, self.view.attempt)
            return CorruptLogError(f"a compacted view is damaged; restore it from a backup: {what} prefix={prefix}")
        return Unavailable(
            f"another compacted view replaced this one while it was read; send the request again: {what}"
        )


def list_files(context: Context, topic_id: str, partition: int, view: CompactedView) -> list[tuple[int, int]]:
    """Return (base offset, size in bytes) of each object under the view's prefix, by offset."""
    prefix, after = keys.view_prefix(topic_id, partition, view.horizon, view.attempt), ""
    files: list[tuple[int, int]] = []
    while True:
        listed = context.objects.list(prefix, after, limits.LIST_MAX)
        files += [(keys.parse_compacted_key(line.key)[4], line.size) for line in listed]
        if len(listed) < limits.LIST_MAX:
            return files
        after = listed[-1].key
