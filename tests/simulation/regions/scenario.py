"""One seed of regions: writers, consumers, operators and replicators in three regions, and what goes wrong there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import permutations
from random import Random
from typing import Any

from fenceline.errors import FencelineError
from fenceline.ports import Change
from fenceline.regions.peer import Peers
from fenceline.service.log import Log
from tests.simulation.harness import real
from tests.simulation.harness.history import History
from tests.simulation.harness.preempt import preempting
from tests.simulation.harness.runtime import SimRuntime
from tests.simulation.harness.stores import (
    Faults,
    FaultyItemStore,
    FaultyObjectStore,
    WatchedItemStore,
    WatchedObjectStore,
)
from tests.simulation.harness.world import NoReply, Process, Refused, World
from tests.simulation.log.scenario import PATIENT_MS, _limits
from tests.simulation.log.scenario import Plan as LogPlan
from tests.simulation.log.truth import Violation
from tests.simulation.regions import clients
from tests.simulation.regions.clients import Stage
from tests.simulation.regions.link import Links, SimulatedPeer, Site
from tests.simulation.regions.truth import RegionsTruth

NAMES = ("a", "b", "c")
SKEW_MS = 3_600_000
READS_AMID = 6
QUIET_MS = 600_000  # for which nothing may be written once all has arrived
SILENT_ROUNDS = 4
QUIET_ROUNDS = 4  # each process has two of them, where a region has two
PAUSE_MS = 30_000  # between quiet rounds: two are longer than a region waits before it asks anew for a snapshot
LOST_ROUNDS = 20  # while a region is cut off
ROUNDS_MAX = 200  # of replication until nothing moves any longer


@dataclass(frozen=True)
class RegionsPlan(LogPlan):
    """What a seed does: drawn from the seed, except what a test fixes."""

    regions: tuple[str, ...] = NAMES
    acts: tuple[str, ...] = ()  # of the operator
    late: bool = False  # the last region joins amid the traffic
    lost: float = 0  # of questions between regions
    slow_ms: float = 0
    stale: float = 0
    cuts: bool = False  # links are cut and come back
    skew_ms: float = 0
    last_in: str | None = None  # the region in which the last consumer reads to the end
    reads_amid: bool = False  # that consumer also reads to the end while processes still fail
    lost_region: str | None = None  # cut off for a while at the end, and suspended: others have its records
    writes_last: bool = False  # each region has one more record at the end

    @property
    def keeps_all(self) -> bool:
        """Return True if nothing was trimmed, deleted, given up or late: then every mark must reach the end."""
        return not self.late and not {"trim", "recreate", "skip"} & set(self.acts)

    @property
    def has_last_records(self) -> bool:
        """Return True if each region has a record at the end.

        It is needed where regions may count an origin's aborted records differently: one took the records before, and
        another came when they were trimmed. Until that origin's next record, no snapshot of the first one is final.
        """
        return self.writes_last or not self.keeps_all


@dataclass
class Run:
    """One run of one seed."""

    seed: int
    plan: RegionsPlan
    world: World
    sites: dict[str, Site]
    links: Links
    truth: RegionsTruth
    history: History
    faults: Faults = field(default_factory=Faults)
    is_over: bool = False
    stage: Stage | None = None

    def do(self, *tasks: Callable[[], object]) -> None:
        """Run these, as tasks outside the processes, to their ends."""
        left = len(tasks)

        def one(task: Callable[[], object]) -> None:
            nonlocal left
            task()
            left -= 1

        for number, task in enumerate(tasks):
            self.world.spawn(f"c{number}", partial(one, task))
        self.world.run(lambda: left == 0)
        if self.world.failures:
            raise self.world.failures[0]
        if self.links.problems:
            raise Violation(self.links.problems[0])


class FailedRegions(AssertionError):
    """A seed that found something."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.seed)
        self.run = run

    def __str__(self) -> str:
        cause = f"{type(self.__cause__).__name__}: {self.__cause__}"
        replay = f"python -m tests.simulation --scenario regions --seed {self.run.seed} --print"
        return f"seed {self.run.seed}: {cause}\nreplay: {replay}"


