"""Attempts: when another one is made, and after which pause. Their outcomes are in ``test_lost_answers.py``."""

from __future__ import annotations

import pytest

from fenceline.errors import ContendedError, OutcomeUnknownError
from fenceline.log.retry import ATTEMPTS_MAX, BACKOFF, Attempts
from fenceline.ports import ItemKey, NoAnswer, VersionMoved
from tests.support.runtime import AheadRuntime

MOVED = VersionMoved(ItemKey("a", "b"))


class HalfRuntime(AheadRuntime):
    """Surroundings whose chance is always one half."""

    def random(self) -> float:
        return 0.5


def test_a_loop_ends_with_the_attempt_that_returns() -> None:
    runtime, facts = HalfRuntime(), [MOVED, MOVED]

    def change() -> str:
        attempts = Attempts(runtime, "a thing")
        while True:
            with attempts:
                if facts:
                    raise facts.pop()
                return "done"

    assert change() == "done"
    assert runtime.slept_ms == [BACKOFF.pause_ms(1, 0.5), BACKOFF.pause_ms(2, 0.5)]


def test_a_call_is_made_until_it_returns() -> None:
    runtime, facts = HalfRuntime(), [MOVED]

    def change() -> str:
        if facts:
            raise facts.pop()
        return "done"

    assert Attempts(runtime, "a thing").until_done(change) == "done"
    assert runtime.slept_ms == [BACKOFF.pause_ms(1, 0.5)]


def test_only_an_attempt_that_follows_another_one_pauses() -> None:
    runtime = HalfRuntime()
    assert Attempts(runtime, "a thing").until_done(lambda: "done") == "done"
    assert runtime.slept_ms == []


def test_the_last_attempt_is_followed_by_no_pause() -> None:
    runtime, begun = HalfRuntime(), []

    def change() -> None:
        begun.append(None)
        raise MOVED

    with pytest.raises(ContendedError):
        Attempts(runtime, "a thing").until_done(change)
    assert len(begun) == ATTEMPTS_MAX
    assert runtime.slept_ms == [BACKOFF.pause_ms(failures, 0.5) for failures in range(1, ATTEMPTS_MAX)]


def test_an_error_that_is_no_fact_of_a_store_ends_the_attempts() -> None:
    runtime = HalfRuntime()

    def change() -> None:
        raise ValueError("a fault")

    with pytest.raises(ValueError, match="a fault"):
        Attempts(runtime, "a thing").until_done(change)
    assert runtime.slept_ms == []


def test_an_unknown_outcome_names_no_key_of_an_item_that_moved() -> None:
    """The key may be another caller's session."""
    facts: list[Exception] = [*[VersionMoved(ItemKey("sessions/0", "secret"))] * (ATTEMPTS_MAX - 1), NoAnswer("lost")]

    def change() -> None:
        raise facts.pop()

    with pytest.raises(OutcomeUnknownError, match=r"a thing; another write changed an item first$"):
        Attempts(HalfRuntime(), "a thing").until_done(change)


def test_an_unknown_outcome_names_the_last_answer_that_was_lost() -> None:
    def change() -> None:
        raise NoAnswer("no answer from the table")

    with pytest.raises(OutcomeUnknownError, match=r"a thing; no answer from the table$"):
        Attempts(HalfRuntime(), "a thing").until_done(change)
