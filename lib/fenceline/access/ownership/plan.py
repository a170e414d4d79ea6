"""The changes of one request to own resources, as a pure function of what was read (DESIGN.md, "Severing").

Rule: all resources are judged before any change, so a refusal severs no session. Then all changes go into one item
transaction, conditional on the versions that were read. It has the claimer's session, each resource's ownership, and
for write access the partition's access item. It also has every session that this request
severs, and every lapsed session that must not renew its lease meanwhile.

Not here: reads and writes (``own``, ``snapshot``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from fenceline import limits
from fenceline.access import hold_limits, rules
from fenceline.access import session as sessions
from fenceline.access.ownership.rules import Granted, Owner, OwnershipItem, decide, taken
from fenceline.access.resources import Resource
from fenceline.access.rules import AccessItem, Claimant, Holder, Liveness, PartitionAccess
from fenceline.access.session import ENDED, RESERVED, Hold, Owned, SessionItem
from fenceline.errors import FencelineError, ThrottledError
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE
from fenceline.ports import Change, Check, ItemKey, Put
from fenceline.runtime import Runtime

Held: TypeAlias = Mapping[tuple[str, int], AccessItem]  # by topic_id and partition


@dataclass(frozen=True, slots=True)
class Found:
    """One resource as it was read."""

    resource: Resource
    item: OwnershipItem
    version: int | None
    view: PartitionAccess | None  # of the partition, for write access

    def session_ids(self) -> set[str]:
        """Return the sessions that must be read to judge it."""
        if self.view is not None:
            return {holder.session_id for holder in self.view.exclusives()}
        return set() if self.item.session_id is None else {self.item.session_id}


@dataclass(frozen=True, slots=True)
class Planned:
    """One resource as it is granted."""

    resource: Resource
    item: OwnershipItem
    is_kept: bool
    is_pending: bool = False  # write access without its marker or confirmation

    @property
    def holder(self) -> Holder:
        """The claimer's reservation, by the token."""
        return Holder(self.item.session_id or "", self.item.fencing_token, "")

    @property
    def hold(self) -> Hold:
        """The hold in the claimer's session, once it is granted."""
        resource = self.resource
        place = resource.topic, resource.topic_id, resource.partition
        return Hold(*place, self.item.fencing_token, EXCLUSIVE, "")

    @property
    def access_key(self) -> ItemKey:
        return keys.access_item(self.resource.topic_id, self.resource.partition)


@dataclass(frozen=True, slots=True)
class Plan:
    """The outcome of one request: what is granted, and the changes."""

    planned: Sequence[Planned]
    changes: Sequence[Change]


def liveness_of(known: Mapping[str, SessionItem], now_ms: int) -> Liveness:
    def is_live(session_id: str) -> bool:
        session = known.get(session_id)
        return session is not None and session.is_live(now_ms)

    def is_gone(session_id: str) -> bool:
        session = known.get(session_id)
        return session is None or session.is_final

    return Liveness(is_live, is_gone, lambda _: False)  # an owner fails all waiters


def owners(found: Found, liveness: Liveness) -> list[Holder]:
    """Return the resource's owners now: for write access, its live exclusive holders of any kind."""
    if found.view is not None:
        return rules.holders(found.view, liveness)
    owner = found.item.session_id
    return [] if owner is None or not liveness.is_live(owner) else [Holder(owner, found.item.fencing_token, "")]


def plan(
    claimer: SessionItem,
    wanted: Sequence[tuple[Found, int | None]],
    known: Mapping[str, SessionItem],
    held: Held,
    *,
    now_ms: int,
    runtime: Runtime,
) -> Plan:
    """Judge a request, and return what it is granted and what it changes.

    Args:
        claimer: The session, live and judged.
        wanted: Each resource, and the generation asked for.
        known: The sessions that these name, if they exist.
        held: What the claimer holds already, where it might hold too much.

    Raises:
        StaleGenerationError, ResourceOwnedError: The first resource that is refused.
        ThrottledError: It is too much for one session, or for one transaction.
    """
    known = {**known, claimer.session_id: claimer}
    liveness = liveness_of(known, now_ms)
    judged = [_judge(claimer.session_id, found, asked, liveness, known) for found, asked in wanted]
    draft = _OwnDraft(claimer.session_id, known, held, now_ms, runtime)
    planned = [draft.grant(found, *verdict) for (found, _), verdict in zip(wanted, judged, strict=True)]
    return Plan(planned, draft.all_changes())


def _judge(
    claimer: str, found: Found, asked: int | None, liveness: Liveness, known: Mapping[str, SessionItem]
) -> tuple[Granted, Holder | None, Sequence[str]]:
    """Return what is granted, what the claimer has of it already, and which sessions are severed.

    Raises:
        StaleGenerationError, ResourceOwnedError: The resource is refused.
    """
    held = owners(found, liveness)
    others = tuple({holder.session_id: None for holder in held if holder.session_id != claimer})
    # The reservation of a producer of the claimer is not the claimer's own yet: it loses to this request.
    claim = None if found.view is None else found.view.item.claim
    mine = [h for h in held if h.session_id == claimer and (h != claim or not h.producer_name)]
    owner = Owner.OTHER if others else Owner.SAME if mine else Owner.NONE
    owner_named = sessions.named_to_others(known.get(others[0])) if others else ""
    verdict = decide(found.resource.name, found.item.generation, owner, asked, owner_named=owner_named)
    if isinstance(verdict, FencelineError):
        raise verdict
    # The later of its grant and its reservation counts: a token only grows.
    return verdict, mine[-1] if verdict.is_kept else None, others


