"""Exclusive access under races, faults, frozen processes and clocks that differ: seeds that must pass."""

from __future__ import annotations

import pytest

from tests.simulation.access.scenario import run_seed
from tests.simulation.harness.scenario import outcomes

FAST = 4  # seeds in `make check`
CHUNK = 60
SEEDS = 60  # `make simulate` plays more
MET = [
    *((kind, "OK") for kind in ("append", "claim", "poll", "own", "heartbeat", "close", "read", "release")),
    *(("append", code) for code in ("PRODUCER_FENCED", "PRODUCER_BUSY", "SESSION_SEVERED")),
    *(("claim", code) for code in ("PRODUCER_FENCED", "PRODUCER_BUSY", "SESSION_EXPIRED")),
]


def test_some_seeds_of_exclusive_access_pass() -> None:
    met = outcomes(map(run_seed, range(FAST)))
    assert {"append", "claim", "own"} <= {kind for kind, code in met if code == "OK"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_session_that_lost_access_writes_nothing_under_any_faults(first: int) -> None:
    """Promise 3, I8 and I9 hold, and every answer is true at some moment.

    A seed that fails prints the command that replays it.
    """
    met = outcomes(map(run_seed, range(first, first + CHUNK)))
    assert [one for one in MET if not met[one]] == [], "some of it was never met: then nothing is shown of it"
