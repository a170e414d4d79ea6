"""What the functions tell of themselves: numbers and codes, and never a key or a value."""

from __future__ import annotations

import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import functions
from fenceline import errors, limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import keys
from fenceline.groups.member_item import MemberItem
from fenceline.model.record import Record
from fenceline.ports import Unavailable, VersionMoved
from fenceline.runtime import ThreadRuntime
from fenceline.service.topics import Topics
from fenceline.settings import Settings
from fenceline_http import wiring
from fenceline_http.routes import FUNCTIONS, ROUTES
from fenceline_http.store_meter import Meter, MeteredItems, MeteredObjects
from functions.telemetry import metric_names
from functions.telemetry.observed import LEAVE, FunctionFailedError, Handler, Run, answering, running
from tests.support.http_events import event

SECRET = "hunter2"
_names = itertools.count(1)


@dataclass
class Context:
    """What Lambda says of a call, as far as it is used."""

    aws_request_id: str = "request-1"


@pytest.fixture
def metered(monkeypatch: pytest.MonkeyPatch) -> Iterator[wiring.Service]:
    """A service in memory whose stores are counted, as a deployed one's are."""
    runtime = ThreadRuntime()
    # Powertools keeps a logger of each name, with the output that there was when it was made.
    settings = Settings(":memory:", service=f"test-{next(_names)}", log_level="DEBUG")
    objects, items = SqliteObjectStore(":memory:", now_ms=runtime.now_ms), SqliteItemStore(":memory:")
    meter = Meter(runtime.monotonic_ms)
    log = wiring.log_of(settings, MeteredObjects(objects, meter), MeteredItems(items, meter), runtime)
    made = wiring.Service(settings, log, objects, items, ThreadRuntime(4), "0.0.0", meter)
    monkeypatch.setattr(wiring, "service", lambda: made)
    yield made
    made.close()


@pytest.fixture
def logged(capsys: pytest.CaptureFixture[str]) -> Any:
    """Return the lines that were logged since the last look."""

    def lines() -> list[dict[str, Any]]:
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    return lines


def send(handler: Handler, method: str, path: str, value: Any = None, query: str = "") -> Mapping[str, Any]:
    sent = event(method, path, query, body=None if value is None else json.dumps(value))
    return handler({**sent, "routeKey": f"{method} route"}, Context())


def metric(lines: list[dict[str, Any]], name: str) -> list[float]:
    return [value for line in lines for value in line.get(name, [])]


def test_an_append_is_one_line_of_metrics_and_of_what_it_asked_of_the_stores(
    metered: Any, logged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CHECKPOINT_MS", 10**9)  # none is due by the clock
    send(answering("admin", metered), "POST", "/v1/topics", {"name": "orders"})
    logged()
    handler = answering("produce", metered)
    for _ in range(2):
        send(handler, "POST", "/v1/topics/orders/partitions/0/records", {"records": [{"value": SECRET, "key": SECRET}]})
    cold, warm = logged()
    assert warm["calls"] == {"objects.create": 1}
    assert (warm[metric_names.CREATES], warm["status"], warm["route"]) == ([1.0], 200, "POST route")
    assert warm[metric_names.CHECKPOINT_AGE][0] >= 0
    assert cold["calls"]["items.get"] >= 1
    [definition] = warm["_aws"]["CloudWatchMetrics"]
    assert (definition["Namespace"], definition["Dimensions"]) == (metric_names.NAMESPACE, [[metric_names.SERVICE]])
    assert SECRET not in json.dumps([cold, warm])


def test_a_duplicate_and_a_lost_race_are_counted(metered: Any, logged: Any) -> None:
    metered.log.topics.create("orders")
    handler = answering("produce", metered)
    producer = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}
    for _ in range(2):
        send(
            handler,
            "POST",
            "/v1/topics/orders/partitions/0/records",
            {"records": [{"value": "v"}], "producer": producer},
        )
    assert metric(logged(), metric_names.DUPLICATES) == [1.0]
    rival = wiring.log_of(metered.settings, metered.objects, metered.items, ThreadRuntime())
    rival.append("orders", 0, AppendRequest.of_records([Record(b"r")]))
    send(handler, "POST", "/v1/topics/orders/partitions/0/records", {"records": [{"value": "v"}]})
    assert metric(logged(), metric_names.LOST_RACES) == [1.0]
    rival.close()


