"""A page of records as JSON, cut so that it passes the gateway.

Rule: the JSON stays below 4 MiB, and ``position`` is that of the first record cut off (contract, "Read"). The whole
page is in base64 if a record before the cut has bytes that are not UTF-8, or if a single record is larger than the
bound. Only the bytes that are shown decide: of a value of which only the beginning is shown, the rest may be anything.
"""

from __future__ import annotations

import codecs
import contextlib
from binascii import b2a_base64
from collections.abc import Callable, Sequence
from dataclasses import replace

from fenceline import answers, limits
from fenceline.model.results import Page, ReadRecord
from fenceline_http import responses

_ENVELOPE_BYTES = 512  # around the records
_RECORDS_BYTES_MAX = limits.REPLY_BYTES_MAX - _ENVELOPE_BYTES

_ESCAPED = bytes((*range(0x20), *b'"\\'))  # what JSON does not take as it is (RFC 8259, "Strings")

ToJsonText = Callable[[bytes], str]


def to_json(page: Page, encoding: str) -> str:
    """Return the page as JSON. ``encoding`` is the one asked for; the page names the one it has."""
    return "{" + members_of(page, encoding, _RECORDS_BYTES_MAX)[0] + "}"


def members_of(page: Page, encoding: str, bytes_max: int) -> tuple[str, bool]:
    """Return the members of the page's object as JSON, and whether all records are there.

    Args:
        bytes_max: For the records; the first one is there however large it is.
    """
    records = page.records
    batches, costs = _batches(page)
    if encoding == "base64":
        text, count = _as_base64(records, costs, bytes_max)
    else:
        text, count, encoding = _as_text(records, costs, bytes_max)
    position = page.position if count == len(records) else records[count].offset
    shown = {
        "encoding": encoding,
        "position": position,
        "log_start_offset": page.log_start_offset,
        "next_offset": page.next_offset,
        "last_stable_offset": page.last_stable_offset,
    }
    if page.active_region is not None:
        shown["active_region"] = page.active_region
    if page.compaction_horizon is not None:
        shown |= {"compaction_horizon": page.compaction_horizon, "deletes_to": page.deletes_to}
    rest = responses.to_json(shown)[1:-1]
    if page.batches is not None:
        rest += f',"batches":{_list(batches[: sum(cost > 0 for cost in costs[:count])])}'
    return f'"records":{text},{rest}', count == len(records)


def _batches(page: Page) -> tuple[Sequence[str], Sequence[int]]:
    """Return the page's batches as JSON, and what each record costs beside itself: its batch, where it is the first."""
    rows = [responses.to_json(answers.to_json(batch)) for batch in page.batches or ()]
    costs = [0] * len(page.records)
    at, ends = 0, [batch.next_offset for batch in page.batches or ()]
    for row, end in zip(rows, ends, strict=True):
        costs[at] = responses.bytes_of(row) + 1
        while at < len(costs) and page.records[at].offset < end:
            at += 1
    return rows, costs


def _as_text(records: Sequence[ReadRecord], costs: Sequence[int], bytes_max: int) -> tuple[str, int, str]:
    """Return the records that pass, how many, and the encoding, which is base64 only where it must be."""
    rows = []
    with contextlib.suppress(UnicodeDecodeError):
        for record in records:
            rows.append(
                _row(_of_characters(record), _utf8)
            )  # One by one: those before the first that is no text count.
    count = _passing(rows, costs, bytes_max)
    if rows and not count:
        return (*_as_base64(records[:1], costs, bytes_max), "base64")
    if count < len(rows) or len(rows) == len(records):
        return _list(rows[:count]), count, "utf8"
    encoded, encoded_count = _as_base64(records, costs, bytes_max)
    # If the cut for base64 leaves only text on the page, then base64 is not needed.
    if encoded_count > len(rows):
        return encoded, encoded_count, "base64"
    return _list(rows), count, "utf8"


def _of_characters(record: ReadRecord) -> ReadRecord:
    """Return the record, without the beginning of the character within which its value was cut.

    Raises:
        UnicodeDecodeError: What is left of its value is not UTF-8.
    """
    value = record.value
    if record.value_bytes is None or value is None:
        return record
    whole = codecs.utf_8_decode(value, "strict", False)[1]
    return record if whole == len(value) else replace(record, value=value[:whole])


def _as_base64(records: Sequence[ReadRecord], costs: Sequence[int], bytes_max: int) -> tuple[str, int]:
    """Return the records that pass, and how many; at least one, however large."""
    rows = [_row(record, _base64) for record in records]
    count = _passing(rows, costs, bytes_max) or min(len(rows), 1)
    return _list(rows[:count]), count


def _passing(rows: Sequence[str], costs: Sequence[int], bytes_max: int) -> int:
    """Return how many of the rows pass, with what each costs beside itself."""
    left = bytes_max
    for index, (row, cost) in enumerate(zip(rows, costs, strict=False)):
        left -= responses.bytes_of(row) + 1 + cost
        if left < 0:
            return index
    return len(rows)


def _list(rows: Sequence[str]) -> str:
    return f"[{','.join(rows)}]"


def _row(record: ReadRecord, to_json_text: ToJsonText) -> str:
    """Return a record as JSON, written out because a general encoder takes twice as long, most of it for values."""
    key = "null" if record.key is None else to_json_text(record.key)
    value = "null" if record.value is None else to_json_text(record.value)
    headers = ",".join([_header(name, value, to_json_text) for name, value in record.headers])
    more = "" if record.origin is None else f',"origin":{responses.to_json(record.origin)}'
    if record.number is not None:
        more += f',"origin_topic_id":{responses.to_json(record.origin_topic_id)},"number":{record.number}'
    if record.value_bytes is not None:
        more += f',"value_bytes":{record.value_bytes}'
    return (
        f'{{"offset":{record.offset},"timestamp":{record.timestamp},"key":{key},"value":{value},"headers":[{headers}],'
        f'"topic_epoch":{record.topic_epoch}{more}}}'
    )


def _header(name: str, value: bytes | None, to_json_text: ToJsonText) -> str:
    return f"[{responses.to_json(name)},{'null' if value is None else to_json_text(value)}]"


def _utf8(data: bytes) -> str:
    text = data.decode()
    is_plain = len(data.translate(None, _ESCAPED)) == len(data)
    return f'"{text}"' if is_plain else responses.to_json(text)


def _base64(data: bytes) -> str:
    return f'"{b2a_base64(data, newline=False).decode()}"'
