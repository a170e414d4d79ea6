"""A follower's pace: when it polls, what it polls, and what that leaves unread."""

from __future__ import annotations

from fenceline import errors, limits
from fenceline.client.following import HELD_BELOW_MS, HOLD_MS, MAX_DELAY_MS, QUIET_MS, Asking, Following


class Clock:
    """A follower of places, whose polls take no time unless told."""

    def __init__(self, places: int, *, max_delay_ms: int = 1_000, idle_delay_ms: int = 5_000) -> None:
        self.now_ms = 0
        self.following: Following[int, int] = Following(0, max_delay_ms=max_delay_ms, idle_delay_ms=idle_delay_ms)
        for place in range(places):
            self.following.want(place, 0, 0)
        self.asked_ms: list[int] = []

    def poll(self) -> Asking[int, int]:
        """Wait until a poll is due, and begin it."""
        due_ms = self.following.due_ms()
        assert due_ms is not None
        self.now_ms = max(self.now_ms, due_ms)
        self.asked_ms.append(self.now_ms)
        return self.following.next_poll(self.now_ms)

    def answer(self, asking, entries=(), *, has_more=False, is_free=False, after_ms=0):
        self.now_ms += after_ms
        return self.following.answered(asking, list(entries), self.now_ms, has_more=has_more, is_free=is_free)

    def quiet_polls(self, until_ms: int, *, after_ms: int = 0) -> None:
        while (self.following.due_ms() or 0) < until_ms:
            self.answer(self.poll(), after_ms=after_ms)


def test_a_quiet_follower_asks_each_delay_from_begin_to_begin_without_holding():
    clock = Clock(3)
    for _ in range(5):
        asking = clock.poll()
        assert (asking.wait_ms, [place for place, _ in asking.places]) == (0, [0, 1, 2])
        clock.answer(asking, after_ms=150)
    assert clock.asked_ms == [0, 1_000, 2_000, 3_000, 4_000]


