"""Transactional batches: admitted to their transaction before the create, or refused (protocol, "Admission"; I12).

At each arrow of judge → admission → create another process acts, or this one freezes. The batch is before its marker,
or it is refused: it never lands behind the marker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.append.group import Ticket
from fenceline.format import batch, keys
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.ports import Delete
from tests.support.coordinating import ID, Coordinator
from tests.support.patience import PATIENCE_S
from tests.support.runtime import START_MS
from tests.support.service import (
    TOPIC,
    Gate,
    Service,
    append,
    appender_of,
    conflicts,
    is_unavailable,
    loses_answer,
    never_arrives,
    partition_of,
    request,
    slept_before,
)

HOUR_MS = 3_600_000


def opened(service: Service) -> list[int]:
    """Return the producers whose transactions are open at the log's end."""
    partition = partition_of(service.another())
    partition.open()
    return sorted(partition.state.open_transactions)


def committed(service: Service) -> list[bytes | None]:
    page = service.another().partitions.read(TOPIC, 0, ReadRequest(offset=0, is_read_committed=True))
    return [record.value for record in page.records]


def test_a_json_batch_of_a_transaction_is_stored_with_its_bit(service: Service, txn: Coordinator) -> None:
    txn.send(service.log, "a")
    append(service.log, "plain", producer=(8, 0, 0))
    headers = [header for segment in service.segments() for _, header in segment.batches]
    assert [(header.is_transactional, header.producer_id) for header in headers] == [(True, 7), (False, 8)]


def test_a_binary_batch_of_a_transaction_is_admitted_too(service: Service, txn: Coordinator) -> None:
    body = batch.encode(
        [Record(b"a")], now_ms=START_MS, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    ).body
    assert service.log.append(TOPIC, 0, AppendRequest.of_batch(body, transactional_id=ID)) is not None
    assert len(txn.asked) == 1
    assert opened(service) == [7]


@pytest.mark.parametrize("acks", [0, 1])
def test_a_transactional_batch_takes_no_other_acks(service: Service, txn: Coordinator, acks: int) -> None:
    """It is judged before the topic is looked up."""
    with pytest.raises(errors.InvalidRequestError) as refusal:
        service.log.append("unknown", 0, txn.batch("a"), acks=acks)
    assert refusal.value.field == "acks"


# Asking, and not asking


def test_a_partitions_first_batch_asks_once_and_the_next_ask_nothing(service: Service, txn: Coordinator) -> None:
    service.log.topics.alter(TOPIC, partitions=2)
    for value in "abc":
        txn.send(service.log, value)
        txn.send(service.log, value, partition=1)
    assert len(txn.asked) == 2
    assert txn.partitions == {0, 1}
    txn.end(service.log)
    txn.send(service.log, "d")
    assert len(txn.asked) == 3
    assert committed(service) == [b"a", b"b", b"c"]


def test_a_process_that_has_folded_the_transaction_asks_nothing(service: Service, txn: Coordinator) -> None:
    other = txn.serves(service.another())
    append(other, "plain")
    txn.send(service.log, "a")
    cold = txn.serves(service.another())
    txn.send(cold, "b")
    assert len(txn.asked) == 1
    txn.send(other, "c")  # its sequence is a gap, as far as this process knows
    assert len(txn.asked) == 1
    assert service.values() == [b"plain", b"a", b"b", b"c"]


def test_a_refused_admission_writes_nothing(service: Service, txn: Coordinator) -> None:
    with pytest.raises(errors.ProducerFencedError) as refusal:
        txn.send(service.log, "a", epoch=3)
    assert "topic_epoch" not in refusal.value.extra
    assert service.segments() == []


def test_others_of_the_process_wait_for_no_admission(live_service: Service) -> None:
    service = live_service
    txn = Coordinator(service)
    txn.serves(service.log)
    gate = Gate()
    txn.beside = lambda: gate(lambda: None)
    asking = threading.Thread(target=txn.send, args=(service.log, "late"))
    asking.start()
    assert gate.reached.wait(PATIENCE_S)
    append(service.log, "first")
    gate.opened.set()
    asking.join()
    assert service.values() == [b"first", b"late"]


# The adversary's list: judge → admission → create


def test_a_batch_whose_transaction_ends_behind_its_admission_is_refused(service: Service, txn: Coordinator) -> None:
    """It was named in time, so the marker is here before the create, which loses."""
    append(service.log, "warm")
    txn.beside = lambda: txn.end(service.another())
    with pytest.raises(errors.InvalidProducerEpochError):
        txn.send(service.log, "late")
    assert opened(service) == []
    assert service.values() == [b"warm"]


