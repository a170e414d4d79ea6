"""Pages, from logs made without an appender, so that transactions and replicated records are in them, too."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import errors, limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import OffsetOutOfRangeError
from fenceline.format import batch, control, keys
from fenceline.format.segment import Replicated
from fenceline.model import record as model_record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Page
from fenceline.read.aborted import aborted_between
from fenceline.service.log import Log
from tests.support.patience import PATIENCE_S, without_a_stall
from tests.support.runtime import START_MS
from tests.support.service import (
    TOPIC,
    Gate,
    LogBuilder,
    Service,
    access,
    append,
    data,
    is_unavailable,
    marker,
    only_partition_of,
    outcome,
    serve,
)
from tests.support.tries import tries


def read(log: Log, offset: int | None = 0, **options: Any) -> Page:
    return log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, **options))


def offsets(page: Page) -> list[int]:
    return [record.offset for record in page.records]


def log_of(service: Service) -> LogBuilder:
    return LogBuilder(topic_id=service.topic_id())


# Pages


def test_a_page_has_what_was_produced(service: Service) -> None:
    request = model_record.Record(b"v", b"k", (("h", b"1"), ("h", None)), START_MS - 5)

    service.log.append(TOPIC, 0, AppendRequest.of_records([request, model_record.Record(None)]))
    one, two = read(service.log).records
    assert (one.offset, one.timestamp, one.key, one.value, [*one.headers]) == (
        0,
        START_MS - 5,
        b"k",
        b"v",
        [("h", b"1"), ("h", None)],
    )
    assert (one.topic_epoch, one.origin) == (-1, None)
    assert (two.key, two.value, two.timestamp) == (None, None, START_MS)


def test_a_page_begins_and_ends_inside_batches(service: Service) -> None:
    append(service.log, *"abcde")
    append(service.log, *"fgh")
    page = read(service.log, 2, max_records=4)
    assert offsets(page) == [2, 3, 4, 5]
    assert page.position == 6
    assert (page.bounds.log_start_offset, page.bounds.next_offset, page.bounds.last_stable_offset) == (0, 8, 8)
    assert offsets(read(service.log, 6)) == [6, 7]


def test_max_bytes_counts_keys_values_and_header_values_and_one_record_always_fits(service: Service) -> None:
    records = [model_record.Record(b"12345", b"12", (("a header", b"123"),)) for _ in range(3)]  # 10 bytes each
    service.log.append(TOPIC, 0, AppendRequest.of_records(records))
    assert offsets(read(service.log, max_bytes=20)) == [0, 1]
    assert offsets(read(service.log, max_bytes=19)) == [0]
    assert offsets(read(service.log, max_bytes=1)) == [0]
    assert read(service.log, max_bytes=1).position == 1


def test_a_page_holds_no_more_than_a_reply_may_with_the_names_of_headers(service: Service) -> None:
    name = "n" * 300_000
    for _ in range(20):
        service.log.append(TOPIC, 0, AppendRequest.of_records([model_record.Record(b"v", headers=((name, b"1"),))]))
    page = read(service.log, max_bytes=limits.BYTES_MAX)
    assert (len(page.records), page.position) == (limits.REPLY_BYTES_MAX // 300_002, 13)


def test_an_empty_page_has_its_start_as_its_position(service: Service) -> None:
    assert read(service.log).position == 0
    append(service.log, "a")
    page = read(service.log, 1)
    assert (offsets(page), page.position, page.bounds.next_offset) == ([], 1, 1)


def test_many_small_segments_make_pages_that_join(service: Service) -> None:
    log = log_of(service)
    for n in range(70):
        log.add(data(f"{n}"))
    log.store(service.objects)
    found, offset = [], 0
    for _ in range(12):
        page = read(service.log, offset, max_records=7, max_bytes=5)
        found += offsets(page)
        assert page.position > offset or offset == 70
        offset = page.position
    assert found == list(range(sum(1 for _ in found)))
    assert len(read(service.log, max_records=10_000).records) == 70


def test_a_position_goes_past_markers(service: Service) -> None:
    log = log_of(service)
    log.add(data("a"), access("s", 0))
    log.add(marker(0x80), marker(0x183))
    log.add(data("b"))
    log.add(marker(0x80))
    log.store(service.objects)
    page = read(service.log)
    assert ([r.value for r in page.records], offsets(page), page.position) == ([b"a", b"b"], [0, 4], 6)
    assert [r.topic_epoch for r in page.records] == [-1, 0]
    nothing = read(service.log, 5)
    assert (offsets(nothing), nothing.position) == ([], 6)
    assert offsets(read(service.log, 0, max_records=1)) == [0]


def test_a_replicated_record_names_its_origin(service: Service) -> None:
    log = log_of(service)
    log.add(data("ours"))
    log.add(data("theirs"), origin="us", replicated=Replicated("t", 5, 1))
    log.store(service.objects)
    assert [(r.value, r.origin) for r in read(service.log).records] == [(b"ours", None), (b"theirs", "us")]


def test_whole_batches_come_as_they_are_stored(service: Service) -> None:
    log = log_of(service)
    log.add(data("a", "b", "c", codec="lz4"), marker(0x80), data("d"))
    log.add(data("e", "f"))
    log.store(service.objects)
    (_, first), _, (_, second) = log.segments[0].batches
    page = service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=1))
    whole = log.segments[0].body[: first.size] + log.segments[0].body[-second.size :] + log.segments[1].body
    assert (page.body, page.position) == (whole, 7)
    cut = service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=1, max_records=4))
    assert [h.base_offset for _, h in batch.headers(cut.body)] == [0, 4]
    assert cut.position == 5
    least = service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=5, max_bytes=1, max_records=1))
    assert (least.body, least.position) == (log.segments[1].body, 7)
    empty = service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=7))
    assert (empty.body, empty.position) == (b"", 7)


# Where a page starts


@pytest.mark.parametrize(("offset", "is_there"), [(-1, False), (0, False), (1, True), (4, True), (5, False)])
def test_a_start_outside_the_log_is_out_of_range_and_says_what_is_in_it(
    service: Service, offset: int, is_there: bool
) -> None:
    append(service.log, *"abcd")
    service.log.partitions.trim(TOPIC, 0, 1)
    reader = service.another()
    if is_there:
        assert offsets(read(reader, offset)) == list(range(offset, 4))
        return
    with pytest.raises(OffsetOutOfRangeError) as refusal:
        read(reader, offset)
    assert (refusal.value.log_start_offset, refusal.value.next_offset) == (1, 4)


@pytest.mark.parametrize(("tail", "start"), [(0, 6), (1, 5), (3, 3), (4, 2), (5, 2), (10**18, 2)])
def test_a_tail_offset_counts_from_the_end_and_stops_at_the_log_start(service: Service, tail: int, start: int) -> None:
    append(service.log, *"abcdef")
    service.log.partitions.trim(TOPIC, 0, 2)
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(tail_offset=tail))
    assert offsets(page) == list(range(start, 6))


def test_a_timestamp_after_the_last_record_starts_at_the_end(service: Service) -> None:
    append(service.log, "a", timestamp=1_000)
    append(service.log, "b", timestamp=2_000)
    for timestamp, expected in ((0, [0, 1]), (1_000, [0, 1]), (1_001, [1]), (2_001, [])):
        page = service.log.partitions.read(TOPIC, 0, ReadRequest(timestamp=timestamp))
        assert offsets(page) == expected
        assert page.position == 2


def test_a_trim_inside_a_batch_cuts_it_at_exactly_that_offset(service: Service) -> None:
    append(service.log, *"abcde")
    append(service.log, "f")
    service.log.partitions.trim(TOPIC, 0, 3)
    reader = service.another()
    assert offsets(read(reader, 3)) == [3, 4, 5]
    with pytest.raises(OffsetOutOfRangeError):
        read(reader, 2)
    whole = reader.partitions.read_batches(TOPIC, 0, ReadRequest(offset=3))
    assert [h.base_offset for _, h in batch.headers(whole.body)] == [0, 5]


def test_a_read_goes_on_where_the_objects_below_the_log_start_are_gone(service: Service) -> None:
    for value in "abcd":
        append(service.log, value)
    service.log.partitions.trim(TOPIC, 0, 2)
    for offset in (0, 1):
        service.objects.store.delete(keys.segment_key(service.topic_id(), 0, offset))
    for log in (service.log, service.another()):
        assert offsets(read(log, 2)) == [2, 3]
        assert offsets(log.partitions.read(TOPIC, 0, ReadRequest(timestamp=0))) == [2, 3]


# What is in an answer


def test_records_acknowledged_before_a_read_are_in_its_answer_from_every_process(service: Service) -> None:
    logs = [service.log, service.another(), service.another()]
    for n in range(12):
        append(logs[n % 3], "v")
        for log in logs:
            page = read(log)
            assert (len(page.records), page.bounds.next_offset) == (n + 1, n + 1)


def test_every_read_after_a_trims_answer_begins_at_the_log_start(service: Service) -> None:
    append(service.log, *"abc")
    other = service.another()
    read(other)
    service.log.partitions.trim(TOPIC, 0, 2)
    with pytest.raises(OffsetOutOfRangeError):
        read(other, 1)
    assert read(other, 2).bounds.log_start_offset == 2


def test_every_read_after_a_deletes_answer_finds_no_topic(service: Service) -> None:
    append(service.log, "a")
    other = service.another()
    read(other)
    service.log.topics.delete(TOPIC)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        read(other)
    service.log.topics.create(TOPIC)
    assert read(other).bounds.next_offset == 0


@pytest.mark.parametrize("store", ["objects", "items"])
def test_an_end_that_cannot_be_verified_is_not_answered_from_memory(service: Service, store: str) -> None:
    append(service.log, "a")
    read(service.log)
    getattr(service, store).always("get", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        read(service.log, 1)


def test_a_session_is_refused_until_there_are_sessions(service: Service) -> None:
    with pytest.raises(errors.UnknownSessionError):
        read(service.log, session_id="s")


def test_a_page_of_what_is_damaged_is_corrupt(service: Service) -> None:
    append(service.log, "a")
    append(service.log, "b")
    key = keys.segment_key(service.topic_id(), 0, 0)
    found = service.objects.store.get(key)
    service.objects.store.delete(key)
    service.objects.store.create(key, found.body[:-1] + b"?", found.metadata)
    reader = service.another()
    for _ in range(2):
        with pytest.raises(errors.CorruptLogError):
            read(reader)


def test_a_segment_that_is_missing_in_the_midst_is_never_read_over(service: Service) -> None:
    for value in "abc":
        append(service.log, value)
    service.log.partitions.checkpoint(TOPIC, 0)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 1))
    with suppress(errors.CorruptLogError):
        assert offsets(read(service.another(), 0)) == [0]
    with pytest.raises(errors.CorruptLogError):
        read(service.another(), 1)


# Committed


@dataclass(frozen=True)
class Model:
    """A second statement of what is shown: each record's offset, and if its transaction is undecided or aborted."""

    shown: list[int]
    committed: list[int]
    stable: int
    next_offset: int


