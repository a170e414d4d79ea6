"""Drivers that end their batches with a version, under races, faults and clocks that differ: seeds that must pass."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.once.scenario import run_seed

FAST = 3  # seeds in `make check`
CHUNK = 60
SEEDS = 60  # `make simulate` plays more
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
    kinds = {one.kind for seed in range(FAST) for one in run_seed(seed).history.operations if one.is_answered}
    assert kinds >= {"close", "extend", "once", "init", "send"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_version_shows_once_and_whole_and_members_never_end_apart(first: int) -> None:
    """Promise 4 and I10 to I28 hold, and every answer is true at some moment.

    A seed that fails prints the command that replays it.
    """
    told: Counter[tuple[str, str]] = Counter()
    met: set[str] = set()
    for seed in range(first, first + CHUNK):
        run = run_seed(seed)
        met |= set(run.truth.met)
        for operation in run.history.operations:
            told[operation.kind, operation.code or ("OK" if operation.is_answered else "")] += 1
    assert [one for one in MET if not told[one]] == [], "some of it was never met: then nothing is shown of it"
    assert MET_BY_TRUTH - met == set()