def test_a_record_is_read_within_a_fifth_more_than_the_delay_asked_for():
    """A poll that takes a fifth of the delay, and a record that came right after its look began."""
    for delay_ms in (500, 1_000, 5_000):
        clock = Clock(4, max_delay_ms=delay_ms)
        clock.quiet_polls(3 * delay_ms, after_ms=delay_ms // 5)
        written_ms = clock.asked_ms[-1] + 1
        asking = clock.poll()
        clock.answer(asking, [(2, "page")], after_ms=delay_ms // 5)
        assert clock.now_ms - written_ms <= 1.2 * delay_ms


def test_a_slow_poll_is_followed_at_once_by_the_next():
    clock = Clock(1)
    clock.answer(clock.poll(), after_ms=1_700)
    clock.answer(clock.poll())
    assert clock.asked_ms == [0, 1_700]


def test_after_a_quiet_minute_it_asks_each_idle_delay_until_a_record_comes():
    clock = Clock(2)
    clock.quiet_polls(QUIET_MS + 20_000)
    assert [b - a for a, b in zip(clock.asked_ms, clock.asked_ms[1:], strict=False)] == [1_000] * 60 + [5_000] * 3
    shown = clock.answer(clock.poll(), [(1, "page")])
    assert shown == [(1, 0, "page")]
    clock.following.want(1, 7, clock.now_ms)
    asked = len(clock.asked_ms)
    clock.quiet_polls(clock.now_ms + 3_500)
    since = clock.asked_ms[asked - 1]
    assert [at - since for at in clock.asked_ms[asked:]] == [0, 1_000, 2_000, 3_000]


def test_an_idle_delay_below_the_delay_asked_for_is_that_one():
    clock = Clock(1, max_delay_ms=8_000)
    clock.quiet_polls(QUIET_MS * 2)
    assert {b - a for a, b in zip(clock.asked_ms, clock.asked_ms[1:], strict=False)} == {8_000}


def test_an_error_is_no_record_and_ends_no_quiet_time():
    clock = Clock(2)
    clock.quiet_polls(QUIET_MS + 6_000)
    clock.answer(clock.poll(), [(1, errors.OffsetOutOfRangeError("gone"))])
    clock.following.want(1, 7, clock.now_ms)
    asked = len(clock.asked_ms)
    clock.quiet_polls(clock.now_ms + 8_000)
    assert [b - a for a, b in zip(clock.asked_ms[asked:], clock.asked_ms[asked + 1 :], strict=False)] == [5_000]


def test_polls_are_held_where_a_delay_below_half_a_second_is_asked_for():
    clock = Clock(2, max_delay_ms=HELD_BELOW_MS - 1)
    for _ in range(3):
        asking = clock.poll()
        assert asking.wait_ms == HOLD_MS
        clock.answer(asking, after_ms=HOLD_MS)
    assert clock.asked_ms == [0, HOLD_MS, 2 * HOLD_MS]


def test_polls_are_held_where_that_costs_nothing_once_the_service_said_so():
    clock = Clock(2)
    asking = clock.poll()
    assert asking.wait_ms == 0
    clock.answer(asking, is_free=True)
    clock.answer(held := clock.poll(), is_free=True, after_ms=HOLD_MS)
    assert held.wait_ms == clock.poll().wait_ms == HOLD_MS
    assert clock.asked_ms == [0, 0, HOLD_MS]


def test_a_poll_that_the_service_did_not_hold_is_not_sent_again_at_once():
    clock = Clock(1, max_delay_ms=100)
    clock.answer(clock.poll(), after_ms=3)
    clock.poll()
    assert clock.asked_ms == [0, 3 + limits.POLL_LAST_MS]


def test_a_service_that_begins_to_charge_is_not_asked_to_hold():
    clock = Clock(1)
    clock.answer(clock.poll(), is_free=True)
    clock.answer(clock.poll(), is_free=False, after_ms=HOLD_MS)
    assert clock.poll().wait_ms == 0


def test_the_list_is_turned_so_that_the_last_one_served_is_the_last_one_asked():
    clock = Clock(4)
    asking = clock.poll()
    shown = clock.answer(asking, [(1, "page")], has_more=True)  # 2 and 3 were not looked at
    assert shown == [(1, 0, "page")]
    clock.following.want(1, 9, clock.now_ms)
    asking = clock.poll()
    assert clock.now_ms == 0
    assert asking.places == [(2, 0), (3, 0), (0, 0), (1, 9)]


def test_partitions_that_always_have_records_starve_no_other():
    """Each answer has room for one partition, and two of four always have records."""
    clock, served = Clock(4), []
    for _ in range(12):
        asking = clock.poll()
        busy = next(place for place, _ in asking.places if place in (0, 3))
        clock.answer(asking, [(busy, "page")], has_more=True)
        served.append(busy)
        clock.following.want(busy, 0, clock.now_ms)
    assert served == [0, 3] * 6


def test_what_was_handed_out_is_polled_again_only_when_it_is_wanted():
    clock = Clock(2)
    clock.answer(clock.poll(), [(0, "page")])
    assert [place for place, _ in clock.poll().places] == [1]
    clock.following.drop(1)
    assert clock.following.due_ms() is None
    clock.following.want(0, 5, clock.now_ms)
    assert clock.poll().places == [(0, 5)]


def test_an_answer_about_a_dropped_or_moved_partition_is_nobodys():
    clock = Clock(3)
    asking = clock.poll()
    clock.following.drop(0)
    clock.following.want(1, 40, 0)  # a reader that went elsewhere
    shown = clock.answer(asking, [(0, "page"), (1, "page"), (2, "page")])
    assert [place for place, _, _ in shown] == [2]
    assert dict(clock.poll().places) == {1: 40}


def test_a_passing_error_is_asked_again_after_pauses_that_double_and_shown_in_the_end():
    clock = Clock(2)
    error = errors.UnstableOffsetCommitError("pending")
    shown: list = []
    while not shown:
        shown = clock.answer(clock.poll(), [(0, error)], after_ms=10)
        assert len(clock.asked_ms) < 40
    assert shown == [(0, 0, error)]
    gaps = [b - a for a, b in zip(clock.asked_ms, clock.asked_ms[1:], strict=False)]
    assert gaps[:4] == [60, 110, 210, 410]
    assert max(gaps) == 2_010
    assert 30_000 <= clock.now_ms < 33_000


def test_a_passing_error_that_passed_is_forgotten():
    clock = Clock(1)
    error = errors.StoreUnavailableError("away")
    clock.answer(clock.poll(), [(0, error)])
    clock.now_ms += 29_000
    clock.answer(clock.poll())
    clock.now_ms += 29_000
    assert clock.answer(clock.poll(), [(0, error)]) == []


def test_a_poll_that_failed_as_a_whole_is_shown_once_and_stops_one_partition():
    clock = Clock(2)
    error = errors.StoreUnavailableError("away")
    assert clock.following.failed(clock.poll(), error) == (0, 0, error)
    assert [place for place, _ in clock.poll().places] == [1]


def test_more_partitions_than_a_poll_takes_are_polled_in_parts_each_once_a_delay():
    clock = Clock(limits.POLL_POSITIONS_MAX + 100)
    seen: list[int] = []
    for _ in range(2):
        asking = clock.poll()
        assert asking.wait_ms == 0
        seen += [place for place, _ in asking.places]
        clock.answer(asking, is_free=True, after_ms=100)
    assert set(seen) == set(range(limits.POLL_POSITIONS_MAX + 100))
    clock.poll()
    assert clock.asked_ms == [0, 100, 1_000]


def test_a_page_that_came_alone_ends_a_quiet_time_and_one_that_shows_all_ends_the_polls_alone():
    pace: Following[int, int] = Following(0, shows_more=lambda page: page == "a full page")
    pace.want(0, 0, 0)
    pace.answered(pace.next_poll(0), [(0, "a full page")], 0, has_more=False, is_free=False)
    pace.answered_alone(0, "a full page", QUIET_MS)
    assert pace.is_behind(0)
    pace.answered_alone(0, "the last page", QUIET_MS)
    assert not pace.is_behind(0)
    pace.want(0, 2, QUIET_MS)
    for _ in range(2):  # the first ends the round that began with the page
        pace.answered(pace.next_poll(QUIET_MS), [], QUIET_MS, has_more=False, is_free=False)
    assert pace.due_ms() == QUIET_MS + MAX_DELAY_MS