def test_a_batch_whose_transaction_ends_before_its_create_is_refused(service: Service, txn: Coordinator) -> None:
    append(service.log, "warm")
    service.objects.plan("create", slept_before(lambda: txn.end(service.another())))
    with pytest.raises(errors.InvalidProducerEpochError):
        txn.send(service.log, "late")
    assert opened(service) == []


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, conflicts, is_unavailable])
def test_an_admission_holds_for_the_tries_that_follow(service: Service, txn: Coordinator, fault: Any) -> None:
    append(service.log, "warm")

    def beaten(call: Callable[[], Any]) -> Any:
        append(rival, "rival")
        return call()

    rival = service.another()
    service.objects.plan("create", beaten, fault)
    txn.send(service.log, "a")
    assert len(txn.asked) == 1
    assert opened(service) == [7]


def test_behind_its_marker_a_late_batch_is_refused_however_short_a_producer_is_remembered(
    service: Service, txn: Coordinator
) -> None:
    """A lapse never lowers the epoch that a transactional batch is held to. Its admission is still young."""
    service.log.topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    append(service.log, "warm")

    def ends_and_lapses() -> None:
        txn.end(service.log)
        service.runtime.advance(2_000)

    txn.beside = ends_and_lapses
    with pytest.raises(errors.InvalidProducerEpochError):
        txn.send(service.log, "late")
    assert opened(service) == []


@pytest.mark.parametrize("frozen_ms", [limits.ADMISSION_MS, HOUR_MS])
@pytest.mark.parametrize("is_monotonic_stopped", [True, False])
def test_an_admission_is_asked_for_again_after_a_minute(
    service: Service, txn: Coordinator, frozen_ms: int, is_monotonic_stopped: bool
) -> None:
    append(service.log, "warm")
    passed_ms = 0 if is_monotonic_stopped else frozen_ms
    txn.beside = lambda: service.runtime.advance(frozen_ms, monotonic_ms=passed_ms)
    txn.sequences[0] = 0
    answer = service.log.producing.append(TOPIC, 0, txn.batch("a"), until_ms=10 * HOUR_MS)
    assert answer is not None
    assert len(txn.asked) == 2


def expire(service: Service, producer_id: int) -> None:
    """Delete the producer's item, as a sweeper whose clock is far ahead would."""
    key = keys.producer_item(service.topic_id(), 0, producer_id)
    service.items.store.write([Delete(key, service.items.store.get([key])[key].version)])


def test_an_admission_is_asked_for_again_once_the_partition_was_adopted_anew(
    service: Service, txn: Coordinator
) -> None:
    """What is adopted may no longer show the marker."""
    append(service.log, "warm")

    def ends_and_is_forgotten() -> None:
        other = service.another()
        txn.end(other)
        other.partitions.checkpoint(TOPIC, 0)
        expire(service, 7)
        partition_of(service.log).refresh()  # a head beyond the state: it is adopted

    txn.beside = ends_and_is_forgotten
    with pytest.raises(errors.ProducerFencedError):
        txn.send(service.log, "late")
    assert len(txn.asked) == 2
    assert opened(service) == []


