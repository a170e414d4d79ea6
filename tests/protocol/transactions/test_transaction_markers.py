"""The markers that end transactions, through the log (protocol, "Ending a transaction"; I4, I7, I11, I12).

A marker lands while its transaction is prepared with its epoch, or it is judged again and found done.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.entries.entry import Entry, Marked, Outcome
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.append.group import Ticket
from fenceline.format import control, keys
from fenceline.log.context import StaleTopicId
from fenceline.model.requests import ReadRequest
from fenceline.ports import Delete
from fenceline.service.log import Log
from tests.support.coordinating import Coordinator
from tests.support.service import (
    TOPIC,
    Service,
    append,
    appender_of,
    is_unavailable,
    loses_answer,
    never_arrives,
    request,
    slept_before,
)

HOUR_MS = 3_600_000


def others(service: Service, *producer_ids: int) -> list[Coordinator]:
    """Return producers with an open transaction each."""
    made = [Coordinator(service, producer_id=producer_id) for producer_id in producer_ids]
    for one in made:
        one.serves(service.log)
        one.send(service.log, f"of {one.producer_id}")
    return made


def batch_of(service: Service, value: str) -> Entry:
    log = service.log
    partition = appender_of(log).partition
    return log.producing.prepared(partition, log.topics.get(TOPIC), request(value), is_new=True)


def together(service: Service, *entries: Entry, wait_ms: int = 10_000) -> list[Outcome | Exception | None]:
    """Append entries that all wait in one process at the same moment; return what became of each."""
    appender = appender_of(service.log)
    until_ms = service.runtime.monotonic_ms() + wait_ms
    tickets = [Ticket(entry, until_ms) for entry in entries]
    for ticket in tickets:
        appender.queue.add(ticket)
    for ticket in tickets:
        while appender.queue.must_lead(ticket):
            appender.step(ticket)
            appender.queue.stop_leading()
    return [ticket.outcome for ticket in tickets]


def kinds(service: Service) -> list[str]:
    """Return what each segment holds, a letter for a batch: d data, C commit, A abort, x access."""
    letters = {control.ABORT: "A", control.COMMIT: "C", control.ACCESS: "x", control.SEAL: "S"}
    return [
        "".join(
            letters[control.parse_marker(segment.body, at, header).type] if header.is_control else "d"
            for at, header in segment.batches
        )
        for segment in service.segments()
    ]


def epoch_of(service: Service, producer_id: int) -> int | None:
    """Return the epoch of a producer at the log's end."""
    partition = appender_of(service.another()).partition
    partition.open()
    partition.load_producers([producer_id])
    snapshot = partition.snapshot([producer_id])
    assert snapshot is not None
    known = snapshot.producers[producer_id]
    return None if known is None else known.producer_epoch


def is_open(service: Service, producer_id: int) -> bool:
    partition = appender_of(service.another()).partition
    partition.open()
    return producer_id in partition.state.open_transactions


# Groups


def test_ends_that_wait_together_share_a_segment_and_no_batch_is_in_it(service: Service) -> None:
    """They and the batches pass over each other, so that both share segments."""
    others(service, 7, 8, 9)
    ends = [EndEntry(p, 1, is_commit=p != 8) for p in (7, 8, 9)]
    a, b = batch_of(service, "a"), batch_of(service, "b")
    assert together(service, a, ends[0], b, ends[1], ends[2])[1::2] == [Marked(5), Marked(6)]
    assert kinds(service)[3:] == ["dd", "CAC"]
    page = service.another().partitions.read(TOPIC, 0, ReadRequest(offset=0, is_read_committed=True))
    assert [record.value for record in page.records] == [b"of 7", b"of 9", b"a", b"b"]


def test_the_first_in_line_goes_first(service: Service) -> None:
    others(service, 7, 8)
    together(service, EndEntry(7, 1, True), batch_of(service, "a"), EndEntry(8, 1, True), batch_of(service, "b"))
    assert kinds(service)[2:] == ["CC", "dd"]


def test_an_access_marker_goes_alone_and_nothing_passes_over_it(service: Service) -> None:
    others(service, 7, 8)
    a, b = batch_of(service, "a"), batch_of(service, "b")
    outcomes = together(service, a, EndEntry(7, 1, True), GrantEntry("s", 0), EndEntry(8, 1, False), b)
    assert outcomes[2] == Marked(4)
    assert kinds(service)[2:] == ["d", "C", "x", "A"], "the last batch is not admitted behind the grant"


def test_of_two_ends_of_one_transaction_in_a_group_one_is_appended(service: Service) -> None:
    others(service, 7)
    assert together(service, EndEntry(7, 1, True), EndEntry(7, 1, True)) == [Marked(1), Marked(2)]
    assert kinds(service) == ["d", "C"]


