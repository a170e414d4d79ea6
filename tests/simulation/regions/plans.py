"""Plans in which seeds of regions meet what a guard is for."""

from __future__ import annotations

from dataclasses import replace

from tests.simulation.harness.stores import Faults
from tests.simulation.regions.run import RegionsPlan
from tests.simulation.regions.scenario import draw_plan


def calm(seed: int) -> RegionsPlan:
    """Draw three regions whose processes and stores work, and whose links are slow at most."""
    plan = replace(draw_plan(seed), faults=Faults(), breaks=False, regions=("a", "b", "c"), acts=(), late=False)
    plan = replace(plan, partitions=1, patience_ms=60_000, processes=2, rounds=5)
    return replace(plan, last_in=None, lost_region=None, writes_last=False, reads_amid=False)


def races(seed: int) -> RegionsPlan:
    """Draw replicators of two processes that freeze before they append."""
    faults = Faults(freeze_at_append=0.05, freeze_ms=40_000, answer_lost=0.03)
    return replace(calm(seed), faults=faults, casts=("writer", "writer", "writer", "consumer"))


def lives(seed: int) -> RegionsPlan:
    """Draw topics that are deleted and created again."""
    casts = ("writer", "writer", "writer", "consumer", "consumer")
    return replace(calm(seed), acts=("recreate", "snapshot"), casts=casts, rounds=8, lost=0, cuts=False)


def lives_to_the_end(seed: int) -> RegionsPlan:
    """Draw topics that are created again, and a consumer that reads to the end once all is quiet."""
    return replace(lives(seed), last_in="abc"[seed % 3], reads_amid=True)


def old_answers(seed: int) -> RegionsPlan:
    return replace(lives(seed), stale=0.5)


def transactions(seed: int) -> RegionsPlan:
    return replace(calm(seed), casts=("transactor", "transactor", "writer", "consumer"), rounds=8)


def cuts(seed: int) -> RegionsPlan:
    """Draw links that are cut in one direction and come back."""
    casts = ("writer", "writer", "writer", "consumer", "consumer")
    plan = replace(calm(seed), casts=casts, cuts=True, pace_ms=8_000, slow_ms=1_500, rounds=8)
    return replace(plan, acts=("snapshot",))


def the_last_reader(seed: int) -> RegionsPlan:
    """Draw a consumer that reads to the end once all is quiet."""
    return replace(cuts(seed), acts=(), last_in="abc"[seed % 3])


def apart(seed: int) -> RegionsPlan:
    """Draw a region that has another one's records from the third one alone."""
    casts = ("writer", "writer", "writer", "writer", "writer", "consumer", "consumer")
    plan = replace(cuts(seed), casts=casts, cuts=False, slow_ms=500, acts=("snapshot",))
    return replace(plan, apart=("a", "c"))


def never_met(seed: int) -> RegionsPlan:
    """Draw a region that has none of another one's records, as if that one had been removed before it came."""
    return replace(apart(seed), apart=("c", "a"), rounds=12)


def losses(seed: int) -> RegionsPlan:
    """Draw a region that is cut off at the end."""
    return replace(cuts(seed), acts=(), lost_region="abc"[seed % 3])


def trims(seed: int) -> RegionsPlan:
    """Draw logs that are trimmed, and gaps that are passed."""
    return replace(cuts(seed), acts=("trim", "trim", "skip"))


def skips(seed: int) -> RegionsPlan:
    return replace(cuts(seed), acts=("trim", "trim", "skip", "skip"), lost_region="abc"[seed % 3])
