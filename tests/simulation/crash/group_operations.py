"""Groups and their members as entries of the crash matrix (see crash/operations.py).

Rule: after every mend no two members hold one partition (G1), and only members of the group hold any (G4). Members that
go on with their heartbeats settle, and all partitions are held (G6). A commit is taken from the holder only (G2).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import (
    FencedMemberEpochError,
    GroupIdNotFoundError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnknownSubscriptionError,
    UnreleasedInstanceIdError,
)
from fenceline.groups import reads
from fenceline.model.group import Membership
from fenceline.model.requests import Heartbeat, MemberRef, OwnedPartitions
from fenceline.model.subscription import CommittedOffset
from fenceline.recovery.group_findings import group_findings
from tests.simulation.crash.operations import Action, Operation
from tests.simulation.crash.scene import Process, Scene
from tests.support.grouping import held
from tests.support.service import TOPIC
from tests.support.sweeping import strict_sweep

GROUP = "workers"
MINUTE_MS = 60_000
TIMEOUT_MS = limits.SESSION_TIMEOUT_MS_MAX  # 30 minutes: over after the longer of the pauses, not after the shorter one
ROUNDS_MAX = 16

# Clients


def members(scene: Scene) -> dict[str, Membership | None]:
    """Return what each client knows of its membership; ``None`` if it has to join."""
    return scene.ledger.answers.setdefault("members", {})  # type: ignore[no-any-return]


def join(scene: Scene, process: Process, name: str, instance_id: str | None = None) -> None:
    members(scene)[name] = None
    request = Heartbeat(
        name, 0, topics=(TOPIC,), instance_id=instance_id, session_timeout_ms=TIMEOUT_MS, is_latest=False
    )
    members(scene)[name] = process.log.groups.heartbeat(GROUP, request, principal="")


def beat(scene: Scene, process: Process, name: str, *, is_reporting: bool = True) -> None:
    """Send a heartbeat that reports what the last answer showed."""
    known = members(scene)[name]
    assert known is not None
    owned = [OwnedPartitions(TOPIC, held(known))] if is_reporting else None
    request = Heartbeat(name, known.member_epoch, owned=owned)
    members(scene)[name] = process.log.groups.heartbeat(GROUP, request, principal="")


def go_on(scene: Scene, process: Process, name: str) -> None:
    """Go on as the contract wants a client to go on."""
    if members(scene)[name] is not None:
        try:
            beat(scene, process, name)
            return
        except (UnknownMemberIdError, FencedMemberEpochError):
            members(scene)[name] = None
    with suppress(UnreleasedInstanceIdError):
        join(scene, process, name, instance_id=scene.ledger.answers.get(f"{name}'s instance"))


def settle(scene: Scene, process: Process) -> None:
    for _ in range(ROUNDS_MAX):
        scene.runtime.advance(500)
        for name in sorted(members(scene)):
            go_on(scene, process, name)
            _check_holders(process)
        if all(one is not None and one.is_settled for one in members(scene).values()):
            return
    raise AssertionError(f"the members do not settle: {members(scene)}")


def leave(scene: Scene, process: Process, name: str, *, is_coming_back: bool = False) -> None:
    process.log.groups.leave(GROUP, name, is_coming_back=is_coming_back)
    if is_coming_back:
        members(scene)[name] = None
    else:
        members(scene).pop(name, None)


def commit(scene: Scene, process: Process, name: str, offset: int) -> None:
    known = members(scene)[name]
    assert known is not None
    offsets = [CommittedOffset(TOPIC, 0, offset)]
    process.log.subscriptions.commit(GROUP, offsets, member=MemberRef(name, known.member_epoch))


def mark(process: Process) -> int:
    found, _ = process.log.subscriptions.committed(GROUP)
    return {one.partition: one.offset for one in found}.get(0, -1)


# What holds


def _check_holders(process: Process) -> None:
    found = reads.members(process.context, GROUP)
    places = [place for one in found.values() for place in one.holds]
    assert len(places) == len(set(places)), f"G1: two members hold one partition: {found}"
    assert group_findings(process.context) == {}, "G4"


def all_settle(scene: Scene, process: Process) -> None:
    """Check that the members settle, that each partition is held once, and that its holder's commit alone is taken."""
    _check_holders(process)
    if not members(scene):
        join(scene, process, "z")
    settle(scene, process)
    now = {name: one for name, one in members(scene).items() if one is not None}
    assert sorted(partition for one in now.values() for partition in held(one)) == [0, 1], "G6"
    for name, one in now.items():
        if 0 in held(one):
            commit(scene, process, name, 2)
        else:
            with pytest.raises(StaleMemberEpochError):
                commit(scene, process, name, 1)
    assert mark(process) == 2
    process.log.groups.get(GROUP)


def the_mark_stays(scene: Scene, process: Process) -> None:
    """Check that no late commit has moved the mark that the present holder has left (G2)."""
    assert mark(process) == scene.ledger.answers["mark"], "G2: a commit of a removed member has landed"
    all_settle(scene, process)


# Set-ups


def topic(scene: Scene) -> Process:
    """Make two partitions with records, and no group."""
    process = scene.process()
    scene.create_topic(process, TOPIC, partitions=2)
    scene.append(process, TOPIC, 0, "a0", "a1")
    return scene.process()


