"""Judges the records in the log by the session and the epoch that wrote them, and by that session's access (promise 3,
I8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tests.simulation.access import items
from tests.simulation.access.requests import Own, Sending
from tests.simulation.access.truth import AccessTruth, Entry, PartitionAccess, Place
from tests.simulation.harness.history import Operation
from tests.simulation.log.truth import Truth, Violation


def check_log(access: AccessTruth, where: Place, sendings: Mapping[str, Operation]) -> None:
    partition = access.partitions[where]
    entries, newest = partition.entries, -1
    for entry, behind in zip(entries, [*entries[1:], None], strict=True):
        before, after, at = entry.before, entry.after, f"t/{where[1]} at {entry.base_offset}"
        if entry.leader_epoch < before.epoch:
            raise Violation(f"I8: {at}: epoch {entry.leader_epoch} after {before.epoch}")
        if entry.is_marker:
            _check_marker(access, partition, entry, at)
            if entry.previous not in (None, newest):
                raise Violation(f"{at}: the ACCESS marker before it is at {newest}, and not at {entry.previous}")
            newest = entry.base_offset
        elif entry.leader_epoch != before.epoch or after != before:
            raise Violation(f"I8: {at}: epoch {entry.leader_epoch} in {before}")
        elif entry.attempt is not None and entry.attempt in sendings:
            _check_record(access, where, entry, behind, sendings[entry.attempt])


def _check_marker(access: AccessTruth, partition: PartitionAccess, entry: Entry, at: str) -> None:
    before, after, item = entry.before, entry.after, partition.items.at(entry.step)
    if after.session_id is not None:
        if after.epoch <= before.epoch:
            raise Violation(f"I8: {at}: {after} after {before}: within one epoch there is one exclusive session")
        if item.epoch < after.epoch:
            raise Violation(f"{at}: a marker of an epoch that no claim reserved: {after} {item}")
        return
    if after.epoch == before.epoch:
        if before.session_id is None:
            raise Violation(f"{at}: a marker back to shared where access is shared: {before}")
        session = access.session(before.session_id).at(entry.step)
        is_severed = session is not None and session.state == "severed"
        if _is_in_force(partition, entry) and not is_severed:
            raise Violation(f"{at}: access is shared again, but that {before} ended was not written before: {item}")


def _is_in_force(partition: PartitionAccess, entry: Entry) -> bool:
    """Return True if the item says that the session that the log names has not ended."""
    item, before = partition.items.at(entry.step), entry.before
    named = [h for h in (item.granted, item.claim) if h is not None and not h.is_ended]
    return any((h.session_id, h.epoch) == (before.session_id, before.epoch) for h in named)


def _check_record(access: AccessTruth, where: Place, entry: Entry, behind: Entry | None, operation: Operation) -> None:
    """Check that a session that lost access wrote nothing from then on (promise 3); the marker in the log decides."""
    sending: Sending = operation.request
    before, at = entry.before, f"t/{where[1]} at {entry.base_offset}"
    if sending.session is not None:
        modes = access.modes_granted(*sending.session, where, entry.step)
        if not any(before.takes(*sending.session, is_exclusive=mode == "Exclusive") for mode in modes):
            raise Violation(f"promise 3: {at}: a record of {operation}, granted {modes}, but access is {before}")
        return
    if before.session_id is None:
        return
    is_marked = behind is not None and behind.is_marker and behind.step == entry.step
    if not is_marked or behind is None or behind.after.session_id is not None or behind.after.epoch != before.epoch:
        raise Violation(f"{at}: a record without a session under {before}, and no marker back to shared: {operation}")
    if _is_in_force(access.partitions[where], entry):
        raise Violation(f"{at}: a record without a session, but that {before} ended was not written: {operation}")


def check_stored_once(truth: Truth, sendings: Mapping[str, Operation]) -> None:
    seen: dict[tuple[str, int], str] = {}
    for attempt_id, places in truth.found.items():
        if attempt_id not in sendings:
            raise Violation(f"no client sent what is stored: {attempt_id}")
        operation = sendings[attempt_id]
        if len(places) > 1:
            raise Violation(f"{operation}: stored {len(places)} times")
        log, batch = places[0]
        if list(batch.values) != operation.request.values or log.partition != operation.partition:
            raise Violation(f"{operation}: stored otherwise than it was sent: {batch}")
        other = seen.setdefault((operation.request.batch, log.partition), attempt_id)
        if other != attempt_id:
            raise Violation(f"{operation}: stored twice, as {other} and {attempt_id}")


# Severed sessions


def check_severed(
    access: AccessTruth,
    partitions: Mapping[int, PartitionAccess],
    operations: Sequence[Operation],
    sendings: Mapping[str, Operation],
) -> None:
    """Check that no record of a session lands after an answer that depends on that session's end."""
    over: dict[str, tuple[int, Operation]] = {}
    severed_for = _severed_for(access)
    for operation in operations:
        gone: list[str] = []
        if operation.kind == "own" and operation.is_answered:
            request: Own = operation.request
            for session_id, (claimer, step) in severed_for.items():
                if claimer == request.session_id and step <= operation.ended:
                    gone += [session_id] if _names(request, access, session_id, step, operation) else []
        elif operation.code == "SESSION_SEVERED":
            gone = [_session_of(operation)]
        for session_id in gone:
            if session_id not in over or operation.ended < over[session_id][0]:
                over[session_id] = (operation.ended, operation)
    for partition in partitions.values():
        for entry in partition.entries:
            sending = None if entry.attempt is None else sendings.get(entry.attempt)
            sender = None if sending is None else sending.request.session
            if sender is not None and sender[0] in over and entry.step > over[sender[0]][0]:
                owner = over[sender[0]][1]
                raise Violation(f"promise 3: {entry.attempt} of a severed session landed after the answer to {owner}")


def _severed_for(access: AccessTruth) -> dict[str, tuple[str, int]]:
    """Return, by severed session, the session for which it was severed, and the step at which."""
    found = {}
    for written in access.written:
        severed = [
            i for i, (a, b) in written.sessions.items() if b.state == "severed" and (a is None or a.state != b.state)
        ]
        claimers = {owned.session_id for _, owned in written.owners.values() if owned.session_id is not None}
        for session_id in severed:
            if len(claimers) != 1:
                raise Violation(f"{session_id} was severed by a write for {claimers}")
            found[session_id] = (claimers.pop(), written.step)
            claimers = {found[session_id][0]}
    return found


def _names(request: Own, access: AccessTruth, session_id: str, step: int, operation: Operation) -> bool:
    """Return True if the request is of a resource that the session was severed for."""
    written = next(w for w in access.written if w.step == step)
    wanted = {items.owner_key(access, name, request.group) for name, _ in request.resources}
    return any(key in wanted and session_id in owned.severed for key, (_, owned) in written.owners.items())


def _session_of(operation: Operation) -> str:
    request: Any = operation.request
    if isinstance(request, Sending):
        assert request.session is not None
        return request.session[0]
    if isinstance(request, tuple):
        return str(request[0])
    return str(request if isinstance(request, str) else request.session_id)
