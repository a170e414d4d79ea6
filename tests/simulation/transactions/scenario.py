"""One seed of transactions: producers, zombies, processors and readers, and the faults around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random
from typing import Any, TypeVar

from fenceline import limits
from fenceline.model.requests import ReadRequest
from fenceline.ports import StoreFact
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
from tests.simulation.log.truth import Violation
from tests.simulation.transactions import clients, rivals
from tests.simulation.transactions.checker import check, check_processed
from tests.simulation.transactions.clients import INPUT, Stage
from tests.simulation.transactions.recovered import check_recovered
from tests.simulation.transactions.requests import OTHER, TOPIC, Batch
from tests.simulation.transactions.truth import TransactionTruth
from tests.support.sweeping import strict_sweep

PROCESSOR = "processor"  # the transactional id that all processors share


@dataclass(frozen=True)
class TransactionPlan(SkewedPlan):
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    timeouts_ms: tuple[int, ...] = (60_000,)
    ids: int = 1  # transactional ids that the producers share
    epoch_max: int = limits.PRODUCER_EPOCH_MAX
    expiration_ms: int = 86_400_000  # until a producer's state expires
    owns: bool = False  # each processor has an id of its own, and owns the input
    lapse_margin_ms: int = limits.LAPSE_MARGIN_MS  # until a sweeper forgets a producer's state that has lapsed
    id_ms: int = limits.TRANSACTIONAL_ID_MS  # until a transactional id expires
    rebuilds: int = 1  # each as of another moment

    @property
    def shortened(self) -> Mapping[str, Any]:
        """Let epochs, states and ids end early, too."""
        return {
            **super().shortened,
            "PRODUCER_EPOCH_MAX": self.epoch_max,
            "MARKER_EPOCH_MAX": self.epoch_max + 1,
            "LAPSE_MARGIN_MS": self.lapse_margin_ms,
            "TRANSACTIONAL_ID_MS": self.id_ms,
        }


@dataclass(kw_only=True)
class TransactionRun(StoreRun[TransactionPlan]):
    """One run of one seed, with the truth of its items and its log, and its clients' requests."""

    truth: TransactionTruth = field(init=False)
    stage: Stage = field(init=False)


P = TypeVar("P", bound=TransactionPlan)


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

    faults = replace(
        draw_faults(rng, level, freezes_ms=(3_000, 70_000, 3_600_000)), freeze_at_append=0.1 if is_brisk else 0
    )
    return TransactionPlan(
        processes=rng.choice((1, 2, 3)),
        partitions=rng.choice((2, 2, 3)),
        rounds=rng.choice((2, 4, 6)),
        casts=casts,
        faults=replace(faults, freeze_at_append=0.1 if is_brisk else 0),
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


def _begin(seed: int, plan: TransactionPlan) -> TransactionRun:
    run = TransactionRun.begun(seed, plan, real.subject())
    run.truth = TransactionTruth(run.world)
    run.judge(run.truth.on_write, run.truth.on_create)
    return run


def _play(run: TransactionRun) -> None:
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
        has_other="recreator" in plan.casts,
        has_rivals="committer" in plan.casts,
        owns=plan.owns,
    )
    create_topics(run, setup)
    run.faults = plan.faults
    run.stage = replace(setup, patience_ms=plan.patience_ms, rounds=plan.rounds)
    play_skewed(run, [_task(run.stage, plan, cast, f"{cast}{number}") for number, cast in enumerate(plan.casts)])
    settle(run, run.stage, run.truth, max(plan.timeouts_ms))


def create_topics(run: StoreRun[P], setup: Stage) -> None:
    plan = run.plan
    config = {"producer.id.expiration.ms": plan.expiration_ms}
    run.do(
        lambda: setup.call(
            "setup", "create", config, lambda log: log.topics.create(TOPIC, partitions=plan.partitions, config=config)
        )
    )
    run.do(lambda: setup.call("setup", "create", None, lambda log: log.topics.create(OTHER), topic=OTHER))


def _check(run: TransactionRun) -> None:
    check(run.truth, run.history.operations, run.stage.transactions)
    check_processed(run.truth)


def _check_objects(run: TransactionRun) -> None:
    for number in range(run.plan.rebuilds):
        check_recovered(run.objects.created, run.truth, f"{run.seed} {number}")


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


def settle(run: StoreRun[P], stage: Stage, truth: TransactionTruth, longest_ms: int) -> None:
    """End the trouble. Every time-out passes, the sweeper ends what is open, and everything must work again."""
    plan = run.plan
    calm_down(run, longest_ms)
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
        stage.call("last", "sweep", None, run)


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


SCENARIO = Scenario("transactions", draw_plan, _begin, _play, _check, _check_objects)
run_seed = SCENARIO.run_seed
