"""Append, through the log: races, lost answers, refusals, frozen groups (protocol, "Append")."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from fenceline import errors
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import batch, keys
from fenceline.limits import INT64_MAX, SEGMENT_BYTES_MAX
from fenceline.log.checkpoint_items import Head
from fenceline.log.state import PartitionState
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended, SessionRef
from fenceline.ports import Delete, Put
from fenceline.service.log import Log
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.runtime import START_MS, FakeRuntime
from tests.support.service import (
    TOPIC,
    Gate,
    LogBuilder,
    Service,
    access,
    append,
    back_to_shared,
    conflicts,
    data,
    is_repeated_below,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    only_appender_of,
    only_partition_of,
    request,
    serve,
)

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def creates(service: Service) -> int:
    return service.objects.calls["create"]


def queued(service: Service) -> int:
    """Return how many requests wait after the one that leads."""
    return len(only_appender_of(service.log).queue._line)


# What an append says


def test_an_append_is_answered_with_its_offsets(service: Service) -> None:
    assert append(service.log, "a", "b") == Appended(0, 2, 2, False, -1, False, -1)
    assert append(service.log, "c", expected=2) == Appended(2, 3, 1, False, -1, True, -1)
    assert append(service.log, "d", "e", expected=[-1, -1]) == Appended(3, 5, 2, False, -1, False, -1)
    assert [(r.offset, r.value) for r in service.records()] == list(enumerate([b"a", b"b", b"c", b"d", b"e"]))


def test_a_duplicate_is_answered_with_the_offsets_of_the_first(service: Service) -> None:
    first = append(service.log, "a", "b", producer=(7, 0, 0))
    append(service.log, "c", producer=(7, 0, 2))
    again = append(service.log, "a", "b", producer=(7, 0, 0), expected=77)
    assert again == Appended(first.base_offset, first.next_offset, 2, True, -1, False, -1)
    assert service.values() == [b"a", b"b", b"c"]


def test_acks_0_answers_nothing_for_a_stored_or_refused_batch(service: Service) -> None:
    assert service.log.append(TOPIC, 0, request("a"), acks=0) is None
    assert service.log.append(TOPIC, 0, request("b", expected=77), acks=0) is None
    assert service.values() == [b"a"]
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        service.log.append(TOPIC, 1, request("a"), acks=0)


def test_each_batch_carries_the_topic_epoch_of_its_offset(service: Service) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("a"))
    log.add(access("s", 4))
    log.add(back_to_shared())
    log.store(service.objects)
    assert append(service.log, "b") == Appended(3, 4, 1, False, 4, False, -1)
    assert [r.topic_epoch for r in service.records()] == [-1, 4]


def test_an_unknown_session_is_refused_and_nothing_is_stored(service: Service) -> None:
    session = AppendRequest.of_records([Record(b"a")], session=SessionRef("s", 0))
    with pytest.raises(errors.UnknownSessionError):
        service.log.append(TOPIC, 0, session)
    assert service.values() == []


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_batch_may_be_in_any_buffer_and_is_what_it_was_when_it_was_sent(
    service: Service, kind: Callable[[bytes], Any]
) -> None:
    sent = bytearray(batch.encode([Record(b"v")], now_ms=START_MS).body)
    request = AppendRequest.of_batch(kind(sent))
    sent[:] = bytes(len(sent))
    service.log.append(TOPIC, 0, request)
    assert service.values() == [b"v"]


def test_the_form_of_an_expectation_is_judged_before_anything_else() -> None:
    with pytest.raises(errors.InvalidRequestError) as refusal:
        request("a", "b", expected=[0])
    assert refusal.value.field == "expected_offset"
    with pytest.raises(errors.InvalidRequestError):
        AppendRequest.of_records([])


# One fault on the way to the commit


@pytest.mark.parametrize("fault", [loses_answer, is_repeated_below, never_arrives, conflicts, is_unavailable])
@pytest.mark.parametrize("times", [1, 2])
def test_an_append_survives_what_happens_to_its_create_and_is_stored_once(
    service: Service, fault: Any, times: int
) -> None:
    """The create meets our own object (its write-id), or never arrives, or conflicts: one segment each time."""
    append(service.log, "before")
    service.objects.plan("create", *[fault] * times)
    assert append(service.log, "a", producer=(7, 0, 0)) == Appended(1, 2, 1, False, -1, False, -1)
    assert append(service.log, "b", producer=(7, 0, 1)).base_offset == 2
    assert service.values() == [b"before", b"a", b"b"]


def test_a_create_that_is_sent_again_is_the_same_to_the_byte(service: Service) -> None:
    """A frozen group keeps its bytes, metadata and write-id, though the clock goes on."""
    append(service.log, "a")
    sent: list[Any] = []
    create = service.objects.create

    def seen(key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        sent.append((key, body, dict(metadata)))
        service.runtime.advance(1_000)
        create(key, body, metadata)

    service.objects.create = seen  # type: ignore[method-assign]
    service.objects.plan("create", never_arrives, conflicts, is_unavailable, loses_answer)
    append(service.log, "b")
    assert len(sent) == 5
    assert all(object_ == sent[0] for object_ in sent)


def test_another_offset_takes_another_write_id(service: Service) -> None:
    append(service.log, "a")
    append(service.another(), "rival")
    append(service.log, "b")
    ids = [segment.metadata.write_id for segment in service.segments()]
    assert len(set(ids)) == 3


def test_a_rivals_segment_is_folded_and_the_batch_is_judged_again_behind_it(service: Service) -> None:
    append(service.log, "a")
    append(service.another(), "rival", "rival")
    assert append(service.log, "b").base_offset == 3
    append(service.another(), "rival")
    with pytest.raises(errors.OffsetMismatchError) as refusal:
        append(service.log, "c", expected=4)
    assert refusal.value.next_offset == 5
    assert service.values() == [b"a", b"rival", b"rival", b"b", b"rival"]


def test_a_batch_that_a_rival_stored_meanwhile_is_a_duplicate(service: Service) -> None:
    """The producer's retry went to another process: 412, its segment is folded, and the batch is found there."""
    append(service.log, "a", producer=(7, 0, 0))
    append(service.another(), "b", producer=(7, 0, 1))
    assert append(service.log, "b", producer=(7, 0, 1)) == Appended(1, 2, 1, True, -1, False, -1)
    assert service.values() == [b"a", b"b"]


