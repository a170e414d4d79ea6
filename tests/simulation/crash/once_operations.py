"""Ends of several transactions, versions and extensions as entries of the crash matrix (see crash/operations.py).

Rule: at the end of every entry, the members of one end have one outcome, which is a commit if, and only if, their
version is stored (``ends_are_whole``).
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import AlreadyCommittedError, InvalidTxnStateError, ProducerFencedError
from fenceline.model.transaction import OnceMark, TransactionMember
from tests.simulation.crash.operations import Operation
from tests.simulation.crash.scene import Died, Fate, Process, Scene
from tests.simulation.crash.transaction_operations import (
    GET,
    MANY,
    NEXT,
    READER,
    REBUILD,
    SAME,
    SWEEPER,
    commit_again,
    given,
    init_again,
    lose_items,
    older_instance,
    sweep_them,
    topic,
)
from tests.simulation.crash.transaction_rows import transactions_of
from tests.simulation.crash.transaction_scene import (
    ID,
    KnownTransaction,
    begin,
    end,
    get_each,
    in_time,
    known_transaction,
    produce,
    read_committed,
    read_each,
    shown,
    transactions_are_whole,
)

APP, VERSION = "query", 7
RUN, OTHER_RUN = "run", "other"
EXTENDED_MS = 3 * 3_600_000  # beyond the longer of the pauses
PLACES = {"task0": (0, 1), "task1": (0,), "driver": (1,)}  # the partitions of each member


def _begin_each(scene: Scene, process: Process, run: str) -> None:
    members = [f"{run}-{name}" for name in PLACES]
    for transactional_id, partitions in zip(members, PLACES.values(), strict=True):
        begin(scene, process, transactional_id)
        for partition in partitions:
            produce(scene, process, f"{transactional_id}:{partition}", partition, transactional_id)
    scene.ledger.answers.setdefault("runs", {})[run] = [known_transaction(scene, one) for one in members]


def _members(scene: Scene, run: str) -> list[KnownTransaction]:
    members: list[KnownTransaction] = scene.ledger.answers["runs"][run]
    return members


def _close(scene: Scene, process: Process, run: str = RUN, *, is_commit: bool = True) -> None:
    members = _members(scene, run)
    asked = [one.asked for one in members]
    for one in members:
        one.asked = is_commit
    once = OnceMark(APP, VERSION, run) if is_commit else None
    named = [TransactionMember(one.transactional_id, one.pair) for one in members]
    try:
        answer = process.log.transactions.end_all(named, is_commit, once)
    except (AlreadyCommittedError, InvalidTxnStateError, ProducerFencedError):
        for one, before in zip(members, asked, strict=True):
            one.asked = before
        raise
    for one, following in zip(members, answer, strict=True):
        assert following.pair > one.pair
        one.is_answered = True
    ended = {one.transactional_id for one in members}
    left = [one for one in transactions_of(scene.stored()).values() if one.transactional_id in ended]
    assert not any(one.is_prepared for one in left), left


def _is_committed(process: Process) -> bool:
    return _stored(process)[0] == VERSION


def _stored(process: Process) -> tuple[int, str | None]:
    mark = process.log.transactions.once(APP)
    return mark.version, mark.note


# Set-ups


def several(scene: Scene) -> Process:
    """Let two tasks and their driver have a transaction each."""
    _begin_each(scene, topic(scene), RUN)
    return scene.process()


def several_decided(scene: Scene) -> Process:
    """Let a process die right after the decision over all of them, and its client wait for long."""
    victim, at = several(scene), 0
    while not any(item.is_prepared for item in transactions_of(scene.stored()).values()):
        victim.arm(Fate.DIES_AFTER, at)
        with suppress(Died):
            commit_all(scene, victim)
        victim, at = scene.process(), at + 1
    scene.runtime.advance(limits.MEETING_AGE_MS)
    return scene.process()


def several_ended(scene: Scene) -> Process:
    commit_all(scene, several(scene))
    return scene.process()


def one_begun(scene: Scene) -> Process:
    process = given(scene)
    produce(scene, process, "t0")
    return scene.process()


# Operations


def commit_all(scene: Scene, process: Process) -> None:
    _close(scene, process)


def abort_all(scene: Scene, process: Process) -> None:
    _close(scene, process, is_commit=False)


def commit_one(scene: Scene, process: Process) -> None:
    """Commit one transaction with the version."""
    known = known_transaction(scene)
    known.asked = True
    process.log.transactions.end(ID, known.pair, True, OnceMark(APP, VERSION, RUN))
    known.is_answered = True


def raise_alone(scene: Scene, process: Process) -> None:
    assert list(process.log.transactions.end_all([], True, OnceMark(APP, VERSION, RUN))) == []


def forget(scene: Scene, process: Process) -> None:
    scene.ledger.answers["forgotten"] = True
    process.log.transactions.forget_once(APP)


def extend(scene: Scene, process: Process) -> None:
    at_least = scene.runtime.now_ms() + EXTENDED_MS
    assert process.log.transactions.extend(ID, known_transaction(scene).pair, EXTENDED_MS) >= at_least


# Mends


def another_run(scene: Scene, process: Process) -> None:
    """Let another run commit the same version: one of the two does, whichever was first."""
    first, second = (RUN, OTHER_RUN) if _is_committed(process) else (OTHER_RUN, RUN)
    _begin_each(scene, process, OTHER_RUN)
    if first == OTHER_RUN:
        _close(scene, process, OTHER_RUN)
    with pytest.raises(AlreadyCommittedError) as refused:
        _close(scene, process, second)
    assert (refused.value.extra["version"], refused.value.extra["note"]) == (VERSION, first)


def next_of_one(scene: Scene, process: Process) -> None:
    """Ask for the id of one member: it has the outcome of all, or the end is refused whole."""
    name, is_committed = _members(scene, RUN)[1].transactional_id, _is_committed(process)
    begin(scene, process, name)
    with pytest.raises(AlreadyCommittedError if is_committed else ProducerFencedError) as refused:
        commit_all(scene, process)
    assert is_committed or refused.value.extra["transactional_id"] == name


def abort_all_too_late(scene: Scene, process: Process) -> None:
    """Ask for the other outcome of all: it is the one in force, or is refused for all."""
    if not _is_committed(process):
        abort_all(scene, process)
        return
    with pytest.raises(InvalidTxnStateError):
        abort_all(scene, process)


def read_them(scene: Scene, process: Process) -> None:
    """Read committed records, a second apart: a reader ends what holds it up, one transaction at a time."""
    for _ in PLACES:
        read_each(scene, process)
        scene.runtime.advance(limits.MEETING_AGE_MS)
    read_committed(scene, process)


def raise_again(scene: Scene, process: Process) -> None:
    """Raise it again: it is raised now, or was."""
    with suppress(AlreadyCommittedError):
        raise_alone(scene, process)
    assert _stored(process) == (VERSION, RUN)


def commit_one_again(scene: Scene, process: Process) -> None:
    commit_one(scene, process)
    assert _stored(process) == (VERSION, RUN)


def forget_again(scene: Scene, process: Process) -> None:
    forget(scene, process)
    assert _stored(process) == (-1, None)


def commit_after_all(scene: Scene, process: Process) -> None:
    """Let another run commit the version: it is forgotten, or not yet."""
    _begin_each(scene, process, OTHER_RUN)
    if not _is_committed(process):
        _close(scene, process, OTHER_RUN)
        return
    with pytest.raises(AlreadyCommittedError):
        _close(scene, process, OTHER_RUN)


def extend_again(scene: Scene, process: Process) -> None:
    """Extend it again, unless its time-out is due by now; then it ends as its producer asks."""
    if in_time(scene, lambda: extend(scene, process)):
        end(scene, process)


# Promises


def ends_are_whole(scene: Scene, process: Process) -> None:
    """Assert that the members of each end have one outcome, and that a version that is stored shows its members."""
    transactions_are_whole(scene, process)
    if scene.ledger.answers.get("offsets are lost"):
        return  # after a rebuild members may end apart, and no version is known
    values = {value for partition in (0, 1) for value in shown(process, partition)}
    stored = _stored(process)
    for run, members in scene.ledger.answers.get("runs", {}).items():
        outcomes = {value in values for one in members for sent in one.sent.values() for value in sent}
        assert len(outcomes) == 1, f"I26: members that ended apart: {members}"
        if not scene.ledger.answers.get("forgotten"):
            assert outcomes == {stored == (VERSION, run)}, f"I27: {stored}, though {run} is {outcomes}"


def _entry(name: str, set_up: Any, do: Any, mends: Any, holds: Any = ends_are_whole) -> Operation:
    return Operation(name, set_up, do, mends, holds, MANY)


BY_OTHERS = {READER: read_them, GET: get_each, SWEEPER: sweep_them}
ANOTHER = "another run of the version"

ONCE_OPERATIONS = [
    _entry("end of several: commit", several, commit_all, {
        SAME: commit_all, ANOTHER: another_run, "the other end": abort_all_too_late, NEXT: next_of_one,
        **BY_OTHERS, REBUILD: lose_items,
    }),
    _entry("end of several: abort", several, abort_all, {SAME: abort_all, **BY_OTHERS}),
    _entry("decision over several met by a reader", several_decided, read_each, {SAME: commit_all, **BY_OTHERS}),
    _entry("end of one with a version", one_begun, commit_one, {SAME: commit_one_again, SWEEPER: sweep_them}),
    _entry("a version raised alone", topic, raise_alone, {SAME: raise_again}),
    _entry("forget a version", several_ended, forget, {SAME: forget_again, ANOTHER: commit_after_all}),
    _entry("extend", one_begun, extend, {
        SAME: extend_again, "END_TXN": commit_again, NEXT: init_again, "the older instance": older_instance,
        SWEEPER: sweep_them,
    }),
]  # fmt: skip
