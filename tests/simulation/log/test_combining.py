"""Processes that contend, and offer their batches to each other: seeds that must pass, and reach every case."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.simulation.log import combining

FEW = 8  # seeds in `make check`
CHUNK = 50
CASES_TO = 46
SEALED = 120  # one of few seeds in which a sealed log has offers that are free
SEEDS = 96  # `make simulate` plays more
GHOSTS = 12


def played(seeds: Iterable[int]) -> Counter[str]:
    met: Counter[str] = Counter()
    with combining.counting(met):
        for seed in seeds:
            combining.count_what_is_left(combining.run_seed(seed), met)
    return met


def test_an_offered_batch_is_committed_once_or_known_not_to_be() -> None:
    """I16, and all that holds without combining (I1 to I7)."""
    met = played(range(FEW))
    assert met["another process's create committed an offer"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(CASES_TO, SEEDS, CHUNK))
def test_no_race_and_no_fault_commits_an_offer_twice(first: int) -> None:
    """I16. A seed that fails prints the command that replays it."""
    met = played(range(first, first + CHUNK))
    assert met["another process's create committed an offer"] > 0


@pytest.mark.slow
def test_every_case_of_the_adversary_is_reached() -> None:
    """Each case that the protocol lists under "Combining" is met by a seed, one with ghosts by a plan of its own."""
    met = played([*range(FEW, CASES_TO), SEALED])
    with combining.counting(met):
        for seed in range(GHOSTS):
            combining.count_what_is_left(combining.run_seed(seed, combining.draw_ghosts(seed)), met)
    assert {case for case in combining.CASES if not met[case]} == set(), met
