"""Subscriptions: begun, moved, read and ended, beside markers, rivals, lost answers and dead processes."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.errors import (
    ContendedError,
    CorruptLogError,
    FencelineError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OwnerFencedError,
    SessionSeveredError,
    StoreUnavailableError,
    ThrottledError,
    UnknownSessionError,
    UnknownSubscriptionError,
    UnknownTopicOrPartitionError,
)
from fenceline.format import keys
from fenceline.model.requests import Acknowledgement, OwnTarget, ReadRequest
from fenceline.model.results import Page
from fenceline.model.subscription import Cursor
from fenceline.ports import Check, ItemKey, Put
from fenceline.read.offset_ranges import Acknowledged
from fenceline.service.log import Log
from fenceline.subscriptions import backlog
from tests.support.patience import PATIENCE_S
from tests.support.runtime import START_MS
from tests.support.service import (
    TOPIC,
    Gate,
    LogBuilder,
    Service,
    append,
    data,
    is_unavailable,
    loses_answer,
    marker,
    moves,
    never_arrives,
    outcome,
    partitions_of,
    request,
    serve,
)
from tests.support.sweeping import HOUR, Calls, Died, swept
from tests.support.tries import tries

NAME = "s"


def begin(log: Log, *, at: str = "earliest", name: str = NAME, topic: str = TOPIC) -> bool:
    return log.subscriptions.subscribe(topic, name, is_latest=at == "latest")[1]


def acknowledge(log: Log, *individual: int, cumulative: int | None = None, partition: int = 0) -> int:
    return log.subscriptions.acknowledge(TOPIC, partition, NAME, Acknowledgement(cumulative, individual))


def cursor(log: Log, partition: int = 0, name: str = NAME) -> Cursor:
    (shown,) = log.subscriptions.get(TOPIC, name, start_partition=partition, limit=1).cursors
    return shown


def place(log: Log) -> tuple[int, list[tuple[int, int]], int]:
    """Return (mark, ranges, backlog)."""
    shown = cursor(log)
    return shown.mark_delete_offset, list(shown.individually_acknowledged), shown.backlog


def read(log: Log, offset: int | None = None, **options: Any) -> Page:
    return log.subscriptions.read(TOPIC, 0, NAME, ReadRequest(offset=offset, **options))


def offsets(page: Page) -> list[int]:
    return [record.offset for record in page.records]


def items_left(service: Service, *partitions: str) -> list[ItemKey]:
    return [item.key for partition in partitions for item in service.items.store.query(partition)]


@pytest.fixture
def filled(service: Service) -> Service:
    """Return the service with ten records in the first partition, and a subscription from the first record on."""
    append(service.log, *map(str, range(10)))
    assert begin(service.log)
    return service


# Beginning


def test_a_subscription_begins_at_the_end_or_at_the_log_start_and_is_there_once(service: Service) -> None:
    append(service.log, "a", "b")
    assert begin(service.log, at="latest", name="late")
    assert begin(service.log, at="earliest", name="early")
    assert not begin(service.another(), at="earliest", name="late")
    assert [cursor(service.log, name=name).mark_delete_offset for name in ("late", "early")] == [2, 0]
    assert [one.name for one in service.log.subscriptions.list(TOPIC)[0]] == ["early", "late"]
    with pytest.raises(UnknownSubscriptionError):
        cursor(service.log, name="other")


def test_its_replication_is_changed_and_otherwise_stays(service: Service) -> None:
    def state(given: bool | None) -> bool:
        shown, _ = service.log.subscriptions.subscribe(TOPIC, NAME, replicate_subscription_state=given)
        return shown.subscription.replicate_subscription_state

    assert [state(given) for given in (None, True, None, False, None)] == [False, True, True, False, False]


def test_a_partition_that_is_added_later_is_at_its_first_offset(service: Service) -> None:
    append(service.log, "a")
    begin(service.log, at="latest")
    service.log.topics.alter(TOPIC, partitions=2)
    service.log.append(TOPIC, 1, request("b", "c"))
    assert [(one.mark_delete_offset, one.backlog) for one in (cursor(service.log), cursor(service.log, 1))] == [
        (1, 0),
        (0, 2),
    ]
    assert acknowledge(service.log, cumulative=0, partition=1) == 1


def test_partitions_are_shown_in_pages() -> None:
    service = serve()
    service.log.topics.create(TOPIC, partitions=5)
    begin(service.log)
    shown = service.log.subscriptions.get(TOPIC, NAME, start_partition=1, limit=2)
    assert ([one.partition for one in shown.cursors], shown.has_more) == ([1, 2], True)
    shown = service.log.subscriptions.get(TOPIC, NAME, start_partition=3, limit=2)
    assert ([one.partition for one in shown.cursors], shown.has_more) == ([3, 4], False)
    assert not service.log.subscriptions.get(TOPIC, NAME, start_partition=9).cursors
    service.close()


# Acknowledging


def test_acknowledgements_move_the_mark_once_nothing_is_left_below(filled: Service) -> None:
    log = filled.log
    assert acknowledge(log, 3, 1) == 0
    assert place(log) == (0, [(1, 2), (3, 4)], 8)
    assert acknowledge(log, 2) == 0
    assert place(log) == (0, [(1, 4)], 7)
    assert acknowledge(log, 0, 9) == 4
    assert place(log) == (4, [(9, 10)], 5)
    assert acknowledge(log, cumulative=6) == 7
    assert acknowledge(log, cumulative=2) == 7
    assert acknowledge(log, 1, 5) == 7
    assert acknowledge(log, cumulative=8) == 10
    assert place(filled.another()) == (10, [], 0)


def test_an_offset_that_is_not_there_yet_is_refused_and_nothing_of_the_request_applied(filled: Service) -> None:
    for refused in (Acknowledgement(10), Acknowledgement(individual=[1, 10, 2]), Acknowledgement(2**63 - 1)):
        with pytest.raises(OffsetOutOfRangeError) as raised:
            filled.log.subscriptions.acknowledge(TOPIC, 0, NAME, refused)
        assert (raised.value.log_start_offset, raised.value.next_offset) == (0, 10)
    assert place(filled.log) == (0, [], 10)


def test_a_mark_below_the_log_start_counts_as_the_log_start(filled: Service) -> None:
    log = filled.log
    acknowledge(log, 1, 4)
    log.partitions.trim(TOPIC, 0, 3)
    assert place(log) == (3, [(4, 5)], 6)
    assert offsets(read(log)) == [3, 5, 6, 7, 8, 9]
    assert acknowledge(log, 0, 2) == 3
    assert acknowledge(log, cumulative=1) == 3
    assert acknowledge(log, 3) == 5


def test_an_acknowledgement_that_changes_nothing_writes_nothing(filled: Service) -> None:
    acknowledge(filled.log, 3)
    before = filled.count()["items.write"]
    acknowledge(filled.log, 3)
    assert filled.count()["items.write"] == before
    acknowledge(filled.log, cumulative=4)
    before = filled.count()["items.write"]
    acknowledge(filled.log, 0, 2, 4)
    acknowledge(filled.log, cumulative=1)
    assert filled.count()["items.write"] == before


def test_unknown_places_are_errors_and_nothing_is_made(filled: Service) -> None:
    consumers = filled.log.subscriptions
    with pytest.raises(UnknownTopicOrPartitionError):
        consumers.acknowledge(TOPIC, 1, NAME, Acknowledgement(0))
    with pytest.raises(UnknownTopicOrPartitionError):
        consumers.seek("nobody", 0, NAME, offset=0)
    with pytest.raises(UnknownSubscriptionError):
        consumers.acknowledge(TOPIC, 0, "other", Acknowledgement(0))
    with pytest.raises(UnknownSubscriptionError):
        consumers.read(TOPIC, 0, "other", ReadRequest())
    with pytest.raises(UnknownSubscriptionError):
        consumers.unsubscribe(TOPIC, "other")
    with pytest.raises(UnknownSessionError):
        consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(0), session_id="x")
    assert place(filled.log) == (0, [], 10)


# Markers, and aborted records


def with_transactions(service: Service) -> LogBuilder:
    """Make 0 1 data, 2 marker, 3 4 aborted, 5 its marker, 6 7 data, 8 9 committed, 10 its marker, 11 12 undecided."""
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("0", "1"))
    log.add(marker(200))
    log.add(data("3", "4", producer=(7, 0, 0), is_transactional=True), outcome(7, 1, is_commit=False))
    log.add(data("6", "7"), data("8", "9", producer=(7, 1, 0), is_transactional=True))
    log.add(outcome(7, 2, is_commit=True))
    log.add(data("11", "12", producer=(7, 2, 0), is_transactional=True))
    log.store(service.objects)
    return log


def test_markers_and_aborted_records_are_acknowledged_by_themselves(service: Service) -> None:
    log = with_transactions(service)
    begin(service.log)
    assert acknowledge(service.log, cumulative=1) == 6
    assert acknowledge(service.log, 7, 8, 9) == 6
    assert place(service.log) == (6, [(7, 10)], 3)
    assert acknowledge(service.log, 6) == 11
    assert place(service.log) == (11, [], 2)
    assert acknowledge(service.log, 11, 12) == 13
    log.add(outcome(7, 3, is_commit=True))
    log.store(service.objects, 6)
    assert place(service.log) == (14, [], 0)
    assert offsets(read(service.log)) == []


def test_a_mark_passes_a_long_stretch_of_markers_in_several_requests(service: Service) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("0"))
    for _ in range(300):
        log.add(marker(200))
    log.add(data("last"))
    log.store(service.objects)
    begin(service.log)
    before = service.count()["objects.get"]
    mark = acknowledge(service.log, cumulative=0)
    assert limits.SLIDE_SEGMENTS_MAX <= mark < 301
    assert service.count()["objects.get"] - before < 3 * limits.SLIDE_SEGMENTS_MAX
    for _ in range(4):
        mark = acknowledge(service.log, cumulative=0)
    assert mark == 301
    assert place(service.log)[2] == 1


def test_acknowledged_markers_are_no_records_of_a_backlog(service: Service) -> None:
    with_transactions(service)
    begin(service.log)
    acknowledge(service.log, 1, 2, 3, 5, 7, 10)
    assert place(service.log) == (0, [(1, 4), (5, 6), (7, 8), (10, 11)], 10 - 3)
    acknowledge(service.log, *range(4, 13))
    assert place(service.log) == (0, [(1, 13)], 1)


def test_aborted_records_at_the_mark_are_not_read_and_others_are_undecided(
    service: Service,
) -> None:
    with_transactions(service)
    begin(service.log)
    assert offsets(read(service.log)) == [0, 1, 3, 4, 6, 7, 8, 9, 11, 12]
    acknowledge(service.log, 0, 1, 3)
    assert offsets(read(service.log)) == [6, 7, 8, 9, 11, 12]
    service.log.subscriptions.seek(TOPIC, 0, NAME, offset=2)
    assert offsets(read(service.log)) == [6, 7, 8, 9, 11, 12]


PARTS = st.sampled_from(["data", "marker", "aborted", "committed", "control"])


@tries(25)
@given(st.data())
def test_marks_and_backlogs_equal_a_count_over_every_offset(draw: st.DataObject) -> None:
    """Property: the mark is the first offset that is left, the backlog the number of data records that are left."""
    with closing(serve()) as service:
        service.log.topics.create(TOPIC)
        log, done, left = LogBuilder(topic_id=service.topic_id()), set(), set()
        epoch = 0
        for _ in range(draw.draw(st.integers(1, 8))):
            start, kind = log.state.next_offset, draw.draw(PARTS)
            values = ["v"] * draw.draw(st.integers(1, 4))
            if kind in ("aborted", "committed"):
                parts = [data(*values, producer=(7, epoch, 0), is_transactional=True)]
                epoch += 1
                log.add(*parts, outcome(7, epoch, is_commit=kind == "committed"))
                done.add(log.state.next_offset - 1)
            elif kind == "data":
                log.add(data(*values))
            else:
                log.add(marker(200), *([data(*values)] if kind == "control" else []))
                done.add(start)
                start += 1
            records = set(range(start, log.state.next_offset)) - done
            left |= records
            if kind == "aborted":
                done |= records
        log.store(service.objects)
        begin(service.log)
        end = log.state.next_offset
        acked: set[int] = set()
        for _ in range(draw.draw(st.integers(0, 4))):
            some = draw.draw(st.lists(st.integers(0, end - 1), min_size=1, max_size=6))
            acknowledge(service.log, *some)
            acked |= set(some)
        if draw.draw(st.booleans()):
            upto = draw.draw(st.integers(0, end - 1))
            acknowledge(service.log, cumulative=upto)
            acked |= set(range(upto + 1))
        mark = next(o for o in range(end + 1) if o == end or (o not in acked and o not in done))
        shown = cursor(service.log)
        assert shown.mark_delete_offset == mark
        ranges = Acknowledged.of(shown.individually_acknowledged)
        assert {o for o in range(mark, end) if o in ranges} == {o for o in acked if o >= mark}
        assert shown.backlog == len({o for o in left if o >= mark and o not in acked})
        assert offsets(read(service.log)) == sorted(o for o in left if o >= mark and o not in acked)


def test_a_backlog_among_markers_everywhere_takes_a_bounded_number_of_looks(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "BACKLOG_SEGMENTS_MAX", 20)
    log = LogBuilder(topic_id=service.topic_id())
    for _ in range(100):
        log.add(data("v"), marker(200))
    log.store(service.objects)
    begin(service.log)
    log.store_head(service.items)
    acknowledge(service.log, *range(2, 200, 2))
    before = service.count()["objects.get"]
    assert cursor(service.another()).backlog == 1  # a process that has read none of the segments
    assert service.count()["objects.get"] - before <= 20 + 3


# Many open ranges


def largest_item(service: Service, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note how many bytes of ranges each write carries."""
    written: list[int] = []
    write = service.items.store.write

    def measured(changes: Any) -> None:
        written.append(sum(len(c.value.get("ranges", b"")) for c in changes if isinstance(c, Put)))
        write(changes)

    monkeypatch.setattr(service.items.store, "write", measured)
    return written


