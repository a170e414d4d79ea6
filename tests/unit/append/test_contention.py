"""Rivals leave the log to each other in turns: little is lost, none waits for ever, and a lone appender never waits."""

from __future__ import annotations

import heapq
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from benchmarks.figures import jain
from fenceline.append.contention import (
    ALONE_TURNS,
    CHANCE_LOSSES,
    GAP,
    HALVED,
    LONG_PAUSE,
    SHORT_PAUSE,
    TURN,
    ContentionBackoff,
)

FAR = 100  # ms for a try: so far that the least times don't apply


def longest(scale: tuple[float, int], try_ms: float = FAR) -> float:
    return max(scale[0] * try_ms, scale[1])


def won_for(turns: ContentionBackoff, start: int, duration_ms: int, try_ms: int = 20) -> int:
    for now in range(start, start + duration_ms + 1, try_ms):
        turns.win(now, try_ms)
    return now


def test_pauses_grow_with_each_loss_and_then_shrink_for_who_has_waited_long() -> None:
    turns = ContentionBackoff()
    pauses = [turns.lose(n * FAR, FAR, 0.5) for n in range(60)]
    top = CHANCE_LOSSES - 1
    assert pauses[: top + 1] == sorted(pauses[: top + 1])
    assert pauses[top:] == sorted(pauses[top:], reverse=True)
    assert pauses[0] < FAR, "one loss may be chance"
    assert pauses[top] == longest(LONG_PAUSE) * 2 ** (-top * FAR / longest(HALVED))
    assert pauses[-1] == longest(SHORT_PAUSE)


def test_pauses_shrink_with_the_time_that_was_waited_and_not_with_the_tries_that_were_made() -> None:
    often, rarely = ContentionBackoff(), ContentionBackoff()
    for now in range(0, 3_000, 50):
        often.lose(now, FAR, 0.5)
    for now in range(0, 3_000, 500):
        rarely.lose(now, FAR, 0.5)
    assert often.lose(3_000, FAR, 0.5) == rarely.lose(3_000, FAR, 0.5) < longest(LONG_PAUSE)


def test_the_time_that_was_waited_begins_anew_with_each_win() -> None:
    turns = ContentionBackoff()
    turns.concede(0)
    turns.win(10, 20)
    for now in range(60_000, 60_000 + CHANCE_LOSSES - 1):
        turns.lose(now, FAR, 0.5)
    assert turns.lose(60_000, FAR, 0.5) == longest(LONG_PAUSE)


def test_pauses_are_jittered_from_nothing_to_twice_their_length() -> None:
    pauses = [ContentionBackoff(FAR, losses=3).lose(0, FAR, chance) for chance in (0.0, 0.5, 1.0)]
    assert pauses == [0, pauses[1], 2 * pauses[1]]


def test_pauses_are_as_long_as_a_try_says_but_never_shorter_than_following_the_log_is_worth() -> None:
    far, near = (ContentionBackoff(try_ms, losses=CHANCE_LOSSES - 1) for try_ms in (500.0, 2.0))
    assert far.lose(0, 500, 0.5) == LONG_PAUSE[0] * 500
    assert near.lose(0, 2, 0.5) == LONG_PAUSE[1]


def test_a_process_that_met_no_rival_rarely_leaves_a_gap() -> None:
    """It can't know of a rival that only loses."""
    turns, gaps_ms, now = ContentionBackoff(), 0.0, 0
    while now < 100_000:
        gap_ms = turns.gap(now, 0.5)
        gaps_ms += gap_ms
        now += int(gap_ms) + 20
        turns.win(now, 20)
    assert gaps_ms >= 100_000 // (TURN[1] * ALONE_TURNS + GAP[1]) * GAP[1] > 0
    assert gaps_ms <= 100_000 * 0.015


def test_a_process_that_met_a_rival_leaves_a_gap_at_the_end_of_each_turn() -> None:
    turns = ContentionBackoff()
    turns.lose(0, FAR, 0.5)
    for start in (10, 2_010):
        now = won_for(turns, start, int(longest(TURN)) - 20)
        assert turns.gap(now, 0.5) == 0, "not within its turn"
        now = won_for(turns, now, 20)
        assert turns.gap(now, 0.5) == longest(GAP)
        assert turns.gap(now, 0.5) == 0, "once"


def test_a_rival_that_was_met_counts_for_seconds_however_near_the_store_is() -> None:
    """All rivals have their turn before it is met again."""
    turns = ContentionBackoff()
    turns.lose(0, 1, 0.5)
    now = won_for(turns, 3_000, TURN[1], try_ms=1)
    assert turns.gap(now, 0.5) == GAP[1]


def test_a_rival_that_was_not_met_for_long_is_forgotten() -> None:
    turns = ContentionBackoff()
    turns.lose(0, FAR, 0.5)
    turns.gap(60_000, 0.5)
    now = won_for(turns, 60_000, int(2 * longest(TURN)))
    assert turns.gap(now, 0.5) == 0


def test_a_process_that_appends_rarely_leaves_no_further_gaps() -> None:
    turns = ContentionBackoff()
    turns.lose(0, FAR, 0.5)
    for now in range(0, 20_000, int(longest(GAP)) + 20):
        assert turns.gap(now, 0.5) == 0
        turns.win(now, 20)


