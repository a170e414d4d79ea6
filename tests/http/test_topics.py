"""Contract, "Topics", trims, compactions and producer ids, through the handlers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fenceline.ports import Change, NoAnswer
from fenceline_http import wiring
from tests.support.http_events import call
from tests.support.peers import peers_named

pytestmark = pytest.mark.usefixtures("topic")

TOPIC_FIELDS = {"name", "topic_id", "partitions", "config", "regions", "created_at"}


def test_a_topic_is_created_shown_changed_listed_and_deleted() -> None:
    created = call("POST", "/v1/topics", value={"name": "clicks", "config": {"retention.ms": -1}, "regions": None})
    assert created.status == 201
    assert set(created.json) == TOPIC_FIELDS
    shown = {"name": "clicks", "partitions": 1, "config": {"retention.ms": -1}, "regions": ["local"]}
    assert created.json.items() >= shown.items()
    assert call("GET", "/v1/topics/clicks").json == created.json

    altered = call("PATCH", "/v1/topics/clicks", value={"partitions": 3, "config": {"retention.ms": None}})
    assert (altered.status, altered.json) == (200, {**created.json, "partitions": 3, "config": {}})
    assert call("PATCH", "/v1/topics/clicks").json == altered.json
    assert call("PATCH", "/v1/topics/clicks", value={"partitions": 3}).json == altered.json
    fewer = call("PATCH", "/v1/topics/clicks", value={"partitions": 2})
    assert (fewer.code, fewer.json["field"]) == ("INVALID_REQUEST", "partitions")

    deleted = call("DELETE", "/v1/topics/clicks")
    assert (deleted.status, deleted.body) == (202, b"")
    for method in ("GET", "PATCH", "DELETE"):
        assert call(method, "/v1/topics/clicks").code == "UNKNOWN_TOPIC_OR_PARTITION"
    again = call("POST", "/v1/topics", value={"name": "clicks"})
    assert again.status == 201
    assert again.json["topic_id"] != created.json["topic_id"]


def test_a_name_is_taken_once() -> None:
    assert call("POST", "/v1/topics", value={"name": "orders"}).code == "TOPIC_ALREADY_EXISTS"


def test_topics_are_listed_in_byte_order_page_by_page() -> None:
    for name in ("b", "B", "a.1", "a-1", "_"):
        assert call("POST", "/v1/topics", value={"name": name}).status == 201
    whole = call("GET", "/v1/topics").json
    names = [topic["name"] for topic in whole["topics"]]
    assert names == ["B", "_", "a-1", "a.1", "b", "orders"]
    assert whole["has_more"] is False
    page = call("GET", "/v1/topics", {"start_after": "_", "limit": 2}).json
    assert ([topic["name"] for topic in page["topics"]], page["has_more"]) == (["a-1", "a.1"], True)
    only = call("GET", "/v1/topics", {"prefix": "a", "start_after": "a-1"}).json
    assert ([topic["name"] for topic in only["topics"]], only["has_more"]) == (["a.1"], False)


def test_a_trim_moves_the_log_start_to_exactly_that_offset_and_never_back() -> None:
    path = "/v1/topics/orders/partitions/0"
    call("POST", f"{path}/records", value={"records": [{"value": str(n)} for n in range(5)]})
    assert call("POST", f"{path}/trim", value={"before_offset": 3}).json == {"log_start_offset": 3}
    assert call("POST", f"{path}/trim", value={"before_offset": 1}).json == {"log_start_offset": 3}
    beyond = call("POST", f"{path}/trim", value={"before_offset": 6})
    assert (beyond.code, beyond.json["log_start_offset"], beyond.json["next_offset"]) == ("OFFSET_OUT_OF_RANGE", 3, 5)
    assert call("GET", f"{path}/records", "offset=2").code == "OFFSET_OUT_OF_RANGE"
    assert call("GET", f"{path}/records", "offset=3").json["records"][0]["value"] == "3"


@pytest.mark.parametrize(
    "body", ["", "{}", '{"before_offset": null}', '{"before_offset": -1}', '{"before_offset": 1.0}']
)
def test_a_trim_names_its_offset(body: str) -> None:
    answer = call("POST", "/v1/topics/orders/partitions/0/trim", body=body)
    assert answer.code == "INVALID_REQUEST"
    assert answer.json.get("field") == ("before_offset" if body else None)


def test_compaction_is_accepted_on_compacted_topics_only() -> None:
    assert call("POST", "/v1/topics/orders/partitions/0/compact").code == "INVALID_REQUEST"
    call("POST", "/v1/topics", value={"name": "state", "config": {"cleanup.policy": "compact"}})
    for body in (None, "{}"):
        accepted = call("POST", "/v1/topics/state/partitions/0/compact", body=body)
        assert (accepted.status, accepted.body) == (202, b"")
    assert call("POST", "/v1/topics/state/partitions/0/compact", value={"x": 1}).json["field"] == "x"
    assert call("POST", "/v1/topics/state/partitions/1/compact").code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_each_producer_id_is_given_once() -> None:
    given = [call("POST", "/v1/producer-ids").json for _ in range(20)]
    assert len({one["producer_id"] for one in given}) == 20
    assert {one["producer_epoch"] for one in given} == {0}


def test_a_change_that_may_have_been_made_is_504_and_never_400(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its write lands and is not answered; a rival has more partitions by then."""
    write = service.items.write
    rivals = iter([True])

    def lost(changes: Sequence[Change]) -> None:
        write(changes)
        if next(rivals, False):
            assert call("PATCH", "/v1/topics/orders", value={"partitions": 9}).status == 200
            raise NoAnswer("lost")

    monkeypatch.setattr(service.items, "write", lost)
    answer = call("PATCH", "/v1/topics/orders", value={"partitions": 5, "config": {"retention.ms": 7}})
    assert (answer.status, answer.code, answer.json["next_step"]) == (504, "OUTCOME_UNKNOWN", "check")
    assert call("GET", "/v1/topics/orders").json["config"] == {"retention.ms": 7}


_SEVEN = [f"region-{n}" for n in range(7)]


@pytest.mark.parametrize(
    "peers", [peers_named(*_SEVEN, "one-more", *(f"{n:063d}" for n in range(8_000)))], ids=["many"]
)
def test_a_topic_has_at_most_eight_regions() -> None:
    eight = ["local", *_SEVEN]
    for regions in ([*eight, "one-more"], [f"{n:063d}" for n in range(8_000)], []):
        created = call("POST", "/v1/topics", value={"name": "far", "regions": regions})
        changed = call("PATCH", "/v1/topics/orders", value={"regions": regions})
        for answer in (created, changed):
            assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", "regions")
    assert call("GET", "/v1/topics/far").status == 404
    assert call("GET", "/v1/topics/orders").json["regions"] == ["local"]
    assert call("POST", "/v1/topics", value={"name": "far", "regions": eight}).json["regions"] == eight
    assert call("PATCH", "/v1/topics/orders", value={"regions": eight}).json["regions"] == eight