def test_ten_thousand_open_ranges_are_no_cliff(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Property: the item store's limit is far, and an acknowledgement writes a few kilobytes, in one transaction."""
    append(service.log, *["v"] * 30_000)
    begin(service.log)
    acknowledge(service.log, *range(1, 20_001, 2))
    assert place(service.log)[0] == 0
    assert len(cursor(service.log).individually_acknowledged) == 10_000
    written = largest_item(service, monkeypatch)
    for offset in (20_003, 10_000, 4, 25_000):
        before = service.count()["items.write"]
        acknowledge(service.log, offset)
        assert service.count()["items.write"] == before + 1
    assert max(written) < 10_000
    assert cursor(service.log).backlog == 30_000 - 10_004
    assert acknowledge(service.log, 0) == 2
    assert acknowledge(service.log, cumulative=25_000) == 25_001
    assert place(service.log) == (25_001, [], 4_999)
    subscription = service.log.subscriptions.list(TOPIC)[0][0]
    assert items_left(service, keys.chunk_items(subscription.subscription_id)) == []


def test_more_chunks_than_a_transaction_takes_are_made_before_and_deleted_after(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 4)
    append(service.log, *["v"] * 2_000)
    begin(service.log)
    chunks = keys.chunk_items(service.log.subscriptions.list(TOPIC)[0][0].subscription_id)
    service.items.plan("write", lambda call: call(), lambda call: call(), lambda call: call(), is_unavailable)
    # The first try of the cursor's own write fails.
    assert acknowledge(service.log, *range(1, 2_000, 2)) == 0
    assert len(cursor(service.another()).individually_acknowledged) == 1_000
    left = len(items_left(service, chunks))
    assert left == 500  # without those of the try that failed
    assert acknowledge(service.log, cumulative=1_997) == 2_000 - 2
    assert items_left(service, chunks) == []


def test_a_process_frozen_before_it_made_chunks_leaves_none_of_a_deleted_subscription(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No process would ever delete them: the sweeper no longer knows that subscription."""
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 4)
    append(service.log, *["v"] * 2_000)
    begin(service.log, at="latest")
    service.log.subscriptions.seek(TOPIC, 0, NAME, offset=0)
    chunks = keys.chunk_items(service.log.subscriptions.list(TOPIC)[0][0].subscription_id)
    other = service.another()

    def ends_meanwhile_and_dies(call: Any) -> None:
        other.subscriptions.unsubscribe(TOPIC, NAME)
        for _ in range(3):
            service.runtime.advance(HOUR)
            swept(service)
        assert items_left(service, keys.cursor_items(NAME), keys.unowned_items(service.topic_id())) == []
        try:
            call()
        finally:
            raise Died

    service.items.plan("write", ends_meanwhile_and_dies)
    with pytest.raises(Died):
        acknowledge(service.log, *range(1, 2_000, 2))
    assert items_left(service, chunks) == []


def test_more_ranges_than_can_be_shown_are_refused(filled: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_RANGES_MAX", 3)
    acknowledge(filled.log, 1, 3, 5)
    with pytest.raises(ThrottledError):
        acknowledge(filled.log, 7)
    assert acknowledge(filled.log, 0, 2) == 4


def test_a_cursor_that_moves_while_its_chunks_are_read_is_read_again(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 4)
    append(service.log, *["v"] * 100)
    begin(service.log)
    acknowledge(service.log, *range(1, 41, 2))
    gate, other = Gate(is_after=True), service.another()
    seen: list[str] = []

    def hold_the_cursor(operation: str, key: str) -> None:
        if operation == "get" and "/" in key and not seen:
            seen.append(key)
            service.items.plan("get", gate)

    with ThreadPoolExecutor() as pool:
        service.items.on_call = hold_the_cursor
        reading = pool.submit(cursor, service.log)
        assert gate.reached.wait(PATIENCE_S)
        service.items.on_call = None
        # Every chunk that the reader is about to ask for goes.
        acknowledge(other, cumulative=50)
        gate.opened.set()
        assert reading.result(PATIENCE_S).mark_delete_offset == 51


# Rivals, and answers that are lost


def test_acknowledgements_beside_each_other_are_both_kept(filled: Service) -> None:
    gate, other = Gate(), filled.another()
    filled.items.plan("write", gate)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(acknowledge, filled.log, 2)
        assert gate.reached.wait(PATIENCE_S)
        acknowledge(other, 1)
        gate.opened.set()
        assert slow.result(PATIENCE_S) == 0
    assert place(filled.log) == (0, [(1, 3)], 8)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_write_that_failed_is_made_once_more_from_a_fresh_read(filled: Service, fault: Any) -> None:
    filled.items.plan("write", fault)
    assert acknowledge(filled.log, 0, 1, 4) == 2
    assert place(filled.another()) == (2, [(4, 5)], 7)


@pytest.mark.parametrize(
    ("fault", "error"),
    [(never_arrives, OutcomeUnknownError), (is_unavailable, StoreUnavailableError), (moves, ContendedError)],
)
def test_a_store_that_stays_away_is_an_error_of_its_kind(
    filled: Service, fault: Any, error: type[FencelineError]
) -> None:
    filled.items.always("write", fault)
    with pytest.raises(error):
        acknowledge(filled.log, 1)
    filled.items.always("write", None)
    assert place(filled.log) == (0, [], 10)


def test_a_mark_that_was_moved_beyond_what_a_slow_process_saw_does_not_move_back(filled: Service) -> None:
    other = filled.another()

    def then_the_other(call: Any) -> Any:
        """Act after the slow process has seen the log's end, at 10."""
        try:
            return call()
        finally:
            append(other, "10", "11")
            acknowledge(other, cumulative=11)

    filled.objects.plan("get", then_the_other)
    assert acknowledge(filled.log, cumulative=5) == 12
    assert cursor(other).mark_delete_offset == 12


# Seeking


def test_seek_sets_the_mark_by_offset_or_by_time_and_forgets_what_was_acknowledged(service: Service) -> None:
    for n in range(4):
        append(service.log, str(n), timestamp=START_MS + n)
    begin(service.log)
    seek = service.log.subscriptions.seek
    acknowledge(service.log, 1, 3)
    assert seek(TOPIC, 0, NAME, offset=3) == 3
    assert place(service.log) == (3, [], 1)
    assert seek(TOPIC, 0, NAME, timestamp=START_MS + 1) == 1
    assert seek(TOPIC, 0, NAME, timestamp=START_MS + 9) == 4
    assert seek(TOPIC, 0, NAME, offset=0) == 0
    service.log.partitions.trim(TOPIC, 0, 2)
    for offset in (1, 5):
        with pytest.raises(OffsetOutOfRangeError):
            seek(TOPIC, 0, NAME, offset=offset)
    assert place(service.log) == (2, [], 2)


# Reading


def test_a_page_leaves_out_what_is_acknowledged_and_is_still_full(filled: Service) -> None:
    acknowledge(filled.log, 1, 2, 5)
    page = read(filled.log, max_records=3)
    assert (offsets(page), page.position) == ([0, 3, 4], 6)
    page = read(filled.log, 5, max_records=3)
    assert (offsets(page), page.position) == ([6, 7, 8], 9)
    acknowledge(filled.log, cumulative=6)
    assert offsets(read(filled.log)) == [7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        read(filled.log, 6)
    with pytest.raises(OffsetOutOfRangeError):
        read(filled.log, 11)
    acknowledge(filled.log, 7, 8, 9)
    page = read(filled.log)
    assert (offsets(page), page.position) == ([], 10)


def test_pages_of_which_nothing_is_left_are_passed(service: Service) -> None:
    """Acknowledged records lie on each side of a marker: no range covers both."""
    log = with_transactions(service)
    log.add(marker(200), data("14"))
    log.store(service.objects, 6)
    begin(service.log)
    acknowledge(service.log, 1, 6, 7, 8, 9, 11, 12)
    assert offsets(read(service.log, 1, is_read_committed=False)) == [3, 4, 14]
    page = read(service.log, 1, is_read_committed=True)
    assert (offsets(page), page.position) == ([], 13)  # past the undecided ones, which are acknowledged, too


def test_a_trim_between_the_look_at_the_mark_and_the_page_moves_the_start(
    filled: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    slid, other = backlog.slid, filled.another()

    def then_trimmed(*given: Any) -> int:
        mark = slid(*given)
        other.partitions.trim(TOPIC, 0, 4)
        return mark

    acknowledge(other, 4)
    monkeypatch.setattr(backlog, "slid", then_trimmed)
    assert offsets(read(filled.log)) == [5, 6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        read(filled.log, 3)


def test_a_long_poll_goes_on_while_all_that_comes_is_acknowledged(live_service: Service) -> None:
    log, other = live_service.log, live_service.another()
    append(log, "0", "1")
    begin(log)
    acknowledge(log, 0, 1)
    with ThreadPoolExecutor() as pool:
        poll = pool.submit(read, log, wait_ms=20_000)
        append(other, "2")
        assert offsets(poll.result(PATIENCE_S)) == [2]
        acknowledge(log, 2)

        taken = threading.Event()

        def take(operation: str, key: str) -> None:
            """Acknowledge, from another process, what comes, before it is answered here."""
            if operation == "get" and key == NAME and not taken.is_set():
                taken.set()
                acknowledge(other, 3)

        poll = pool.submit(read, log, wait_ms=20_000)
        while not partitions_of(live_service.log).kept():
            pass
        threading.Event().wait(0.1)
        live_service.items.on_call = take
        append(other, "3")
        assert taken.wait(PATIENCE_S)
        live_service.items.on_call = None
        append(other, "4")
        assert offsets(poll.result(PATIENCE_S)) == [4]
    page = read(log, 4, wait_ms=60)
    assert offsets(page) == [4]


def test_a_long_poll_ends_empty_at_its_time(live_service: Service) -> None:
    append(live_service.log, "0", "1")
    begin(live_service.log)
    acknowledge(live_service.log, 1)
    page = read(live_service.log, 1, wait_ms=100)
    assert (offsets(page), page.position) == ([], 2)


# Which sessions may


@dataclass
class Recorder:
    """A guard that notes which callers asked, and answers as a test says."""

    checks: list[Check] = field(default_factory=list)
    asked: list[tuple[Any, ...]] = field(default_factory=list)
    errors: list[FencelineError | None] = field(default_factory=list)

    def __call__(self, topic: Any, *who: Any) -> list[Check]:
        self.asked.append((topic.name, *who))
        error = self.errors.pop(0) if self.errors else None
        if error is not None:
            raise error
        return self.checks


@pytest.fixture
def guard(filled: Service, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    monkeypatch.setattr("fenceline.access.ownership.read_guard.guard_group", lambda _, *args: made(*args))
    return made


FENCED = OwnerFencedError("another session owns it", resource="orders/0")


def test_each_use_is_judged_as_the_group_of_its_name(filled: Service, guard: Recorder) -> None:
    consumers = filled.log.subscriptions
    consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(0), session_id="a", principal="p")
    consumers.seek(TOPIC, 0, NAME, offset=0, principal="p")
    assert guard.asked == [(TOPIC, 0, NAME, "a", "p"), (TOPIC, 0, NAME, None, "p")]
    guard.asked.clear()
    consumers.read(TOPIC, 0, NAME, ReadRequest(session_id="a"), principal="p")
    assert guard.asked == [(TOPIC, 0, NAME, "a", "p")] * 2


@pytest.mark.parametrize("judged_before", [0, 1])
def test_a_reader_who_was_fenced_at_the_start_or_meanwhile_is_shown_nothing(
    filled: Service, guard: Recorder, judged_before: int
) -> None:
    guard.errors = [*[None] * judged_before, FENCED]
    with pytest.raises(OwnerFencedError):
        read(filled.log)


def test_one_who_was_fenced_moves_nothing(filled: Service, guard: Recorder) -> None:
    guard.errors = [FENCED, FENCED]
    with pytest.raises(OwnerFencedError):
        acknowledge(filled.log, 1)
    with pytest.raises(OwnerFencedError):
        filled.log.subscriptions.seek(TOPIC, 0, NAME, offset=3)
    assert place(filled.log) == (0, [], 10)


@pytest.mark.parametrize("is_known", [False, True])
def test_an_owner_who_comes_between_the_judgement_and_the_write_wins(
    filled: Service, guard: Recorder, is_known: bool
) -> None:
    """Property: the guard's conditions are in the transaction of the write; it is judged again from a fresh read."""
    if is_known:
        acknowledge(filled.log, 1)
    before = place(filled.log)
    ownership = ItemKey("own", "x")
    filled.items.store.write([Put(ownership, {}, 2, None)])
    guard.checks, guard.errors = [Check(ownership, 1)], [None, FENCED]
    with pytest.raises(OwnerFencedError):
        acknowledge(filled.log, 2)
    assert place(filled.log) == before


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_refusal_behind_a_lost_answer_says_that_the_outcome_is_not_known(
    filled: Service, guard: Recorder, fault: Any
) -> None:
    """The mark may have moved before the new owner came.

    An attempt that has found damage reports the damage all the same.
    """
    consumers = filled.log.subscriptions
    for to, move in (
        (3, lambda: consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(2))),
        (5, lambda: consumers.seek(TOPIC, 0, NAME, offset=5)),
    ):
        mark = place(filled.log)[0]
        filled.items.plan("write", fault)
        guard.errors = [None, FENCED]
        with pytest.raises(OutcomeUnknownError, match="OWNER_FENCED"):
            move()
        assert place(filled.log)[0] == (to if fault is loses_answer else mark)
    filled.items.plan("write", fault)
    guard.errors = [None, CorruptLogError("damaged")]
    with pytest.raises(CorruptLogError):
        acknowledge(filled.log, 7)


def owner(log: Log) -> str:
    """Return a session that owns the group's reading of the first partition."""
    session_id = log.access.create_session().session_id
    log.access.own(session_id, [OwnTarget(f"{TOPIC}/0", 0)], group=NAME)
    return session_id


def test_only_the_owner_of_a_group_reads_and_acknowledges(filled: Service) -> None:
    consumers, session_id = filled.log.subscriptions, owner(filled.log)
    assert offsets(read(filled.log, session_id=session_id)) == [*range(10)]
    assert consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(2), session_id=session_id) == 3
    for who in (None, filled.log.access.create_session().session_id):
        with pytest.raises(OwnerFencedError):
            read(filled.log, session_id=who)
        with pytest.raises(OwnerFencedError):
            consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(5), session_id=who)
    with pytest.raises(OwnerFencedError):
        consumers.seek(TOPIC, 0, NAME, offset=0)
    assert place(filled.log) == (3, [], 7)


def test_a_late_acknowledgement_of_a_severed_owner_never_lands(filled: Service) -> None:
    session_id, other = owner(filled.log), filled.another()
    gate = Gate()
    filled.items.plan("write", gate)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(
            filled.log.subscriptions.acknowledge, TOPIC, 0, NAME, Acknowledgement(5), session_id=session_id
        )
        assert gate.reached.wait(PATIENCE_S)
        owner(other)
        gate.opened.set()
        with pytest.raises(SessionSeveredError):
            late.result(PATIENCE_S)
    assert place(filled.log) == (0, [], 10)


# Ending


def test_a_subscription_that_is_created_anew_shares_nothing_with_the_earlier_one(filled: Service) -> None:
    acknowledge(filled.log, 1, 4, cumulative=None)
    old = filled.log.subscriptions.list(TOPIC)[0][0]
    filled.log.subscriptions.unsubscribe(TOPIC, NAME)
    assert (
        items_left(
            filled, keys.cursor_items(NAME), keys.unowned_items(old.topic_id), keys.subscription_items(old.topic_id)
        )
        == []
    )
    with pytest.raises(UnknownSubscriptionError):
        acknowledge(filled.log, 2)
    assert begin(filled.another())
    assert place(filled.log) == (0, [], 10)


def test_a_topic_that_is_created_anew_shares_no_subscription(filled: Service) -> None:
    acknowledge(filled.log, 1)
    filled.log.topics.delete(TOPIC)
    with pytest.raises(UnknownTopicOrPartitionError):
        cursor(filled.log)
    filled.log.topics.create(TOPIC)
    append(filled.log, "new")
    assert list(filled.log.subscriptions.list(TOPIC)[0]) == []
    begin(filled.log)
    assert place(filled.log) == (0, [], 1)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_delete_whose_answer_is_lost_ends_this_subscription_and_no_later_one(filled: Service, fault: Any) -> None:
    other = filled.another()

    def then_created_anew(call: Any) -> Any:
        try:
            return fault(call)
        finally:
            if fault is loses_answer:
                begin(other, at="latest")

    filled.items.plan("write", then_created_anew)
    filled.log.subscriptions.unsubscribe(TOPIC, NAME)
    assert [one.name for one in filled.log.subscriptions.list(TOPIC)[0]] == ([NAME] if fault is loses_answer else [])


def test_a_delete_that_finds_itself_done_is_done(filled: Service) -> None:
    filled.items.plan("write", loses_answer)
    filled.log.subscriptions.unsubscribe(TOPIC, NAME)
    with pytest.raises(UnknownSubscriptionError):
        filled.log.subscriptions.unsubscribe(TOPIC, NAME)


def test_an_acknowledgement_that_comes_behind_a_delete_makes_no_cursor(filled: Service) -> None:
    gate = Gate()
    filled.items.plan("write", gate)
    with ThreadPoolExecutor() as pool:
        late = pool.submit(acknowledge, filled.log, 1)
        assert gate.reached.wait(PATIENCE_S)
        filled.another().subscriptions.unsubscribe(TOPIC, NAME)
        gate.opened.set()
        with pytest.raises(UnknownSubscriptionError):
            late.result(PATIENCE_S)
    assert items_left(filled, keys.cursor_items(NAME)) == []


def test_the_cursors_of_a_deleted_topic_are_collected(filled: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 2)
    topic_id = filled.topic_id()
    begin(filled.log, name="other", at="latest")
    acknowledge(filled.log, 1, 3, 5)
    gone = filled.log.subscriptions.list(TOPIC)[0]
    filled.log.topics.delete(TOPIC)
    for _ in range(4):
        swept(filled)
        filled.runtime.advance(HOUR)
    left = [keys.cursor_items(one.name) for one in gone] + [keys.chunk_items(one.subscription_id) for one in gone]
    assert items_left(filled, *left, keys.subscription_items(topic_id), keys.unowned_items(topic_id)) == []
    assert items_left(filled, keys.GONE) == []


# A creation of many cursors


@pytest.fixture
def wide() -> Any:
    """Lend a topic of 250 partitions, each with a record."""
    service = serve()
    service.log.topics.create(TOPIC, partitions=250)
    for partition in range(250):
        service.log.append(TOPIC, partition, request("v"))
    yield service
    service.close()


def marks(wide: Service) -> set[int]:
    shown = wide.log.subscriptions.get(TOPIC, NAME, limit=1_000).cursors
    assert len(shown) == 250
    return {one.mark_delete_offset for one in shown}


def test_many_cursors_are_made_before_the_subscription_is_there(wide: Service) -> None:
    assert begin(wide.log, at="latest")
    shown = wide.log.subscriptions.get(TOPIC, NAME, limit=1_000).cursors
    assert {(one.mark_delete_offset, one.backlog) for one in shown} == {(1, 0)}
    assert items_left(wide, keys.unowned_items(wide.topic_id())) == []


@pytest.mark.parametrize("dies_at", range(0, 14, 2))
def test_a_death_during_a_creation_leaves_all_or_nothing_after_a_sweep(wide: Service, dies_at: int) -> None:
    def die() -> None:
        raise Died

    topic_id, moments = wide.topic_id(), itertools.count()

    def before_each_write(operation: str, key: str) -> None:
        if operation == "write" and next(moments) * 2 == dies_at:
            die()

    wide.items.on_call = before_each_write
    try:
        is_new = begin(wide.another(), at="latest")
    except Died:
        is_new = False
    wide.items.on_call = None
    names = [one.name for one in wide.log.subscriptions.list(TOPIC)[0]]
    if is_new:
        assert {one.mark_delete_offset for one in wide.log.subscriptions.get(TOPIC, NAME, limit=250).cursors} == {1}
        return
    assert names == []
    left = items_left(wide, keys.cursor_items(NAME))
    assert not left or items_left(wide, keys.unowned_items(topic_id))
    wide.runtime.advance(HOUR)
    swept(wide, is_thorough=True)
    assert items_left(wide, keys.cursor_items(NAME), keys.unowned_items(topic_id)) == []
    assert begin(wide.log, at="latest")


def test_a_creation_that_was_undone_meanwhile_does_not_make_half_a_subscription(wide: Service) -> None:
    """The creating process was frozen: the sweeper takes its cursors for a dead process's."""
    writes = itertools.count()

    def freeze(operation: str, key: str) -> None:
        if operation == "write" and next(writes) == 2:
            wide.items.on_call = None
            wide.runtime.advance(2 * HOUR)
            swept(wide, is_thorough=True)

    wide.items.on_call = freeze
    assert begin(wide.log, at="latest")
    assert marks(wide) == {1}
    subscription = wide.log.subscriptions.list(TOPIC)[0][0]
    assert {keys.parse_cursor_item(key)[1] for key in items_left(wide, keys.cursor_items(NAME))} == {
        subscription.subscription_id
    }


def test_a_creation_that_was_undone_makes_no_more_cursors(wide: Service) -> None:
    writes = itertools.count()

    def freeze_and_die(operation: str, key: str) -> None:
        number = next(writes) if operation == "write" else -1
        if number == 2:
            wide.items.on_call = None
            wide.runtime.advance(2 * HOUR)
            swept(wide, is_thorough=True)
            wide.items.on_call = freeze_and_die
        elif number == 3:
            raise Died

    wide.items.on_call = freeze_and_die
    with pytest.raises(Died):
        begin(wide.log, at="latest")
    wide.items.on_call = None
    assert items_left(wide, keys.cursor_items(NAME), keys.unowned_items(wide.topic_id())) == []


def test_a_creation_that_goes_on_while_it_is_undone_does_not_make_half_a_subscription(wide: Service) -> None:
    gate = Gate()
    wide.items.plan("write", lambda call: call(), lambda call: call(), gate)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(begin, wide.log, at="latest")
        assert gate.reached.wait(PATIENCE_S)

        def go_on(operation: str, key: str) -> None:
            """Go on once the sweeper has deleted the first cursors, and is about to look whether that was all."""
            if operation == "query" and key.startswith("acknowledged/"):
                wide.items.on_call = None
                gate.opened.set()
                assert slow.result(PATIENCE_S) is True

        wide.runtime.advance(2 * HOUR)
        wide.items.on_call = go_on
        swept(wide, is_thorough=True)
    assert marks(wide) == {1}


def test_of_two_who_create_one_wins_and_the_other_finds_it(wide: Service) -> None:
    gate = Gate()
    wide.items.plan("write", gate)
    with ThreadPoolExecutor() as pool:
        slow = pool.submit(begin, wide.log, at="latest")
        assert gate.reached.wait(PATIENCE_S)
        assert begin(wide.another(), at="earliest")
        gate.opened.set()
        assert slow.result(PATIENCE_S) is False
    assert marks(wide) == {0}
    assert items_left(wide, keys.cursor_items(NAME), keys.unowned_items(wide.topic_id())) == []


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_creation_whose_answer_is_lost_is_answered_as_new(service: Service, fault: Any) -> None:
    append(service.log, "a")
    service.items.plan("write", fault)
    assert begin(service.log, at="latest") is True
    assert place(service.log) == (1, [], 0)


def test_an_acknowledgement_costs_one_write(filled: Service) -> None:
    acknowledge(filled.log, 0)
    with Calls(filled):
        before = filled.count()
        acknowledge(filled.log, 2)
        spent = filled.count() - before
    # One read of the group's item is to see that it has no members.
    assert spent == {"items.get": 6, "items.write": 1, "objects.get": 1}
