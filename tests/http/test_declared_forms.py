"""Every wrong form of every request, made from what the routes declare: refused with its field, and nothing written.

Each request is first made whole, with every member that it may have. Then one thing in it is made wrong. Each answer is
held against the document by ``http_events``.

Not here: which members go together (``test_form``), and requests over a socket (``test_schemathesis``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from jsonschema import Draft202012Validator

from fenceline.adapters.sqlite.items import SqliteItemStore
from fenceline.adapters.sqlite.objects import SqliteObjectStore
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline_http.request_schema import Body, Query
from fenceline_http.route import Route
from fenceline_http.routes import ROUTES
from tests.support.http_events import BATCH_TYPE, DOCUMENT, Answer, call

Tree = Any
Place = tuple[str | int, ...]

# Of each type one, and the ends of what an integer may be.
WRONG: tuple[Tree, ...] = (None, True, 1.0, 1.5, -(2**63) - 1, -2, -1, 2**31, 2**63, "", "\x00", "nope", [], [[]], {})
TOO_LONG = "x" * 5_000
# Codes of their own for one value that is wrong.
OWN_CODES = {"INVALID_REQUIRED_ACKS", "INVALID_TRANSACTION_TIMEOUT", "INVALID_TOPIC_EXCEPTION", "INVALID_TIMESTAMP"}
MEMBER = {"member_id", "member_epoch"}
PLACES = {"topic": "orders", "partition": "0"}

# Whole requests that the service takes: members with other values, and members that are left out. Where members exclude
# each other there are several whole requests.
SUITED: dict[str, list[tuple[dict[str, Tree], set[str]]]] = {
    "createTopic": [({"regions": ["local"]}, set())],
    "appendBatches": [({"acks": -1}, set())],
    "updateTopic": [({"partitions": 2, "regions": ["local"]}, set())],
    "acknowledgeRecords": [({}, {"session_id"}), ({}, MEMBER)],
    "commitGroupOffsets": [({}, {"session_id"}), ({}, MEMBER)],
    "commitTransactionOffsets": [({}, {"session_id"}), ({}, MEMBER)],
    "pollRecords": [({}, {"session_id"}), ({}, MEMBER)],
    "claimProducer": [({}, {"session_id", "topic_epochs"}), ({}, {"lease_ms", "client_name"})],
}

BODIES = [route for route in ROUTES if issubclass(route.takes, Body)]
QUERIES = [
    (route, takes) for route in ROUTES for takes in (route.takes, route.batches) if takes and issubclass(takes, Query)
]


@pytest.fixture
def writes(topic: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What has been written to the stores since the topic was made."""
    seen: list[str] = []
    for store, method in ((SqliteObjectStore, "create"), (SqliteObjectStore, "delete"), (SqliteItemStore, "write")):
        real = getattr(store, method)

        def counted(*args: Any, _real: Any = real, _method: str = method) -> Any:
            seen.append(_method)
            return _real(*args)

        monkeypatch.setattr(store, method, counted)
    return seen


def path_of(route: Route) -> str:
    parts = (part.strip("{}") if part.startswith("{") else None for part in route.segments)
    return "/".join(
        word if name is None else PLACES.get(name, "a") for name, word in zip(parts, route.segments, strict=True)
    )


def resolved(schema: Tree) -> Tree:
    while "$ref" in schema:
        schema = DOCUMENT["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return schema


def whole(schema: Tree) -> Tree:
    """Return a value that the schema takes, with every member that it may have."""
    schema = resolved(schema)
    if "anyOf" in schema or "oneOf" in schema:
        return whole(schema.get("anyOf", schema.get("oneOf"))[0])
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("enum", [None])[0])
    kind = schema["type"] if isinstance(schema["type"], str) else schema["type"][0]
    if kind == "object":
        if "properties" in schema:
            return {name: whole(one) for name, one in schema["properties"].items()}
        return {"0": whole(schema["additionalProperties"])}
    if kind == "array":
        if "prefixItems" in schema:
            return [whole(one) for one in schema["prefixItems"]]
        return [whole(schema["items"])] * max(schema.get("minItems", 1), 1)
    return {"string": "a", "boolean": True, "integer": max(schema.get("minimum", 0), 0)}[kind]


def places(tree: Tree, place: Place = ()) -> Iterator[Place]:
    yield place
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for name, value in items:
        yield from places(value, (*place, name))


def at(tree: Tree, place: Place) -> Tree:
    for name in place:
        tree = tree[name]
    return tree


def with_value(tree: Tree, place: Place, value: Tree) -> Tree:
    if not place:
        return value
    made = deepcopy(tree)
    at(made, place[:-1])[place[-1]] = value
    return made


def without(tree: Tree, place: Place) -> Tree:
    made = deepcopy(tree)
    del at(made, place[:-1])[place[-1]]
    return made


