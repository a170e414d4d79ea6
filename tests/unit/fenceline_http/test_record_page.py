"""A page of records is the JSON that a general encoder makes of the same members."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from fenceline.model.results import Bounds, Page, ReadRecord
from fenceline_http import record_page

TEXT = st.text(st.characters(codec="utf-8"), max_size=8)
VALUE = st.none() | TEXT.map(str.encode)
ANY_VALUE = st.none() | st.binary(max_size=8)
INTEGER = st.integers(-1, 2**63 - 1)
EACH = [ReadRecord(0, 0, None, bytes([code]), [], -1, None) for code in range(0x80)]  # each character alone


def records(value: st.SearchStrategy[bytes | None]) -> st.SearchStrategy[list[ReadRecord]]:
    headers = st.lists(st.tuples(TEXT, value), max_size=2)
    own = st.builds(ReadRecord, INTEGER, INTEGER, value, value, headers, INTEGER, st.none())
    taken = st.builds(ReadRecord, INTEGER, INTEGER, value, value, headers, INTEGER, TEXT, TEXT, INTEGER)
    cut = st.builds(ReadRecord, INTEGER, INTEGER, value, value, headers, INTEGER, st.none(), value_bytes=INTEGER)
    return st.lists(own | taken | cut, max_size=3)


def shown(record: ReadRecord, to_text: Callable[[bytes], str]) -> dict[str, Any]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else to_text(data)

    row: dict[str, Any] = {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": text(record.key),
        "value": text(record.value),
        "headers": [[name, text(value)] for name, value in record.headers],
        "topic_epoch": record.topic_epoch,
    }
    if record.origin is not None:
        row["origin"] = record.origin
    if record.number is not None:
        row |= {"origin_topic_id": record.origin_topic_id, "number": record.number}
    if record.value_bytes is not None:
        row["value_bytes"] = record.value_bytes
    return row


def check(found: list[ReadRecord], encoding: str, to_text: Callable[[bytes], str]) -> None:
    made = record_page.to_json(Page(found, 7, Bounds(0, 9, 8)), encoding)
    wanted = json.dumps([shown(one, to_text) for one in found], ensure_ascii=False, separators=(",", ":"))
    assert made.startswith(f'{{"records":{wanted},"encoding":"{encoding}","position":7,')
    json.loads(made)


@given(records(VALUE))
@example([ReadRecord(0, 0, bytes(range(0x80)), b'"\\\x00\x1f\x7f', [("\n", b"\t")], -1, None)])
@example(EACH)
def test_a_page_of_text_is_as_a_general_encoder_writes_it(found: list[ReadRecord]) -> None:
    check(found, "utf8", bytes.decode)


@given(records(ANY_VALUE))
def test_a_page_in_base64_is_as_a_general_encoder_writes_it(found: list[ReadRecord]) -> None:
    check(found, "base64", lambda data: b64encode(data).decode())


@given(st.lists(st.tuples(TEXT, st.integers(0, 12)), max_size=3))
@example([("a\u20acb", 2)])
@example([("\U0001f600", 3)])
def test_a_value_cut_within_a_character_is_text_up_to_it(values: list[tuple[str, int]]) -> None:
    found = [
        ReadRecord(0, 0, None, text.encode()[:cut], [], -1, None, value_bytes=len(text.encode()))
        for text, cut in values
    ]
    page = json.loads(record_page.to_json(Page(found, 7, Bounds(0, 9, 8)), "utf8"))
    assert page["encoding"] == "utf8"
    for row, (text, cut) in zip(page["records"], values, strict=True):
        assert text.startswith(row["value"])
        assert cut - 4 < len(row["value"].encode()) <= cut or row["value"] == text
        assert row["value_bytes"] == len(text.encode())


def test_a_cut_value_that_is_no_text_before_its_last_character_makes_the_page_base64() -> None:
    rows = {b"ab\xff": "base64", b"\xff\xe2": "base64", b"ab\xe2": "utf8", b"\x80": "base64"}
    for value, encoding in rows.items():
        page = Page([ReadRecord(0, 0, None, value, [], -1, None, value_bytes=9)], 7, Bounds(0, 9, 8))
        assert json.loads(record_page.to_json(page, "utf8"))["encoding"] == encoding, value