def draw_plan(seed: int) -> RegionsPlan:
    rng = Random(f"regions {seed}")
    regions = NAMES if rng.random() < 0.75 else NAMES[:2]
    casts = [rng.choice(("writer", "writer", "transactor")) for _ in range(rng.choice((2, 3, 4)))]
    casts += ["consumer"] * rng.choice((1, 1, 2))
    acts = tuple(
        act
        for act, chance in (("suspend", 0.25), ("trim", 0.3), ("recreate", 0.2), ("skip", 0.3), ("snapshot", 0.3))
        if rng.random() < chance
    )
    acts += ("resume",) if "suspend" in acts else ()
    level = rng.choice((0, 0, 0.01, 0.04))

    def rate() -> float:
        return level * rng.choice((0, 0.3, 1))

    faults = Faults(
        unavailable=rate() / 2,
        conflict=rate(),
        call_lost=rate() / 2,
        answer_lost=rate(),
        slow=rate(),
        crash=rate() / 8,
        freeze=rate() / 8,
        freeze_at_append=rng.choice((0, 0, level)),
        freeze_ms=rng.choice((3_000, 70_000)),
        time_out_ms=1_000,
        lands_after_ms_max=rng.choice((3_000, 30_000)),
    )
    return RegionsPlan(
        processes=rng.choice((1, 2)),
        partitions=rng.choice((1, 1, 2)),
        rounds=rng.choice((3, 5, 8)),
        casts=casts,
        faults=faults,
        patience_ms=rng.choice((5_000, 60_000)),
        breaks=level > 0 and rng.random() < 0.3,
        break_freeze_ms=rng.choice((3_000, 90_000)),
        pace_ms=rng.choice((4_000, 12_000)),
        item_age_ms=rng.choice((0, 60_000)),
        checkpoint_segments=rng.choice((1, 5, 16)),
        regions=regions,
        acts=acts,
        late=len(regions) == 3 and rng.random() < 0.2,
        lost=rng.choice((0, 0.02, 0.1)),
        slow_ms=rng.choice((0, 200, 1_500)),
        stale=rng.choice((0, 0, 0.2)),
        cuts=rng.random() < 0.4,
        skew_ms=rng.choice((0, 1_000, SKEW_MS)),
        last_in=rng.choice((None, *regions)),
        reads_amid=rng.random() < 0.5,
        lost_region=rng.choice((None, None, *regions)) if len(regions) == 3 else None,
        writes_last=rng.random() < 0.2,
    )


def run_seed(seed: int, plan: RegionsPlan | None = None) -> Run:
    """Run one seed.

    Raises:
        FailedRegions: Something that must hold does not; it carries the run.
    """
    plan = plan or draw_plan(seed)
    world = World(seed)
    truth = RegionsTruth(world, NAMES)
    opened = {name: real._stores(world) for name in plan.regions}
    sites = {name: _site(world, truth, name, *stores) for name, stores in opened.items()}
    links = Links(world, sites, plan.lost, plan.slow_ms, plan.stale)
    run = Run(seed, plan, world, sites, links, truth, History(world))
    with _limits(plan), preempting(world) if world.preemption else nullcontext():
        try:
            _play(run, plan)
            _settle(run, plan)
        except Exception as failure:  # whatever it is, with its history
            raise FailedRegions(run) from failure
        finally:
            world.close()
            for objects, items in opened.values():
                objects.close()
                items.close()
    return run


def _site(world: World, truth: RegionsTruth, name: str, objects: Any, items: Any) -> Site:
    site = Site(name, WatchedObjectStore(objects, world), WatchedItemStore(items, world))

    def on_create(key: str) -> None:
        site.writes += 1
        truth.on_create(name, site.objects.created[-1])

    def on_write(changes: Sequence[Change]) -> None:
        site.writes += 1
        truth.on_write(name, changes)

    site.objects.on_create, site.items.on_write = on_create, on_write
    return site


def _add_process(run: Run, site: Site, name: str) -> Process:
    def start(process: Process) -> Log:
        objects = FaultyObjectStore(site.objects, run.world, process, lambda: run.faults)
        items = FaultyItemStore(site.items, run.world, process, lambda: run.faults)
        peers: Peers = {
            other: SimulatedPeer(run.links, site.name, other) for other in run.plan.regions if other != site.name
        }
        runtime = SimRuntime(run.world, process)
        return Log(objects, items, runtime, region=site.name, item_age_ms=run.plan.item_age_ms, peers=peers)

    rng = run.world.rng
    process = Process(run.world, name, start, (rng.random() - 0.5) * 2 * run.plan.skew_ms, rng.random() < 0.5)
    process.restart()
    run.world.processes.append(process)
    site.processes.append(process)
    return process