def twice(tree: Tree, place: Place) -> str:
    """Return the text of ``tree`` in which the member at ``place`` stands twice."""
    value = at(tree, place)
    text = json.dumps(with_value(tree, (*place[:-1], "again"), value))
    return text.replace('"again": ', f"{json.dumps(place[-1])}: ")


def name_of(place: Place) -> str:
    """Return the field that a refusal names: ``records[0].value``."""
    text = "".join(f"[{one}]" if isinstance(one, int) else f".{one}" for one in place)
    return text.removeprefix(".")


def bounds_of(schema: Tree) -> list[Tree]:
    """Return the values beside the bounds that the schema states."""
    schema = resolved(schema)
    if "anyOf" in schema:
        return [value for one in schema["anyOf"] for value in bounds_of(one)]
    found: list[Tree] = []
    if "minimum" in schema:
        found.append(schema["minimum"] - 1)
    if "maximum" in schema:
        found.append(schema["maximum"] + 1)
    if "maxItems" in schema:
        (entry, *_) = whole(schema)
        found += [[entry] * count for count in (schema["minItems"] - 1, schema["maxItems"] + 1)]
    if "maxLength" in schema or "pattern" in schema:
        found.append(TOO_LONG)
    return found


def schema_at(schema: Tree, place: Place) -> Tree:
    for name in place:
        schema = resolved(schema)
        schema = resolved(schema["anyOf"][0]) if "anyOf" in schema else schema
        if isinstance(name, int):
            schema = schema["prefixItems"][name] if "prefixItems" in schema else schema["items"]
        else:
            schema = schema["properties"][name] if "properties" in schema else schema["additionalProperties"]
    return schema


def wrong_bodies(route: Route) -> Iterator[tuple[str, Place]]:
    """Yield the text of each wrong body, and the place that is to blame."""
    schema: Tree = route.takes.schema()
    takes = Draft202012Validator({**schema, "components": DOCUMENT["components"]}).is_valid
    for right in whole_bodies(route):
        assert takes(right)
        yield from wrong_trees(schema, right, takes)
    if not route.takes.is_optional:
        yield "", ()
    yield "{", ()


def whole_bodies(route: Route) -> Iterator[Tree]:
    for others, left_out in SUITED.get(route.operation, [({}, set())]):
        right = {**whole(route.takes.schema()), **others}
        yield {name: value for name, value in right.items() if name not in left_out}


def wrong_trees(schema: Tree, right: Tree, takes: Callable[[Tree], bool]) -> Iterator[tuple[str, Place]]:
    for place in places(right):
        there = at(right, place)
        for value in (*WRONG, *bounds_of(schema_at(schema, place))):
            tree = with_value(right, place, value)
            if not takes(tree) or (type(value) is float and type(there) is int):
                yield json.dumps(tree), place
        if isinstance(there, dict):
            yield json.dumps(with_value(right, (*place, "nope"), 1)), (*place, "nope")
        if place and isinstance(place[-1], str):
            yield twice(right, place), place
            if not takes(without(right, place)):
                yield json.dumps(without(right, place)), place


def assert_refused(answer: Answer, place: Place, sent: str) -> None:
    assert 400 <= answer.status < 500, (sent, answer)
    if answer.code in OWN_CODES:
        return
    assert (answer.status, answer.code) == (400, "INVALID_REQUEST"), (sent, answer)
    assert answer.json["detail"], sent
    is_entry = len(place) > 1 and (isinstance(place[-1], int) or place[0] == "topic_epochs")
    blamed = name_of(place[:-1] if is_entry else place)  # Of an entry, its list may be blamed.
    assert (answer.json.get("field") or "").startswith(blamed), (sent, answer.json)


@pytest.mark.parametrize("route", BODIES, ids=lambda route: route.operation)
def test_a_body_with_one_thing_wrong_is_refused_for_it_and_nothing_is_written(route: Route, writes: list[str]) -> None:
    wrong = list(wrong_bodies(route))
    assert len(wrong) >= 3 + 10 * len(route.takes.members)
    for text, place in wrong:
        answer = call(route.method, path_of(route), body=text)
        assert_refused(answer, place, text)
        assert writes == [], text


def text_of(value: Tree) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)


# Parameters that a whole query leaves out, because they go with none or not with all of the others.
LEFT_OUT: dict[str, set[str]] = {
    "Read": {
        "timestamp",
        "tail_offset",
        "compacted",
        "compacted_since",
        "compaction_order",
        "group",
        "session_id",
        *MEMBER,
    },
    "ReadBatches": {"timestamp", "tail_offset", "group", "session_id", *MEMBER},
    "ReadSubscription": MEMBER,
    "BatchQuery": {"expected_offsets", "session_id", "topic_epoch", "transactional_id"},
    "CommittedQuery": {"start_after"},
}


