"""Transactions whose writes are lost, whose finishers die, freeze and race: one write decides (I10, I12).

At each call of a request its process dies, or loses the answer, or sleeps while others act. The outcome is one, each
partition has one marker, and no marker comes after one of a later transaction.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING
from fenceline.ports import Delete
from fenceline.service.log import Log
from fenceline.transactions.finish import finish
from tests.support.claiming import code_of
from tests.support.service import (
    TOPIC,
    Fault,
    Service,
    is_unavailable,
    loses_answer,
    lost_behind,
    never_arrives,
    serve,
    slept_before,
)
from tests.support.transacting import (
    TIMEOUT_MS,
    Producer,
    appenders_of,
    carried_out,
    committed,
    opened,
    outcomes,
)

PARTITIONS = (0, 1, 2)  # the last one has no data


class Died(BaseException):
    """The end of a process, in the middle of a call."""


def dies(call: Callable[[], Any]) -> Any:
    raise Died


def dies_behind(call: Callable[[], Any]) -> Any:
    call()
    raise Died


def passes(call: Callable[[], Any]) -> Any:
    return call()


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer with an ongoing transaction: two partitions have data, a third one is only named."""
    return ongoing(wide, wide.another())


def ongoing(service: Service, log: Log) -> Producer:
    made = Producer(service, log)
    made.begin()
    made.add(*PARTITIONS)
    made.send("a", 0)
    made.send("a", 1)
    return made


def twin(producer: Producer, log: Log | None = None) -> Producer:
    """Return the same producer, served by another process: its requests are the same requests."""
    return Producer(producer.service, log or producer.service.another(), pair=producer.pair)


def check_one_outcome(service: Service, outcome: str, epoch: int) -> None:
    for partition in PARTITIONS:
        assert outcomes(service, partition) == [(outcome, epoch)]
        assert opened(service, partition) == []


# The decision


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decision_that_was_not_answered_is_read_again(
    wide: Service, producer: Producer, fault: Fault, is_commit: bool
) -> None:
    wide.items.plan("write", fault)
    producer.end(is_commit=is_commit)
    check_one_outcome(wide, "commit" if is_commit else "abort", 1)


def test_a_decision_of_the_repeat_is_as_good_as_the_own(wide: Service, producer: Producer) -> None:
    other = twin(producer)
    answers: list[Any] = []
    wide.items.plan("write", slept_before(lambda: answers.append(other.outcome())))
    assert producer.outcome() == answers[0]
    check_one_outcome(wide, "commit", 1)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_decision_that_cannot_be_read_again_is_unknown_and_the_same_request_is_right(
    wide: Service, producer: Producer, fault: Fault
) -> None:
    wide.items.plan("write", fault)
    wide.items.plan("get", passes, *[is_unavailable] * 11)
    assert code_of(producer.outcome) == "OUTCOME_UNKNOWN"
    producer.end()
    check_one_outcome(wide, "commit", 1)


def test_an_end_that_may_have_been_carried_out_is_never_reported_as_refused(wide: Service, producer: Producer) -> None:
    second = Producer(wide, wide.another())
    wide.items.plan("write", lost_behind(second.begin))
    assert code_of(producer.outcome) == "OUTCOME_UNKNOWN"
    assert code_of(producer.outcome) == "PRODUCER_FENCED"
    check_one_outcome(wide, "commit", 1)
    assert committed(wide) == ["a"]


def test_an_id_request_that_is_faster_than_the_end_aborts_it(wide: Service, producer: Producer) -> None:
    second = Producer(wide, wide.another())
    wide.items.plan("write", slept_before(second.begin))
    assert code_of(producer.outcome) == "PRODUCER_FENCED"
    check_one_outcome(wide, "abort", 1)


def test_an_end_that_is_faster_than_the_id_request_stands(wide: Service, producer: Producer) -> None:
    second = Producer(wide, wide.another())
    wide.items.plan("write", slept_before(producer.end))
    assert second.begin().producer_epoch == 2
    check_one_outcome(wide, "commit", 1)


