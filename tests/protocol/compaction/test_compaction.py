"""Compaction against a model that keeps everything in a list, with every fault, beside readers and other compactors."""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from fenceline import errors, limits
from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.compaction import compact as compaction
from fenceline.compaction import copy, tombstones
from fenceline.compaction.compact import CompactionTooLarge, is_due, plan_of, stale_files
from fenceline.format import batch, checksummed, keys
from fenceline.format.crc32c import crc32c
from fenceline.format.segment import Replicated
from fenceline.log.checkpoint_items import CompactedView, Head
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.state import OngoingTransaction, PartitionState
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Page, ReadRecord
from fenceline.ports import Put as StorePut
from fenceline.ports import StoreFact, VersionMoved
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline_cli.main import app
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.service import (
    TOPIC,
    Fault,
    Gate,
    LogBuilder,
    Part,
    Service,
    access,
    conflicts,
    is_unavailable,
    loses_answer,
    marker,
    moves,
    never_arrives,
    outcome,
    serve,
    serve_in_real_time,
)
from tests.support.sweeping import swept
from tests.support.tries import tries

Pair = tuple[bytes | None, bytes | None]


@pytest.fixture
def table() -> Iterator[Service]:
    made = serve_table()
    yield made
    made.close()


def serve_table(retention_ms: int | None = 0) -> Service:
    """Return a service with a table. Unless told otherwise, a compaction leaves out all tombstones."""
    made = serve()
    keeps: dict[str, Any] = {} if retention_ms is None else {"delete.retention.ms": retention_ms}
    made.log.topics.create(TOPIC, config={"cleanup.policy": "compact", **keeps})
    return made


Kind = Literal["offset", "kept", "timestamp"]  # the order of a table; "kept" is by offset, and keeps tombstones


def serve_kind(kind: Kind) -> Service:
    made = serve_table(0 if kind == "offset" else -1)
    made.log.topics.alter(TOPIC, config={"compaction.order": "timestamp" if kind == "timestamp" else "offset"})
    return made


@pytest.fixture
def kept() -> Iterator[Service]:
    """A table whose tombstones are kept for a day, as is the default."""
    made = serve_table(None)
    yield made
    made.close()


def put(log: Log, *pairs: tuple[str | None, str | None], codec: str = "none") -> None:
    records = [Record(None if v is None else v.encode(), None if k is None else k.encode()) for k, v in pairs]
    body = batch.encode(records, now_ms=1_700_000_000_000, codec=codec).body  # type: ignore[arg-type]
    log.append(TOPIC, 0, AppendRequest.of_batch(body))


def page(log: Log, offset: int = 0, **options: Any) -> Page:
    return log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, is_compacted=True, **options))


def read_all(log: Log, offset: int = 0, **options: Any) -> list[ReadRecord]:
    found: list[ReadRecord] = []
    while True:
        one = page(log, offset, **options)
        assert all(offset <= record.offset < one.position for record in one.records)
        found += one.records
        end = one.bounds.last_stable_offset if options.get("is_read_committed") else one.bounds.next_offset
        if one.position >= end:
            return found
        assert one.position > offset
        offset = one.position


def pairs(log: Log, offset: int = 0, **options: Any) -> list[tuple[int, str | None, str | None]]:
    def text(data: bytes | None) -> str | None:
        return None if data is None else data.decode()

    return [(r.offset, text(r.key), text(r.value)) for r in read_all(log, offset, **options)]


def horizon(log: Log) -> int:
    return log.partitions.offsets(TOPIC, 0).compaction_horizon


def head_of(service: Service) -> Head:
    key = keys.head_item(service.topic_id(), 0)
    return Head.from_value(service.items.store.get([key])[key].value)


def partition_of(service: Service, log: Log | None = None) -> Partition:
    return Partition((log or service.log).context, TOPIC, service.topic_id(), 0)


def copied(service: Service) -> tuple[Partition, CompactedView]:
    """Return a view whose files are made, and which no pointer leads to yet."""
    partition = partition_of(service)
    planned = compaction.plan(partition)
    assert planned is not None
    found = copy.newest_offsets(partition, planned.source, keys_max=9)
    return partition, copy.copy(partition, planned.source, found, planned.attempt)


def view_files(service: Service) -> list[str]:
    listed = service.objects.store.list(keys.compacted_prefix(service.topic_id(), 0), limit=100_000)
    return [line.key for line in listed]


def stale(service: Service) -> list[str]:
    context = service.log.context
    return [line.key for line in stale_files(context, service.topic_id(), 0, head_of(service))]


# What it is for


def test_a_table_is_read_back_from_a_compacted_topic(table: Service) -> None:
    """PIP-68's own example: one writer keeps a table in a topic; its successor reads the table back, and goes on."""
    expected: dict[str, str] = {}

    def write(key: str, value: str | None) -> None:
        put(table.log, (key, value))
        expected.pop(key, None)
        if value is not None:
            expected[key] = value

    def read_back(log: Log) -> dict[str, str]:
        rows: dict[str, str] = {}
        for _, key, value in pairs(log):
            assert key is not None
            rows.pop(key, None)
            if value is not None:
                rows[key] = value
        return rows

    for n in range(40):
        write(f"ledger-{n % 7}", f"state-{n}")
    write("ledger-3", None)
    table.log.partitions.compact(TOPIC, 0)
    assert horizon(table.another()) == 41
    assert read_back(table.another()) == expected
    assert len(read_all(table.another())) == 6, "the deleted row left nothing behind"
    write("ledger-3", "again")
    write("ledger-1", None)
    assert read_back(table.another()) == expected
    table.log.partitions.compact(TOPIC, 0)
    assert read_back(table.another()) == expected
    assert len(read_all(table.another())) == 6


def test_the_newest_value_of_each_key_stays_at_its_offset(table: Service) -> None:
    put(table.log, ("a", "1"), ("b", "2"), ("a", "3"))
    put(table.log, ("c", "4"), ("b", None))
    assert page(table.log).records == table.log.partitions.read(TOPIC, 0, ReadRequest(offset=0)).records, (
        "the whole log, before"
    )
    table.log.partitions.compact(TOPIC, 0)
    put(table.log, ("a", "5"), ("c", None))
    assert pairs(table.log) == [(2, "a", "3"), (3, "c", "4"), (5, "a", "5"), (6, "c", None)]
    for offset, first in ((0, 2), (2, 2), (3, 3), (4, 5), (5, 5)):
        assert page(table.log, offset, max_records=1).records[0].offset == first
    whole = table.log.partitions.read(TOPIC, 0, ReadRequest(offset=0))
    assert [r.offset for r in whole.records] == [*range(7)], "a plain read shows all"


def test_at_the_end_of_the_view_the_position_is_the_next_offset(table: Service) -> None:
    put(table.log, ("a", "1"), ("a", None), ("b", "2"), ("b", None))
    table.log.partitions.compact(TOPIC, 0)
    for offset in range(5):
        one = page(table.log, offset, max_records=1)
        assert (one.records, one.position) == ([], 4)
    with pytest.raises(errors.OffsetOutOfRangeError):
        page(table.log, 5)


def test_a_tombstone_below_the_horizon_removes_what_an_older_view_holds(table: Service) -> None:
    put(table.log, ("a", "1"), ("b", "2"))
    table.log.partitions.compact(TOPIC, 0)
    put(table.log, ("a", None))
    assert pairs(table.log) == [(0, "a", "1"), (1, "b", "2"), (2, "a", None)]
    table.log.partitions.compact(TOPIC, 0)
    assert pairs(table.log) == [(1, "b", "2")]


def test_only_a_compacted_topic_is_compacted(table: Service) -> None:
    table.log.topics.create("plain")
    for ask in (table.log.partitions.compact, table.log.partitions.compact_now):
        with pytest.raises(errors.InvalidRequestError):
            ask("plain", 0)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            ask(TOPIC, 1)
        with pytest.raises(errors.UnknownTopicOrPartitionError):
            ask("nowhere", 0)