def _play(run: Run, plan: RegionsPlan) -> None:
    for site in run.sites.values():
        for number in range(plan.processes):
            _add_process(run, site, f"{site.name}{number}")
    stage = Stage(
        run.world, run.sites, run.links, run.truth, plan.partitions, plan.rounds, PATIENT_MS, tuple(plan.regions)
    )
    run.stage = stage
    run.links.may_forward = lambda asker, origin: (asker, origin) in stage.suspended
    early = plan.regions[:-1] if plan.late else plan.regions
    for region in early:
        run.do(partial(clients.create, stage, "setup", region))
    run.do(partial(clients.subscribe, stage, "setup", run.world.rng.choice(early)))
    run.faults = plan.faults
    stage.patience_ms = plan.patience_ms
    for region in plan.regions:
        for _ in range(plan.processes):
            run.world.spawn(f"replicator-{region}", partial(clients.replicate, stage, region, lambda: run.is_over))
    if plan.breaks or plan.cuts:
        run.world.spawn("breaker", partial(_break_things, run, plan))
    tasks = [_task(stage, plan, cast, f"{cast}{number}") for number, cast in enumerate(plan.casts)]
    if plan.acts:
        tasks.append(partial(clients.operate, stage, "operator", plan.acts))
    if plan.late:
        tasks.append(partial(_join, stage, plan.regions[-1]))
    run.do(*tasks)
    if plan.reads_amid and plan.last_in is not None:
        run.do(partial(_read_amid, run, stage, plan.last_in))
    run.is_over = True


def _read_amid(run: Run, stage: Stage, region: str) -> None:
    """Read to the end while processes fail and replicate. What is due of the last mark must not be lost by that."""
    for _ in range(READS_AMID):
        stage.rest(4_000)
        for partition in range(stage.partitions):
            with suppress(FencelineError, NoReply, Refused):
                clients.consume_page(stage, "amid", region, partition, all_of_it=True)
    run.world.sleep(10_000)


def _join(stage: Stage, region: str) -> None:
    stage.rest(20_000)
    clients.create(stage, "late", region)


def _task(stage: Stage, plan: RegionsPlan, cast: str, name: str) -> Callable[[], object]:
    region = stage.rng.choice(plan.regions)
    acts: dict[str, Callable[[], object]] = {
        "writer": partial(clients.write, stage, name, region),
        "transactor": partial(clients.transact, stage, name, region),
        "consumer": partial(clients.consume, stage, name, plan.regions),
    }
    return acts[cast]


def _break_things(run: Run, plan: RegionsPlan) -> None:
    """Crash and freeze processes, set their clocks, cut links and mend them, until it is over."""
    world, rng = run.world, run.world.rng
    while not run.is_over:
        world.sleep(rng.random() * plan.pace_ms)
        if bool(run.is_over):  # since the sleep
            return
        if plan.cuts:
            pair = (rng.choice(plan.regions), rng.choice(plan.regions))
            (run.links.cut.discard if pair in run.links.cut or rng.random() < 0.4 else run.links.cut.add)(pair)
        if plan.breaks:
            process, what = rng.choice(world.processes), rng.random()
            if what < 0.4:
                process.crash()
            elif what < 0.7:
                process.freeze(rng.random() * plan.break_freeze_ms)
            else:
                process.wall_offset_ms = (rng.random() - 0.5) * 2 * plan.skew_ms


def _settle(run: Run, plan: RegionsPlan) -> None:
    """End the trouble: links work, all regions are resumed, gaps are passed. Everything must arrive, and then silence.

    Not here: what must hold at every moment (``truth.py``).
    """
    stage, world = run.stage, run.world
    assert stage is not None
    run.faults = Faults()
    run.links.cut.clear()
    run.links.lost = run.links.stale = run.links.slow_ms = 0
    world.preemption = world.lock_preemption = 0  # no request meets another from now on
    for process in world.processes:
        process.thaw()
        process.restart()
        process.wall_offset_ms = 0
    stage.patience_ms = PATIENT_MS
    # Transactions have ended by then by any clock.
    calm_ms = plan.faults.lands_after_ms_max + 60_000 + 2 * plan.skew_ms
    run.do(lambda: world.sleep(calm_ms))
    for region in plan.regions:
        run.do(partial(clients.have_topic, stage, "last", region))
    run.do(partial(_end_transactions, stage))
    if plan.lost_region is not None:
        _lose(run, stage, plan.lost_region)
    for region in plan.regions:
        for other in plan.regions:
            if other != region:
                run.do(partial(clients.resume, stage, "last", region, other))
        if plan.has_last_records:
            run.do(partial(clients.write_last, stage, region))
    _replicate_until_quiet(run, stage)
    _check_arrived(run, plan)
    if plan.last_in is not None:
        run.do(partial(clients.subscribe, stage, "last", plan.last_in))
        run.do(partial(_read_to_the_end, stage, plan.last_in))
        _replicate_until_quiet(run, stage)
        if plan.keeps_all:
            _check_marks(run, plan)
    if plan.keeps_all:
        _check_told(run, plan)
    _check_silence(run, stage)


