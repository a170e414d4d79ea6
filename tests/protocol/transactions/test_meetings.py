"""What a reader or the sweeper ends, after its producer is gone (protocol, "Meeting a transaction")."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from fenceline.ports import Delete
from fenceline.service.log import Log
from fenceline.transactions.end_due import Meetings, meet_producer
from tests.support.claiming import code_of
from tests.support.service import (
    Service,
    is_unavailable,
    loses_answer,
    never_arrives,
    partition_of,
    partitions_of,
    slept_before,
)
from tests.support.transacting import (
    TIMEOUT_MS,
    Producer,
    carried_out,
    committed,
    meetings_of,
    opened,
    outcomes,
    tail_of,
)


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer with an ongoing transaction in two partitions, served by a process of its own."""
    made = Producer(wide, wide.another())
    made.begin()
    made.send("a", 0)
    made.send("a", 1)
    return made


class Reader:
    """A process that reads, and is held up."""

    def __init__(self, service: Service, log: Log | None = None) -> None:
        self.service = service
        self.log = log or service.another()
        self.meetings: Meetings = meetings_of(self.log)

    def held(self, number: int = 0) -> bool:
        return self.meetings.held(partition_of(self.log, number), tail_of(self.service, self.log, number))


def decided(producer: Producer) -> None:
    """Let the producer's process decide a commit, and die before the first marker."""
    producer.service.objects.always("create", is_unavailable)
    assert code_of(producer.outcome) == "CONCURRENT_TRANSACTIONS"
    producer.service.objects.always("create", None)


def meet(producer: Producer, log: Log | None = None, **more: Any) -> bool:
    partitions = partitions_of(log or producer.service.another())
    return meet_producer(partitions, producer.pair.producer_id, producer.until_ms, **more)


# What is due


def test_a_transaction_past_its_time_out_is_aborted(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS)
    assert not meet(producer)
    wide.runtime.advance(1)
    assert meet(producer)
    assert (outcomes(wide), opened(wide), opened(wide, 1)) == ([("abort", 1)], [], [])
    assert (producer.stored().state, producer.stored().is_fenced) == (COMPLETE_ABORT, True)
    assert not meet(producer)


def test_a_decided_transaction_is_finished_and_no_time_out_changes_it(wide: Service, producer: Producer) -> None:
    decided(producer)
    wide.runtime.advance(10 * TIMEOUT_MS)
    assert producer.stored().state == PREPARE_COMMIT
    assert meet(producer)
    assert [committed(wide, partition) for partition in (0, 1)] == [["a"], ["a"]]
    assert producer.stored().state == COMPLETE_COMMIT


def test_a_producer_id_that_leads_to_no_transaction_of_its_own_is_left(wide: Service, producer: Producer) -> None:
    """Its transaction hangs, if it is open anywhere: no process ends it by itself."""
    key = keys.transactional_id_item(producer.pair.producer_id)
    item = wide.items.store.get([key])[key]
    wide.items.store.write([Delete(key, item.version)])
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert not meet(producer)
    assert producer.stored().state == ONGOING


