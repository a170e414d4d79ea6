"""One poll for many partitions: what it looks at, what that costs, and how it is held ("Polls of many partitions").

Time stands still here, and a wait moves it, so that looks are counted and no test waits.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.log.partition import Watch
from fenceline.log.polls import OwnSlots
from fenceline.model.requests import Acknowledgement, PollPosition, PollRequest
from fenceline.model.results import Page, PollAnswer
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from tests.support.patience import PATIENCE_S
from tests.support.runtime import FakeRuntime
from tests.support.service import (
    TOPIC,
    Service,
    is_unavailable,
    only_partition_of,
    partition_of,
    request,
    serve,
    serve_in_real_time,
)
from tests.support.transactional_logs import abort, commit, in_, made, store

HOLD_MS = 20_000


def at(partition: int, offset: int | None = 0, topic: str = TOPIC, **more: Any) -> PollPosition:
    return PollPosition(topic, partition, offset, **more)


def poll(log: Log, *positions: PollPosition, **options: Any) -> PollAnswer[Page]:
    return log.polling.poll(PollRequest(positions, **options))


def values(answer: PollAnswer[Page]) -> list[tuple[int, list[bytes | None]]]:
    assert not [one.page for one in answer.entries if isinstance(one.page, errors.FencelineError)]
    return [(one.partition, [record.value for record in one.page.records]) for one in answer.entries]


def codes(answer: PollAnswer[Page]) -> list[tuple[int, str]]:
    return [(one.partition, getattr(one.page, "code", "")) for one in answer.entries]


def append(log: Log, partition: int, *texts: str, topic: str = TOPIC) -> None:
    log.append(topic, partition, request(*texts))


def wide(service: Service, partitions: int, topic: str = "wide") -> str:
    service.log.topics.create(topic, partitions=partitions)
    return topic


def holds(monkeypatch: pytest.MonkeyPatch, hold: Callable[[float], object]) -> None:
    """Let ``hold`` be what a held poll waits by; it gets the length of the wait, and says whether a change came."""
    monkeypatch.setattr(Watch, "wait", lambda watch, duration_ms: bool(hold(duration_ms)))


def never(duration_ms: float) -> None:
    raise AssertionError("the poll was held")


# What a look costs


def test_a_quiet_poll_costs_one_get_for_each_partition_and_one_read_of_all_items(service: Service) -> None:
    topic = wide(service, 20)
    positions = [at(n, topic=topic) for n in range(20)]
    poll(service.log, *positions)
    read: list[int] = []
    service.items.on_call = lambda operation, key: read.append(len(key.split(","))) if operation == "get" else None
    before = service.count()
    assert poll(service.log, *positions).entries == []
    assert service.count() - before == Counter({"objects.get": 20, "items.get": 1})
    assert read == [21]  # the topic's item once, and twenty heads


def test_a_poll_of_one_partition_calls_as_a_plain_read_does(service: Service) -> None:
    append(service.log, 0, "a")
    for offset in (0, 1):
        service.log.partitions.read(TOPIC, 0, poll_request(offset))
        poll(service.log, at(0, offset))
        before = service.count()
        service.log.partitions.read(TOPIC, 0, poll_request(offset))
        between = service.count()
        poll(service.log, at(0, offset))
        assert service.count() - between == between - before


def poll_request(offset: int) -> Any:
    return PollRequest(()).page_of(at(0, offset), limits.RECORDS_DEFAULT, limits.BYTES_DEFAULT)


def test_many_partitions_are_looked_at_in_turn_and_all_before_an_empty_answer(service: Service) -> None:
    topic = wide(service, 100)
    positions = [at(n, topic=topic) for n in range(100)]
    poll(service.log, *positions)
    before = service.count()
    answer = poll(service.log, *positions)
    assert (answer.entries, answer.has_more) == ([], False)
    assert service.count() - before == Counter({"objects.get": 100, "items.get": 4})
    append(service.another(), 99, "last", topic=topic)
    assert values(poll(service.log, *positions)) == [(99, [b"last"])]


@pytest.mark.parametrize(("max_bytes", "at_once_max"), [(limits.BYTES_DEFAULT, 7), (limits.BYTES_MAX, 5)])
def test_looks_and_pages_at_once_have_bounds(max_bytes: int, at_once_max: int) -> None:
    """Exactly 32 looks are made at once, and as many pages as may take 64 MiB."""
    service = serve(ThreadRuntime(48))
    topic = wide(service, 64)
    for n in range(64):
        append(service.log, n, "a", topic=topic)
    log = service.another(runtime=ThreadRuntime(48))
    positions = [at(n, topic=topic) for n in range(64)]
    poll(log, *positions, max_records=limits.RECORDS_MAX)
    together = Together(limits.POLL_LOOKS_AT_ONCE)
    service.objects.always("get", together)
    answer = poll(log, *(at(n, 1, topic=topic) for n in range(64)))
    assert (answer.entries, together.most) == ([], limits.POLL_LOOKS_AT_ONCE)
    service.objects.always("get", None)
    pages = Together(1)
    service.objects.always("list", pages)
    answer = poll(log, *positions, max_records=limits.RECORDS_MAX, max_bytes=max_bytes)
    assert len(answer.entries) == 64
    assert 1 <= pages.most <= at_once_max
    service.close()


class Together:
    """Calls that wait until ``count`` of them are made at once, and are counted."""

    def __init__(self, count: int) -> None:
        self._lock = threading.Lock()
        self._all_there = threading.Barrier(count)
        self._now = self.most = 0

    def __call__(self, call: Callable[[], Any]) -> Any:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        try:
            self._all_there.wait(PATIENCE_S)
            return call()
        finally:
            with self._lock:
                self._now -= 1


def test_after_eight_seconds_of_work_an_answer_with_something_to_say_is_sent(service: Service) -> None:
    topic = wide(service, 100)
    append(service.log, 3, "a", topic=topic)
    log = service.another()
    looks: list[str] = []

    def slow(operation: str, key: str) -> None:
        looks.append(key)
        service.runtime.advance(300)

    service.objects.on_call = slow
    answer = poll(log, *(at(n, topic=topic) for n in range(100)))
    assert (values(answer), answer.has_more) == ([(3, [b"a"])], True)
    assert len({key.rpartition("/")[0] for key in looks}) == 32
    looks.clear()
    quiet = poll(log, *(at(n, 1 if n == 3 else 0, topic=topic) for n in range(100)))
    assert (quiet.entries, quiet.has_more) == ([], False)
    assert len({key.rpartition("/")[0] for key in looks}) == 100


def test_what_does_not_fit_the_answer_is_fetched_of_a_few_partitions_only(service: Service) -> None:
    topic = wide(service, 30)
    for n in range(30):
        append(service.log, n, "a", "b", topic=topic)
    log = service.another()
    positions = [at(n, topic=topic) for n in range(30)]
    poll(log, *positions)
    before = service.objects.calls["list"]
    answer = poll(log, *positions, max_records=2)
    assert (values(answer), answer.has_more) == ([(0, [b"a", b"b"])], True)
    assert service.objects.calls["list"] - before <= 4


# Held


@pytest.mark.parametrize(
    ("max_delay_ms", "pauses", "looks"),
    [
        (None, [100, 200, 400, 800, *[1_000] * 18, 500], 22),
        (300, [100, 200, *[300] * 65, 200], 67),
        (60_000, [100, 200, 400, 800, *[1_000] * 18, 500], 22),
        (0, [50] * 400, 399),
    ],
)
def test_a_held_poll_looks_at_each_partition_after_pauses_that_double_up_to_the_longest(
    service: Service, monkeypatch: pytest.MonkeyPatch, max_delay_ms: int | None, pauses: list[int], looks: int
) -> None:
    """The last pause ends with the request, so no look comes after it."""
    topic = wide(service, 4)
    positions = [at(n, topic=topic) for n in range(4)]
    poll(service.log, *positions)
    waits: list[float] = []
    holds(monkeypatch, lambda duration_ms: (waits.append(duration_ms), service.runtime.advance(duration_ms))[1])
    before = service.count()
    answer = poll(service.log, *positions, wait_ms=HOLD_MS, max_delay_ms=max_delay_ms)
    assert (answer.entries, answer.has_more) == ([], False)
    assert waits == pauses
    assert service.count() - before == Counter({"objects.get": 4 * (1 + looks), "items.get": 1})


def test_a_record_of_another_process_is_found_by_the_next_look(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = wide(service, 4)
    other, waits = service.another(), 0

    def hold(duration_ms: float) -> None:
        nonlocal waits
        waits += 1
        service.runtime.advance(duration_ms)
        if waits == 3:
            append(other, 2, "a", topic=topic)

    holds(monkeypatch, hold)
    answer = poll(service.log, *(at(n, topic=topic) for n in range(4)), wait_ms=HOLD_MS)
    assert (values(answer), waits) == ([(2, [b"a"])], 3)


def test_changes_that_show_nothing_put_off_no_look_at_the_other_partitions(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An open transaction goes on in one partition, and each of its batches wakes the poll."""
    service.log.topics.alter(TOPIC, partitions=2)
    log = made(service, [in_(7, "a")])
    other, waits = service.another(), 0

    def hold(duration_ms: float) -> bool:
        nonlocal waits
        waits += 1
        service.runtime.advance(min(duration_ms, 10))
        store(service, log, in_(7, "more", sequence=waits))
        if waits == 3:
            append(other, 1, "b")
        return True

    holds(monkeypatch, hold)
    answer = poll(service.log, at(0), at(1), wait_ms=HOLD_MS, is_read_committed=True)
    assert (values(answer), waits) == ([(1, [b"b"])], 10)