def test_an_empty_or_compacted_partition_is_left_as_it_is(table: Service) -> None:
    table.log.partitions.compact(TOPIC, 0)
    assert table.log.partitions.compact_now(TOPIC, 0) is None
    put(table.log, ("a", "1"))
    table.log.partitions.compact(TOPIC, 0)
    before = (head_of(table), view_files(table))
    table.log.partitions.compact(TOPIC, 0)
    assert table.another().partitions.compact_now(TOPIC, 0) == before[0].view
    assert (head_of(table), view_files(table)) == before


def test_a_trim_beyond_the_horizon_leaves_an_empty_view(table: Service) -> None:
    put(table.log, ("a", "1"), ("b", "2"))
    table.log.partitions.compact(TOPIC, 0)
    put(table.log, ("c", "3"))
    table.log.partitions.trim(TOPIC, 0, 3)
    assert (pairs(table.log), page(table.log).position) == ([], 3)
    table.log.partitions.compact(TOPIC, 0)
    assert (horizon(table.log), head_of(table).log_start) == (3, 3)
    assert (pairs(table.log), page(table.log).position) == ([], 3)
    view = head_of(table).view
    assert view is not None
    assert (view.files, view.bytes, view.records) == (0, 0, 0)


def test_a_view_holds_nothing_that_was_trimmed_before_it(table: Service) -> None:
    """That includes the trimmed part of a batch that the log start cuts in two, and of the view before."""
    log = LogBuilder(topic_id=table.topic_id())
    log.add(part_of((None, b"0"), (None, b"1")))
    log.add(part_of((None, b"2"), (None, b"3")))
    log.store(table.objects)
    table.log.partitions.trim(TOPIC, 0, 1)
    first = table.log.partitions.compact_now(TOPIC, 0)
    put(table.log, ("a", "4"))
    table.log.partitions.trim(TOPIC, 0, 3)
    second = table.log.partitions.compact_now(TOPIC, 0)
    assert first is not None
    assert second is not None
    assert (first.records, second.records) == (3, 2)


# Tombstones, and readers that go on across a compaction

DAY = 86_400_000


def table_of(records: Iterable[ReadRecord], rows: dict[bytes | None, bytes]) -> dict[bytes | None, bytes]:
    for record in records:
        rows.pop(record.key, None)
        if record.value is not None:
            rows[record.key] = record.value
    return rows


def test_a_reader_that_goes_on_across_a_compaction_sees_each_delete(kept: Service) -> None:
    """Page 1 of the view, five deletes, a compaction, and on: nothing that was deleted stays in its table."""
    for n in range(10):
        put(kept.log, (f"k{n}", f"{n}"))
    kept.log.partitions.compact(TOPIC, 0)
    first = page(kept.log, 0, max_records=5)
    assert (first.compaction_horizon, first.deletes_to) == (10, 0)
    for n in range(5):
        put(kept.log, (f"k{n}", None))
    kept.log.partitions.compact(TOPIC, 0)
    rest = page(kept.another(), first.position, compacted_since=first.compaction_horizon)
    assert (rest.compaction_horizon, rest.deletes_to, rest.position) == (15, 0, 15)
    rows = table_of([*first.records, *rest.records], {})
    assert rows.keys() == {b"k5", b"k6", b"k7", b"k8", b"k9"}
    assert table_of(read_all(kept.another()), {}) == rows


def test_a_tombstone_goes_a_day_after_a_horizon_beyond_it_was_seen_in_force(kept: Service) -> None:
    """Not a day after its append, which was long before its first view; nor after the write that moved the pointer."""
    put(kept.log, ("a", "1"), ("a", None), ("b", "2"))
    kept.runtime.advance(DAY + 1)  # older than a day at its first compaction
    kept.log.partitions.compact(TOPIC, 0)
    assert pairs(kept.log) == [(1, "a", None), (2, "b", "2")]
    kept.runtime.advance(DAY)  # no process has seen yet that the view is in force
    put(kept.log, ("c", "3"), ("c", None))
    kept.log.partitions.compact(TOPIC, 0)
    assert pairs(kept.log) == [(1, "a", None), (2, "b", "2"), (4, "c", None)]
    assert head_of(kept).seen_in_force == ((3, kept.runtime.now_ms()),)
    kept.runtime.advance(DAY - 1)
    put(kept.log, ("d", "4"))
    kept.log.partitions.compact(TOPIC, 0)
    assert (page(kept.log).deletes_to, len(pairs(kept.log))) == (0, 4)
    kept.runtime.advance(1)
    put(kept.log, ("e", "5"))
    kept.log.partitions.compact(TOPIC, 0)
    assert (page(kept.log).compaction_horizon, page(kept.log).deletes_to) == (7, 3)
    assert pairs(kept.log) == [(2, "b", "2"), (4, "c", None), (5, "d", "4"), (6, "e", "5")]


def test_a_sweep_sees_a_view_in_force(kept: Service) -> None:
    put(kept.log, ("a", "1"), ("a", None))
    kept.log.partitions.compact(TOPIC, 0)
    compaction.note_in_force(partition_of(kept))
    assert head_of(kept).seen_in_force == ((2, kept.runtime.now_ms()),)
    before = kept.count()
    compaction.note_in_force(partition_of(kept))
    assert kept.count()["items.write"] == before["items.write"], "it is noted once"
    kept.runtime.advance(DAY)
    put(kept.log, ("b", "2"))
    kept.log.partitions.compact(TOPIC, 0)
    assert pairs(kept.log) == [(2, "b", "2")]


def clocked(service: Service, ahead_ms: int) -> Log:
    """Return a process whose clock is ahead of the store's, or behind."""
    clock = type(service.runtime)()
    clock.wall_ms = service.runtime.wall_ms + ahead_ms
    return service.another(runtime=clock)


def test_no_wrong_clock_of_a_process_lets_a_tombstone_go_early(kept: Service) -> None:
    """It is noted by the later, and judged by the earlier, of the process's clock and the store's."""
    put(kept.log, ("a", "1"), ("a", None))
    kept.log.partitions.compact(TOPIC, 0)
    compaction.note_in_force(partition_of(kept, clocked(kept, -30 * DAY)))
    assert head_of(kept).seen_in_force == ((2, kept.runtime.now_ms()),)
    put(kept.log, ("b", "2"))
    clocked(kept, 30 * DAY).partitions.compact_now(TOPIC, 0)
    assert pairs(kept.log) == [(1, "a", None), (2, "b", "2")]
    kept.runtime.advance(DAY)
    put(kept.log, ("c", "3"))
    clocked(kept, -DAY).partitions.compact_now(TOPIC, 0)
    assert page(kept.log).deletes_to == 0, "a clock that is behind keeps it for longer"
    put(kept.log, ("d", "4"))
    kept.log.partitions.compact(TOPIC, 0)
    assert page(kept.log).deletes_to == 2


def test_a_note_of_a_clock_that_was_years_ahead_is_outdone_by_the_next_one(kept: Service) -> None:
    put(kept.log, ("a", "1"), ("a", None))
    kept.log.partitions.compact(TOPIC, 0)
    compaction.note_in_force(partition_of(kept, clocked(kept, 1_000 * DAY)))
    put(kept.log, ("b", "2"))
    kept.log.partitions.compact(TOPIC, 0)
    compaction.note_in_force(partition_of(kept))
    assert head_of(kept).seen_in_force == ((3, kept.runtime.now_ms()),)


@pytest.mark.parametrize(("retention_ms", "expected"), [(0, (4, 2)), (-1, (0, 3)), (DAY, (0, 3))])
def test_how_long_a_tombstone_is_kept_is_the_topics_to_say(retention_ms: int, expected: tuple[int, int]) -> None:
    with closing(serve_table(retention_ms)) as service:
        put(service.log, ("a", "1"), ("b", "2"), ("a", None), ("c", "3"))
        service.log.partitions.compact(TOPIC, 0)
        assert (page(service.log).deletes_to, len(pairs(service.log))) == expected
        compaction.note_in_force(partition_of(service))
        service.runtime.advance(400 * DAY)
        put(service.log, ("d", "4"))
        service.log.partitions.compact(TOPIC, 0)
        left = [offset for offset, _, value in pairs(service.log) if value is None]
        assert left == ([2] if retention_ms == -1 else [])