def test_an_end_that_is_faster_than_the_time_out_stands(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.items.plan("write", slept_before(producer.end))
    assert twin(producer).get().state == COMPLETE_COMMIT
    check_one_outcome(wide, "commit", 1)


def test_a_time_out_that_is_faster_than_the_end_stands(wide: Service, producer: Producer) -> None:
    other = twin(producer)
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.items.plan("write", slept_before(carried_out(other.get)))
    assert code_of(producer.outcome) == "PRODUCER_FENCED"
    check_one_outcome(wide, "abort", 1)


@pytest.mark.parametrize("ahead_ms", [TIMEOUT_MS + 10_000, 10 * TIMEOUT_MS])
def test_a_clock_that_is_ahead_only_tries_earlier(wide: Service, producer: Producer, ahead_ms: int) -> None:
    """I9: it may abort what is ongoing, and never what is decided."""
    producer.end()
    wide.runtime.wall_ms += ahead_ms
    assert twin(producer).get().state == COMPLETE_COMMIT
    check_one_outcome(wide, "commit", 1)


# Ids


def test_a_lost_answer_costs_an_epoch_and_none_where_the_pair_is_named(wide: Service) -> None:
    producer = Producer(wide, wide.log)
    wide.items.plan("write", passes, loses_answer)  # the first one allocates producer ids
    assert producer.begin().producer_epoch == 1
    wide.items.plan("write", loses_answer)
    assert producer.begin(keeps=True).producer_epoch == 2
    wide.items.plan("write", loses_answer)
    assert producer.begin().producer_epoch == 4
    wide.items.plan("write", never_arrives)
    assert producer.begin().producer_epoch == 5


def test_a_producer_that_was_fenced_behind_a_lost_answer_hears_so(wide: Service, producer: Producer) -> None:
    """Its refusal is final: the pair that it may have been given is no longer in force."""
    producer.end()
    second = Producer(wide, wide.another())
    wide.items.plan("write", lost_behind(second.begin))
    assert code_of(lambda: producer.begin(keeps=True)) == "PRODUCER_FENCED"


# Additions


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_an_addition_that_was_not_answered_is_made_once(wide: Service, producer: Producer, fault: Fault) -> None:
    producer.places(5)
    wide.items.plan("write", fault)
    producer.add(5)
    assert producer.stored().names(wide.topic_id(), 5)


def test_an_addition_that_was_fenced_behind_its_lost_answer_is_refused(wide: Service, producer: Producer) -> None:
    """It wrote no record, and the partition that it may have added is part of what was aborted."""
    second = Producer(wide, wide.another())
    wide.items.plan("write", lost_behind(second.begin))
    assert code_of(lambda: producer.add(5)) == "PRODUCER_FENCED"
    assert outcomes(wide, 5) == [("abort", 1)]


def test_additions_beside_each_other_are_all_kept(wide: Service, producer: Producer) -> None:
    others = [twin(producer) for _ in range(3)]
    wide.items.plan("write", *[slept_before(lambda o=o, n=n: o.add(10 + n)) for n, o in enumerate(others)])  # type: ignore[misc]
    producer.add(20)
    (found,) = producer.stored().partitions
    assert found.partitions == (0, 1, 2, 10, 11, 12, 20)


# Deaths, call by call


def finished_by_others(producer: Producer, end: Callable[[Producer], object]) -> bool:
    """Let a process end the transaction; return False if it dies."""
    try:
        end(producer)
    except Died:
        return False
    return True


WRITES, CREATES, READS = ("items", "write"), ("objects", "create"), ("items", "get")
CALLS = [
    *((call, fault) for call in (WRITES, CREATES) for fault in (dies, dies_behind, loses_answer, never_arrives)),
    (READS, dies),
]


def call_by_call(call: tuple[str, str], fault: Fault, request: Callable[[Producer], object]) -> Iterator[Producer]:
    """Yield the producer of one service after another: the first such call of the request fails, then the second, …"""
    store, operation = call
    for number in itertools.count():
        with closing(serve()) as service:
            service.log.topics.create(TOPIC, partitions=len(PARTITIONS))
            producer = ongoing(service, service.another())
            watched = getattr(service, store)
            watched.plan(operation, *[passes] * number, fault)
            with suppress(Died):
                request(producer)
            if watched._planned[operation]:
                assert number > 1  # the request makes no further such call
                return
            yield producer


@pytest.mark.parametrize(("call", "fault"), CALLS)
def test_whatever_becomes_of_one_call_of_an_end_the_same_request_completes_it(
    call: tuple[str, str], fault: Fault
) -> None:
    for producer in call_by_call(call, fault, Producer.outcome):
        assert twin(producer).outcome() == (producer.pair.producer_id, 1)
        check_one_outcome(producer.service, "commit", 1)
        assert producer.stored().state == COMPLETE_COMMIT


@pytest.mark.parametrize(("call", "fault"), CALLS)
def test_whatever_becomes_of_one_call_of_an_id_request_the_next_one_completes_it(
    call: tuple[str, str], fault: Fault
) -> None:
    for producer in call_by_call(call, fault, Producer.begin):
        second = Producer(producer.service, producer.service.another())
        assert second.begin().producer_epoch in (2, 3, 4)
        check_one_outcome(producer.service, "abort", 1)


# Finishers


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("ends_next", [True, False])
def test_a_finisher_that_thaws_in_the_next_transaction_adds_no_marker(
    wide: Service, producer: Producer, number: int, ends_next: bool
) -> None:
    """It sleeps before its create in one partition. Meanwhile another finishes, and the next transaction is there."""
    other = twin(producer)

    def next_transaction() -> None:
        other.end()
        for partition in PARTITIONS:
            other.send("b", partition)
        if ends_next:
            other.end(is_commit=False)

    wide.objects.plan("create", *[passes] * number, slept_before(next_transaction))
    assert producer.outcome() == (producer.pair.producer_id, 1)
    expected = [("commit", 1), ("abort", 2)] if ends_next else [("commit", 1)]
    for partition in PARTITIONS:
        assert outcomes(wide, partition) == expected
        assert opened(wide, partition) == ([] if ends_next else [producer.pair.producer_id])
    assert producer.stored().state == (COMPLETE_ABORT if ends_next else ONGOING)


def test_a_finisher_that_thaws_after_its_producer_has_expired_everywhere_adds_no_marker(
    wide: Service, producer: Producer
) -> None:
    """Its partitions know nothing of the producer: it reads the item, and finds its transaction past."""
    other, decided = twin(producer), list[Any]()

    def seen(call: Callable[[], Any]) -> None:
        call()
        decided.append(producer.stored())

    wide.items.plan("write", seen)
    other.end()
    for _ in range(2):
        for partition in PARTITIONS:
            other.send("b", partition)
        other.end(is_commit=False)
    before = [outcomes(wide, partition) for partition in PARTITIONS]
    for partition in PARTITIONS:
        wide.another().partitions.checkpoint(TOPIC, partition)
        key = keys.producer_item(wide.topic_id(), partition, producer.pair.producer_id)
        item = wide.items.store.get([key])[key]
        wide.items.store.write([Delete(key, item.version)])
    late = wide.another()
    (prepared,) = decided
    assert finish(appenders_of(late), prepared, wide.runtime.monotonic_ms() + 20_000).state == COMPLETE_COMMIT
    assert [outcomes(wide, partition) for partition in PARTITIONS] == before


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_completion_that_was_not_answered_is_made_once(wide: Service, producer: Producer, fault: Fault) -> None:
    wide.items.plan("write", passes, fault)
    producer.end()
    assert producer.stored().state == COMPLETE_COMMIT
    producer.send("b")
    producer.end()
    assert outcomes(wide) == [("commit", 1), ("commit", 2)]


def test_a_finisher_that_loses_the_completion_has_finished(wide: Service, producer: Producer) -> None:
    other = twin(producer)
    wide.items.plan("write", passes, slept_before(other.outcome))
    assert producer.outcome() == (producer.pair.producer_id, 1)
    check_one_outcome(wide, "commit", 1)


def test_an_item_store_that_is_away_behind_the_decision_leaves_it_to_the_same_request(
    wide: Service, producer: Producer
) -> None:
    wide.items.plan("write", passes, *[is_unavailable] * 12)
    assert code_of(producer.outcome) == "CONCURRENT_TRANSACTIONS"
    second = Producer(wide, wide.another())
    producer.end()
    producer.send("b")
    wide.items.plan("write", passes, passes, *[is_unavailable] * 12)
    assert code_of(second.begin) == "CONCURRENT_TRANSACTIONS"  # its fencing abort stands
    assert second.begin().producer_epoch == 3


def test_an_item_store_that_is_away_before_the_decision_has_nothing_written(wide: Service, producer: Producer) -> None:
    wide.items.always("write", is_unavailable)
    for request in (producer.outcome, producer.begin, lambda: producer.add(7)):
        assert code_of(request) == "STORE_UNAVAILABLE"
    wide.items.always("write", None)
    assert producer.stored().state == ONGOING


def test_a_request_without_time_finishes_nothing_more(wide: Service, producer: Producer) -> None:
    """The decision stands, and no marker is begun with less time left than a create may take."""
    slow = twin(producer, wide.another(create_ms=20_000))
    assert code_of(slow.outcome) == "CONCURRENT_TRANSACTIONS"
    assert [outcomes(wide, partition) for partition in PARTITIONS] == [[]] * 3
    producer.end()
    check_one_outcome(wide, "commit", 1)
