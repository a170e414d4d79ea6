"""One seed of `once`: drivers of one application, their tasks and zombies, and the rivals that meet their ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

from fenceline import limits
from tests.simulation.harness import real
from tests.simulation.harness.scenario import (
    PATIENT_MS,
    SKEW_MS,
    Scenario,
    StoreRun,
    add_skewed_process,
    draw_faults,
    play_skewed,
)
from tests.simulation.once import clients, others
from tests.simulation.once.checker import check_all
from tests.simulation.once.clients import Stage
from tests.simulation.once.truth import OnceTruth
from tests.simulation.transactions import clients as transaction_clients
from tests.simulation.transactions import rivals
from tests.simulation.transactions.recovered import check_recovered
from tests.simulation.transactions.scenario import TransactionPlan, create_topics, settle

APP = "app"


@dataclass(frozen=True)
class OncePlan(TransactionPlan):
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    commit_timeout_ms: int = 60_000  # how long a finished task's transaction waits for its driver
    death: float = 0  # how often a driver dies, at each place where it may
    shares_ids: bool = True  # drivers ask for each other's ids, and so fence each other


@dataclass(kw_only=True)
class OnceRun(StoreRun[OncePlan]):
    """One run of one seed, with the truth of its items and its log, and its clients' requests."""

    truth: OnceTruth = field(init=False)
    stage: Stage = field(init=False)


def draw_plan(seed: int) -> OncePlan:
    rng = Random(f"once {seed}")
    casts = ["driver"] * rng.choice((1, 2, 2, 3)) + ["joiner"] * rng.choice((0, 1, 1, 2))
    casts += ["taker"] * rng.choice((0, 0, 1)) + ["onlooker"] * rng.choice((0, 1))
    casts += ["follower"] * rng.choice((0, 1, 1)) + ["sweeper"] * rng.choice((0, 1))
    casts += ["forgetter"] * rng.choice((0, 0, 0, 1))
    level = rng.choice((0, 0, 0.01, 0.03, 0.08))

    faults = replace(draw_faults(rng, level, freezes_ms=(3_000, 70_000, 3_600_000)), torn_read=rng.choice((0, 0.5)))
    return OncePlan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((2, 2, 3)),
        rounds=rng.choice((2, 3, 5)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((3_000, 10_000, 60_000)),
        breaks=level > 0 and rng.random() < 0.5,
        break_freeze_ms=rng.choice((3_000, 90_000)),
        pace_ms=rng.choice((2_000, 8_000)),
        item_age_ms=rng.choice((0, 60_000)),
        checkpoint_segments=rng.choice((1, 5, 16)),
        timeouts_ms=rng.choice(((500, 3_000), (3_000,), (60_000,))),
        epoch_max=rng.choice((3, 6, limits.PRODUCER_EPOCH_MAX)),
        expiration_ms=rng.choice((2_000, 86_400_000)),
        skew_ms=rng.choice((0, SKEW_MS)),
        lapse_margin_ms=rng.choice((3 * SKEW_MS, limits.LAPSE_MARGIN_MS)),
        id_ms=rng.choice((3 * SKEW_MS, limits.TRANSACTIONAL_ID_MS)),
        commit_timeout_ms=rng.choice((2_000, 30_000, 3_600_000)),
        death=rng.choice((0, 0.1, 0.3)),
        shares_ids=rng.random() < 0.7,
    )


def _begin(seed: int, plan: OncePlan) -> OnceRun:
    run = OnceRun.begun(seed, plan, real.subject())
    # A process is set to be off by up to 2 s before its plan sets it.
    run.truth = OnceTruth(run.world, run.history, plan.skew_ms + 2_000, is_punctual=plan.faults.slow == 0)
    run.judge(run.truth.on_write, run.truth.on_create)
    return run


def _play(run: OnceRun) -> None:
    plan = run.plan
    for number in range(plan.processes):
        add_skewed_process(run, f"p{number}")
    setup = Stage(
        run.world,
        run.history,
        run.processes,
        PATIENT_MS,
        1,
        partitions=plan.partitions,
        timeouts_ms=plan.timeouts_ms,
        seed=run.seed,
        commit_timeout_ms=plan.commit_timeout_ms,
        death=plan.death,
        shares_ids=plan.shares_ids,
        forgets="forgetter" in plan.casts,
    )
    create_topics(run, setup)
    run.faults = plan.faults
    run.stage = replace(setup, patience_ms=plan.patience_ms, rounds=plan.rounds)
    play_skewed(run, [_task(run.stage, plan, cast, f"{cast}{number}") for number, cast in enumerate(plan.casts)])
    settle(run, run.stage, run.truth, max(*plan.timeouts_ms, plan.commit_timeout_ms))


def _task(stage: Stage, plan: OncePlan, cast: str, name: str) -> Callable[[], object]:
    partition = int(stage.rng.random() * plan.partitions)
    acts: dict[str, Callable[[], object]] = {
        "driver": partial(clients.drive, stage, name, APP),
        "joiner": partial(others.end_together, stage, name, "joint" if stage.rng.random() < 0.5 else name),
        "taker": partial(others.take_ids, stage, name, APP),
        "onlooker": partial(others.look_on, stage, name, APP),
        "forgetter": partial(others.forget, stage, name, APP),
        "follower": partial(transaction_clients.follow, stage, name, partition),
        "sweeper": partial(rivals.sweep_all, stage, name),
    }
    return acts[cast]


SCENARIO = Scenario(
    "once",
    draw_plan,
    _begin,
    _play,
    lambda run: check_all(run.truth, run.history.operations, run.stage),
    lambda run: check_recovered(run.objects.created, run.truth, f"{run.seed}"),
)
run_seed = SCENARIO.run_seed
