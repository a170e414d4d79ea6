"""What ``read_committed`` readers are shown, where they begin, and what they meet ("Readers of transactions")."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import batch
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.model.results import Page
from fenceline.service.partitions import PartitionRequests
from fenceline.subscriptions.read import read_unacknowledged
from tests.support.patience import without_a_stall
from tests.support.service import TOPIC, LogBuilder, Service, data, outcome
from tests.support.transactional_logs import abort, commit, in_, made, offsets, read, store, values

# What is shown (Kafka's cases)


def test_the_stable_offset_follows_the_open_transactions_of_two_producers(service: Service) -> None:
    """Kafka's testLastStableOffsetWithMixedProducerData: 0, 3, 8."""
    log = made(service, [in_(137, "a", "b", "c")], [in_(983, "d", "e", "f")])
    stable = []
    for end in (None, abort(137), commit(983)):
        if end is not None:
            store(service, log, end)
        page = read(service.log)
        stable.append(page.bounds.last_stable_offset)
        assert page.position == stable[-1]
    assert stable == [0, 3, 8]
    assert values(page) == ["d", "e", "f"]


def test_committed_records_held_back_by_an_open_transaction_follow_at_its_end(service: Service) -> None:
    log = made(service, [in_(7, "a")], [in_(8, "held")], [in_(7, "b", sequence=1)], [commit(7)])
    assert values(read(service.log)) == ["a"]
    store(service, log, abort(8))
    assert values(read(service.log)) == ["a", "b"]


def test_aborted_and_committed_transactions_of_one_producer_are_in_one_page(service: Service) -> None:
    made(service, [in_(7, "a"), abort(7), in_(7, "b", epoch=1), commit(7, 2), in_(7, "c", epoch=2), abort(7, 3)])
    assert values(read(service.log)) == ["b"]
    assert read(service.log).position == 6
    assert values(read(service.log, is_read_committed=False)) == ["a", "b", "c"]


@pytest.mark.parametrize(("max_records", "lists"), [(1, 1), (2, 2), (3, 2), (500, 1)])
def test_a_page_counts_the_records_that_it_shows(service: Service, max_records: int, lists: int) -> None:
    """Markers and aborted records take segments of their own. Where they do, the page lists once more."""
    parts = [[in_(7, f"{n}", epoch=n)] for n in range(12)]
    ends = [[(abort if n % 3 == 2 else commit)(7, n + 1)] for n in range(12)]
    made(service, *(part for pair in zip(parts, ends, strict=True) for part in pair))
    expected = [f"{n}" for n in range(12) if n % 3 != 2][:max_records]
    log = service.another()
    assert values(read(log)) == [f"{n}" for n in range(12) if n % 3 != 2]
    before = service.objects.calls["list"]
    page = read(log, max_records=max_records)
    assert values(page) == expected
    assert service.objects.calls["list"] - before <= lists
    batches = log.partitions.read_batches(
        TOPIC, 0, ReadRequest(offset=0, is_read_committed=True, max_records=max_records)
    )
    assert sum(header.count for _, header in batch.headers(batches.body)) == len(expected)


