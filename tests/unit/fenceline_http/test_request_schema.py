"""One declaration is the parser, the JSON Schema and the parameters of a request."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from fenceline.errors import FencelineError, InvalidRequestError
from fenceline_http import openapi
from fenceline_http.request_schema import Body, Members, Query, object_of, optional, required, required_by
from fenceline_http.routes import ROUTES
from fenceline_http.value_kinds import FLAG, TEXT, choice, integer, list_of, refuse, size


class Part(Members):
    """A part."""

    number: int = required(integer(0, 9))


class _Base(Members):
    note: str | None = optional(TEXT, "A note.")


class Whole(_Base, Body):
    """A whole."""

    unit: str = optional(choice(("one", "many")), default="one")
    value: int | list[int] = required_by("unit", {"one": integer(), "many": list_of(integer())})
    parts: list[Part] = optional(list_of(object_of(Part), 1, 2), default=[])

    def check(self) -> None:
        if self.note == "":
            refuse("note", "left out")


class Asked(Query):
    """A question."""

    name: str = required(TEXT, "Of whom.")
    limit: int = optional(size(10, 100), default=10)
    is_short: bool = optional(FLAG, default=False)


def test_members_are_parsed_and_those_left_out_or_null_have_their_defaults() -> None:
    whole = Whole.of_json({"value": 7, "note": None, "parts": [{"number": 1}]})
    assert (whole.unit, whole.value, whole.note, whole.parts[0].number) == ("one", 7, None, 1)
    assert Whole.of_json({"unit": "many", "value": [7, 8]}).value == [7, 8]


@pytest.mark.parametrize(
    ("tree", "field"),
    [
        ([], None),
        ({}, "value"),
        ({"value": None}, "value"),
        ({"value": 1.0}, "value"),
        ({"value": True}, "value"),
        ({"value": 2**63}, "value"),
        ({"unit": "many", "value": 7}, "value"),
        ({"unit": "many", "value": [0, -1]}, "value[1]"),
        ({"unit": "few", "value": 7}, "unit"),
        ({"value": 7, "parts": []}, "parts"),
        ({"value": 7, "parts": [{"number": 1}, {"number": 10}]}, "parts[1].number"),
        ({"value": 7, "parts": [{"number": 1, "colour": 2}]}, "parts[0].colour"),
        ({"value": 7, "note": ""}, "note"),
        ({"note": 1, "unit": 1, "value": "x", "nope": 1}, "unit"),  # in the order of the declaration,
        ({"value": 7, "nope": 1, "note": 1}, "note"),  # a base's members last,
        ({"value": 7, "nope": 1, "note": ""}, "nope"),  # then names that are not declared, then what goes together
    ],
)
def test_a_wrong_member_is_refused_with_its_path(tree: Any, field: str | None) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Whole.of_json(tree)
    assert caught.value.extra.get("field") == field


def test_the_schema_is_made_of_the_same_members() -> None:
    assert Whole.schema() == {"$ref": "#/components/schemas/Whole"}
    definition = Whole.schema().definition
    assert definition["description"] == "A whole."
    assert definition["required"] == ["value"]
    assert not definition["additionalProperties"]
    assert set(definition["properties"]) == {"unit", "value", "parts", "note"}
    assert definition["properties"]["note"]["description"] == "A note."


def test_a_query_is_parsed_out_of_text() -> None:
    asked = Asked.of_query("name=a%20b+c&limit=" + "9" * 50 + "&is_short=true")
    assert (asked.name, asked.limit, asked.is_short) == ("a b c", 100, True)
    assert Asked.of_query("name=").name == ""


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("", "name"),
        ("name=a&name=b", "name"),
        ("name=a&n%61me=b", "name"),
        ("name=%ff", "name"),
        ("name=a&limit=0", "limit"),
        ("name=a&limit=1.0", "limit"),
        ("name=a&is_short=True", "is_short"),
        ("nope=1", "nope"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_name(query: str, field: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        Asked.of_query(query)
    assert caught.value.extra["field"] == field


# Every request that is served

BODIES = {route.takes: route.body for route in ROUTES if issubclass(route.takes, Body) and route.body is not None}
VALUES = (None, True, 0, 1, -1, -2, 1.5, 2**63 - 1, 2**63, "", "all", "x", "utf8", [], {}, [0], ["x"], {"0": 1}, 40_000)
DOCUMENT = openapi.document("0.0.0")


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from places(value, (*path, name))


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    made = copy.deepcopy(tree)
    place = made
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return made


@pytest.mark.parametrize("declared", sorted(BODIES, key=lambda one: one.__name__))
def test_the_parser_takes_all_that_the_documented_schema_takes(
    declared: type[Body], monkeypatch: pytest.MonkeyPatch
) -> None:
    """But for members that do not go together, which no schema says."""
    monkeypatch.setattr(declared, "check", lambda self: None)
    validator = Draft202012Validator({**declared.schema(), "components": DOCUMENT["components"]})
    properties = declared.schema().definition["properties"]
    example = {**dict.fromkeys(properties), **BODIES[declared]}
    taken = refused = 0
    for path in places(example):
        for value in VALUES:
            tree = changed(example, path, value)
            try:
                declared.of_json(json.loads(json.dumps(tree)))
                taken += 1
            except FencelineError as error:
                refused += 1
                assert not validator.is_valid(tree), (tree, error)  # noqa: PT017
    assert taken
    assert refused


DECLARED = {declared for route in ROUTES for declared in (route.takes, route.batches) if declared is not None}
QUERIES = sorted((one for one in DECLARED if issubclass(one, Query)), key=lambda one: one.__name__)


@pytest.mark.parametrize("query", [*QUERIES, Asked], ids=lambda query: query.__name__)
def test_a_request_without_a_query_is_what_the_parser_makes_of_an_empty_one(query: type[Query]) -> None:
    try:
        parsed = query.of_query("")
    except InvalidRequestError:
        assert query.bare is None
    else:
        assert type(query.bare) is query
        assert query.bare.__dict__ == parsed.__dict__


def test_a_body_is_always_looked_at() -> None:
    assert [one for one in DECLARED if issubclass(one, Body) and one.bare is not None] == []