@pytest.mark.parametrize("fault", [never_arrives, conflicts, is_unavailable])
def test_a_create_without_an_answer_that_a_rival_has_beaten_goes_behind_the_rival(service: Service, fault: Any) -> None:
    append(service.log, "a")

    def beaten(call: Callable[[], Any]) -> None:
        append(service.another(), "rival")
        fault(call)

    service.objects.plan("create", beaten)
    assert append(service.log, "b").base_offset == 2
    assert service.values() == [b"a", b"rival", b"b"]


def test_an_unreachable_store_is_an_error_and_nothing_is_written(service: Service) -> None:
    append(service.log, "a")
    service.objects.always("create", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        append(service.log, "b")
    service.objects.always("create", None)
    assert append(service.log, "c").base_offset == 1
    assert service.values() == [b"a", b"c"]


@pytest.mark.parametrize("store", ["objects", "items"])
def test_an_unreachable_store_at_a_cold_start_is_an_error_too(service: Service, store: str) -> None:
    append(service.log, "a")
    cold, before = service.another(), creates(service)
    for operation in ("get", "list"):
        getattr(service, store).always(operation, is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        append(cold, "b")
    assert creates(service) == before


def test_conflicts_until_the_time_is_over_are_contended(service: Service) -> None:
    service.objects.always("create", conflicts)
    with pytest.raises(errors.ContendedError):
        append(service.log, "a")
    service.objects.always("create", None)
    assert service.values() == []


def test_rivals_that_win_until_the_time_is_over_are_contended(service: Service) -> None:
    rival = service.another(timeout_ms=10**9)
    is_rivals_turn = False

    def beaten(call: Callable[[], Any]) -> Any:
        nonlocal is_rivals_turn
        if not is_rivals_turn:
            is_rivals_turn = True
            append(rival, "rival")
            is_rivals_turn = False
            service.runtime.advance(1_000)
        return call()

    service.objects.always("create", beaten)
    with pytest.raises(errors.ContendedError):
        append(service.log, "a")
    service.objects.always("create", None)
    assert set(service.values()) == {b"rival"}


# Unknown outcomes


def test_no_answer_until_the_time_is_over_is_unknown(service: Service) -> None:
    append(service.log, "a")
    service.objects.always("create", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b")


def test_unavailable_behind_a_create_without_an_answer_is_unknown(service: Service) -> None:
    """STORE_UNAVAILABLE promises that nothing was written: not while one create at this offset is unknown."""
    service.objects.plan("create", loses_answer)
    service.objects.always("create", is_unavailable)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b")
    assert service.values() == [b"b"]


def test_a_412_that_cannot_be_read_is_unknown(service: Service) -> None:
    append(service.log, "a")
    service.objects.plan("create", is_repeated_below)
    service.objects.always("get", is_unavailable)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b")
    service.objects.always("get", None)
    assert service.values() == [b"a", b"b"]


@pytest.mark.parametrize("fault", [never_arrives, loses_answer])
def test_the_next_append_of_the_process_settles_the_frozen_group_first(service: Service, fault: Any) -> None:
    """The process never puts another batch at the offset whose outcome is unknown."""
    append(service.log, "a")
    service.objects.plan("create", fault)
    service.objects.always("create", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b", producer=(7, 0, 0))
    service.objects.always("create", None)
    assert append(service.log, "c").base_offset == 2
    assert append(service.log, "b", producer=(7, 0, 0)) == Appended(1, 2, 1, True, -1, False, -1)
    assert service.values() == [b"a", b"b", b"c"]


def test_a_frozen_group_beaten_by_a_rival_is_dropped_if_no_caller_waits(service: Service) -> None:
    append(service.log, "a")
    service.objects.always("create", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b")
    service.objects.always("create", None)
    append(service.another(), "rival")
    assert append(service.log, "c").base_offset == 2
    assert service.values() == [b"a", b"rival", b"c"]


def test_no_create_is_begun_with_less_time_left_than_it_may_take(service: Service) -> None:
    short = service.another(timeout_ms=1_000, create_ms=1_000)
    before = creates(service)
    with pytest.raises(errors.ContendedError):
        append(short, "a")
    assert creates(service) == before


# Damage


def damage(service: Service, offset: int, **changes: str) -> None:
    """Put a changed copy of the segment at ``offset`` in its place, as no protocol would."""
    store, key = service.objects.store, keys.segment_key(service.topic_id(), 0, offset)
    found = store.get(key)
    body = found.body if changes else found.body[:-1] + bytes([found.body[-1] ^ 1])
    store.delete(key)
    store.create(key, body, {**found.metadata, **changes})


@pytest.mark.parametrize("changes", [{}, {"records": "9"}, {"write-id": "other"}, {"chain": "0" * 64}])
def test_behind_a_damaged_segment_nothing_is_appended_and_it_is_left_as_it_is(
    service: Service, changes: dict[str, str]
) -> None:
    """A process that meets it as a rival's answers CORRUPT_LOG, and so does a cold one, each time it is asked."""
    append(service.log, "a")
    append(service.another(), "b")
    damage(service, 1, **changes)
    key = keys.segment_key(service.topic_id(), 0, 1)
    damaged = service.objects.store.get(key)
    for log in (service.log, service.log, service.another()):
        with pytest.raises(errors.CorruptLogError):
            append(log, "c")
    assert service.objects.store.get(key) == damaged
    assert len(service.objects.store.list("log/")) == 2


@pytest.mark.parametrize("member", ["next_offset", "bytes", "own_records"])
def test_a_batch_that_a_head_could_not_count_is_refused_before_its_create(service: Service, member: str) -> None:
    """In the log it would keep every later checkpoint, trim and rebuild from being written."""
    key = keys.head_item(service.topic_id(), 0)
    left = {"next_offset": 1, "bytes": 1, "own_records": 100}
    brim = PartitionState(**{"next_offset": 7, member: INT64_MAX - left[member]})
    service.items.store.write([Put(key, Head(brim, brim.next_offset).to_value(), 1, expected=None)])
    if member == "own_records":
        append(service.log, *["a"] * 100)
    before = len(service.objects.store.list("log/"))
    for log in (service.log, service.another()):
        with pytest.raises(errors.InvalidRequestError, match="63 bits"):
            append(log, "c", "d")
    assert len(service.objects.store.list("log/")) == before
    service.log.partitions.checkpoint(TOPIC, 0)


def test_a_missing_segment_is_corrupt_and_the_hole_is_not_filled(service: Service) -> None:
    for value in "abc":
        append(service.log, value)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 1))
    with pytest.raises(errors.CorruptLogError):
        append(service.another(), "d")
    assert len(service.objects.store.list("log/")) == 2


def test_others_of_the_process_are_served_once_the_damage_is_mended(service: Service) -> None:
    append(service.log, "a")
    append(service.another(), "b")
    key = keys.segment_key(service.topic_id(), 0, 1)
    sound = service.objects.store.get(key)
    damage(service, 1)
    with pytest.raises(errors.CorruptLogError):
        append(service.log, "c")
    service.objects.store.delete(key)
    service.objects.store.create(key, sound.body, sound.metadata)
    assert append(service.log, "d").base_offset == 2
    assert service.values() == [b"a", b"b", b"d"]


# I7: a process that was frozen


def frozen(service: Service, meanwhile: Callable[[], None], *, monotonic_ms: float) -> Any:
    """Return the fault of a create that succeeds; the process is then frozen for over a minute.

    Meanwhile others do ``meanwhile``.
    """

    def fault(call: Callable[[], Any]) -> None:
        call()
        service.runtime.advance(MINUTE_MS + 1, monotonic_ms=monotonic_ms)
        meanwhile()

    return fault


def away(service: Service, meanwhile: Callable[[], None], *, monotonic_ms: float) -> Any:
    """Return the fault of a create that arrives only after the process was frozen."""

    def fault(call: Callable[[], Any]) -> None:
        service.runtime.advance(MINUTE_MS + 1, monotonic_ms=monotonic_ms)
        meanwhile()
        call()

    return fault


@pytest.mark.parametrize("monotonic_ms", [0, MINUTE_MS + 1])
@pytest.mark.parametrize("freeze", [frozen, away])
def test_a_thawed_process_looks_again_before_it_acknowledges(
    service: Service, freeze: Any, monotonic_ms: float
) -> None:
    append(service.log, "a")
    looks = service.items.calls["get"]
    service.objects.plan("create", freeze(service, lambda: None, monotonic_ms=monotonic_ms))
    assert append(service.log, "b").base_offset == 1
    assert service.items.calls["get"] == looks + 1


def test_a_clock_that_was_set_back_does_not_make_an_old_look_young(service: Service) -> None:
    append(service.log, "a")
    service.runtime.advance(-MINUTE_MS, monotonic_ms=1)
    looks: list[str] = []
    service.items.on_call = lambda operation, key: looks.append(key)
    append(service.log, "b")
    assert f"{TOPIC},head" in looks


def test_a_clock_that_was_set_back_costs_one_look_and_no_more(service: Service) -> None:
    """The newest look is the one that began last, not the one at the wall clock's latest time.

    Otherwise no look would be young again.
    """
    append(service.log, "a")
    service.log.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(-MINUTE_MS, monotonic_ms=1)
    looks = service.items.calls["get"]
    append(service.log, "b")
    assert only_partition_of(service.log).has_young_look
    assert service.items.calls["get"] == looks + 2  # the name; topic and head
    append(service.log, "c")
    assert service.items.calls["get"] == looks + 2


@pytest.mark.parametrize(("took_ms", "is_old"), [(MINUTE_MS - 1, False), (MINUTE_MS, True)])
def test_a_resolved_name_ages_from_the_beginning_of_the_read(service: Service, took_ms: int, *, is_old: bool) -> None:
    """A process that is frozen while it waits for the answer knows what was true before."""

    def is_slow(call: Any) -> Any:
        found = call()
        service.runtime.advance(took_ms)
        return found

    resolver = service.another()._resolver
    service.items.plan("get", is_slow)
    assert resolver.resolve(TOPIC, 0)[1]
    assert resolver.resolve(TOPIC, 0)[1] is is_old


def by_the_wall(service: Service, duration_ms: int) -> None:
    service.runtime.advance(duration_ms, monotonic_ms=0)


def by_the_monotonic_clock(service: Service, duration_ms: int) -> None:
    """Let time pass, and set the machine's clock back by just as much."""
    service.runtime.advance(0, monotonic_ms=duration_ms)


def by_an_event(service: Service, duration_ms: int) -> None:
    """Let a request come after a freeze in which neither of the machine's clocks moved."""
    service.log.note_event(START_MS + duration_ms)


CLOCKS = [by_the_wall, by_the_monotonic_clock, by_an_event]


@pytest.mark.parametrize("passes", CLOCKS)
def test_a_read_is_young_only_by_every_clock(service: Service, passes: Callable[[Service, int], None]) -> None:
    """Each clock alone makes a look old, at 60 s and not before."""
    service.log.note_event(START_MS)
    append(service.log, "a")
    service.log.partitions.checkpoint(TOPIC, 0)
    looks = service.items.calls["get"]
    passes(service, MINUTE_MS - 1)
    append(service.log, "b")
    assert service.items.calls["get"] == looks
    passes(service, 1 if passes is not by_an_event else MINUTE_MS)
    keys_read: list[str] = []
    service.items.on_call = lambda operation, key: keys_read.append(key)
    append(service.log, "c")
    assert keys_read.count(TOPIC) == 1  # what the name leads to
    assert keys_read.count(f"{TOPIC},head") == 1


@pytest.mark.parametrize("passes", CLOCKS)
def test_a_process_frozen_by_one_clock_acknowledges_nothing_in_a_collected_log(
    service: Service, passes: Callable[[Service, int], None]
) -> None:
    """By the other two clocks no time has passed, and no object is left at the key that the process would create."""
    service.log.note_event(START_MS)
    append(service.log, "a")
    other = service.another()
    append(other, "b", "c")
    other.partitions.trim(TOPIC, 0, 3)
    for base in (0, 1):
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, base))
    passes(service, 2 * 60 * MINUTE_MS)
    assert append(service.log, "d").base_offset == 3
    assert [record.value for record in service.records(offset=3)] == [b"d"]


def test_an_event_from_the_future_costs_one_look_and_no_more(service: Service) -> None:
    """A gateway's clock is wrong for once: a look that begins later is young by that clock."""
    append(service.log, "a")
    looks = service.items.calls["get"]
    service.log.note_event(START_MS + 10**12)
    append(service.log, "b")
    assert service.items.calls["get"] == looks + 2
    for n in range(5):
        service.log.note_event(START_MS + n)
        append(service.log, "c")
    assert service.items.calls["get"] == looks + 2


def test_event_times_out_of_order_take_no_clock_back(service: Service) -> None:
    """A request was delivered late, or its thread was slow; another request's time shows a freeze."""
    service.log.note_event(START_MS)
    append(service.log, "a")
    service.log.note_event(START_MS + MINUTE_MS)
    service.log.note_event(START_MS + 1)
    looks = service.items.calls["get"]
    append(service.log, "b")
    assert service.items.calls["get"] == looks + 2


@pytest.mark.parametrize("freeze", [frozen, away])
def test_a_batch_that_a_trim_went_past_meanwhile_is_unknown(service: Service, freeze: Any) -> None:
    append(service.log, "a")

    def trimmed() -> None:
        other = service.another()
        append(other, "b", "c")
        other.partitions.trim(TOPIC, 0, 3 if freeze is away else 4)
        if freeze is away:  # and collected, so that the late create lands in the void
            service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 1))

    service.objects.plan("create", freeze(service, trimmed, monotonic_ms=0))
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "late")
    follows = append(service.log, "d")
    assert follows.base_offset == (3 if freeze is away else 4)
    assert [r.value for r in service.records(offset=follows.base_offset)] == [b"d"]


