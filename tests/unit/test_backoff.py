"""The pauses before another try."""

from __future__ import annotations

import pytest

from fenceline.adapters.aws import client as aws
from fenceline.adapters.sqlite import database as sqlite
from fenceline.backoff import PEER_BACKOFF, Backoff
from fenceline.client import failover, owner, transport
from fenceline.log import retry
from fenceline.regions import direct_source


@pytest.mark.parametrize(
    ("backoff", "longest_ms"),
    [
        (retry.BACKOFF, [20, 40, 80, 160, 320, 640, 1_000, 1_000]),
        (aws.BACKOFF, [50, 100, 200, 400, 800, 1_000, 1_000]),
        (transport.BACKOFF, [50, 100, 200, 400, 800, 1_600, 2_000, 2_000]),
        (owner._BACKOFF, [50, 100, 200, 400, 800, 1_000, 1_000]),
        (sqlite.BACKOFF, [0.2, 0.3, 0.45, 0.675, 1.0125, 1.51875, 2, 2]),
        (PEER_BACKOFF, [1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]),
        (direct_source.NO_TOPIC_BACKOFF, [1_000, 2_000, 4_000, 5_000, 5_000]),
        (failover._PROBE_BACKOFF, [10_000, 20_000, 40_000, 60_000, 60_000]),
    ],
)
def test_pauses_grow_to_their_bound(backoff: Backoff, longest_ms: list[float]) -> None:
    failures = range(1, len(longest_ms) + 1)
    assert [backoff.pause_ms(one, random=1) for one in failures] == pytest.approx(longest_ms)


@pytest.mark.parametrize(
    ("jitter", "pauses_ms"), [(0, [80, 80, 80]), (0.5, [40, 50, 60]), (1, [0, 20, 40])], ids=["none", "half", "full"]
)
def test_chance_decides_the_share_of_a_pause_that_is_jitter(jitter: float, pauses_ms: list[float]) -> None:
    backoff = Backoff(first_ms=40, max_ms=1_000, jitter=jitter)
    assert [backoff.pause_ms(2, random) for random in (0, 0.25, 0.5)] == pauses_ms


def test_a_pause_without_jitter_needs_no_chance() -> None:
    assert Backoff(first_ms=40, max_ms=1_000, jitter=0).pause_ms(1) == 40


@pytest.mark.parametrize("factor", [1.5, 2])
def test_the_pause_after_any_number_of_failures_is_at_its_bound(factor: float) -> None:
    backoff = Backoff(first_ms=0.2, max_ms=2, factor=factor)
    assert backoff.pause_ms(1_000_000) == 2
