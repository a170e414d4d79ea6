"""Looks at transactions, what ends them unasked, what hangs, through the handlers (contract, "Looks", "Time-outs")."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.ports import Delete
from fenceline.service import transactions
from fenceline.transactions.item import TransactionItem
from fenceline_http import responses, wiring
from tests.support.http_events import Answer, call
from tests.support.http_transactions import ID, Producer, read, records, values
from tests.support.runtime import AheadRuntime

STATES = "/v1/topics/orders/partitions/0/producer-states"
ABORT = "/v1/topics/orders/partitions/0/abort-transaction"


@pytest.fixture
def runtime() -> AheadRuntime:
    return AheadRuntime()


@pytest.fixture(autouse=True)
def _topic(topic: str) -> None:
    """Two partitions of `orders`."""


def listed(**query: Any) -> list[str]:
    """Return the ids of all pages."""
    page = call("GET", "/v1/transactions", query).json
    found = [one["transactional_id"] for one in page["transactions"]]
    while page["has_more"]:
        page = call("GET", "/v1/transactions", {**query, "start_after": found[-1]}).json
        found += [one["transactional_id"] for one in page["transactions"]]
        assert len(found) < 1_000, "a page that leads nowhere"
    return found


def test_a_list_that_looked_at_as_many_as_it_may_says_where_to_go_on(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many ids few have a transaction: a page may have none, and the next one goes on behind what was looked at."""
    monkeypatch.setattr(transactions, "Reads", partial(transactions.Reads, items_max=1))
    for n in range(400):
        service.items.write([TransactionItem(f"id-{n:03d}", n, 0).put(service.log.context.runtime)])
    Producer("id-999").add(("orders", 0))
    pages: list[dict[str, Any]] = []
    while not pages or pages[-1]["has_more"]:
        place = {"start_after": pages[-1]["go_on_after"]} if pages else {}
        pages.append(call("GET", "/v1/transactions", {"state": "Ongoing", "limit": 1, **place}).json)
    assert [one["transactional_id"] for page in pages for one in page["transactions"]] == ["id-999"]
    assert (len(pages) > 2, pages[0]["transactions"]) == (True, [])
    assert "go_on_after" not in pages[-1]


# One transaction


def test_a_transaction_is_shown_in_each_of_its_states() -> None:
    producer = Producer(transaction_timeout_ms=5_000)
    empty = {
        "transactional_id": ID,
        "state": "Empty",
        **producer.pair,
        "transaction_timeout_ms": 5_000,
        "started_at": None,
        "partitions": [],
        "groups": [],
    }
    assert producer.shown() == empty
    producer.add(("orders", 1), ("orders", 0))
    producer.add_group("g")
    shown = producer.shown()
    assert isinstance(shown.pop("started_at"), int)
    places = [{"topic": "orders", "partition": 0}, {"topic": "orders", "partition": 1}]
    assert shown == {**shown, **producer.pair, "state": "Ongoing", "partitions": places, "groups": ["g"]}
    producer.end("commit")
    assert producer.shown() == {**empty, **producer.pair, "state": "CompleteCommit"}
    producer.add_group("g")
    producer.end("abort")
    assert producer.shown() == {**empty, **producer.pair, "state": "CompleteAbort"}


def test_an_unknown_transactional_id_is_not_found() -> None:
    answer = call("GET", "/v1/transactions/nobody")
    assert (answer.status, answer.code) == (404, "TRANSACTIONAL_ID_NOT_FOUND")
    assert "ask for a producer id with it" in answer.json["detail"]


def test_a_get_of_one_transaction_ends_it_after_its_time_out_and_a_list_does_not(
    runtime: AheadRuntime,
) -> None:
    producer = Producer(transaction_timeout_ms=1_000)
    producer.produce("a")
    runtime.ahead_ms += 2_000
    assert listed(state="Ongoing") == [ID]
    assert producer.shown()["state"] == "CompleteAbort"
    assert listed(state="Ongoing") == []


# Lists


def test_transactions_are_listed_by_their_ids_in_byte_order_in_pages_of_any_size() -> None:
    names = ["b", "a", "B", "é", "𝄞", "a/".replace("/", "0"), "~", "﹏", *(f"n-{one}" for one in range(20))]
    for name in names:
        Producer(name)
    expected = sorted(names, key=str.encode)
    for limit in (1, 3, 27, 28, 29, 1_000):
        assert listed(limit=limit) == expected
    assert listed(start_after="n-9") == [name for name in expected if name.encode() > b"n-9"]
    assert listed(start_after="\U0010ffff" * 5_000) == []
    assert listed(start_after="n-1" + "0" * 5_000) == listed(start_after="n-10")


