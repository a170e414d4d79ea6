"""The decision on a request to own resources, from one read (protocol, "Generations and tokens", "Severing").

Rule: the table decides on each resource. An ownership counts only while the session that it names is live. Generation
and token outlive the session, and the token only grows.

Rule: all resources are judged before any change, so a refusal severs no session. Then all changes go into one item
transaction: the claimer's session, each resource's ownership, for write access the partition's access item, every
session that this request severs, and every lapsed session that must not renew its lease meanwhile.

Not here: reads and writes (``own``, ``snapshot``), and the item of an ownership (``resources``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from fenceline import limits
from fenceline.access import rules, session_item
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.resources import OwnershipItem, Resource
from fenceline.access.rules import AccessItem, Claimant, Holder, Liveness, PartitionAccess
from fenceline.access.session_item import ENDED, RESERVED, OwnedHold, SessionItem, WriteHold, liveness_of
from fenceline.errors import FencelineError, ResourceOwnedError, StaleGenerationError, ThrottledError
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE
from fenceline.ports import ItemKey

# The table of claims to own


class CurrentOwner(Enum):
    """The owner of a resource now, as its claimer sees it."""

    NONE = "none"
    OTHER = "other"
    SAME = "the same session"


@dataclass(frozen=True, slots=True)
class Granted:
    """The claimer owns the resource, with this generation.

    Args:
        is_kept: Whether the claimer owned the resource before, and keeps its token. Otherwise the claimer gets the next
            token, and a live owner is severed.
    """

    generation: int
    is_kept: bool = False


def decide(
    resource: str, last: int, owner: CurrentOwner, asked: int | None, *, owner_named: str = ""
) -> Granted | FencelineError:
    """Judge one resource of a claim, row by row.

    Args:
        last: The last generation that any session was granted; 0 if the resource was never owned.
        asked: The generation that the claim names; ``None`` takes the next one.
        owner_named: The error's words for another owner (``session_item.named_to_others``).
    """
    if asked == 0:
        return Granted(1, is_kept=owner is CurrentOwner.SAME)
    if asked is not None and asked < last:
        advice = f"claim it with {last} or more, or without a generation"
        return _stale(resource, last, f"{asked} is lower; {advice}")
    if owner is CurrentOwner.SAME:
        return Granted(max(last, asked or 1), is_kept=True)
    if asked is not None:
        return Granted(asked)
    if owner is CurrentOwner.OTHER:
        return ResourceOwnedError(
            f"another session owns the resource; wait until that ends, or take it with a generation: "
            f"resource={resource} generation={last}{owner_named}",
            resource=resource,
            generation=last,
        )
    if last == limits.GENERATION_MAX:
        advice = f"claim it with generation {last} itself, or with 0"
        return _stale(resource, last, f"there is no higher one; {advice}")
    return Granted(last + 1)


def _stale(resource: str, last: int, why: str) -> StaleGenerationError:
    detail = f"the resource's last granted generation is {last}, and {why}: resource={resource} generation={last}"
    return StaleGenerationError(detail, resource=resource, generation=last)


def owned_by(
    item: OwnershipItem,
    granted: Granted,
    session_id: str,
    *,
    token: int | None = None,
    severed: Sequence[str] = (),
    now_ms: int | None = None,
) -> OwnershipItem:
    """Return the item once ``session_id`` owns the resource.

    Args:
        token: The partition's epoch, where that is the token; else the item's own counter gives it.
        severed: The live owners from which the session takes the resource.
    """
    if granted.is_kept:
        kept = item.fencing_token if token is None else token
        since = item.since if item.session_id == session_id else now_ms
        return replace(item, generation=granted.generation, fencing_token=kept, session_id=session_id, since=since)
    next_token = item.fencing_token + 1 if token is None else token
    return OwnershipItem(granted.generation, next_token, session_id, tuple(severed), now_ms, item.version)


def released(item: OwnershipItem) -> OwnershipItem:
    """Return the item once no session owns the resource. Generation and token stay."""
    return replace(item, session_id=None, since=None)


# The decision on all resources of a request

Held: TypeAlias = Mapping[tuple[str, int], AccessItem]  # by topic_id and partition


@dataclass(frozen=True, slots=True)
class FoundResource:
    """One resource as it was read."""

    resource: Resource
    item: OwnershipItem
    view: PartitionAccess | None  # the partition's, for write access

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
    def hold(self) -> WriteHold:
        """The hold in the claimer's session, once it is granted."""
        resource = self.resource
        place = resource.topic, resource.topic_id, resource.partition
        return WriteHold(*place, self.item.fencing_token, EXCLUSIVE, "")

    @property
    def access_key(self) -> ItemKey:
        return keys.access_item(self.resource.topic_id, self.resource.partition)