def test_the_view_of_an_older_version_lacks_every_tombstone_below_its_horizon(kept: Service) -> None:
    put(kept.log, ("a", "1"), ("a", None))
    kept.log.partitions.compact(TOPIC, 0)
    value = dict(head_of(kept).to_value())
    value["compacted_view"] = {n: v for n, v in value["compacted_view"].items() if n != "deletes_to"}
    del value["seen_in_force"]
    key = keys.head_item(kept.topic_id(), 0)
    version = kept.items.store.get([key])[key].version
    kept.items.store.write([StorePut(key, value, version + 1, version)])
    assert (page(kept.another()).compaction_horizon, page(kept.another()).deletes_to) == (2, 2)
    put(kept.log, ("b", None))
    kept.another().partitions.compact(TOPIC, 0)
    assert (page(kept.another()).compaction_horizon, page(kept.another()).deletes_to) == (3, 2)


def test_a_reader_that_may_have_missed_a_delete_must_begin_anew(table: Service) -> None:
    """Only then: not at or beyond ``deletes_to``, and not one whose first page was of that view or a later one."""
    put(table.log, *[(f"k{n}", f"{n}") for n in range(6)])
    table.log.partitions.compact(TOPIC, 0)
    first = page(table.log, 0, max_records=2)
    put(table.log, ("k0", None), ("k9", "9"))
    table.log.partitions.compact(TOPIC, 0)
    with pytest.raises(errors.ViewMovedError) as raised:
        page(table.another(), first.position, compacted_since=first.compaction_horizon)
    assert (raised.value.compaction_horizon, raised.value.deletes_to, raised.value.next_step) == (8, 8, "fix")
    for offset, since in ((2, 8), (8, 6)):
        page(table.another(), offset, compacted_since=since)
    with pytest.raises(errors.ViewMovedError):
        page(table.another(), 7, compacted_since=7)


def test_a_reader_whose_delete_is_below_the_log_start_must_begin_anew(kept: Service) -> None:
    """A trim, or retention beside compaction, takes tombstones too: a view that has all of its own is not enough."""
    put(kept.log, ("a", "1"), ("b", "2"), ("c", "3"))
    kept.log.partitions.compact(TOPIC, 0)
    first = page(kept.log, 0, max_records=2)
    assert (first.position, first.compaction_horizon) == (2, 3)
    put(kept.log, ("a", None), ("d", "4"), ("e", "5"))
    kept.log.partitions.trim(TOPIC, 0, 3)
    assert page(kept.another(), 2, compacted_since=3).position == 6, "each delete is still there"
    kept.log.partitions.trim(TOPIC, 0, 4)
    with pytest.raises(errors.ViewMovedError) as raised:
        page(kept.another(), 2, compacted_since=3)
    assert (raised.value.compaction_horizon, raised.value.deletes_to) == (3, 4)
    assert page(kept.another(), 4, compacted_since=3).position == 6, "it has read the delete"
    assert table_of(page(kept.another()).records, {}).keys() == {b"d", b"e"}


def test_a_reader_whose_view_is_no_longer_in_force_must_begin_anew(table: Service) -> None:
    """The order was altered, and back: from the log it reads an old value, whose delete the view lacks."""
    for row in (("b", "1"), ("c", "2"), ("a", "3"), ("a", None), ("d", "4")):
        put(table.log, row)
    table.log.partitions.compact(TOPIC, 0)
    first = page(table.log, 0, max_records=1)
    assert (first.position, first.compaction_horizon) == (1, 5)
    table.log.topics.alter(TOPIC, config={"compaction.order": "timestamp", "delete.retention.ms": -1})
    with pytest.raises(errors.ViewMovedError) as raised:
        page(table.another(), 1, max_records=2, compacted_since=5)
    assert (raised.value.compaction_horizon, raised.value.deletes_to) == (0, 0)
    anew = page(table.another(), 0, max_records=3)
    assert (anew.position, table_of(anew.records, {})[b"a"], anew.compaction_horizon) == (3, b"3", 0)
    table.log.topics.alter(TOPIC, config={"compaction.order": None})
    with pytest.raises(errors.ViewMovedError):
        page(table.another(), 3, compacted_since=0)


def test_without_a_view_a_page_says_that_no_tombstone_is_missing(kept: Service) -> None:
    put(kept.log, ("a", None))
    for offset in (0, 1):
        one = page(kept.log, offset)
        assert (one.compaction_horizon, one.deletes_to) == (0, 0)
    plain_page = kept.log.partitions.read(TOPIC, 0, ReadRequest(offset=0))
    assert (plain_page.compaction_horizon, plain_page.deletes_to) == (None, None)


@pytest.mark.parametrize("retention_ms", [0, 1_000, DAY, -1])
@tries(20)
@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 4)),
            st.tuples(st.just("delete"), st.integers(0, 4)),
            st.tuples(st.just("compact"), st.integers(0, 0)),
            st.tuples(st.just("note"), st.integers(0, 0)),
            st.tuples(st.just("rest"), st.sampled_from([1, 600, DAY // 2, DAY])),
            st.tuples(st.just("page"), st.integers(1, 2)),
        ),
        max_size=40,
    )
)
def test_a_table_that_is_read_across_compactions_is_that_of_the_whole_log(
    retention_ms: int, steps: list[tuple[str, int]]
) -> None:
    """Whatever is appended, compacted, noted and waited for between two pages."""
    with closing(serve_table(retention_ms)) as service:
        rows: dict[bytes | None, bytes] = {}
        position, since = 0, None
        expected: dict[bytes | None, bytes] = {}

        def read(max_records: int) -> bool:
            nonlocal position, since
            try:
                one = page(service.log, position, max_records=max_records, compacted_since=since)
            except errors.ViewMovedError:
                rows.clear()
                position, since = 0, None
                return True
            table_of(one.records, rows)
            since = one.compaction_horizon if since is None else since
            position = one.position
            return position < one.bounds.next_offset

        for kind, number in steps:
            if kind in ("put", "delete"):
                value = f"{len(expected)}-{number}" if kind == "put" else None
                put(service.log, (f"k{number}", value))
                expected.pop(b"k%d" % number, None)
                if value is not None:
                    expected[b"k%d" % number] = value.encode()
            elif kind == "compact":
                service.log.partitions.compact(TOPIC, 0)
            elif kind == "note":
                compaction.note_in_force(partition_of(service))
            elif kind == "rest":
                service.runtime.advance(number)
            else:
                read(number)
        while read(2):
            pass
        assert rows == expected


@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 500)), max_size=120))
def test_horizons_seen_in_force_are_thinned_to_a_bounded_list(seen: list[tuple[int, int]]) -> None:
    """It never names a horizon earlier than it was seen, and the first and last that count stay."""
    found = tombstones.thinned(tuple(seen))
    assert len(found) <= limits.SEEN_IN_FORCE_MAX
    assert set(found) <= set(seen)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in pairwise(found))
    if seen:
        assert found[0][1] == min(at for _, at in seen)
        assert found[-1][0] == max(horizon for horizon, _ in seen)


# The model