def model_of(log: LogBuilder, log_start: int) -> Model:
    open_: dict[int, list[int]] = {}
    aborted: set[int] = set()
    shown: list[int] = []
    for segment in log.segments:
        for at, header in segment.batches:
            taken = list(range(header.base_offset, header.next_offset))
            if not header.is_control:
                shown += taken
                if header.is_transactional:
                    open_.setdefault(header.producer_id, []).extend(taken)
                continue
            found = control.parse_marker(segment.body, at, header)
            if found.type in (control.ABORT, control.COMMIT):
                ended = open_.pop(header.producer_id, [])
                aborted |= set(ended) if found.type == control.ABORT else set()
    next_offset = log.state.next_offset
    stable = max(min((taken[0] for taken in open_.values()), default=next_offset), log_start)
    shown = [offset for offset in shown if offset >= log_start]
    committed = [offset for offset in shown if offset < stable and offset not in aborted]
    return Model(shown, committed, stable, next_offset)


BATCHES = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 3)),
    st.tuples(st.just("in"), st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(1, 3), st.booleans()),
    st.tuples(st.just("marker"), st.just(0)),
)


def build(segments: Any, topic_id: str) -> LogBuilder:
    log = LogBuilder(topic_id=topic_id)
    epochs = {1: 0, 2: 0, 3: 0}
    sequences = {1: 0, 2: 0, 3: 0}
    for segment in segments:
        parts = []
        for operation in segment:
            match operation:
                case ("plain", count):
                    parts.append(data(*["p"] * count))
                case ("in", producer, count):
                    triple = (producer, epochs[producer], sequences[producer])
                    sequences[producer] += count
                    parts.append(data(*["t"] * count, producer=triple, is_transactional=True))
                case ("end", producer, is_commit):
                    epochs[producer] += 1
                    sequences[producer] = 0
                    parts.append(outcome(producer, epochs[producer], is_commit=is_commit))
                case _:
                    parts.append(marker(0x80))
        log.add(*parts)
    return log


