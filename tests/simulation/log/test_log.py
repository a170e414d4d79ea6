"""The real log under races, faults, crashes and frozen processes: seeds that must pass."""

from __future__ import annotations

import pytest

from tests.simulation.harness.scenario import outcomes
from tests.simulation.log.scenario import run_seed

FEW = 8  # seeds in `make check`
CHUNK = 50
MET = ("append", "read", "poll", "offsets", "trim", "compact")
SEEDS = 108  # `make simulate` plays more

CHUNKS = [range(FEW), *(range(first, first + CHUNK) for first in range(FEW, SEEDS, CHUNK))]


@pytest.mark.parametrize(
    "seeds", [CHUNKS[0], *(pytest.param(seeds, marks=pytest.mark.slow) for seeds in CHUNKS[1:])], ids=str
)
def test_no_race_and_no_fault_breaks_a_promise(seeds: range) -> None:
    """The promises and I1 to I7 hold (protocol, "Promises").

    A seed that fails prints the command that replays it.
    """
    met = outcomes(map(run_seed, seeds))
    assert [kind for kind in MET if not met[kind, "OK"]] == [], "some of it was never met: then nothing is shown of it"