def test_an_end_that_must_ask_leaves_its_group_and_the_others_go_on(service: Service) -> None:
    """A group waits for no coordinator, and the end that must ask waits for no create."""
    others(service, 7)
    service.objects.always("create", never_arrives)
    outcomes = together(service, EndEntry(8, 1, True), EndEntry(7, 1, True))
    assert isinstance(outcomes[0], AskCoordinator)
    assert isinstance(outcomes[1], errors.OutcomeUnknownError)
    service.objects.always("create", None)
    append(service.log, "a")
    assert kinds(service) == ["d", "C", "d"]


def test_ends_of_transactions_take_turns_with_rivals_as_batches_do(service: Service) -> None:
    """They come as often. Were they never to wait, their process would shut the others out."""
    others(service, 7)
    appender = appender_of(service.log)
    appender.queue.add(Ticket(EndEntry(7, 1, True), 10**9))
    assert not appender.queue.has_urgent_marker()
    appender.queue.add(Ticket(GrantEntry("s", 0), 10**9))
    assert appender.queue.has_urgent_marker()


def test_an_end_that_a_rival_has_beaten_pauses(service: Service, txn: Coordinator) -> None:
    txn.send(service.log, "a")
    rival, paused = service.another(), []
    appender = appender_of(service.log)
    leave = appender.contention._pause_and_follow
    appender.contention._pause_and_follow = lambda pause_ms: (paused.append(pause_ms), leave(pause_ms))[1]  # type: ignore[method-assign]

    def beaten(call: Callable[[], Any]) -> Any:
        append(rival, "rival")
        service.runtime.advance(100)
        return call()

    service.objects.plan("create", beaten)
    txn.end(service.log)
    assert kinds(service) == ["d", "d", "C"]
    assert paused[0] > 0


# Done without an append


def test_an_end_is_appended_once_by_any_process(service: Service, txn: Coordinator) -> None:
    txn.send(service.log, "a")
    txn.decide()
    assert txn.mark(service.log) == Marked(1)
    for log in (service.log, service.another()):
        assert txn.mark(log) == Marked(2)
    assert kinds(service) == ["d", "C"]