class _OwnDraft:
    """The sessions and the changes of a request that is granted."""

    def __init__(
        self, claimer: str, known: Mapping[str, SessionItem], held: Held, now_ms: int, runtime: Runtime
    ) -> None:
        self._claimer = claimer
        self._read = known
        self._held = held
        self._sessions = dict(known)
        self._now_ms = now_ms
        self._runtime = runtime
        self._changes: list[Change] = []
        self._unchanged = {claimer}  # sessions that must still be what they were

    def grant(self, found: Found, granted: Granted, mine: Holder | None, others: Sequence[str]) -> Planned:
        resource = found.resource
        for other in others:
            self._sever(other)
        self._enter(Owned(resource.group, resource.name, resource.topic_id))
        token, is_pending = None, False
        if found.view is not None:
            token = self._reserve(resource, found.view) if mine is None else mine.epoch
            is_pending = mine is None or mine == found.view.item.claim
        elif not granted.is_kept:
            self._end_ownership(found)
        item = taken(found.item, granted, self._claimer, token=token, severed=others, now_ms=self._now_ms)
        if item != found.item:
            version = self._runtime.fresh_version() if found.version is None else found.version + 1
            self._changes.append(Put(resource.key, item.to_value(), version, found.version))
        return Planned(resource, item, granted.is_kept, is_pending)

    def _reserve(self, resource: Resource, view: PartitionAccess) -> int:
        """Reserve the next epoch of a partition for the claimer, and end the access that is over."""
        liveness = liveness_of(self._sessions, self._now_ms)
        item = rules.reserved(view, Claimant(self._claimer, ""), liveness, fails_waiters=True)
        if item.epoch > limits.INT32_MAX:
            raise ThrottledError(
                f"the partition has no epoch left; create the topic again to get new ones: resource={resource.name}"
            )
        for holder in rules.over(view, liveness):
            self._end_hold(resource, holder)
        self._changes.append(item.put(keys.access_item(resource.topic_id, resource.partition), self._runtime))
        place = resource.topic, resource.topic_id, resource.partition
        hold = Hold(*place, item.epoch, EXCLUSIVE, "", RESERVED)
        self._change(sessions.with_hold(self._sessions[self._claimer], hold))
        return item.epoch

    # Sessions

    def _change(self, session: SessionItem) -> None:
        self._sessions[session.session_id] = session

    def _enter(self, owned: Owned) -> None:
        session = self._sessions[self._claimer]
        if owned not in session.owns:
            self._change(replace(session, owns=(*session.owns, owned)))

    def _sever(self, session_id: str) -> None:
        session = self._sessions[session_id]
        if not session.is_final:
            self._change(sessions.severed(session, self._now_ms))

    def _end_ownership(self, found: Found) -> None:
        """End the ownership of a former owner that is not live: it must not come back with this resource."""
        former = self._former(found.item.session_id)
        if former is not None:
            resource = found.resource
            gone = Owned(resource.group, resource.name, resource.topic_id)
            self._change(replace(former, owns=tuple(owned for owned in former.owns if owned != gone)))

    def _end_hold(self, resource: Resource, holder: Holder) -> None:
        former = self._former(holder.session_id, or_claimer=True)
        if former is not None:
            place = resource.topic_id, resource.partition, holder.epoch
            self._change(sessions.with_hold_state(former, *place, holder.producer_name, ENDED))

    def _former(self, session_id: str | None, *, or_claimer: bool = False) -> SessionItem | None:
        """Return the session if it could come back. What is granted depends on that it has not."""
        former = self._sessions.get(session_id or "")
        if former is None or former.is_final or (former.session_id == self._claimer and not or_claimer):
            return None
        self._unchanged.add(former.session_id)
        return former

    def all_changes(self) -> list[Change]:
        """Return the whole transaction; an empty one if everything is written already."""
        claimer = hold_limits.bounded(self._read[self._claimer], self._sessions[self._claimer], self._held)
        self._change(claimer)
        if sum(_bytes(owned) for owned in claimer.owns) > limits.OWNED_BYTES_MAX:
            raise ThrottledError(
                f"the names of all resources of a session take at most {limits.OWNED_BYTES_MAX} bytes; release some, "
                "or use another session"
            )
        changed = [one for one in self._sessions.values() if one != self._read[one.session_id]]
        if not changed and not self._changes:
            return []
        changes: list[Change] = [*self._changes, *(session.put(self._runtime) for session in changed)]
        for session_id in sorted(self._unchanged - {one.session_id for one in changed}):
            changes.append(Check(self._read[session_id].key, self._read[session_id].version))
        if len(changes) > limits.TRANSACTION_ITEMS_MAX:
            raise ThrottledError("too many other sessions are in the way of one request; own fewer resources at once")
        return changes


def _bytes(owned: Owned) -> int:
    return sum(len((part or "").encode()) for part in (owned.group, owned.resource, owned.topic_id))
