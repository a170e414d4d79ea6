from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.errors import CorruptLogError
from fenceline.format import control, keys
from fenceline.format.batch import encode
from fenceline.format.segment import Replicated
from fenceline.log.checkpoint_items import Head, producer_to_value
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.region_state import Origin
from fenceline.log.state import (
    AbortedRange,
    BatchEvent,
    MarkerEvent,
    OngoingTransaction,
    PartitionState,
    ProducerState,
    advance,
    apply,
    next_sequence,
)
from fenceline.model.record import Record
from fenceline.ports import Put
from tests.support.runtime import START_MS, FakeRuntime
from tests.support.service import REGION, LogBuilder, Part, access, back_to_shared, data, marker, outcome
from tests.support.tries import tries

MAX = 2**31 - 1

# Logs at random: each operation becomes one batch, as an appender would have made it that judged it.

OPERATIONS = st.one_of(
    st.tuples(st.just("data"), st.integers(1, 3)),
    st.tuples(
        st.just("produce"),
        st.integers(1, 3),  # producer id
        st.sampled_from(["follows", "new epoch", "lapsed"]),
        st.integers(1, 3),  # records
        st.booleans(),  # transactional
    ),
    st.tuples(st.just("end"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("access"), st.booleans()),
    st.tuples(st.just("skip"), st.sampled_from(["us", "ap"])),
    st.tuples(st.just("unknown"), st.sampled_from([2, 63, 0x80, 0x90, 0x183, 0x7FFF])),
)
SEGMENTS = st.lists(
    st.lists(OPERATIONS, min_size=1, max_size=4) | st.sampled_from(["us", "ap"]), min_size=1, max_size=8
)


def build(segments: Sequence[Any]) -> LogBuilder:
    log = LogBuilder()
    producers: dict[int, tuple[int, int]] = {}
    for count, segment in enumerate(segments):
        if isinstance(segment, str):
            replicated = Replicated(f"{segment}-topic", 10 * count, count)
            log.add(data("r", "s"), marker(control.SNAPSHOT_REQUEST), origin=segment, replicated=replicated)
        else:
            log.add(*[part_of(operation, producers, log.state.topic_epoch + 1) for operation in segment], after_ms=7)
    return log


def part_of(operation: Any, producers: dict[int, tuple[int, int]], new_epoch: int) -> Part:
    match operation:
        case ("data", count):
            return data(*["d"] * count)
        case ("produce", producer_id, how, count, is_transactional):
            epoch, last = producers.get(producer_id, (0, MAX - 2))  # close to the wrap
            first = {"follows": next_sequence(last), "new epoch": 0, "lapsed": 1_000}[how]
            epoch += how == "new epoch"
            producers[producer_id] = (epoch, (first + count - 1) % 2**31)
            return data(*["p"] * count, producer=(producer_id, epoch, first), is_transactional=is_transactional)
        case ("end", producer_id, is_commit):
            epoch = producers.get(producer_id, (0, -1))[0] + 1
            producers[producer_id] = (epoch, -1)
            return outcome(producer_id, epoch, is_commit=is_commit)
        case ("access", is_exclusive):
            return access("session", new_epoch) if is_exclusive else back_to_shared()
        case ("skip", region):
            value = {"origin": region, "origin_topic": f"{region}-topic", "from": 1, "to": 5, "count": 2}
            return marker(control.SKIP, value)
        case ("unknown", type):
            return marker(type, {"what": "ever"})
    raise AssertionError(operation)


def producers_of(log: LogBuilder, below: int) -> dict[int, ProducerState]:
    """Return every producer's state, from the events of the segments below an offset alone."""
    states: dict[int, ProducerState] = {}
    for folded in log.folded:
        for producer_id, event in folded.events:
            if event.base_offset < below:
                states[producer_id] = advance(states.get(producer_id), event)
    return states


@tries(80)
@given(SEGMENTS, st.data())
def test_folding_through_a_checkpoint_anywhere_gives_what_folding_from_zero_gives(segments: Any, draw: Any) -> None:
    """I3 for the partition, and for each producer: its item may be ahead of the head, and is read at any moment."""
    log = build(segments)
    ends = [0, *(segment.next_offset for segment in log.segments)]
    cut = draw.draw(st.integers(0, len(log.segments)), label="checkpoint after")
    runtime = FakeRuntime()
    with (
        closing(SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"s")) as objects,
        closing(SqliteItemStore(":memory:")) as items,
    ):
        log.store(objects)
        if cut:
            value = Head(log.folded[cut - 1].state, 0).to_value()
            items.write([Put(keys.head_item("t", 0), value, 1, expected=None)])
        for producer_id in producers_of(log, ends[-1]):
            ahead = draw.draw(st.integers(cut, len(log.segments)), label=f"item of {producer_id} after")
            state = producers_of(log, ends[ahead]).get(producer_id)
            if state is not None:
                key = keys.producer_item("t", 0, producer_id)
                items.write([Put(key, producer_to_value(state, ends[ahead]), 1, expected=None)])

        partition = Partition(Context(objects, items, runtime, REGION), "orders", "t", 0)
        head = items.get([keys.head_item("t", 0)])
        partition._adopt(head.get(keys.head_item("t", 0)), None)
        loaded_early = draw.draw(st.sets(st.integers(1, 4)), label="read before the segments")
        for segment in log.segments[cut : draw.draw(st.integers(cut, len(log.segments)), label="folded by then")]:
            assert partition.fold(segment)
        partition.load_producers(loaded_early)
        partition.catch_up()
        partition.load_producers(range(1, 5))

        snapshot = partition.snapshot(range(1, 5))
        assert snapshot is not None
        assert snapshot.state == log.state
        assert {p: s for p, s in snapshot.producers.items() if s is not None} == producers_of(log, ends[-1])
        assert partition.aborted == [a for folded in log.folded[cut:] for a in folded.aborted]