@dataclass
class Model:
    """Everything that was ever appended, kept in a list."""

    log: LogBuilder
    kind: Kind = "offset"
    records: list[tuple[ReadRecord, int | None]] = field(default_factory=list)  # each with its transaction
    outcomes: dict[int, bool] = field(default_factory=dict)  # transaction -> committed
    open: dict[int, int] = field(default_factory=dict)  # producer -> transaction
    epochs: dict[int, int] = field(default_factory=dict)
    sequences: dict[int, int] = field(default_factory=dict)

    def is_committed(self, transaction: int | None) -> bool:
        return transaction is None or self.outcomes.get(transaction, False)

    def view(self, horizon: int, start: int, *, is_read_committed: bool) -> list[ReadRecord]:
        committed = [
            record
            for record, of in self.records
            if record.offset < horizon and record.key is not None and self.is_committed(of)
        ]
        if self.kind == "timestamp":
            committed.sort(key=lambda record: (record.timestamp, record.origin or self.log.region, record.offset))
        newest = {record.key: record.offset for record in committed}
        shown: list[ReadRecord] = []
        stable = self.log.state.last_stable_offset(0)
        for record, transaction in self.records:
            if record.offset < start or (is_read_committed and record.offset >= stable):
                continue
            if record.offset >= horizon:
                is_shown = not is_read_committed or self.is_committed(transaction)
            elif record.key is None:
                is_shown = self.is_committed(transaction)
            else:
                is_shown = self.kind != "offset" or record.value is not None
                is_shown = is_shown and newest.get(record.key) == record.offset
                is_shown = is_shown and self.is_committed(transaction)
            if is_shown:
                shown.append(record)
        return shown

    # Steps

    def append(
        self, records: Sequence[Pair], codec: Any, producer: int | None, origin: str | None, is_late: bool
    ) -> None:
        transaction = None
        ref = None
        if origin is None and producer is not None:
            epoch = self.epochs.setdefault(producer, 0)
            ref = (producer, epoch, self.sequences.get(producer, 0))
            self.sequences[producer] = ref[2] + len(records)
            transaction = self.open.setdefault(producer, len(self.records))
        made: list[batch.StoredRecord] = []

        def part(offset: int, epoch: int, now_ms: int) -> bytes:
            ids = ref or (-1, -1, -1)
            body = batch.encode(
                [Record(v, k, (("h", k),), now_ms - n * 10) for n, (k, v) in enumerate(records)],
                now_ms=now_ms,
                codec=codec,
                producer_id=ids[0],
                producer_epoch=ids[1],
                base_sequence=ids[2],
                is_transactional=ref is not None,
            ).body
            stamped = batch.stamp(
                body, base_offset=offset, leader_epoch=epoch, append_time=now_ms + 5 if is_late else None
            )
            made.extend(batch.decode(stamped))
            return stamped

        epoch = self.log.state.topic_epoch
        replicated = None if origin is None else Replicated("t", 5, 1)
        self.log.add(part, origin=origin, replicated=replicated)
        for r in made:
            shown = ReadRecord(r.offset, r.timestamp, r.key, r.value, r.headers, epoch, origin)
            self.records.append((shown, transaction))

    def end(self, producer: int, is_commit: bool) -> None:
        transaction = self.open.pop(producer, None)
        if transaction is None:
            return
        self.outcomes[transaction] = is_commit
        self.epochs[producer] += 1
        self.sequences[producer] = 0
        self.log.add(outcome(producer, self.epochs[producer], is_commit=is_commit))

    def mark(self, part: Part) -> None:
        self.log.add(part)


KINDS: st.SearchStrategy[Kind] = st.sampled_from(["offset", "kept", "timestamp"])
KEYS = st.sampled_from([None, b"a", b"b", b"c", b"d"])
VALUES = st.sampled_from([None, b"", b"1", b"2" * 40])
RECORDS = st.lists(st.tuples(KEYS, VALUES), min_size=1, max_size=5)
APPEND = st.tuples(
    st.just("append"),
    RECORDS,
    st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]),
    st.sampled_from([None, None, 7, 8]),
    st.sampled_from([None, None, None, "us", "eu"]),
    st.booleans(),
)
STEPS = st.lists(
    st.one_of(
        APPEND,
        APPEND,
        APPEND,
        st.tuples(st.just("end"), st.sampled_from([7, 8]), st.booleans()),
        st.tuples(st.just("compact"), st.integers(1, 6)),
        st.tuples(st.just("trim"), st.floats(0, 1)),
        st.tuples(st.just("marker"), st.booleans()),
    ),
    max_size=16,
)


def take(service: Service, model: Model, steps: Sequence[tuple[Any, ...]]) -> None:
    stored = 0
    for kind, *rest in steps:
        if kind == "append":
            model.append(*rest)
        elif kind == "end":
            model.end(*rest)
        elif kind == "marker":
            model.mark(access("s", model.log.state.topic_epoch + 1) if rest[0] else marker(0x80))
        model.log.store(service.objects, stored)
        stored = len(model.log.segments)
        if kind == "trim":
            service.log.partitions.trim(TOPIC, 0, int(rest[0] * model.log.state.next_offset))
        elif kind == "compact":
            log = service.another()
            compaction.compact(partition_of(service, log), keys_max=rest[0])
            bounds = log.partitions.offsets(TOPIC, 0)
            assert bounds.compaction_horizon == bounds.bounds.last_stable_offset


@pytest.mark.parametrize(("file_bytes", "block_bytes"), [(64 * 2**20, 2 * 2**20), (300, 100)])
@tries(60)
@given(steps=STEPS, kind=KINDS)
def test_a_compacted_read_from_any_offset_is_what_a_model_says(
    file_bytes: int, block_bytes: int, steps: list[tuple[Any, ...]], kind: Kind
) -> None:
    """Keys, tombstones, records without a key, transactions, replicated batches, markers, trims, and several rounds."""
    with closing(serve_kind(kind)) as service, pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMPACTED_FILE_BYTES_MAX", file_bytes)
        patch.setattr(limits, "COMPACTED_BLOCK_BYTES", block_bytes)
        model = Model(LogBuilder(topic_id=service.topic_id()), kind)
        take(service, model, [*steps, ("compact", 3)] if len(steps) % 2 else steps)
        log = service.another()
        offsets = log.partitions.offsets(TOPIC, 0)
        start = offsets.bounds.log_start_offset
        for is_read_committed in (False, True):
            for offset in range(offsets.bounds.next_offset + 1):
                found = read_all(log, offset, max_records=1 + offset % 3, is_read_committed=is_read_committed)
                expected = model.view(
                    offsets.compaction_horizon, max(offset, start), is_read_committed=is_read_committed
                )
                assert [plain(r) for r in found] == [plain(r) for r in expected]


def plain(record: ReadRecord) -> ReadRecord:
    return replace(record, headers=[*record.headers])


# What is stored


def test_a_view_is_kafkas_own_batches_without_producers(table: Service) -> None:
    model = Model(LogBuilder(topic_id=table.topic_id()))
    model.append([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], "zstd", 7, None, False)
    model.end(7, True)
    model.append([(b"b", b"4"), (b"d", b"5")], "lz4", None, "us", False)
    model.append([(b"e", b"6")], "none", None, None, True)
    model.log.store(table.objects)
    table.log.partitions.compact(TOPIC, 0)
    (key,) = view_files(table)
    stored = table.objects.store.get(key)
    batches = [header for _, header in batch.headers(stored.body)]
    originals = [header for s in model.log.segments for _, header in s.batches if not header.is_control]
    assert [(h.base_offset, h.last_offset_delta, h.codec) for h in batches] == [
        (h.base_offset, h.last_offset_delta, h.codec) for h in originals
    ]
    assert [h.count for h in batches] == [2, 2, 1]
    assert {(h.producer_id, h.producer_epoch, h.is_transactional) for h in batches} == {(-1, -1, False)}
    assert [h.base_sequence for h in batches] == [-1, 0, -1]
    assert [h.max_timestamp for h in batches] == [h.max_timestamp for h in originals]
    assert stored.metadata["origins"] == "us"
    _, (_, second), _ = ((at, h) for at, h in batch.headers(stored.body))
    at = batches[0].size
    assert stored.body[at + 61 : at + second.size] == model.log.segments[2].body[61:], "untouched: its bytes stay"


def test_the_time_of_a_batch_is_that_of_what_is_left_of_it(table: Service) -> None:
    model = Model(LogBuilder(topic_id=table.topic_id()))
    model.append([(b"a", b"1"), (b"b", b"2")], "none", None, None, False)  # the first is the newest
    model.append([(b"a", b"3")], "none", None, None, False)
    model.log.store(table.objects)
    table.log.partitions.compact(TOPIC, 0)
    (key,) = view_files(table)
    first = batch.parse_header(table.objects.store.get(key).body)
    (left,) = batch.decode(table.objects.store.get(key).body)
    assert first.max_timestamp == left.timestamp == model.records[1][0].timestamp


