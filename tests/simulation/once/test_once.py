"""Drivers that end their batches with a version, under races, faults and clocks that differ: seeds that must pass."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.simulation.harness.scenario import outcomes
from tests.simulation.once.scenario import OnceRun, run_seed

FAST = 3  # seeds in `make check`
CHUNK = 40
SEEDS = 40  # `make simulate` plays more
MET = [
    *((kind, "OK") for kind in ("close", "extend", "once", "forget", "read", "init", "send", "end")),
    *(("close", code) for code in ("ALREADY_COMMITTED", "PRODUCER_FENCED", "INVALID_TXN_STATE")),
    ("close", "INVALID_PRODUCER_ID_MAPPING"),
    ("extend", "PRODUCER_FENCED"),
]
MET_BY_TRUTH = {
    "raised with members",
    "raised alone",
    "a member is passed over",
    "committed before",
    "committed by itself before",
    "extended, and aborted by an id request",
    "extended, and due",
    "ended by its producer, though due",
    "finished by another process",
}


def test_some_seeds_of_once_pass() -> None:
    met = outcomes(map(run_seed, range(FAST)))
    assert {"close", "extend", "once", "init", "send"} <= {kind for kind, code in met if code == "OK"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_version_shows_once_and_whole_and_members_never_end_apart(first: int) -> None:
    """Promise 4 and I10 to I28 hold, and every answer is true at some moment.

    A seed that fails prints the command that replays it.
    """
    met_by_truth: set[str] = set()

    def played() -> Iterator[OnceRun]:
        for seed in range(first, first + CHUNK):
            run = run_seed(seed)
            met_by_truth.update(run.truth.met)
            yield run

    met = outcomes(played())
    assert [one for one in MET if not met[one]] == [], "some of it was never met: then nothing is shown of it"
    assert MET_BY_TRUTH - met_by_truth == set()