def test_an_admission_is_asked_for_again_once_producers_were_pruned(
    service: Service, txn: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_CACHED_MAX", 0)
    append(service.log, "warm", producer=(8, 0, 0))

    def ends_and_is_pruned() -> None:
        txn.end(service.log)
        service.log.partitions.checkpoint(TOPIC, 0)
        expire(service, 7)

    txn.beside = ends_and_is_pruned
    with pytest.raises(errors.ProducerFencedError):
        txn.send(service.log, "late")
    assert opened(service) == []


def test_an_admission_is_asked_for_again_once_a_plain_batch_has_lowered_the_epoch(
    service: Service, txn: Coordinator
) -> None:
    """A plain batch may do so after a lapse, and then the fold no longer shows the marker's epoch."""
    service.log.topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    txn.epoch = 3
    append(service.log, "warm")

    def ends_and_is_hidden() -> None:
        txn.end(service.log)
        service.runtime.advance(2_000)
        append(service.log, "plain", producer=(7, 2, 50))

    txn.beside = ends_and_is_hidden
    with pytest.raises(errors.ProducerFencedError):
        txn.send(service.log, "late")
    assert opened(service) == []
    assert service.values() == [b"warm", b"plain"]


def lowers_in_the_next_group(service: Service, producer_id: int) -> None:
    """Queue a plain batch that lowers the epoch of a producer, which has lapsed."""
    service.runtime.advance(2_000)
    appender = appender_of(service.log)
    plain = request("plain", producer=(producer_id, 2, 50))
    entry = service.log.producing.prepared(appender.partition, service.log.topics.get(TOPIC), plain, is_new=True)
    appender.queue.add(Ticket(entry, 10**9))


@pytest.mark.parametrize("is_asked_in_such_a_group", [False, True])
def test_also_where_that_plain_batch_is_in_the_same_group(
    service: Service, txn: Coordinator, is_asked_in_such_a_group: bool
) -> None:
    """What is asked behind a lower epoch within a group counts for no other group."""
    service.log.topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    txn.epoch = 3
    append(service.log, "warm", producer=(9, 5, 0))

    def ends_and_is_about_to_be_hidden() -> None:
        txn.end(service.log)
        lowers_in_the_next_group(service, 7)

    txn.beside = ends_and_is_about_to_be_hidden
    if is_asked_in_such_a_group:
        lowers_in_the_next_group(service, 9)
    with pytest.raises(errors.ProducerFencedError):
        txn.send(service.log, "late")
    assert opened(service) == []
    assert service.values() == [b"warm", *[b"plain"] * (1 + is_asked_in_such_a_group)]


# Kafka's cases


def test_a_late_batch_of_an_ended_transaction_joins_no_later_one(service: Service, txn: Coordinator) -> None:
    """To a named partition its epoch is too old, elsewhere its admission is refused."""
    service.log.topics.alter(TOPIC, partitions=2)
    txn.send(service.log, "a")
    late = txn.batch("late"), txn.batch("late", partition=1)
    txn.end(service.log)
    txn.send(service.log, "b")
    with pytest.raises(errors.InvalidProducerEpochError):
        service.log.append(TOPIC, 0, late[0])
    with pytest.raises(errors.ProducerFencedError):
        service.log.append(TOPIC, 1, late[1])
    txn.end(service.log, is_commit=False)
    assert committed(service) == [b"a"]
    assert service.values(partition=1) == []


def test_a_batch_that_is_sent_again_is_a_duplicate_until_the_end(service: Service, txn: Coordinator) -> None:
    once = txn.batch("a")
    service.log.append(TOPIC, 0, once)
    service.runtime.advance(9 * 24 * HOUR_MS)  # an open transaction never lapses
    again = txn.serves(service.another()).append(TOPIC, 0, once)
    assert again is not None
    assert again.duplicate
    txn.end(service.log)
    with pytest.raises(errors.InvalidProducerEpochError):
        service.log.append(TOPIC, 0, once)
    assert committed(service) == [b"a"]


def test_a_partition_that_has_forgotten_the_producer_takes_its_next_transaction(
    service: Service, txn: Coordinator
) -> None:
    """The state of the producer has expired, and its transactional id is alive."""
    service.log.topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    txn.send(service.log, "a")
    txn.end(service.log)
    service.log.partitions.checkpoint(TOPIC, 0)
    expire(service, 7)
    log = txn.serves(service.another())
    txn.send(log, "b")
    txn.end(log)
    assert committed(service) == [b"a", b"b"]


def test_a_transactional_id_that_has_expired_adds_nothing_where_its_producer_is_known(
    service: Service, txn: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    txn.send(service.log, "a")
    txn.end(service.log)

    def gone(*asked: object) -> None:
        raise errors.InvalidProducerIdMappingError("no such id")

    monkeypatch.setattr(txn, "admit", gone)
    with pytest.raises(errors.InvalidProducerIdMappingError):
        txn.send(service.log, "b")
    assert committed(service) == [b"a"]


def test_a_batch_joins_no_transaction_that_hangs(service: Service, txn: Coordinator) -> None:
    """Its marker was lost, which only damage can do."""
    txn.send(service.log, "hangs")
    txn.epoch += 1
    txn.sequences = {}
    with pytest.raises(errors.InvalidTxnStateError):
        txn.send(service.log, "b")
    with pytest.raises(errors.InvalidTxnStateError):
        append(service.log, "plain", producer=(7, 1, 0))
    assert service.values() == [b"hangs"]


def test_where_too_many_transactions_are_open_no_further_one_begins(
    service: Service, txn: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPEN_TRANSACTIONS_MAX", 1)
    txn.send(service.log, "a")
    log = service.another()
    other = Coordinator(service, producer_id=8)
    other.serves(log)
    with pytest.raises(errors.ThrottledError):
        other.send(log, "b")
    txn.send(service.log, "c")
    txn.end(service.log)
    other.sequences = {}
    other.send(log, "b")
    other.end(log)
    assert committed(service) == [b"a", b"c", b"b"]