@pytest.mark.parametrize("is_created_anew", [False, True])
@pytest.mark.parametrize("freeze", [frozen, away])
def test_a_batch_of_a_topic_that_was_deleted_meanwhile_is_never_acknowledged(
    service: Service, freeze: Any, is_created_anew: bool
) -> None:
    append(service.log, "a")
    other = service.another()

    def deleted() -> None:
        topic_id = service.topic_id()
        other.topics.delete(TOPIC)
        if is_created_anew:
            other.topics.create(TOPIC)
        if freeze is away:  # and all of it collected
            for line in service.objects.store.list(keys.log_prefix(topic_id, 0)):
                service.objects.store.delete(line.key)

    service.objects.plan("create", freeze(service, deleted, monotonic_ms=0))
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "late")
    if is_created_anew:
        assert service.values() == []
        assert append(service.log, "new").base_offset == 0
    else:
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            append(service.log, "later")


@pytest.mark.parametrize("monotonic_ms", [0, MINUTE_MS + 1])
def test_a_process_frozen_before_it_reads_a_producer_does_not_take_what_was_collected_for_damage(
    service: Service, monotonic_ms: float
) -> None:
    """The producer's item is ahead of all that the process knows, and what lies between is gone."""
    append(service.log, "a")
    producer = keys.producer_item(service.topic_id(), 0, 9).sort

    def freezes(operation: str, key: str) -> None:
        if key == producer:
            service.items.on_call = None
            other = service.another()
            append(other, "b", producer=(9, 0, 0))
            other.partitions.trim(TOPIC, 0, 2)
            service.runtime.advance(MINUTE_MS + 1, monotonic_ms=monotonic_ms)
            for offset in (0, 1):
                service.objects.store.delete(keys.segment_key(service.topic_id(), 0, offset))

    service.items.on_call = freezes
    if monotonic_ms:
        with pytest.raises(errors.StoreUnavailableError):  # end of the caller's time
            append(service.log, "c", producer=(9, 0, 1))
    assert append(service.log, "c", producer=(9, 0, 1)).base_offset == 2
    assert service.items.on_call is None


