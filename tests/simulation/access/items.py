"""Judges every write of the items about access: whether a waiter is passed over, and values that may only grow."""

from __future__ import annotations

from collections.abc import Sequence

from fenceline.access.resources import OwnershipItem
from fenceline.access.rules import AccessItem, Waiter
from fenceline.format import keys
from fenceline.ports import ItemKey
from tests.simulation.access.truth import AccessTruth, Place, Written, is_dead
from tests.simulation.harness.history import Operation
from tests.simulation.log.truth import Violation


def owner_key(access: AccessTruth, resource: str, group: str | None) -> ItemKey:
    """Return the key of the ownership item of a resource."""
    if "/" not in resource:
        return keys.lock_item(group, resource)
    partition = int(resource.split("/")[1])
    (topic_id,) = {topic_id for topic_id, _ in access.partitions}
    return keys.ownership_item(topic_id, partition, group)


def check(access: AccessTruth, operations: Sequence[Operation], skew_ms: float) -> None:
    """Judge each write in its turn.

    Raises:
        Violation: The first one that may not be.
    """
    _check_given_up(access, operations)
    line = _Line(access, skew_ms)
    last: dict[ItemKey, str] = {}  # the session that was granted each resource last
    for written in access.written:
        for place, (before, after) in written.access.items():
            if after.epoch < before.epoch:
                raise Violation(f"I8: the highest epoch reserved went back: {before} {after}")
            line.follow(written, place, before, after)
        for key, (owned, now) in written.owners.items():
            _check_owner(key, owned, now, last.get(key))
            if now.session_id is not None:
                last[key] = now.session_id


def _check_owner(key: ItemKey, before: OwnershipItem, after: OwnershipItem, last: str | None) -> None:
    if after.fencing_token < before.fencing_token:
        raise Violation(f"{key}: the fencing token went back: {before} {after}")
    is_new = after.session_id not in (None, last)
    if is_new and after.fencing_token <= before.fencing_token:
        raise Violation(f"{key}: another session got the same fencing token: {before} {after}")
    if after.generation < before.generation and after.generation != 1:
        raise Violation(f"{key}: the generation went back: {before} {after}")


def _check_given_up(access: AccessTruth, operations: Sequence[Operation]) -> None:
    """Check that a refused claim has given up all that it had reserved, unless its session has another one open."""
    claims = [o for o in operations if o.kind in ("claim", "own") and o.request.session_id is not None]
    for operation in claims:
        error = operation.error
        if error is None or error.next_step not in ("fix", "retry"):
            continue
        session_id = operation.request.session_id
        others = [o for o in claims if o is not operation and o.request.session_id == session_id]
        if any(other.began < operation.ended and other.ended > operation.began for other in others):
            continue
        if any(not other.is_answered and other.error is None for other in others):
            continue
        if any(other.code == "OUTCOME_UNKNOWN" for other in others):
            continue
        session = access.session(session_id).at(operation.ended)
        if session is not None and session.is_final:
            # Nothing of it counts any longer.
            continue
        for place, partition in access.partitions.items():
            claim = partition.items.at(operation.ended).claim
            if claim is not None and claim.session_id == session_id:
                raise Violation(f"{operation}: answered {error.code}, but {place} is still reserved for it: {claim}")


class _Line:
    """The waiting lines (FIFO): no claim passes over a waiter that never let its lease come near its end."""

    def __init__(self, access: AccessTruth, skew_ms: float) -> None:
        self._access = access
        self._skew_ms = skew_ms

    def follow(self, written: Written, place: Place, before: AccessItem, after: AccessItem) -> None:
        gone = [w for w in before.waiting if w not in after.waiting]
        claim = after.claim if after.claim != before.claim else None
        promoted = next((w for w in before.waiting if claim is not None and w.name == claim.name), None)
        if claim is None:
            fencers: set[tuple[str, str]] = set()
        else:
            fencers = {claim.name} if promoted is None else set()
        for waiter in gone:
            is_own = waiter == promoted or waiter.name in written.closed
            if not is_own and not fencers and self._kept_polling(waiter, written, place):
                raise Violation(f"FIFO: {waiter} kept polling and lost its place on {place}: {before} {after}")
        if promoted is None:
            return
        for waiter in before.waiting:
            if waiter.ticket < promoted.ticket and self._kept_polling(waiter, written, place):
                raise Violation(f"FIFO: {promoted} was promoted before {waiter} on {place}")

    def _kept_polling(self, waiter: Waiter, written: Written, place: Place) -> bool:
        """Return True if it was in all its lines, and its lease, by any clock, was never over since it came."""
        topic_id, _ = place
        lines = [self._access.of(topic_id, p).items.at(written.step - 1) for p in waiter.partitions]
        if not all(waiter in item.waiting for item in lines):
            return False
        since = self._queued_at(waiter, place)
        moments = [
            w for w in self._access.written if since <= w.step < written.step and waiter.session_id in w.sessions
        ]
        sessions = [(w.now_ms, w.sessions[waiter.session_id][0]) for w in moments if w.step > since]
        sessions.append((written.now_ms, self._access.session(waiter.session_id).at(written.step - 1)))
        return all(not is_dead(session, now_ms, self._skew_ms) for now_ms, session in sessions)

    def _queued_at(self, waiter: Waiter, place: Place) -> int:
        items = self._access.of(*place).items
        return next(step for step, item in zip(items.steps, items.values, strict=True) if waiter in item.waiting)