def test_a_loser_that_had_its_turn_begins_with_the_long_pause() -> None:
    turns = ContentionBackoff()
    turns.lose(0, FAR, 0.5)
    now = won_for(turns, 10, int(longest(TURN)))
    assert turns.lose(now, FAR, 0.5) == longest(LONG_PAUSE)
    turns.win(now, 20)
    assert turns.lose(now, FAR, 0.5) < FAR, "one commit is no turn"


def test_a_turn_of_long_ago_does_not_count() -> None:
    turns = ContentionBackoff()
    now = won_for(turns, 10, int(longest(TURN)))
    assert turns.lose(now + 60_000, FAR, 0.5) < FAR


# All together


@dataclass
class Log:
    """A log in which its rivals create; each request takes its time, and all of them share ``cores``."""

    create_ms: float
    follow_ms: float
    cores: int
    chance: random.Random
    spread: float = 0.3
    commits_at: float = 0.7  # part of a create's time
    end: int = 0
    lost: int = 0
    head: int = 0  # number of times the checkpoint was moved
    busy_until: list[float] = field(default_factory=list)

    def takes(self, now: float, mean_ms: float) -> float:
        ms = mean_ms * self.chance.lognormvariate(0, self.spread)
        if not self.cores:
            return ms
        self.busy_until = self.busy_until or [0.0] * self.cores
        core = min(range(self.cores), key=self.busy_until.__getitem__)
        self.busy_until[core] = max(now, self.busy_until[core]) + ms
        return self.busy_until[core] - now


def rival(log: Log, waits: list[float], starts_ms: float = 0) -> Iterator[float]:
    """Append for ever; yield how long each step takes, and take the time back."""
    turns, known, head, now = ContentionBackoff(), 0, 0, 0.0
    if starts_ms:
        now = yield starts_ms
    while True:
        begun = now
        gap = turns.gap(int(now), log.chance.random())
        if gap:
            now = yield gap
            # A listing that shows nothing new takes a third of the time.
            took = log.takes(now, log.follow_ms / (3 if log.end == known else 1))
            now = yield took
            turns.followed(int(took))
            known = log.end
        try_at = now
        while True:
            took = log.takes(now, log.create_ms)
            now = yield took * log.commits_at
            has_won = log.end == known
            log.end += has_won
            now = yield took * (1 - log.commits_at)
            if has_won:
                break
            log.lost += 1
            pause = turns.lose(int(now), int(now - try_at), log.chance.random())
            now = yield pause
            try_at = now
            took = log.takes(now, log.follow_ms)
            now = yield took
            turns.followed(int(took))
            known = log.end
            log.head += turns.should_advance_checkpoint
        known += 1
        turns.win(int(now), int(now - try_at))
        waits.append(now - begun)
        if len(waits) % 16 == 0:
            if log.head != head:
                turns.meet_rivals(int(now))
            head = log.head = log.head + 1


def run(rivals: int, log: Log, duration_ms: float, *, apart_ms: float = 0) -> list[list[float]]:
    waits: list[list[float]] = [[] for _ in range(rivals)]
    running = [rival(log, waits[n], n * apart_ms) for n in range(rivals)]
    queue = [(next(one), n) for n, one in enumerate(running)]
    while queue:
        now, n = heapq.heappop(queue)
        if now < duration_ms:
            heapq.heappush(queue, (now + running[n].send(now), n))
    return waits


@pytest.mark.parametrize("rivals", [2, 8])
@pytest.mark.parametrize(("create_ms", "follow_ms", "cores"), [(25, 45, 0), (4, 8, 0), (2, 6, 2)])
def test_rivals_lose_little_and_none_starves(rivals: int, create_ms: float, follow_ms: float, cores: int) -> None:
    duration_ms, seeds = 40_000, range(3)
    rates, losses, fairness, worst = [], [], [], 0.0
    for seed in seeds:
        [alone] = run(1, Log(create_ms, follow_ms, cores, random.Random(seed)), duration_ms)
        log = Log(create_ms, follow_ms, cores, random.Random(seed))
        waits = run(rivals, log, duration_ms)
        assert all(waits), "each of them appended"
        rates.append(log.end / len(alone))
        losses.append(log.lost / log.end)
        fairness.append(jain([len(of_one) for of_one in waits]))
        worst = max(worst, *(max(of_one) for of_one in waits))
    assert sum(rates) / len(rates) >= 0.7
    assert sum(losses) / len(losses) <= 1
    assert sum(fairness) / len(fairness) >= 0.9
    assert worst < 6_000, "a third of the deadline of a request"


@pytest.mark.parametrize(("rivals", "create_ms", "follow_ms"), [(2, 25, 45), (8, 25, 45), (2, 100, 100)])
def test_a_later_process_is_not_kept_out_by_one_that_never_lost(
    rivals: int, create_ms: float, follow_ms: float
) -> None:
    for seed in range(5):
        log = Log(create_ms, follow_ms, 0, random.Random(seed), 0.02, commits_at=1)  # 1: no lucky win in between
        waits = run(rivals, log, 60_000, apart_ms=3_000)
        assert all(waits), "each of them appended"
        assert max(max(of_one) for of_one in waits) < 20_000, "the deadline of a request"