def test_an_end_is_acknowledged_from_a_verified_tail_only(service: Service, txn: Coordinator) -> None:
    """What this process has folded may be its own late create, where the log start has passed (I4)."""
    txn.send(service.log, "a")
    txn.decide()
    txn.mark(service.log)
    service.objects.always("get", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        txn.mark(service.log)
    service.objects.always("get", None)
    assert txn.mark(service.log) == Marked(2)


@pytest.mark.parametrize("fault", [never_arrives, is_unavailable])
def test_in_a_group_with_a_segment_too(service: Service, fault: Any) -> None:
    """The create proves that the tail was the log's end: without it the end that is done is not told either."""
    first, _ = others(service, 7, 8)
    first.decide()
    first.mark(service.log)
    service.objects.always("create", fault)
    done, appended = together(service, EndEntry(7, 1, True), EndEntry(8, 1, True))
    assert isinstance(done, errors.RetryError)
    assert isinstance(appended, errors.OutcomeUnknownError if fault is never_arrives else errors.StoreUnavailableError)
    service.objects.always("create", None)
    assert together(service, EndEntry(7, 1, True))
    assert kinds(service)[:3] == ["d", "d", "C"]


def test_the_end_of_a_past_transaction_ends_no_later_one(service: Service, txn: Coordinator) -> None:
    """A finisher of one transaction thaws in the next."""
    txn.send(service.log, "a")
    txn.decide()
    late = txn.epoch
    txn.mark(service.another())
    txn.is_prepared = False
    txn.send(service.log, "b")
    assert txn.mark(service.log, epoch=late) == Marked(3)
    assert is_open(service, 7)
    txn.end(service.log)
    assert txn.mark(service.log, epoch=late) == Marked(4)
    assert kinds(service) == ["d", "C", "d", "C"]


def expire(service: Service, producer_id: int) -> None:
    """Delete the producer's item, as the sweeper does once it has lapsed."""
    key = keys.producer_item(service.topic_id(), 0, producer_id)
    service.items.store.write([Delete(key, service.items.store.get([key])[key].version)])


def test_a_late_end_of_a_producer_that_expired_is_the_coordinators(service: Service, txn: Coordinator) -> None:
    """Otherwise it would lower the producer's epoch, and a late batch of a later transaction could follow it."""
    for value in "ab":
        txn.send(service.log, value)
        txn.end(service.log)
    service.log.partitions.checkpoint(TOPIC, 0)
    expire(service, 7)
    assert txn.mark(service.another(), epoch=1) is None
    assert kinds(service) == ["d", "C"] * 2
    assert epoch_of(service, 7) is None


def test_a_partition_without_data_gets_its_marker_which_installs_the_epoch(service: Service, txn: Coordinator) -> None:
    append(service.log, "warm")
    txn.partitions = {0}
    late = txn.batch("late")
    txn.end(service.log)
    assert kinds(service) == ["d", "C"]
    assert epoch_of(service, 7) == 1
    with pytest.raises(errors.InvalidProducerEpochError):
        service.log.append(TOPIC, 0, late)


# I7, and what a frozen process created


def trimmed_beyond(service: Service, log: Log) -> None:
    """Append, move the log start to the end, and collect what is below it."""
    append(log, "x", "y", "z")
    end = log.partitions.offsets(TOPIC, 0).bounds.next_offset
    log.partitions.trim(TOPIC, 0, end)
    for line in service.objects.store.list(keys.log_prefix(service.topic_id(), 0)):
        service.objects.store.delete(line.key)


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_end_that_lands_where_the_log_start_has_passed_is_judged_again(
    service: Service, txn: Coordinator, is_answered: bool
) -> None:
    """Its create succeeds, for the key was collected. The marker that counts is another finisher's, further on."""
    txn.send(service.log, "a")
    txn.decide()

    def meanwhile() -> None:
        service.runtime.advance(HOUR_MS, monotonic_ms=0)
        other = service.another()
        append(other, "in the way")
        assert txn.mark(other) == Marked(2)
        trimmed_beyond(service, other)

    frozen = slept_before(meanwhile)
    service.objects.plan("create", frozen if is_answered else lambda call: loses_answer(lambda: frozen(call)))
    answer = txn.mark(service.log)
    assert answer == Marked(6), "done at the log's end, and not at the offset of the late create"
    assert epoch_of(service, 7) == 1


def test_an_end_whose_late_create_counted_for_nothing_is_appended_at_the_end(
    service: Service, txn: Coordinator
) -> None:
    txn.send(service.log, "a")
    txn.decide()

    def meanwhile() -> None:
        service.runtime.advance(HOUR_MS, monotonic_ms=0)
        trimmed_beyond(service, service.another())

    service.objects.plan("create", slept_before(meanwhile))
    assert txn.mark(service.log) == Marked(4)
    assert not is_open(service, 7)


def test_an_end_that_was_done_in_a_group_whose_offset_is_gone_is_judged_again(service: Service) -> None:
    """Meanwhile the producer expired here. So its end is no longer told as done, but asked for."""
    first, second = others(service, 7, 8)
    first.decide()
    first.mark(service.log)

    def meanwhile() -> None:
        service.runtime.advance(HOUR_MS, monotonic_ms=0)
        other = service.another()
        trimmed_beyond(service, other)
        expire(service, 7)

    service.objects.plan("create", slept_before(meanwhile))
    done, appended = together(service, EndEntry(7, 1, True), EndEntry(8, 1, True), wait_ms=10 * HOUR_MS)
    assert isinstance(done, AskCoordinator)
    assert appended == Marked(6)
    assert second.producer_id == 8


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable])
def test_an_end_survives_what_happens_to_its_create(service: Service, txn: Coordinator, fault: Any) -> None:
    txn.send(service.log, "a")
    service.objects.plan("create", fault)
    txn.end(service.log)
    assert kinds(service) == ["d", "C"]


def test_an_answer_to_an_end_holds_for_a_minute_and_while_the_log_is_followed(
    service: Service, txn: Coordinator
) -> None:
    append(service.log, "warm")
    appender = appender_of(service.log)
    asked: list[AskCoordinator] = []
    append_, service_ms = appender.append, service.runtime.advance

    def slow(entry: Any, until_ms: int) -> Any:
        if entry.prepared is not None and len(asked) == 1:
            service_ms(limits.ADMISSION_MS, monotonic_ms=0)
        answer = append_(entry, until_ms)
        if isinstance(answer, AskCoordinator):
            asked.append(answer)
        return answer

    appender.append = slow  # type: ignore[method-assign]
    txn.decide()
    assert txn.mark(service.log) == Marked(1)
    assert len(asked) == 2


# The end of an incarnation, and rounds


def test_an_end_in_a_topic_that_was_deleted_finds_that_it_has_ended(service: Service, txn: Coordinator) -> None:
    txn.send(service.log, "a")
    txn.decide()
    topic_id = service.topic_id()
    service.log.topics.delete(TOPIC)
    for log in (service.log, service.another()):
        with pytest.raises(StaleTopicId):
            appender_of(log, topic_id=topic_id).append(EndEntry(7, 1, True), 10**9)
    service.log.topics.create(TOPIC)
    with pytest.raises(StaleTopicId):
        appender_of(service.another(), topic_id=topic_id).append(EndEntry(7, 1, True), 10**9)
