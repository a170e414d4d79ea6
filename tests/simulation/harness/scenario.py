"""A scenario: the plans that its seeds draw, the play of a plan, and the checks at its end.

Rule: the order of the draws is never changed, so that a seed draws the same plan and replays the same history.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar, Generic, Self, TypeVar
from unittest.mock import patch

from fenceline import limits
from fenceline.ports import Change, ItemStore, ObjectStore
from tests.simulation.harness.history import History
from tests.simulation.harness.stores import (
    Creation,
    Faults,
    FaultyItemStore,
    FaultyObjectStore,
    WatchedItemStore,
    WatchedObjectStore,
)
from tests.simulation.harness.world import NoReply, Process, World
from tests.simulation.log.truth import Life, Parse

PATIENT_MS = 5 * 3_600_000
SKEW_MS = 10_000  # the most by which a process's clock is off, ahead or behind, where a plan says nothing else

# Limits of brisk seeds. What the protocol depends on stays: a look is young for less than an object stays collectable.
BRISK = {
    "GC_GRACE_MS": 20_000,
    "ITEM_AGE_MS_MAX": 5_000,
    "OFFER_MS": 120_000,  # longer than objects are kept, as by a clock that is behind
    "CHECKPOINT_MS": 500,
    "STATE_MS": 2_000,
    "CLOCK_MS": 10_000,
    "COMPACTION_TRAIL_MS": 1_000,
}


@dataclass(frozen=True)
class Plan:
    """The plan of a seed, drawn from the seed, except what a test fixes."""

    processes: int
    partitions: int
    rounds: int
    casts: Sequence[str]  # one client each
    faults: Faults
    patience_ms: float
    breaks: bool = False
    break_freeze_ms: float = 10_000
    pace_ms: float = 2_000
    item_age_ms: int = limits.ITEM_AGE_MS_MAX
    checkpoint_segments: int = limits.CHECKPOINT_SEGMENTS
    collects: bool = False
    sweepers: int = 2
    compacts: bool = False  # topic compacted by clients, by the sweepers, and beside readers of the view
    is_brisk: bool = False  # seconds for the protocol's long times, and clients that take as long
    pause_ms: float = 0
    timeout_ms: int = 20_000  # for which a process works on a request

    @property
    def is_calm(self) -> bool:
        return self.faults == Faults() and not self.breaks

    @property
    def shortened(self) -> Mapping[str, Any]:
        """Return limits that are lower than in production, because a seed would take too long to reach them."""
        return {"CHECKPOINT_SEGMENTS": self.checkpoint_segments, **(BRISK if self.is_brisk else {})}

    @contextmanager
    def limited(self) -> Iterator[None]:
        with patch.multiple(limits, **self.shortened):
            yield


@dataclass(frozen=True)
class SkewedPlan(Plan):
    """The plan of a seed whose processes have clocks that differ."""

    skew_ms: float = SKEW_MS


P = TypeVar("P", bound=Plan)


@dataclass(frozen=True)
class Subject:
    """The subject of the test: how to make it, how its segments are read, and what else must hold."""

    stores: Callable[[World], tuple[Any, Any]]  # an object store and an item store, both closable
    make: Callable[[World, Process, ObjectStore, ItemStore, Any], Any]  # a Log, or a toy
    parse: Parse
    watch: Callable[[StoreRun[Any]], None] = lambda run: None
    finish: Callable[[StoreRun[Any]], None] = lambda run: None
    surround: Callable[[World], AbstractContextManager[None]] = lambda world: nullcontext()
    sweep: Callable[[Any], object] = lambda log: None  # one run of the sweeper, by that log's process


@dataclass(kw_only=True)
class Run(Generic[P]):
    """One run of one seed."""

    seed: int
    plan: P
    world: World
    history: History
    stores: Sequence[Any]  # to be closed
    surround: Callable[[World], AbstractContextManager[None]]
    faults: Faults = field(default_factory=Faults)
    is_over: bool = False

    gives_up: ClassVar[tuple[type[Exception], ...]] = (NoReply,)  # what may end a client

    def do(self, *tasks: Callable[[], object]) -> None:
        """Run these, as tasks outside the processes, to their ends."""
        left = len(tasks)

        def one(task: Callable[[], object]) -> None:
            nonlocal left
            with suppress(*self.gives_up):
                task()
            left -= 1

        for number, task in enumerate(tasks):
            self.world.spawn(f"c{number}", partial(one, task))
        self.world.run(lambda: left == 0)
        if self.world.failures:
            raise self.world.failures[0]

    def revive(self) -> None:
        """End the faults; every process goes on, or starts."""
        self.faults = Faults()
        for process in self.world.processes:
            process.thaw()
            process.restart()

    def close(self) -> None:
        self.world.close()
        for store in self.stores:
            store.close()


@dataclass(kw_only=True)
class StoreRun(Run[P]):
    """One run of one seed, whose processes share one object store and one item store."""

    subject: Subject
    objects: WatchedObjectStore
    items: WatchedItemStore
    processes: list[Process] = field(default_factory=list)
    lives: list[Life] = field(default_factory=list)
    views: dict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=dict)  # (step, horizon), by partition

    @classmethod
    def begun(cls, seed: int, plan: P, subject: Subject) -> Self:
        world = World(seed)
        stores = subject.stores(world)
        run = cls(
            seed=seed,
            plan=plan,
            world=world,
            history=History(world),
            stores=stores,
            surround=subject.surround,
            subject=subject,
            objects=WatchedObjectStore(stores[0], world),
            items=WatchedItemStore(stores[1], world),
        )
        subject.watch(run)
        return run

    def judge(
        self,
        on_write: Callable[[Sequence[Change]], object],
        on_create: Callable[[Creation], object] = lambda creation: None,
    ) -> None:
        """Let these judge each write of items and each object, too, after the subject has."""
        judge_items, judge_objects = self.items.on_write, self.objects.on_create

        def written(changes: Sequence[Change]) -> None:
            judge_items(changes)
            on_write(changes)

        def created(key: str) -> None:
            judge_objects(key)
            on_create(self.objects.created[-1])

        self.items.on_write, self.objects.on_create = written, created

    def add_process(self, name: str) -> Process:
        def start(process: Process) -> Any:
            objects = FaultyObjectStore(self.objects, self.world, process, lambda: self.faults)
            items = FaultyItemStore(self.items, self.world, process, lambda: self.faults)
            return self.subject.make(self.world, process, objects, items, self.plan)

        rng = self.world.rng
        process = Process(self.world, name, start, (rng.random() - 0.5) * 4_000, rng.random() < 0.5)
        process.restart()
        self.world.processes.append(process)
        self.processes.append(process)
        return process


S = TypeVar("S", bound=SkewedPlan)


def draw_faults(rng: Random, level: float, freezes_ms: Sequence[float]) -> Faults:
    """Draw the faults, each at most as often as ``level`` says."""

    def rate() -> float:
        return level * rng.choice((0, 0.3, 1))

    return Faults(
        unavailable=rate() / 2,
        conflict=rng.choice((0, 0, level, 0.3)) if level else 0,
        call_lost=rate() / 2,
        answer_lost=rate(),
        slow=rate(),
        crash=rate() / 4,
        freeze=rate() / 4,
        freeze_ms=rng.choice(freezes_ms),
        time_out_ms=rng.choice((300, 3_000)),
        lands_after_ms_max=rng.choice((3_000, 30_000)),
    )


def add_skewed_process(run: StoreRun[S], name: str) -> None:
    run.add_process(name).wall_offset_ms = _skew(run)


def break_things(run: StoreRun[S]) -> None:
    """Crash processes, freeze them and set their clocks, until it is over."""
    world = run.world
    while not run.is_over:
        world.sleep(world.rng.random() * run.plan.pace_ms)
        process, what = world.rng.choice(run.processes), world.rng.random()
        if what < 0.4:
            process.crash()
        elif what < 0.8:
            process.freeze(world.rng.random() * run.plan.break_freeze_ms)
        else:
            process.wall_offset_ms = _skew(run)
            world.note(process.name, "clock", f"offset={process.wall_offset_ms / 1000:.1f}s")


def _skew(run: StoreRun[S]) -> float:
    return (run.world.rng.random() - 0.5) * 2 * run.plan.skew_ms


def play_skewed(run: StoreRun[S], tasks: Sequence[Callable[[], object]]) -> None:
    """Run the clients' tasks to their ends, while things break if the plan says so."""
    if run.plan.breaks:
        run.world.spawn("breaker", lambda: break_things(run))
    run.do(*tasks)
    run.is_over = True


