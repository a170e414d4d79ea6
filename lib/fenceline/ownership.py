"""Who owns a resource, with which generation (the table of DESIGN.md, section 6), and who reads as a group.

The rule: an ownership counts only while the session that it names is live; its generation and its token outlive it, and
the token only grows. The table asks no clock and no store: who owns a resource at the moment is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Protocol, TypeVar

from fenceline import fences, keys, limits
from fenceline.context import Context
from fenceline.errors import FencelineError, OwnerFencedError, ResourceOwnedError, StaleGenerationError
from fenceline.partition import Partition
from fenceline.ports import Check, Item
from fenceline.retry import Attempts
from fenceline.sessions import SessionItem, judge_live, renewed, session_from_item

T = TypeVar("T")

# The item


@dataclass(frozen=True, slots=True)
class OwnershipItem:
    """What is remembered of a resource: the last granted generation and token, and the session they went to.

    Args:
        severed: Whom that session severed for it. Their fences are finished before it is told that it owns the
            resource: by the request that severed them, or by the one that repeats it.
    """

    generation: int = 0
    fencing_token: int = -1
    session_id: str | None = None
    severed: tuple[str, ...] = ()
    since: int | None = None  # when that session took it; None: an older version wrote it

    def to_value(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "fencing_token": self.fencing_token,
            "session_id": self.session_id,
            "severed": list(self.severed),
            "since": self.since,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> OwnershipItem:
        severed, since = tuple(value["severed"]), value.get("since")
        return cls(value["generation"], value["fencing_token"], value["session_id"], severed, since)

    @classmethod
    def from_item(cls, item: Item | None) -> OwnershipItem:
        """Return what the item says; one that is absent was never owned."""
        return cls() if item is None else cls.from_value(item.value)


# The table of section 6


class Owner(Enum):
    """Who owns a resource at the moment, as its claimer sees it."""

    NONE = "none"
    OTHER = "other"
    SAME = "the same session"


@dataclass(frozen=True, slots=True)
class Granted:
    """The claimer owns the resource, with this generation.

    Args:
        is_kept: It did before, and keeps its token. Else it gets the next one, and a live owner is severed.
    """

    generation: int
    is_kept: bool = False


def decide(
    resource: str, last: int, owner: Owner, asked: int | None, *, owner_told: str = ""
) -> Granted | FencelineError:
    """Judge one resource of a claim, row by row.

    Args:
        last: The last granted generation, whoever got it; 0 if it was never owned.
        asked: The generation that the claim names; ``None`` takes the next one.
        owner_told: How another owner is named in the answer (``sessions.told``).
    """
    if asked == 0:
        return Granted(1, is_kept=owner is Owner.SAME)
    if asked is not None and asked < last:
        advice = f"claim it with {last} or more, or without one"
        return _stale(resource, last, f"it was last granted with generation {last}, and {asked} is lower; {advice}")
    if owner is Owner.SAME:
        return Granted(max(last, asked or 1), is_kept=True)
    if asked is not None:
        return Granted(asked)
    if owner is Owner.OTHER:
        return ResourceOwnedError(
            f"another session owns it; wait for its end, or claim it with a generation: "
            f"resource={resource} generation={last}{owner_told}",
            resource=resource,
            generation=last,
        )
    if last == limits.GENERATION_MAX:
        advice = f"claim it with {last} itself, or with 0"
        return _stale(resource, last, f"it was last granted with generation {last}, and there is none above; {advice}")
    return Granted(last + 1)


def _stale(resource: str, last: int, told: str) -> StaleGenerationError:
    return StaleGenerationError(f"{told}: resource={resource} generation={last}", resource=resource, generation=last)


def taken(
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
        token: The partition's epoch, where that is the token; else the item's own counter gives one.
        severed: The live owners that it takes the resource from.
    """
    if granted.is_kept:
        kept = item.fencing_token if token is None else token
        since = item.since if item.session_id == session_id else now_ms
        return replace(item, generation=granted.generation, fencing_token=kept, session_id=session_id, since=since)
    return OwnershipItem(
        granted.generation, item.fencing_token + 1 if token is None else token, session_id, tuple(severed), now_ms
    )


