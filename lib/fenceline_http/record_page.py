"""A page of records as JSON, cut so that it passes the gateway.

Rule: the JSON stays below 4 MiB, and ``position`` is that of the first record cut off (API.md, "Read"). Bytes that are
not UTF-8 in a record before the cut turn the whole page to base64. A single record that is larger comes as base64.
"""

from __future__ import annotations

import contextlib
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from typing import Any

from fenceline import limits
from fenceline.model.results import Page, ReadRecord
from fenceline_http import responses

_ENVELOPE_BYTES = 512  # around the records
_RECORDS_BYTES_MAX = limits.REPLY_BYTES_MAX - _ENVELOPE_BYTES

ToText = Callable[[bytes], str]


def to_json(page: Page, encoding: str) -> str:
    """Return the page as JSON. ``encoding`` is the one asked for; the page names the one it has."""
    records = page.records
    text, count, encoding = (*_as_base64(records), "base64") if encoding == "base64" else _as_text(records)
    position = page.position if count == len(records) else records[count].offset
    shown = {"encoding": encoding, "position": position, **responses.bounds(page.bounds)}
    if page.active_region is not None:
        shown["active_region"] = page.active_region
    rest = responses.to_json(shown)
    return f'{{"records":{text},{rest[1:]}'


def _as_text(records: Sequence[ReadRecord]) -> tuple[str, int, str]:
    """Return the records that pass, how many, and the encoding, which is base64 only where it must be."""
    rows = []
    with contextlib.suppress(UnicodeDecodeError):
        for record in records:
            rows.append(_row(record, _utf8))  # One by one: those before the first that is no text count.
    text, count = _cut(rows)
    if rows and not count:
        return (*_as_base64(records[:1]), "base64")
    if count < len(rows) or len(rows) == len(records):
        return text, count, "utf8"
    encoded, encoded_count = _as_base64(records)
    # Where the cut for base64 leaves only text on the page, there is no need for it.
    return (encoded, encoded_count, "base64") if encoded_count > len(rows) else (text, count, "utf8")


def _as_base64(records: Sequence[ReadRecord]) -> tuple[str, int]:
    """Return the records that pass, and how many; at least one, however large."""
    rows = [_row(record, _base64) for record in records]
    text, count = _cut(rows)
    return (text, count) if count or not rows else (responses.to_json(rows[:1]), 1)


def _cut(rows: list[dict[str, Any]]) -> tuple[str, int]:
    """Return as many of the rows as pass, as JSON, and how many these are."""
    text = responses.to_json(rows)
    if responses.bytes_of(text) <= _RECORDS_BYTES_MAX:
        return text, len(rows)
    left = _RECORDS_BYTES_MAX
    for index, row in enumerate(rows):
        left -= responses.bytes_of(responses.to_json(row)) + 1
        if left < 0:
            return responses.to_json(rows[:index]), index
    return text, len(rows)


def _row(record: ReadRecord, to_text: ToText) -> dict[str, Any]:
    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None if record.key is None else to_text(record.key),
        "value": None if record.value is None else to_text(record.value),
        "headers": [[name, None if value is None else to_text(value)] for name, value in record.headers],
        "topic_epoch": record.topic_epoch,
    }
    if record.origin is not None:
        row["origin"] = record.origin
    if record.number is not None:
        row |= {"origin_topic_id": record.origin_topic_id, "number": record.number}
    return row


def _utf8(data: bytes) -> str:
    return data.decode()


def _base64(data: bytes) -> str:
    return b2a_base64(data, newline=False).decode()
