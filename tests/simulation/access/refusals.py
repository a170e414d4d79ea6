"""Judges whether a refusal about access was true at some moment between the request and the answer, by some clock.

A judge returns the reason why a refusal was never true, or ``None``.

Rule: only the cause of a refusal is judged.

Not here: the table itself, which is judged cell by cell elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline.access.rules import AccessItem, Holder
from fenceline.access.session_item import SessionItem
from tests.simulation.access import items as access_items
from tests.simulation.access.requests import Claim, Own, Sending
from tests.simulation.access.truth import AccessTruth, PartitionAccess, is_dead, is_live
from tests.simulation.harness.history import Operation

STORES = {"STORE_UNAVAILABLE", "CONTENDED", "OUTCOME_UNKNOWN"}
SESSIONS = {"SESSION_SEVERED", "SESSION_EXPIRED"}
CODES: Mapping[str, set[str]] = {
    "create": {"TOPIC_ALREADY_EXISTS", *STORES},
    "producer-id": STORES,
    "session": STORES,
    "heartbeat": {*STORES, *SESSIONS},
    "close": {*STORES, "SESSION_SEVERED"},
    "append": {*STORES, *SESSIONS, "PRODUCER_FENCED", "PRODUCER_BUSY"},
    "claim": {*STORES, *SESSIONS, "PRODUCER_FENCED", "PRODUCER_BUSY"},
    "poll": {*STORES, *SESSIONS, "PRODUCER_FENCED", "UNKNOWN_PRODUCER"},
    "close-producer": {*STORES, "SESSION_SEVERED", "PRODUCER_FENCED", "UNKNOWN_PRODUCER"},
    "own": {*STORES, *SESSIONS, "RESOURCE_OWNED", "STALE_GENERATION"},
    "release": {*STORES, *SESSIONS},
    "read": {*STORES, *SESSIONS, "OWNER_FENCED"},
    "sweep": STORES,
    "look": {*STORES, *SESSIONS, "PRODUCER_FENCED", "UNKNOWN_PRODUCER"},
}


@dataclass(frozen=True)
class TimedAnswer:
    """An answer, and the moments between which it must have been true."""

    access: AccessTruth
    topic_id: str
    operation: Operation
    skew_ms: float
    operations: Sequence[Operation]

    @property
    def request(self) -> Any:
        return self.operation.request

    def partition(self, partition: int) -> PartitionAccess:
        return self.access.of(self.topic_id, partition)

    def items(self, partition: int) -> Sequence[AccessItem]:
        return self.partition(partition).items.between(self.operation.began, self.operation.ended)

    def sessions(self, session_id: str) -> Sequence[SessionItem | None]:
        return self.access.session(session_id).between(self.operation.began, self.operation.ended)

    def may_be_live(self, session_id: str) -> bool:
        """Return True if some clock may have taken the session for live."""
        return any(is_live(s, self.operation.began_ms, self.skew_ms) for s in self.sessions(session_id))

    def may_be_dead(self, session_id: str) -> bool:
        return any(is_dead(s, self.operation.ended_ms, self.skew_ms) for s in self.sessions(session_id))

    def was_surely_live(self, session_id: str) -> bool:
        return not self.may_be_dead(session_id)


def _fenced(timed: TimedAnswer) -> str | None:
    request = timed.request
    if isinstance(request, Sending):
        return _append_fenced(timed, request)
    if isinstance(request, Claim):
        return _claim_fenced(timed, request)
    return None


def _append_fenced(timed: TimedAnswer, sending: Sending) -> str | None:
    assert sending.session is not None
    found, operation, error = timed.partition(timed.operation.partition), timed.operation, timed.operation.error
    states = found.log.between(operation.began, operation.ended)
    epochs = {state.epoch for state in states}
    if error is not None and error.extra["topic_epoch"] not in epochs:
        return f"the epoch was {epochs}"
    if all(state.takes(*sending.session, is_exclusive=sending.mode == "Exclusive") for state in states):
        return f"it had access all the time: {states}"
    return None


def _claim_fenced(timed: TimedAnswer, claim: Claim) -> str | None:
    epochs = claim.topic_epochs
    for p in claim.partitions:
        found = timed.partition(p)
        if epochs is not None:
            for item in timed.items(p):
                own = [h for h in (item.granted, *item.shared) if h is not None]
                is_ended = any(h.session_id == claim.session_id and h.epoch == epochs[p] and h.is_ended for h in own)
                if is_ended:
                    return None
            if {a.epoch for a in found.log.between(timed.operation.began, timed.operation.ended)} != {epochs[p]}:
                return None
        if _others(timed, p, claim.session_id):
            return None
        if len(found.log.between(timed.operation.began, timed.operation.ended)) > 1:
            # Another claim may have come first.
            return None
    return "no session was in its way"


def _busy(timed: TimedAnswer) -> str | None:
    request = timed.request
    if isinstance(request, Claim):
        if any(_others(timed, p, request.session_id) for p in request.partitions):
            return None
        return "no session was in its way"
    found, error = timed.partition(timed.operation.partition), str(timed.operation.error)
    named = {a for a in found.log.between(timed.operation.began, timed.operation.ended) if a.session_id is not None}
    is_named = any(f"session_id={a.session_id[:8]} epoch={a.epoch} " in error for a in named if a.session_id)
    if is_named and any(timed.may_be_live(access.session_id) for access in named if access.session_id):
        return None
    return f"I4: no such session that is live had exclusive access: {named}"


def _others(timed: TimedAnswer, partition: int, session_id: str | None) -> bool:
    """Return True if another session, or another producer of this one, was in the way at some moment."""
    found: list[tuple[str, str]] = []
    for item in timed.items(partition):
        holders: list[Holder | None] = [item.granted, item.claim, *item.shared]
        found += [h.name for h in holders if h is not None and not h.is_ended and not h.is_closed]
        found += [w.name for w in item.waiting]
    return any(timed.may_be_live(owner) for owner, _ in found)


def _severed(timed: TimedAnswer) -> str | None:
    return _never(timed, lambda session: session is not None and session.state == "severed")


def _expired(timed: TimedAnswer) -> str | None:
    """Return why SESSION_EXPIRED was never true.

    For an append it is true only of what was closed, for anything else of what lapsed, too.
    """
    if isinstance(timed.request, Sending):
        assert timed.request.session is not None
        place = (timed.topic_id, timed.operation.partition)

        def is_closed(session: SessionItem | None) -> bool:
            held = () if session is None else session.holds
            return session is None or session.is_final or any(h.place == place and h.state == "closed" for h in held)

        return _never(timed, is_closed)
    session_id = _session_id(timed)
    if session_id is None or timed.may_be_dead(session_id):
        return None
    return "it was live all the time"


def _never(timed: TimedAnswer, is_so: Callable[[SessionItem | None], bool]) -> str | None:
    session_id = _session_id(timed)
    if session_id is None:
        return None  # one that the claim itself made
    sessions = timed.sessions(session_id)
    return None if any(is_so(session) for session in sessions) else f"its session was {sessions}"


def _session_id(timed: TimedAnswer) -> str | None:
    request = timed.request
    if isinstance(request, Sending):
        return None if request.session is None else request.session[0]
    if isinstance(request, tuple):
        return str(request[0])
    if isinstance(request, str):
        return request if timed.operation.kind != "look" else None
    return None if request is None else request.session_id


def _stale(timed: TimedAnswer) -> str | None:
    request: Own = timed.request
    for name, asked in request.resources:
        key = access_items.owner_key(timed.access, name, request.group)
        owned = timed.access.owner(key).between(timed.operation.began, timed.operation.ended)
        if asked is not None and any(one.generation > asked for one in owned):
            return None
    return "no higher generation was granted"


def _owned(timed: TimedAnswer) -> str | None:
    request: Own = timed.request
    for name, asked in request.resources:
        if asked is not None:
            continue
        if request.group is None and "/" in name:
            if _others(timed, int(name.split("/")[1]), request.session_id):
                return None
            continue
        key = access_items.owner_key(timed.access, name, request.group)
        owned = timed.access.owner(key).between(timed.operation.began, timed.operation.ended)
        others = {one.session_id for one in owned} - {None, request.session_id}
        if any(timed.may_be_live(other) for other in others if other is not None):
            return None
    return "no live session owned any of it"


def _owner_fenced(timed: TimedAnswer) -> str | None:
    request, operation = timed.request, timed.operation
    key = access_items.owner_key(timed.access, f"t/{operation.partition}", request.group)
    owned = timed.access.owner(key).between(operation.began, operation.ended)
    if request.session_id is not None:
        is_so = any(one.session_id != request.session_id for one in owned)
        return None if is_so else f"it owned it all the time: {owned}"
    owners = {one.session_id for one in owned} - {None}
    if any(timed.may_be_live(owner) for owner in owners if owner is not None):
        return None
    return f"no live session owned it: {owned}"


def _unknown(timed: TimedAnswer) -> str | None:
    """Return why UNKNOWN_PRODUCER was never true.

    For a producer that its own session polls it is true only once the producer, or its session, was closed.
    """
    if timed.operation.kind != "poll":
        return None
    session_id, name, _ = timed.request
    is_closed = any((session_id, name) in w.closed for w in timed.access.written if w.step <= timed.operation.ended)
    return None if is_closed or _never(timed, lambda s: s is not None and s.is_final) is None else "it was not closed"


REFUSALS: Mapping[str, Callable[[TimedAnswer], str | None]] = {
    "PRODUCER_FENCED": _fenced,
    "PRODUCER_BUSY": _busy,
    "SESSION_SEVERED": _severed,
    "SESSION_EXPIRED": _expired,
    "STALE_GENERATION": _stale,
    "RESOURCE_OWNED": _owned,
    "OWNER_FENCED": _owner_fenced,
    "UNKNOWN_PRODUCER": _unknown,
}