def collected(service: Service, late: str, passes: Callable[[Service, int], None], *, of: int) -> Callable[[], None]:
    """Return what others do while a process is frozen: the log moves on, is collected, and a late create lands in it.

    The late create is of another frozen process, at the end of the log as it is now. The log moves on to offset 3, and
    its start with it.

    Args:
        late: What the late create's records hold.
        of: How many records it has.
    """
    base = service.log.partitions.offsets(TOPIC, 0).next_offset
    key = keys.segment_key(service.topic_id(), 0, base)
    append(service.another(), *[late] * of)
    created = service.objects.store.get(key)
    service.objects.store.delete(key)

    def meanwhile() -> None:
        other = service.another()
        append(other, "b", producer=(9, 0, 0))
        append(other, "c")
        other.partitions.trim(TOPIC, 0, 3)
        passes(service, HOUR_MS + MINUTE_MS)
        for line in service.objects.store.list(keys.log_prefix(service.topic_id(), 0)):
            if line.key < keys.segment_key(service.topic_id(), 0, 2):
                service.objects.store.delete(line.key)
        service.objects.store.create(key, created.body, created.metadata)

    return meanwhile


@pytest.mark.parametrize("passes", [by_the_wall, by_an_event])
def test_no_batch_is_judged_on_a_late_create_that_was_folded_while_the_look_turned_old(
    service: Service, passes: Callable[[Service, int], None]
) -> None:
    """I3: a segment that followed from the late create would leave the log damaged for good.

    The process is frozen after it freshened, before it reads its producer's item. The late create ends where the log
    ends, so the create there succeeds.
    """
    append(service.log, "a")
    meanwhile = collected(service, "late", passes, of=2)
    producer = keys.producer_item(service.topic_id(), 0, 9).sort

    def freezes(operation: str, key: str) -> None:
        if key == producer:
            service.items.on_call = None
            meanwhile()

    service.items.on_call = freezes
    assert append(service.log, "d", producer=(9, 0, 1)).base_offset == 3
    assert service.items.on_call is None
    assert append(service.another(), "e").base_offset == 4
    assert [record.value for record in service.records(offset=3)] == [b"d", b"e"]


def reads(log: Log) -> list[bytes | None]:
    return [record.value for record in log.partitions.read(TOPIC, 0, ReadRequest(offset=3)).records]


def appends(log: Log) -> int:
    return append(log, "d").base_offset


