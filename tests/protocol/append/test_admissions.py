"""Admissions on the real coordinator: what a produce asks of it, and how often (I12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any

import pytest

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.errors import FencelineError
from fenceline.model.transaction import COMPLETE_COMMIT, ONGOING, ProducerPair
from fenceline.transactions.admission import Admissions
from tests.support.claiming import code_of
from tests.support.patience import PATIENCE_S
from tests.support.service import (
    TOPIC,
    Gate,
    Service,
    is_unavailable,
    loses_answer,
    never_arrives,
    partition_of,
    partitions_of,
    serve_in_real_time,
)
from tests.support.transacting import ID, TIMEOUT_MS, Producer, committed, outcomes

ASKED = AskCoordinator(5)


@pytest.fixture
def producer(wide: Service) -> Producer:
    made = Producer(wide, wide.log)
    made.begin()
    return made


def admit(producer: Producer, number: int, admissions: Admissions | None = None, **more: Any) -> CoordinatorAnswer:
    admissions = admissions or producer.log.producing.admissions
    partition = partition_of(producer.log, number)
    until_ms = more.get("until_ms", producer.until_ms)
    return admissions.admit(partition, ID, more.get("pair", producer.pair), ASKED, until_ms)


def test_a_batch_adds_its_partition_and_begins_the_transaction(wide: Service, producer: Producer) -> None:
    producer.send("a", 3)
    found = producer.stored()
    assert (found.state, found.names(wide.topic_id(), 3), found.started_at) == (ONGOING, True, wide.runtime.now_ms())


def test_an_answer_counts_from_before_the_item_was_read(wide: Service, producer: Producer) -> None:
    wide.items.on_call = lambda *_: wide.runtime.advance(1_000)
    before = wide.log.context.instant()
    answer = admit(producer, 0)
    assert (answer.asked.wall_ms, answer.seen) == (before.wall_ms + 1_000, ASKED.seen)  # the topic's id was asked for
    assert wide.runtime.now_ms() == before.wall_ms + 3_000


def test_a_batch_of_an_instance_that_was_fenced_is_refused(wide: Service, producer: Producer) -> None:
    Producer(wide, wide.another()).begin()
    assert code_of(producer.send) == "PRODUCER_FENCED"
    producer.pair = ProducerPair(99, 0)
    assert code_of(producer.send) == "INVALID_PRODUCER_ID_MAPPING"
    assert wide.segments() == []


def test_a_batch_finishes_what_is_prepared_and_enters_the_next_transaction(wide: Service, producer: Producer) -> None:
    """Another process has decided, and died. The producer was given the next epoch by the repeat of its end."""
    producer.send("a")
    wide.objects.always("create", is_unavailable)
    assert code_of(producer.outcome) == "CONCURRENT_TRANSACTIONS"
    wide.objects.always("create", None)
    producer.takes(ProducerPair(producer.pair.producer_id, 1))
    producer.send("b")
    producer.end()
    assert committed(wide) == ["a", "b"]
    assert outcomes(wide) == [("commit", 1), ("commit", 2)]


def test_a_batch_that_meets_its_own_time_out_is_refused_and_its_transaction_is_aborted(
    wide: Service, producer: Producer
) -> None:
    producer.send("a", 0)
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert code_of(lambda: producer.send("b", 1)) == "PRODUCER_FENCED"
    assert outcomes(wide) == [("abort", 1)]
    assert wide.segments(partition=1) == []


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_an_addition_that_was_not_answered_is_made_again(wide: Service, producer: Producer, fault: Any) -> None:
    wide.items.plan("write", fault)
    producer.send("a")
    producer.end()
    assert committed(wide) == ["a"]


def test_an_addition_without_any_answer_has_written_no_record(wide: Service, producer: Producer) -> None:
    """The batch may be sent again: ``retry`` says that no record was written."""
    wide.items.always("write", never_arrives)
    assert code_of(producer.send) == "STORE_UNAVAILABLE"
    assert wide.segments() == []


# Several at once


@pytest.fixture
def live() -> Iterator[Producer]:
    """Return a producer with the machine's clocks, over a topic of 40 partitions."""
    service = serve_in_real_time(timeout_ms=300_000)
    service.log.topics.create(TOPIC, partitions=40)
    made = Producer(service, service.log)
    made.begin()
    yield made
    service.close()


