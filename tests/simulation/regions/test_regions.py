"""Regions under races, faults, cut links and clocks that differ: seeds that must pass."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.regions.scenario import run_seed

FAST = 3  # seeds in `make check`
CHUNK = 30
FIRST = 95  # near seeds that meet a gap, which few do
SEEDS = 30  # `make simulate` plays more
MET = ("append", "send", "end", "ack", "seek", "replicate", "suspend", "resume", "trim", "create", "skip", "snapshot")


def test_some_seeds_of_regions_pass() -> None:
    answered: Counter[str] = Counter()
    for seed in range(FAST):
        answered.update(run_seed(seed).stage.answered)
    assert min(answered[kind] for kind in ("append", "ack", "replicate")) > 0


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FIRST, FIRST + SEEDS, CHUNK))
def test_a_subscription_can_move_at_any_moment_under_any_faults(first: int) -> None:
    """Promise 6 and I17 to I25 hold. A seed that fails prints the command that replays it."""
    answered: Counter[str] = Counter()
    for seed in range(first, first + CHUNK):
        answered.update(run_seed(seed).stage.answered)
    assert [kind for kind in MET if not answered[kind]] == [], "some of it was never met: then nothing is shown of it"
