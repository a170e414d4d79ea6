"""Offsets of a group in a transaction, through the handlers (contract, "Offsets" of transactions, "Subscriptions")."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline_http import wiring
from tests.support.http_events import Answer, call
from tests.support.http_transactions import Producer, records

GROUP = "billing"
OFFSETS = f"/v1/groups/{GROUP}/offsets"
SUBSCRIPTION = f"/v1/topics/orders/subscriptions/{GROUP}"


@pytest.fixture(autouse=True)
def _topic(topic: str) -> None:
    """Two partitions of `orders`, the first with five records."""
    call("POST", records("orders"), value={"records": [{"value": str(one)} for one in range(5)]})


def ongoing(transactional_id: str = "loader-1") -> Producer:
    """Return a producer in whose transaction the group is."""
    producer = Producer(transactional_id)
    assert producer.add_group(GROUP).status == 204
    return producer


def committed(**query: Any) -> Answer:
    return call("GET", OFFSETS, query)


def offsets() -> dict[tuple[str, int], int]:
    return {(one["topic"], one["partition"]): one["offset"] for one in committed().json["offsets"]}


def commit(offset: int) -> Answer:
    return call("POST", OFFSETS, value={"offsets": [{"topic": "orders", "partition": 0, "offset": offset}]})


def test_offsets_are_in_force_when_the_transaction_commits_and_not_before() -> None:
    producer = ongoing()
    answer = producer.send_offset(GROUP, 3)
    assert (answer.status, answer.json) == (200, {})
    assert offsets() == {}
    assert producer.shown()["groups"] == [GROUP]
    assert producer.end("commit").status == 200
    assert offsets() == {("orders", 0): 3}
    assert call("GET", SUBSCRIPTION).json["partitions"][0]["mark_delete_offset"] == 3


def test_an_abort_forgets_offsets_and_leaves_those_before() -> None:
    commit(1)
    producer = ongoing()
    producer.send_offset(GROUP, 3)
    producer.end("abort")
    assert offsets() == {("orders", 0): 1}


def test_metadata_of_a_sent_offset_is_shown_once_it_is_committed() -> None:
    producer = ongoing()
    sent = [{"topic": "orders", "partition": 0, "offset": 2, "metadata": "why"}]
    assert producer.send_offset(GROUP, 0, offsets=sent).status == 200
    producer.end("commit")
    assert committed().json["offsets"] == sent


def test_stable_offsets_are_refused_while_one_is_pending() -> None:
    commit(1)
    producer = ongoing()
    producer.send_offset(GROUP, 3)
    for query in ({}, {"topic": "orders"}, {"topic": "orders", "partition": 0}):
        answer = committed(require_stable="true", **query)
        assert (answer.status, answer.code, answer.json["next_step"]) == (409, "UNSTABLE_OFFSET_COMMIT", "retry")
        assert committed(require_stable="false", **query).status == 200
    assert committed(require_stable="true", topic="orders", partition=1).status == 200
    reading = f"{SUBSCRIPTION}/records"
    assert call("GET", reading, "require_stable=true").code == "UNSTABLE_OFFSET_COMMIT"
    assert call("GET", reading, "require_stable=true&partition=1").status == 200
    assert [one["offset"] for one in call("GET", reading).json["records"]] == [1, 2, 3, 4]
    producer.end("commit")
    assert [one["offset"] for one in call("GET", reading, "require_stable=true").json["records"]] == [3, 4]


def test_whether_offsets_are_stable_is_asked_for_with_true_or_false() -> None:
    answer = call("GET", f"{SUBSCRIPTION}/records", "require_stable=1")
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "require_stable")


def test_the_commit_sent_last_is_in_force_in_any_order_of_the_ends() -> None:
    first, second = ongoing("a"), ongoing("b")
    first.send_offset(GROUP, 1)
    second.send_offset(GROUP, 2)
    second.end("commit")
    assert offsets() == {("orders", 0): 2}
    first.end("commit")
    assert offsets() == {("orders", 0): 2}
    third = ongoing("c")
    third.send_offset(GROUP, 4)
    commit(3)
    third.end("commit")
    assert offsets() == {("orders", 0): 3}


def test_a_group_is_added_before_its_offsets_are_sent() -> None:
    producer = Producer()
    assert producer.send_offset(GROUP, 0).code == "INVALID_TXN_STATE"
    producer.add_group("another")
    assert producer.send_offset(GROUP, 0).code == "INVALID_TXN_STATE"
    producer.add_group(GROUP)
    assert producer.send_offset(GROUP, 0).status == 200


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (["topic", "session", "owner", "producer", "group", "range"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["partition", "session", "owner", "producer", "group", "range"], "UNKNOWN_TOPIC_OR_PARTITION"),
        (["session", "owner", "producer", "group", "range"], "UNKNOWN_SESSION"),
        (["owner", "producer", "group", "range"], "OWNER_FENCED"),
        (["producer", "group", "range"], "INVALID_PRODUCER_ID_MAPPING"),
        (["epoch", "group", "range"], "PRODUCER_FENCED"),
        (["group", "range"], "INVALID_TXN_STATE"),
        (["range"], "OFFSET_OUT_OF_RANGE"),
    ],
)
def test_of_several_errors_the_first_is_answered(wrong: list[str], code: str) -> None:
    producer = Producer() if "group" in wrong else ongoing()
    if "producer" in wrong:
        producer.pair = {**producer.pair, "producer_id": producer.pair["producer_id"] + 1}
    if "epoch" in wrong:
        producer.pair = {**producer.pair, "producer_epoch": 7}
    place = {
        "topic": "nope" if "topic" in wrong else "orders",
        "partition": 9 if "partition" in wrong else 0,
        "offset": 99 if "range" in wrong else 0,
    }
    more: dict[str, Any] = {}
    if "owner" in wrong:
        owner = call("POST", "/v1/sessions").json["session_id"]
        body = {"session_id": owner, "group": GROUP, "resources": [{"resource": "orders/0"}]}
        assert call("POST", "/v1/own", value=body).status == 200
    if "session" in wrong:
        more["session_id"] = "0" * 32
    answer = producer.send_offset(GROUP, 0, offsets=[place], **more)
    assert answer.code == code
    if code == "OFFSET_OUT_OF_RANGE":
        assert (answer.json["log_start_offset"], answer.json["next_offset"]) == (0, 5)


def test_an_owner_sends_offsets_and_an_end_decides_over_those_of_a_severed_owner() -> None:
    owner, rival = (call("POST", "/v1/sessions").json["session_id"] for _ in range(2))
    resource = {"group": GROUP, "resources": [{"resource": "orders/0"}]}
    assert call("POST", "/v1/own", value={"session_id": owner, **resource}).status == 200
    producer = ongoing()
    assert producer.send_offset(GROUP, 3).code == "OWNER_FENCED"
    assert producer.send_offset(GROUP, 3, session_id=owner).status == 200
    taking = {"session_id": rival, "group": GROUP, "resources": [{"resource": "orders/0", "generation": 9}]}
    assert call("POST", "/v1/own", value=taking).status == 200
    assert producer.send_offset(GROUP, 4, session_id=owner).code == "SESSION_SEVERED"
    assert committed(require_stable="true").code == "UNSTABLE_OFFSET_COMMIT"
    producer.end("commit")
    assert committed(require_stable="true").json["offsets"][0]["offset"] == 3


def test_all_of_a_request_is_sent_or_none() -> None:
    producer = ongoing()
    both = [{"topic": "orders", "partition": 0, "offset": 1}, {"topic": "orders", "partition": 1, "offset": 1}]
    assert producer.send_offset(GROUP, 0, offsets=both).code == "OFFSET_OUT_OF_RANGE"
    assert committed(require_stable="true").status == 200


def test_more_than_32_offsets_pending_for_one_partition_are_throttled() -> None:
    pending = [ongoing(f"loader-{one}") for one in range(33)]
    *taken, refused = [one.send_offset(GROUP, 1) for one in pending]
    assert {answer.status for answer in taken} == {200}
    assert (refused.status, refused.code, refused.json["next_step"]) == (429, "THROTTLED", "retry")
    assert pending[0].send_offset(GROUP, 2).status == 200
    pending[0].end("commit")
    assert pending[-1].send_offset(GROUP, 1).status == 200


def test_a_transaction_has_a_bounded_number_of_offsets_and_its_refusal_calls_them_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_CURSORS_MAX", 1)
    producer = ongoing()
    assert producer.send_offset(GROUP, 1).status == 200
    refused = producer.send_offset(GROUP, 0, partition=1)
    assert (refused.status, refused.code) == (400, "INVALID_REQUEST")
    assert "at most 1 offsets of groups" in refused.json["detail"]
    assert producer.send_offset(GROUP, 2).status == 200
    assert producer.end("commit").status == 200
    assert offsets() == {("orders", 0): 2}


def test_pending_offsets_of_a_deleted_topic_are_deleted_too(service: wiring.Service) -> None:
    producer = ongoing()
    producer.send_offset(GROUP, 3)
    assert call("DELETE", "/v1/topics/orders").status == 202
    assert producer.end("commit").status == 200
    call("POST", "/v1/topics", value={"name": "orders"})
    assert offsets() == {}
    assert committed(require_stable="true").json["offsets"] == []