def test_a_page_of_markers_alone_ends_at_the_segments_that_it_may_look_at(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no record, and its position has moved. What follows from there joins."""
    monkeypatch.setattr(limits, "PAGE_SEGMENTS_MAX", 5)
    made(service, [in_(7, "a")], *([abort(7, n + 1)] for n in range(12)), [data("z")])
    log, position, shown, pages = service.another(), 0, [], 0
    while position < 14:
        page = read(log, position, max_records=1)
        assert position < page.position <= position + 6
        shown += values(page)
        position, pages = page.position, pages + 1
    assert shown == ["z"]
    assert pages <= 4


def test_a_read_from_the_middle_of_a_transaction_leaves_out_what_was_aborted(service: Service) -> None:
    log = made(service, [in_(7, "a", "b", "c")], [data("p")], [in_(7, "d", sequence=3)], [abort(7)], [data("q")])
    for start in range(log.state.next_offset):
        assert values(read(service.log, start)) == (["p", "q"] if start <= 3 else ["q"]), start
        whole = service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=start, is_read_committed=True))
        assert [h.base_offset for _, h in batch.headers(whole.body)] == ([3, 6] if start <= 3 else [6])


@pytest.mark.parametrize("is_checkpointed", [False, True])
@pytest.mark.parametrize("is_commit", [False, True])
def test_a_transaction_over_many_segments_is_shown_whole_or_not_at_all(
    service: Service, is_commit: bool, is_checkpointed: bool
) -> None:
    """More segments than are fetched at once, so that batches and their marker are in different chunks."""
    count = 2 * limits.FETCH_SEGMENTS + 5
    log = made(service, *([in_(7, f"t{n}", sequence=n), data(f"p{n}")] for n in range(count)))
    store(service, log, outcome(7, 1, is_commit=is_commit))
    if is_checkpointed:
        service.another().partitions.checkpoint(TOPIC, 0)
    kept = [f"{kind}{n}" for n in range(count) for kind in (("t", "p") if is_commit else ("p",))]
    for reader in (service.log, service.another()):
        assert values(read(reader)) == kept
        assert values(read(reader, 11)) == [one for one in kept if int(one[1:]) > 5 or one == "p5"]


def test_a_trim_inside_an_aborted_transaction_shows_nothing_of_its_rest(service: Service) -> None:
    log = made(service, [in_(7, "a", "b", "c")], [data("p")], [in_(7, "d", sequence=3)])
    service.log.partitions.trim(TOPIC, 0, 2)
    assert read(service.log, 2).bounds.last_stable_offset == 2, "an open transaction holds it at the log start"
    assert values(read(service.log, 2, is_read_committed=False)) == ["c", "p", "d"]
    store(service, log, abort(7))
    for reader in (service.log, service.another()):
        assert values(read(reader, 2)) == ["p"]
        assert read(reader, 2).position == 6


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_trim_may_pass_an_open_transaction_whose_later_batches_share_its_outcome(
    service: Service, is_commit: bool
) -> None:
    log = made(service, [in_(7, "a")], [data("p")])
    assert service.log.partitions.trim(TOPIC, 0, 2) == 2
    found = service.log.partitions.offsets(TOPIC, 0).bounds
    assert (found.log_start_offset, found.last_stable_offset, found.next_offset) == (2, 2, 2)
    store(service, log, in_(7, "b", sequence=1), data("q"))
    for reader in (service.log, service.another()):
        page = read(reader, 2)
        assert (values(page), page.position, page.bounds.last_stable_offset) == ([], 2, 2)
    store(service, log, outcome(7, 1, is_commit=is_commit))
    for reader in (service.log, service.another()):
        assert values(read(reader, 2)) == (["b", "q"] if is_commit else ["q"])


def test_a_page_that_was_fetched_before_an_abort_leaves_out_what_it_aborted(service: Service) -> None:
    """Kafka's delayed fetch: the first look finds the transaction open, the next one finds it aborted."""
    log = made(service, [data("p")], [in_(7, "a")])
    assert values(read(service.log)) == ["p"]

    def held(*_: object) -> bool:
        store(service, log, abort(7), data("q"))
        return True

    page = committed_by(service, 1, held)
    assert (values(page), page.position) == (["q"], 4)


def test_at_or_beyond_the_stable_offset_a_page_is_empty_and_its_position_is_its_start(service: Service) -> None:
    made(service, [data("p")], [in_(7, "a")], [data("q", "r")])
    for start in range(1, 5):
        for page in (
            read(service.log, start),
            service.log.partitions.read_batches(TOPIC, 0, ReadRequest(offset=start, is_read_committed=True)),
        ):
            assert (page.position, page.bounds.last_stable_offset, page.bounds.next_offset) == (start, 1, 4)
        assert values(read(service.log, start)) == []


def test_an_abort_moves_the_position_over_an_empty_page(service: Service) -> None:
    made(service, [in_(7, "a", "b")], [abort(7)])
    page = read(service.log, 0, wait_ms=600_000)
    assert (values(page), page.position) == ([], 3)


# Where a page begins


def test_a_tail_offset_counts_from_the_stable_offset(service: Service) -> None:
    made(service, [data(*"abcd")], [in_(7, "t")], [data("e")])
    for tail, start in ((0, 4), (1, 3), (4, 0), (9, 0)):
        page = read(service.log, None, tail_offset=tail)
        assert offsets(page) == list(range(start, 4))
        assert page.position == 4
    assert offsets(read(service.log, None, tail_offset=1, is_read_committed=False)) == [5]
    service.log.partitions.trim(TOPIC, 0, 5)
    assert read(service.log, None, tail_offset=3).position == 5, "not below the log start"


def test_a_timestamp_beyond_what_is_stable_begins_at_the_stable_offset(service: Service) -> None:
    made(
        service,
        [data("a", timestamps=[10])],
        [in_(8, "x"), abort(8)],
        [data("b", timestamps=[20])],
        [in_(7, "t")],
        [data("c", timestamps=[2**41])],
    )
    for timestamp, position in ((0, 0), (11, 1), (2**41, 4), (2**42, 4)):
        page = read(service.log, None, timestamp=timestamp, max_records=1)
        assert (offsets(page) or [page.position])[0] == {0: 0, 1: 3, 4: 4}[position]
    assert offsets(read(service.log, None, timestamp=2**41, is_read_committed=False)) == [5]
    assert service.log.partitions.offset_at(TOPIC, 0, 2**41) == (5, 2**41), "decided or not"


# Meeting what holds a page up


class Meeting:
    """A hook that notes when it is called, and ends what a test says at a call."""

    def __init__(self, service: Service, *ends: Callable[[], object] | None) -> None:
        self._runtime = service.runtime
        self._ends = list(ends)
        self.called: list[tuple[int, int]] = []  # (monotonic ms, last stable offset)

    def __call__(self, partition: Partition, tail: Tail) -> bool:
        assert partition.state.next_offset >= tail.state.next_offset
        self.called.append((self._runtime.monotonic_ms(), tail.bounds.last_stable_offset))
        end = self._ends.pop(0) if self._ends else None
        if end is not None:
            end()
        return end is not None


@pytest.mark.parametrize("form", ["records", "batches", "subscription"])
def test_a_page_that_only_an_open_transaction_holds_up_meets_it_once_and_looks_anew(
    service: Service, form: str
) -> None:
    log = made(service, [data("p")], [in_(7, "a")])
    service.log.subscriptions.subscribe(TOPIC, "group", is_latest=False)
    service.log.subscriptions.acknowledge(TOPIC, 0, "group", Acknowledgement(0))
    meeting = Meeting(service, lambda: store(service, log, commit(7)))
    request = ReadRequest(offset=1, is_read_committed=True)
    partitions = PartitionRequests(service.log._resolver, meeting)
    if form == "records":
        assert values(partitions.read(TOPIC, 0, request)) == ["a"]
    elif form == "batches":
        assert len(list(batch.headers(partitions.read_batches(TOPIC, 0, request).body))) == 1
    else:
        live = service.log.subscriptions.live(TOPIC)
        page = read_unacknowledged(live, 0, "group", replace(request, offset=None), lambda: None, meeting).page
        assert values(page) == ["a"]
    assert [stable for _, stable in meeting.called] == [1]


def test_nothing_is_met_where_a_page_shows_something_or_nothing_is_open(service: Service) -> None:
    log = made(service, [data("p")], [in_(7, "a")], [data("q")])
    meeting = Meeting(service)
    assert values(committed_by(service, 0, meeting)) == ["p"]
    request = ReadRequest(offset=1, is_read_committed=False)
    assert values(PartitionRequests(service.log._resolver, meeting).read(TOPIC, 0, request)) == ["a", "q"]
    assert meeting.called == []
    assert values(committed_by(service, 1, meeting)) == []
    assert len(meeting.called) == 1
    store(service, log, abort(7))
    assert values(committed_by(service, 4, meeting)) == []
    assert len(meeting.called) == 1, "the log's end holds this page, and no transaction"


def test_a_meeting_that_ended_something_is_followed_by_one_more_look_and_no_second_meeting(service: Service) -> None:
    """Else a reader that does not wait would end one after the other of a thousand."""
    log = made(service, [in_(7, "a")], [in_(8, "b")], [in_(9, "c")])
    meeting = Meeting(service, lambda: store(service, log, data("more")), lambda: None)
    page = committed_by(service, 0, meeting)
    assert (values(page), page.bounds.next_offset, len(meeting.called)) == ([], 4, 1)


def test_a_long_poll_meets_what_holds_it_up_at_each_of_its_rarest_looks(
    live_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second; here the second is shorter."""
    monkeypatch.setattr(limits, "POLL_LAST_MS", 40)
    service = live_service
    log = made(service, [in_(7, "a")])
    meeting = Meeting(service, None, None, lambda: store(service, log, commit(7)))
    page = committed_by(service, 0, meeting, wait_ms=600_000)
    assert values(page) == ["a"]
    times = [at for at, _ in meeting.called]
    assert len(times) == 3
    assert all(later - earlier >= 39 for earlier, later in pairwise(times))


def test_a_long_poll_that_a_transaction_holds_up_looks_no_more_often_than_others(
    live_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_FIRST_MS", 10)
    monkeypatch.setattr(limits, "POLL_LAST_MS", 80)
    service = live_service
    made(service, [in_(7, "a")])
    meeting = Meeting(service)
    read(service.log)

    def attempt() -> None:
        service.objects.calls.clear()
        committed_by(service, 0, meeting, wait_ms=400)
        # At its start and its end; between them at 10, 30, 70 and 80 ms, and then every 80 ms.
        assert service.objects.calls["get"] <= 2 + 4 + 5

    without_a_stall(attempt)


def busy(service: Service, log: LogBuilder, count: int) -> list[int]:
    """Let other processes append before every second one of the next looks; return what they have appended."""
    appended: list[int] = []
    looks = itertools.count()

    def append(operation: str, _: str) -> None:
        if operation == "get" and len(appended) < count and next(looks) % 2 == 0:
            appended.append(len(appended))
            store(service, log, data("p"))

    service.objects.on_call = append
    return appended


def test_a_long_poll_meets_what_holds_it_up_in_a_busy_partition_too(
    live_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look finds a segment. That delays no meeting."""
    monkeypatch.setattr(limits, "POLL_FIRST_MS", 1)
    monkeypatch.setattr(limits, "POLL_LAST_MS", 1)
    service = live_service
    log = made(service, [in_(7, "a")])
    read(service.log)
    appended = busy(service, log, 200)
    meeting = Meeting(service, None, None, lambda: store(service, log, commit(7)))
    page = committed_by(service, 0, meeting, wait_ms=600_000)
    assert values(page)[:1] == ["a"]
    assert len(appended) < 200


def test_a_long_poll_that_is_held_up_in_a_busy_partition_reads_items_at_its_start_and_its_end(
    live_service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "POLL_FIRST_MS", 1)
    service = live_service
    log = made(service, [in_(7, "a")])
    read(service.log)
    appended = busy(service, log, 50)
    meeting = Meeting(service, None, lambda: store(service, log, commit(7)))
    service.items.calls.clear()
    page = committed_by(service, 0, meeting, wait_ms=600_000)
    assert (values(page), len(appended)) == (["a", *["p"] * 50], 50)
    assert service.items.calls["get"] <= 4


def committed_by(service: Service, offset: int, held: Callable[..., bool], **options: Any) -> Page:
    return PartitionRequests(service.log._resolver, held).read(
        TOPIC, 0, ReadRequest(offset=offset, is_read_committed=True, **options)
    )