class Waiting:
    """Admissions in threads, of which the first is stopped before its write until all others wait for it."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        self.admissions = Admissions(partitions_of(producer.log), producer.log.producing._producer_ids.take)
        for number in range(40):
            partition_of(producer.log, number)
        self.gate = Gate()
        producer.service.items.plan("write", self.gate)

    def outcomes(self, numbers: range, *, others_wait_ms: int | None = None) -> list[str]:
        """Return what each admission is answered: ``ok``, or the code of the refusal."""
        now_ms = self.producer.service.runtime.monotonic_ms

        def outcome(number: int) -> str:
            more = {}
            if others_wait_ms is not None and number != numbers[0]:
                more = {"until_ms": now_ms() + others_wait_ms}
            try:
                admit(self.producer, number, self.admissions, **more)
            except FencelineError as error:
                return error.code
            return "ok"

        with ThreadPoolExecutor(len(numbers)) as pool:
            first = pool.submit(outcome, numbers[0])
            assert self.gate.reached.wait(PATIENCE_S)
            others: list[Future[str]] = [pool.submit(outcome, number) for number in numbers[1:]]
            (line,) = self.admissions._lines.values()
            while len(line.waiting) < len(others) and others_wait_ms is None:
                self.producer.service.runtime.sleep_ms(1)
            if others_wait_ms is not None:
                wait(others, PATIENCE_S)
            self.gate.opened.set()
            return [one.result(PATIENCE_S) for one in (first, *others)]


def test_admissions_that_wait_for_one_transaction_go_in_one_write(live: Producer) -> None:
    waiting = Waiting(live)
    live.service.items.calls.clear()
    assert waiting.outcomes(range(12)) == ["ok"] * 12
    assert live.service.items.calls["write"] == 2  # the first one's, and the one for all that waited meanwhile
    (found,) = live.stored().partitions
    assert found.partitions == tuple(range(12))
    assert waiting.admissions._lines == {}


def test_a_partition_beyond_the_limit_takes_no_other_with_it(live: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_PARTITIONS_MAX", 4)
    answers = Waiting(live).outcomes(range(6))
    assert answers[0] == "ok"
    assert sorted(answers[1:]) == ["INVALID_REQUEST"] * 2 + ["ok"] * 3


def test_batches_waiting_for_a_transaction_that_is_fenced_are_refused(live: Producer) -> None:
    waiting = Waiting(live)
    service, gate = live.service, waiting.gate
    service.items._planned["write"].clear()

    def fenced(call: Callable[[], Any]) -> Any:
        gate.reached.set()
        assert gate.opened.wait(PATIENCE_S)
        Producer(service, service.another()).begin()
        return call()

    service.items.plan("write", fenced)
    assert waiting.outcomes(range(4)) == ["PRODUCER_FENCED"] * 4


def test_an_admission_waits_for_the_leading_one_no_longer_than_its_request(live: Producer) -> None:
    waiting = Waiting(live)
    assert waiting.outcomes(range(3), others_wait_ms=5) == ["ok", "CONTENDED", "CONTENDED"]
    assert admit(live, 1, waiting.admissions).seen == ASKED.seen


def test_an_admission_that_was_led_by_another_before_it_waits_has_its_outcome(live: Producer) -> None:
    """Between its place in the line and its wait another one leads, for both, and leaves no line."""
    admissions = live.log.producing.admissions
    must_lead, led = admissions._must_lead, list[int]()

    def slow(line: Any, mine: Any, until_ms: int) -> bool:
        if not led:
            led.append(1)
            admit(live, 1, admissions)
        return must_lead(line, mine, until_ms)

    admissions.__dict__["_must_lead"] = slow
    assert admit(live, 0, admissions).seen == ASKED.seen
    (found,) = live.stored().partitions
    assert found.partitions == (0, 1)


def test_batches_to_many_partitions_at_once_are_all_committed(live: Producer) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: live.send("a", number), range(16)))
    live.end()
    assert live.stored().state == COMPLETE_COMMIT
    assert [committed(live.service, number) for number in range(16)] == [["a"]] * 16
