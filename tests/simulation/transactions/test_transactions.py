"""Transactions under races, faults, frozen processes and clocks that differ: seeds that must pass."""

from __future__ import annotations

import pytest

from tests.simulation.harness.scenario import outcomes
from tests.simulation.transactions.scenario import run_seed

FAST = 3  # seeds in `make check`
CHUNK = 40
SEEDS = 40  # `make simulate` plays more
OK = ("init", "add", "add-group", "send-offsets", "send", "end", "committed", "read", "commit", "seek", "own", "claim")
MET = [
    *((kind, "OK") for kind in OK),
    *(("send", code) for code in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH", "UNKNOWN_TOPIC_OR_PARTITION")),
    *(("send-offsets", code) for code in ("PRODUCER_FENCED", "SESSION_SEVERED")),
    *(("end", code) for code in ("PRODUCER_FENCED", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING")),
    ("committed", "UNSTABLE_OFFSET_COMMIT"),
    ("abort-by-hand", "INVALID_TXN_STATE"),
]


def test_some_seeds_of_transactions_pass() -> None:
    met = outcomes(map(run_seed, range(FAST)))
    assert {"init", "send", "end", "read"} <= {kind for kind, code in met if code == "OK"}


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_a_transaction_is_all_or_nothing_under_any_faults(first: int) -> None:
    """Promise 4 and I10 to I15 hold, and every answer is true at some moment.

    A seed that fails prints the command that replays it.
    """
    met = outcomes(map(run_seed, range(first, first + CHUNK)))
    assert [one for one in MET if not met[one]] == [], "some of it was never met: then nothing is shown of it"