def _lose(run: Run, stage: Stage, lost: str) -> None:
    """Cut a region off and suspend it in the others. What one of them has of it must arrive in the other (I19)."""
    others = [region for region in stage.regions if region != lost]
    run.links.cut |= {pair for region in others for pair in ((region, lost), (lost, region))}
    for region, other in permutations(others, 2):
        run.do(partial(clients.resume, stage, "last", region, other))  # one that is suspended lends nothing
        run.do(partial(clients.suspend, stage, "last", region, lost))
    # No snapshot of what one of them lacks for good is final.
    _replicate_until_quiet(run, replace(stage, regions=tuple(others)), LOST_ROUNDS)
    run.links.cut.clear()
    if run.plan.keeps_all:
        for partition in range(stage.partitions):
            for region, other in permutations(others, 2):
                if lacking := run.truth.forwarded(region, other, lost, partition):
                    raise Violation(f"I19: {region} lacks what {other} has of {lost}: {lacking[0]}")


def _end_transactions(stage: Stage) -> None:
    """Let the sweeper end what its producers have left open."""
    from fenceline.sweeper.sweep import sweep

    for region in stage.regions:
        stage.ask("last", region, "sweep", lambda log: sweep(log, duration_ms=PATIENT_MS))


def _replicate_until_quiet(run: Run, stage: Stage, rounds: int = ROUNDS_MAX) -> None:
    """Have each region replicate, pass what it shows as a gap, and go on until no region does anything.

    Raises:
        Violation: That never came. With fewer rounds than usual it need not come.
    """
    quiet = 0
    for turn in range(rounds):
        before = _written(run)
        _replicate_everywhere(run, stage, turn)
        is_quiet = _written(run) == before
        quiet = quiet + 1 if is_quiet else 0
        if quiet == QUIET_ROUNDS:
            return
        run.do(partial(clients.skip_gaps, stage, "last"))
        run.do(partial(run.world.sleep, PAUSE_MS if is_quiet else 1_000))
    if rounds == ROUNDS_MAX:
        raise Violation(f"I24: regions are still busy after {ROUNDS_MAX} rounds")


def _replicate_everywhere(run: Run, stage: Stage, turn: int) -> None:
    """Have one process of each region replicate; each is another one than in the turn before."""
    for region in stage.regions:
        for partition in range(stage.partitions):
            run.do(partial(clients.replicate_once, stage, region, partition, turn))


def _written(run: Run) -> int:
    return sum(site.writes for site in run.sites.values())


def _check_arrived(run: Run, plan: RegionsPlan) -> None:
    for region in plan.regions:
        for origin in plan.regions:
            for partition in range(plan.partitions):
                if region != origin and (lacking := run.truth.lacking(region, origin, partition)):
                    raise Violation(f"I24: never arrived in {region}: {len(lacking)}, first {lacking[0]}")


def _read_to_the_end(stage: Stage, region: str) -> None:
    for partition in range(stage.partitions):
        while clients.consume_page(stage, "last", region, partition, all_of_it=True):
            pass


def _check_marks(run: Run, plan: RegionsPlan) -> None:
    for region in plan.regions:
        for partition in range(plan.partitions):
            if unread := run.truth.unread(region, partition):
                raise Violation(f"I24: the last position did not arrive in {region}: {len(unread)}, first {unread[0]}")


def _check_told(run: Run, plan: RegionsPlan) -> None:
    """Check that the subscription exists in every region, if it does in one."""
    present = {(region, run.truth.topic_ids[region]) for region in plan.regions}
    if present & run.truth.told and not present <= run.truth.told:
        raise Violation(f"I23: no subscription was told of in {sorted(present - run.truth.told)}")


def _check_silence(run: Run, stage: Stage) -> None:
    """Check that regions in which nothing is written by clients write nothing by themselves."""
    before = _written(run)
    for turn in range(SILENT_ROUNDS):
        _replicate_everywhere(run, stage, turn)
        run.do(lambda: run.world.sleep(QUIET_MS / SILENT_ROUNDS))
    if _written(run) != before:
        raise Violation(f"I24: {_written(run) - before} writes in silence")
