"""The end of a decided transaction by several processes, some of them slow (I10, I12).

No marker comes after one of a later transaction, and each partition has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_COMMIT
from fenceline.ports import Delete
from fenceline.runtime import ThreadRuntime
from fenceline.transactions.finish import finish
from fenceline.transactions.item import TransactionItem
from tests.support.claiming import code_of
from tests.support.patience import PATIENCE_S
from tests.support.service import (
    TOPIC,
    Fault,
    Gate,
    Service,
    is_unavailable,
    loses_answer,
    never_arrives,
    partitions_of,
    serve,
    slept_before,
)
from tests.support.transacting import ID, PARTITIONS, Producer, check_one_outcome, ongoing, opened, outcomes, twin


def passes(call: Callable[[], Any]) -> Any:
    return call()


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer with an ongoing transaction: two partitions have data, a third one is only named."""
    return ongoing(wide, wide.another())


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


def end_seen(producer: Producer) -> TransactionItem:
    """End the transaction by another process, and return its item as a finisher reads it that is slow."""
    decided: list[TransactionItem] = []

    def seen(call: Callable[[], Any]) -> None:
        call()
        decided.append(producer.stored())

    producer.service.items.plan("write", seen)
    twin(producer).outcome()
    (prepared,) = decided
    return prepared


def expire(producer: Producer, partition: int) -> None:
    """Let a partition forget the producer."""
    service = producer.service
    service.another().partitions.checkpoint(TOPIC, partition)
    key = keys.producer_item(service.topic_id(), partition, producer.pair.producer_id)
    item = service.items.store.get([key])[key]
    service.items.store.write([Delete(key, item.version)])


def finish_late(producer: Producer, prepared: TransactionItem) -> TransactionItem:
    """Finish what was read before, by a process that knows nothing since."""
    return finish(partitions_of(producer.service.another()), prepared, producer.until_ms)


def test_a_finisher_that_thaws_after_its_producer_has_expired_everywhere_adds_no_marker(
    wide: Service, producer: Producer
) -> None:
    """Its partitions know nothing of the producer: it reads the item, and finds its transaction past."""
    prepared = end_seen(producer)
    producer.takes(prepared.pair)
    for _ in range(2):
        for partition in PARTITIONS:
            producer.send("b", partition)
        producer.end(is_commit=False)
    before = [outcomes(wide, partition) for partition in PARTITIONS]
    for partition in PARTITIONS:
        expire(producer, partition)
    reads: list[str] = []
    wide.items.on_call = lambda operation, key: reads.extend([key] * (operation == "get" and key == ID))
    assert finish_late(producer, prepared).state == COMPLETE_COMMIT
    assert len(reads) == 2, "before its first marker, and once its completion is lost"
    assert [outcomes(wide, partition) for partition in PARTITIONS] == before


def test_a_finisher_that_thaws_while_the_next_transaction_is_prepared_finishes_nothing_of_it(
    wide: Service, producer: Producer
) -> None:
    prepared = end_seen(producer)
    producer.takes(prepared.pair)
    producer.add(*PARTITIONS)
    producer.send("b", 0)
    wide.objects.always("create", is_unavailable)
    assert code_of(lambda: producer.outcome(is_commit=False)) == "CONCURRENT_TRANSACTIONS"
    wide.objects.always("create", None)
    next_one = producer.stored()
    expire(producer, 2)
    finish_late(producer, prepared)
    assert producer.stored() == next_one
    assert [outcomes(wide, partition) for partition in PARTITIONS] == [[("commit", 1)]] * 3
    assert opened(wide, 0) == [producer.pair.producer_id]


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
    before = Counter(wide.objects.calls)
    assert code_of(slow.outcome) == "CONCURRENT_TRANSACTIONS"
    assert wide.objects.calls == before
    assert [outcomes(wide, partition) for partition in PARTITIONS] == [[]] * 3
    producer.end()
    check_one_outcome(wide, "commit", 1)


def test_32_markers_are_appended_at_once_and_as_many_cursors_settled(
    wide: Service, producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer.add(*range(40))
    widths: list[int] = []
    gather = wide.runtime.gather

    def counted(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        widths.append(len(calls))
        return list(gather(calls))

    monkeypatch.setattr(wide.runtime, "gather", counted)
    producer.end()
    assert max(widths) == 32
    assert [len(outcomes(wide, partition)) for partition in range(40)] == [1] * 40


def test_a_marker_that_takes_long_holds_up_no_other_one() -> None:
    """More partitions than are ended at once have their markers, while one create is still under way."""
    with closing(serve(ThreadRuntime(8), timeout_ms=300_000)) as service:
        service.log.topics.create(TOPIC, partitions=40)
        producer = Producer(service, service.log)
        producer.begin()
        producer.add(*range(40))
        gate = Gate()
        service.objects.always("create", gate, keys.log_prefix(service.topic_id(), 3))
        with ThreadPoolExecutor(1) as pool:
            ended = pool.submit(producer.end)
            assert gate.reached.wait(PATIENCE_S)
            others = [partition for partition in range(40) if partition != 3]
            while not all(outcomes(service, partition) for partition in others):
                service.runtime.sleep_ms(1)
            assert producer.stored().state == PREPARE_COMMIT
            gate.opened.set()
            ended.result(PATIENCE_S)
        assert outcomes(service, 3) == [("commit", 1)]
