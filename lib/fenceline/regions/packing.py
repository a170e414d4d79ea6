"""How batches of a source share the segments of this region ("Pulling").

Rule: one segment has up to 1 MiB, or one larger batch. Decompressed it has up to 64 MiB, unless it is of one source
segment. A third region that takes it on must check it in one go.

Rule: a segment's numbers are dense: (count - records, count]. Where aborted records lie between, another segment begins
(I17). So each record's number is known from its segment alone.

Rule: a segment's position is the offset after the last source batch looked at. With it goes the chain value of the
source's segment that holds the offset before.

Not here: which batches are taken; see ``source_batches``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.format.segment import Replicated


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
        self._coming = 0  # decompressed, of what is taken next
        self._records = 0
        self._closed: list[Packed] = []

    def make_room(self, decoded: int) -> None:
        """End the segment that is being packed, if what is taken next would be too much in it, decompressed.

        Args:
            decoded: The size of what is taken next, decompressed.
        """
        if self._decoded + decoded > limits.REPLICATED_DECODED_BYTES:
            self.close()
        self._coming = decoded

    def take(self, batches: Sequence[bytes], *, records: int, number: int) -> None:
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