def wrong_queries(takes: type[Query], right: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each wrong query, and the parameter that is to blame."""
    for name, member in takes.members:
        schema = resolved(member.kind.schema)
        wrong = ["%ff"]
        if schema["type"] == "integer":
            is_cut = schema["minimum"] == 1 and "maximum" not in schema  # a size above its maximum
            wrong += ["", "x", "1.0", "1e3", "%2B1", "true", "%D9%A3", "-2", "0" if is_cut else ""]
            wrong += [] if is_cut else [str(schema["maximum"] + 1), "9" * 5_000]
        elif schema["type"] == "boolean":
            wrong += ["", "1", "True", "yes"]
        elif "enum" in schema:
            wrong += ["", "nope", "0x1"]
        elif schema["type"] == "array":
            wrong += ["", "x", "1.0", "-2", str(2**63)]
        elif "maxLength" in schema or "pattern" in schema:
            wrong.append(TOO_LONG)
        rest = {one: value for one, value in right.items() if one != name}
        for value in wrong:
            yield f"{urlencode(rest)}&{name}={value}", name
        value = quote(text_of(whole(schema)))
        yield f"{urlencode(rest)}&{name}={value}&{name}={value}", name
        yield f"{urlencode(rest)}&{name}={value}&%{ord(name[0]):x}{name[1:]}={value}", name
        if member.is_required:
            yield urlencode(rest), name
    for nope in ("nope=1", "nope", "%6eope="):
        yield f"{urlencode(right)}&{nope}", "nope"


def whole_query(takes: type[Query]) -> dict[str, str]:
    shown = {name: text_of(whole(member.kind.schema)) for name, member in takes.members}
    return {name: value for name, value in shown.items() if name not in LEFT_OUT.get(takes.__name__, set())}


@pytest.mark.parametrize(("route", "takes"), QUERIES, ids=lambda one: getattr(one, "operation", None) or one.__name__)
def test_a_query_with_one_thing_wrong_is_refused_for_it_and_nothing_is_written(
    route: Route, takes: type[Query], writes: list[str]
) -> None:
    is_batch = takes is route.batches or route.takes_batch
    more: dict[str, Any] = {"headers": {"content-type": BATCH_TYPE}, "body": b"x"} if is_batch else {}
    wrong = list(wrong_queries(takes, whole_query(takes)))
    assert len(wrong) >= 3 + 3 * len(takes.members)
    for query, name in wrong:
        answer = call(route.method, path_of(route), query, **more)
        assert_refused(answer, (name,), query)
        assert writes == [], query


# Right requests


def right_bodies(route: Route) -> Iterator[Tree]:
    """Yield the example, the whole request, the shortest, and each member beside the shortest with what it may be."""
    schema: Tree = route.takes.schema()
    takes = Draft202012Validator({**schema, "components": DOCUMENT["components"]}).is_valid
    yield from [] if route.body is None else [route.body]
    for right in whole_bodies(route):
        yield right
        shortest = {name: right[name] for name, member in route.takes.members if member.is_required and name in right}
        yield shortest
        for name in right:
            yield {**shortest, name: right[name]}
            for place in places({name: right[name]}):
                trees = (with_value({**shortest, name: right[name]}, place, value) for value in WRONG)
                yield from (tree for tree in trees if place and takes(tree))


@pytest.mark.parametrize("route", BODIES, ids=lambda route: route.operation)
def test_a_body_that_the_document_takes_is_answered_as_the_document_promises(route: Route, writes: list[str]) -> None:
    statuses = {call(route.method, path_of(route), value=tree).status for tree in right_bodies(route)}
    assert max(statuses) < 500


@pytest.mark.parametrize(("route", "takes"), QUERIES, ids=lambda one: getattr(one, "operation", None) or one.__name__)
def test_a_query_that_the_document_takes_is_answered_as_the_document_promises(
    route: Route, takes: type[Query], writes: list[str]
) -> None:
    is_batch = takes is route.batches or route.takes_batch
    body = encode([Record(b"v")], now_ms=1).body if is_batch else None
    headers = {"content-type": BATCH_TYPE} if is_batch else {}
    right = whole_query(takes)
    needed = {name: right[name] for name, member in takes.members if member.is_required}
    bounds = (
        {**right, name: str(resolved(member.kind.schema)[end])}
        for name, member in takes.members
        for end in ("minimum", "maximum")
        if end in resolved(member.kind.schema) and name != "wait_ms"
    )
    alone = ({**needed, name: text_of(whole(member.kind.schema))} for name, member in takes.members)
    for query in (route.query, right, needed, *alone, *bounds):
        assert call(route.method, path_of(route), query, headers=headers, body=body).status < 500, query
