"""What is JSON, and whose fault it is when a body is not (contract, "Form of requests")."""

from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import InvalidRequestError
from fenceline_http import strict_json

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda children: st.lists(children) | st.dictionaries(st.text(), children),
)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"a": NaN}', "a"),
        (b'{"a": [1, Infinity]}', "a[1]"),
        (b'{"a": -Infinity}', "a"),
        (b'{"a": 1, "a": 2}', "a"),
        (b'{"records": [{}, {"value": "1", "value": "2"}]}', "records[1].value"),
        (b'{"records": [{"value": "\\ud800"}]}', "records[0].value"),
        (b'{"records": [{"headers": [["h", "\\uDFFF\\uD800"]]}]}', "records[0].headers[0][1]"),
        (b'{"a": {"\\udc00": 1}}', "a"),
        (b'{"a": ' + b"1" * 21 + b"}", "a"),
        (b'{"a": -' + b"1" * 5000 + b"}", "a"),
        (b'\xef\xbb\xbf{"a": 1}', None),
        (b'{"a": "\xff"}', None),
        ('{"a": 1}'.encode("utf-16"), None),
        (b"{'a': 1}", None),
        (b'{"a": 1,}', None),
        (b'{"a": 01}', None),
        (b'{"a": +1}', None),
        (b'{"a": 1} x', None),
        (b'{"a": "\n"}', None),
        (b'{"a": "\\x41"}', None),
        (b"\x0c{}", None),
        (b"", None),
        (b" ", None),
        (b"[" * 100_000, None),
        (b"[" * 100_000 + b"]" * 100_000, None),
        (b'{"a":' * 65 + b"1" + b"}" * 65, None),
        (b'["\\"[', None),
    ],
)
def test_json_that_is_not_strict_is_refused_with_its_field(body: bytes, field: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        strict_json.loads(body)
    assert caught.value.extra.get("field") == field


def test_sixty_four_levels_are_taken_and_one_more_is_not() -> None:
    assert strict_json.loads(b"[" * 64 + b"]" * 64) is not None
    assert strict_json.loads(b'{"":' * 63 + b"[]" + b"}" * 63) is not None
    with pytest.raises(InvalidRequestError, match="64 levels"):
        strict_json.loads(b"[" * 65 + b"]" * 65)


def test_brackets_and_quotes_within_strings_are_no_levels() -> None:
    deep = ["[" * 100, '{"' * 100, '\\"[{' * 100, "]]}}"]
    assert strict_json.loads(json.dumps(deep).encode()) == deep


def test_surrogate_pairs_and_escaped_backslashes_are_text() -> None:
    assert strict_json.loads(b'["\\ud83d\\ude00", "\\\\ud800"]') == ["\N{GRINNING FACE}", "\\ud800"]


@pytest.mark.slow
@given(ANY_JSON, st.booleans())
def test_every_json_value_comes_through_as_it_is(value: Any, is_ascii: bool) -> None:
    assert strict_json.loads(json.dumps(value, ensure_ascii=is_ascii).encode()) == value


@given(st.binary() | ANY_JSON.map(lambda value: json.dumps(value)[:-1].encode()))
def test_no_body_raises_anything_but_invalid_request(body: bytes) -> None:
    with contextlib.suppress(InvalidRequestError):
        strict_json.loads(body)


@pytest.mark.slow
@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2_800_000 + b"]" * 2_800_000,
        b"]" * 2_700_000 + b"[" * 2_800_000,
        b"[]" * 2_800_000,
        b'"' * 5_600_000,
        b'"\\' * 2_800_000,
        b'["' + b"\\" * 5_600_000,
        b'{"a":"b"' * 700_000,
        b'{"' + b'":1,"'.join(b"%d" % n for n in range(400_000)) + b'":1,"1":1}',
        b'["\\ud800' + b"[" * 5_000_000 + b'"]',
    ],
    ids=range(9),
)
def test_no_large_body_keeps_the_door_busy(body: bytes) -> None:
    began = time.process_time()
    with pytest.raises(InvalidRequestError):
        strict_json.loads(body)
    assert time.process_time() - began < 10