def released(item: OwnershipItem) -> OwnershipItem:
    """Return the item once nobody owns the resource: generation and token stay."""
    return replace(item, session_id=None, since=None)


# Reading and committing as a group


class Life(Protocol):
    """A topic, or a partition of it: its name, and which of its lives."""

    @property
    def name(self) -> str: ...
    @property
    def topic_id(self) -> str: ...


def guard_group(
    context: Context, topic: Life, partition: int, group: str, session_id: str | None, principal: str
) -> Sequence[Check]:
    """Judge who would read, or commit, as ``group`` now, and renew the session's lease where a third of it is spent.

    Returns:
        What must still hold when it is done: for the transaction of a commit. One who reads asks again instead.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session, in this order.
        OwnerFencedError: Another session owns the group's reading here, or this one doesn't.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A store. Nothing but a lease was changed.
    """
    resource = f"{topic.name}/{partition}"
    key = keys.ownership_item(topic.topic_id, partition, group)
    # What is refused is a read or a commit, of which nothing is written here.
    for attempt in Attempts(context.runtime, "the session", is_refusal_final=True):
        with attempt:
            wanted = [] if session_id is None or not keys.is_session_id(session_id) else [keys.session_item(session_id)]
            found = context.items.get([key, *wanted])
            owner = OwnershipItem.from_item(found.get(key)).session_id
            held = Check(key, found[key].version if key in found else None)
            if session_id is None:
                return [held, *_judge_unowned(context, owner, resource)]
            session = next((session_from_item(found[one]) for one in wanted if one in found), None)
            known = _judge_session(context, session, session_id, principal)
            if owner != session_id:
                raise _fenced(resource, "own it first; as a group one reads and commits under its owner's session")
            renewed_ = _renew(context, known)
            return [held, Check(renewed_.key, renewed_.version)]
    raise AssertionError


class Reading(Protocol):
    """A request to read: as which group, and under which session, if any."""

    @property
    def group(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...


def guarded(partition: Partition, request: Reading, principal: str, read: Callable[[], T]) -> T:
    """Return what ``read`` returns, if who asks may read at the start, and again when it is there to be shown.

    Raises:
        FencelineError: As ``guard_group``. Nothing was shown.
    """
    if request.group is None and request.session_id is None:
        return read()

    def judge() -> None:
        if request.group is not None:
            number, group = partition.partition, request.group
            guard_group(partition.context, partition, number, group, request.session_id, principal)
        elif request.session_id is not None:
            guard_session(partition.context, request.session_id, principal)

    judge()
    found = read()
    judge()
    return found


def guard_session(context: Context, session_id: str, principal: str) -> None:
    """Judge, and renew, a session that reads as no group; as ``guard_group``."""
    # What is refused is a read or a commit, of which nothing is written here.
    for attempt in Attempts(context.runtime, "the session", is_refusal_final=True):
        with attempt:
            session = fences.read_sessions(context, [session_id]).get(session_id)
            _renew(context, _judge_session(context, session, session_id, principal))


def _judge_session(context: Context, session: SessionItem | None, session_id: str, principal: str) -> SessionItem:
    fences.meet(context, [session] if session is not None else [])
    return judge_live(session, session_id, principal, context.runtime.now_ms())


def _judge_unowned(context: Context, owner: str | None, resource: str) -> Sequence[Check]:
    """Without a session one reads and commits only while no owner is live: one that lapsed may come back meanwhile."""
    known = fences.read_sessions(context, [owner]).get(owner) if owner is not None else None
    if known is None:
        return ()
    fences.meet(context, [known])
    if known.is_live(context.runtime.now_ms()):
        raise _fenced(resource, "another session owns it")
    return () if known.is_final else [Check(known.key, known.version)]


def _renew(context: Context, session: SessionItem) -> SessionItem:
    now_ms = context.runtime.now_ms()
    if not session.is_renewal_due(now_ms):
        return session
    put = renewed(session, now_ms).put(context.runtime)
    context.items.write([put])
    return replace(session, version=put.version)


def _fenced(resource: str, why: str) -> OwnerFencedError:
    return OwnerFencedError(f"{why}: resource={resource}", resource=resource)
