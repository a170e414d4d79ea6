"""One seed of the log: its plan, its faults, and the checks at its end."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

from fenceline import limits
from fenceline.errors import ContendedError, FencelineError, OffsetOutOfRangeError
from fenceline.format import keys
from fenceline.model.requests import ReadRequest
from fenceline.ports import StoreFact
from tests.simulation.harness import real
from tests.simulation.harness.history import Attempt
from tests.simulation.harness.scenario import PATIENT_MS, Plan, Scenario, StoreRun, Subject
from tests.simulation.harness.stores import Creation, Faults
from tests.simulation.harness.world import NoReply, Refused
from tests.simulation.log import clients
from tests.simulation.log.checker import check
from tests.simulation.log.clients import Field
from tests.simulation.log.truth import Truth, Violation

LogRun = StoreRun[Plan]

CASTS = {
    "racer": clients.race,
    "appender": clients.append_plainly,
    "producer": clients.produce,
    "reader": clients.follow,
    "trimmer": clients.trim,
    "recreator": clients.recreate,
    "compactor": clients.compact,
    "tabler": clients.tabulate,
}


def draw_plan(seed: int) -> Plan:
    """Draw a mix from the seed: every eighth is one of collections, the others of anything."""
    rng = Random(f"plan {seed}")
    return draw_collections(rng) if rng.random() < 1 / 8 else _draw_anything(rng)


def draw_collections(rng: Random) -> Plan:
    """Draw processes that freeze for longer than the grace.

    Meanwhile the log is trimmed, or the topic deleted, and collected.
    """
    casts = ["appender", "appender", rng.choice(("trimmer", "recreator")), rng.choice(("trimmer", "reader", "racer"))]
    compacts = rng.random() < 0.4
    return Plan(
        processes=3,
        partitions=1,
        rounds=rng.choice((3, 5, 9)),
        casts=[*casts, "compactor", "tabler"] if compacts else casts,
        faults=Faults(freeze=0.02, freeze_ms=9_000_000, slow=rng.choice((0, 0.05)), lands_after_ms_max=6_000_000),
        patience_ms=PATIENT_MS,
        checkpoint_segments=rng.choice((1, 2, 16)),
        collects=True,
        compacts=compacts,
    )


def _draw_anything(rng: Random) -> Plan:
    casts = [rng.choice(("racer", "appender", "producer", "producer")) for _ in range(rng.choice((2, 3, 5)))]
    casts += ["reader"] * rng.choice((0, 1, 2))
    if rng.random() < 0.35:
        casts.append("trimmer")
    if rng.random() < 0.35:
        casts.append("recreator")
    level = rng.choice((0, 0.02, 0.08, 0.2))

    def rate() -> float:
        return level * rng.choice((0, 0.3, 1))

    faults = Faults(
        unavailable=rate() / 2,
        conflict=rng.choice((0, 0, level, 0.5)) if level else 0,
        call_lost=rate() / 2,
        answer_lost=rate(),
        slow=rate(),
        crash=rate() / 8,
        freeze=rate() / 8,
        freeze_ms=rng.choice((5_000, 120_000, 4_500_000)),
        lands_after_ms_max=rng.choice((5_000, 120_000, 6_000_000)),
    )
    plan = Plan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((1, 1, 2)),
        rounds=rng.choice((3, 5, 9)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((1_000, 30_000, PATIENT_MS)),
        breaks=level > 0 and rng.random() < 0.4,
        break_freeze_ms=rng.choice((3_000, 90_000)),
        pace_ms=rng.choice((1_000, 20_000)),
        item_age_ms=rng.choice((0, limits.ITEM_AGE_MS_MAX)),
        checkpoint_segments=rng.choice((1, 2, 5, 16)),
        collects=rng.random() < 0.5,
    )
    is_brisk = rng.random() < 0.25
    compacts = rng.random() < (0.5 if is_brisk else 0.2)
    if compacts:
        casts += ["compactor", "tabler"]
    if is_brisk and rng.random() < 0.5 and "trimmer" not in casts:
        casts.append("trimmer")
    pause_ms = rng.choice((5_000, 20_000)) if is_brisk else 0
    return replace(plan, compacts=compacts, is_brisk=is_brisk, collects=plan.collects or is_brisk, pause_ms=pause_ms)


def play(run: LogRun) -> None:
    _play(run)
    _settle(run)


def _play(run: LogRun) -> None:
    plan, rng = run.plan, run.world.rng
    for number in range(plan.processes):
        run.add_process(f"p{number}")
    field_ = Field(run.world, run.history, run.processes, PATIENT_MS, plan.rounds, plan.compacts, plan.pause_ms)
    run.do(lambda: clients.create(field_, "setup", "t", plan.partitions))
    run.faults = plan.faults
    field_ = replace(field_, patience_ms=plan.patience_ms)
    tasks = []
    for number, cast in enumerate(plan.casts):
        name = f"{cast}{number}"
        last = plan.partitions if cast == "recreator" else int(rng.random() * plan.partitions)
        tasks.append(lambda act=CASTS[cast], name=name, last=last: act(field_, name, "t", last))
    if plan.breaks:
        run.world.spawn(
            "breaker",
            lambda: clients.break_things(
                field_, lambda: run.is_over, freeze_ms=plan.break_freeze_ms, pace_ms=plan.pace_ms
            ),
        )
    if plan.collects:
        for number in range(plan.sweepers):
            run.world.spawn(f"sweeper{number}", lambda: _sweep(run))
    run.do(*tasks)
    run.is_over = True


def _sweep(run: LogRun) -> None:
    """Have any process sweep, a few times in ``gc_grace``, unless it is still at it, whatever became of it before."""
    rng, busy = run.world.rng, set[tuple[str, int]]()

    def sweep(place: tuple[str, int], service: Any) -> None:
        with suppress(FencelineError, StoreFact):
            run.subject.sweep(service)
        busy.discard(place)

    while not run.is_over:
        run.world.sleep(limits.GC_GRACE_MS * rng.random() / 2)
        process = rng.choice(run.processes)
        place = (process.name, process.lives)
        if not run.is_over and not process.is_dead and place not in busy:
            busy.add(place)
            with suppress(NoReply, Refused):
                run.world.call(process, partial(sweep, place), 60_000)


def _settle(run: LogRun) -> None:
    """End the trouble: every process goes on, and everything must work again, in old processes and in a new one."""
    run.revive()
    rng = run.world.rng
    # A request that a client has left, on its way or in a process, may still delete the topic.
    calm_ms = 8_000_000 if "recreator" in run.plan.casts else rng.choice((0, 70_000, 8_000_000))
    run.do(lambda: run.world.sleep(calm_ms))
    run.add_process("cold")
    for process in run.processes:
        field_ = Field(run.world, run.history, [process], PATIENT_MS, 1, run.plan.compacts)
        run.do(partial(_use, run, field_, f"last-{process.name}"))
    run.subject.finish(run)


def _use(run: LogRun, field_: Field, name: str) -> None:
    key = keys.topic_item("t")
    while (item := run.items.get([key]).get(key)) is None or item.value["is_going"]:
        clients.delete(field_, name, "t")
        clients.create(field_, name, "t", run.plan.partitions)
    for partition in range(run.plan.partitions):
        _patiently(partial(_append, field_, name, partition))
        bounds = field_.bounds(name, "t", partition)
        position = bounds.log_start_offset
        while position < bounds.next_offset:
            try:
                position = field_.read(name, "t", partition, ReadRequest(offset=position)).position
            except OffsetOutOfRangeError:  # after a trim that was still under way
                position = field_.bounds(name, "t", partition).log_start_offset
        if run.plan.compacts:
            _tabulate(field_, name, partition)


def _append(field_: Field, name: str, partition: int) -> None:
    field_.append(name, "t", partition, Attempt(field_.fresh(f"{name}-"), name))


def _patiently(call: Callable[[], object]) -> None:
    """Make a request, and again where it met others.

    What was on its way before, on slow stores, still takes its time.
    """
    for _ in range(3):
        with suppress(ContendedError):
            call()
            return
    call()


def _tabulate(field_: Field, name: str, partition: int) -> None:
    """Compact, and read the view from its start to the log's end."""
    _patiently(
        lambda: field_.ask(name, "compact", "t", partition, None, lambda log: log.partitions.compact("t", partition))
    )
    position, end = 0, 1
    while position < end:
        page = field_.read(name, "t", partition, ReadRequest(offset=position, max_records=5, is_compacted=True))
        position, end = page.position, page.bounds.next_offset


def judge(run: LogRun) -> None:
    created: list[Creation] = run.objects.created
    truth = Truth(created, run.lives, run.subject.parse, run.history.operations, run.views)
    check(truth, run.history.operations, is_calm=run.plan.is_calm)
    deleted = {key for _, key in run.objects.deleted}
    for creation in created:
        if creation.key in deleted:
            continue
        stored = run.objects.get(creation.key)
        if (stored.body, dict(stored.metadata)) != (creation.body, dict(creation.metadata)):
            raise Violation(f"I1: overwritten: {creation.key}")


def scenario_of(subject: Callable[[], Subject]) -> Scenario[Plan, LogRun]:
    def begin(seed: int, plan: Plan) -> LogRun:
        return LogRun.begun(seed, plan, subject())

    return Scenario("log", draw_plan, begin, play, judge)


SCENARIO = scenario_of(real.subject)
run_seed = SCENARIO.run_seed
