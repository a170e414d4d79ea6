"""One seed of groups: members that freeze, die, come back static and join during moves, and the faults around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from fenceline import limits
from tests.simulation.groups import clients
from tests.simulation.groups.clients import GROUP, OTHER, TOPIC, Member, Stage
from tests.simulation.groups.truth import GroupTruth
from tests.simulation.harness import real
from tests.simulation.harness.scenario import (
    PATIENT_MS,
    SKEW_MS,
    Scenario,
    SkewedPlan,
    StoreRun,
    add_skewed_process,
    draw_faults,
    play_skewed,
)
from tests.simulation.log.truth import Violation

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class GroupPlan(SkewedPlan):
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    members: int = 3
    timeouts_ms: tuple[int, ...] = (6_000,)
    rebalance_timeouts_ms: tuple[int, ...] = (60_000,)
    stop_ms: float = 2_000
    freeze_ms: float = 0
    death: float = 0.0
    is_static: bool = False
    has_other: bool = False
    reuses_ids: bool = False
    haste: float = 1.0
    assignment_ms: int = limits.ASSIGNMENT_MS

    @property
    def shortened(self) -> Mapping[str, Any]:
        return {**super().shortened, "ASSIGNMENT_MS": self.assignment_ms}


@dataclass(kw_only=True)
class GroupRun(StoreRun[GroupPlan]):
    """One run of one seed, with the truth of its groups."""

    truth: GroupTruth = field(init=False)


OTHERS = {
    "ghost": clients.haunt,
    "committer": clients.commit_without,
    "changer": clients.change_topics,
    "deleter": clients.delete_group,
    "looker": clients.look,
}


def draw_plan(seed: int) -> GroupPlan:
    rng = Random(f"groups {seed}")
    casts = ["ghost"] * rng.choice((0, 1, 2)) + ["committer"] * rng.choice((0, 1)) + ["changer"] * rng.choice((0, 0, 1))
    casts += ["deleter"] * rng.choice((0, 0, 1)) + ["looker"] * rng.choice((0, 1))
    level = rng.choice((0, 0.01, 0.03, 0.08))
    return GroupPlan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((1, 2, 4)),
        rounds=rng.choice((10, 20)),
        casts=casts,
        faults=draw_faults(rng, level, freezes_ms=(2_000, 10_000)),
        patience_ms=rng.choice((500, 2_000, 10_000)),
        breaks=level > 0 and rng.random() < 0.5,
        pace_ms=rng.choice((2_000, 8_000)),
        skew_ms=rng.choice((0, SKEW_MS, 3 * HOUR_MS)),
        members=rng.choice((2, 3, 4)),
        timeouts_ms=rng.choice(((6_000,), (6_000, 45_000))),
        rebalance_timeouts_ms=rng.choice(((2_000,), (60_000,))),
        stop_ms=rng.choice((500, 4_000)),
        freeze_ms=rng.choice((0, 3_000, 12_000)),
        death=rng.choice((0, 0.05, 0.15)),
        is_static=rng.random() < 0.3,
        has_other=rng.random() < 0.4,
        reuses_ids=rng.random() < 0.3,
        haste=rng.choice((1, 1, 10)),
        assignment_ms=rng.choice((limits.ASSIGNMENT_MS, 100, 1)),
    )


def _begin(seed: int, plan: GroupPlan) -> GroupRun:
    run = GroupRun.begun(seed, plan, real.subject())
    run.truth = GroupTruth(run.world, 2 * plan.skew_ms)
    run.judge(run.truth.on_write)
    return run


def _play(run: GroupRun) -> None:
    plan = run.plan
    for number in range(plan.processes):
        add_skewed_process(run, f"p{number}")
    stage = Stage(
        run.world,
        run.history,
        run.processes,
        PATIENT_MS,
        plan.rounds,
        truth=run.truth,
        timeouts_ms=plan.timeouts_ms,
        rebalance_timeouts_ms=plan.rebalance_timeouts_ms,
        stop_ms=plan.stop_ms,
        freeze_ms=plan.freeze_ms,
        death=plan.death,
        is_static=plan.is_static,
        has_other=plan.has_other,
        reuses_ids=plan.reuses_ids,
        haste=plan.haste,
    )

    def set_up() -> None:
        stage.ask(
            "setup", "create topic", TOPIC, 0, "", lambda log: log.topics.create(TOPIC, partitions=plan.partitions)
        )
        if plan.has_other:
            stage.ask("setup", "create topic", OTHER, 0, "", lambda log: log.topics.create(OTHER, partitions=2))

    run.do(set_up)
    run.faults = plan.faults
    stage.patience_ms = plan.patience_ms
    members: list[Member] = []

    def member(number: int) -> None:
        made = Member(stage, f"m{number}")
        members.append(made)
        made.live()

    tasks = [partial(member, number) for number in range(plan.members)]
    tasks += [partial(OTHERS[cast], stage, f"{cast}{number}") for number, cast in enumerate(plan.casts)]
    play_skewed(run, tasks)
    stage.is_over = True
    _settle(run, stage, members)


def _create(log: Any, partitions: int) -> object:
    return log.topics.create(TOPIC, partitions=partitions)


def _settle(run: GroupRun, stage: Stage, members: list[Member]) -> None:
    """End the trouble: the members that are left share all partitions, and each knows it (G6)."""
    run.revive()
    longest = max(*run.plan.timeouts_ms, *run.plan.rebalance_timeouts_ms)
    lands_ms = run.plan.faults.lands_after_ms_max
    stage.patience_ms, stage.stop_ms = PATIENT_MS, 0
    for process in run.processes:
        process.wall_offset_ms = 0

    def calm() -> None:
        # Requests and late writes end, and members keep their leases meanwhile.
        for _ in range(int(lands_ms // 500) + 2):
            for one in members:
                one.beat()
            run.world.sleep(500)

    run.do(calm)
    # A lease that a clock made too long, hours ahead, ends by itself only then.
    run.do(lambda: run.world.sleep(longest + 4 * run.plan.skew_ms + 60_000))
    for process in run.processes:  # once more, because the last trouble may have come after its end was said
        process.wall_offset_ms = 0
    run.do(lambda: clients.settle(stage, members, rounds=400))
    _check(run, members)
    run.subject.finish(run)


def _check(run: GroupRun, members: list[Member]) -> None:
    group = run.truth.groups[GROUP]
    believed = [place for one in members for place in one.client.works_on]
    wanted = {(topic.topic_id, p) for topic in group.topics.values() for p in range(topic.partitions)}
    if sorted(believed) != sorted(wanted) or len(group.members) != len(members):
        raise Violation(f"G6: {sorted(believed)} are worked on, of {sorted(wanted)}: {group}")


SCENARIO = Scenario("groups", draw_plan, _begin, _play)
run_seed = SCENARIO.run_seed
