"""Polls take slots while they wait; a poll that finds none is answered at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.format import keys
from fenceline.log.partition import Partition
from fenceline.log.polls import LAPSE_MS, OwnSlots, Poll, SharedSlots
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.model.results import Page
from tests.support.claiming import EXCLUSIVE, LEASE_MS, WAIT, claim
from tests.support.patience import PATIENCE_S
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, append, is_unavailable, loses_answer, moves, never_arrives, serve

HOLD_MS = 20_000


class CountedSlots(OwnSlots):
    """Slots that count how many were taken and given back."""

    def __init__(self, count: int) -> None:
        super().__init__(FakeRuntime(), count)
        self.taken = self.given_back = 0

    def take(self, hold_ms: float) -> Callable[[], None] | None:
        give_back = super().take(hold_ms)
        if give_back is None:
            return None
        self.taken += 1

        def counted() -> None:
            self.given_back += 1
            give_back()

        return counted


@pytest.fixture
def slots() -> CountedSlots:
    return CountedSlots(1)


@pytest.fixture
def service(slots: CountedSlots) -> Iterator[Service]:
    made = serve(poll_slots=slots)
    made.log.topics.create(TOPIC)
    yield made
    made.close()


def poll(service: Service, offset: int = 0) -> Page:
    return service.log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, wait_ms=HOLD_MS))


def holds(monkeypatch: pytest.MonkeyPatch, hold: Callable[[], object]) -> None:
    """Let ``hold`` be what a reader waits by."""
    monkeypatch.setattr(Partition, "wait", lambda partition, state, until_ms, *first: hold())


def never() -> None:
    raise AssertionError("the poll was held")


def test_with_every_slot_taken_a_poll_is_answered_at_once_and_with_one_given_back_it_is_held(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_held, is_over, waits = threading.Event(), threading.Event(), []

    def hold() -> None:
        waits.append(threading.current_thread().name)
        is_held.set()
        assert is_over.wait(PATIENCE_S)

    holds(monkeypatch, hold)
    with ThreadPoolExecutor(1, "first") as pool:
        first = pool.submit(poll, service)
        assert is_held.wait(PATIENCE_S)
        second = poll(service)
        assert (second.records, second.position) == ([], 0)
        append(service.log, "a")
        is_over.set()
        assert [one.value for one in first.result(PATIENCE_S).records] == [b"a"]
    assert len(waits) == 1
    holds(monkeypatch, lambda: (waits.append("again"), append(service.log, "b")))
    assert [one.value for one in poll(service, offset=1).records] == [b"b"]
    assert waits[1:] == ["again"]


@pytest.mark.parametrize("ending", ["a record", "the time", "an error", "a stop", "a topic that goes"])
def test_a_slot_is_released_by_every_end_of_a_poll(
    service: Service, slots: CountedSlots, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    endings: dict[str, Callable[[], object]] = {
        "a record": lambda: append(service.log, "a"),
        "the time": lambda: service.runtime.advance(HOLD_MS),
        "an error": lambda: service.items.always("get", is_unavailable),
        "a stop": service.log.close,
        "a topic that goes": lambda: service.another().topics.delete(TOPIC),
    }
    holds(monkeypatch, endings[ending])
    if ending in ("an error", "a topic that goes"):
        with pytest.raises(errors.FencelineError):
            poll(service)
    else:
        poll(service)
    assert slots.taken == slots.given_back == 1


def test_a_read_that_need_not_wait_takes_no_slot(
    service: Service, slots: CountedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    holds(monkeypatch, never)
    append(service.log, "a")
    poll(service)
    service.log.partitions.read(TOPIC, 0, ReadRequest(offset=1))
    assert slots.taken == 0


def test_a_poll_of_a_subscription_is_bounded_as_a_readers_is(
    service: Service, slots: CountedSlots, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(service.log, "a", "b")
    service.log.subscriptions.subscribe(TOPIC, "s", is_latest=False)
    service.log.subscriptions.acknowledge(TOPIC, 0, "s", Acknowledgement(cumulative=1))
    waits: list[int] = []
    holds(monkeypatch, lambda: (waits.append(1), service.runtime.advance(HOLD_MS)))
    request = ReadRequest(wait_ms=HOLD_MS)
    assert not service.log.subscriptions.read(TOPIC, 0, "s", request).records
    assert (len(waits), slots.taken, slots.given_back) == (1, 1, 1)
    slots.take(1)
    assert not service.log.subscriptions.read(TOPIC, 0, "s", request).records
    assert len(waits) == 1


def test_a_waiters_poll_is_bounded_and_still_renews_its_lease_and_gets_its_grant(
    service: Service, slots: CountedSlots
) -> None:
    log, runtime = service.log, service.runtime
    holder = claim(log, EXCLUSIVE)
    give_back = slots.take(1)
    assert give_back is not None
    waiter = claim(log, WAIT, wait_ms=HOLD_MS)
    assert waiter.state == "queued"
    for _ in range(4):
        before_ms = runtime.now_ms()
        log.access.heartbeat(holder.session_id)
        waiter = log.access.producer(TOPIC, waiter.producer_name, session_id=waiter.session_id, wait_ms=HOLD_MS)
        assert runtime.now_ms() - before_ms < 1_000  # no sleep: a sleep moves this clock
        runtime.advance(LEASE_MS * 2 // 3)
    log.access.heartbeat(holder.session_id)
    log.access.close_session(holder.session_id)
    waiter = log.access.producer(TOPIC, waiter.producer_name, session_id=waiter.session_id, wait_ms=HOLD_MS)
    assert waiter.state == "granted"


# Slots that processes share


@pytest.fixture
def plain() -> Iterator[Service]:
    made = serve()
    yield made
    made.close()


def shared(service: Service, count: int = 2, function: str = "read", runtime: Any = None) -> SharedSlots:
    """Return the slots as another process sees them."""
    return SharedSlots(service.items, runtime or service.runtime, function, count)


def test_processes_share_as_many_slots_as_there_are_and_each_function_has_its_own(plain: Service) -> None:
    one, two = shared(plain), shared(plain)
    first, second = one.take(HOLD_MS), two.take(HOLD_MS)
    assert first is not None
    assert second is not None
    assert one.take(HOLD_MS) is two.take(HOLD_MS) is shared(plain).take(HOLD_MS) is None
    assert shared(plain, function="sessions").take(HOLD_MS) is not None
    second()
    assert shared(plain).take(HOLD_MS) is not None
    assert shared(plain).take(HOLD_MS) is None


@pytest.mark.parametrize("count", [1, 2, 40])
def test_no_more_than_the_count_are_ever_taken_and_all_of_them_are_found(plain: Service, count: int) -> None:
    slots = shared(plain, count)
    taken = [give_back for _ in range(40 * count) if (give_back := slots.take(HOLD_MS)) is not None]
    assert len(taken) == count


def test_a_slot_that_was_not_released_lapses_and_its_late_release_frees_no_other(plain: Service) -> None:
    frozen = shared(plain, 1).take(HOLD_MS)
    assert frozen is not None
    plain.runtime.advance(HOLD_MS + LAPSE_MS - 1)
    assert shared(plain, 1).take(HOLD_MS) is None
    plain.runtime.advance(1)
    assert shared(plain, 1).take(HOLD_MS) is not None
    frozen()
    assert shared(plain, 1).take(HOLD_MS) is None


def test_a_slot_of_a_process_whose_clock_is_far_ahead_is_free_to_all_others(plain: Service) -> None:
    ahead = FakeRuntime()
    ahead.advance(limits.SESSION_KEPT_MS)
    assert shared(plain, 1, runtime=ahead).take(HOLD_MS) is not None
    assert shared(plain, 1).take(HOLD_MS) is not None


def test_two_that_want_the_last_slot_at_once_do_not_both_get_it(plain: Service) -> None:
    rival = shared(plain, 1)
    taken: list[object] = []

    def first(call: Callable[[], Any]) -> Any:
        taken.append(rival.take(HOLD_MS))
        return call()

    plain.items.plan("write", first)
    assert shared(plain, 1).take(HOLD_MS) is None
    assert len([one for one in taken if one is not None]) == 1


@pytest.mark.parametrize("fault", [is_unavailable, never_arrives, loses_answer, moves])
def test_a_store_in_trouble_lets_no_poll_wait_and_fails_none(plain: Service, fault: Any) -> None:
    slots = shared(plain)
    plain.items.always("write", fault)
    assert slots.take(HOLD_MS) is None
    plain.items.always("write", None)
    give_back = slots.take(HOLD_MS)
    assert give_back is not None
    plain.items.always("write", fault)
    give_back()
    plain.items.always("write", None)
    plain.items.always("get", is_unavailable)
    assert shared(plain).take(HOLD_MS) is None


def test_a_poll_after_another_costs_one_write_to_take_and_one_to_give_back(plain: Service) -> None:
    slots = shared(plain)
    for _ in range(5):
        plain.items.calls.clear()
        with Poll(slots) as one:
            assert one.may_wait(HOLD_MS)
            assert one.may_wait(1)
    assert dict(plain.items.calls) == {"write": 2}


def test_slots_are_items_of_their_function_and_hold_no_more_than_a_time(plain: Service) -> None:
    shared(plain, 1).take(HOLD_MS)
    key = keys.poll_slot_item("read", 0)
    item = plain.items.store.get([key])[key]
    assert item.value == {"until": plain.runtime.now_ms() + HOLD_MS + LAPSE_MS}
