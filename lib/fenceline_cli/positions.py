"""Positions in a topic where a command begins or ends: ``earliest``, an offset, the last five, a time, an hour ago.

Rule: a position is parsed before any request is sent, and becomes an offset in each partition by one request each.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal

from fenceline.errors import OffsetOutOfRangeError
from fenceline_cli import units
from fenceline_cli.codec_alone import load_codec
from fenceline_cli.output import CommandError

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.kinds import Isolation
    from fenceline.model.results import Bounds

HELP = (
    "earliest, latest, an offset, -5 (the last five), a time (2026-11-20T08:00Z, by default UTC) or -1h (an hour ago)"
)

_OFFSET = re.compile(r"[0-9]{1,19}")
_TAIL = re.compile(r"-[0-9]{1,19}")
_AGO = re.compile(r"-([0-9.]+[A-Za-z]+)")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Position:
    """A place in every partition.

    Attributes:
        kind: The meaning of ``number``: none, an offset, a count of records from the end, or ms since the epoch.
    """

    kind: Literal["earliest", "latest", "offset", "tail", "time"]
    number: int = 0

    def offset_in(self, client: Client, topic: str, partition: int, isolation: Isolation = "read_uncommitted") -> int:
        """Return the offset of this place in ``partition``; for a time after all records, its end.

        A partition ends at its next offset, or under read_committed at its last stable offset.
        """
        if self.kind == "offset":
            return self.number
        if self.kind == "time":
            found = client.offset_at(topic, partition, self.number)
            if found is not None:
                return found[0]
        bounds = client.offsets(topic, partition).bounds
        if self.kind == "earliest":
            return bounds.log_start_offset
        if self.kind == "tail":
            return _before_end(client, topic, partition, self.number, isolation)
        return end_of(bounds, isolation)


def _before_end(client: Client, topic: str, partition: int, count: int, isolation: Isolation) -> int:
    """Return the offset from which on a reader is shown the last ``count`` records, or the log start.

    Because markers and aborted records take offsets, too, the log is read backwards until so many records are found.
    """
    while True:
        bounds = client.offsets(topic, partition).bounds
        low = end_of(bounds, isolation)
        left, reach = count, count
        try:
            while left > 0:
                if low - bounds.log_start_offset <= left:
                    return bounds.log_start_offset
                high, low = low, max(bounds.log_start_offset, low - reach)
                for first, end in reversed(_shown(client, topic, partition, low, high, isolation)):
                    if end - first >= left:
                        return end - left
                    left -= end - first
                reach *= 2
            return low
        except OffsetOutOfRangeError:
            continue  # retention has moved the log start meanwhile


def _shown(
    client: Client, topic: str, partition: int, low: int, high: int, isolation: Isolation
) -> list[tuple[int, int]]:
    """Return the offsets in [low, high) at which records are shown, as ascending ranges."""
    load_codec()
    from fenceline.format.batch import headers

    ranges: list[tuple[int, int]] = []
    while low < high:
        page = client.read_batches(topic, partition, low, isolation=isolation)
        for _, header in headers(page.body):
            first, end = max(header.base_offset, low), min(header.next_offset, high)
            if first < end:
                ranges.append((first, end))
        low = page.position
    return ranges


def end_of(bounds: Bounds, isolation: Isolation) -> int:
    """Return the offset where a reader's partition ends at present."""
    return bounds.last_stable_offset if isolation == "read_committed" else bounds.next_offset


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


def parse(text: str, what: str, verb: str = "takes") -> Position:
    """Return the place that ``text`` names; ``what`` is the option that takes it.

    Raises:
        CommandError: ``text`` names no place.
    """
    if text == "earliest":
        return Position("earliest")
    if text in ("latest", "end"):
        return Position("latest")
    if text.startswith("@"):
        return Position("time", moment(text[1:], f"{what} @"))
    if _OFFSET.fullmatch(text):
        return Position("offset", int(text))
    if _TAIL.fullmatch(text):
        return Position("tail", int(text[1:]))
    if ago := _AGO.fullmatch(text):
        try:
            return Position("time", max(0, time.time_ns() // 1_000_000 - units.parse(ago[1], "ms", plain="ms")))
        except units.UnitError as error:
            raise CommandError(f"{what} {error}") from error
    if _DATE.match(text):
        return Position("time", moment(text, what))
    raise CommandError(f"{what} {verb} {HELP}: {text}")


def moment(text: str, what: str) -> int:
    """Return the ms since the epoch of a time in ISO form; one without a zone is UTC."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{what} takes a time in ISO form, such as 2026-11-20T08:00:00Z: {text}") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
