"""One seed of transactions: producers, zombies, processors and readers, and what goes wrong around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any
from unittest.mock import patch

from fenceline import limits
from fenceline.model.requests import ReadRequest
from fenceline.ports import Change, StoreFact
from tests.simulation.harness import real
from tests.simulation.harness.history import History
from tests.simulation.harness.scenario import Failed
from tests.simulation.harness.stores import Faults, WatchedItemStore, WatchedObjectStore
from tests.simulation.harness.world import World
from tests.simulation.log.scenario import PATIENT_MS, Plan, Run, _limits
from tests.simulation.log.truth import Violation
from tests.simulation.transactions import clients, rivals
from tests.simulation.transactions.checker import check, check_processed
from tests.simulation.transactions.clients import INPUT, Stage
from tests.simulation.transactions.recovered import check_recovered
from tests.simulation.transactions.requests import OTHER, TOPIC, Batch
from tests.simulation.transactions.truth import TransactionTruth
from tests.support.sweeping import strict_sweep

SKEW_MS = 10_000  # the most by which a process's clock is off, ahead or behind
PROCESSOR = "processor"  # the transactional id that all processors share


@dataclass(frozen=True)
class TransactionPlan(Plan):
    """What a seed does: drawn from the seed, except what a test fixes."""

    timeouts_ms: tuple[int, ...] = (60_000,)
    ids: int = 1  # transactional ids that the producers share
    epoch_max: int = limits.PRODUCER_EPOCH_MAX
    expiration_ms: int = 86_400_000  # of a producer's state
    skew_ms: float = SKEW_MS
    owns: bool = False  # each processor has an id of its own, and owns the input
    lapse_margin_ms: int = limits.LAPSE_MARGIN_MS  # until a sweeper forgets a producer's state that has lapsed
    id_ms: int = limits.TRANSACTIONAL_ID_MS  # until a transactional id expires
    rebuilds: int = 1  # each as of another moment


def draw_plan(seed: int) -> TransactionPlan:
    rng = Random(f"transactions {seed}")
    casts = ["producer"] * rng.choice((1, 2, 2, 3, 4)) + ["processor"] * rng.choice((0, 1, 2, 3))
    casts += ["follower"] * rng.choice((0, 1, 2)) + ["feeder"] * rng.choice((0, 1, 2))
    casts += ["trimmer"] * rng.choice((0, 0, 1)) + ["sweeper"] * rng.choice((0, 1))
    casts += ["meddler"] * rng.choice((0, 0, 0, 1))
    casts += ["recreator"] * rng.choice((0, 0, 1)) + ["committer"] * rng.choice((0, 0, 1, 2))
    casts += ["claimer"] * rng.choice((0, 0, 0, 1)) + ["aborter"] * rng.choice((0, 0, 1))
    is_brisk = rng.random() < 0.15  # what is trimmed is collected while processes are frozen
    casts += ["trimmer", "sweeper", "sweeper"] if is_brisk else []
    if "processor" in casts and "feeder" not in casts:
        casts.append("feeder")
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
        freeze_at_append=0.1 if is_brisk else 0,
        freeze_ms=rng.choice((3_000, 70_000, 3_600_000)),
        time_out_ms=rng.choice((300, 3_000)),
        lands_after_ms_max=rng.choice((3_000, 30_000)),
    )
    return TransactionPlan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((2, 2, 3)),
        rounds=rng.choice((2, 4, 6)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((3_000, 10_000, 60_000)),
        breaks=level > 0 and rng.random() < 0.5,
        break_freeze_ms=rng.choice((3_000, 90_000)),
        pace_ms=rng.choice((2_000, 8_000)),
        item_age_ms=rng.choice((0, 60_000)),
        checkpoint_segments=rng.choice((1, 5, 16)),
        is_brisk=is_brisk,
        timeouts_ms=rng.choice(((500, 3_000), (3_000,), (10_000, 60_000), (900_000,))),
        ids=rng.choice((1, 1, 2, 3)),
        epoch_max=rng.choice((3, 6, limits.PRODUCER_EPOCH_MAX)),
        expiration_ms=rng.choice((1, 2_000, 86_400_000)),
        skew_ms=rng.choice((0, SKEW_MS, SKEW_MS)),
        owns=rng.random() < 0.4,
        # Never less than two clocks may differ by.
        lapse_margin_ms=rng.choice((3 * SKEW_MS, limits.LAPSE_MARGIN_MS)),
        id_ms=rng.choice((3 * SKEW_MS, limits.TRANSACTIONAL_ID_MS)),
    )


def run_seed(seed: int, plan: TransactionPlan | None = None) -> Run:
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
    truth = TransactionTruth(world)
    judge_items, judge_objects = run.items.on_write, run.objects.on_create

    def on_write(changes: Sequence[Change]) -> None:
        judge_items(changes)
        truth.on_write(changes)

    def on_create(key: str) -> None:
        judge_objects(key)
        truth.on_create(run.objects.created[-1])

    run.items.on_write, run.objects.on_create = on_write, on_create
    with _limits(plan), _short(plan), subject.surround(world):
        try:
            stage = _play(run, plan)
            _settle(run, plan, stage, truth)
            check(truth, run.history.operations, stage.transactions)
            check_processed(truth)
        except Exception as failure:  # whatever it is, with its history
            raise Failed("transactions", run) from failure
        finally:
            world.close()
            objects.close()
            items.close()
    with _short(plan):
        try:
            for number in range(plan.rebuilds):
                check_recovered(run.objects.created, truth, f"{seed} {number}")
        except Exception as failure:
            raise Failed("transactions", run) from failure
    return run


@contextmanager
def _short(plan: TransactionPlan) -> Iterator[None]:
    """Let epochs, states and ids end early."""
    short = {
        "PRODUCER_EPOCH_MAX": plan.epoch_max,
        "MARKER_EPOCH_MAX": plan.epoch_max + 1,
        "LAPSE_MARGIN_MS": plan.lapse_margin_ms,
        "TRANSACTIONAL_ID_MS": plan.id_ms,
    }
    with ExitStack() as patched:
        for name, value in short.items():
            patched.enter_context(patch.object(limits, name, value))
        yield


def _play(run: Run, plan: TransactionPlan) -> Stage:
    for number in range(plan.processes):
        _add_process(run, plan, f"p{number}")
    setup = Stage(
        run.world,
        run.history,
        run.processes,
        PATIENT_MS,
        1,
        partitions=plan.partitions,
        timeouts_ms=plan.timeouts_ms,
        has_other="recreator" in plan.casts,
        has_rivals="committer" in plan.casts,
        owns=plan.owns,
    )
    config = {"producer.id.expiration.ms": plan.expiration_ms}
    run.do(
        lambda: setup.tell(
            "setup", "create", config, lambda log: log.topics.create(TOPIC, partitions=plan.partitions, config=config)
        )
    )
    run.do(lambda: setup.tell("setup", "create", None, lambda log: log.topics.create(OTHER), topic=OTHER))
    run.faults = plan.faults
    stage = replace(setup, patience_ms=plan.patience_ms, rounds=plan.rounds)
    tasks = [_task(stage, plan, cast, f"{cast}{number}") for number, cast in enumerate(plan.casts)]
    if plan.breaks:
        run.world.spawn("breaker", lambda: _break_things(run, plan))
    run.do(*tasks)
    run.is_over = True
    return stage


def _task(stage: Stage, plan: TransactionPlan, cast: str, name: str) -> Callable[[], object]:
    partition = int(stage.rng.random() * plan.partitions)
    acts: dict[str, Callable[[], object]] = {
        "producer": partial(clients.transact, stage, name, f"id{int(stage.rng.random() * plan.ids)}"),
        "processor": partial(clients.process, stage, name, PROCESSOR),
        "follower": partial(clients.follow, stage, name, partition),
        "feeder": partial(clients.feed, stage, name, INPUT if "processor" in plan.casts else partition),
        "trimmer": partial(rivals.trim, stage, name, 1 + partition % (plan.partitions - 1)),
        "sweeper": partial(rivals.sweep_all, stage, name),
        "meddler": partial(rivals.meddle, stage, name),
        "recreator": partial(rivals.recreate, stage, name),
        "committer": partial(rivals.commit, stage, name),
        "claimer": partial(rivals.claim, stage, name, partition),
        "aborter": partial(rivals.abort_by_hand, stage, name),
    }
    return acts[cast]


def _add_process(run: Run, plan: TransactionPlan, name: str) -> None:
    run.add_process(name).wall_offset_ms = (run.world.rng.random() - 0.5) * 2 * plan.skew_ms


def _break_things(run: Run, plan: TransactionPlan) -> None:
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
            process.wall_offset_ms = (world.rng.random() - 0.5) * 2 * plan.skew_ms
            world.note(process.name, "clock", f"offset={process.wall_offset_ms / 1000:.1f}s")


def _settle(run: Run, plan: TransactionPlan, stage: Stage, truth: TransactionTruth) -> None:
    """End the trouble. Every time-out passes, the sweeper ends what is open, and everything must work again."""
    run.faults = Faults()
    for process in run.processes:
        process.thaw()
        process.restart()
    calm_ms = plan.faults.lands_after_ms_max + max(plan.timeouts_ms) + 2 * plan.skew_ms + 60_000
    run.do(lambda: run.world.sleep(calm_ms))
    _add_process(run, plan, "cold")
    cold = replace(stage, processes=run.processes[-1:], patience_ms=PATIENT_MS, timeouts_ms=(900_000,))
    run.do(partial(_sweep_thoroughly, cold))
    if truth.unfinished():
        raise Violation(f"not ended by a thorough sweep: {truth.unfinished()}")
    if truth.still_open():
        raise Violation(f"still open after a thorough sweep: {truth.still_open()}")
    topic_id = truth.live(TOPIC)
    for process in run.processes:
        alone = replace(stage, processes=[process], patience_ms=PATIENT_MS, timeouts_ms=(900_000,))
        for partition in range(plan.partitions):
            run.do(partial(_use, alone, f"last-{process.name}", partition))
    if "processor" in plan.casts and (topic_id, INPUT) in truth.logs:
        end = truth.logs[topic_id, INPUT].state.next_offset
        run.do(partial(clients.finish_input, cold, "last", PROCESSOR, end))
        if truth.mark(clients.GROUP, topic_id, INPUT) < end:
            raise Violation("the input was not processed to its end")
    run.subject.finish(run)


def _sweep_thoroughly(stage: Stage) -> None:
    def run(log: Any) -> None:
        with suppress(StoreFact):
            strict_sweep(log, duration_ms=PATIENT_MS, is_thorough=True)

    for _ in range(2):
        stage.tell("last", "sweep", None, run)


def _use(stage: Stage, name: str, partition: int) -> None:
    """Commit a transaction in the partition, and read all that it has."""
    instance = clients.Instance(stage, name, f"{name}-{partition}")
    instance.begin()
    transaction = instance.start()
    instance.send(transaction, Batch(partition, 0, (f"{stage.fresh(name)}-{partition}:0",)))
    instance.end(transaction, is_commit=True)
    bounds = stage.bounds(name, TOPIC, partition)
    if bounds.last_stable_offset != bounds.next_offset:
        raise Violation(f"held up, though all is decided: partition={partition} {bounds}")
    position = bounds.log_start_offset
    while position < bounds.next_offset:
        request = ReadRequest(offset=position, is_read_committed=True)
        position = clients.read(stage, name, partition, request).position
