"""Stores that fail beneath requests of transactions: each answer is a documented one, and the same request goes on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.ports import Conflict, ItemTooLarge, NoAnswer, Unavailable, VersionMoved
from fenceline_http import wiring
from tests.support.http_events import Answer, call
from tests.support.http_transactions import ID, Producer, init, records, values
from tests.support.runtime import AheadRuntime

KEY = keys.transaction_item(ID)
READS: dict[str, Callable[[Producer], Answer]] = {
    "show": lambda _: call("GET", f"/v1/transactions/{ID}"),
    "list": lambda _: call("GET", "/v1/transactions"),
    "producer-states": lambda _: call("GET", "/v1/topics/orders/partitions/0/producer-states"),
}
WRITES: dict[str, Callable[[Producer], Answer]] = {
    "init": lambda _: init(),
    "init with a pair": lambda producer: init(**producer.pair),
    "partitions": lambda producer: producer.add(("orders", 0), ("orders", 1)),
    "groups": lambda producer: producer.add_group("another"),
    "offsets": lambda producer: producer.send_offset("g", 0),
    "commit": lambda producer: producer.end("commit"),
    "abort": lambda producer: producer.end("abort"),
    "produce": lambda producer: producer.produce("v", partition=1),
    "abort-transaction": lambda producer: call(
        "POST", "/v1/topics/orders/partitions/0/abort-transaction", value=producer.pair
    ),
}
STEPS = {"STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN", "CONCURRENT_TRANSACTIONS", "THROTTLED"}


@pytest.fixture
def runtime() -> AheadRuntime:
    return AheadRuntime()


@pytest.fixture
def producer(topic: str) -> Producer:
    """A producer with an open transaction: a batch in partition 0, and a group."""
    made = Producer()
    assert made.produce("before").status == 200
    assert made.add_group("g").status == 204
    return made


def kind(fact: Exception) -> str:
    return type(fact).__name__


def fails(fact: Exception) -> Callable[..., Any]:
    def call_of_a_store(*_: Any, **__: Any) -> Any:
        raise fact

    return call_of_a_store


@pytest.mark.parametrize("method", ["get", "query"])
@pytest.mark.parametrize("name", [*READS, *WRITES])
def test_an_item_store_that_cannot_be_read_is_a_documented_answer(
    service: wiring.Service, producer: Producer, name: str, method: str
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.items, method, fails(Unavailable("down")))
        answer = {**READS, **WRITES}[name](producer)
    assert answer.status < 500 or answer.code in STEPS


@pytest.mark.parametrize(
    "fact",
    [Unavailable("down"), NoAnswer("late"), VersionMoved(KEY), ItemTooLarge(KEY)],
    ids=lambda one: type(one).__name__,
)
@pytest.mark.parametrize("name", WRITES)
def test_an_item_store_that_takes_no_write_is_a_documented_answer_and_the_same_request_goes_on(
    service: wiring.Service, producer: Producer, name: str, fact: Exception
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.items, "write", fails(fact))
        answer = WRITES[name](producer)
    assert answer.status < 300 or answer.code in {*STEPS, "INVALID_TXN_STATE"}
    assert WRITES[name](producer).status < 300 or name == "abort-transaction"


@pytest.mark.parametrize(
    "fact", [Unavailable("down"), NoAnswer("late"), Conflict("race")], ids=lambda one: type(one).__name__
)
@pytest.mark.parametrize("name", WRITES)
def test_an_object_store_that_takes_no_object_is_a_documented_answer_and_the_same_request_goes_on(
    service: wiring.Service, producer: Producer, name: str, fact: Exception
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.objects, "create", fails(fact))
        answer = WRITES[name](producer)
    assert answer.status < 300 or answer.code in {*STEPS, "INVALID_TXN_STATE"}
    if name in ("commit", "abort", "init", "init with a pair"):
        assert answer.code == "CONCURRENT_TRANSACTIONS"  # it is decided, and the markers are missing
        assert producer.shown()["state"].startswith("Complete")
    assert WRITES[name](producer).status < 300 or name in ("abort-transaction", "init with a pair")


def test_a_decision_whose_answer_was_lost_is_answered_by_the_same_request(
    service: wiring.Service, producer: Producer
) -> None:
    """The write is made, and no answer comes: the item is read again, and says so."""
    write = service.items.write
    lost = []

    def write_and_lose(changes: Any) -> Any:
        write(changes)
        if not lost and any(one.key == KEY for one in changes):
            lost.append(KEY)
            raise NoAnswer("late")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.items, "write", write_and_lose)
        before = producer.pair
        assert producer.end("commit").json["producer_epoch"] == before["producer_epoch"] + 1
    assert lost
    assert values() == ["before"]


def test_a_damaged_partition_keeps_its_transaction_prepared_and_every_answer_says_stop(
    service: wiring.Service, producer: Producer
) -> None:
    """What was decided stays so, and is finished once the object is restored."""
    call("POST", records("orders"), value={"records": [{"value": "behind"}]})
    damaged = service.objects.list("log/", limit=1_000)[-1].key
    get = service.objects.get

    def get_damaged(key: str, *more: Any) -> Any:
        found = get(key, *more)
        return replace(found, body=found.body[:-1] + b"?") if key == damaged else found

    def another() -> wiring.Service:
        """Return a service that remembers nothing."""
        log = wiring.log_of(service.settings, service.objects, service.items, AheadRuntime())
        return replace(service, log=log)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(service.objects, "get", get_damaged)
        patch.setattr(wiring, "service", another)
        answer = producer.post("end", result="commit")
        assert (answer.status, answer.code, answer.json["next_step"]) == (500, "CORRUPT_LOG", "stop")
        assert producer.shown()["state"] == "PrepareCommit"
    assert producer.end("commit").status == 200
    assert values() == ["before", "behind"]
