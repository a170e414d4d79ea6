"""Set-ups of the operations of regions in the crash matrix: another region's records, snapshots, UPDATEs, leases.

Rule: a set-up returns the process that will do the operation.

Not here: the operations; see ``region_operations``.
"""

from __future__ import annotations

from fenceline import limits
from fenceline.format import control
from fenceline.regions.link_item import Link
from tests.simulation.crash.region_rows import replicated_in, subscriptions_of
from tests.simulation.crash.region_scene import SUB, Beside, has_marker, link, run, run_until, settle
from tests.simulation.crash.scene import Process, Scene
from tests.support.service import REGION, TOPIC


def first_contact(scene: Scene) -> Process:
    """Let another region have records, some of them aborted; nothing was taken from it."""
    beside = link(scene, "b")
    beside.abort("b", "first")
    beside.append("b", "b2", "b3")
    beside.abort("b", "last")
    return scene.process()


def several_segments(scene: Scene) -> Process:
    """Let another region go on behind what was taken: its aborted records part this region's segments."""
    beside = link(scene, "b")
    run(scene, scene.process())
    for n in range(2):
        beside.append("b", f"b{n}0")
        beside.append("b", f"b{n}1", f"b{n}2")
        beside.abort("b", str(n))
    beside.append("b", "last")
    return scene.process()


def known_link(scene: Scene) -> Process:
    """Let the process that pulls have pulled before: it has everything in memory."""
    beside = link(scene, "b")
    process = scene.process()
    run(scene, process)
    beside.append("b", "b2")
    return process


def another_life(scene: Scene) -> Process:
    """Take some of another region's topic, which is then deleted and created again."""
    beside = link(scene, "b")
    run(scene, scene.process())
    topics = beside["b"].log.topics
    topics.delete(TOPIC)
    topics.create(TOPIC, regions=[REGION, "b"])
    beside.append("b", "new1")
    beside.append("b", "new2")
    scene.runtime.advance(60_000)
    return scene.process()


def many_segments(scene: Scene) -> Process:
    """Have so many segments that the next one makes a checkpoint due."""
    beside, process = link(scene, "b"), scene.process()
    run(scene, process)
    for n in range(13):
        scene.append(process, TOPIC, 0, f"more{n}")
    beside.append("b", "b2")
    return process


def lost_region(scene: Scene) -> Process:
    """Let a region be away of which another one has more; it is suspended here."""
    beside, process = link(scene, "b", "c"), scene.process()
    run(scene, process)
    beside.append("c", "c2")
    beside.abort("c", "between")
    beside.append("c", "c3", "c4")
    beside.run("b")
    beside.away.add("c")
    process.log.replication.suspend(TOPIC, "c")
    scene.runtime.advance(60_000)
    return scene.process()


def to_be_suspended(scene: Scene) -> Process:
    link(scene, "b")
    run(scene, scene.process())
    return scene.process()


def suspended(scene: Scene) -> Process:
    to_be_suspended(scene).log.replication.suspend(TOPIC, "b")
    return scene.process()


def gap(scene: Scene) -> Process:
    """Let another region trim records that were not taken."""
    beside = link(scene, "b")
    run(scene, scene.process())
    for n in (2, 3, 4):
        beside.append("b", f"b{n}")
    beside["b"].log.partitions.trim(TOPIC, 0, 3)
    beside.lost = {("b", 2), ("b", 3)}
    return scene.process()


def two_partitions(scene: Scene) -> Process:
    link(scene, "b", partitions=2).append("b", "b2", partition=1)
    run(scene, scene.process())
    return scene.process()


def subscribed(scene: Scene, region: str = REGION, *others: str) -> Beside:
    """Let one region have a replicated subscription of which the others have heard."""
    beside = link(scene, *(others or ("b",)))
    log = scene.process().log if region == REGION else beside[region].log
    log.subscriptions.subscribe(TOPIC, SUB, is_latest=False, replicate_subscription_state=True)
    return beside


def to_be_subscribed(scene: Scene) -> Process:
    link(scene, "b")
    run(scene, scene.process())
    return scene.process()


def unannounced(scene: Scene) -> Process:
    """Have a subscription that no other region has heard of."""
    subscribed(scene)
    return scene.process()


