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

from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT
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
    PARTITIONS,
    TIMEOUT_MS,
    Producer,
    carried_out,
    check_one_outcome,
    committed,
    ongoing,
    outcomes,
    twin,
)


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


# What an operator's fence says that it met


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_fence_that_loses_to_an_end_says_that_it_met_the_end(
    wide: Service, producer: Producer, is_commit: bool
) -> None:
    wide.items.plan("write", slept_before(lambda: producer.outcome(is_commit=is_commit)))
    before, pair = wide.log.transactions.fence(producer.transactional_id)
    assert before.state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    assert pair.producer_epoch == producer.pair.producer_epoch + 2
    check_one_outcome(wide, "commit" if is_commit else "abort", 1)


def test_a_fence_that_loses_to_an_addition_says_what_it_aborts(wide: Service) -> None:
    producer = Producer(wide, wide.another())
    producer.begin()
    wide.items.plan("write", slept_before(lambda: producer.add(1)))
    before, _ = wide.log.transactions.fence(producer.transactional_id)
    assert (before.state, [one.partition for one in before.partitions]) == (ONGOING, [1])


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_fence_that_was_not_answered_says_what_it_met_first(wide: Service, producer: Producer, fault: Fault) -> None:
    wide.items.plan("write", fault)
    before, pair = wide.log.transactions.fence(producer.transactional_id)
    assert (before.state, len(before.partitions)) == (ONGOING, 3)
    assert pair.producer_epoch == producer.pair.producer_epoch + 1
    check_one_outcome(wide, "abort", 1)
    assert wide.log.transactions.fence(producer.transactional_id) == (
        wide.log.transactions.get(producer.transactional_id),
        pair,
    )


def test_a_fence_says_that_it_met_what_it_had_to_finish(wide: Service, producer: Producer) -> None:
    wide.items.plan("write", passes, dies)
    with suppress(Died):
        producer.outcome()
    before, _ = wide.log.transactions.fence(producer.transactional_id)
    assert (before.state, len(before.partitions)) == (PREPARE_COMMIT, 3)
    check_one_outcome(wide, "commit", 1)


def test_an_id_request_that_is_faster_than_the_end_aborts_it(wide: Service, producer: Producer) -> None:
    second = Producer(wide, wide.another())
    wide.items.plan("write", slept_before(second.begin))
    assert code_of(producer.outcome) == "PRODUCER_FENCED"
    check_one_outcome(wide, "abort", 1)


def test_an_end_that_is_faster_than_the_id_request_wins(wide: Service, producer: Producer) -> None:
    second = Producer(wide, wide.another())
    wide.items.plan("write", slept_before(producer.end))
    assert second.begin().producer_epoch == 2
    check_one_outcome(wide, "commit", 1)


def test_an_end_that_is_faster_than_the_time_out_wins(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.items.plan("write", slept_before(producer.end))
    assert twin(producer).get().state == COMPLETE_COMMIT
    check_one_outcome(wide, "commit", 1)


def test_a_time_out_that_is_faster_than_the_end_wins(wide: Service, producer: Producer) -> None:
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
def test_an_end_with_one_failed_call_is_completed_by_the_same_request(call: tuple[str, str], fault: Fault) -> None:
    for producer in call_by_call(call, fault, Producer.outcome):
        assert twin(producer).outcome() == (producer.pair.producer_id, 1)
        check_one_outcome(producer.service, "commit", 1)
        assert producer.stored().state == COMPLETE_COMMIT


@pytest.mark.parametrize(("call", "fault"), CALLS)
def test_an_id_request_with_one_failed_call_is_completed_by_the_next(call: tuple[str, str], fault: Fault) -> None:
    for producer in call_by_call(call, fault, Producer.begin):
        second = Producer(producer.service, producer.service.another())
        assert second.begin().producer_epoch in (2, 3, 4)
        check_one_outcome(producer.service, "abort", 1)
