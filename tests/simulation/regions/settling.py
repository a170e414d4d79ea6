"""The end of a seed of regions, without faults: all records arrive, and then idle regions write nothing (I23, I24).

Not here: what must hold at every moment (``truth.py``).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import permutations

from tests.simulation.harness.scenario import PATIENT_MS
from tests.simulation.log.truth import Violation
from tests.simulation.regions import clients
from tests.simulation.regions.clients import Stage
from tests.simulation.regions.run import RegionsPlan, RegionsRun

QUIET_MS = 600_000  # for which nothing may be written once all has arrived
SILENT_ROUNDS = 4
QUIET_ROUNDS = 4  # each process has two of them, where a region has two
PAUSE_MS = 30_000  # between quiet rounds: two are longer than a region waits before it asks anew for a snapshot
LOST_ROUNDS = 20  # while a region is cut off
REPLICATION_ROUNDS_MAX = 200  # until nothing moves any longer


def settle(run: RegionsRun) -> None:
    """End the trouble: links work, regions are resumed, gaps are passed. All must arrive, and then silence."""
    plan, stage, world = run.plan, run.stage, run.world
    run.links.cut.clear()
    run.links.lost = run.links.stale = run.links.slow_ms = 0
    world.preemption = world.lock_preemption = 0  # no request meets another from now on
    run.revive()
    for process in world.processes:
        process.wall_offset_ms = 0
    stage.patience_ms = PATIENT_MS
    # Transactions have ended by then by any clock.
    calm_ms = (
        plan.faults.lands_after_ms_max + 2 * plan.skew_ms + 60_000
    )  # also past what a fast clock has dated + 2 * plan.skew_ms
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
        if plan.writes_last:
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
        _check_subscribed(run, plan)
    _check_silence(run, stage)


def _lose(run: RegionsRun, stage: Stage, lost: str) -> None:
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
    from tests.support.sweeping import strict_sweep

    for region in stage.regions:
        stage.ask("last", region, "sweep", lambda log: strict_sweep(log, duration_ms=PATIENT_MS))


def _replicate_until_quiet(run: RegionsRun, stage: Stage, rounds: int = REPLICATION_ROUNDS_MAX) -> None:
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
    if rounds == REPLICATION_ROUNDS_MAX:
        raise Violation(f"I24: regions are still busy after {REPLICATION_ROUNDS_MAX} rounds")


def _replicate_everywhere(run: RegionsRun, stage: Stage, turn: int) -> None:
    """Have one process of each region replicate; each is another one than in the turn before."""
    for region in stage.regions:
        for partition in range(stage.partitions):
            run.do(partial(clients.replicate_once, stage, region, partition, turn))


def _written(run: RegionsRun) -> int:
    return sum(site.writes for site in run.sites.values())


def _check_arrived(run: RegionsRun, plan: RegionsPlan) -> None:
    for region in plan.regions:
        for origin in plan.regions:
            for partition in range(plan.partitions):
                if region != origin and (lacking := run.truth.lacking(region, origin, partition)):
                    raise Violation(f"I24: never arrived in {region}: {len(lacking)}, first {lacking[0]}")


def _read_to_the_end(stage: Stage, region: str) -> None:
    for partition in range(stage.partitions):
        while clients.consume_page(stage, "last", region, partition, all_of_it=True):
            pass


def _check_marks(run: RegionsRun, plan: RegionsPlan) -> None:
    for region in plan.regions:
        for partition in range(plan.partitions):
            if unread := run.truth.unread(region, partition):
                raise Violation(f"I24: the last position did not arrive in {region}: {len(unread)}, first {unread[0]}")


def _check_subscribed(run: RegionsRun, plan: RegionsPlan) -> None:
    """Check that the subscription exists in every region, if it does in one."""
    present = {(region, run.truth.topic_ids[region]) for region in plan.regions}
    if present & run.truth.subscribed and not present <= run.truth.subscribed:
        raise Violation(f"I23: no subscription in {sorted(present - run.truth.subscribed)}")


def _check_silence(run: RegionsRun, stage: Stage) -> None:
    """Check that regions in which nothing is written by clients write nothing by themselves."""
    before = _written(run)
    for turn in range(SILENT_ROUNDS):
        _replicate_everywhere(run, stage, turn)
        run.do(lambda: run.world.sleep(QUIET_MS / SILENT_ROUNDS))
    if _written(run) != before:
        raise Violation(f"I24: {_written(run) - before} writes in silence")