@pytest.mark.parametrize("folded_before", [1, 2, 3])
def test_an_item_that_is_ahead_of_the_head_is_not_folded_twice(folded_before: int) -> None:
    """``folded_to`` says which batches the item holds; what follows is folded on top, whenever the item is read."""
    runtime = FakeRuntime()
    log = LogBuilder()
    for sequence in range(3):
        log.add(data("x", producer=(7, 0, sequence)))
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms, secret=b"s")
    items = SqliteItemStore(":memory:")
    log.store(objects)
    head = Put(keys.head_item("t", 0), Head(log.folded[0].state, 0).to_value(), 1, expected=None)
    items.write([head, Put(keys.producer_item("t", 0, 7), producer_to_value(producers_of(log, 2)[7], 2), 1, None)])
    partition = Partition(Context(objects, items, runtime, REGION), "orders", "t", 0)
    partition._adopt(items.get([head.key])[head.key], None)
    for segment in log.segments[1:folded_before]:
        partition.fold(segment)
    partition.load_producers([7])
    partition.catch_up()
    snapshot = partition.snapshot([7])
    assert snapshot is not None
    assert snapshot.producers[7] == producers_of(log, 3)[7]
    objects.close()
    items.close()


@tries(60)
@given(SEGMENTS)
def test_the_state_says_what_a_count_over_all_batches_says(segments: Any) -> None:
    """The counters, the open transactions and the last stable offset, against a plain second statement of them."""
    log = build(segments)
    headers = [(segment, header) for segment in log.segments for _, header in segment.batches]
    shown = [(segment, header) for segment, header in headers if not header.is_control]
    open_firsts: dict[int, int] = {}
    for segment in log.segments:
        for at, header in segment.batches:
            if header.is_control and control.parse_marker(segment.body, at, header).type in (0, 1):
                open_firsts.pop(header.producer_id, None)
            elif header.is_transactional:
                open_firsts.setdefault(header.producer_id, header.base_offset)
    state = log.state
    assert state.next_offset == sum(header.count for _, header in headers)
    assert state.bytes == sum(len(segment.body) for segment in log.segments)
    assert state.records == sum(header.count for _, header in shown)
    assert state.own_records == sum(h.count for segment, h in shown if segment.metadata.origin == REGION)
    assert state.max_timestamp == max((header.max_timestamp for _, header in shown), default=-1)
    assert state.data_next == max((header.next_offset for _, header in shown), default=0)
    assert state.chain == log.segments[-1].metadata.chain
    assert {p: t.first_offset for p, t in state.open_transactions.items()} == open_firsts
    assert state.last_stable_offset(0) == min(open_firsts.values(), default=state.next_offset)


def test_a_segment_that_does_not_follow_is_not_folded() -> None:
    log = LogBuilder()
    log.add(data("a"))
    with pytest.raises(CorruptLogError, match="does not begin where the one before it ends"):
        apply(PartitionState(), log.make(data("b")), region=REGION)


# Transactions


def test_an_open_transaction_holds_the_last_stable_offset_at_its_first_batch() -> None:
    log = LogBuilder()
    log.add(data("a"))
    log.add(data("b", "c", producer=(7, 3, 0), is_transactional=True))
    log.add(data("d", producer=(7, 3, 2), is_transactional=True), data("e"))
    assert log.state.open_transactions == {7: OngoingTransaction(3, 1, START_MS + 2)}
    assert log.state.last_stable_offset(0) == 1
    assert log.state.last_stable_offset(2) == 2, "never below the log start"
    log.add(outcome(7, 4, is_commit=True))
    assert log.state.open_transactions == {}
    assert log.state.last_stable_offset(0) == log.state.next_offset == 6