@pytest.mark.slow
def test_files_have_at_most_64_mib_and_their_metadata_fits_s3(table: Service) -> None:
    table.log.topics.alter(TOPIC, config={"max.message.bytes": 4 * limits.MIB})
    for n in range(18):
        for part in range(2):  # half of each batch, replaced
            records = [Record(b"%03d" % n + bytes(2_000_000), b"%d" % (n + part)) for _ in range(2)]
            table.log.append(TOPIC, 0, AppendRequest.of_records(records[: 2 - part]))
    for n in range(15):
        records = [Record(bytes(4_000_000), b"large %d" % n)]
        table.log.append(TOPIC, 0, AppendRequest.of_records(records))
    expected = [(r.offset, r.key) for r in newest(table)]
    view = table.log.partitions.compact_now(TOPIC, 0)
    assert view is not None
    stored = [table.objects.store.get(key) for key in view_files(table)]
    assert len(stored) == view.files == 2
    assert all(one.size <= 64 * limits.MIB for one in stored)
    assert stored[0].size > 60 * limits.MIB
    assert sum(one.size for one in stored) == view.bytes
    assert all(sum(len(n) + len(v) for n, v in one.metadata.items()) < 2_048 for one in stored)
    log = table.another()
    assert [(r.offset, r.key) for r in read_all(log, max_bytes=4 * limits.MIB)] == expected


def newest(service: Service) -> list[ReadRecord]:
    last = {record.key: record for record in service.records()}
    return sorted((record for record in last.values() if record.value is not None), key=lambda record: record.offset)


def test_a_page_of_a_large_file_costs_a_block_of_it(table: Service) -> None:
    for n in range(400):
        table.log.append(TOPIC, 0, AppendRequest.of_records([Record(bytes(100_000), b"%d" % n)]))
    table.log.partitions.compact_now(TOPIC, 0)
    log = table.another()
    page(log, 0, max_records=1)
    sizes: list[int] = []
    store = table.objects.store
    get = store.get

    def counted(key: str, start: int = 0, end: int | None = None) -> Any:
        found = get(key, start, end)
        if key.startswith("compacted/"):
            sizes.append(len(found.body))
        return found

    store.get = counted  # type: ignore[method-assign]
    page(log, 300, max_records=5)
    assert len(sizes) == 1
    assert sizes[0] < 3 * limits.MIB
    page(log, 305, max_records=5)
    assert len(sizes) == 1, "what was read of a view is remembered"


def test_many_origins_are_kept_apart(table: Service) -> None:
    log = LogBuilder(topic_id=table.topic_id())
    for n in range(30):
        key = b"%d" % n
        log.add(part_of((key, b"v")), origin=f"region-{n % 12}", replicated=Replicated("t", n + 1, n + 1))
        log.add(part_of((key + b"own", b"v")))
    log.store(table.objects)
    expected = table.records()
    table.log.partitions.compact(TOPIC, 0)
    found = read_all(table.another())
    assert [(r.offset, r.origin) for r in found] == [(r.offset, r.origin) for r in expected]
    for key in view_files(table):
        assert len(table.objects.store.get(key).metadata["origins"].split(",")) <= 8


def part_of(*records: Pair, **options: Any) -> Part:
    def part(offset: int, epoch: int, now_ms: int) -> bytes:
        body = batch.encode([Record(v, k) for k, v in records], now_ms=now_ms, **options).body
        return batch.stamp(body, base_offset=offset, leader_epoch=epoch)

    return part


# Memory and time


def distinct_keys(service: Service, count: int, per_batch: int = 1_000) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    for first in range(0, count, per_batch):
        log.add(part_of(*[(b"key-%d" % n, b"v") for n in range(first, min(first + per_batch, count))]))
    log.store(service.objects)


@pytest.mark.slow
def test_a_key_costs_less_than_180_bytes_while_it_is_remembered(table: Service) -> None:
    """limits.py says 111 to 171; so 2,000,000 keys fit 360 MB."""
    distinct_keys(table, 100_000)
    partition = partition_of(table)
    planned = compaction.plan(partition)
    assert planned is not None
    tracemalloc.start()
    try:
        found = copy.newest_offsets(partition, planned.source, keys_max=limits.COMPACTION_KEYS_MAX)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.offsets) == 100_000
    kept = size - limits.SEGMENT_CACHE_BYTES if size > limits.SEGMENT_CACHE_BYTES else size
    assert kept / len(found.offsets) < 180


