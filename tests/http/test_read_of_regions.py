"""Segments of one origin, and records with identities, through the handlers (contract, "Read")."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

from fenceline.format import control
from fenceline.format.segment import Replicated
from fenceline.settings import PeerSettings, Settings
from fenceline_http import dispatch, wiring
from tests.http.conftest import service_in_memory
from tests.support.http_events import BATCH_TYPE, call, event
from tests.support.peers import peers_named
from tests.support.service import LogBuilder, data, marker

PARTITION = "/v1/topics/orders/partitions/0"
SEGMENTS = f"{PARTITION}/segments"
RECORDS = f"{PARTITION}/records"


@pytest.fixture
def log(service: wiring.Service, topic: str) -> LogBuilder:
    """Two segments of this region, and one of another between them."""
    log = LogBuilder(topic_id=service.log.topics.get(topic).topic_id, region="local")
    log.add(data("a", "b"))
    log.add(data("c"), origin="eu", replicated=Replicated("eu-topic", 8, 7, "ab" * 32))
    log.add(marker(control.SNAPSHOT_REQUEST), data("d"))
    log.store(service.objects)
    return log


def segments(query: str = "") -> Any:
    answer = call("GET", SEGMENTS, query)
    assert answer.status == 200, answer.json
    return answer.json


ENTRY = {"base_offset", "next_offset", "bytes", "url", "origin", "records", "aborted"}
ANSWER = {
    "segments",
    "has_more",
    "topic_id",
    "region",
    "position",
    "log_start_own_records",
    "stable_own_records",
    "log_start_offset",
    "next_offset",
    "last_stable_offset",
}


def test_the_segments_of_the_own_origin_say_what_a_puller_must_know(log: LogBuilder) -> None:
    answer = segments("origin=own&offset=0")
    assert answer.keys() == ANSWER | {"chain_after"}
    assert {name: answer[name] for name in ("region", "position", "log_start_own_records", "stable_own_records")} == {
        "region": "local",
        "position": 5,
        "log_start_own_records": 0,
        "stable_own_records": 3,
    }
    first, second = answer["segments"]
    assert first.keys() == ENTRY | {
        "own_records",
        "appended_at",
        "chain",
        "origin_topic_id",
        "origin_next_offset",
        "origin_count",
        "origin_chain",
    }
    assert (first["base_offset"], second["base_offset"], second["own_records"]) == (0, 3, 2)
    made = log.segments[0].metadata
    assert (first["appended_at"], first["chain"]) == (made.appended_at, made.chain)
    own = {"origin": None, "origin_topic_id": None, "origin_next_offset": None, "origin_count": None}
    assert first.items() >= {**own, "origin_chain": None}.items()


def test_the_segments_of_another_origin_have_its_position(log: LogBuilder) -> None:
    answer = segments("origin=eu")
    (entry,) = answer["segments"]
    made = log.segments[1].metadata
    assert (
        entry.items()
        >= {
            "base_offset": 2,
            "origin": "eu",
            "own_records": 2,
            "chain": made.chain,
            "origin_topic_id": "eu-topic",
            "origin_next_offset": 8,
            "origin_count": 7,
            "origin_chain": "ab" * 32,
        }.items()
    )
    assert (answer["position"], answer["has_more"]) == (5, False)
    assert [one["base_offset"] for one in segments("origin=local")["segments"]] == [0, 3]


def test_without_an_origin_the_entries_have_no_further_members(log: LogBuilder) -> None:
    answer = segments("limit=2")
    assert answer.keys() == ANSWER
    assert [entry.keys() for entry in answer["segments"]] == [ENTRY, ENTRY]
    assert (answer["position"], answer["has_more"], answer["stable_own_records"]) == (3, True, 3)


def test_an_offset_below_the_log_start_is_the_log_start_for_an_origin_alone(log: LogBuilder) -> None:
    assert call("POST", f"{PARTITION}/trim", value={"before_offset": 4}).status == 200
    answer = segments("origin=own&offset=1")
    assert [entry["base_offset"] for entry in answer["segments"]] == [3]
    assert (answer["log_start_offset"], answer["log_start_own_records"], answer["stable_own_records"]) == (4, 2, 3)
    assert call("GET", SEGMENTS, "offset=1").code == "OFFSET_OUT_OF_RANGE"
    assert call("GET", SEGMENTS, "origin=own&offset=6").code == "OFFSET_OUT_OF_RANGE"


@pytest.mark.parametrize("origin", ["elsewhere", "", "Own"])
def test_an_origin_that_is_not_known_is_refused(log: LogBuilder, origin: str) -> None:
    refused = call("GET", SEGMENTS, f"origin={origin}")
    assert (refused.status, refused.code, refused.json["field"]) == (400, "INVALID_REQUEST", "origin")


@pytest.mark.usefixtures("log")
def test_records_are_shown_with_their_identities_where_these_are_asked_for(service: wiring.Service) -> None:
    topic_id = service.log.topics.get("orders").topic_id
    records = call("GET", RECORDS, "offset=0&identity=true").json["records"]
    assert [(one["value"], one["origin"], one["origin_topic_id"], one["number"]) for one in records] == [
        ("a", "local", topic_id, 1),
        ("b", "local", topic_id, 2),
        ("c", "eu", "eu-topic", 7),
        ("d", "local", topic_id, 3),
    ]
    for query in ("offset=0", "offset=0&identity=false"):
        records = call("GET", RECORDS, query).json["records"]
        assert [one.get("origin") for one in records] == [None, None, "eu", None]
        assert not any({"origin_topic_id", "number"} & one.keys() for one in records)


@pytest.mark.usefixtures("log")
def test_a_subscription_is_read_with_identities_too() -> None:
    place = "/v1/topics/orders/subscriptions/sub"
    assert call("PUT", place, value={"initial_position": "earliest"}).status == 201
    records = call("GET", f"{place}/records", "identity=true&max_records=3").json["records"]
    assert [(one["origin"], one["number"]) for one in records] == [("local", 1), ("local", 2), ("eu", 7)]
    records = call("GET", f"{place}/records", "max_records=1").json["records"]
    assert "number" not in records[0]


@pytest.mark.usefixtures("log")
def test_a_table_by_timestamp_gives_each_record_its_region_and_no_number() -> None:
    config = {"cleanup.policy": "compact", "compaction.order": "timestamp", "delete.retention.ms": -1}
    assert call("PATCH", "/v1/topics/orders", value={"config": config}).status == 200
    records = call("GET", RECORDS, "offset=0&identity=true&compacted=true").json["records"]
    assert {one["origin"] for one in records} == {"local", "eu"}
    assert not any("number" in one or "origin_topic_id" in one for one in records)
    refused = call("PATCH", "/v1/topics/orders", value={"config": {"delete.retention.ms": 0}})
    assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", "config.delete.retention.ms")


@pytest.mark.usefixtures("log")
def test_identities_are_refused_where_they_are_not_known() -> None:
    for query, accept in (
        ("offset=0&identity=true&compacted=true", "application/json"),
        ("offset=0&identity=true", BATCH_TYPE),
        ("offset=0&identity=1", "application/json"),
    ):
        refused = call("GET", RECORDS, query, headers={"accept": accept})
        assert (refused.code, refused.json["field"]) == ("INVALID_REQUEST", "identity")
    both = call("GET", RECORDS, "offset=0&identity=true", headers={"accept": f"{BATCH_TYPE}, application/json"})
    assert both.json["records"][0]["number"] == 1


SESSIONS = "arn:aws:sts::1:assumed-role"


@pytest.mark.parametrize(
    ("principal", "regions", "is_served"),
    [
        (f"{SESSIONS}/fenceline-peer/eu", ["local", "eu"], True),
        (f"{SESSIONS}/fenceline-peer/eu", ["local", "ap"], False),
        (f"{SESSIONS}/fenceline-peer/eu", ["local"], False),
        (f"{SESSIONS}/fenceline-peer/us", ["local", "eu", "ap"], False),
        (f"{SESSIONS}/fenceline-peer/local", ["local", "eu", "ap"], False),
        # An older peer does not say which it is.
        (f"{SESSIONS}/fenceline-peer/fenceline", ["local", "eu", "ap"], True),
        (f"{SESSIONS}/fenceline-peer/fenceline", ["local", "eu"], False),
        # Others are no peers.
        (f"{SESSIONS}/another-peer/eu", ["local"], True),
        ("arn:aws:iam::1:user/fenceline-peer", ["local"], True),
        ("", ["local"], True),
    ],
)
@pytest.mark.parametrize("query", ["origin=own", "origin=eu", "", "offset=9"])
def test_segments_are_refused_to_a_peer_that_the_topics_regions_do_not_name(
    query: str, principal: str, regions: list[str], is_served: bool
) -> None:
    made = service_in_memory(peers=peers_named("eu", "ap"))
    peers = (PeerSettings("eu", "https://eu"), PeerSettings("ap", "https://ap"))
    with closing(replace(made, settings=Settings(":memory:", peers=peers))) as service:
        service.log.topics.create("orders", regions=regions)
        sent = event("GET", SEGMENTS, query)
        sent["requestContext"]["authorizer"] = {"iam": {"userArn": principal}}
        response = dispatch.respond(None, sent, service)
    assert response.status == ((416 if "9" in query else 200) if is_served else 403), response.body
    if not is_served:
        assert json.loads(response.body)["code"] == "NOT_AUTHORIZED"
