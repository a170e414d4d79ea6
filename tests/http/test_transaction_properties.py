"""Any requests of transactions in any order: each answer is documented, none is a 500, and nothing is left open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline_http import wiring
from tests.http.conftest import service_in_memory
from tests.support.http_events import Answer, call
from tests.support.http_transactions import Producer, init, records
from tests.support.runtime import AheadRuntime

IDS = ("a", "b")
OPEN_FOR = {"transaction_timeout_ms": 5_000}


def partition_of(number: int, what: str) -> str:
    return f"/v1/topics/orders/partitions/{number}/{what}"


def plain(producer: Producer, number: int) -> Answer:
    batch = {"records": [{"value": "v"}], "producer": {**producer.pair, "sequence": 0}}
    return call("POST", records("orders", number), value=batch)


ACTS: dict[str, Callable[[Producer, int], Answer]] = {
    "init": lambda producer, _: init(producer.transactional_id, **OPEN_FOR),
    "keep": lambda producer, _: init(producer.transactional_id, **OPEN_FOR, **producer.pair),
    "add": lambda producer, number: producer.add(("orders", number)),
    "unknown": lambda producer, number: producer.add(("orders", number), ("orders", 2)),
    "group": lambda producer, _: producer.add_group("g"),
    "offsets": lambda producer, number: producer.send_offset("g", 0, partition=number),
    "commit": lambda producer, _: producer.end("commit"),
    "abort": lambda producer, _: producer.end("abort"),
    "produce": lambda producer, number: producer.produce("v", partition=number),
    "plain": plain,
    "read": lambda _, number: call("GET", records("orders", number), "tail_offset=5&isolation=read_committed"),
    "stable": lambda *_: call("GET", "/v1/groups/g/offsets", "require_stable=true"),
    "show": lambda producer, _: call("GET", f"/v1/transactions/{producer.transactional_id}"),
    "list": lambda *_: call("GET", "/v1/transactions", "longer_than_ms=1"),
    "states": lambda _, number: call("GET", partition_of(number, "producer-states")),
    "by hand": lambda producer, number: call("POST", partition_of(number, "abort-transaction"), value=producer.pair),
    "trim": lambda _, number: call("POST", partition_of(number, "trim"), value={"before_offset": 1}),
}
STEPS = st.lists(
    st.tuples(
        st.sampled_from([*ACTS, "produce", "wait"]),
        st.sampled_from((0, 1)),  # the id
        st.sampled_from((0, 1)),  # the partition
        st.sampled_from((0, 0, 0, 0, -1, 1)),  # what the request's epoch is ahead of the producer's
    ),
    max_size=40,
)


@given(steps=STEPS)
def test_any_requests_in_any_order_are_answered_as_documented_and_what_is_open_ends(
    steps: list[tuple[str, int, int, int]],
) -> None:
    runtime = AheadRuntime()
    service = service_in_memory(runtime)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "service", lambda: service)
        call("POST", "/v1/topics", value={"name": "orders", "partitions": 2})
        producers = [Producer(one, **OPEN_FOR) for one in IDS]
        for what, which, number, ahead in steps:
            if what == "wait":
                runtime.ahead_ms += 3_000
                continue
            producer = producers[which]
            before = producer.pair
            producer.pair = {**before, "producer_epoch": max(before["producer_epoch"] + ahead, 0)}
            sent = producer.pair
            answer = ACTS[what](producer, number)
            if producer.pair is sent:
                producer.pair = before
            assert answer.status < 500  # that it is documented, and how it looks, is judged for each answer
            if what in ("init", "keep") and answer.status == 200:
                producer.pair = answer.json
                producer._sequences.clear()
        for one in IDS:
            init(one)
        for number in (0, 1):
            bounds = call("GET", partition_of(number, "offsets")).json
            assert bounds["last_stable_offset"] == bounds["next_offset"]
        assert call("GET", "/v1/groups/g/offsets", "require_stable=true").status == 200
        service.close()