@pytest.mark.parametrize("passes", [by_the_wall, by_an_event])
@pytest.mark.parametrize(("use", "answer"), [(reads, []), (appends, 3)])
@pytest.mark.parametrize("has_head", [False, True])
def test_a_process_frozen_between_its_look_and_its_listing_takes_no_late_create_for_damage(
    service: Service,
    passes: Callable[[Service, int], None],
    use: Callable[[Log], object],
    answer: object,
    *,
    has_head: bool,
) -> None:
    """I4: a chain that does not follow, met with an old look, means: look again. So does a hole. The log is healthy."""
    append(service.log, "a")
    if has_head:  # so the late create follows from it, and what is listed behind the late create does not
        service.log.partitions.checkpoint(TOPIC, 0)
    meanwhile = collected(service, "late", passes, of=1)
    service.log = service.another()

    def freezes(call: Callable[[], Any]) -> Any:
        meanwhile()
        return call()

    service.objects.plan("list", freezes)
    assert use(service.log) == answer


def test_a_chain_that_does_not_follow_is_damage_to_a_process_that_has_just_looked(service: Service) -> None:
    append(service.log, "a")
    key = keys.segment_key(service.topic_id(), 0, 0)
    first = service.objects.store.get(key)
    append(service.another(), "b")
    service.objects.store.delete(key)
    service.objects.store.create(key, first.body, {**first.metadata, "write-id": "0" * 32})
    with pytest.raises(errors.CorruptLogError, match="chain value does not follow"):
        append(service.another(), "c")


def test_a_topic_that_is_deleted_with_a_damaged_log_is_said_to_be_damaged(service: Service) -> None:
    """DELETE looks at a topic that is going. That look lets no append be acknowledged, but it shows damage."""
    append(service.log, "a")
    append(service.another(), "b")
    damage(service, 1)
    for _ in range(2):
        with pytest.raises(errors.CorruptLogError):
            service.another().topics.delete(TOPIC)


def test_a_producer_that_is_ahead_of_the_log_is_damage_to_a_process_that_has_just_looked(service: Service) -> None:
    append(service.log, "a", producer=(9, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    key, items = keys.head_item(service.topic_id(), 0), service.items.store
    items.write([Delete(key, items.get([key])[key].version)])
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 0))
    with pytest.raises(errors.CorruptLogError, match="ahead of the log"):
        append(service.another(), "b", producer=(9, 0, 1))


def test_items_that_cannot_be_read_after_the_create_leave_it_unknown_until_they_can(service: Service) -> None:
    append(service.log, "a")
    service.objects.plan("create", frozen(service, lambda: None, monotonic_ms=0))
    service.items.always("get", is_unavailable)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b", producer=None)
    service.items.always("get", None)
    assert append(service.log, "c").base_offset == 2
    assert service.values() == [b"a", b"b", b"c"]


def test_a_deleted_topics_seal_stops_who_has_not_looked(service: Service) -> None:
    """No clock moves: the log itself says that the topic's incarnation ended, and the name is resolved anew."""
    append(service.log, "a")
    other = service.another()
    other.topics.delete(TOPIC)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        append(service.log, "b")
    other.topics.create(TOPIC)
    assert append(service.log, "c").base_offset == 0
    assert service.values() == [b"c"]


# I4: refusals, from a verified tail only


def test_a_refusal_is_judged_behind_what_another_process_appended_unseen(service: Service) -> None:
    """This process's memory would refuse each of these; the log says otherwise."""
    append(service.log, "a", producer=(7, 0, 0))
    rival = service.another()
    append(rival, "b", producer=(7, 0, 1))
    assert append(service.log, "c", expected=2).base_offset == 2
    append(rival, "d", producer=(7, 0, 2))
    assert append(service.log, "e", producer=(7, 0, 3)).base_offset == 4
    append(rival, "f", producer=(7, 1, 0))
    assert append(service.log, "g", producer=(7, 1, 1)).base_offset == 6
    assert service.values() == [bytes([c]) for c in b"abcdefg"]


def test_a_refusal_names_the_true_next_offset(service: Service) -> None:
    append(service.log, "a")
    append(service.another(), "b", "c")
    with pytest.raises(errors.OffsetMismatchError) as refusal:
        append(service.log, "d", expected=1)
    assert refusal.value.next_offset == 3


def test_a_refusal_is_given_only_after_a_look_for_the_next_key(service: Service) -> None:
    append(service.log, "a")
    key = keys.segment_key(service.topic_id(), 0, 1)
    looks: list[str] = []
    service.objects.on_call = lambda operation, key: looks.append(f"{operation} {key}")
    with pytest.raises(errors.OffsetMismatchError):
        append(service.log, "b", expected=5)
    assert looks == [f"get {key}"]


def test_a_refusal_waits_for_a_store_that_can_be_asked(service: Service) -> None:
    append(service.log, "a")
    service.objects.always("get", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        append(service.log, "b", expected=5)


def test_a_refusal_by_an_old_look_takes_a_new_one(service: Service) -> None:
    """The key after a state that retention went past is absent, and proves nothing (I4)."""
    append(service.log, "a")
    other = service.another()
    append(other, "b")
    other.partitions.trim(TOPIC, 0, 2)
    for offset in (0, 1):
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, offset))
    service.runtime.advance(MINUTE_MS)
    with pytest.raises(errors.OffsetMismatchError) as refusal:
        append(service.log, "c", expected=1)
    assert refusal.value.next_offset == 2


def test_a_process_that_adopts_a_head_forgets_what_it_knew_of_producers(service: Service) -> None:
    """The process's own memory is older than that head: judged by it, the producer's retry would be stored twice."""
    append(service.log, "a", producer=(7, 0, 0))
    other = service.another()
    append(other, "b", producer=(7, 0, 1))
    other.partitions.checkpoint(TOPIC, 0)
    service.runtime.advance(MINUTE_MS)
    assert append(service.log, "b", producer=(7, 0, 1)) == Appended(1, 2, 1, True, -1, False, -1)
    assert service.values() == [b"a", b"b"]


# Group commit