def test_transactions_are_listed_by_state_producer_id_and_duration(
    runtime: AheadRuntime,
) -> None:
    empty, ongoing, complete = (Producer(name) for name in ("empty", "ongoing", "complete"))
    ongoing.add(("orders", 0))
    complete.end("abort")
    assert listed() == ["complete", "empty", "ongoing"]
    assert listed(state="Empty") == ["empty"]
    assert listed(state="Ongoing") == ["ongoing"]
    assert listed(state="CompleteAbort") == ["complete"]
    assert listed(state="Dead") == listed(state="PrepareCommit") == []
    assert listed(producer_id=empty.pair["producer_id"]) == ["empty"]
    assert listed(producer_id=empty.pair["producer_id"], state="Ongoing") == []
    assert listed(producer_id=2**63 - 1) == []
    assert listed(longer_than_ms=50_000) == []
    runtime.ahead_ms += 30_000
    assert listed(longer_than_ms=10_000) == ["ongoing"]
    assert listed(longer_than_ms=10_000, state="Empty") == []
    assert listed(longer_than_ms=2**63 - 1) == []


def test_a_page_of_transactions_passes_the_gateway_and_the_pages_are_the_whole_list(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in "abcde":
        Producer(name).add(("orders", 0), ("orders", 1))
    monkeypatch.setattr(responses, "LIST_BYTES_MAX", 500)
    page = call("GET", "/v1/transactions").json
    assert page["has_more"] is True
    assert 1 <= len(page["transactions"]) < 5
    assert listed() == [*"abcde"]


# Producers of a partition


def test_a_partition_shows_what_it_knows_of_its_producers() -> None:
    producer = Producer()
    assert call("GET", STATES).json == {"producers": [], "has_more": False}
    producer.produce("a", "b")
    [state] = call("GET", STATES).json["producers"]
    assert state.pop("last_timestamp") > 0
    assert state == {**producer.pair, "last_sequence": 1, "current_txn_start_offset": 0}
    producer.end("commit")
    [state] = call("GET", STATES).json["producers"]
    assert (state["last_sequence"], state["current_txn_start_offset"]) == (-1, -1)
    assert state["producer_epoch"] == producer.pair["producer_epoch"]
    assert call("GET", "/v1/topics/orders/partitions/2/producer-states").code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_producers_of_a_partition_come_in_pages_by_their_ids() -> None:
    for producer_id in (9, 3, 2**63 - 1, 0, 5):
        body = {
            "records": [{"value": "v"}],
            "producer": {"producer_id": producer_id, "producer_epoch": 0, "sequence": 0},
        }
        assert call("POST", records("orders"), value=body).status == 200
    whole = call("GET", STATES).json["producers"]
    assert [one["producer_id"] for one in whole] == [0, 3, 5, 9, 2**63 - 1]
    for limit in (1, 2, 4, 5):
        page = call("GET", STATES, {"limit": limit}).json
        found = page["producers"]
        while page["has_more"]:
            assert len(page["producers"]) == limit
            page = call("GET", STATES, {"limit": limit, "start_after": found[-1]["producer_id"]}).json
            found += page["producers"]
        assert found == whole
    assert call("GET", STATES, {"start_after": 5, "limit": 10**30}).json["producers"] == whole[3:]


# What ends them unasked


def test_a_read_of_what_is_committed_ends_the_transaction_that_holds_it_up(runtime: AheadRuntime) -> None:
    producer = Producer(transaction_timeout_ms=1_000)
    producer.produce("lost")
    call("POST", records("orders"), value={"records": [{"value": "behind"}]})
    assert values() == []
    runtime.ahead_ms += 3_000
    assert values() == ["behind"]
    assert producer.end("commit").code == "PRODUCER_FENCED"


def test_a_look_at_stable_offsets_ends_the_transaction_that_they_wait_for(runtime: AheadRuntime) -> None:
    call("POST", records("orders"), value={"records": [{"value": "v"}]})
    producer = Producer(transaction_timeout_ms=1_000)
    producer.add_group("g")
    assert producer.send_offset("g", 1).status == 200
    path = "/v1/groups/g/offsets"
    assert call("GET", path, "require_stable=true").code == "UNSTABLE_OFFSET_COMMIT"
    runtime.ahead_ms += 3_000
    assert call("GET", path, "require_stable=true").json == {"offsets": [], "has_more": False}


# Reads


def test_a_page_under_read_committed_ends_at_the_last_stable_offset() -> None:
    call("POST", records("orders"), value={"records": [{"value": "first"}]})
    producer = Producer()
    producer.produce("open")
    call("POST", records("orders"), value={"records": [{"value": "behind"}]})
    page = read()
    assert [one["value"] for one in page["records"]] == ["first"]
    assert (page["position"], page["last_stable_offset"], page["next_offset"]) == (1, 1, 3)
    for offset in (1, 2, 3):
        page = read(offset=offset)
        assert (page["records"], page["position"]) == ([], offset)
    tail = {"isolation": "read_committed", "tail_offset": 1}
    assert [one["value"] for one in call("GET", records("orders"), tail).json["records"]] == ["first"]
    later = {"isolation": "read_committed", "timestamp": 2**62}
    assert call("GET", records("orders"), later).json["position"] == 1
    assert call("GET", "/v1/topics/orders/partitions/0/offsets").json["last_stable_offset"] == 1
    producer.end("commit")
    assert values() == ["first", "open", "behind"]


def test_segments_name_the_aborted_transactions_that_a_direct_reader_skips() -> None:
    producer = Producer()
    producer.produce("a")
    producer.produce("b")
    producer_id = producer.pair["producer_id"]
    producer.end("abort")
    found = call("GET", "/v1/topics/orders/partitions/0/segments").json
    aborted = [one for segment in found["segments"] for one in segment["aborted"]]
    assert {(one["producer_id"], one["first_offset"]) for one in aborted} == {(producer_id, 0)}
    assert {one["last_offset"] >= 1 for one in aborted} == {True}


def test_a_subscription_at_latest_begins_where_what_is_open_may_still_commit() -> None:
    producer = Producer()
    producer.produce("open")
    path = "/v1/topics/orders/subscriptions/s"
    made = call("PUT", path).json
    assert made["partitions"][0]["mark_delete_offset"] == 0
    reading = f"{path}/records"
    assert call("GET", reading, "isolation=read_committed").json["records"] == []
    producer.end("commit")
    found = call("GET", reading, "isolation=read_committed").json["records"]
    assert [one["value"] for one in found] == ["open"]


# Hanging ones


def abort(**pair: int) -> Answer:
    return call("POST", ABORT, value=pair)


def test_nothing_that_a_coordinator_will_end_is_aborted_by_hand() -> None:
    producer = Producer()
    assert abort(**producer.pair).code == "INVALID_TXN_STATE"
    producer.produce("a")
    assert abort(**producer.pair).code == "INVALID_TXN_STATE"
    assert abort(**{**producer.pair, "producer_epoch": 1}).code == "INVALID_TXN_STATE"
    assert abort(**{**producer.pair, "producer_id": 2**63 - 1}).code == "INVALID_TXN_STATE"
    pair = producer.pair
    producer.end("commit")
    assert abort(**pair).code == "INVALID_TXN_STATE"
    assert values() == ["a"]


def test_a_hanging_transaction_is_aborted_by_hand(service: wiring.Service) -> None:
    producer = Producer()
    producer.produce("torn")
    call("POST", records("orders"), value={"records": [{"value": "behind"}]})
    for key in (keys.transaction_item(ID), keys.transactional_id_item(producer.pair["producer_id"])):
        service.items.write([Delete(key, service.items.get([key])[key].version)])
    assert values() == []
    answer = abort(**producer.pair)
    assert (answer.status, answer.body) == (204, b"")
    assert values() == ["behind"]
    assert abort(**producer.pair).code == "INVALID_TXN_STATE"


# What is open in a topic's partitions

OPEN = "/v1/topics/orders/open-transactions"


def test_what_holds_the_last_stable_offset_is_listed(service: wiring.Service) -> None:
    assert call("GET", OPEN).json == {"transactions": [], "has_more": False}
    producer = Producer()
    call("POST", records("orders", 1), value={"records": [{"value": "plain"}]})
    producer.produce("open", partition=1)
    (one,) = call("GET", OPEN).json["transactions"]
    offsets = call("GET", "/v1/topics/orders/offsets").json["partitions"][1]
    assert one["since"] > 0
    assert one == {
        "partition": 1,
        **producer.pair,
        "start_offset": offsets["last_stable_offset"],
        "since": one["since"],
        "transactional_id": ID,
        "is_hanging": False,
    }
    key = keys.transaction_item(ID)
    known = keys.transactional_id_item(producer.pair["producer_id"])
    for gone, shown in ((key, ID), (known, None)):
        service.items.write([Delete(gone, service.items.get([gone])[gone].version)])
        (hangs,) = call("GET", OPEN).json["transactions"]
        assert hangs == {**one, "transactional_id": shown, "is_hanging": True}


def test_open_transactions_come_in_pages_of_partitions() -> None:
    producer = Producer()
    producer.produce("a")
    producer.produce("b", partition=1)
    page = call("GET", OPEN, {"limit": 1}).json
    assert ([one["partition"] for one in page["transactions"]], page["has_more"], page["next_partition"]) == (
        [0],
        True,
        1,
    )
    page = call("GET", OPEN, {"limit": 1, "start_partition": 1}).json
    assert ([one["partition"] for one in page["transactions"]], page["has_more"]) == ([1], False)
    assert "next_partition" not in page
    assert call("GET", OPEN, {"start_partition": 2**31}).json == {"transactions": [], "has_more": False}
    producer.end("abort")
    assert call("GET", OPEN).json["transactions"] == []


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": -1}, "limit"),
        ({"limit": "all"}, "limit"),
        ({"limit": 101}, None),
        ({"start_partition": -1}, "start_partition"),
        ({"start_partition": "first"}, "start_partition"),
        ({"start_partition": 2**63}, "start_partition"),
        ({"partition": 0}, "partition"),
    ],
)
def test_a_list_of_open_transactions_refuses_what_it_cannot_answer(query: dict[str, Any], field: str | None) -> None:
    answer = call("GET", OPEN, query)
    assert answer.json.get("field") == field
    assert answer.status == (200 if field is None else 400)


@pytest.mark.parametrize("name", ["none", "a b", "%00"])
def test_open_transactions_of_an_unknown_topic_are_refused(name: str) -> None:
    assert call("GET", f"/v1/topics/{name}/open-transactions").code == "UNKNOWN_TOPIC_OR_PARTITION"
