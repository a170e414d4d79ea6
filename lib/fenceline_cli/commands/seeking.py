"""The effect of a seek on a subscription: how many records it would skip, and how many would come again.

Rule: records are counted, not offsets, since a log holds markers as well. The list of segments counts the records of
whole segments; only at the two ends a segment's records are read. Records that were acknowledged individually are
counted by their offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fenceline.errors import OffsetOutOfRangeError
from fenceline_cli.commands.places import Place

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.client.types import Cursor


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's part of a seek.

    Attributes:
        skipped: How many records were not acknowledged, and would no longer be delivered.
        repeated: How many records were acknowledged, and would be delivered again.
    """

    partition: int
    from_offset: int
    to_offset: int
    skipped: int
    repeated: int

    @property
    def changes_anything(self) -> bool:
        return bool(self.skipped or self.repeated)


def move_of(client: Client, topic: str, cursor: Cursor, place: Place) -> Move:
    """Return what moving ``cursor`` to ``place`` would do.

    Raises:
        OffsetOutOfRangeError: The place is not in the partition's log.
    """
    number, mark = cursor.partition, cursor.mark_delete_offset
    to_offset = place.offset_in(client, topic, number)
    bounds = client.offsets(topic, number).bounds
    if not bounds.log_start_offset <= to_offset <= bounds.next_offset:
        raise OffsetOutOfRangeError(
            f"the offset is not in the partition's log: partition={number} offset={to_offset} "
            f"log_start_offset={bounds.log_start_offset} next_offset={bounds.next_offset}",
            log_start_offset=bounds.log_start_offset,
            next_offset=bounds.next_offset,
        )
    forgotten = sum(end - max(start, to_offset) for start, end in cursor.individually_acknowledged if end > to_offset)
    if to_offset < mark:
        repeated = records_between(client, topic, number, max(to_offset, bounds.log_start_offset), mark)
        return Move(number, mark, to_offset, 0, repeated + forgotten)
    passed = sum(min(end, to_offset) - start for start, end in cursor.individually_acknowledged if start < to_offset)
    skipped = records_between(client, topic, number, mark, to_offset) - passed
    return Move(number, mark, to_offset, max(0, skipped), forgotten)


def records_between(client: Client, topic: str, partition: int, start: int, end: int) -> int:
    """Return the number of records from offset ``start`` up to, not including, ``end``."""
    count, offset = 0, start
    while offset < end:
        listed = client.segments(topic, partition, offset=offset)
        for segment in listed.segments:
            low, high = max(segment.base_offset, start), min(segment.next_offset, end)
            if (low, high) == (segment.base_offset, segment.next_offset):
                count += segment.records
            elif low < high:
                count += _read_between(client, topic, partition, low, high)
            offset = segment.next_offset
        if not listed.segments:
            break
    return count


def _read_between(client: Client, topic: str, partition: int, start: int, end: int) -> int:
    with client.reader(topic, [partition], start={partition: start}) as reader:
        count = 0
        for _, records in reader.pages():
            count += sum(record.offset < end for record in records)
            if reader.positions[partition] >= end:
                break
        return count
