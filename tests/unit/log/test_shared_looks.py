"""Looks that threads share: each gets what was found by a look that began after it asked."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

import pytest

from fenceline.log.shared_looks import SharedLooks, Turns
from fenceline.ports import Unavailable
from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S, wait_until

WAITING = 5


class Looking:
    """Looks of which the first ends when the test says so, and whose answers name what each was asked for."""

    def __init__(self, outcome: Callable[[int], object] = lambda _: None) -> None:
        self.looks = SharedLooks(ThreadRuntime())
        self.asked: list[Sequence[str]] = []
        self.first_may_end = threading.Event()
        self._outcome = outcome

    def take(self, wanted: str) -> str:
        return self.looks.take("a thing", wanted, self._look)

    def _look(self, wanted: Sequence[str]) -> str:
        self.asked.append(wanted)
        number = len(self.asked)
        if number == 1:
            assert self.first_may_end.wait(PATIENCE_S)
        self._outcome(number)
        return f"look {number}"

    def play(self) -> tuple[Future[str], list[Future[str]]]:
        """Let one ask, and others while its look is under way; return what came of it."""
        with ThreadPoolExecutor(1 + WAITING) as pool:
            first = pool.submit(self.take, "first")
            wait_until(lambda: self.asked)
            others = [pool.submit(self.take, f"other {n}") for n in range(WAITING)]
            wait_until(lambda: len(self.looks._asked["a thing"].asks) == 1 + WAITING)
            self.first_may_end.set()
        return first, others


def test_those_who_ask_during_a_look_share_the_next_one() -> None:
    looking = Looking()
    first, others = looking.play()
    assert first.result() == "look 1"
    assert {one.result() for one in others} == {"look 2"}
    assert [sorted(one) for one in looking.asked] == [["first"], [f"other {n}" for n in range(WAITING)]]


def test_one_who_asks_after_another_looks_again() -> None:
    looking = Looking()
    looking.first_may_end.set()
    assert [looking.take("a"), looking.take("a")] == ["look 1", "look 2"]


def fails(number: int) -> None:
    if number == 2:
        raise Unavailable("the store is down")


def test_a_look_that_fails_fails_for_all_who_wait_for_it_and_no_longer() -> None:
    looking = Looking(fails)
    first, others = looking.play()
    assert first.result() == "look 1"
    for one in others:
        with pytest.raises(Unavailable, match="the store is down"):
            one.result()
    assert len(looking.asked) == 2
    assert looking.take("later") == "look 3"


def is_interrupted(number: int) -> None:
    if number == 2:
        raise KeyboardInterrupt


def test_an_interrupt_ends_one_thread_and_the_others_look_themselves() -> None:
    looking = Looking(is_interrupted)
    _, others = looking.play()
    failures = [one.exception() for one in others]
    assert sorted(map(type, failures), key=str) == [KeyboardInterrupt, *[type(None)] * (WAITING - 1)]
    assert {one.result() for one in others if one.exception() is None} <= {f"look {n}" for n in range(3, 3 + WAITING)}


@pytest.mark.parametrize("outcome", [lambda _: None, fails, is_interrupted])
def test_nothing_is_kept_that_nobody_waits_for(outcome: Callable[[int], object]) -> None:
    looking = Looking(outcome)
    looking.play()
    assert looking.looks._asked == {}


def test_a_turn_is_taken_by_one_until_its_block_ends() -> None:
    turns = Turns(ThreadRuntime())
    with turns.take("a thing") as is_first:
        with turns.take("a thing") as is_second, turns.take("another thing") as is_other:
            assert [is_first, is_second, is_other] == [True, False, True]
        with turns.take("a thing") as is_third:
            assert not is_third
    with suppress(KeyError), turns.take("a thing"):
        raise KeyError
    with turns.take("a thing") as is_fourth:
        assert is_fourth
