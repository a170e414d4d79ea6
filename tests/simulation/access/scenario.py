"""One seed of exclusive access: claimers, owners, waiters and fenced clients, and the faults around them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from tests.simulation.access import clients as access_clients
from tests.simulation.access.checker import check
from tests.simulation.access.clients import TOPIC, Stage
from tests.simulation.access.truth import AccessTruth
from tests.simulation.harness import real
from tests.simulation.harness.scenario import (
    PATIENT_MS,
    SKEW_MS,
    Scenario,
    SkewedPlan,
    StoreRun,
    add_skewed_process,
    calm_down,
    draw_faults,
    play_skewed,
)
from tests.simulation.log import clients
from tests.simulation.log.truth import Truth


@dataclass(frozen=True)
class AccessPlan(SkewedPlan):
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    leases_ms: tuple[int, ...] = (3_000,)


@dataclass(kw_only=True)
class AccessRun(StoreRun[AccessPlan]):
    """One run of one seed, with the truth of its items and its log."""

    truth: AccessTruth = field(init=False)


CASTS = {
    "claimer": access_clients.claim,
    "returner": access_clients.come_back,
    "owner": access_clients.own,
    "sharer": access_clients.share_and_own,
    "writer": access_clients.write_plainly,
    "reader": access_clients.read_plainly,
    "ghost": access_clients.haunt,
    "looker": access_clients.look,
    "sweeper": access_clients.sweep_all,
}


def draw_plan(seed: int) -> AccessPlan:
    rng = Random(f"access {seed}")
    casts = ["claimer"] * rng.choice((1, 2, 3, 4)) + ["owner"] * rng.choice((0, 0, 1, 2, 3))
    casts += ["writer"] * rng.choice((0, 1, 1)) + ["ghost"] * rng.choice((0, 1)) + ["looker"] * rng.choice((0, 0, 1))
    if "owner" in casts:
        casts += ["reader"] * rng.choice((0, 1)) + ["sweeper"] * rng.choice((0, 0, 1))
    level = rng.choice((0, 0.01, 0.03, 0.08))

    faults = draw_faults(rng, level, freezes_ms=(3_000, 10_000, 40_000))
    return AccessPlan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((1, 1, 2, 3)),
        rounds=rng.choice((2, 3, 5)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((1_000, 8_000, 60_000)),
        breaks=level > 0 and rng.random() < 0.5,
        break_freeze_ms=rng.choice((3_000, 20_000)),
        pace_ms=rng.choice((2_000, 8_000)),
        item_age_ms=rng.choice((0, 60_000)),
        checkpoint_segments=rng.choice((1, 5, 16)),
        leases_ms=rng.choice(((1_000,), (3_000,), (3_000, 30_000), (60_000,))),
        skew_ms=rng.choice((0, SKEW_MS, SKEW_MS)),
    )


def _begin(seed: int, plan: AccessPlan) -> AccessRun:
    run = AccessRun.begun(seed, plan, real.subject())
    run.truth = AccessTruth(run.world)
    run.judge(run.truth.on_write)
    return run


def _play(run: AccessRun) -> None:
    plan = run.plan
    for number in range(plan.processes):
        add_skewed_process(run, f"p{number}")
    setup = Stage(
        run.world, run.history, run.processes, PATIENT_MS, 1, partitions=plan.partitions, leases_ms=plan.leases_ms
    )
    run.do(lambda: clients.create(setup, "setup", TOPIC, plan.partitions))
    run.faults = plan.faults
    stage = replace(setup, patience_ms=plan.patience_ms, rounds=plan.rounds)
    play_skewed(run, [partial(CASTS[cast], stage, f"{cast}{number}") for number, cast in enumerate(plan.casts)])
    _settle(run, stage)


def _settle(run: AccessRun, stage: Stage) -> None:
    """End the trouble: every lease lapses, and everything must work again, in old processes and in a new one."""
    calm_down(run, max(run.plan.leases_ms))
    for process in run.processes:
        alone = replace(stage, processes=[process], patience_ms=PATIENT_MS)
        run.do(partial(access_clients.release_all, alone, f"last-{process.name}"))
    run.subject.finish(run)


def _check(run: AccessRun) -> None:
    truth = Truth(run.objects.created, run.lives, run.subject.parse, run.history.operations)
    run.truth.read_log(run.objects.created)
    check(truth, run.truth, run.history.operations, skew_ms=run.plan.skew_ms, is_calm=run.plan.is_calm)


SCENARIO = Scenario("access", draw_plan, _begin, _play, _check)
run_seed = SCENARIO.run_seed