def test_refusals_are_logged_by_code_also_within_an_answer_for_several(metered: Any, logged: Any) -> None:
    metered.log.topics.create("orders")
    handler = answering("produce", metered)
    entries = [
        {"topic": "orders", "partition": 0, "records": [{"value": "v"}], "expected_offset": 9},
        {"topic": SECRET, "partition": 0, "records": [{"value": '"code":"CORRUPT_LOG"'}]},
    ]
    send(handler, "POST", "/v1/produce", {"partitions": entries})
    lines = logged()
    [refused] = [line for line in lines if line.get("message") == "refused"]
    assert refused["codes"] == {"OFFSET_MISMATCH": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    assert sum(metric(lines, metric_names.REFUSALS_BY_CODE)) == 2
    assert metric(lines, metric_names.CORRUPT_LOG) == []


@pytest.mark.parametrize("accept", ["application/json", "application/vnd.fenceline.batches"])
def test_refused_positions_of_a_poll_are_logged_by_code(metered: Any, logged: Any, accept: str) -> None:
    metered.log.topics.create("orders")
    handler = answering("read", metered)
    positions = [{"topic": name, "partition": 0, "offset": offset} for name, offset in (("orders", 9), (SECRET, 0))]
    asked = event("POST", "/v1/poll", headers={"accept": accept}, body=json.dumps({"positions": positions}))
    assert handler(asked, Context())["statusCode"] == 200
    lines = logged()
    [refused] = [line for line in lines if line.get("message") == "refused"]
    assert refused["codes"] == {"OFFSET_OUT_OF_RANGE": 1, "UNKNOWN_TOPIC_OR_PARTITION": 1}
    assert sum(metric(lines, metric_names.REFUSALS_BY_CODE)) == 2
    assert SECRET not in str(lines)


JOIN = {"member_epoch": 0, "topics": ["orders"]}


def member(name: str) -> str:
    return f"/v1/groups/billing/members/{name}"


def test_removed_members_are_counted_and_those_that_leave_are_not(metered: Any, logged: Any) -> None:
    metered.log.topics.create("orders")
    handler = answering("subscriptions", metered)
    for name in ("a", "b", "c"):
        assert send(handler, "POST", member(name), JOIN)["statusCode"] == 200
    left = {**event("DELETE", member("c"), ""), "routeKey": LEAVE}
    assert handler(left, Context())["statusCode"] == 204
    assert metric(logged(), metric_names.MEMBERS_REMOVED) == []
    [item] = metered.items.get([keys.member_item("billing", "b")]).values()
    lapsed = replace(MemberItem.from_item(item), expires_at=0)
    metered.items.write([lapsed.put(metered.log.context.runtime)])
    send(handler, "POST", member("d"), JOIN)
    assert metric(logged(), metric_names.MEMBERS_REMOVED) == [1.0]


def test_the_route_by_which_members_leave_is_a_route() -> None:
    assert LEAVE in {f"{route.method} {route.path}" for route in ROUTES}


def test_a_lost_write_of_a_groups_item_is_counted(metered: Any, logged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    metered.log.topics.create("orders")
    handler, write, lost = answering("subscriptions", metered), metered.items.write, []

    def loses_once(changes: Any) -> None:
        group = keys.group_item("billing")
        if not lost and any(one.key == group for one in changes):
            lost.append(group)
            raise VersionMoved(group)
        write(changes)

    monkeypatch.setattr(metered.items, "write", loses_once)
    assert send(handler, "POST", member("a"), JOIN)["statusCode"] == 200
    assert metric(logged(), metric_names.LOST_GROUP_WRITES) == [1.0]
    assert send(handler, "POST", member("b"), JOIN)["statusCode"] == 200
    assert metric(logged(), metric_names.LOST_GROUP_WRITES) == []


def test_damage_and_contention_have_metrics_of_their_own(metered: Any, logged: Any) -> None:
    for error, name in (
        (errors.CorruptLogError("damaged"), metric_names.CORRUPT_LOG),
        (errors.ContendedError("rivals won"), metric_names.CONTENDED),
    ):
        handler = running("sweeper", _raises(error), metered)
        with pytest.raises(type(error)):
            handler({}, Context())
        assert metric(logged(), name) == [1.0]


def test_a_store_that_fails_a_scheduled_function_is_logged(metered: Any, logged: Any) -> None:
    with pytest.raises(Unavailable):
        running("sweeper", _raises(Unavailable("there is no such bucket")), metered)({}, Context())
    [line] = logged()
    assert line["errors"] == ["Unavailable: there is no such bucket"]


@pytest.mark.parametrize("error", [KeyError(SECRET), ExceptionGroup("some", [ValueError(SECRET)])], ids=str)
def test_an_undocumented_error_has_its_place_and_not_its_text(
    metered: Any, capsys: pytest.CaptureFixture[str], error: Exception
) -> None:
    with pytest.raises(FunctionFailedError, match=f"{type(error).__name__} at test_observed.py:") as failed:
        running("sweeper", _raises(error), metered)({}, Context())
    assert failed.value.__suppress_context__
    assert SECRET not in str(failed.value) + capsys.readouterr().out


def test_one_requests_counts_are_not_anothers(metered: Any, logged: Any) -> None:
    handler = answering("admin", metered)
    send(handler, "POST", "/v1/topics", {"name": "orders"})
    send(handler, "GET", "/v1/health")
    created, health = logged()
    assert created["calls"]["items.write"] >= 1
    assert health["calls"] == {}


def test_traces_hold_neither_requests_nor_answers(metered: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_TRACE_DISABLED", "true")
    traced = replace(metered, settings=replace(metered.settings, tracing=True))
    answer = send(answering("admin", traced), "GET", "/v1/health")
    assert answer["statusCode"] == 200


def test_an_undocumented_error_of_a_request_has_its_place_too(
    metered: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topics, "get", lambda _, name: {}[name])
    with pytest.raises(FunctionFailedError, match=r"KeyError at test_observed\.py:"):
        send(answering("admin", metered), "GET", f"/v1/topics/{SECRET}")
    assert SECRET not in capsys.readouterr().out


@pytest.mark.parametrize("name", [*functions.FUNCTIONS, *functions.WITH_PEERS])
def test_every_function_is_a_module_that_opens_the_service_and_names_its_handler(
    monkeypatch: pytest.MonkeyPatch, metered: Any, name: str
) -> None:
    monkeypatch.delitem(sys.modules, f"functions.{name}", raising=False)
    assert callable(import_module(f"functions.{name}").handler)
    monkeypatch.delitem(sys.modules, f"functions.{name}")


def test_every_module_is_a_function_and_every_route_is_served_by_one() -> None:
    modules = {path.stem for path in Path(functions.__file__ or "").parent.glob("[a-z]*.py")}
    assert set(functions.FUNCTIONS) == {*FUNCTIONS, "sweeper", "compactor"}
    assert modules == {*functions.FUNCTIONS, *functions.WITH_PEERS}


def _raises(error: Exception) -> Run:
    def run(event: Mapping[str, Any], context: object, service: wiring.Service) -> dict[str, Any]:
        raise error

    return run