def test_a_compaction_that_was_frozen_before_its_checkpoint_still_covers_what_was_there(
    table: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another request of its process looked meanwhile, and the log is followed anew."""
    put(table.log, ("a", "1"), ("a", "2"))
    partition = partition_of(table)
    load = partition.load_producers

    def load_and_freeze(producer_ids: Iterable[int]) -> None:
        monkeypatch.undo()
        load(producer_ids)
        table.runtime.advance(limits.ITEM_AGE_MS_MAX)
        partition.refresh()

    monkeypatch.setattr(partition, "load_producers", load_and_freeze)
    compaction.request(partition)
    assert horizon(table.log) == 2


def test_a_store_that_is_away_is_asked_once_by_a_compaction(table: Service) -> None:
    put(table.log, ("a", "1"))
    table.objects.always("get", is_unavailable)
    before = table.objects.calls["get"]
    with pytest.raises(errors.StoreUnavailableError):
        table.log.partitions.compact(TOPIC, 0)
    assert table.objects.calls["get"] == before + 1


def test_a_request_decodes_so_much_and_leaves_the_rest_to_the_sweeper(
    table: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(6):
        put(table.log, (f"{n}", "v" * 1_000))
    monkeypatch.setattr(limits, "COMPACTION_REQUEST_DECODED_BYTES", 2_000)
    table.log.partitions.compact(TOPIC, 0)
    assert horizon(table.log) == 2
    assert head_of(table).compaction_wanted == 6
    report = swept(table)
    assert (report.compactions, horizon(table.log)) == (1, 6)


def test_a_round_ends_after_so_many_decoded_bytes_and_another_one_follows(table: Service) -> None:
    for n in range(6):
        put(table.log, (f"{n}", "v" * 1_000))
    view = compaction.compact(partition_of(table), decoded_max=2_000)
    assert view is not None
    assert view.horizon == 6
    assert [keys.parse_compacted_key(key)[2] for key in view_files(table)] == [2, 4, 6], "each round makes a view"
    assert [key for _, key, _ in pairs(table.log)] == [*"012345"]


def test_the_first_pass_stops_before_it_remembers_too_many_keys(table: Service) -> None:
    distinct_keys(table, 1_000, per_batch=10)
    partition = partition_of(table)
    planned = compaction.plan(partition)
    assert planned is not None
    found = copy.newest_offsets(partition, planned.source, keys_max=105)
    assert (len(found.offsets), found.horizon) == (100, 100)
    one = copy.newest_offsets(partition, planned.source, keys_max=1)
    assert (len(one.offsets), one.horizon) == (10, 10), "one batch is always taken"


def test_more_keys_than_are_remembered_take_several_rounds(table: Service) -> None:
    distinct_keys(table, 1_000, per_batch=10)
    put(table.log, ("key-3", "new"), ("key-4", None))
    view = compaction.compact(partition_of(table), keys_max=300)
    assert view is not None
    assert (view.horizon, view.records) == (1_002, 999)
    assert len({key.split("/")[3] for key in view_files(table)}) == 4
    assert len(read_all(table.another(), max_records=10_000)) == 999


def test_a_compaction_holds_a_bounded_part_of_the_log(table: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once it holds the segments that are fetched side by side, the file under way, and the digests; not the log."""
    monkeypatch.setattr(limits, "COMPACTION_FETCH_BYTES", limits.MIB)
    monkeypatch.setattr(limits, "COMPACTED_FILE_BYTES_MAX", limits.MIB)
    log = LogBuilder(topic_id=table.topic_id())
    for n in range(80):
        log.add(part_of((b"%d" % n, bytes(250_000))))
    log.store(table.objects)
    log.store_head(table.items.store)
    partition = partition_of(table)
    log.segments.clear()
    tracemalloc.start()
    try:
        compaction.compact(partition)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(read_all(table.another())) == 80
    assert peak < 6 * limits.MIB, "of 20 MB"


def test_50_000_records_over_5_000_keys_are_compacted_in_seconds() -> None:
    service = serve_in_real_time()
    service.log.topics.create(TOPIC, config={"cleanup.policy": "compact"})
    for n in range(0, 50_000, 100):
        records = [Record(b"%0100d" % i, b"key-%d" % (i * 7919 % 5_000)) for i in range(n, n + 100)]
        service.log.append(TOPIC, 0, AppendRequest.of_records(records))
    began = time.process_time()
    service.log.partitions.compact(TOPIC, 0)
    took = time.process_time() - began
    assert horizon(service.log) == 50_000
    found = read_all(service.another(), max_records=10_000)
    assert [int(r.value or b"") for r in found] == [*range(45_000, 50_000)]
    service.close()
    assert took < 8


# Crashes and faults


class Crash(BaseException):
    """The end of the process."""


def crash_at(service: Service, nth: int, *, is_after: bool) -> None:
    """Let the process end before, or right after, the nth call of a store from now on."""
    left = nth

    def crash(call: Callable[[], Any]) -> Any:
        if is_after:
            with suppress(StoreFact):
                call()
        raise Crash

    for store in (service.objects, service.items):

        def on_call(operation: str, key: str, store: Any = store) -> None:
            nonlocal left
            left -= 1
            if left == -1:
                store.plan(operation, crash)

        store.on_call = on_call


def calm(service: Service) -> None:
    for store in (service.objects, service.items):
        store.on_call = None


def two_views(service: Service) -> Model:
    """Make a log with a view, and segments after it; return its model."""
    model = Model(LogBuilder(topic_id=service.topic_id()))
    rows = [(b"a", b"1"), (b"b", b"2"), (b"c", None), (b"a", b"3"), (None, b"4")]
    first = [("append", rows, "none", None, None, False), ("append", rows[:2], "zstd", 7, None, False)]
    more = [
        ("end", 7, False),
        ("append", [(b"b", None), (b"d", b"5")], "gzip", 8, None, False),
        ("append", [(b"d", b"6")], "none", None, "us", False),
        ("end", 8, True),
    ]
    take(service, model, [*first, ("compact", 9), *more])
    return model


def calls_of_a_compaction() -> int:
    service = serve_table()
    two_views(service)
    log = service.another()
    before = service.count().total()
    log.partitions.compact_now(TOPIC, 0)
    count = service.count().total() - before
    service.close()
    return count


@pytest.mark.parametrize("is_after", [False, True])
def test_a_compactors_death_leaves_the_old_view_and_the_next_run_repairs_it(is_after: bool) -> None:
    calls = calls_of_a_compaction()
    horizons = []
    for nth in range(calls):
        service = serve_table()
        model = two_views(service)
        old, end = horizon(service.another()), model.log.state.next_offset
        log = service.another()
        crash_at(service, nth, is_after=is_after)
        with pytest.raises(Crash):
            log.partitions.compact_now(TOPIC, 0)
        calm(service)
        now = horizon(service.another())
        horizons.append(now)
        assert now in (old, end)
        assert read_all(service.another(), max_records=2) == model.view(now, 0, is_read_committed=False)
        service.another().partitions.compact(TOPIC, 0)
        assert horizon(service.another()) == end
        expected = model.view(end, 0, is_read_committed=False)
        assert read_all(service.another(), max_records=2) == expected
        service.runtime.advance(limits.GC_GRACE_MS + 1)
        put(service.another(), ("z", "9"))
        service.another().partitions.compact(TOPIC, 0)
        service.runtime.advance(limits.COMPACTION_TRAIL_MS)
        compaction.note_in_force(partition_of(service))
        service.runtime.advance(limits.GC_GRACE_MS + 1)
        left = head_of(service).view
        assert left is not None
        for key in stale(service):
            service.objects.store.delete(key)
        assert {keys.parse_compacted_key(key)[3] for key in view_files(service)} == {left.attempt}
        assert [r.offset for r in read_all(service.another())] == [*(r.offset for r in expected), end]
        service.close()
    assert set(horizons) == ({old, end} if is_after else {old}), "the pointer's write is the commit, and the last call"


@pytest.mark.parametrize(
    ("store", "operation", "fault"),
    [
        *[("objects", "create", fault) for fault in (loses_answer, never_arrives, is_unavailable, conflicts)],
        *[("items", "write", fault) for fault in (loses_answer, never_arrives, is_unavailable, moves)],
    ],
)
@pytest.mark.parametrize("nth", range(3))
def test_one_fault_of_a_store_is_outlived(table: Service, store: str, operation: str, fault: Any, nth: int) -> None:
    model = two_views(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "COMPACTED_FILE_BYTES_MAX", 150)
        getattr(table, store).plan(operation, *[lambda call: call()] * nth, fault)
        table.another().partitions.compact_now(TOPIC, 0)
    end = model.log.state.next_offset
    assert horizon(table.another()) == end
    assert read_all(table.another()) == model.view(end, 0, is_read_committed=False)


def test_a_store_that_takes_nothing_leaves_the_old_view(table: Service) -> None:
    model = two_views(table)
    old = horizon(table.log)
    table.objects.always("create", is_unavailable, "compacted/")
    with pytest.raises(errors.StoreUnavailableError):
        table.log.partitions.compact(TOPIC, 0)
    table.objects.always("create", None)
    table.items.always("write", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        table.log.partitions.compact(TOPIC, 0)
    table.items.always("write", None)
    assert horizon(table.another()) == old
    assert read_all(table.another()) == model.view(old, 0, is_read_committed=False)
    assert stale(table) == [], "what died beyond the view in force may still be put in force by its maker"


def test_a_view_whose_files_are_not_all_there_is_never_put_in_force(table: Service) -> None:
    put(table.log, ("a", "1"))
    partition, view = copied(table)
    (key,) = view_files(table)
    stored = table.objects.store.get(key)
    table.objects.store.delete(key)
    with pytest.raises(errors.CorruptLogError):
        compaction.swap(partition, view)
    assert horizon(table.log) == 0
    table.objects.store.create(key, stored.body, stored.metadata)
    assert compaction.swap(partition, view).attempt == view.attempt
    assert horizon(table.log) == 1


def test_a_damaged_view_is_not_copied_into_the_next_one(table: Service) -> None:
    """A batch's CRC does not cover its first 17 bytes. The file's checksum does; a file of before has none."""
    put(table.log, ("a", "1"), ("b", "2"))
    table.log.partitions.compact(TOPIC, 0)
    old = horizon(table.log)
    (key,) = view_files(table)
    stored = table.objects.store.get(key)
    assert stored.metadata[checksummed.MEMBER] == f"{crc32c(stored.body):08x}"
    put(table.log, ("c", "3"))
    moved = stored.body[:15] + bytes([stored.body[15] ^ 1]) + stored.body[16:]  # partitionLeaderEpoch
    table.objects.store.delete(key)
    table.objects.store.create(key, moved, stored.metadata)
    with pytest.raises(errors.CorruptLogError, match=f"the checksum that is stored with it.*key={key}"):
        table.another().partitions.compact(TOPIC, 0)
    assert horizon(table.another()) == old
    table.objects.store.delete(key)
    of_before = {name: value for name, value in stored.metadata.items() if name != checksummed.MEMBER}
    table.objects.store.create(key, moved, of_before)
    table.another().partitions.compact(TOPIC, 0)
    assert horizon(table.another()) > old


def test_files_that_went_with_their_topic_before_the_swap_are_no_damage(table: Service) -> None:
    put(table.log, ("a", "1"))
    partition, view = copied(table)
    (key,) = view_files(table)
    table.another().topics.delete(TOPIC)
    table.objects.store.delete(key)  # as the sweeper does, while this process was frozen
    with pytest.raises(StaleTopicId):
        compaction.swap(partition, view)


def test_a_damaged_log_is_reported_and_no_view_is_made(table: Service) -> None:
    put(table.log, ("a", "1"))
    put(table.log, ("b", "2"))
    table.log.partitions.checkpoint(TOPIC, 0)
    table.objects.store.delete(keys.segment_key(table.topic_id(), 0, 0))
    with pytest.raises(errors.CorruptLogError):
        table.another().partitions.compact(TOPIC, 0)
    assert horizon(table.another()) == 0


def test_a_damaged_view_is_reported(table: Service) -> None:
    put(table.log, ("a", "1"))
    table.log.partitions.compact(TOPIC, 0)
    (key,) = view_files(table)
    stored = table.objects.store.get(key)
    table.objects.store.delete(key)
    with pytest.raises(errors.CorruptLogError):
        page(table.another())
    flipped = stored.body[:-2] + bytes([stored.body[-2] ^ 1, stored.body[-1]])  # a damaged value
    table.objects.store.create(key, flipped, stored.metadata)
    with pytest.raises(errors.CorruptLogError):
        page(table.another())
    assert table.log.partitions.read(TOPIC, 0, ReadRequest(offset=0)).records, "the log itself is whole"


# Beside others


def test_of_two_compactors_the_farther_wins(table: Service) -> None:
    """Whichever is first, a pointer never moves back, and the loser answers with the winner's view."""
    put(table.log, ("a", "1"), ("b", "2"))
    slow, gate = partition_of(table), Gate()
    planned = compaction.plan(slow)
    assert planned is not None
    found = copy.newest_offsets(slow, planned.source, keys_max=9)
    view = copy.copy(slow, planned.source, found, planned.attempt)
    same = table.another().partitions.compact_now(TOPIC, 0)
    assert compaction.swap(slow, view) == same, "as far is not farther"
    put(table.log, ("a", "3"))
    with ThreadPoolExecutor(1) as pool:
        table.items.plan("write", gate)
        behind = pool.submit(partition_compact, table)
        assert gate.reached.wait(PATIENCE_S)
        put(table.another(), ("b", "4"))
        farther = table.another().partitions.compact_now(TOPIC, 0)
        gate.opened.set()
        assert behind.result(PATIENCE_S) == farther == head_of(table).view
    assert pairs(table.another()) == [(2, "a", "3"), (3, "b", "4")]
    assert planned.attempt in {key.split("/")[4] for key in view_files(table)}


def partition_compact(service: Service) -> CompactedView | None:
    log = service.another()
    log.partitions.checkpoint(TOPIC, 0)
    return log.partitions.compact_now(TOPIC, 0)


def test_a_shorter_view_in_force_gives_way_to_a_farther_one_made_before_it(table: Service) -> None:
    put(table.log, ("a", "1"), ("b", "2"))
    put(table.log, ("b", None))
    one, other = partition_of(table), partition_of(table)
    long = compaction.plan(one)
    assert long is not None
    source = replace(long.source, horizon=2)
    short = copy.copy(other, source, copy.newest_offsets(other, source, keys_max=9), "short")
    found = copy.newest_offsets(one, long.source, keys_max=9)
    view = copy.copy(one, long.source, found, long.attempt)
    assert compaction.swap(other, short).horizon == 2
    assert pairs(table.another()) == [(0, "a", "1"), (1, "b", "2"), (2, "b", None)]
    assert compaction.swap(one, view).horizon == 3
    assert pairs(table.another()) == [(0, "a", "1")]


def read_before(act: Callable[[], object]) -> Fault:
    """Return what becomes of a read whose process sleeps after it; meanwhile others act."""

    def fault(call: Callable[[], Any]) -> Any:
        found = call()
        act()
        return found

    return fault


def goes_farther(service: Service) -> None:
    put(service.log, ("later", "1"))
    service.another().partitions.compact(TOPIC, 0)


def test_a_swap_that_sleeps_after_it_read_the_head_takes_no_farther_view_back(table: Service) -> None:
    put(table.log, ("a", "1"))
    partition, view = copied(table)
    table.items.plan("get", read_before(partial(goes_farther, table)))
    in_force = compaction.swap(partition, view)
    assert (view.horizon, in_force.horizon, head_of(table).view) == (1, 2, in_force)


def test_a_note_that_sleeps_after_it_read_the_head_takes_no_farther_view_back(kept: Service) -> None:
    put(kept.log, ("a", "1"))
    kept.log.partitions.compact(TOPIC, 0)
    partition = partition_of(kept)
    kept.items.plan("get", read_before(partial(goes_farther, kept)))
    with pytest.raises(VersionMoved):
        compaction.note_in_force(partition)
    assert horizon(kept.another()) == 2


def test_a_reader_goes_on_while_views_are_swapped_under_it(table: Service) -> None:
    for n in range(12):
        put(table.log, (f"k{n % 6}", f"{n}"))
    table.log.partitions.compact(TOPIC, 0)
    reader = table.another()
    first = page(reader, 0, max_records=2)
    assert [r.offset for r in first.records] == [6, 7]
    put(table.log, ("k2", "new"), ("k9", "9"))
    table.log.partitions.compact(TOPIC, 0)
    rest = read_all(reader, first.position)
    assert [(r.offset, r.key) for r in rest] == [(9, b"k3"), (10, b"k4"), (11, b"k5"), (12, b"k2"), (13, b"k9")]


def test_a_reader_under_way_in_a_view_that_was_collected_reads_again(table: Service) -> None:
    put(table.log, ("a", "1"))
    table.log.partitions.compact(TOPIC, 0)
    gate, reader = Gate(), table.another()
    with ThreadPoolExecutor(1) as pool:
        table.objects.always("get", gate, "compacted/")
        reading = pool.submit(page, reader)
        assert gate.reached.wait(PATIENCE_S)
        table.objects.always("get", None)
        put(table.log, ("a", "2"))
        old = view_files(table)
        table.another().partitions.compact_now(TOPIC, 0)
        for key in old:
            table.objects.store.delete(key)
        gate.opened.set()
        with pytest.raises(errors.StoreUnavailableError):
            reading.result(PATIENCE_S)
    assert pairs(reader) == [(1, "a", "2")]


def test_appends_trims_and_checkpoints_beside_it_lose_nothing() -> None:
    service = serve_in_real_time()
    service.log.topics.create(TOPIC, config={"cleanup.policy": "compact"})
    stop = threading.Event()
    written: dict[str, int] = {}
    done = {"compactions": 0, "trims": 0, "reads": 0}

    def write() -> None:
        log, n = service.another(), 0
        while not stop.is_set():
            put(log, (f"k{n % 9}", f"{n}"))
            written[f"k{n % 9}"] = n
            n += 1

    def compact() -> None:
        log = service.another()
        while not stop.is_set():
            log.partitions.compact_now(TOPIC, 0)
            done["compactions"] += 1

    def trim() -> None:
        log = service.another()
        while not stop.wait(0.05):
            end = log.partitions.offsets(TOPIC, 0).bounds.next_offset
            log.partitions.trim(TOPIC, 0, max(end - 40, 0))
            done["trims"] += end > 40

    def read() -> None:
        log = service.another()
        while not stop.is_set():
            offsets = log.partitions.offsets(TOPIC, 0)
            rows = {key: int(value or 0) for _, key, value in pairs(log, offsets.bounds.log_start_offset)}
            assert len(rows) in (0, 9) or offsets.bounds.next_offset < 9
            done["reads"] += 1

    with ThreadPoolExecutor(5) as pool:
        running = [pool.submit(task) for task in (write, compact, compact, trim, read)]
        try:
            wait_until(lambda: (len(written) == 9 and min(done.values()) > 2) or any(task.done() for task in running))
        finally:
            stop.set()
        for task in running:
            task.result(PATIENCE_S)
    service.log.partitions.compact(TOPIC, 0)
    assert {key: int(value or 0) for _, key, value in pairs(service.another())} == written
    assert len(read_all(service.another())) == 9
    service.close()


def test_a_checkpoint_by_a_process_that_knows_an_older_head_keeps_the_view(table: Service) -> None:
    put(table.log, ("a", "1"))
    table.log.partitions.checkpoint(TOPIC, 0)
    put(table.log, ("a", "2"))
    table.another().partitions.compact_now(TOPIC, 0)
    put(table.log, ("a", "3"))
    before = head_of(table).view
    table.log.partitions.checkpoint(TOPIC, 0)
    table.log.partitions.trim(TOPIC, 0, 1)
    head = head_of(table)
    assert (head.state.next_offset, head.log_start, head.compaction_horizon) == (3, 1, 2)
    assert head.view == before


def test_an_answered_horizon_does_not_go_back(table: Service) -> None:
    """Two looks of one process may come back in the other order."""
    put(table.log, ("a", "1"))
    table.log.partitions.checkpoint(TOPIC, 0)
    before = head_of(table)
    partition = partition_of(table)
    compaction.compact(partition)
    after = head_of(table)
    assert partition.head == after
    partition.note_head(before, 1)
    assert partition.head == after


# When, and by whom


def head_with(bytes: int, next_offset: int, view: CompactedView | None = None, **options: Any) -> Head:
    state = PartitionState(next_offset=next_offset, bytes=bytes, **options)
    return Head(state, 0, compaction_horizon=0 if view is None else view.horizon, view=view)


def view_at(horizon: int, log_bytes: int, bytes: int) -> CompactedView:
    return CompactedView(horizon, "x", log_bytes, 1, bytes, 1)


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (head_with(0, 0), False),
        (head_with(100, 1), True),
        (head_with(1_000, 10, view_at(10, 1_000, 200)), False),
        (head_with(1_199, 11, view_at(10, 1_000, 200)), False),
        (head_with(1_200, 11, view_at(10, 1_000, 200)), True),
        (replace(head_with(1_001, 11, view_at(10, 1_000, 200)), compaction_wanted=11), True),
        (replace(head_with(1_001, 11, view_at(10, 1_000, 200)), compaction_wanted=10), False),
        (head_with(9_999, 99, view_at(10, 10, 1), open_transactions={7: OngoingTransaction(0, 10, 0)}), False),
    ],
)
def test_a_partition_is_due_when_half_of_it_is_new_or_compaction_is_wanted(head: Head, expected: bool) -> None:
    assert is_due(head) is expected
    if expected:
        assert plan_of(head, "x") is not None


