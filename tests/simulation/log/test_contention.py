"""The shares of rivals whose appends cannot be offered to each other, in counted time ("Rivals take turns")."""

from __future__ import annotations

import pytest

from tests.simulation.log.pace import EXCLUSIVE_SESSIONS, IDEMPOTENT, PLAIN, TRANSACTIONAL, Load, run

LARGE = 64 * 1024


@pytest.mark.parametrize("rivals", [2, 8])
@pytest.mark.parametrize(("kind", "size"), [(PLAIN, LARGE), (IDEMPOTENT, LARGE), (TRANSACTIONAL, 1024)])
def test_rivals_whose_batches_cannot_be_offered_each_get_a_share(kind: str, size: int, rivals: int) -> None:
    """A loser that only backs off never appends: the winner is always a step ahead of it."""
    pace = run(Load(rivals, kind=kind, batch_bytes=size, is_uniform=True))
    shares = [len(waits) * rivals / len(pace.all_waits_ms) for waits in pace.waits_ms]
    assert min(shares) >= 0.4
    assert not pace.failures


def test_sessions_that_have_a_partition_each_do_not_contend() -> None:
    pace = run(Load(2, kind=EXCLUSIVE_SESSIONS, is_uniform=True))
    assert pace.calls_per_append("create") <= 1.01
    assert pace.wait_ms(99) <= 40
    assert not pace.failures
