"""The poller: places of several topics that come and go, one answer at a time, and what ends a wait."""

from __future__ import annotations

import threading

import pytest

from fenceline import errors
from fenceline.client import following as followers
from fenceline.client.following import Following
from fenceline.client.poller import Answer, Poller, Requests
from fenceline.model.results import Bounds, Page
from tests.support.patience import PATIENCE_S
from tests.support.runtime import FakeRuntime


def page(position, *, end=None):
    end = position if end is None else end
    return Page([], position, Bounds(0, end, end))


class Service:
    """Answers each poll from a script, after the test lets it, and notes what was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []
        self.came = threading.Semaphore(0)
        self.gate = threading.Semaphore(0)

    def poll(self, places, wait_ms):
        self.asked.append((list(places), wait_ms))
        self.came.release()
        assert self.gate.acquire(timeout=PATIENCE_S)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return Answer(answer, has_more=False, hold=True)

    def read(self, place, at, wait_ms):
        return page(at + 1)


@pytest.fixture
def polled(monkeypatch):
    monkeypatch.setattr(followers, "_UNHELD_PAUSE_MS", 0)
    made = []

    def make(*answers):
        service, clock = Service(*answers), FakeRuntime()
        poller = Poller(
            Requests(service.poll, service.read), Following(clock.monotonic_ms(), max_delay_ms=100), clock, "t"
        )
        made.append((service, poller))
        return service, poller

    yield make
    for service, poller in made:
        poller.close()
        service.answers += [[]] * 5
        for _ in range(5):
            service.gate.release()


A, B, C = ("a", 0), ("a", 1), ("b", 0)


def test_places_of_several_topics_are_asked_by_one_poll_and_their_pages_handed_out_in_order(polled):
    service, poller = polled([(A, page(3)), (C, page(9))])
    poller.start([(A, 0), (B, 0), (C, 0)])
    service.gate.release()
    assert [poller.next()[0] for _ in range(2)] == [A, C]
    assert service.asked[0][0] == [(A, 0), (B, 0), (C, 0)]


def test_the_next_poll_waits_until_the_pages_of_the_last_were_taken_and_has_what_was_wanted_again(polled):
    service, poller = polled([(A, page(3)), (B, page(4))], [])
    poller.start([(A, 0), (B, 0), (C, 0)])
    service.gate.release()
    assert poller.next()[0] == A
    poller.want(A, 3)
    assert len(service.asked) == 1
    assert poller.next()[0] == B
    assert service.came.acquire(timeout=PATIENCE_S)
    assert service.came.acquire(timeout=PATIENCE_S)
    assert sorted(service.asked[1][0]) == [(A, 3), (C, 0)]


def test_no_page_of_a_dropped_place_is_handed_out_wherever_it_is(polled):
    """One waits for the caller, and one is on its way; a place that is added again is another one."""
    service, poller = polled([(A, page(3)), (B, page(4)), (C, page(5))], [(B, page(8))])
    poller.start([(A, 0), (B, 0), (C, 0)])
    poller.go_on()
    assert service.came.acquire(timeout=PATIENCE_S)
    poller.drop(B)  # its page is on its way
    service.gate.release()
    assert poller.next()[0] == A
    poller.drop(C)  # its page waits
    poller.want(B, 7)
    service.gate.release()
    assert poller.next() == (B, 7, page(8))


def test_a_wait_ends_when_it_is_woken(polled):
    _, poller = polled()
    poller.start([(A, 0)])
    poller.wake()
    assert poller.next_within(int(PATIENCE_S * 1_000)) is None


def test_the_error_of_a_poll_comes_to_the_caller_and_the_place_is_asked_again_if_it_is_wanted(polled):
    service, poller = polled(errors.ThrottledError("too many"), [(A, page(3))])
    poller.start([(A, 0)])
    service.gate.release()
    place, at, error = poller.next()
    assert (place, at, type(error)) == (A, 0, errors.ThrottledError)
    assert len(service.asked) == 1
    poller.want(place, at)
    service.gate.release()
    assert poller.next() == (A, 0, page(3))


def test_places_are_dropped_and_added_where_each_is_read_alone(polled):
    service, poller = polled(errors.NotFoundError("no such route"))
    poller.start([(A, 0)])
    service.gate.release()
    assert poller.next() == (A, 0, page(1))
    poller.want(C, 4)
    assert poller.next() == (C, 4, page(5))
    poller.want(A, 1)
    poller.drop(A)
    assert poller.next_within(200) is None
    assert len(service.asked) == 1


def test_a_closed_poller_says_so(polled):
    _, poller = polled()
    poller.start([(A, 0)])
    poller.close()
    poller._fetched.get()  # what woke a waiting caller
    with pytest.raises(RuntimeError, match="closed"):
        poller.next()


def test_an_iteration_that_was_left_has_no_thread(polled):
    service, poller = polled([])
    poller.start([(A, 0)])
    poller.go_on()
    [thread] = poller.threads
    assert service.came.acquire(timeout=PATIENCE_S)
    poller.pause()
    service.gate.release()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert len(service.asked) == 1


class Behind:
    """Has five records a page for each place. Polls of one place wait there for each other, but for the first."""

    def __init__(self, end):
        self.end = end
        self.asked = []
        self.together = threading.Barrier(3)
        self.came = threading.Event()  # a poll of all at their end

    def poll(self, places, wait_ms):
        self.asked.append(sorted(places))
        if len(places) == 3 and all(at == self.end for _, at in places):
            self.came.set()
        if len(places) == 1 and places[0][1]:
            self.together.wait(PATIENCE_S)
        moved = [(place, page(at + 5, end=self.end)) for place, at in places if at < self.end]
        return Answer(moved[:1], has_more=len(moved) > 1, hold=False)


def follower_of(service):
    clock = FakeRuntime()
    pace = Following(clock.monotonic_ms(), shows_more=lambda one: one.position < one.next_offset)
    return Poller(Requests(service.poll, lambda *_: page(0)), pace, clock, "t")


def test_places_that_are_behind_are_polled_alone_all_at_once_until_they_have_caught_up():
    service = Behind(end=15)
    poller = follower_of(service)
    poller.start([(A, 0), (B, 0), (C, 0)])
    for at in (0, 5, 10):
        taken = [poller.next() for _ in range(3)]
        assert sorted((place, start) for place, start, _ in taken) == [(A, at), (B, at), (C, at)]
        for place, _, found in taken:
            poller.want(place, found.position)
    assert service.came.wait(PATIENCE_S), "they are polled together again"
    assert [len(places) for places in service.asked if len(places) == 1 and places[0][1]] == [1] * 6
    poller.close()


@pytest.mark.parametrize("says", ["nothing", "an error", "an error of the place"])
def test_a_place_that_was_polled_alone_in_vain_is_polled_with_the_others(says):
    service = Behind(end=15)
    polls = service.poll
    alone = threading.Event()

    def poll(places, wait_ms):
        if places == [(A, 5)]:
            if not alone.is_set():
                alone.set()
                if says == "an error":
                    raise errors.StoreUnavailableError("later")
                return Answer([] if says == "nothing" else [(A, errors.StoreUnavailableError("later"))], False, False)
            return Answer([(A, page(15, end=15))], False, False)
        return polls(places, wait_ms)

    service.poll = poll
    poller = follower_of(service)
    poller.start([(A, 0)])
    assert poller.next()[:2] == (A, 0)
    poller.want(A, 5)
    assert poller.next()[:2] == (A, 5)
    assert alone.is_set()
    poller.close()


def test_a_place_that_is_dropped_while_it_is_polled_alone_is_handed_out_no_more():
    service = Behind(end=15)
    asked, gate = threading.Event(), threading.Event()
    polls = service.poll

    def poll(places, wait_ms):
        if places == [(A, 5)]:
            asked.set()
            assert gate.wait(PATIENCE_S)
            return Answer([(A, page(10, end=15))], False, False)
        return polls(places, wait_ms)

    service.poll = poll
    poller = follower_of(service)
    poller.start([(A, 0)])
    poller.next()
    poller.want(A, 5)
    assert poller.next_within(0) is None
    assert asked.wait(PATIENCE_S)
    poller.drop(A)
    poller.add(B, 0)
    gate.set()
    assert poller.next()[0] == B
    assert poller.next_within(50) is None
    poller.close()
