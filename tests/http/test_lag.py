"""Contract, "Lag", "Two readers of one partition", and the counts of topics and partitions, through the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from tests.support.http_events import Answer, call

pytestmark = pytest.mark.usefixtures("topic")

LAG = "/v1/subscriptions"


def produce(topic: str = "orders", partition: int = 0, count: int = 3) -> int:
    value = {"records": [{"value": str(n)} for n in range(count)]}
    timestamp: int = call("POST", f"/v1/topics/{topic}/partitions/{partition}/records", value=value).status
    return timestamp


def subscribe(name: str, topic: str = "orders") -> None:
    path = f"/v1/topics/{topic}/subscriptions/{name}"
    assert call("PUT", path, value={"initial_position": "earliest"}).status == 201


def acknowledge(name: str = "s", cumulative: int = 0, **more: Any) -> Answer:
    path = f"/v1/topics/orders/subscriptions/{name}/acknowledgements"
    return call("POST", path, value={"partition": 0, "cumulative": cumulative, **more})


def places(query: dict[str, Any]) -> list[str]:
    """Return all places of the list, page by page."""
    found: list[str] = []
    after = ""
    for _ in range(20):
        page = call("GET", LAG, {**query, "start_after": after}).json
        found += [f"{one['topic']}/{one['name']}" for one in page["subscriptions"]]
        assert page["has_more"] == ("go_on_after" in page)
        if not page["has_more"]:
            return found
        after = page["go_on_after"]
    raise AssertionError("the list has no end")


# Lag


def test_a_subscription_is_listed_with_what_it_has_not_read() -> None:
    subscribe("s")
    empty = call("GET", LAG).json
    assert empty == {
        "subscriptions": [
            {
                "name": "s",
                "topic": "orders",
                "replicate_subscription_state": False,
                "backlog": 0,
                "oldest_unread_at": None,
                "owner": None,
            }
        ],
        "has_more": False,
    }
    produce(partition=0, count=3)
    produce(partition=1, count=2)
    acknowledge(cumulative=0)
    shown = call("GET", "/v1/topics/orders/subscriptions/s").json["partitions"]
    times = [one["oldest_unread_at"] for one in shown]
    (listed,) = call("GET", LAG, {"topic": "orders"}).json["subscriptions"]
    assert all(times)
    assert (listed["backlog"], listed["oldest_unread_at"]) == (4, min(times))


def test_the_owner_is_the_session_that_owns_most_partitions() -> None:
    subscribe("s")
    session = call("POST", "/v1/sessions", value={"client_name": "worker-1"}).json["session_id"]
    body = {"session_id": session, "resources": [{"resource": "orders/0"}, {"resource": "orders/1"}], "group": "s"}
    assert call("POST", "/v1/own", value=body).status == 200
    (listed,) = call("GET", LAG).json["subscriptions"]
    assert listed["owner"] == {"session_id": session, "client_name": "worker-1", "partitions": 2}
    assert call("DELETE", f"/v1/sessions/{session}").status == 204
    assert call("GET", LAG).json["subscriptions"][0]["owner"] is None


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
def test_pages_of_any_size_are_all_subscriptions_by_topic_and_name(limit: int) -> None:
    for topic in ("a", "b", "z"):
        assert call("POST", "/v1/topics", value={"name": topic}).status == 201
    for topic, name in (("z", "s"), ("a", "t"), ("a", "s"), ("orders", "x")):
        subscribe(name, topic)
    assert places({"limit": limit}) == ["a/s", "a/t", "orders/x", "z/s"]
    assert places({"limit": limit, "topic": "a"}) == ["a/s", "a/t"]
    assert places({"limit": limit, "topic": "b"}) == []


def test_a_page_ends_where_its_looks_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_PARTITIONS_MAX", 4)  # two subscriptions of the topic's two partitions
    for name in ("a", "b", "c"):
        subscribe(name)
    page = call("GET", LAG).json
    assert [one["name"] for one in page["subscriptions"]] == ["a", "b"]
    assert (page["has_more"], page["go_on_after"]) == (True, "orders/b")
    assert places({}) == ["orders/a", "orders/b", "orders/c"]


def test_a_topic_of_too_many_partitions_shows_no_lag_and_no_totals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_PARTITIONS_MAX", 1)
    subscribe("s")
    (listed,) = call("GET", LAG).json["subscriptions"]
    assert listed == {"name": "s", "topic": "orders", "replicate_subscription_state": False}
    assert "totals" not in call("GET", "/v1/topics", {"totals": "true"}).json["topics"][0]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ({"topic": "none"}, 404, "UNKNOWN_TOPIC_OR_PARTITION"),
        ({"limit": "0"}, 400, "INVALID_REQUEST"),
        ({"limit": "many"}, 400, "INVALID_REQUEST"),
        ({"start_after": "a/b/c"}, 400, "INVALID_REQUEST"),
        ({"start_after": "a/"}, 400, "INVALID_REQUEST"),
        ({"name": "s"}, 400, "INVALID_REQUEST"),
    ],
)
def test_a_list_of_lag_refuses_what_it_cannot_answer(query: dict[str, str], status: int, code: str) -> None:
    answer = call("GET", LAG, query)
    assert (answer.status, answer.json["code"]) == (status, code)


# Counts and totals


def test_counts_and_totals_are_of_what_is_kept() -> None:
    produce(partition=0, count=3)
    produce(partition=0, count=2)
    plain = call("GET", "/v1/topics/orders/offsets").json["partitions"]
    assert all("records" not in one for one in plain)
    full, empty = call("GET", "/v1/topics/orders/offsets", {"counts": "true"}).json["partitions"]
    assert (full["records"], empty["records"], empty["bytes"]) == (5, 0, 0)
    assert full["bytes"] > 0
    assert "last_append_at" not in empty
    (topic,) = call("GET", "/v1/topics", {"totals": "true"}).json["topics"]
    assert topic["totals"] == {
        "records": 5,
        "bytes": full["bytes"],
        "last_append_at": full["last_append_at"],
        "exclusive_partitions": 0,
    }
    trim = "/v1/topics/orders/partitions/0/trim"
    assert call("POST", trim, value={"before_offset": 4}).status == 200
    trimmed, _ = call("GET", "/v1/topics/orders/offsets", {"counts": "true"}).json["partitions"]
    assert trimmed["records"] == 1
    assert 0 < trimmed["bytes"] < full["bytes"]
    assert call("POST", trim, value={"before_offset": 5}).status == 200
    gone, _ = call("GET", "/v1/topics/orders/offsets", {"counts": "true"}).json["partitions"]
    assert (gone["records"], gone["bytes"], "last_append_at" in gone) == (0, 0, False)


def test_a_list_with_totals_takes_fewer_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_ENTRIES_MAX", 1)
    assert call("POST", "/v1/topics", value={"name": "z"}).status == 201
    for query in ({"totals": "true"}, {"totals": "true", "limit": "2"}):
        page = call("GET", "/v1/topics", query).json
        assert ([one["name"] for one in page["topics"]], page["has_more"]) == (["orders"], True)
    plain = call("GET", "/v1/topics", {"limit": "2"}).json
    assert [one["name"] for one in plain["topics"]] == ["orders", "z"]
    assert all("totals" not in one for one in plain["topics"])
    assert call("GET", "/v1/topics", {"totals": "true", "limit": "0"}).status == 400
    assert call("GET", "/v1/topics", {"totals": "maybe"}).json["field"] == "totals"


def test_a_page_of_totals_ends_where_its_looks_are_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LAG_PARTITIONS_MAX", 2)
    assert call("POST", "/v1/topics", value={"name": "z"}).status == 201
    page = call("GET", "/v1/topics", {"totals": "true"}).json
    assert ([one["name"] for one in page["topics"]], page["has_more"]) == (["orders"], True)
    rest = call("GET", "/v1/topics", {"totals": "true", "start_after": "orders"}).json
    assert ([one["name"] for one in rest["topics"]], rest["has_more"]) == (["z"], False)


# Two readers


def test_a_second_reader_is_told_of_the_first_by_name() -> None:
    subscribe("s")
    produce()
    assert acknowledge(cumulative=0, reader_id="a", client_name="host-a").json == {"mark_delete_offset": 1}
    told = acknowledge(cumulative=0, reader_id="b", client_name="host-b").json  # it changes nothing
    assert told["other_reader"]["client_name"] == "host-a"
    assert acknowledge(cumulative=1, reader_id="a").json == {"mark_delete_offset": 2}
    assert acknowledge(cumulative=2, reader_id="b").json["other_reader"]["client_name"] is None
    assert acknowledge(cumulative=2).json == {"mark_delete_offset": 3}


@pytest.mark.parametrize(
    ("field", "value"),
    [("reader_id", ""), ("reader_id", "a b"), ("reader_id", "x" * 129), ("reader_id", 1), ("client_name", "")],
)
def test_a_reader_that_is_named_badly_acknowledges_nothing(field: str, value: Any) -> None:
    subscribe("s")
    produce()
    refused = acknowledge(cumulative=0, **{field: value})
    assert (refused.status, refused.json["field"]) == (400, field)
    assert call("GET", "/v1/topics/orders/subscriptions/s").json["partitions"][0]["mark_delete_offset"] == 0