def test_an_end_that_is_faster_than_the_meeting_wins(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.items.plan("write", slept_before(producer.end))
    assert not meet(producer)
    assert outcomes(wide) == [("commit", 1)]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_fencing_abort_that_was_not_answered_is_made_once(wide: Service, producer: Producer, fault: Any) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.items.plan("write", fault)
    assert meet(producer)
    assert outcomes(wide) == [("abort", 1)]


def test_two_that_meet_it_write_one_marker(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.objects.plan("create", slept_before(carried_out(lambda: meet(producer))))
    assert meet(producer)
    assert [outcomes(wide, partition) for partition in (0, 1)] == [[("abort", 1)]] * 2


def test_a_transaction_no_longer_due_at_the_second_read_is_left(wide: Service, producer: Producer) -> None:
    """The caller judges each read, also the one after a lost race: here the producer extends its transaction."""
    assert not meet(producer, is_due=lambda _: False)
    name, pair, until_ms = producer.transactional_id, producer.pair, producer.until_ms
    extend = carried_out(lambda: producer.coordinator.extend(name, pair, TIMEOUT_MS, until_ms))
    wide.items.plan("write", slept_before(extend))
    assert not meet(producer, is_due=lambda item: item.expires_at is None)
    assert producer.stored().state == ONGOING


def test_a_transaction_that_cannot_be_ended_is_an_error(wide: Service, producer: Producer) -> None:
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.objects.always("create", is_unavailable, keys.log_prefix(wide.topic_id(), 1))
    assert code_of(lambda: meet(producer)) == "CONCURRENT_TRANSACTIONS"
    assert producer.stored().state == PREPARE_ABORT


# Readers


def test_a_reader_ends_what_holds_it_up(wide: Service, producer: Producer) -> None:
    reader = Reader(wide)
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert reader.held()
    assert opened(wide) == []
    assert not reader.held()


def test_a_reader_leaves_a_transaction_whose_first_batch_is_young(wide: Service, producer: Producer) -> None:
    producer.timeout_ms = 1
    producer.begin()
    producer.send("b")
    reader = Reader(wide)
    wide.runtime.advance(limits.MEETING_AGE_MS - 1)
    assert not reader.held()
    assert producer.stored().state == ONGOING
    wide.runtime.advance(1)
    assert reader.held()


def test_a_reader_leaves_a_decision_that_is_young(wide: Service, producer: Producer) -> None:
    """Its END_TXN is likely at work."""
    wide.runtime.advance(5_000)
    decided(producer)
    found = producer.stored()
    wide.runtime.wall_ms = (found.decided_at or 0) + limits.MEETING_AGE_MS - 1
    reader = Reader(wide)
    assert not reader.held()
    assert producer.stored() == found
    wide.runtime.advance(1_000)
    assert reader.held()
    assert committed(wide) == ["a"]


def test_the_readers_of_a_partition_meet_once_a_second_in_one_process(wide: Service, producer: Producer) -> None:
    reader, other = Reader(wide), Reader(wide)
    wide.runtime.advance(limits.MEETING_AGE_MS)
    tail, partition = tail_of(wide, reader.log), partition_of(reader.log)

    def asked(meetings: Meetings) -> int:
        before = wide.items.calls["get"]
        assert not meetings.held(partition, tail)
        return wide.items.calls["get"] - before

    assert [asked(reader.meetings), asked(reader.meetings)] == [2, 0]
    assert asked(other.meetings) == 2
    wide.runtime.advance(999)
    assert asked(reader.meetings) == 0
    wide.runtime.advance(1)
    assert asked(reader.meetings) == 2
    assert reader.held(1) is False


def test_a_reader_that_is_held_up_by_nothing_asks_nothing(wide: Service, producer: Producer) -> None:
    producer.end()
    reader = Reader(wide)
    tail, partition = tail_of(wide, reader.log), partition_of(reader.log)
    before = wide.count()
    assert not reader.meetings.held(partition, tail)
    assert wide.count() == before


def test_a_reader_s_own_partition_comes_first_and_2_s_are_its_bound(wide: Service, producer: Producer) -> None:
    """The other partition's log takes no marker. The reader's own is free all the same."""
    reader = Reader(wide)
    wide.runtime.advance(TIMEOUT_MS + 1)
    wide.objects.always("create", is_unavailable, keys.log_prefix(wide.topic_id(), 0))
    tail_of(wide, reader.log, 1)
    began = wide.runtime.monotonic_ms()
    assert reader.held(1)
    assert wide.runtime.monotonic_ms() - began < limits.MEETING_MS + 2_000
    assert (opened(wide, 1), outcomes(wide, 1)) == ([], [("abort", 1)])
    assert producer.stored().state == PREPARE_ABORT


def test_a_meeting_begins_no_create_after_2_s(wide: Service, producer: Producer) -> None:
    """A create that has begun may take its time."""
    reader = Reader(wide, wide.another(create_ms=6_000))
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert reader.held()
    assert opened(wide) == []


@pytest.mark.parametrize("operation", ["get", "write"])
def test_no_trouble_of_a_meeting_is_the_reader_s(wide: Service, producer: Producer, operation: str) -> None:
    reader = Reader(wide)
    wide.runtime.advance(TIMEOUT_MS + 1)
    tail, partition = tail_of(wide, reader.log), partition_of(reader.log)
    wide.items.always(operation, is_unavailable)
    assert not reader.meetings.held(partition, tail)


def test_a_damaged_partition_elsewhere_is_not_the_reader_s_trouble(wide: Service, producer: Producer) -> None:
    reader = Reader(wide)
    wide.runtime.advance(TIMEOUT_MS + 1)
    key = keys.segment_key(wide.topic_id(), 1, 0)
    found = wide.objects.store.get(key)
    wide.objects.store.delete(key)
    wide.objects.store.create(key, found.body[:-1] + b"?", found.metadata)
    assert reader.held()
    assert outcomes(wide) == [("abort", 1)]
    assert producer.stored().state == PREPARE_ABORT


def test_a_reader_of_stable_offsets_meets_by_producer_id(wide: Service, producer: Producer) -> None:
    meetings = Reader(wide).meetings
    assert not meetings.pending(producer.pair.producer_id)
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert meetings.pending(producer.pair.producer_id)
    assert not meetings.pending(producer.pair.producer_id)
