"""Contract, "Regions", through the handlers: the form of each answer, and each refusal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fenceline import limits
from fenceline.adapters.http_connections import CannotReach
from fenceline.regions.peer import Peers
from fenceline_http import wiring
from tests.support.http_events import call
from tests.support.peer_over_http import RegionOverHttp
from tests.support.peers import peers_named
from tests.support.runtime import FakeRuntime

REPLICATION = "/v1/topics/orders/replication"
SKIP = "/v1/topics/orders/partitions/{}/replication/skip"
ENTRY = {"region", "connected", "suspended", "lag_records", "lag_ms", "last_seen_at", "answered_at", "problem"}


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


@pytest.fixture
def source(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> Iterator[RegionOverHttp]:
    monkeypatch.setattr(time, "monotonic", lambda: runtime.monotonic_ms() / 1000)
    made = RegionOverHttp("b", "orders", "local", runtime=runtime)
    yield made
    made.close()


@pytest.fixture
def peers(source: RegionOverHttp) -> Peers:
    return {"b": source.peer, **peers_named("c")}


@pytest.fixture
def topic(service: wiring.Service) -> str:
    """A topic with two partitions, in this region and in b."""
    created = call("POST", "/v1/topics", value={"name": "orders", "partitions": 2, "regions": ["local", "b"]})
    assert (created.status, created.json["regions"]) == (201, ["local", "b"])
    return "orders"


def replicate(service: wiring.Service, partition: int = 0) -> int:
    return service.log.replication.run("orders", partition).took_records


def refused(answer: Any, field: str) -> bool:
    return (answer.status, answer.code, answer.json["next_step"], answer.json.get("field")) == (
        400,
        "INVALID_REQUEST",
        "fix",
        field,
    )


# Which regions a topic may name


@pytest.mark.parametrize(
    "regions", [["b"], ["local", "x"], ["local", "b", "b"], ["local", "local"], [], ["local", "B"], ["local", ""]]
)
def test_a_topic_names_the_region_that_is_asked_and_peers_each_once(topic: str, regions: list[str]) -> None:
    assert refused(call("POST", "/v1/topics", value={"name": "new", "regions": regions}), "regions")
    assert refused(call("PATCH", "/v1/topics/orders", value={"regions": regions}), "regions")
    assert call("GET", "/v1/topics/new").status == 404
    assert call("GET", "/v1/topics/orders").json["regions"] == ["local", "b"]


def test_regions_left_out_are_the_region_that_is_asked(topic: str) -> None:
    assert call("POST", "/v1/topics", value={"name": "new"}).json["regions"] == ["local"]
    assert call("PATCH", "/v1/topics/orders", value={"regions": ["c", "b", "local"]}).json["regions"] == [
        "c",
        "b",
        "local",
    ]


# The status


def test_the_status_has_exactly_these_members(topic: str, runtime: FakeRuntime) -> None:
    answer = call("GET", REPLICATION)
    assert answer.status == 200
    assert answer.json == {
        "region": "local",
        "regions": [
            {
                "region": "b",
                "connected": True,
                "suspended": False,
                "lag_records": 0,
                "lag_ms": 0,
                "last_seen_at": runtime.now_ms(),
                "answered_at": None,
                "problem": None,
            }
        ],
        "gaps": [],
        "skipped_records": 0,
        "snapshots": [],
        "pending": [],
        "has_more": False,
    }


def test_lag_falls_to_zero_as_records_arrive(
    topic: str, source: RegionOverHttp, service: wiring.Service, runtime: FakeRuntime
) -> None:
    source.append("1", "2")
    source.append("3", partition=1)
    runtime.advance(5)
    (region,) = call("GET", REPLICATION).json["regions"]
    assert (region["lag_records"], region["lag_ms"]) == (3, 5)
    assert [replicate(service, partition) for partition in (0, 1)] == [2, 1]
    (region,) = call("GET", REPLICATION).json["regions"]
    assert (region["lag_records"], region["lag_ms"]) == (0, 0)
    page = call("GET", "/v1/topics/orders/partitions/0/records", {"offset": 0}).json
    assert [(record["value"], record["origin"]) for record in page["records"]] == [("1", "b"), ("2", "b")]


def test_a_region_that_is_away_has_null_for_what_is_not_known(topic: str) -> None:
    call("PATCH", "/v1/topics/orders", value={"regions": ["local", "b", "c"]})
    regions = {one["region"]: one for one in call("GET", REPLICATION).json["regions"]}
    assert regions["b"]["connected"]
    away = regions["c"]
    assert set(away) == ENTRY
    assert [away[name] for name in ("connected", "lag_records", "lag_ms", "last_seen_at", "answered_at")] == [
        False,
        None,
        None,
        None,
        None,
    ]
    assert away["problem"]


def test_a_status_takes_a_page_of_partitions(topic: str) -> None:
    assert call("GET", REPLICATION, {"limit": 1}).json["has_more"]
    for query in ({"start_partition": 1, "limit": 1}, {"limit": "9" * 30}, {"start_partition": 7}):
        assert call("GET", REPLICATION, query).json["has_more"] is False
    for query, field in (({"limit": 0}, "limit"), ({"start_partition": -1}, "start_partition"), ({"x": 1}, "x")):
        assert refused(call("GET", REPLICATION, query), field)


def test_an_unknown_topic_has_no_replication(service: wiring.Service) -> None:
    for method, path in (
        ("GET", "/replication"),
        ("POST", "/replication/snapshots"),
        ("POST", "/replication/regions/b/suspend"),
        ("POST", "/replication/regions/b/resume"),
    ):
        for name in ("none", "a%20b"):
            answer = call(method, f"/v1/topics/{name}{path}")
            assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
    assert call("GET", "/v1/topics/none/replication/regions/b/suspend").status == 405


# Suspending and resuming


def test_suspend_and_resume_answer_the_entry_and_may_be_repeated(topic: str) -> None:
    for verb, is_suspended in (("suspend", True), ("suspend", True), ("resume", False), ("resume", False)):
        answer = call("POST", f"{REPLICATION}/regions/b/{verb}")
        assert answer.status == 200
        assert set(answer.json) == ENTRY
        assert (answer.json["region"], answer.json["suspended"]) == ("b", is_suspended)
        assert call("GET", REPLICATION).json["regions"][0]["suspended"] == is_suspended


@pytest.mark.parametrize("region", ["local", "c", "x", "B", "%C3%A9", "a" * 300])
@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_the_own_region_and_one_that_the_topic_lacks_are_refused(topic: str, verb: str, region: str) -> None:
    assert refused(call("POST", f"{REPLICATION}/regions/{region}/{verb}"), "region")


@pytest.mark.parametrize("name", ["B\0", "b\x1b[2J", "b\x7f"])  # the local server makes U+0000 of a slash in a name
def test_a_refusal_shows_no_control_character_of_a_name(topic: str, name: str) -> None:
    for path in (f"{REPLICATION}/regions/{name}/suspend", f"/v1/topics/{name}/replication/snapshots"):
        detail = call("POST", path).json["detail"]
        assert detail.isprintable()
        assert name[0] + "\N{REPLACEMENT CHARACTER}" in detail


def test_suspend_takes_no_members(topic: str) -> None:
    assert refused(call("POST", f"{REPLICATION}/regions/b/suspend", value={"x": 1}), "x")
    assert call("POST", f"{REPLICATION}/regions/b/suspend", value={}).status == 200


# Snapshots


def test_a_snapshot_is_pending_in_every_partition_until_it_is_complete(
    topic: str, source: RegionOverHttp, service: wiring.Service, runtime: FakeRuntime
) -> None:
    answer = call("POST", f"{REPLICATION}/snapshots")
    assert (answer.status, set(answer.json)) == (202, {"snapshot_id"})
    snapshot_id = answer.json["snapshot_id"]
    pending = call("GET", REPLICATION).json["pending"]
    assert pending == [
        {"snapshot_id": snapshot_id, "partition": n, "started_at": runtime.now_ms(), "waiting_for": ["b"]}
        for n in (0, 1)
    ]
    source.connect(service)
    runtime.advance(7)
    source.service.log.replication.run("orders", 0)  # takes the REQUEST, and answers
    replicate(service)
    shown = call("GET", REPLICATION).json
    assert [one["partition"] for one in shown["pending"]] == [1]
    (done,) = shown["snapshots"]
    assert done == {
        "snapshot_id": snapshot_id,
        "partition": 0,
        "local_offset": done["local_offset"],
        "offsets": {"b": 0},
        "completed_at": runtime.now_ms(),
        "final": True,
    }
    assert shown["regions"][0]["answered_at"] == runtime.now_ms()


def test_a_snapshot_asks_no_region_about_a_partition_that_it_lacks(topic: str, source: RegionOverHttp) -> None:
    assert call("PATCH", "/v1/topics/orders", value={"partitions": 3}).status == 200
    assert call("POST", f"{REPLICATION}/snapshots").status == 202
    assert source.asked == ["/v1/topics/orders"]
    assert [one["partition"] for one in call("GET", REPLICATION).json["pending"]] == [0, 1]


def test_a_region_that_is_away_fails_no_snapshot(topic: str, source: RegionOverHttp) -> None:
    def away(sent: httpx.Request, answer: httpx.Response) -> httpx.Response:
        raise CannotReach("away")

    source.fault = away
    assert call("POST", f"{REPLICATION}/snapshots").status == 202
    assert [one["partition"] for one in call("GET", REPLICATION).json["pending"]] == [0, 1]


def test_more_than_eight_snapshots_under_way_are_throttled(topic: str) -> None:
    for _ in range(limits.SNAPSHOTS_UNDER_WAY_MAX):
        assert call("POST", f"{REPLICATION}/snapshots").status == 202
    answer = call("POST", f"{REPLICATION}/snapshots")
    assert (answer.status, answer.code, answer.json["next_step"]) == (429, "THROTTLED", "retry")


def test_a_topic_in_one_region_takes_no_snapshot(service: wiring.Service) -> None:
    call("POST", "/v1/topics", value={"name": "alone"})
    assert refused(call("POST", "/v1/topics/alone/replication/snapshots"), "regions")
    assert call("GET", "/v1/topics/alone/replication").json["regions"] == []


# Gaps


def test_a_gap_is_shown_and_skipped_whole(topic: str, source: RegionOverHttp, service: wiring.Service) -> None:
    source.append("1")
    assert replicate(service) == 1
    for value in "2345":
        source.append(value)
    source.service.log.partitions.trim("orders", 0, 3)
    assert replicate(service) == 0
    shown = call("GET", REPLICATION).json
    assert shown["gaps"] == [{"partition": 0, "region": "b", "from_offset": 1, "to_offset": 3, "records": 2}]
    for to_offset in (0, 1, 2, 4):
        assert refused(call("POST", SKIP.format(0), value={"region": "b", "to_offset": to_offset}), "to_offset")
    assert refused(call("POST", SKIP.format(1), value={"region": "b", "to_offset": 3}), "to_offset")
    answer = call("POST", SKIP.format(0), value={"region": "b", "to_offset": 3})
    assert (answer.status, answer.json) == (200, {"skipped_records": 2})
    assert refused(call("POST", SKIP.format(0), value={"region": "b", "to_offset": 3}), "to_offset")
    assert replicate(service) == 2
    shown = call("GET", REPLICATION).json
    assert (shown["gaps"], shown["skipped_records"]) == ([], 2)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"region": "local", "to_offset": 1}, "region"),
        ({"region": "c", "to_offset": 1}, "region"),
        ({"region": "b"}, "to_offset"),
        ({"to_offset": 1}, "region"),
        ({"region": 1, "to_offset": 1}, "region"),
        ({"region": "b", "to_offset": -1}, "to_offset"),
        ({"region": "b", "to_offset": 1.0}, "to_offset"),
        ({"region": "b", "to_offset": 1, "x": 1}, "x"),
        ({"region": "b", "to_offset": 1}, "to_offset"),  # no gap
    ],
)
def test_a_skip_of_anything_else_is_refused(topic: str, body: dict[str, Any], field: str) -> None:
    assert refused(call("POST", SKIP.format(0), value=body), field)


def test_a_skip_in_no_partition_is_404(topic: str) -> None:
    for partition in ("2", "x", "-1"):
        answer = call("POST", SKIP.format(partition), value={"region": "b", "to_offset": 1})
        assert (answer.status, answer.code) == (404, "UNKNOWN_TOPIC_OR_PARTITION")