def test_once_a_partition_moves_it_alone_is_read(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = wide(service, 8)
    positions = [at(n, topic=topic) for n in range(8)]
    poll(service.log, *positions)
    counted: list[Counter[str]] = []

    def hold(_: float) -> bool:
        append(service.log, 5, "a", topic=topic)
        counted.append(service.count())
        return True

    holds(monkeypatch, hold)
    assert values(poll(service.log, *positions, wait_ms=HOLD_MS)) == [(5, [b"a"])]
    spent = {"items.get": 1, "objects.get": 2, "objects.list": 1}  # the appended segment, and the key after it
    assert service.count() - counted[0] == Counter(spent)


@pytest.fixture
def slots() -> CountedSlots:
    return CountedSlots(1)


class CountedSlots(OwnSlots):
    """Slots that count how many were taken and given back."""

    def __init__(self, count: int) -> None:
        super().__init__(FakeRuntime(), count)
        self.taken = self.given_back = 0
        self.is_taken = threading.Event()

    def take(self, hold_ms: float) -> Callable[[], None] | None:
        give_back = super().take(hold_ms)
        if give_back is None:
            return None
        self.taken += 1
        self.is_taken.set()

        def counted() -> None:
            self.given_back += 1
            give_back()

        return counted


@pytest.fixture
def slotted(slots: CountedSlots) -> Iterator[Service]:
    made_here = serve(poll_slots=slots)
    made_here.log.topics.create(TOPIC, partitions=10)
    yield made_here
    made_here.close()


TEN = tuple(at(n) for n in range(10))


def test_a_local_append_to_any_partition_wakes_a_held_poll_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll's own looks are put off beyond the patience of this test, so that only the append can wake it."""
    service = serve_in_real_time()
    service.log.topics.create(TOPIC, partitions=10)
    is_held, wait, woken = threading.Event(), Watch.wait, []

    def until_woken(watch: Watch, duration_ms: float) -> bool:
        is_held.set()
        woken.append(wait(watch, PATIENCE_S * 1_000))
        return woken[-1]

    monkeypatch.setattr(Watch, "wait", until_woken)
    with ThreadPoolExecutor(1) as aside:
        held = aside.submit(poll, service.log, *TEN, wait_ms=HOLD_MS)
        assert is_held.wait(PATIENCE_S)
        append(service.log, 7, "a")
        assert values(held.result(PATIENCE_S)) == [(7, [b"a"])]
    assert woken == [True]
    assert not any(partition_of(service.log, n).watches for n in range(10))
    service.close()


def test_the_end_of_the_process_wakes_a_held_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """The poll's own looks are put off, as above."""
    service = serve_in_real_time()
    service.log.topics.create(TOPIC, partitions=10)
    is_held, wait, woken = threading.Event(), Watch.wait, []

    def until_woken(watch: Watch, duration_ms: float) -> bool:
        is_held.set()
        woken.append(wait(watch, PATIENCE_S * 1_000))
        return woken[-1]

    monkeypatch.setattr(Watch, "wait", until_woken)
    with ThreadPoolExecutor(1) as aside:
        held = aside.submit(poll, service.log, *TEN, wait_ms=HOLD_MS)
        assert is_held.wait(PATIENCE_S)
        service.log.close()
        assert held.result(2 * PATIENCE_S).entries == []
    assert woken == [True]
    service.close()


def test_an_append_just_before_the_wait_is_not_missed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes after the first looks, and before the poll listens to the partitions."""
    append(service.log, 0, "a")
    watch = type(only_partition_of(service.log)).watch

    def late(partition: Any, one: Watch) -> None:
        append(service.log, 0, "b")
        watch(partition, one)

    monkeypatch.setattr(type(only_partition_of(service.log)), "watch", late)
    holds(monkeypatch, never)
    assert values(poll(service.log, at(0, 1), wait_ms=HOLD_MS)) == [(0, [b"b"])]


@pytest.mark.parametrize("ending", ["a record", "the time", "an error", "a stop", "a topic that goes", "a slot less"])
def test_a_held_poll_takes_one_slot_and_every_end_gives_it_back(
    slotted: Service, slots: CountedSlots, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    def later(duration_ms: float) -> None:
        slotted.runtime.advance(duration_ms)

    def fails(duration_ms: float) -> None:
        later(duration_ms)
        slotted.objects.always("get", is_unavailable)

    def goes(duration_ms: float) -> None:
        later(duration_ms)
        other = slotted.another()
        if other.topics.list()[0]:
            other.topics.delete(TOPIC)

    endings: dict[str, Callable[[float], object]] = {
        "a record": lambda _: (append(slotted.log, 4, "a"), True)[1],
        "the time": later,
        "an error": fails,
        "a stop": lambda _: slotted.log.close(),
        "a topic that goes": goes,
        "a slot less": never,
    }
    holds(monkeypatch, endings[ending])
    partitions = [partition_of(slotted.log, n) for n in range(10)]
    if ending == "a slot less":
        assert slots.take(1) is not None
        assert poll(slotted.log, *TEN, wait_ms=HOLD_MS).entries == []
        assert (slots.taken, slots.given_back) == (1, 0)
        return
    answer = poll(slotted.log, *TEN, wait_ms=HOLD_MS)
    assert slots.taken == slots.given_back == 1
    assert not any(one.watches for one in partitions)
    expected = {
        "a record": [(4, "")],
        "an error": [(n, "STORE_UNAVAILABLE") for n in range(10)],
        "a topic that goes": [(n, "UNKNOWN_TOPIC_OR_PARTITION") for n in range(10)],
    }
    assert codes(answer) == expected.get(ending, [])


def test_a_poll_that_need_not_wait_takes_no_slot(
    slotted: Service, slots: CountedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds(monkeypatch, never)
    append(slotted.log, 9, "a")
    poll(slotted.log, *TEN, wait_ms=HOLD_MS)
    poll(slotted.log, *TEN[:9])
    poll(slotted.log, at(0), at(11), wait_ms=HOLD_MS)
    assert slots.taken == 0


def test_a_topic_that_is_replaced_while_a_poll_is_held_is_not_read_on(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, 0, "old")
    before, other = service.topic_id(), service.another()

    def hold(duration_ms: float) -> None:
        service.runtime.advance(duration_ms)
        if service.topic_id() == before:
            other.topics.delete(TOPIC)
            other.topics.create(TOPIC)
            append(other, 0, "new", "newer")

    holds(monkeypatch, hold)
    assert codes(poll(service.log, at(0, 1, topic_id=before), wait_ms=HOLD_MS)) == [(0, "UNKNOWN_TOPIC_ID")]


# Transactions and subscriptions


def test_a_committed_poll_waits_for_the_end_of_a_transaction_and_not_for_its_records(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(service, [in_(7, "a")])
    steps = iter([[in_(7, "b", sequence=1)], [in_(7, "c", sequence=2)], [commit(7)]])
    waits = 0

    def hold(duration_ms: float) -> None:
        nonlocal waits
        waits += 1
        service.runtime.advance(duration_ms)
        step = next(steps, None)
        if step is not None:
            store(service, log, *step)

    holds(monkeypatch, hold)
    service.runtime.advance(0)
    answer = poll(service.log, at(0), wait_ms=HOLD_MS, is_read_committed=True)
    assert (values(answer), waits) == ([(0, [b"a", b"b", b"c"])], 3)


def test_an_abort_ends_a_held_poll_with_a_moved_position(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    log = made(service, [in_(7, "a")])

    def hold(duration_ms: float) -> None:
        service.runtime.advance(duration_ms)
        store(service, log, abort(7))

    holds(monkeypatch, hold)
    (entry,) = poll(service.log, at(0), wait_ms=HOLD_MS, is_read_committed=True).entries
    assert isinstance(entry.page, Page)
    assert (entry.page.records, entry.page.position) == ([], 2)


def test_a_held_poll_meets_the_transaction_that_holds_it_up_once_a_second(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(service, [in_(7, "a")])
    meetings: list[int] = []
    began = service.runtime.monotonic_ms()
    monkeypatch.setattr(
        service.log, "_held", lambda *_: (meetings.append(service.runtime.monotonic_ms() - began), False)[1]
    )
    holds(monkeypatch, service.runtime.advance)
    assert poll(service.log, at(0), wait_ms=5_000, is_read_committed=True).entries == []
    assert len(meetings) >= 4
    assert all(later - earlier >= 1_000 for earlier, later in pairwise(meetings))


def test_a_subscriptions_position_is_held_and_woken_as_the_others_are(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, 0, "a", "b")
    service.log.subscriptions.subscribe(TOPIC, "s", is_latest=False)
    service.log.subscriptions.acknowledge(TOPIC, 0, "s", Acknowledgement(cumulative=1))
    holds(monkeypatch, lambda _: (append(service.log, 0, "c"), True)[1])
    answer = poll(service.log, at(0, None, subscription="s"), wait_ms=HOLD_MS)
    assert values(answer) == [(0, [b"c"])]
    holds(monkeypatch, lambda duration_ms: service.runtime.advance(duration_ms))
    service.log.subscriptions.acknowledge(TOPIC, 0, "s", Acknowledgement(cumulative=2))
    assert poll(service.log, at(0, None, subscription="s"), wait_ms=1_000).entries == []


def test_records_acknowledged_while_a_subscriptions_poll_is_held_are_not_shown(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.log.subscriptions.subscribe(TOPIC, "s", is_latest=False)
    appended = iter(["a", "b"])

    def hold(_: float) -> bool:
        text = next(appended)
        append(service.log, 0, text)
        if text == "a":
            service.log.subscriptions.acknowledge(TOPIC, 0, "s", Acknowledgement(cumulative=0))
        return True

    holds(monkeypatch, hold)
    assert values(poll(service.log, at(0, None, subscription="s"), wait_ms=HOLD_MS)) == [(0, [b"b"])]