def test_the_dirty_part_is_measured_by_stored_bytes(table: Service) -> None:
    for n in range(8):
        put(table.log, (f"{n}", "v" * 100))
    table.log.partitions.compact(TOPIC, 0)
    assert table.log.partitions.compact_now(TOPIC, 0, is_forced=False) == head_of(table).view
    at = horizon(table.log)
    for n in range(8):
        put(table.log, (f"{n}", "v" * 100))
        table.log.partitions.compact_now(TOPIC, 0, is_forced=False)
        assert horizon(table.log) == (at if n < 7 else 16), "half of all that is kept"


def test_trimmed_records_do_not_count_towards_the_size_of_a_compaction(table: Service) -> None:
    for n in range(4):
        put(table.log, (f"{n}", "v" * 1_000))
    put(table.log, ("small", "v"))
    table.log.partitions.trim(TOPIC, 0, 4)
    planned = compaction.plan(partition_of(table))
    assert planned is not None
    assert planned.bytes < 500
    assert table.another().partitions.compact_now(TOPIC, 0, bytes_max=500) is not None


def test_a_large_partition_is_left_to_the_sweeper_by_a_note_in_the_head(
    table: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(8):
        put(table.log, (f"{n}", "v" * 100))
    table.log.partitions.compact(TOPIC, 0)
    put(table.log, ("1", "w"))
    monkeypatch.setattr(limits, "COMPACTION_REQUEST_BYTES_MAX", 100)
    table.log.partitions.compact(TOPIC, 0)
    assert (horizon(table.log), head_of(table).compaction_wanted) == (8, 9)
    with pytest.raises(CompactionTooLarge):
        table.another().partitions.compact_now(TOPIC, 0, is_forced=False, bytes_max=100)
    table.another().partitions.checkpoint(TOPIC, 0)
    table.another().partitions.compact_now(TOPIC, 0, is_forced=False)
    assert horizon(table.log) == 9
    table.log.partitions.compact(TOPIC, 0)
    assert head_of(table).compaction_wanted == 9


# What may be deleted


def test_a_replaced_view_is_kept_for_an_hour_under_frequent_compactions(table: Service) -> None:
    left: list[tuple[int, str]] = []
    for n in range(30):
        put(table.log, ("a", f"{n}"))
        table.log.partitions.compact(TOPIC, 0)
        (fresh,) = set(view_files(table)) - {key for _, key in left}
        now = table.runtime.now_ms()
        left.append((now, fresh))
        collected = stale(table)
        for since, key in zip([since for since, _ in left[1:]], [key for _, key in left[:-1]], strict=True):
            if now - since < limits.GC_GRACE_MS:
                assert key not in collected
            elif now - since > limits.GC_GRACE_MS + limits.COMPACTION_TRAIL_MS:
                assert key in collected
        assert fresh not in collected
        table.runtime.advance(150_000)
    head = head_of(table)
    assert head.view is not None
    assert len(head.view.trail) <= 1 + limits.GC_GRACE_MS // limits.COMPACTION_TRAIL_MS + 1
    assert stale(table), "and none is kept for ever"


def test_the_grace_of_a_view_counts_from_when_the_next_one_was_seen_in_force(table: Service) -> None:
    """The write that put the next one in force may have landed long after the time that it carries."""
    put(table.log, ("a", "1"))
    table.log.partitions.compact(TOPIC, 0)
    (first,) = view_files(table)
    table.runtime.advance(2 * limits.COMPACTION_TRAIL_MS)
    put(table.log, ("a", "2"))
    table.log.partitions.compact(TOPIC, 0)
    table.runtime.advance(limits.GC_GRACE_MS + 1)
    assert stale(table) == []
    for _ in range(2):
        compaction.note_in_force(partition_of(table))
    table.runtime.advance(limits.GC_GRACE_MS - 1)
    assert stale(table) == []
    table.runtime.advance(1)
    assert stale(table) == [first]


def test_the_files_of_a_loser_may_be_deleted_once_nothing_can_put_them_in_force(table: Service) -> None:
    put(table.log, ("a", "1"))
    partition, lost = copied(table)
    (key,) = view_files(table)
    assert stale(table) == []
    table.another().partitions.compact_now(TOPIC, 0)
    assert stale(table) == [key]
    table.objects.store.delete(key)
    assert compaction.swap(partition, lost) == head_of(table).view
    assert pairs(table.another()) == [(0, "a", "1")]


def test_every_key_of_a_view_is_as_design_says() -> None:
    key = keys.compacted_key("t", 7, 42, "f" * 32, 5)
    assert key == f"compacted/t/00007/00000000000000000042/{'f' * 32}/00000000000000000005.log"
    assert keys.parse_compacted_key(key) == ("t", 7, 42, "f" * 32, 5)
    assert key.startswith(keys.view_prefix("t", 7, 42, "f" * 32))
    assert key.startswith(keys.compacted_prefix("t", 7))
    for other in (keys.segment_key("t", 0, 0), key.removesuffix(".log"), key.replace("compacted", "log")):
        with pytest.raises(ValueError):
            keys.parse_compacted_key(other)


@given(st.builds(CompactedView, *[st.integers(0, 2**62)] * 1, st.just("a"), *[st.integers(0, 2**62)] * 4))
def test_a_view_is_read_back_from_the_head(view: CompactedView) -> None:
    head = Head(PartitionState(), 0, compaction_horizon=view.horizon, view=replace(view, trail=((1, 2), (3, 4))))
    assert Head.from_value(head.to_value()) == head
    older = {name: v for name, v in head.to_value().items() if name not in ("compacted_view", "compaction_wanted")}
    assert Head.from_value(older).view is None


# The command


def test_the_command_compacts_a_directory_and_prints_the_result(tmp_path: Path) -> None:
    runtime = ThreadRuntime()
    objects, items = open_directory(tmp_path, now_ms=runtime.now_ms)
    log = Log(objects, items, runtime, region="local")
    log.topics.create("rows", partitions=2, config={"cleanup.policy": "compact"})
    log.topics.create("plain")
    for _ in range(3):
        log.append("rows", 1, AppendRequest.of_records([Record(b"v", b"k")]))

    def run(*arguments: str) -> Any:
        return CliRunner().invoke(app, ["compact", "--data", str(tmp_path), *arguments])

    lines = run("rows").stdout.splitlines()
    assert lines[0].split("\t") == ["partition", "compaction_horizon", "records", "files", "bytes"]
    assert [line.split("\t")[:4] for line in lines[1:]] == [["0", "0", "0", "0"], ["1", "3", "1", "1"]]
    (row,) = json.loads(run("rows", "1", "--json").stdout)
    assert (row["partition"], row["compaction_horizon"], row["records"]) == (1, 3, 1)
    for arguments, expected in (
        (("rows", "2"), "it has 0 to 1"),
        (("plain",), "cleanup.policy"),
        (("x",), "no topic has this name"),
    ):
        refused = run(*arguments)
        assert refused.exit_code == 1
        assert expected in refused.stderr
    objects.close()
    items.close()