def test_waiting_batches_are_one_segment_and_a_refused_one_shifts_no_other(live_service: Service) -> None:
    service = live_service
    append(service.log, "a", producer=(7, 0, 0))
    gate = Gate()
    service.objects.plan("create", gate)
    calls: list[Callable[[], Any]] = [lambda: append(service.log, "b")]
    waiting: list[Callable[[], Any]] = [
        lambda: append(service.log, "c", "c"),
        lambda: append(service.log, "never", expected=77),
        lambda: append(service.log, "a", producer=(7, 0, 0)),
        lambda: append(service.log, "d", expected=4),
        lambda: append(service.log, "e", producer=(7, 0, 1)),
        lambda: append(service.log, "f", producer=(7, 0, 2)),
    ]
    before = creates(service)
    with ThreadPoolExecutor(len(calls) + len(waiting)) as pool:
        first = pool.submit(calls[0])
        assert gate.reached.wait(PATIENCE_S)
        others = []
        for count, call in enumerate(waiting):
            others.append(pool.submit(call))
            wait_until(lambda count=count: queued(service) == count + 1)  # type: ignore[misc]
        gate.opened.set()
    assert first.result().base_offset == 1
    assert others[0].result() == Appended(2, 4, 2, False, -1, False, -1)
    assert isinstance(others[1].exception(), errors.OffsetMismatchError)
    assert others[2].result() == Appended(0, 1, 1, True, -1, False, -1)
    assert others[3].result() == Appended(4, 5, 1, False, -1, True, -1)
    assert [other.result().base_offset for other in others[4:]] == [5, 6]
    assert creates(service) == before + 2
    assert service.values() == [b"a", b"b", b"c", b"c", b"d", b"e", b"f"]


def test_a_duplicate_within_one_group_is_answered_with_the_offset_of_its_twin(live_service: Service) -> None:
    """A retry overtook the answer: both wait for the same create."""
    service = live_service
    append(service.log, "a")
    gate = Gate()
    service.objects.plan("create", gate)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(append, service.log, "b")
        assert gate.reached.wait(PATIENCE_S)
        twins = [pool.submit(append, service.log, "c", producer=(7, 0, 0)) for _ in range(2)]
        wait_until(lambda: queued(service) == 2)
        gate.opened.set()
    assert sorted((t.result().base_offset, t.result().duplicate) for t in twins) == [(2, False), (2, True)]


def test_many_threads_share_creates_and_leave_no_gap(live_service: Service) -> None:
    service = live_service
    threads, each = 8, 25
    append(service.log, "first")
    before = creates(service)

    def work(thread: int) -> list[Appended]:
        return [append(service.log, f"{thread}-{n}", producer=(thread, 0, n)) for n in range(each)]

    slow = service.objects.store.create

    def create(*object_: Any) -> None:
        threading.Event().wait(0.02)
        slow(*object_)

    service.objects.store.create = create  # type: ignore[method-assign]
    with ThreadPoolExecutor(threads) as pool:
        answers = [answer for answers in pool.map(work, range(threads)) for answer in answers]
    assert sorted(answer.base_offset for answer in answers) == list(range(1, threads * each + 1))
    assert creates(service) - before < threads * each / 2
    found = service.records()
    assert [r.offset for r in found] == list(range(threads * each + 1))
    for thread in range(threads):
        mine = [r.value for r in found if r.value is not None and r.value.startswith(f"{thread}-".encode())]
        assert mine == [f"{thread}-{n}".encode() for n in range(each)]


