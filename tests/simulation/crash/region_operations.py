"""Topics in several regions as entries of the crash matrix (see crash/operations.py).

Rule: at the end of every entry, each region has each other one's records once, no mark passes what no consumer was done
with, and nothing is left to do (``region_scene.regions_are_whole``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from fenceline.errors import InvalidRequestError
from fenceline.recovery.rebuild import rebuild
from tests.simulation.crash.operations import Operation, append_more, sweep_all
from tests.simulation.crash.region_scene import SUB, beside_of, regions_are_whole, run
from tests.simulation.crash.region_set_ups import (
    another_life,
    answered,
    first_contact,
    gap,
    in_silence,
    items_lost,
    known_link,
    lease_taken,
    lost_region,
    many_segments,
    several_segments,
    slow_peer,
    snapshot_taken,
    suspended,
    to_be_answered,
    to_be_asked,
    to_be_subscribed,
    to_be_suspended,
    two_partitions,
    unannounced,
    updated_known,
    updated_unknown,
    woken_meanwhile,
)
from tests.simulation.crash.scene import Process, Scene, read_all
from tests.support.service import REGION, TOPIC

Act = Callable[[Scene, Process], Any]

# Operations


def suspend(scene: Scene, process: Process) -> None:
    assert process.log.replication.suspend(TOPIC, "b").suspended


def resume(scene: Scene, process: Process) -> None:
    assert not process.log.replication.resume(TOPIC, "b").suspended


def skip(scene: Scene, process: Process) -> None:
    assert process.log.replication.skip(TOPIC, 0, "b", 3) == 2


def snapshot(scene: Scene, process: Process) -> None:
    process.log.replication.snapshot(TOPIC)


def subscribe(scene: Scene, process: Process) -> None:
    process.log.subscriptions.subscribe(TOPIC, SUB, is_latest=False, replicate_subscription_state=True)


def advise(scene: Scene, process: Process) -> None:
    process.log.subscriptions.subscribe(TOPIC, SUB, active_region=["b"])


def acknowledge(scene: Scene, process: Process) -> None:
    beside_of(scene).acknowledge(REGION, process.log)
    beside_of(scene).is_all_done = True


def look(scene: Scene, process: Process) -> None:
    """Look at everything, and replicate where nothing is due."""
    process.log.replication.status(TOPIC)
    run(scene, process)


def run_to_the_end(scene: Scene, process: Process) -> None:
    """Replicate: what came while this process had the lease is here, too, unless an answer was lost."""
    run(scene, process)
    if process.lost is None:
        records = read_all(scene.process().log, TOPIC, 0, 0)
        assert b"late" in [record.value for record in records], "a wake-up was lost"


def rebuild_items(scene: Scene, process: Process) -> None:
    rebuild(process.context)


# Mends


def run_again(scene: Scene, process: Process) -> None:
    """Replicate: the next run finds what is there, and does the rest."""
    run(scene, process)


def append_first(scene: Scene, process: Process) -> None:
    """Append: it lands behind whatever of another region is there."""
    append_more(scene, process)
    run(scene, process)


def sweep_first(scene: Scene, process: Process) -> None:
    sweep_all(scene, process)
    run(scene, process)


def others_first(scene: Scene, process: Process) -> None:
    """Let the other regions take what this one has, before it looks again."""
    for name in beside_of(scene).names:
        beside_of(scene).run(name)
    run(scene, process)


def skip_again(scene: Scene, process: Process) -> None:
    """Skip again: the gap is passed now, or it was."""
    run(scene, process)
    with suppress(InvalidRequestError):
        skip(scene, process)
    run(scene, process)


def skip_once(scene: Scene, process: Process) -> None:
    """Assert that the gap was passed once."""
    assert process.log.replication.status(TOPIC).skipped_records == 2
    regions_are_whole(scene, process)


def advice_or_not(scene: Scene, process: Process) -> None:
    """Assert that all regions give the same advice: the new one, or none where it was never answered."""
    regions_are_whole(scene, process)
    logs = [process.log, *(beside_of(scene)[name].log for name in beside_of(scene).names)]
    given = {log.subscriptions.get(TOPIC, SUB).subscription.active_region for log in logs}
    assert given in ({None}, {"b"}), f"advice that differs: {given}"


def suspended_or_not(scene: Scene, process: Process) -> None:
    """Assert that a region is suspended or not, as it is shown, and that its records come in both cases."""
    regions_are_whole(scene, process)
    assert not any(one.suspended for one in process.log.replication.status(TOPIC).regions)


def lose_items(scene: Scene, process: Process) -> None:
    """Lose all items, and rebuild once every process has ended: positions are in the log."""
    scene.land()
    scene.lose_items()
    beside_of(scene).is_all_done = False  # this region's subscription is lost with its items
    rebuild(scene.process().context)
    run(scene, scene.process())


def rebuild_again(scene: Scene, process: Process) -> None:
    """Throw away what is left of a rebuild, and do it again."""
    scene.lose_items()
    rebuild(scene.process().context)


SAME = "the same again"
NEXT_RUN = "the next run"
APPEND = "an append, and the next run"
SWEEPER = "the sweeper, and the next run"
OTHERS = "the others' runs, and the next one"
REBUILD = "a rebuild, and the next run"
MANY = 100

PULLED: dict[str, Act] = {NEXT_RUN: run_again, APPEND: append_first, REBUILD: lose_items}
TICKED: dict[str, Act] = {NEXT_RUN: run_again, OTHERS: others_first, SWEEPER: sweep_first}


def _entry(name: str, set_up: Any, do: Any, mends: Any, holds: Any = regions_are_whole) -> Operation:
    return Operation(name, set_up, do, mends, holds, MANY)


REGION_OPERATIONS = [
    _entry("pull: first contact", first_contact, run, PULLED),
    _entry("pull: several segments", several_segments, run, PULLED),
    _entry("pull: a known link", known_link, run, PULLED),
    _entry("pull: another life", another_life, run, PULLED),
    _entry("pull: with a checkpoint", many_segments, run, PULLED),
    _entry("forwarding", lost_region, run, PULLED | {OTHERS: others_first}),
    _entry("suspend", to_be_suspended, suspend, {
        SAME: suspend, "resume": resume, APPEND: append_first,
    }, suspended_or_not),
    _entry("resume", suspended, resume, {SAME: resume, NEXT_RUN: run_again}, suspended_or_not),
    _entry("skip", gap, skip, {SAME: skip_again}, skip_once),
    _entry("snapshots of each partition", two_partitions, snapshot, {SAME: snapshot, **TICKED}),
    _entry("REQUEST", to_be_asked, run, TICKED),
    _entry("RESPONSE", to_be_answered, run, TICKED | {REBUILD: lose_items}),
    _entry("SNAPSHOT and UPDATE", answered, run, TICKED | {SAME: acknowledge}),
    _entry("acknowledgement and UPDATE", snapshot_taken, acknowledge, {SAME: acknowledge, **TICKED}),
    _entry("UPDATE applied: subscription created", updated_unknown, run, TICKED | {REBUILD: lose_items}),
    _entry("UPDATE applied: cursor moved", updated_known, run, TICKED | {SAME: acknowledge}),
    _entry("subscription, replicated", to_be_subscribed, subscribe, {SAME: subscribe, **TICKED}),
    _entry("announcing", unannounced, run, TICKED),
    _entry("lease that is taken", lease_taken, run, PULLED),
    _entry("lease, and woken meanwhile", woken_meanwhile, run_to_the_end, PULLED),
    _entry("lease that is renewed", slow_peer, run, PULLED),
    _entry("advice", in_silence, advise, {SAME: advise, **TICKED}, advice_or_not),
    _entry("look at regions", in_silence, look, {SAME: look}),
    _entry("rebuild of a region", items_lost, rebuild_items, {SAME: rebuild_again}),
]  # fmt: skip