def test_an_abort_gives_out_what_it_aborted_with_the_stable_offset_behind_it() -> None:
    log = LogBuilder()
    log.add(data("a", producer=(1, 0, 0), is_transactional=True))
    log.add(data("b", producer=(2, 0, 0), is_transactional=True))
    assert [*log.add(outcome(1, 1, is_commit=False)).aborted] == [AbortedRange(1, 0, 2, 1)]
    assert [*log.add(outcome(2, 1, is_commit=False)).aborted] == [AbortedRange(2, 1, 3, 4)]


def test_a_commit_and_an_abort_of_nothing_give_out_no_aborted_transaction() -> None:
    log = LogBuilder()
    log.add(data("a", producer=(1, 0, 0), is_transactional=True))
    assert [*log.add(outcome(1, 1, is_commit=True)).aborted] == []
    assert [*log.add(outcome(1, 2, is_commit=False)).aborted] == []
    assert [*log.add(outcome(9, 0, is_commit=False)).aborted] == []


def test_an_end_of_any_epoch_closes_the_transaction_and_bumps_the_producers_epoch() -> None:
    log = LogBuilder()
    log.add(data("a", producer=(1, 4, 0), is_transactional=True))
    folded = log.add(outcome(1, 9, is_commit=True))
    assert log.state.open_transactions == {}
    assert [*folded.events] == [(1, MarkerEvent(1, 9, START_MS + 2))]
    assert producers_of(log, 2)[1] == ProducerState(9, -1, (), START_MS + 2, None)


# Markers


@pytest.mark.parametrize("type", [67, 90, 127])
def test_an_unknown_marker_that_may_change_the_fold_stops_it(type: int) -> None:
    log = LogBuilder()
    log.add(data("a"))
    with pytest.raises(CorruptLogError, match=f"newer fenceline.*marker={type} offset=1"):
        log.add(marker(type))
    assert log.state.next_offset == 1


@pytest.mark.parametrize("type", [2, 63, 0x80, 0x81, 0xFF, 0x100, 0x181, 0x182, 0x183, 0x184, 0x7FFF])
def test_a_marker_that_does_not_change_the_fold_takes_its_offset_and_counts_nowhere(type: int) -> None:
    log = LogBuilder()
    log.add(data("a", timestamps=[5]))
    before = log.state
    folded = log.add(marker(type))
    assert [*folded.events] == []
    expected = Head(before, 0).to_value() | {
        "next_offset": 2,
        "bytes": before.bytes + len(log.segments[-1].body),
        "chain": log.segments[-1].metadata.chain,
        "own_next": 2 if control.travels(type) else 1,
    }
    assert Head(log.state, 0).to_value() == expected


def test_an_access_marker_names_the_session_and_the_epoch_in_force() -> None:
    log = LogBuilder()
    log.add(data("a"))
    assert (log.state.topic_epoch, log.state.access_mode, log.state.session_id) == (-1, "Shared", None)
    log.add(access("s1", 0))
    assert (log.state.topic_epoch, log.state.access_mode, log.state.session_id) == (0, "Exclusive", "s1")
    log.add(data("b"))
    assert log.segments[-1].batches[0][1].leader_epoch == 0
    log.add(access("s2", 3))
    assert (log.state.topic_epoch, log.state.session_id) == (3, "s2")
    log.add(back_to_shared())
    assert (log.state.topic_epoch, log.state.access_mode, log.state.session_id) == (3, "Shared", None)
    assert log.state.own_records == log.state.records == 2


def test_an_epoch_never_goes_back() -> None:
    """Topic epochs never decrease along the log (I8)."""
    log = LogBuilder()
    log.add(access("s1", 5))
    log.add(access("s2", 2))
    assert log.state.topic_epoch == 5


def test_a_seal_seals() -> None:
    log = LogBuilder()
    log.add(data("a"))
    assert not log.state.is_sealed
    log.add(marker(control.SEAL))
    assert log.state.is_sealed


@pytest.mark.parametrize(
    ("type", "value"),
    [(control.ACCESS, {}), (control.SKIP, {"origin": "us"}), (control.ACCESS, {"mode": "Exclusive"})],
)
def test_a_marker_of_ours_without_what_it_must_say_is_corrupt(type: int, value: dict[str, Any]) -> None:
    with pytest.raises(CorruptLogError):
        LogBuilder().add(marker(type, value))


def test_a_control_batch_that_is_no_marker_is_corrupt() -> None:
    def of_two_records(offset: int, epoch: int, now_ms: int) -> bytes:
        body = bytearray(encode([Record(b"a"), Record(b"b")], now_ms=now_ms).body)
        return control.stamp_control(body, base_offset=offset, leader_epoch=epoch)

    with pytest.raises(CorruptLogError):
        LogBuilder().add(of_two_records)


