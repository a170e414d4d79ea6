"""Contract, "Access and its history" and "Service", over HTTP: holders now and before, and the service's clock."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.ports import Put
from fenceline.settings import PeerSettings, Settings
from fenceline_http import wiring
from tests.support.http_events import Answer, call, event, send
from tests.support.runtime import START_MS, FakeRuntime

MARKERS = "/v1/topics/orders/partitions/0/markers"
ACCESS = "/v1/topics/orders/access"
ANN, BOB = "arn:aws:iam::1:user/ann", "arn:aws:iam::1:user/bob"

pytestmark = pytest.mark.usefixtures("topic")


@pytest.fixture
def runtime() -> FakeRuntime:
    return FakeRuntime()


def claim(mode: str = "ExclusiveWithFencing", **options: Any) -> dict[str, Any]:
    answer = call("POST", "/v1/topics/orders/producers", value={"access_mode": mode, "partitions": [0], **options})
    assert answer.status in (201, 202), answer.json
    producer: dict[str, Any] = answer.json["producer"]
    return producer


def produce(producer: dict[str, Any], count: int) -> None:
    session = {"session_id": producer["session_id"], "topic_epoch": producer["topic_epochs"]["0"]}
    value = {"records": [{"value": "v"}] * count, "session": session}
    assert call("POST", "/v1/topics/orders/partitions/0/records", value=value).status == 200


def as_principal(arn: str, method: str, path: str, value: Any = None) -> Answer:
    sent = event(method, path, body=None if value is None else json.dumps(value))
    sent["requestContext"]["authorizer"] = {"iam": {"userArn": arn, "accountId": "1"}}
    return send(sent)


def test_markers_have_the_members_of_the_contract() -> None:
    held = claim(producer_name="loader", client_name="web-3:4711")
    produce(held, 3)
    answer = call("GET", MARKERS)
    marker = {
        "offset": 0,
        "timestamp": START_MS,
        "topic_epoch": 0,
        "access_mode": "Exclusive",
        "session_id": held["session_id"],
        "client_name": "web-3:4711",
        "producer_name": "loader",
        "records": 3,
    }
    assert (answer.status, answer.json) == (200, {"markers": [marker], "has_more": False})
    assert call("GET", "/v1/topics/orders/partitions/1/markers").json == {"markers": [], "has_more": False}


def test_markers_come_newest_first_and_go_on() -> None:
    for number in range(25):
        produce(claim(producer_name=f"p{number}"), 1)
    first = call("GET", MARKERS).json
    assert [one["producer_name"] for one in first["markers"]] == [f"p{number}" for number in range(24, 4, -1)]
    assert (first["has_more"], first["go_on_before"]) == (True, first["markers"][-1]["offset"])
    second = call("GET", MARKERS, {"before_offset": first["go_on_before"], "limit": 1_000}).json
    assert [one["topic_epoch"] for one in second["markers"]] == [4, 3, 2, 1, 0]
    assert {one["records"] for one in (*first["markers"], *second["markers"])} == {1}
    assert not second["has_more"]
    assert call("GET", MARKERS, {"before_offset": limits.INT64_MAX}).json == first


@pytest.mark.parametrize("path", [MARKERS, ACCESS])
@pytest.mark.parametrize("limit", ["0", "-1", "x", "1.5", "", "1e3", "0x10", "٣"])
def test_a_limit_is_at_least_one(path: str, limit: str) -> None:
    answer = call("GET", path, {"limit": limit})
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", "limit")


@pytest.mark.parametrize("value", ["-1", "x", "1.5", "9" * 30, "0x1", "null", "", "<script>", "1;2"])
def test_a_place_is_an_offset_or_a_partition(value: str) -> None:
    for path, name in ((MARKERS, "before_offset"), (ACCESS, "start_partition")):
        answer = call("GET", path, {name: value})
        assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", name)


def test_what_does_not_exist_is_said_to_be_unknown() -> None:
    for path in (
        "/v1/topics/none/partitions/0/markers",
        "/v1/topics/orders/partitions/2/markers",
        "/v1/topics/none/access",
        "/v1/topics/__proto__/access",
    ):
        assert call("GET", path).code == "UNKNOWN_TOPIC_OR_PARTITION"
    assert call("GET", MARKERS, "after=1").code == call("GET", ACCESS, "group=g").code == "INVALID_REQUEST"


def test_a_client_name_that_is_hostile_is_shown_as_it_is() -> None:
    name = '<script>alert("1")</script> __proto__ \\'
    claim(client_name=name)
    assert call("GET", MARKERS).json["markers"][0]["client_name"] == name
    assert call("GET", ACCESS).json["partitions"][0]["holder"]["client_name"] == name


def test_access_has_the_members_of_the_contract() -> None:
    held = claim(producer_name="loader", client_name="web-3:4711")
    claim("WaitForExclusive")
    reader = call("POST", "/v1/sessions", value={"client_name": "worker-7:311"}).json
    wanted = {"resource": "orders/0", "generation": 9}
    value = {"session_id": reader["session_id"], "group": "billing", "resources": [wanted]}
    assert call("POST", "/v1/own", value=value).status == 200
    writer = call("POST", "/v1/sessions").json
    value = {"session_id": writer["session_id"], "resources": [{"resource": "orders/1"}]}
    assert call("POST", "/v1/own", value=value).status == 200
    answer = call("GET", ACCESS)
    owned = {
        "client_name": None,
        "session_id": writer["session_id"],
        "generation": 1,
        "since": START_MS,
        "until": writer["expires_at"],
    }
    assert (answer.status, answer.json) == (
        200,
        {
            "partitions": [
                {
                    "partition": 0,
                    "topic_epoch": 0,
                    "access_mode": "Exclusive",
                    "holder": {
                        "producer_name": "loader",
                        "client_name": "web-3:4711",
                        "session_id": held["session_id"],
                        "since": START_MS,
                        "expires_at": held["expires_at"],
                    },
                    "waiting": 1,
                    "owner": None,
                    "group_owners": [
                        {
                            "group": "billing",
                            "client_name": "worker-7:311",
                            "session_id": reader["session_id"],
                            "generation": 9,
                            "since": START_MS,
                            "until": reader["expires_at"],
                        }
                    ],
                },
                {
                    "partition": 1,
                    "topic_epoch": 0,
                    "access_mode": "Exclusive",
                    "holder": {
                        "producer_name": None,
                        "client_name": None,
                        "session_id": writer["session_id"],
                        "since": START_MS,
                        "expires_at": writer["expires_at"],
                    },
                    "waiting": 0,
                    "owner": owned,
                    "group_owners": [],
                },
            ],
            "has_more": False,
        },
    )


def test_access_is_shown_in_parts() -> None:
    first = call("GET", ACCESS, {"limit": 1}).json
    assert ([one["partition"] for one in first["partitions"]], first["has_more"]) == ([0], True)
    second = call("GET", ACCESS, {"start_partition": 1, "limit": 500}).json
    assert ([one["partition"] for one in second["partitions"]], second["has_more"]) == ([1], False)


def test_access_that_is_too_long_for_one_answer_is_cut_between_partitions(service: wiring.Service) -> None:
    """Each partition has 6,000 groups with an owner; together they are more than the gateway carries."""
    made = call("POST", "/v1/sessions", value={"client_name": "w" * 250}).json
    topic_id = call("GET", "/v1/topics/orders").json["topic_id"]
    own_many(service, topic_id, made["session_id"], count=6_000)
    first = call("GET", ACCESS).json
    assert ([one["partition"] for one in first["partitions"]], first["has_more"]) == ([0], True)
    assert len(first["partitions"][0]["group_owners"]) == 6_000
    second = call("GET", ACCESS, {"start_partition": 1}).json
    assert ([one["partition"] for one in second["partitions"]], second["has_more"]) == ([1], False)


def own_many(service: wiring.Service, topic_id: str, session_id: str, count: int) -> None:
    value = {"generation": 1, "fencing_token": 0, "session_id": session_id, "severed": [], "since": START_MS}
    for partition in range(2):
        for at in range(0, count, 100):
            keys_ = [keys.ownership_item(topic_id, partition, f"group-{number:05d}") for number in range(at, at + 100)]
            service.items.write([Put(key, value, 1, expected=None) for key in keys_])


def test_to_another_principal_ids_are_shown_by_their_beginning() -> None:
    value = {"access_mode": "Exclusive", "partitions": [0]}
    held = as_principal(ANN, "POST", "/v1/topics/orders/producers", value).json["producer"]["session_id"]
    for who, shown in ((ANN, held), (BOB, held[:8])):
        assert as_principal(who, "GET", MARKERS).json["markers"][0]["session_id"] == shown
        assert as_principal(who, "GET", ACCESS).json["partitions"][0]["holder"]["session_id"] == shown


def test_health_says_the_services_clock_and_its_peers(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch, runtime: FakeRuntime
) -> None:
    """It asks no store: the names are those of the settings."""
    peers = (PeerSettings("eu", "http://127.0.0.1:1"), PeerSettings("us", "http://127.0.0.1:2"))
    named = replace(service, settings=Settings(":memory:", region="ap", peers=peers), runtime=runtime)
    monkeypatch.setattr(wiring, "service", lambda: named)
    service.objects.close()
    service.items.close()
    runtime.advance(1_234)
    answer = call("GET", "/v1/health")
    expected = {"status": "ok", "region": "ap", "version": "0.0.0", "now": START_MS + 1_234, "peers": ["eu", "us"]}
    assert (answer.status, answer.json) == (200, expected)