def test_a_group_takes_no_batch_beyond_the_size_of_a_segment(live_service: Service) -> None:
    service = live_service
    service.log.topics.alter(TOPIC, config={"max.message.bytes": 4_194_304})
    append(service.log, "a")
    gate = Gate()
    service.objects.plan("create", gate)
    large = "x" * 3_000_000
    with ThreadPoolExecutor(6) as pool:
        pool.submit(append, service.log, "b")
        assert gate.reached.wait(PATIENCE_S)
        for count in range(5):
            pool.submit(append, service.log, large)
            wait_until(lambda count=count: queued(service) == count + 1)  # type: ignore[misc]
        gate.opened.set()
    sizes = [len(segment.body) for segment in service.segments()]
    assert max(sizes) <= SEGMENT_BYTES_MAX
    assert [size // 3_000_000 for size in sizes] == [0, 0, 2, 2, 1]


def test_a_caller_who_leaves_while_the_leader_still_reads_is_never_written_after_all() -> None:
    """CONTENDED promises that nothing was written.

    That binds the group, too, that has already taken the request in.
    """
    service = serve(timeout_ms=300)
    service.log.topics.create(TOPIC)
    append(service.log, "a")
    creating, reading = Gate(), Gate()
    service.objects.plan("create", creating)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(append, service.log, "b")
        assert creating.reached.wait(PATIENCE_S)
        # One of these two leads next, and takes the other's request into its group. Both have a producer to be read.
        pair = {value: pool.submit(append, service.log, value, producer=(ord(value), 0, 0)) for value in "cd"}
        wait_until(lambda: queued(service) == 2)
        service.items.plan("get", reading)
        creating.opened.set()
        assert reading.reached.wait(PATIENCE_S)
        service.runtime.advance(301)
        wait_until(lambda: any(future.done() for future in pair.values()))
        reading.opened.set()
    refused = [value.encode() for value, future in pair.items() if isinstance(future.exception(), errors.RetryError)]
    assert refused
    assert not set(refused) & set(service.values())
    service.close()


def test_a_caller_who_leaves_while_the_leader_cannot_read_is_never_written_after_all() -> None:
    """It is not written either where the leader's reading fails and the requests go back into the queue."""
    service = serve(timeout_ms=300)
    service.log.topics.create(TOPIC)
    append(service.log, "a")
    creating, reading = Gate(), Gate()
    service.objects.plan("create", creating)
    with ThreadPoolExecutor(3) as pool:
        pool.submit(append, service.log, "b")
        assert creating.reached.wait(PATIENCE_S)
        pair = {value: pool.submit(append, service.log, value, producer=(ord(value), 0, 0)) for value in "cd"}
        wait_until(lambda: queued(service) == 2)
        service.items.plan("get", lambda call: (reading(lambda: None), is_unavailable(call)))
        creating.opened.set()
        assert reading.reached.wait(PATIENCE_S)
        service.runtime.advance(301)
        wait_until(lambda: any(future.done() for future in pair.values()))
        reading.opened.set()
    append(service.log, "e")
    refused = [value.encode() for value, future in pair.items() if isinstance(future.exception(), errors.RetryError)]
    assert refused
    assert not set(refused) & set(service.values())
    service.close()


# The topic's configuration


def configured(service: Service, **config: Any) -> None:
    service.log.topics.alter(TOPIC, config={name.replace("_", "."): value for name, value in config.items()})


def test_log_append_time_is_the_servers_also_for_a_duplicate(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    first = append(service.log, "a", "b", timestamp=5, producer=(7, 0, 0))
    assert first.timestamp == START_MS
    service.runtime.advance(1_000)
    again = append(service.another(), "a", "b", timestamp=5, producer=(7, 0, 0))
    assert (again.duplicate, again.timestamp) == (True, START_MS)
    assert [r.timestamp for r in service.records()] == [START_MS, START_MS]
    assert service.another().partitions.offset_at(TOPIC, 0, START_MS) == (0, START_MS)


@pytest.mark.parametrize(
    ("type", "codec"), [("producer", 0), ("none", 0), ("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4)]
)
def test_records_are_encoded_as_the_topic_says_and_a_binary_batch_keeps_its_bytes(
    service: Service, type: str, codec: int
) -> None:
    service.log.topics.alter(TOPIC, config={"compression.type": type})
    append(service.log, *["a" * 100] * 5)
    sent = batch.encode([Record(b"a" * 100)] * 5, now_ms=START_MS, codec="lz4").body
    service.log.append(TOPIC, 0, AppendRequest.of_batch(sent))
    json_, binary = service.segments()
    assert json_.batches[0][1].codec == codec
    assert binary.batches[0][1].codec == 3
    assert binary.body[21:] == sent[21:]
    assert service.values() == [b"a" * 100] * 10


def test_a_batch_may_have_exactly_max_message_bytes_as_it_is_stored(service: Service) -> None:
    size = batch.encode([Record(b"x" * 100)], now_ms=START_MS).header.size
    service.log.topics.alter(TOPIC, config={"max.message.bytes": size})
    append(service.log, "x" * 100)
    with pytest.raises(errors.MessageTooLargeError) as refusal:
        append(service.log, "x" * 101)
    assert refusal.value.bytes_max == size
    service.log.topics.alter(TOPIC, config={"compression.type": "gzip"})
    append(service.log, "x" * 101)


def test_timestamps_are_bounded_on_both_sides_and_every_bad_record_is_named(service: Service) -> None:
    service.log.topics.alter(
        TOPIC, config={"message.timestamp.before.max.ms": 1_000, "message.timestamp.after.max.ms": 500}
    )
    times = [START_MS - 1_000, START_MS - 1_001, START_MS, START_MS + 500, START_MS + 501]
    records = [Record(b"x", timestamp=time) for time in times]
    with pytest.raises(errors.InvalidTimestampError) as refusal:
        service.log.append(TOPIC, 0, AppendRequest.of_records(records))
    assert [error["index"] for error in refusal.value.record_errors] == [1, 4]
    service.log.append(TOPIC, 0, AppendRequest.of_records([records[0], records[2], records[3]]))
    service.log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    service.log.append(TOPIC, 0, AppendRequest.of_records(records))


def test_a_timestamp_of_minus_one_passes_the_bounds_in_a_binary_batch(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"message.timestamp.before.max.ms": 1_000})
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
    builder.append(0, -1, None, b"a", [])
    service.log.append(TOPIC, 0, AppendRequest.of_batch(bytes(builder.build())))
    assert [r.timestamp for r in service.records()] == [-1]


def test_a_timestamp_of_minus_one_is_not_blamed_for_its_neighbours(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"message.timestamp.before.max.ms": 1_000})
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 1_000)
    for offset, timestamp in enumerate([START_MS, -1, 5]):
        builder.append(offset, timestamp, None, b"a", [])
    with pytest.raises(errors.InvalidTimestampError) as refusal:
        service.log.append(TOPIC, 0, AppendRequest.of_batch(bytes(builder.build())))
    assert [error["index"] for error in refusal.value.record_errors] == [2]


def test_a_compacted_topic_takes_no_record_without_a_key(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"cleanup.policy": "compact"})
    records = [Record(b"a", key=b"k"), Record(b"b"), Record(None, key=b""), Record(None)]
    for make in (
        lambda: AppendRequest.of_records(records),
        lambda: AppendRequest.of_batch(batch.encode(records, now_ms=START_MS, codec="gzip").body),
    ):
        with pytest.raises(errors.InvalidRecordError) as refusal:
            service.log.append(TOPIC, 0, make())
        assert [error["index"] for error in refusal.value.record_errors] == [1, 3]
    service.log.append(TOPIC, 0, AppendRequest.of_records(records[::2]))


def test_size_comes_before_timestamps_and_timestamps_before_keys_and_all_before_the_log(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"cleanup.policy": "compact", "max.message.bytes": 200})
    with pytest.raises(errors.MessageTooLargeError):
        append(service.log, "x" * 200, timestamp=START_MS * 2, expected=7)
    with pytest.raises(errors.InvalidTimestampError):
        append(service.log, "x", timestamp=START_MS * 2, expected=7)
    with pytest.raises(errors.InvalidRecordError):
        append(service.log, "x", expected=7)
    keyed = AppendRequest.of_records([Record(b"x", key=b"k")], expected_offset=7)
    with pytest.raises(errors.OffsetMismatchError):
        service.log.append(TOPIC, 0, keyed)


def test_a_bad_timestamp_is_reported_before_a_missing_key_with_its_own_records(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"cleanup.policy": "compact"})
    records = [Record(b"a"), Record(b"b", key=b"k", timestamp=START_MS * 2), Record(b"c"), Record(b"d", key=b"k")]
    for make in (
        lambda: AppendRequest.of_records(records),
        lambda: AppendRequest.of_batch(batch.encode(records, now_ms=START_MS).body),
    ):
        with pytest.raises(errors.InvalidTimestampError) as refusal:
            service.log.append(TOPIC, 0, make())
        assert [error["index"] for error in refusal.value.record_errors] == [1]
    service.log.topics.alter(TOPIC, config={"message.timestamp.type": "LogAppendTime"})
    # There the server sets the times, so that none is bad.
    with pytest.raises(errors.InvalidRecordError):
        service.log.append(TOPIC, 0, AppendRequest.of_records(records))


