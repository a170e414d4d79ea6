"""The real log under races, faults, crashes and frozen processes: seeds that must pass."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.log.scenario import run_seed

ROOT = Path(__file__).parents[3]
FEW = 8  # seeds in `make check`
CHUNK = 50
MET = ("append", "read", "offsets", "trim", "compact")
SEEDS = 258  # `make simulate` plays more

CHUNKS = [range(FEW), *(range(first, first + CHUNK) for first in range(FEW, SEEDS, CHUNK))]


@pytest.mark.parametrize(
    "seeds", [CHUNKS[0], *(pytest.param(seeds, marks=pytest.mark.slow) for seeds in CHUNKS[1:])], ids=str
)
def test_no_race_and_no_fault_breaks_a_promise(seeds: range) -> None:
    """The promises and I1 to I7 hold (DESIGN.md, "Promises").

    A seed that fails prints the command that replays it.
    """
    answered: Counter[str] = Counter()
    for seed in seeds:
        answered.update(o.kind for o in run_seed(seed).history.operations if o.is_answered)
    assert min(answered[kind] for kind in MET) > 0, f"some of it was never met, and nothing is shown of it: {answered}"


@pytest.mark.slow
def test_a_seed_replays_the_same_history_in_another_process() -> None:
    def replay(hash_seed: str) -> str:
        command = [sys.executable, "-m", "tests.simulation", "--seed", "5", "--print"]
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        return done.stdout.rpartition("Plan(")[0]

    first = replay("1")
    assert first.count("\n") > 100
    assert first == replay("2")
