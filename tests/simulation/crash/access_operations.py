"""Sessions, claims, ownership and subscriptions as entries of the crash matrix (see crash/operations.py).

Rule: at the end of every entry, epochs never decrease along the log. A grant that was answered is in the log, right
before the offset in the answer. Each session that lost access is refused. Once all have left, any client may write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import (
    FixError,
    ProducerFencedError,
    SessionExpiredError,
    SessionSeveredError,
    UnknownSubscriptionError,
)
from fenceline.format import keys
from fenceline.model.access import GRANTED, QUEUED
from fenceline.model.requests import Acknowledgement, ClaimRequest, OwnTarget
from fenceline.model.results import SessionRef
from fenceline.model.subscription import CommittedOffset
from tests.simulation.crash.access_rows import markers_of
from tests.simulation.crash.operations import Operation
from tests.simulation.crash.scene import Process, Scene, request_of
from tests.support.service import TOPIC
from tests.support.sweeping import strict_sweep

LOCK = "nightly"
GROUP = "readers"
NAME = "billing"
LEASE_MS = limits.LEASE_MS_MAX  # lasts over the shorter of the pauses, not over the longer one
FENCING, WAITING = "ExclusiveWithFencing", "WaitForExclusive"

# Clients


def session(scene: Scene, process: Process, who: str) -> str:
    made = process.log.access.create_session(lease_ms=LEASE_MS)
    scene.ledger.answers[who] = made.session_id
    return made.session_id


def claim(scene: Scene, process: Process, who: str, mode: str, partitions: Sequence[int] = (0, 1), **more: Any) -> Any:
    request = ClaimRequest(mode, tuple(partitions), session_id=scene.ledger.answers[who], **more)
    producer = process.log.access.claim(TOPIC, request)
    scene.ledger.answers[f"{who}'s claim"] = producer
    if producer.state == GRANTED:
        scene.ledger.answers.setdefault("grants", []).append(producer)
    return producer


def append_as(scene: Scene, process: Process, who: str, value: str, partition: int = 0) -> None:
    """Append under the last claim of a session."""
    granted = scene.ledger.answers[f"{who}'s claim"]
    ref = SessionRef(granted.session_id, granted.topic_epochs[partition])
    request = replace(request_of(value), session=ref)
    scene.ledger.unknown |= {record.value or b"" for record in request.records}
    answer = process.log.append(TOPIC, partition, request)
    assert answer is not None
    scene.note(TOPIC, partition, request, answer)


def own(scene: Scene, process: Process, who: str, *wanted: tuple[str, int | None], group: str | None = None) -> Any:
    owned = process.log.access.own(scene.ledger.answers[who], [OwnTarget(*one) for one in wanted], group=group)
    scene.ledger.answers[f"{who}'s resources"] = owned
    return owned


def leave(scene: Scene, process: Process, *others: str) -> None:
    """Close all sessions that are not over."""
    for who in ("holder", "claimer", "next", *others):
        if who in scene.ledger.answers:
            with suppress(SessionSeveredError):
                process.log.access.close_session(scene.ledger.answers[who])


def still_lives(scene: Scene, process: Process, who: str) -> bool:
    return process.log.access.session(scene.ledger.answers[who]).state == "live"


# Set-ups


def topic(scene: Scene) -> Process:
    """Make two partitions with records, and a session; the process knows nothing of them."""
    process = scene.process()
    scene.create_topic(process, TOPIC, partitions=2)
    scene.append(process, TOPIC, 0, "a0", "a1")
    scene.append(process, TOPIC, 1, "c0")
    session(scene, process, "claimer")
    return scene.process()


def held(scene: Scene) -> Process:
    """Let another session have both partitions, and write to one."""
    process = topic(scene)
    session(scene, process, "holder")
    claim(scene, process, "holder", "Exclusive")
    append_as(scene, process, "holder", "h0")
    return scene.process()


def held_before(scene: Scene) -> Process:
    """Let the session that had both partitions leave; the log still names it."""
    process = held(scene)
    process.log.access.close_session(scene.ledger.answers["holder"])
    return scene.process()


def waited_for(scene: Scene) -> Process:
    """Let a claimer wait, and the session that held both partitions leave just now."""
    process = held(scene)
    claim(scene, process, "claimer", WAITING)
    process.log.access.close_session(scene.ledger.answers["holder"])
    return scene.process()


def third_spent(scene: Scene) -> Process:
    """Spend so much of the lease that the next append renews it."""
    process = held(scene)
    scene.runtime.advance(LEASE_MS // 2)
    return process


def lock_owned(scene: Scene) -> Process:
    """Let a session own a lock, and write: alone to one partition, with others to the other one."""
    process = topic(scene)
    session(scene, process, "holder")
    own(scene, process, "holder", (LOCK, None))
    shared = claim(scene, process, "holder", "Shared", [1])
    scene.ledger.answers["shared claim"] = shared
    claim(scene, process, "holder", "Exclusive", [0])
    append_as(scene, process, "holder", "h0")
    return scene.process()


def subscribed(scene: Scene) -> Process:
    process = three_partitions(scene)
    process.log.subscriptions.subscribe(TOPIC, NAME)
    scene.append(process, TOPIC, 0, "more0", "more1", "more2")
    return scene.process()


def three_partitions(scene: Scene) -> Process:
    """Make more cursors than one transaction takes here."""
    process = scene.process()
    scene.create_topic(process, TOPIC, partitions=3)
    for partition in range(3):
        scene.append(process, TOPIC, partition, f"s{partition}")
    return scene.process()


# Operations and mends


def create_session(scene: Scene, process: Process) -> None:
    session(scene, process, "claimer")


def heartbeat(scene: Scene, process: Process) -> None:
    """Renew the session; if it lapsed meanwhile, the answer must say so."""
    lives = still_lives(scene, scene.process(), "claimer")
    try:
        process.log.access.heartbeat(scene.ledger.answers["claimer"])
    except SessionExpiredError:
        assert not lives
    else:
        assert lives


def heartbeat_once(scene: Scene, process: Process) -> None:
    process.log.access.heartbeat(scene.ledger.answers["claimer"])


def close_session(scene: Scene, process: Process) -> None:
    process.log.access.close_session(scene.ledger.answers["holder"])


def close_session_again(scene: Scene, process: Process) -> None:
    close_session(scene, process)
    assert process.log.access.session(scene.ledger.answers["holder"]).state == "closed"
    scene.append(process, TOPIC, 0, "more")


def claiming(mode: str, **more: Any) -> Callable[[Scene, Process], None]:
    def do(scene: Scene, process: Process) -> None:
        claim(scene, process, "claimer", mode, **more)

    return do


def again(mode: str) -> Callable[[Scene, Process], None]:
    """Return the same claim sent again: the session has what it asked for, or is over, and has nothing."""

    def mend(scene: Scene, process: Process) -> None:
        if not still_lives(scene, process, "claimer"):
            with pytest.raises(SessionExpiredError):
                claim(scene, process, "claimer", mode)
            next_claimer(scene, process)
            return
        first, second = (claim(scene, process, "claimer", mode) for _ in range(2))
        assert (first.topic_epochs, first.next_offsets, first.state) == (
            second.topic_epochs,
            second.next_offsets,
            second.state,
        )
        if first.state == GRANTED:
            append_as(scene, process, "claimer", "mine")

    return mend


def next_claimer(scene: Scene, process: Process) -> None:
    """Let another session take it over, in a higher epoch than every answered grant; all others are fenced."""
    others = [*scene.ledger.answers.get("grants", [])]
    session(scene, process, "next")
    granted = claim(scene, process, "next", FENCING)
    for other in others:
        assert all(granted.topic_epochs[p] > epoch for p, epoch in other.topic_epochs.items())
    append_as(scene, process, "next", "theirs")
    for other in others:
        partition, epoch = next(iter(other.topic_epochs.items()))
        request = replace(request_of("late"), session=SessionRef(other.session_id, epoch))
        with pytest.raises(FixError):
            process.log.append(TOPIC, partition, request)


def holder_is_fenced(scene: Scene, process: Process) -> None:
    with pytest.raises((ProducerFencedError, SessionSeveredError, SessionExpiredError)):
        append_as(scene, process, "holder", "late")


def has_its_place(scene: Scene, process: Process) -> None:
    """Assert that a waiter is in the line once; if its lease lapsed, it may no longer be there."""
    waiting = [*process.log.access.producers(TOPIC)[1]]
    assert len([one for one in waiting if one.session_id == scene.ledger.answers["claimer"]]) <= 1
    if not still_lives(scene, process, "claimer"):
        return
    queued = claim(scene, process, "claimer", WAITING)
    has_holder = still_lives(scene, process, "holder")
    assert (queued.state, queued.queue_position) == ((QUEUED, 0) if has_holder else (GRANTED, None))


def poll(scene: Scene, process: Process) -> None:
    known = scene.ledger.answers["claimer's claim"]
    producer = process.log.access.producer(TOPIC, known.producer_name, session_id=known.session_id)
    assert producer.state == GRANTED
    scene.ledger.answers["claimer's claim"] = producer
    scene.ledger.answers["grants"].append(producer)


def poll_again(scene: Scene, process: Process) -> None:
    """Let the waiter be promoted, unless its lease lapsed before; a grant outlives a lapse."""
    if still_lives(scene, process, "claimer"):
        poll(scene, process)
        append_as(scene, process, "claimer", "mine")
        return
    with suppress(SessionExpiredError):
        poll(scene, process)
    next_claimer(scene, process)


def reconnect(scene: Scene, process: Process) -> None:
    """Reconnect: it goes on in its epoch, whether its lease lapsed or not, since no other came between."""
    known = scene.ledger.answers["holder's claim"]
    producer = claim(scene, process, "holder", "Exclusive", topic_epochs=known.topic_epochs)
    assert producer.topic_epochs == known.topic_epochs


def reconnect_again(scene: Scene, process: Process) -> None:
    reconnect(scene, process)
    append_as(scene, process, "holder", "on")


def close_producer(scene: Scene, process: Process) -> None:
    known = scene.ledger.answers["holder's claim"]
    process.log.access.close_producer(TOPIC, known.producer_name, known.session_id)


def close_producer_again(scene: Scene, process: Process) -> None:
    close_producer(scene, process)
    scene.append(process, TOPIC, 0, "more")
    scene.append(process, TOPIC, 1, "more too")


def append_under_it(scene: Scene, process: Process) -> None:
    append_as(scene, process, "holder", "new")


def append_under_it_more(scene: Scene, process: Process) -> None:
    """Append once more: no other came, so it is taken, lapsed or not, and revives the session."""
    append_as(scene, process, "holder", "more")
    assert still_lives(scene, process, "holder")


def append_behind_it(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "new")


def append_more(scene: Scene, process: Process) -> None:
    scene.append(process, TOPIC, 0, "more")


def own_lock(scene: Scene, process: Process) -> None:
    own(scene, process, "claimer", (LOCK, 2))


def own_lock_again(scene: Scene, process: Process) -> None:
    """Repeat the same request: it is answered the same, with one token, whichever process died on its way.

    The session that it severed is fenced.
    """
    if not still_lives(scene, process, "claimer"):
        with pytest.raises(SessionExpiredError):
            own_lock(scene, process)
        return
    first, second = (own(scene, process, "claimer", (LOCK, 2)) for _ in range(2))
    assert first == second
    _nothing_is_due(scene)
    if "holder" in scene.ledger.answers:
        with pytest.raises(SessionSeveredError):
            append_as(scene, process, "holder", "late")


def severed_one_appends(scene: Scene, process: Process) -> None:
    """Append as a session that may be severed: it writes on, or is severed and nothing of it can land any longer."""
    try:
        append_as(scene, process, "holder", "mine")
    except SessionSeveredError:
        _nothing_is_due(scene)


def sweep_fences(scene: Scene, process: Process) -> None:
    report = strict_sweep(process.log, duration_ms=600_000, is_thorough=True)
    assert report is not None
    assert (report.is_whole, report.problems) == (True, [])
    _nothing_is_due(scene)


def _nothing_is_due(scene: Scene) -> None:
    """Assert that every severed session is fenced: the log names none of them, and shared access has another epoch."""
    stored = scene.stored()
    severed = {k.split("#")[1]: v for k, (_, v) in _sessions(stored) if v["state"] == "severed"}
    assert not any(value["fences"] for value in severed.values())
    for session_id, value in severed.items():
        for _, topic_id, partition, epoch, mode, _, state in value["holds"]:
            _, now, named = [(None, -1, None), *markers_of(stored, topic_id, partition)][-1]
            assert (now, named) != (epoch, session_id)
            assert mode == "Exclusive" or now > epoch or state == "reserved"


def _sessions(stored: Any) -> list[tuple[str, Any]]:
    return [(key, found) for key, found in stored.items() if key.startswith("sessions/")]


def own_partition(scene: Scene, process: Process) -> None:
    own(scene, process, "claimer", (f"{TOPIC}/0", 1), (LOCK, None))


def own_partition_again(scene: Scene, process: Process) -> None:
    if not still_lives(scene, process, "claimer"):
        with pytest.raises(SessionExpiredError):
            own_partition(scene, process)
        next_claimer(scene, process)
        return
    first, second = (own(scene, process, "claimer", (f"{TOPIC}/0", 1), (LOCK, None)) for _ in range(2))
    assert first == second
    ref = SessionRef(scene.ledger.answers["claimer"], first[0].fencing_token)
    request = replace(request_of("owned"), session=ref)
    answer = process.log.append(TOPIC, 0, request)
    assert answer is not None
    scene.note(TOPIC, 0, request, answer)
    holder_is_fenced(scene, process)


def release(scene: Scene, process: Process) -> None:
    process.log.access.release(scene.ledger.answers["holder"], [LOCK])


def release_again(scene: Scene, process: Process) -> None:
    with suppress(SessionExpiredError):
        release(scene, process)
    assert process.log.access.ownership(LOCK).session_id is None
    assert process.log.access.ownership(LOCK).fencing_token == 0


def access_is_whole(scene: Scene, process: Process) -> None:
    """Assert the promises of every entry (see the module's rule)."""
    stored, topic_id = scene.stored(), scene.topic(TOPIC).topic_id
    for partition in range(2):
        markers = [*markers_of(stored, topic_id, partition)]
        epochs = [epoch for _, epoch, _ in markers]
        exclusive = [epoch for _, epoch, named in markers if named is not None]
        assert epochs == sorted(epochs), "I8"
        assert exclusive == sorted(set(exclusive)), "I8"
        for granted in scene.ledger.answers.get("grants", []):
            if granted.access_mode != "Shared" and partition in granted.topic_epochs:
                key = keys.segment_key(topic_id, partition, granted.next_offsets[partition] - 1)
                assert (key, granted.topic_epochs[partition], granted.session_id) in markers
    leave(scene, process)


# Subscriptions


def subscribe(scene: Scene, process: Process) -> None:
    process.log.subscriptions.subscribe(TOPIC, NAME)


def subscribe_again(scene: Scene, process: Process) -> None:
    """Subscribe again: it begins at the end, in every partition, whichever process began to make it."""
    shown, _ = process.log.subscriptions.subscribe(TOPIC, NAME)
    assert [cursor.mark_delete_offset for cursor in shown.cursors] == [1, 1, 1]
    assert process.log.subscriptions.subscribe(TOPIC, NAME)[1] is False


def unsubscribe(scene: Scene, process: Process) -> None:
    process.log.subscriptions.unsubscribe(TOPIC, NAME)


def unsubscribe_again(scene: Scene, process: Process) -> None:
    with suppress(UnknownSubscriptionError):
        unsubscribe(scene, process)
    with pytest.raises(UnknownSubscriptionError):
        process.log.subscriptions.get(TOPIC, NAME)


def sweep_cursors(scene: Scene, process: Process) -> None:
    """Sweep: what belongs to no subscription goes, once no process can be making it any longer.

    What belongs to one stays.
    """
    scene.runtime.advance(2 * limits.UNOWNED_MS)
    strict_sweep(process.log, duration_ms=600_000, is_thorough=True)
    stored = scene.stored()
    assert not any(key.startswith("unowned/") for key in stored)
    names = {subscription.name for subscription in process.log.subscriptions.list(TOPIC)[0]}
    assert names or not any(key.startswith("cursors/") for key in stored)


def acknowledge(scene: Scene, process: Process) -> None:
    assert process.log.subscriptions.acknowledge(TOPIC, 0, NAME, Acknowledgement(cumulative=1)) == 2


def acknowledge_one(scene: Scene, process: Process) -> None:
    assert process.log.subscriptions.acknowledge(TOPIC, 0, NAME, Acknowledgement(individual=[2])) == 1


def seek(scene: Scene, process: Process) -> None:
    assert process.log.subscriptions.seek(TOPIC, 0, NAME, offset=0) == 0


OFFSETS = [CommittedOffset(TOPIC, partition, 1, f"m{partition}") for partition in range(2)]


def commit(scene: Scene, process: Process) -> None:
    process.log.subscriptions.commit(GROUP, OFFSETS)


def commit_again(scene: Scene, process: Process) -> None:
    """Commit again: all of it was committed, or nothing; and then it is."""
    before = process.log.subscriptions.committed(GROUP)[0]
    assert list(before) in ([], OFFSETS)
    commit(scene, process)
    assert list(process.log.subscriptions.committed(GROUP)[0]) == OFFSETS


SAME = "the same again"
NEXT = "the next claimer"
SWEEPER = "the sweeper"
MANY = 100


def _entry(name: str, set_up: Any, do: Any, mends: Any, holds: Any = access_is_whole, items: int = MANY) -> Operation:
    return Operation(name, set_up, do, mends, holds, items)


ACCESS_OPERATIONS = [
    _entry("create session", topic, create_session, {SAME: create_session}),
    _entry("heartbeat", topic, heartbeat_once, {SAME: heartbeat}),
    _entry("close session", held, close_session, {SAME: close_session_again, NEXT: next_claimer}),
    _entry("claim", topic, claiming("Exclusive"), {SAME: again("Exclusive"), NEXT: next_claimer}),
    _entry("claim, taking over", held, claiming(FENCING), {SAME: again(FENCING), NEXT: next_claimer}),
    _entry("claim, shared", held_before, claiming("Shared"), {SAME: again("Shared"), NEXT: next_claimer}),
    _entry("claim, waiting", held, claiming(WAITING), {SAME: has_its_place, NEXT: next_claimer}),
    _entry("claim, reconnecting", held, reconnect, {SAME: reconnect_again, NEXT: next_claimer}),
    _entry("poll that promotes", waited_for, poll, {SAME: poll_again, NEXT: next_claimer}),
    _entry("close producer", held, close_producer, {SAME: close_producer_again, NEXT: next_claimer}),
    _entry("append under a session", third_spent, append_under_it, {SAME: append_under_it_more, NEXT: next_claimer}),
    _entry("append behind an exclusive session", held_before, append_behind_it, {
        "the next append": append_more, NEXT: next_claimer, "a shared claim": again("Shared"),
    }),
    _entry("own a lock", topic, own_lock, {SAME: own_lock_again}),
    _entry("own a lock, severing", lock_owned, own_lock, {
        SAME: own_lock_again, "the severed one": severed_one_appends, NEXT: next_claimer, SWEEPER: sweep_fences,
    }),
    _entry("own a partition, severing", held, own_partition, {
        SAME: own_partition_again, NEXT: next_claimer, SWEEPER: sweep_fences,
    }),
    _entry("release", lock_owned, release, {SAME: release_again}),
    _entry("subscribe", three_partitions, subscribe, {
        SAME: subscribe_again, SWEEPER: sweep_cursors,
    }, subscribe_again, 3),
    _entry("unsubscribe", subscribed, unsubscribe, {
        SAME: unsubscribe_again, SWEEPER: sweep_cursors,
    }, unsubscribe_again, 3),
    _entry("acknowledge", subscribed, acknowledge, {SAME: acknowledge}, acknowledge),
    _entry("acknowledge individually", subscribed, acknowledge_one, {SAME: acknowledge_one}, acknowledge_one),
    _entry("seek", subscribed, seek, {SAME: seek}, seek),
    _entry("commit of a group", three_partitions, commit, {SAME: commit_again}, commit_again),
]  # fmt: skip