def test_a_producers_state_lapses_as_the_topic_says(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    append(service.log, "a", producer=(7, 3, 10))
    service.runtime.advance(1_000)
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(service.log, "b", producer=(7, 3, 50))
    service.runtime.advance(1)
    append(service.log, "b", producer=(7, 3, 50))
    append(service.log, "c", producer=(7, 3, 51))
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(service.log, "a", producer=(7, 3, 10))
    assert service.values() == [b"a", b"b", b"c"]


# Old configurations


def test_a_process_may_accept_by_a_configuration_up_to_a_minute_old(service: Service) -> None:
    append(service.log, "a")
    service.another().topics.alter(TOPIC, config={"max.message.bytes": 100})
    service.runtime.advance(MINUTE_MS - 1)
    append(service.log, "x" * 100)
    service.runtime.advance(1)
    with pytest.raises(errors.MessageTooLargeError):
        append(service.log, "x" * 100)


@pytest.mark.parametrize("after_ms", [0, 1, MINUTE_MS - 1])
def test_a_process_refuses_by_a_configuration_only_after_a_fresh_look(service: Service, after_ms: int) -> None:
    configured(service, max_message_bytes=100)
    append(service.log, "a")
    service.another().topics.alter(TOPIC, config={"max.message.bytes": 1_000})
    service.runtime.advance(after_ms)
    assert append(service.log, "x" * 100).base_offset == 1


@pytest.mark.parametrize("is_checking", [True, False])
@pytest.mark.parametrize("after_ms", [0, 1])
def test_an_expectation_is_never_judged_by_an_old_switch(service: Service, is_checking: bool, after_ms: int) -> None:
    """A config may be up to 60 s old (contract, "Topics").

    Where an expectation is named, its check.expected.offsets may never be old.
    """
    configured(service, check_expected_offsets=not is_checking)
    append(service.log, "a")
    service.another().topics.alter(TOPIC, config={"check.expected.offsets": is_checking})
    service.runtime.advance(after_ms)
    if is_checking:
        with pytest.raises(errors.OffsetMismatchError):
            append(service.log, "b", expected=77)
    else:
        assert append(service.log, "b", expected=77).expected_offset_checked is False


def test_a_correct_expected_offset_is_not_answered_as_checked_by_an_outdated_config(service: Service) -> None:
    append(service.log, "a")
    service.another().topics.alter(TOPIC, config={"check.expected.offsets": False})
    service.runtime.advance(1)
    assert append(service.log, "b", expected=1).expected_offset_checked is False


def test_a_sequence_is_never_refused_by_an_old_expiration(service: Service) -> None:
    """A refusal by the config is judged after a fresh look (protocol, "Old knowledge of a topic")."""
    append(service.log, "a", producer=(7, 0, 0))
    service.another().topics.alter(TOPIC, config={"producer.id.expiration.ms": 1_000})
    service.runtime.advance(1_001)
    assert append(service.log, "b", producer=(7, 0, 50)).base_offset == 1


def test_a_process_that_looks_each_time_knows_a_change_at_once(service: Service) -> None:
    dev = service.another(item_age_ms=0)
    append(dev, "a")
    service.another().topics.alter(TOPIC, config={"max.message.bytes": 100})
    with pytest.raises(errors.MessageTooLargeError):
        append(dev, "x" * 100)


def test_a_partition_that_was_added_elsewhere_is_found(service: Service) -> None:
    append(service.log, "a")
    service.another().topics.alter(TOPIC, partitions=3)
    answer = service.log.append(TOPIC, 2, request("b"))
    assert answer is not None
    assert service.values(partition=2) == [b"b"]
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        service.log.append(TOPIC, 3, request("c"))


# Checkpoints


def test_a_checkpoint_that_cannot_be_written_fails_no_append(service: Service) -> None:
    for fault in (is_unavailable, never_arrives, loses_answer, moves):
        service.items.always("write", fault)
        for _ in range(20):
            append(service.log, "a", producer=None)
        service.runtime.advance(11_000)
        append(service.log, "a")
    service.items.always("write", None)
    service.runtime.advance(11_000)
    append(service.log, "a")
    head = keys.head_item(service.topic_id(), 0)
    assert service.items.store.get([head])[head].value["next_offset"] == 85
    assert len(service.values()) == 85


@pytest.mark.parametrize("seed", range(4))
def test_processes_with_checkpoints_between_know_every_producer(seed: int) -> None:
    """Warm and cold processes take turns: each knows each producer as if it had folded the whole log."""
    chance = random.Random(seed)
    service = serve(FakeRuntime())
    service.log.topics.create(TOPIC)
    logs = [service.another() for _ in range(3)]
    sequences = dict.fromkeys(range(6), 0)
    for _ in range(150):
        log = chance.choice(logs)
        producer = chance.choice(list(sequences))
        event = chance.random()
        if event < 0.05:
            logs[logs.index(log)] = service.another()
        elif event < 0.1:
            service.runtime.advance(11_000)
        elif event < 0.15:
            log.partitions.checkpoint(TOPIC, 0)
        elif event < 0.3 and sequences[producer]:
            assert append(log, "x", producer=(producer, 0, sequences[producer] - 1)).duplicate
        elif event < 0.4 and sequences[producer]:
            with pytest.raises(errors.OutOfOrderSequenceNumberError):
                append(log, "x", producer=(producer, 0, sequences[producer] + 1_000))
        else:
            assert not append(log, "x", producer=(producer, 0, sequences[producer])).duplicate
            sequences[producer] += 1
    assert len(service.values()) == sum(sequences.values())
    service.close()


def test_a_page_and_an_append_of_one_process_share_what_they_know(service: Service) -> None:
    append(service.another(), "a")
    assert [r.value for r in service.log.partitions.read(TOPIC, 0, ReadRequest(offset=0)).records] == [b"a"]
    before = creates(service)
    assert append(service.log, "b").base_offset == 1
    assert creates(service) == before + 1