def one(scene: Scene) -> Process:
    """Let one member have both partitions."""
    join(scene, topic(scene), "a")
    return scene.process()


def behind(scene: Scene) -> Process:
    """Let another one have joined, for which there is no target yet."""
    join(scene, one(scene), "b")
    scene.runtime.advance(2 * limits.ASSIGNMENT_MS)
    return scene.process()


def targeted(scene: Scene) -> Process:
    """Let the target be there, of which the first member has not heard."""
    beat(scene, behind(scene), "b")
    return scene.process()


def asked(scene: Scene) -> Process:
    """Let the first member be asked for a partition."""
    beat(scene, targeted(scene), "a", is_reporting=False)
    return scene.process()


def released(scene: Scene) -> Process:
    """Let the first member have given the partition up."""
    beat(scene, asked(scene), "a")
    return scene.process()


def two(scene: Scene) -> Process:
    settle(scene, behind(scene))
    return scene.process()


def due(scene: Scene) -> Process:
    """Let a third of the session time-out be spent."""
    process = two(scene)
    scene.runtime.advance(11 * MINUTE_MS)
    return process


def one_lapsed(scene: Scene) -> Process:
    process = two(scene)
    scene.runtime.advance(20 * MINUTE_MS)
    beat(scene, process, "a")
    scene.runtime.advance(11 * MINUTE_MS)
    return scene.process()


def both_lapsed(scene: Scene) -> Process:
    process = two(scene)
    scene.runtime.advance(31 * MINUTE_MS)
    return process


def static(scene: Scene) -> Process:
    process = one(scene)
    scene.ledger.answers["s1's instance"] = "s"
    join(scene, process, "s1", "s")
    settle(scene, process)
    return scene.process()


def away(scene: Scene) -> Process:
    leave(scene, static(scene), "s1", is_coming_back=True)
    return scene.process()


# Operations


def join_beside(scene: Scene, process: Process) -> None:
    """Join while another process changes the group first: the member waits in its own item, and is admitted."""
    call, rivals = process.call, ["r"]

    def beside(name: str, make: Callable[[], Any], error: Exception, *, is_write: bool = False) -> Any:
        def made() -> Any:
            answer = make()
            if rivals:  # right after the first read, whose answer is old from here on
                join(scene, scene.process(), rivals.pop())
            return answer

        return call(name, made, error, is_write=is_write)

    process.call = beside  # type: ignore[method-assign, assignment]
    join(scene, process, "b")


def sweep(scene: Scene, process: Process) -> None:
    strict_sweep(process.log, is_thorough=True, duration_ms=60 * MINUTE_MS)


def delete(scene: Scene, process: Process) -> None:
    with suppress(GroupIdNotFoundError):
        process.log.groups.delete(GROUP)
    members(scene).clear()


def take_over(scene: Scene, process: Process) -> None:
    members(scene).pop("s1", None)  # its program starts again as s2
    scene.ledger.answers["s2's instance"] = "s"
    join(scene, process, "s2", "s")


def another_takes_it(scene: Scene, process: Process) -> None:
    """Remove the member, and let another one take the partition, and begin at the mark."""
    leave(scene, process, "a")
    settle(scene, process)
    scene.ledger.answers["mark"] = mark(process)


def another_joins(scene: Scene, process: Process) -> None:
    join(scene, process, "c")


MENDS: dict[str, Action] = {"the members' next heartbeats": settle, "a join": another_joins, "the sweeper": sweep}


def _beats(name: str, *, is_reporting: bool = True) -> Action:
    return lambda scene, process: beat(scene, process, name, is_reporting=is_reporting)


def _deleted(scene: Scene, process: Process) -> None:
    """Check that a group that comes again has nothing of the one before it."""
    for name in [*members(scene)]:
        leave(scene, process, name)
    delete(scene, process)
    with pytest.raises(UnknownSubscriptionError):
        process.log.subscriptions.get(TOPIC, GROUP)
    all_settle(scene, process)


def _entry(name: str, set_up: Callable[[Scene], Process], do: Action) -> Operation:
    return Operation(name, set_up, do, MENDS, all_settle, items_at_once=25)


GROUP_OPERATIONS = [
    _entry("group: join, alone", topic, lambda scene, process: join(scene, process, "a")),
    _entry("group: join, contended", one, join_beside),
    _entry("group: target", behind, _beats("b")),
    _entry("group: ask", targeted, _beats("a", is_reporting=False)),
    _entry("group: release", asked, _beats("a")),
    _entry("group: take", released, _beats("b")),
    _entry("group: lease", due, _beats("a")),
    _entry("group: removal by a heartbeat", one_lapsed, _beats("a")),
    _entry("group: removal by the sweeper", both_lapsed, sweep),
    _entry("group: leave", two, lambda scene, process: leave(scene, process, "b")),
    _entry("group: away", static, lambda scene, process: leave(scene, process, "s1", is_coming_back=True)),
    _entry("group: takeover", away, take_over),
    Operation("group: delete", both_lapsed, delete, {"the same again": delete, **MENDS}, _deleted, 25),
    Operation(
        "group: commit as a member",
        two,
        lambda scene, process: commit(scene, process, "a", 2),
        {"another member": another_takes_it},
        the_mark_stays,
        25,
    ),
]