def calm_down(run: StoreRun[S], longest_ms: float) -> None:
    """End the trouble, let all that takes ``longest_ms`` end by any clock, and start one more process."""
    run.revive()
    run.do(lambda: run.world.sleep(run.plan.faults.lands_after_ms_max + longest_ms + 2 * run.plan.skew_ms + 60_000))
    add_skewed_process(run, "cold")


R = TypeVar("R", bound=Run[Any])


@dataclass(frozen=True)
class Scenario(Generic[P, R]):
    """One kind of seeds: what is its own of them."""

    name: str
    draw_plan: Callable[[int], P]
    begin: Callable[[int, P], R]
    play: Callable[[R], None]  # until all works again
    check: Callable[[R], None] = lambda run: None
    check_objects: Callable[[R], None] = lambda run: None  # once the world has ended
    around: Callable[[R], AbstractContextManager[None]] = lambda run: nullcontext()

    def run_seed(self, seed: int, plan: P | None = None) -> R:
        """Run one seed, by the plan that it draws if none is given.

        Raises:
            Failed: Something that must hold does not; it carries the run.
        """
        plan = plan or self.draw_plan(seed)
        run = self.begin(seed, plan)
        try:
            with plan.limited():
                with self.around(run), run.surround(run.world):
                    try:
                        self.play(run)
                        self.check(run)
                    finally:
                        run.close()
                self.check_objects(run)
        except Exception as failure:  # whatever it is, with its history
            raise Failed(self.name, run) from failure
        return run


def outcomes(runs: Iterable[StoreRun[Any]]) -> Counter[tuple[str, str]]:
    """Count how each kind of request came out: answered (``OK``), refused (the error's code), or without an answer."""
    return Counter(
        (one.kind, one.code or ("OK" if one.is_answered else "")) for run in runs for one in run.history.operations
    )


class Failed(AssertionError):
    """A seed that found something; it carries the run."""

    def __init__(self, scenario: str, run: Any) -> None:
        super().__init__(scenario, run.seed)
        self.scenario = scenario
        self.run = run

    def __str__(self) -> str:
        cause = f"{type(self.__cause__).__name__}: {self.__cause__}"
        replay = f"python -m tests.simulation --scenario {self.scenario} --seed {self.run.seed} --print"
        return f"seed {self.run.seed}: {cause}\nreplay: {replay}"