@dataclass(frozen=True, slots=True)
class OwnershipPlan:
    """The outcome of one request: the granted resources, and the changes, none if all is written already."""

    planned: Sequence[Planned]
    transaction: ItemTransaction


def owners(found: FoundResource, liveness: Liveness) -> list[Holder]:
    """Return the resource's owners now: for write access, its live exclusive holders of any kind."""
    if found.view is not None:
        return rules.holders(found.view, liveness)
    owner = found.item.session_id
    return [] if owner is None or not liveness.is_live(owner) else [Holder(owner, found.item.fencing_token, "")]


def plan(
    claimer: SessionItem,
    wanted: Sequence[tuple[FoundResource, int | None]],
    known: Mapping[str, SessionItem],
    held: Held,
    *,
    now_ms: int,
) -> OwnershipPlan:
    """Judge a request, and return its grants and its changes.

    Args:
        claimer: The session, live and judged.
        wanted: Each resource, and the generation asked for.
        known: The sessions that the resources name, if they exist.
        held: The access items of the claimer's holds, where it might hold too much.

    Raises:
        StaleGenerationError, ResourceOwnedError: The first resource that is refused.
        ThrottledError: The request is too much for one session.
    """
    known = {**known, claimer.session_id: claimer}
    liveness = liveness_of(known.get, now_ms)
    judged = [_judge(claimer.session_id, found, asked, liveness, known) for found, asked in wanted]
    made = _Plan(claimer, known, now_ms)
    planned = [made.grant(found, *verdict) for (found, _), verdict in zip(wanted, judged, strict=True)]
    made.bound(held)
    return OwnershipPlan(planned, made.transaction)


def _judge(
    claimer: str, found: FoundResource, asked: int | None, liveness: Liveness, known: Mapping[str, SessionItem]
) -> tuple[Granted, Holder | None, Sequence[str]]:
    """Return the grant, the part of it that the claimer has already, and the sessions that are severed.

    Raises:
        StaleGenerationError, ResourceOwnedError: The resource is refused.
    """
    held = owners(found, liveness)
    others = tuple({holder.session_id: None for holder in held if holder.session_id != claimer})
    # A reservation of a producer of the claimer is not the claimer's own yet, so it loses to this request.
    claim = None if found.view is None else found.view.item.claim
    mine = [h for h in held if h.session_id == claimer and (h != claim or not h.producer_name)]
    owner = CurrentOwner.OTHER if others else CurrentOwner.SAME if mine else CurrentOwner.NONE
    owner_named = session_item.named_to_others(known.get(others[0])) if others else ""
    verdict = decide(found.resource.name, found.item.generation, owner, asked, owner_named=owner_named)
    if isinstance(verdict, FencelineError):
        raise verdict
    # The later of the claimer's grant and its reservation counts, because a token only grows.
    return verdict, mine[-1] if verdict.is_kept else None, others