@tries(40)
@given(st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=7), st.data())
def test_pages_of_any_size_show_all_that_is_committed_and_nothing_else(segments: Any, draw: Any) -> None:
    """Read uncommitted and committed, warm and cold, with and without checkpoints between, against a model."""
    with closing(serve()) as service:
        topic_id = service.log.topics.create(TOPIC).topic_id
        log = build(segments, topic_id)
        seen = draw.draw(st.integers(0, len(segments)), label="checkpoint after")
        for count, _ in enumerate(log.segments):
            part = LogBuilder(topic_id=topic_id)
            part.segments = [log.segments[count]]
            part.store(service.objects)
            if count + 1 == seen:
                service.another().partitions.checkpoint(TOPIC, 0)
        log_start = draw.draw(st.integers(0, log.state.next_offset), label="log start")
        if log_start:
            service.another().partitions.trim(TOPIC, 0, log_start)
        model = model_of(log, log_start)
        reader = service.another()
        start = draw.draw(st.integers(log_start, model.next_offset), label="start")
        for is_read_committed, expected in ((False, model.shown), (True, model.committed)):
            end = model.stable if is_read_committed else model.next_offset
            found: list[int] = []
            position = start
            while True:
                page = read(
                    reader,
                    position,
                    max_records=draw.draw(st.integers(1, 4), label="max records"),
                    is_read_committed=is_read_committed,
                )
                assert page.bounds.last_stable_offset == model.stable
                assert page.bounds.next_offset == model.next_offset
                found += offsets(page)
                assert not page.records or page.position > page.records[-1].offset
                if page.position == position:
                    break
                position = page.position
            assert found == [offset for offset in expected if offset >= start]
            assert position == max(start, end)
            whole = reader.partitions.read_batches(
                TOPIC, 0, ReadRequest(offset=start, is_read_committed=is_read_committed, max_records=10_000)
            )
            in_batches = [o for _, h in batch.headers(whole.body) for o in range(h.base_offset, h.next_offset)]
            assert [offset for offset in in_batches if offset >= start] == [o for o in expected if o >= start]