# Regions


def test_a_replicated_segment_moves_its_sources_position_and_is_not_ours() -> None:
    log = LogBuilder()
    log.add(data("a"))
    log.add(data("b", "c"), origin="us", replicated=Replicated("us-topic", 12, 2))
    assert log.state.origins == {"us": Origin("us-topic", 12, 2)}
    assert (log.state.records, log.state.own_records) == (3, 1)
    log.add(data("d"), origin="us", replicated=Replicated("us-topic", 20, 3))
    log.add(marker(control.SNAPSHOT_REQUEST), origin="ap", replicated=Replicated("ap-topic", 1, 0))
    assert log.state.origins == {"us": Origin("us-topic", 20, 3), "ap": Origin("ap-topic", 1, 0)}
    log.add(data("e"), origin="us", replicated=Replicated("us-topic-2", 1, 1))
    assert log.state.origins["us"] == Origin("us-topic-2", 1, 1, former=("us-topic",)), "another life begins anew"


def test_a_skip_moves_the_position_over_the_gap_and_counts_what_is_lost() -> None:
    log = LogBuilder()
    log.add(data("a"), origin="us", replicated=Replicated("us-topic", 10, 4))
    log.add(marker(control.SKIP, {"origin": "us", "origin_topic": "us-topic", "from": 10, "to": 30, "count": 6}))
    assert log.state.origins == {"us": Origin("us-topic", 30, 10, start=10, passed=6)}, "what was given up is not here"
    log.add(marker(control.SKIP, {"origin": "us", "origin_topic": "next", "from": 0, "to": 3, "count": 2}))
    assert log.state.origins == {"us": Origin("next", 3, 2, start=2, former=("us-topic",), passed=2)}
    assert log.state.regions.skipped == 8


# Producers


def event(first: int, count: int, *, epoch: int = 0, base: int = 0, is_transactional: bool = False) -> BatchEvent:
    return BatchEvent(base, count, epoch, first, (first + count - 1) % 2**31, -1, -1, START_MS + base, is_transactional)


def fold(*events: BatchEvent | MarkerEvent) -> ProducerState:
    state: ProducerState | None = None
    for each in events:
        state = advance(state, each)
    assert state is not None
    return state


def test_a_producers_window_holds_its_last_five_batches() -> None:
    events = [event(first, 1, base=first) for first in range(7)]
    assert fold(*events) == ProducerState(0, 6, tuple(events[2:]), START_MS + 6)


def test_a_batch_that_wraps_inside_is_followed_by_the_sequence_after_the_wrap() -> None:
    wraps, follows = event(MAX - 1, 4), event(2, 1, base=4)
    state = fold(wraps, follows)
    assert wraps.last_sequence == 1
    assert (state.last_sequence, state.window) == (2, (wraps, follows))
    assert next_sequence(MAX) == 0


@pytest.mark.parametrize("odd", [event(0, 1, epoch=1, base=9), event(0, 1, epoch=-1, base=9), event(7, 1, base=9)])
def test_a_batch_of_another_epoch_or_that_does_not_follow_empties_the_window_first(odd: BatchEvent) -> None:
    """Such a batch is in the log only after a lapse: it is folded unchanged, also with a lower epoch."""
    state = fold(event(0, 1), event(1, 1, base=1), odd)
    assert state == ProducerState(odd.producer_epoch, odd.last_sequence, (odd,), odd.time)


def test_a_marker_empties_the_window_and_the_next_epoch_begins_at_zero() -> None:
    state = fold(event(0, 3, is_transactional=True), MarkerEvent(3, 1, START_MS + 3))
    assert state == ProducerState(1, -1, (), START_MS + 3, None)
    begun = fold(event(0, 3), MarkerEvent(3, 1, START_MS), event(0, 1, epoch=1, base=4))
    assert begun.window == (event(0, 1, epoch=1, base=4),)


def test_a_producers_open_transaction_is_its_first_transactional_batch() -> None:
    state = fold(event(0, 1), event(1, 1, base=1, is_transactional=True), event(2, 1, base=2, is_transactional=True))
    assert state.open == OngoingTransaction(0, 1, START_MS + 1)


def test_an_event_has_the_answer_to_a_duplicate_of_its_batch() -> None:
    log = LogBuilder()
    log.add(access("s", 2))
    log.add(data("a", "b", producer=(7, 1, 5), append_time=START_MS + 77))
    log.add(data("c", producer=(7, 1, 7)))
    (_, first), (_, second) = log.folded[1].events[0], log.folded[2].events[0]
    assert first == BatchEvent(1, 2, 1, 5, 6, 2, START_MS + 77, START_MS + 2)
    assert second == BatchEvent(3, 1, 1, 7, 7, 2, -1, START_MS + 3)
