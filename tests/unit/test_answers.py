"""An answer is declared once: its JSON, its value and its schema say the same, and another region's is judged."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import pytest
from jsonschema import Draft202012Validator

from fenceline.answers import (
    INLINE,
    LEFT_OUT,
    Absent,
    After,
    Called,
    OneOf,
    Refused,
    Stated,
    Titled,
    judged,
    parse,
    to_json,
)
from fenceline.client import types
from fenceline.model.results import Appended, Bounds, Page, ReadRecord
from fenceline_http import json_schema, record_page, responses
from fenceline_http.route import Route
from fenceline_http.routes import ROUTES
from tests.support.http_events import DOCUMENT


class Pair(NamedTuple):
    left: int
    right: str | None


class Marks(NamedTuple):
    mark: Annotated[int, Called("a_mark")]


@dataclass(frozen=True, slots=True)
class Younger:
    name: str
    since: Annotated[int, Absent(-1)]


class NumberAndText(NamedTuple):
    number: int
    text: str


@Titled("Whole", "All of it.")
@dataclass(frozen=True, slots=True)
class All:
    pair: Annotated[Pair, INLINE]
    pairs: Sequence[Pair]
    ranges: Sequence[tuple[int, int]]
    by_partition: Mapping[int, int]
    by_region: Mapping[str, int]
    word: Annotated[str, OneOf("a", "b"), "Which of them."]
    names: Annotated[Sequence[str], Stated(maxItems=2)]
    late: Annotated[int | None, LEFT_OUT, After("pair")] = None
    chain: Annotated[str, LEFT_OUT] = ""
    marks: Annotated[Marks | None, INLINE] = None


FULL = All(Pair(1, None), [Pair(2, "x")], [(1, 2)], {3: 4}, {"b": 5}, "a", ["n"], 6, "ab", Marks(7))
JSON = {
    "left": 1,
    "right": None,
    "late": 6,
    "pairs": [{"left": 2, "right": "x"}],
    "ranges": [[1, 2]],
    "by_partition": {"3": 4},
    "by_region": {"b": 5},
    "word": "a",
    "names": ["n"],
    "chain": "ab",
    "a_mark": 7,
}
SHORT = All(Pair(1, None), [], [], {}, {}, "b", [])
SHORT_JSON = {"left": 1, "right": None, "pairs": [], "ranges": [], "by_partition": {}, "by_region": {}} | {
    "word": "b",
    "names": [],
}


@pytest.mark.parametrize(("value", "shown"), [(FULL, JSON), (SHORT, SHORT_JSON)])
def test_a_value_and_its_json_say_the_same_in_the_order_of_the_declaration(value: All, shown: dict[str, Any]) -> None:
    assert json.dumps(to_json(value)) == json.dumps(shown)
    assert parse(All, shown) == value


def test_an_unknown_member_is_ignored_and_a_missing_one_is_an_error() -> None:
    assert parse(Pair, {"right": "x", "left": 1, "more": 2}) == Pair(1, "x")
    with pytest.raises(KeyError, match="right"):
        parse(Pair, {"left": 1})


def test_a_client_takes_a_value_of_its_own_where_an_older_service_does_not_send_a_member() -> None:
    assert parse(Younger, {"name": "n"}) == Younger("n", -1)
    assert parse(Younger, {"name": "n", "since": 3}) == Younger("n", 3)


def test_a_schema_takes_the_json_and_nothing_else() -> None:
    named = json_schema.of_answer(All)
    assert (named.name, named.definition["description"]) == ("Whole", "All of it.")
    validator = Draft202012Validator(named.definition)
    validator.validate(JSON)
    validator.validate(SHORT_JSON)
    wrong = [
        {**JSON, "more": 1},
        {**JSON, "left": 2**63},
        {**JSON, "late": None},
        {**JSON, "word": "c"},
        {**JSON, "names": ["a", "b", "c"]},
        {**JSON, "ranges": [[1, 2, 3]]},
        {**JSON, "by_partition": {"x": 1}},
        *({name: value for name, value in SHORT_JSON.items() if name != left_out} for left_out in SHORT_JSON),
    ]
    assert [one for one in wrong if validator.is_valid(one)] == []


def test_another_regions_answer_is_judged_member_by_member() -> None:
    promises = {"text": ("short", lambda text: len(text) < 3)}
    assert judged(NumberAndText, {"number": 1, "text": "ab", "more": 1}, promises) == NumberAndText(1, "ab")
    for answer, refusal in (
        ([], "at must be an object"),
        ({"text": "ab"}, "at.number must be a number of at most 63 bits"),
        ({"number": True, "text": "ab"}, "at.number must be a number of at most 63 bits"),
        ({"number": -1, "text": "ab"}, "at.number must be a number of at most 63 bits"),
        ({"number": 1, "text": "abc"}, "at.text must be short"),
        ({"number": 1, "text": None}, "at.text must be short"),
    ):
        with pytest.raises(Refused) as refused:
            judged(NumberAndText, answer, promises, "at")
        assert str(refused.value) == refusal


def _with_a_declared_example() -> list[Route]:
    return [route for route in ROUTES if route.answer is not None and not isinstance(route.answer, dict)]


@pytest.mark.parametrize("route", _with_a_declared_example(), ids=lambda route: route.operation)
def test_an_example_fits_its_schema_and_a_client_gets_the_same_value_of_its_json(route: Route) -> None:
    shown = json.loads(json.dumps(to_json(route.answer)))
    schema = {**json.loads(json.dumps(json_schema.of_answer(type(route.answer)))), "components": DOCUMENT["components"]}
    Draft202012Validator(schema).validate(shown)
    assert parse(type(route.answer), shown) == route.answer


# What is written by hand, since each produce or read passes there


def test_the_answer_to_a_produce_is_as_declared() -> None:
    appended = Appended(1, 2, 3, duplicate=True, topic_epoch=4, expected_offset_checked=False, timestamp=5)
    assert responses.appended(appended).body == responses.to_json(to_json(appended))


@pytest.mark.parametrize(("origin", "number"), [(None, None), ("b", None), ("b", 7)])
@pytest.mark.parametrize("is_of_a_view", [False, True])
def test_a_page_is_as_declared_and_a_client_gets_the_same_one(
    origin: str | None, number: int | None, is_of_a_view: bool
) -> None:
    record = ReadRecord(1, 2, b"k", None, [("h", b"v")], 3, origin, None if number is None else "t", number)
    more: tuple[int | None, int | None] = (8, 9) if is_of_a_view else (None, None)
    page = Page([record], 4, Bounds(5, 6, 7), "c" if is_of_a_view else None, *more)
    shown = to_json(page)
    shown = {"records": shown.pop("records"), "encoding": "utf8", **shown}
    sent = record_page.to_json(page, "utf8")
    assert sent == json.dumps(shown, default=bytes.decode, separators=(",", ":"))
    assert types.page_of(json.loads(sent)) == page
