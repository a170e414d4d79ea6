"""One seed of exclusive access: claimers, owners, waiters and fenced clients, and what goes wrong around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from fenceline.ports import Change
from tests.simulation.access import clients as access_clients
from tests.simulation.access.checker import check
from tests.simulation.access.clients import TOPIC, Stage
from tests.simulation.access.truth import AccessTruth
from tests.simulation.harness import real
from tests.simulation.harness.history import History
from tests.simulation.harness.scenario import Failed
from tests.simulation.harness.stores import Faults, WatchedItemStore, WatchedObjectStore
from tests.simulation.harness.world import World
from tests.simulation.log import clients
from tests.simulation.log.scenario import PATIENT_MS, Plan, Run, _limits
from tests.simulation.log.truth import Truth

SKEW_MS = 10_000  # the most by which a process's clock is off, ahead or behind


@dataclass(frozen=True)
class AccessPlan(Plan):
    """What a seed does: drawn from the seed, except what a test fixes."""

    leases_ms: tuple[int, ...] = (3_000,)
    skew_ms: float = SKEW_MS


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

    def rate() -> float:
        return level * rng.choice((0, 0.3, 1))

    faults = Faults(
        unavailable=rate() / 2,
        conflict=rng.choice((0, 0, level, 0.3)) if level else 0,
        call_lost=rate() / 2,
        answer_lost=rate(),
        slow=rate(),
        crash=rate() / 4,
        freeze=rate() / 4,
        freeze_ms=rng.choice((3_000, 10_000, 40_000)),
        time_out_ms=rng.choice((300, 3_000)),
        lands_after_ms_max=rng.choice((3_000, 30_000)),
    )
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


def run_seed(seed: int, plan: AccessPlan | None = None) -> Run:
    """Run one seed.

    Raises:
        Failed: Something that must hold does not; it carries the run.
    """
    plan = plan or draw_plan(seed)
    world, subject = World(seed), real.subject()
    objects, items = subject.stores(world)
    run = Run(
        seed, plan, subject, world, WatchedObjectStore(objects, world), WatchedItemStore(items, world), History(world)
    )
    subject.watch(run)
    access, judge_items = AccessTruth(world), run.items.on_write

    def on_write(changes: Sequence[Change]) -> None:
        judge_items(changes)
        access.on_write(changes)

    run.items.on_write = on_write
    with _limits(plan), subject.surround(world):
        try:
            _play(run, plan)
            truth = Truth(run.objects.created, run.lives, subject.parse, run.history.operations)
            access.read_log(run.objects.created)
            check(truth, access, run.history.operations, skew_ms=plan.skew_ms, is_calm=plan.is_calm)
        except Exception as failure:  # whatever it is, with its history
            raise Failed("access", run) from failure
        finally:
            world.close()
            objects.close()
            items.close()
    return run


def _play(run: Run, plan: AccessPlan) -> None:
    for number in range(plan.processes):
        _add_process(run, plan, f"p{number}")
    setup = _stage(run, plan, PATIENT_MS)
    run.do(lambda: clients.create(setup, "setup", TOPIC, plan.partitions))
    run.faults = plan.faults
    stage = replace(setup, patience_ms=plan.patience_ms, rounds=plan.rounds)
    tasks: list[Callable[[], object]] = []
    for number, cast in enumerate(plan.casts):
        name = f"{cast}{number}"
        tasks.append(partial(CASTS[cast], stage, name))
    if plan.breaks:
        run.world.spawn("breaker", lambda: _break_things(run, plan))
    run.do(*tasks)
    run.is_over = True
    _settle(run, plan, stage)


def _stage(run: Run, plan: AccessPlan, patience_ms: float) -> Stage:
    return Stage(
        run.world, run.history, run.processes, patience_ms, 1, partitions=plan.partitions, leases_ms=plan.leases_ms
    )


def _add_process(run: Run, plan: AccessPlan, name: str) -> None:
    run.add_process(name).wall_offset_ms = _skew(run, plan)


def _skew(run: Run, plan: AccessPlan) -> float:
    return (run.world.rng.random() - 0.5) * 2 * plan.skew_ms


def _break_things(run: Run, plan: AccessPlan) -> None:
    """Crash processes, freeze them and set their clocks, until it is over."""
    world = run.world
    while not run.is_over:
        world.sleep(world.rng.random() * plan.pace_ms)
        process, what = world.rng.choice(run.processes), world.rng.random()
        if what < 0.4:
            process.crash()
        elif what < 0.8:
            process.freeze(world.rng.random() * plan.break_freeze_ms)
        else:
            process.wall_offset_ms = _skew(run, plan)
            world.note(process.name, "clock", f"offset={process.wall_offset_ms / 1000:.1f}s")


def _settle(run: Run, plan: AccessPlan, stage: Stage) -> None:
    """End the trouble: every lease lapses, and everything must work again, in old processes and in a new one."""
    run.faults = Faults()
    for process in run.processes:
        process.thaw()
        process.restart()
    calm_ms = plan.faults.lands_after_ms_max + max(plan.leases_ms) + 2 * plan.skew_ms + 60_000
    run.do(lambda: run.world.sleep(calm_ms))
    _add_process(run, plan, "cold")
    for process in run.processes:
        alone = replace(stage, processes=[process], patience_ms=PATIENT_MS)
        run.do(partial(access_clients.release_all, alone, f"last-{process.name}"))
    run.subject.finish(run)
