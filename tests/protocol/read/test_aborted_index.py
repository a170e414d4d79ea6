"""How aborted transactions are found, and what it costs, however many there are ("Readers of transactions")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.log import checkpoint, checkpoint_items
from fenceline.log.checkpoint_items import Head
from fenceline.model.results import AbortedTransaction
from fenceline.read import aborted as read_aborted
from fenceline.service.log import Log
from tests.support.service import TOPIC, LogBuilder, Part, Service, data, marker, only_partition_of, outcome, serve
from tests.support.transactional_logs import abort, commit, in_, made, read, store, values
from tests.support.tries import tries

# What a page costs


@contextmanager
def counting(service: Service) -> Iterator[Counter[str]]:
    """Count calls of the stores, and the aborted transactions that are read from items."""
    counted: Counter[str] = Counter()
    before = service.count()
    query = service.items.store.query

    def counted_query(*args: Any, **options: Any) -> Any:
        found = query(*args, **options)
        counted["aborted"] += len(found)
        return found

    with mock.patch.object(service.items.store, "query", counted_query):
        yield counted
    counted.update(service.count() - before)


def cost(service: Service, action: Callable[[], object]) -> Counter[str]:
    with counting(service) as counted:
        action()
    return counted


@pytest.mark.parametrize("is_read_committed", [False, True])
def test_without_transactions_isolation_makes_no_call_more(service: Service, is_read_committed: bool) -> None:
    log = made(service, *([data(f"v{n}", producer=(7, 0, n)), marker(0x80)] for n in range(40)))
    log.store_head(service.items)
    reader = service.another()
    for _ in range(2):
        counted = cost(service, lambda: read(reader, 0, is_read_committed=is_read_committed))
        assert counted["items.query"] == 0
        assert counted["items.get"] in (1, 2)
    assert counted == {"objects.get": 1, "objects.list": 1, "items.get": 1}


def test_a_page_asks_for_the_aborted_transactions_of_the_segments_that_it_shows_and_no_others(
    service: Service,
) -> None:
    """A marker among the segments decides. For one that comes later a few items are read, however many there are."""
    short = [[in_(6, "t", epoch=n), abort(6, n + 1)] for n in range(60)]
    made(service, *short, [in_(7, "x")], *([data("p")] for _ in range(40)), [abort(7)], *short)
    service.log.partitions.checkpoint(TOPIC, 0)
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    for start in (0, 60, 160):
        assert cost(service, lambda start=start: read(reader, start, max_bytes=700))["items.query"] == 0
    counted = cost(service, lambda: read(reader, 120, max_records=20))
    assert (counted["items.query"], counted["aborted"]) == (1, 32)


def crowded(service: Service, count: int, long: int, at_once: int) -> LogBuilder:
    """Make ``long`` transactions that span ``count`` aborted ones; half of the long ones are aborted."""
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("first"), *(in_(n, f"long{n}") for n in range(long)))
    for _ in range(0, count, at_once):
        log.add(*(part for n in range(at_once) for part in (in_(long, "short", epoch=n), abort(long, n + 1))))
    log.add(data("last"), *(outcome(n, 1, is_commit=n % 2 == 0) for n in range(long)))
    log.store(service.objects)
    service.log.partitions.checkpoint(TOPIC, 0)
    return log


def costs(count: int, long: int, at_once: int) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """Return what the first page costs, what the last one does, and a listing of one segment in the midst."""
    with closing(serve()) as service:
        service.log.topics.create(TOPIC)
        log = crowded(service, count, long, at_once)
        reader = service.another()
        reader.partitions.offsets(TOPIC, 0)
        shown: list[str] = []
        last = log.segments[-1].base_offset
        front = cost(service, lambda: shown.extend(values(read(reader, 0, max_records=long))))
        assert shown[: long // 2] == ["first", *(f"long{n}" for n in range(0, long, 2))][: long // 2]
        assert not {f"long{n}" for n in range(1, long, 2)} & set(shown)
        page = read(reader, last, max_records=9)
        assert (values(page), page.position) == (["last"], log.state.next_offset)
        end = cost(service, lambda: read(reader, last, max_records=9))
        middle = log.segments[len(log.segments) // 2].base_offset
        return front, end, cost(service, lambda: reader.partitions.segments(TOPIC, 0, offset=middle, limit=1))


def test_a_page_costs_the_same_however_many_were_aborted_beside_a_long_transaction() -> None:
    with (
        mock.patch.object(checkpoint_items, "LONG_CLASS", 3),
        mock.patch.object(read_aborted, "LONG_CLASS", 3),
        mock.patch.object(read_aborted, "_FIRST_ITEMS", 8),
        mock.patch.object(limits, "LIST_MAX", 20),
        mock.patch.object(limits, "PAGE_SEGMENTS_MAX", 6),  # else it reads on for records that it may show
    ):
        few, many = costs(100, 6, 5), costs(400, 6, 5)
    first, last, listing = few
    assert (first["items.query"], last["items.query"], listing["items.query"]) == (2, 0, 4)
    assert (first["aborted"], listing["aborted"]) == (8 + 3, 8 + 20 + 20 + 3)
    for less, more in zip(few, many, strict=True):
        assert more["items.query"] <= less["items.query"] + 1, "a class of lengths more"
        assert more["aborted"] <= less["aborted"]
        assert more["objects.get"] <= less["objects.get"]
    assert many[1] == few[1]


@pytest.mark.slow
@pytest.mark.parametrize("count", [10_000, pytest.param(100_000, marks=pytest.mark.prove)])
def test_a_thousand_open_and_a_hundred_thousand_aborted_transactions_are_no_cliff(count: int) -> None:
    """The bounds are the same for a tenth of them, which CI runs."""
    first, last, listing = costs(count, 1_000, 250)
    assert last == {"objects.get": 1, "objects.list": 1, "items.get": 1}
    assert (first["items.query"], listing["items.query"]) <= (8, 8)
    assert first["aborted"] <= 1_000, "the 500 that are asked for, and a few beside"
    assert listing["aborted"] <= 2_000, "the 500 that overlap, and the short ones of the next 1,024 offsets"


# The index of aborted transactions


OPERATIONS = st.tuples(st.sampled_from(["in", "in", "abort", "commit", "plain"]), st.integers(1, 5))


def in_turn(operations: Sequence[tuple[str, int]]) -> tuple[list[list[Part]], list[tuple[int, int, int]], list[str]]:
    """Return the segments, the aborted transactions as (producer, first, last), and what is committed below the end."""
    epochs, sequences = Counter[int](), Counter[int]()
    open_: dict[int, list[int]] = {}
    segments: list[list[Part]] = []
    aborted, shown = [], {}
    for offset, (kind, producer) in enumerate(operations):
        if kind == "in":
            segments.append([in_(producer, str(offset), epoch=epochs[producer], sequence=sequences[producer])])
            sequences[producer] += 1
            open_.setdefault(producer, []).append(offset)
        elif kind == "plain":
            segments.append([data(str(offset))])
            shown[offset] = str(offset)
        else:
            epochs[producer] += 1
            sequences[producer] = 0
            segments.append([outcome(producer, epochs[producer], is_commit=kind == "commit")])
            ended = open_.pop(producer, [])
            if kind == "commit":
                shown |= {one: str(one) for one in ended}
            elif ended:
                aborted.append((producer, ended[0], offset))
    stable = min((ended[0] for ended in open_.values()), default=len(operations))
    return segments, aborted, [shown[offset] for offset in sorted(shown) if offset < stable]


@contextmanager
def an_older_version() -> Iterator[None]:
    """Write checkpoints as a version did that knew no second items."""
    to_value, items = Head.to_value, checkpoint_items.aborted_items

    def old(head: Head) -> dict[str, Any]:
        return {name: value for name, value in to_value(head).items() if name != "long_aborted_from"}

    with (
        mock.patch.object(Head, "to_value", old),
        mock.patch.object(checkpoint, "aborted_items", lambda *named: items(*named)[:1]),
    ):
        yield


@contextmanager
def small_numbers() -> Iterator[None]:
    with (
        mock.patch.object(checkpoint_items, "LONG_CLASS", 1),
        mock.patch.object(read_aborted, "LONG_CLASS", 1),
        mock.patch.object(read_aborted, "_FIRST_ITEMS", 1),
        mock.patch.object(limits, "LIST_MAX", 3),
        mock.patch.object(limits, "FETCH_SEGMENTS", 2),
    ):
        yield


@tries(60)
@given(st.lists(OPERATIONS, min_size=1, max_size=60), st.data())
def test_aborted_transactions_are_found_in_items_of_either_version(operations: Any, draw: Any) -> None:
    """Pages and the listing of segments equal a model, with every class of lengths in use."""
    segments, aborted, shown = in_turn(operations)
    with closing(serve()) as service, small_numbers():
        service.log.topics.create(TOPIC)
        log = LogBuilder(topic_id=service.topic_id())
        for parts in segments:
            store(service, log, *parts)
            step = draw.draw(st.sampled_from(["", "", "", "checkpoint", "older"]))
            if step == "checkpoint":
                service.another().partitions.checkpoint(TOPIC, 0)
            elif step == "older":
                with an_older_version():
                    service.another().partitions.checkpoint(TOPIC, 0)
        reader = service.another()
        found: list[str] = []
        position, page = -1, read(reader, 0, max_records=1)
        while page.position > position:
            found += values(page)
            position = page.position
            page = read(reader, position, max_records=draw.draw(st.integers(1, 9)))
        assert found == shown
        listed = [e for e in all_segments(reader) if e.aborted]
        expected = {
            n: [AbortedTransaction(*one) for one in aborted if one[1] <= n <= one[2]] for n in range(len(operations))
        }
        assert {e.base_offset: list(e.aborted) for e in listed} == {n: one for n, one in expected.items() if one}


def test_a_long_transaction_whose_items_an_older_version_wrote_is_found_among_many(service: Service) -> None:
    """That version wrote no second item of it. The head says from where on each long transaction has one."""
    short = [[in_(6, "t", epoch=n), abort(6, n + 1)] for n in range(40)]
    with small_numbers():
        log = made(service, [in_(7, "x")], [in_(5, "y")], *short, [abort(7)])
        with an_older_version():
            service.another().partitions.checkpoint(TOPIC, 0)
        assert values(read(service.another(), 0, max_records=1)) == []
        for parts in (*short, [commit(5)]):
            store(service, log, *parts)
        service.another().partitions.checkpoint(TOPIC, 0)
        assert values(read(service.another(), 0, max_records=2)) == ["y"]
        assert values(read(service.another(), 0, max_records=100)) == ["y"]


def test_a_page_finds_what_was_aborted_though_the_process_reads_the_log_anew_meanwhile(service: Service) -> None:
    """Another request of the process drops what was folded. What ended since the checkpoint is then in no item."""
    made(service, [in_(7, "a")], [data("p")], [abort(7)])
    reader = service.another()
    reader.partitions.offsets(TOPIC, 0)
    partition = only_partition_of(reader)

    def read_anew(operation: str, _: str) -> None:
        if operation == "list":
            service.objects.on_call = None
            partition.forget()
            partition.refresh()
            assert partition.state.next_offset == 0

    service.objects.on_call = read_anew
    assert values(read(reader, 0, max_records=2)) == ["p"]
    assert service.objects.on_call is None
    service.objects.on_call = read_anew
    listed = [list(entry.aborted) for entry in reader.partitions.segments(TOPIC, 0).segments]
    assert listed == [[AbortedTransaction(7, 0, 2)]] * 3


def all_segments(log: Log) -> list[Any]:
    found: list[Any] = []
    page = log.partitions.segments(TOPIC, 0, offset=0, limit=7)
    while page.has_more:
        found += page.segments
        page = log.partitions.segments(TOPIC, 0, offset=page.segments[-1].next_offset, limit=7)
    return [*found, *page.segments]
