"""One seed of regions: writers, consumers, operators and replicators in three regions, and the faults there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
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
from tests.simulation.harness.scenario import PATIENT_MS, Scenario
from tests.simulation.harness.stores import (
    Faults,
    FaultyItemStore,
    FaultyObjectStore,
    WatchedItemStore,
    WatchedObjectStore,
)
from tests.simulation.harness.world import NoReply, Process, Refused, World
from tests.simulation.regions import clients
from tests.simulation.regions.clients import Stage
from tests.simulation.regions.link import Links, ProcessLinks, Site
from tests.simulation.regions.run import NAMES, RegionsPlan, RegionsRun
from tests.simulation.regions.settling import settle
from tests.simulation.regions.truth import RegionsTruth
from tests.support.peers import ObservedPeer

REGIONS_SKEW_MS = 3_600_000  # clocks of regions are off by more than those of one
READS_AMID = 6


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
        skew_ms=rng.choice((0, 1_000, REGIONS_SKEW_MS)),
        last_in=rng.choice((None, *regions)),
        reads_amid=rng.random() < 0.5,
        lost_region=rng.choice((None, None, *regions)) if len(regions) == 3 else None,
        writes_last=rng.random() < 0.2,
    )


def _begin(seed: int, plan: RegionsPlan) -> RegionsRun:
    world = World(seed)
    truth = RegionsTruth(world, NAMES)
    opened = {name: real.stores(world) for name in plan.regions}
    sites = {name: _site(world, truth, name, *stores) for name, stores in opened.items()}
    return RegionsRun(
        seed=seed,
        plan=plan,
        world=world,
        history=History(world),
        stores=[store for stores in opened.values() for store in stores],
        surround=preempting,
        sites=sites,
        links=Links(world, sites, plan.lost, plan.slow_ms, plan.stale),
        truth=truth,
    )


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


def _add_process(run: RegionsRun, site: Site, name: str) -> Process:
    def start(process: Process) -> Log:
        objects = FaultyObjectStore(site.objects, run.world, process, lambda: run.faults)
        items = FaultyItemStore(site.items, run.world, process, lambda: run.faults)
        links = ProcessLinks(run.links, site.name)
        peers: Peers = {other: ObservedPeer(other, links.ask) for other in run.plan.regions if other != site.name}
        runtime = SimRuntime(run.world, process)
        return Log(objects, items, runtime, region=site.name, item_age_ms=run.plan.item_age_ms, peers=peers)

    rng = run.world.rng
    process = Process(run.world, name, start, (rng.random() - 0.5) * 2 * run.plan.skew_ms, rng.random() < 0.5)
    process.restart()
    run.world.processes.append(process)
    site.processes.append(process)
    return process


def _play(run: RegionsRun) -> None:
    plan = run.plan
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
    if plan.apart is not None:
        run.do(partial(clients.suspend, stage, "setup", *plan.apart))
        run.links.cut.add(plan.apart)
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
    settle(run)


def _read_amid(run: RegionsRun, stage: Stage, region: str) -> None:
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


def _break_things(run: RegionsRun, plan: RegionsPlan) -> None:
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


SCENARIO = Scenario("regions", draw_plan, _begin, _play)
run_seed = SCENARIO.run_seed
