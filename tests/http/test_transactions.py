"""Transactions through the handlers: their producers, what they add, how they end.

Contract, "Producer ids, coordinators, transactions".
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.ports import Put
from fenceline_http import wiring
from tests.support.http_events import Answer, call
from tests.support.http_transactions import ID, Producer, init, read, records, values
from tests.support.runtime import AheadRuntime

ZERO, ONE = ("orders", 0), ("orders", 1)


@pytest.fixture
def runtime() -> AheadRuntime:
    return AheadRuntime()


@pytest.fixture(autouse=True)
def _topic(topic: str) -> None:
    """Two partitions of `orders`."""


def pair(producer_id: int, producer_epoch: int) -> dict[str, int]:
    return {"producer_id": producer_id, "producer_epoch": producer_epoch}


# Producer ids


def test_an_unknown_id_gets_a_new_producer_id_with_epoch_0_even_with_a_pair() -> None:
    first = init("a").json
    assert first["producer_epoch"] == 0
    second = init("b", **first).json
    assert second["producer_epoch"] == 0
    assert second["producer_id"] != first["producer_id"]


def test_each_request_without_a_pair_gets_the_next_epoch_and_fences_the_producer_before_it() -> None:
    old, new = Producer(), Producer()
    assert new.pair == pair(old.pair["producer_id"], 1)
    for answer in (old.add(ZERO), old.produce("v"), old.end("commit"), old.add_group("g")):
        assert (answer.status, answer.code) == (409, "PRODUCER_FENCED")
        assert "topic_epoch" not in answer.json
    assert new.produce("v").status == 200


def test_a_request_for_an_id_aborts_what_is_ongoing_under_it() -> None:
    old = Producer()
    assert old.produce("lost").status == 200
    new = Producer()
    assert new.pair["producer_epoch"] == old.pair["producer_epoch"] + 2  # one between them is the marker's alone
    assert old.end("commit").code == "PRODUCER_FENCED"
    assert values() == []
    assert read()["last_stable_offset"] == read()["next_offset"] == 2


def test_a_producer_that_names_its_pair_keeps_its_id_and_gets_the_same_answer_again() -> None:
    producer = Producer()
    given = init(**producer.pair).json
    assert given == pair(producer.pair["producer_id"], 1)
    assert init(**producer.pair).json == given
    producer.pair = given
    assert producer.add(ZERO).status == 200
    assert init(**pair(given["producer_id"], 0)).code == "PRODUCER_FENCED"  # a transaction began since


@pytest.mark.parametrize(("id_ahead", "epoch_ahead"), [(0, 1), (1, 0), (7, 0), (0, 32_767)])
def test_any_other_pair_is_fenced_and_aborts_nothing(id_ahead: int, epoch_ahead: int) -> None:
    producer = Producer()
    assert producer.produce("kept").status == 200
    other = pair(producer.pair["producer_id"] + id_ahead, producer.pair["producer_epoch"] + epoch_ahead)
    assert init(**other).code == "PRODUCER_FENCED"
    assert producer.end("commit").status == 200
    assert values() == ["kept"]


def test_the_time_out_is_that_of_the_latest_request() -> None:
    producer = Producer(transaction_timeout_ms=900_000)
    assert producer.shown()["transaction_timeout_ms"] == 900_000
    init()
    assert producer.shown()["transaction_timeout_ms"] == 60_000
    assert init(transaction_timeout_ms=900_001).code == "INVALID_TRANSACTION_TIMEOUT"
    assert producer.shown()["transaction_timeout_ms"] == 60_000


@pytest.mark.parametrize("text", ["a%2Fb", "a+b c?#&", "Ω", "\u0085", "𝄞" * 62, "%", "..."])
def test_every_transactional_id_goes_through_a_path(text: str) -> None:
    producer = Producer(text)
    assert producer.produce("v").status == 200
    assert producer.shown()["transactional_id"] == text
    assert producer.end("commit").status == 200
    assert values() == ["v"]


# A transaction


def test_a_commit_over_two_partitions_shows_as_a_whole() -> None:
    producer = Producer()
    added = producer.add(ZERO, ONE)
    places = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert (added.status, added.json) == (200, {"results": places})
    assert producer.produce("a", "b").json["base_offset"] == 0
    assert producer.produce("c").json["base_offset"] == 2
    assert producer.produce("d", partition=1).status == 200
    assert (values(), values(partition=1)) == ([], [])
    assert call("GET", records("orders"), "offset=0").json["last_stable_offset"] == 0
    ended = producer.end("commit")
    assert (ended.status, ended.json) == (200, producer.pair)
    assert ended.json["producer_epoch"] == 1
    assert (values(), values(partition=1)) == (["a", "b", "c"], ["d"])


def test_aborted_records_never_show_and_the_position_passes_them() -> None:
    producer = Producer()
    assert producer.produce("a").status == 200
    assert producer.end("abort").status == 200
    page = read()
    assert (page["records"], page["position"], page["last_stable_offset"]) == ([], 2, 2)
    assert [record["value"] for record in call("GET", records("orders"), "offset=0").json["records"]] == ["a"]


def test_one_request_produces_to_several_partitions_in_a_transaction() -> None:
    producer = Producer()
    entries = [
        {
            "topic": "orders",
            "partition": n,
            "records": [{"value": f"{n}"}],
            "producer": {**producer.pair, "sequence": 0},
        }
        for n in (0, 1)
    ]
    answer = call("POST", "/v1/produce", value={"transactional_id": ID, "partitions": entries})
    assert [one["base_offset"] for one in answer.json["results"]] == [0, 0]
    assert producer.end("commit").status == 200
    assert (values(), values(partition=1)) == (["0"], ["1"])


def test_a_binary_batch_is_part_of_the_transaction_that_its_parameter_names() -> None:
    producer = Producer()
    assert producer.produce_batch(b"a").status == 200
    assert producer.produce_batch(b"b", sequence=1).status == 200
    assert values() == []
    producer.end("commit")
    assert values() == ["a", "b"]


def test_sequences_begin_at_0_and_a_repeat_is_a_duplicate_until_the_end() -> None:
    producer = Producer()
    first = producer.produce("a").json
    producer._sequences.clear()
    again = producer.produce("a").json
    assert (again["duplicate"], again["base_offset"]) == (True, first["base_offset"])
    before = producer.pair
    producer.end("commit")
    after, producer.pair = producer.pair, before
    late = producer.produce("a")
    assert late.code == "INVALID_PRODUCER_EPOCH"
    assert "the pair that its end answered" in late.json["detail"]  # not: a new producer id, which none here may take
    producer.pair = after
    producer._sequences[ZERO] = 1
    assert producer.produce("b").code == "OUT_OF_ORDER_SEQUENCE_NUMBER"


def test_a_batch_outside_of_the_transaction_is_refused_while_its_producer_has_one_open_there() -> None:
    producer = Producer()
    producer.produce("a")
    plain = {"records": [{"value": "b"}], "producer": {**producer.pair, "sequence": 1}}
    assert call("POST", records("orders"), value=plain).code == "INVALID_TXN_STATE"
    assert call("POST", records("orders"), value={"records": [{"value": "no producer"}]}).status == 200


# Adding


def test_adding_what_is_in_is_no_error_and_a_partition_without_a_batch_ends_too() -> None:
    producer = Producer()
    for _ in range(2):
        assert producer.add(ZERO, ONE).status == 200
    assert producer.end("commit").status == 200
    assert read()["position"] == read(partition=1)["position"] == 1  # the marker alone


@pytest.mark.parametrize("unknown", [("orders", 2), ("nope", 0), ("a b", 0), ("", 0), ("orders", 2**63 - 1)])
def test_one_unknown_partition_has_its_error_and_nothing_is_added(unknown: tuple[str, int]) -> None:
    producer = Producer()
    answer = producer.add(ZERO, unknown, ONE)
    assert answer.status == 200
    results = answer.json["results"]
    assert [(one["topic"], one["partition"]) for one in results] == [ZERO, unknown, ONE]
    codes = [one["error"]["code"] for one in results]
    assert codes == ["OPERATION_NOT_ATTEMPTED", "UNKNOWN_TOPIC_OR_PARTITION", "OPERATION_NOT_ATTEMPTED"]
    assert producer.shown()["state"] == "Empty"


def test_the_producer_is_judged_before_the_partitions_that_it_adds() -> None:
    old, new = Producer(), Producer()
    assert old.add(("nope", 0)).code == "PRODUCER_FENCED"
    new.pair = pair(new.pair["producer_id"] + 1, 0)
    assert new.add(("nope", 0)).code == "INVALID_PRODUCER_ID_MAPPING"
    new.transactional_id = "nobody"
    assert new.add(("nope", 0)).code == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.slow
def test_no_names_are_too_many_or_too_long_for_an_answer() -> None:
    producer = Producer()
    places = [{"topic": "\x01" * 1_500 + str(one), "partition": 0} for one in range(500)]
    body = json.dumps({**producer.pair, "partitions": places})
    assert 4_500_000 < len(body) < 5_600_000
    answer = call("POST", f"/v1/transactions/{ID}/partitions", body=body)
    assert {one["error"]["code"] for one in answer.json["results"]} == {"UNKNOWN_TOPIC_OR_PARTITION"}


def test_a_transaction_has_at_most_500_partitions_and_100_groups() -> None:
    call("POST", "/v1/topics", value={"name": "wide", "partitions": 500})
    producer = Producer()
    assert producer.add(*(("wide", one) for one in range(499)), ZERO).status == 200
    assert producer.add(("wide", 498), ONE).code == "INVALID_REQUEST"
    assert producer.produce("v", partition=1).code == "INVALID_REQUEST"
    for one in range(100):
        assert producer.add_group(f"g-{one}").status == 204
    assert producer.add_group("g-100").code == "INVALID_REQUEST"
    assert producer.add_group("g-99").status == 204
    shown = producer.shown()
    assert (len(shown["partitions"]), len(shown["groups"])) == (500, 100)


# Ending


def test_the_same_end_again_gets_the_same_answer_until_a_transaction_begins() -> None:
    producer = Producer()
    producer.produce("a")
    before = producer.pair
    given = producer.end("commit").json
    for _ in range(2):
        producer.pair = before
        assert producer.post("end", result="commit").json == given
    assert producer.post("end", result="abort").code == "INVALID_TXN_STATE"
    producer.pair = given
    producer.add(ZERO)
    producer.pair = before
    assert producer.post("end", result="commit").code == "PRODUCER_FENCED"


def test_nothing_can_be_aborted_and_not_committed() -> None:
    producer = Producer()
    assert producer.end("commit").code == "INVALID_TXN_STATE"
    assert producer.end("abort").json["producer_epoch"] == 1
    assert producer.end("abort").json["producer_epoch"] == 2
    assert call("GET", records("orders"), "offset=0").json["next_offset"] == 0


def test_an_end_that_runs_out_of_time_is_decided_and_the_same_request_goes_on(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer()
    producer.produce("a")
    before = producer.pair
    with monkeypatch.context() as patch:
        patch.setattr(service.log, "_timeout_ms", 0)
        answer = producer.end("commit")
        assert (answer.code, answer.json["next_step"]) == ("CONCURRENT_TRANSACTIONS", "retry")
        assert producer.post("end", result="abort").code == "INVALID_TXN_STATE"
        assert init().code == "CONCURRENT_TRANSACTIONS"
        assert producer.shown()["state"] == "PrepareCommit"
        assert producer.shown()["partitions"] == [{"topic": "orders", "partition": 0}]
    producer.pair = before
    assert producer.end("commit").json["producer_epoch"] == 1
    assert values() == ["a"]


# Errors of a producer


def requests(producer: Producer) -> list[Answer]:
    return [
        producer.add(ZERO),
        producer.add_group("g"),
        producer.send_offset("g", 0),
        producer.post("end", result="commit"),
        producer.post("end", result="abort"),
        producer.produce("v"),
        producer.produce_batch(b"v"),
    ]


@pytest.mark.parametrize("id_of", [lambda one: "nobody", lambda one: one.transactional_id])
def test_a_pair_of_another_id_is_no_mapping_in_any_request(id_of: Any) -> None:
    producer = Producer()
    producer.pair = Producer("another").pair
    producer.transactional_id = id_of(producer)
    assert {answer.code for answer in requests(producer)} == {"INVALID_PRODUCER_ID_MAPPING"}


@pytest.mark.parametrize("epoch", [0, 2, 32_767])
@pytest.mark.parametrize("is_ongoing", [False, True])
def test_an_epoch_that_is_not_in_force_is_fenced_in_any_request(epoch: int, is_ongoing: bool) -> None:
    producer = Producer()
    producer.pair = init().json
    if is_ongoing:
        producer.add_group("other")
    producer.pair = {**producer.pair, "producer_epoch": epoch}
    assert {answer.code for answer in requests(producer)} == {"PRODUCER_FENCED"}


def test_past_its_time_out_a_transaction_is_aborted_and_its_producer_fenced(runtime: AheadRuntime) -> None:
    producer = Producer(transaction_timeout_ms=1_000)
    producer.produce("a")
    runtime.ahead_ms += 2_000
    *others, produced, batch = requests(producer)
    assert {answer.code for answer in others} == {"PRODUCER_FENCED"}
    assert {produced.code, batch.code} == {"INVALID_PRODUCER_EPOCH"}  # of the marker, which is in the log
    assert producer.produce("b", partition=1).code == "PRODUCER_FENCED"
    assert producer.shown()["state"] == "CompleteAbort"
    assert values() == []


def test_an_end_may_win_over_a_time_out_that_no_request_has_met(runtime: AheadRuntime) -> None:
    producer = Producer(transaction_timeout_ms=1_000)
    producer.produce("a")
    runtime.ahead_ms += 2_000
    assert producer.end("commit").status == 200
    assert values() == ["a"]


def test_the_last_epoch_is_followed_by_a_new_producer_id(service: wiring.Service) -> None:
    producer = Producer()
    key = keys.transaction_item(ID)
    item = service.items.get([key])[key]
    value = {**item.value, "producer_epoch": 32_766}
    service.items.write([Put(key, value, item.version + 1, item.version)])
    producer.pair = {**producer.pair, "producer_epoch": 32_766}
    assert producer.produce("a").status == 200
    given = producer.end("commit").json
    assert given["producer_epoch"] == 0
    assert given["producer_id"] != item.value["producer_id"]
    assert values() == ["a"]
    assert producer.produce("b").status == 200
    assert producer.end("commit").json == pair(given["producer_id"], 1)
    assert values() == ["a", "b"]