def test_of_many_aborted_transactions_those_that_overlap_are_read_and_no_others(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aborted transaction with nothing open after it shows that no later one began before it."""
    log = log_of(service)
    for n in range(60):
        log.add(data("t", producer=(6, n, 0), is_transactional=True))
        log.add(outcome(6, n + 1, is_commit=False))
    log.store(service.objects)
    service.log.partitions.checkpoint(TOPIC, 0)
    cold = service.another()
    cold.partitions.offsets(TOPIC, 0)
    partition = only_partition_of(cold)
    monkeypatch.setattr(limits, "LIST_MAX", 5)
    for start, end in ((0, 2), (58, 62), (118, 120)):
        before = service.items.calls["query"]
        found = aborted_between(partition, start, end, partition.state)
        ended = {transaction.last_offset for transaction in found}
        assert ended >= set(range(start + 1, end, 2)), "all that overlap"
        assert min(ended) >= start
        assert service.items.calls["query"] - before == 1
        assert len(found) <= 5


# Long polls


def in_time(started: float) -> bool:
    return time.monotonic() - started < 300


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_long_poll_ends_with_the_record_that_it_waits_for(live_service: Service, is_same_process: bool) -> None:
    log = live_service.log
    append(log, "a")
    other = log if is_same_process else live_service.another()
    started = time.monotonic()
    with ThreadPoolExecutor(3) as pool:
        polls = [pool.submit(read, log, 1, wait_ms=600_000) for _ in range(2)]
        threading.Event().wait(0.1)
        append(other, "b")
        assert [offsets(poll.result()) for poll in polls] == [[1], [1]]
    assert in_time(started)


def test_a_long_poll_ends_empty_when_its_time_is_over(live_service: Service) -> None:
    append(live_service.log, "a")
    started = time.monotonic()
    page = read(live_service.log, 1, wait_ms=120)
    assert (offsets(page), page.position) == ([], 1)
    assert time.monotonic() - started >= 0.11


def test_a_long_poll_does_not_wait_if_there_is_something(live_service: Service) -> None:
    append(live_service.log, "a")
    started = time.monotonic()
    assert offsets(read(live_service.log, 0, wait_ms=600_000)) == [0]
    assert in_time(started)


def test_a_page_that_only_moves_the_position_ends_a_long_poll(live_service: Service) -> None:
    log = log_of(live_service)
    log.add(data("a"))
    log.add(marker(0x80))
    log.store(live_service.objects)
    started = time.monotonic()
    assert read(live_service.log, 1, wait_ms=600_000).position == 2
    assert in_time(started)


def test_a_committed_long_poll_waits_through_an_open_transaction_for_its_end(live_service: Service) -> None:
    log = log_of(live_service)
    log.add(data("a", producer=(7, 0, 0), is_transactional=True))
    log.store(live_service.objects)
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(read, live_service.log, 0, wait_ms=600_000, is_read_committed=True)
        threading.Event().wait(0.1)
        log.add(data("b"))
        log.store(live_service.objects, start=1)
        threading.Event().wait(0.15)
        assert not poll.done(), "nothing is decided yet"
        log.add(outcome(7, 1, is_commit=True))
        log.store(live_service.objects, start=2)
        assert offsets(poll.result()) == [0, 1]
    assert in_time(started)


def test_a_process_that_stops_ends_its_long_polls(live_service: Service) -> None:
    append(live_service.log, "a")
    started = time.monotonic()
    with ThreadPoolExecutor(2) as pool:
        polls = [pool.submit(read, live_service.log, 1, wait_ms=600_000) for _ in range(2)]
        threading.Event().wait(0.1)
        live_service.log.close()
        assert [offsets(poll.result()) for poll in polls] == [[], []]
    assert in_time(started)


def test_a_long_poll_on_a_topic_that_is_deleted_ends(live_service: Service) -> None:
    append(live_service.log, "a")
    other = live_service.another()
    started = time.monotonic()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(read, live_service.log, 1, wait_ms=600_000)
        threading.Event().wait(0.1)
        other.topics.delete(TOPIC)
        assert isinstance(poll.exception(), errors.UnknownTopicOrPartitionError)
    assert in_time(started)


def test_a_trim_past_a_waiting_reader_fails_its_read(live_service: Service) -> None:
    append(live_service.log, "a")
    other = live_service.another()
    gate = Gate()
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(read, live_service.log, 1, wait_ms=600_000)
        threading.Event().wait(0.1)
        live_service.objects.always(
            "get", lambda call: gate(call) if threading.current_thread() in pool._threads else call()
        )
        append(other, "b", "c")
        # The waiting reader is about to look.
        assert gate.reached.wait(PATIENCE_S)
        other.partitions.trim(TOPIC, 0, 3)
        gate.opened.set()
        refusal = poll.exception()
    assert isinstance(refusal, OffsetOutOfRangeError)
    assert (refusal.log_start_offset, refusal.next_offset) == (3, 3)


def test_many_who_wait_ask_the_store_as_often_as_one(live_service: Service) -> None:
    """One looker asks for each process and partition, and ever more rarely."""
    append(live_service.log, "a")
    read(live_service.log)

    def attempt() -> None:
        live_service.objects.calls.clear()
        with ThreadPoolExecutor(8) as pool:
            for poll in [pool.submit(read, live_service.log, 1, wait_ms=400) for _ in range(8)]:
                poll.result()
        # At its start and its end each looks for itself; between them one looks for all, at 50, 150 and 350 ms.
        assert live_service.objects.calls["get"] <= 8 * 4 + 8

    without_a_stall(attempt)