class _Plan:
    """The changes of a request that is granted, one resource after another."""

    def __init__(self, claimer: SessionItem, known: Mapping[str, SessionItem], now_ms: int) -> None:
        self.transaction = ItemTransaction(known, too_large="request; own fewer resources at once")
        self.transaction.require(claimer.key, claimer.version)
        self._claimer = claimer.session_id
        self._known = known
        self._now_ms = now_ms

    def grant(self, found: FoundResource, granted: Granted, mine: Holder | None, others: Sequence[str]) -> Planned:
        resource = found.resource
        for other in others:
            session = self._session(other)
            if not session.is_final:
                self.transaction.change_session(session_item.severed(session, self._now_ms))
        claimer, owned = self._session(self._claimer), resource.owned
        if owned not in claimer.owns:
            self.transaction.change_session(replace(claimer, owns=(*claimer.owns, owned)))
        token, is_pending = None, False
        if found.view is not None:
            token = self._reserve(resource, found.view) if mine is None else mine.epoch
            is_pending = mine is None or mine == found.view.item.claim
        elif not granted.is_kept:
            self._end_ownership(found)
        item = owned_by(found.item, granted, self._claimer, token=token, severed=others, now_ms=self._now_ms)
        self.transaction.change(resource.key, found.item, item)
        return Planned(resource, item, granted.is_kept, is_pending)

    def _reserve(self, resource: Resource, view: PartitionAccess) -> int:
        """Reserve the next epoch of a partition for the claimer, and end the access that is over."""
        # By the sessions with the changes so far, because the sessions that this request severs have no access.
        liveness = liveness_of(self.transaction.session, self._now_ms)
        item = rules.reserved(view, Claimant(self._claimer, ""), liveness, fails_waiters=True)
        if item.epoch > limits.INT32_MAX:
            raise ThrottledError(
                f"the partition has no epoch left; create the topic again to get new ones: resource={resource.name}"
            )
        for holder in rules.over(view, rules.holders(view, liveness)):
            self._end_hold(resource, holder)
        self.transaction.put(keys.access_item(resource.topic_id, resource.partition), item)
        place = resource.topic, resource.topic_id, resource.partition
        hold = WriteHold(*place, item.epoch, EXCLUSIVE, "", RESERVED)
        self.transaction.change_session(session_item.with_hold(self._session(self._claimer), hold))
        return item.epoch

    # Sessions

    def _session(self, session_id: str) -> SessionItem:
        session = self.transaction.session(session_id)
        assert session is not None
        return session

    def _end_ownership(self, found: FoundResource) -> None:
        """End the ownership of a former owner that is not live, because it must not come back with this resource."""
        former = self._former(found.item.session_id)
        if former is not None:
            gone = found.resource.owned
            left = tuple(owned for owned in former.owns if owned != gone)
            self.transaction.change_session(replace(former, owns=left))

    def _end_hold(self, resource: Resource, holder: Holder) -> None:
        former = self._former(holder.session_id, or_claimer=True)
        if former is not None:
            place = resource.topic_id, resource.partition, holder.epoch
            ended = session_item.with_hold_state(former, *place, holder.producer_name, ENDED)
            self.transaction.change_session(ended)

    def _former(self, session_id: str | None, *, or_claimer: bool = False) -> SessionItem | None:
        """Return the session if it could come back, so that the grant can depend on that it has not."""
        former = self.transaction.session(session_id)
        if former is None or former.is_final or (former.session_id == self._claimer and not or_claimer):
            return None
        self.transaction.require(former.key, former.version)
        return former

    def bound(self, held: Held) -> None:
        """Judge all that the claimer would hold and own.

        Raises:
            ThrottledError: It is too much for one session.
        """
        claimer = session_item.bounded(self._known[self._claimer], self._session(self._claimer), held)
        self.transaction.change_session(claimer)
        if sum(_bytes(owned) for owned in claimer.owns) > limits.SESSION_OWNED_BYTES_MAX:
            raise ThrottledError(
                f"the names of all resources of a session take at most {limits.SESSION_OWNED_BYTES_MAX} bytes; release "
                "some, or use another session"
            )


def _bytes(owned: OwnedHold) -> int:
    return sum(len((part or "").encode()) for part in (owned.group, owned.resource, owned.topic_id))