def to_be_asked(scene: Scene) -> Process:
    """Have new data and a subscription, so that the next look asks for a snapshot; the other one has heard of it."""
    subscribed(scene)
    run_until(scene, lambda: any(one.told for one in subscriptions_of(scene.stored())))
    run_until(scene, lambda: _is_quiet(scene))
    scene.append(scene.process(), TOPIC, 0, "here2")
    return scene.process()


def _is_quiet(scene: Scene) -> bool:
    return all(not one.state.regions.asked for one in replicated_in(scene.stored()))


def to_be_answered(scene: Scene) -> Process:
    """Let another region ask for a snapshot."""
    beside = subscribed(scene, "b", "b", "c")
    run(scene, scene.process())
    beside.append("b", "b2")
    run_until(scene, lambda: _has_request_of(beside, "b"), here=False)
    return scene.process()


def _has_request_of(beside: Beside, name: str) -> bool:
    """Return True if that region's log ends in what it asks."""
    own = [one for one in beside[name].segments() if one.metadata.replicated is None]
    return any(
        header.is_control and control.type_of(one.body, at, header) == control.SNAPSHOT_REQUEST
        for one in own
        for at, header in one.batches
    )


def answered(scene: Scene) -> Process:
    """Let two regions have answered a REQUEST of this one, whose consumer is done with all that there is."""
    beside = subscribed(scene, REGION, "b", "c")
    run_until(scene, lambda: has_marker(scene, control.SNAPSHOT_REQUEST))
    run(scene, scene.process())
    beside.acknowledge(REGION, scene.process().log)
    for _ in range(2):
        for name in beside.names:
            beside.run(name)
    assert not has_marker(scene, control.SNAPSHOT)
    beside.is_all_done = True
    return scene.process()


def snapshot_taken(scene: Scene) -> Process:
    """Have a snapshot that the mark has not passed."""
    subscribed(scene)
    run_until(scene, lambda: has_marker(scene, control.SNAPSHOT))
    return scene.process()


def updated_unknown(scene: Scene) -> Process:
    """Let another region's consumer be done with everything, of which this region has heard nothing."""
    beside = subscribed(scene, "b")
    run(scene, scene.process())
    _acknowledge_there(scene, beside)
    return scene.process()


def updated_known(scene: Scene) -> Process:
    """Have the other region's subscription here, before its consumer moves its cursor."""
    beside = subscribed(scene, "b")
    run_until(scene, lambda: any(subscriptions_of(scene.stored())))
    _acknowledge_there(scene, beside)
    return scene.process()


def _acknowledge_there(scene: Scene, beside: Beside) -> None:
    """Let the other region have a snapshot, and its consumer acknowledge: the UPDATE is in its log, not here."""
    region = beside["b"]
    for _ in range(3):  # REQUEST, RESPONSE, SNAPSHOT
        beside.run("b")
        _only_answer(scene)
        scene.runtime.advance(1_000)
    beside.run("b")
    beside.acknowledge("b", region.log)
    scene.runtime.advance(1_000)
    beside.run("b")
    beside.is_all_done = True


def _only_answer(scene: Scene) -> None:
    run(scene, scene.process())


def lease_taken(scene: Scene) -> Process:
    """Let another process have the lease, and have died, or be frozen."""
    link(scene, "b")
    Link(scene.process().context, scene.topic(TOPIC).topic_id, 0).enter()
    return scene.process()


def woken_meanwhile(scene: Scene) -> Process:
    """Let another process be woken while this one pulls: by a record that came after its look."""
    beside = link(scene, "b")
    others: list[Process] = []

    def wake(what: str) -> None:
        if what == "body" and not others:
            others.append(scene.process())
            beside.append("b", "late")
            run(scene, others[0])

    beside.on_ask = wake
    return scene.process()


def slow_peer(scene: Scene) -> Process:
    """Let bodies come so slowly that the lease is renewed before the next append."""
    beside = link(scene, "b")
    beside.append("b", "b2")
    beside.abort("b", "between")
    beside.append("b", "b3")

    def wait(what: str) -> None:
        if what == "body":
            scene.runtime.advance(limits.LINK_LEASE_MS // 6)

    beside.on_ask = wait
    return scene.process()


def in_silence(scene: Scene) -> Process:
    """Let everything have arrived, and nothing be due."""
    subscribed(scene)
    settle(scene, scene.process())
    return scene.process()


def items_lost(scene: Scene) -> Process:
    """Lose all items of a region that has pulled, and has a snapshot and an UPDATE of another region."""
    updated_known(scene)
    run(scene, scene.process())
    scene.lose_items()
    return scene.process()
