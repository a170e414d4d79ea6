"""A session's item: its judgement, its changes, and the bounds of what it remembers.

Rule: a session is one item, and each change is one conditional write. A session's lease only says when others may *try*
(I9); the log says what the session's writers may do. Expiry is never written: an expired session is a live one whose
lease lapsed, and an accepted append of its own, or a reconnection, revives it. Closed and severed are final (protocol,
"Exclusive access (PIP-68)", "Ownership (Single Reader/Writer)", "Fencing").

Not here: reads and writes of the item (``sessions``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from fenceline import limits
from fenceline.access.rules import AccessItem, Liveness, Waiter
from fenceline.errors import (
    InvalidRequestError,
    NotAuthorizedError,
    SessionExpiredError,
    SessionSeveredError,
    ThrottledError,
    UnknownSessionError,
)
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.model.kinds import is_client_name
from fenceline.ports import Item, ItemKey, Put
from fenceline.runtime import Runtime

# Stored: never rename.
LIVE, CLOSED, SEVERED = "live", "closed", "severed"  # a session's states; a hold has LIVE and CLOSED, too
RESERVED, ENDED = "reserved", "ended"  # a hold's states: not granted yet; ended by another process
EXPIRED = "expired"  # never stored: a live session whose lease lapsed


_ENTRY_BYTES_MAX = 2_048  # a hold, an owned resource, or all the rest of the item except the principal


@dataclass(frozen=True, slots=True)
class WriteHold:
    """Write access to one partition, as its session's item has it. The log says whether it is in force."""

    topic: str
    topic_id: str
    partition: int
    epoch: int
    mode: str  # EXCLUSIVE or SHARED
    producer_name: str  # "" for an owner
    state: str = LIVE  # or RESERVED, CLOSED, ENDED

    @property
    def place(self) -> tuple[str, int]:
        return self.topic_id, self.partition


@dataclass(frozen=True, slots=True)
class OwnedHold:
    """A resource that the session claimed. The ownership's item says whether the session still owns it."""

    group: str | None
    resource: str
    topic_id: str  # "" for a plain string, which belongs to no incarnation


@dataclass(frozen=True, slots=True)
class PendingFence:
    """Write access of a severed session, which a marker has yet to end (protocol, "Fences")."""

    topic: str
    topic_id: str
    partition: int
    epoch: int
    mode: str


@dataclass(frozen=True, slots=True)
class SessionItem:
    """A session, as it is stored."""

    session_id: str
    principal: str  # "" without authorization
    lease_ms: int
    expires_at: int
    created_at: int
    state: str = LIVE  # or CLOSED, or SEVERED
    ended_at: int = 0  # when it was closed or severed
    wanted_at: int = 0  # when a claimer last wanted its access
    holds: tuple[WriteHold, ...] = ()
    owns: tuple[OwnedHold, ...] = ()
    fences: tuple[PendingFence, ...] = ()
    client_name: str | None = None  # a label for people, not for decisions
    version: int | None = None  # None: it is not stored yet

    @property
    def key(self) -> ItemKey:
        return keys.session_item(self.session_id)

    @property
    def is_final(self) -> bool:
        """Return True if the session has ended for good."""
        return self.state != LIVE

    def id_for(self, principal: str) -> str:
        """Return the session's id as a principal is shown it: whole if the session is its own."""
        return self.session_id if self.principal == principal else self.session_id[:8]

    def is_lapsed(self, now_ms: int) -> bool:
        """Return True if the lease is over by this clock; a closed or severed session may have a lease left."""
        return now_ms > self.expires_at + limits.LEASE_GRACE_MS

    def is_live(self, now_ms: int) -> bool:
        return self.state == LIVE and not self.is_lapsed(now_ms)

    def is_renewal_due(self, now_ms: int) -> bool:
        """Return True if a third of the lease is spent."""
        return self.expires_at - now_ms < self.lease_ms - self.lease_ms // 3

    def hold_of(self, topic_id: str, partition: int, epoch: int) -> WriteHold | None:
        """Return the hold with this epoch, of several (closed, and granted again) the one that gives most access."""
        order = (LIVE, CLOSED, ENDED, RESERVED)
        found = [h for h in self.holds if h.place == (topic_id, partition) and h.epoch == epoch]
        return min(found, key=lambda hold: order.index(hold.state), default=None)

    def granted_to(self, topic_id: str, producer_name: str) -> list[WriteHold]:
        """Return all holds that a producer of this session was granted, in any state."""
        named = topic_id, producer_name
        return [h for h in self.holds if (h.topic_id, h.producer_name) == named and h.state != RESERVED]

    def to_value(self) -> dict[str, Any]:
        named = {} if self.client_name is None else {"client_name": self.client_name}
        return {
            **named,
            "principal": self.principal,
            "lease_ms": self.lease_ms,
            "expires_at": self.expires_at,
            "created_at": self.created_at,
            "state": self.state,
            "ended_at": self.ended_at,
            "wanted_at": self.wanted_at,
            "holds": [
                [h.topic, h.topic_id, h.partition, h.epoch, h.mode, h.producer_name, h.state] for h in self.holds
            ],
            "owns": [[o.group, o.resource, o.topic_id] for o in self.owns],
            "fences": [[f.topic, f.topic_id, f.partition, f.epoch, f.mode] for f in self.fences],
        }

    @classmethod
    def from_value(cls, session_id: str, value: Mapping[str, Any], version: int) -> SessionItem:
        return cls(
            session_id=session_id,
            principal=value["principal"],
            lease_ms=value["lease_ms"],
            expires_at=value["expires_at"],
            created_at=value["created_at"],
            state=value["state"],
            ended_at=value["ended_at"],
            wanted_at=value["wanted_at"],
            holds=tuple(WriteHold(*fields) for fields in value["holds"]),
            owns=tuple(OwnedHold(*fields) for fields in value["owns"]),
            fences=tuple(PendingFence(*fields) for fields in value["fences"]),
            client_name=value.get("client_name"),
            version=version,
        )

    def put(self, runtime: Runtime) -> Put:
        """Return the write of this item over the version at which it was read."""
        return Put.replacing(self.key, self.to_value(), self.version, runtime.fresh_version)

    def written(self, put: Put) -> SessionItem:
        """Return the session as ``put`` has stored it."""
        return SessionItem.from_value(self.session_id, put.value, put.version)


def session_from_item(item: Item) -> SessionItem:
    return SessionItem.from_value(item.key.sort, item.value, item.version)


# Judging


def check_lease(lease_ms: int) -> None:
    """Judge a lease.

    Raises:
        InvalidRequestError: The lease is out of its bounds.
    """
    if not limits.LEASE_MS_MIN <= lease_ms <= limits.LEASE_MS_MAX:
        wanted = f"from {limits.LEASE_MS_MIN} to {limits.LEASE_MS_MAX}"
        raise InvalidRequestError(f"lease_ms must be {wanted}", field="lease_ms")


def check_client_name(client_name: str) -> None:
    """Judge the name that a session shows.

    Raises:
        InvalidRequestError: The name is empty or too long, or a terminal could take some of it for more than text.
    """
    if not is_client_name(client_name):
        wanted = f"text of 1 to {limits.CLIENT_NAME_BYTES_MAX} bytes without control characters"
        raise InvalidRequestError(f"client_name must be {wanted}", field="client_name")


def unknown_session(session_id: str) -> UnknownSessionError:
    return UnknownSessionError(f"there is no such session; create one first: session_id={session_id[:64]}")


def named_to_others(session: SessionItem | None) -> str:
    """Return the end of an error's detail, which names a session to the callers that the session blocks."""
    return "" if session is None else f" session_id={session.session_id[:8]}{named(session)}"


def named(session: SessionItem) -> str:
    """Return the end of an error's detail, which names the client of a session."""
    return "" if session.client_name is None else f" client_name={session.client_name}"


def expired(session: SessionItem) -> SessionExpiredError:
    if session.state == CLOSED:
        return SessionExpiredError(f"the session was closed; create another session: session_id={session.session_id}")
    return SessionExpiredError(
        "the session's lease lapsed; reconnect with topic_epochs, or create another session: "
        f"session_id={session.session_id} expires_at={session.expires_at}"
    )


def judge_principal(session: SessionItem | None, session_id: str, principal: str) -> SessionItem:
    """Return the session, if ``principal`` may look at it.

    Raises:
        UnknownSessionError, NotAuthorizedError: In this order.
    """
    if session is None:
        raise unknown_session(session_id)
    if session.principal != principal:
        what = "the session belongs to another principal; use a session of your own"
        raise NotAuthorizedError(f"{what}: session_id={session_id[:8]}")
    return session


def judge_known(session: SessionItem | None, session_id: str, principal: str) -> SessionItem:
    """Return the session, live or not, if ``principal`` may use it (protocol, "Order of judgement").

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError: In this order.
    """
    known = judge_principal(session, session_id, principal)
    if known.state == SEVERED:
        what = "another session took what this session owned; create another session"
        raise SessionSeveredError(f"{what}: session_id={session_id}")
    return known


def judge_live(session: SessionItem | None, session_id: str, principal: str, now_ms: int) -> SessionItem:
    """Return the session, if it is live and ``principal``'s.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: In this order.
    """
    known = judge_known(session, session_id, principal)
    if not known.is_live(now_ms):
        raise expired(known)
    return known


def liveness_of(
    session_of: Callable[[str], SessionItem | None],
    now_ms: int,
    is_in_line: Callable[[Waiter], bool] = lambda _: False,
) -> Liveness:
    """Return which of the sessions that an access item names are live.

    Args:
        is_in_line: Whether a waiter is in line. For an owner none is, because an owner fails all waiters.
    """

    def is_live(session_id: str) -> bool:
        session = session_of(session_id)
        return session is not None and session.is_live(now_ms)

    def is_gone(session_id: str) -> bool:
        session = session_of(session_id)
        return session is None or session.is_final

    return Liveness(is_live, is_gone, is_in_line)


# Changes, each from one version of the item to the next


def created(
    session_id: str, *, principal: str, lease_ms: int, now_ms: int, client_name: str | None = None
) -> SessionItem:
    expires_at = now_ms + lease_ms
    return SessionItem(session_id, principal, lease_ms, expires_at, created_at=now_ms, client_name=client_name)


def renewed(session: SessionItem, now_ms: int) -> SessionItem:
    """Return the session with a whole lease left. A clock that is slow shortens no lease."""
    return replace(session, expires_at=max(session.expires_at, now_ms + session.lease_ms))


def closed(session: SessionItem, now_ms: int) -> SessionItem:
    """Return the session closed. Even a full item has room for this change, because a closed session owns nothing."""
    return replace(session, state=CLOSED, ended_at=now_ms, owns=())


def severed(session: SessionItem, now_ms: int) -> SessionItem:
    """Return the session severed, with all its write access to be fenced (protocol, "Severing").

    Access that was closed, or ended by another process, is fenced, too, because a process that remembers a grant writes
    until a marker is in the log, and that other process may have crashed before its marker. Reserved access needs no
    fence, because its grant would be a write of this item, and no such write follows. The item has room for the fences,
    because a severed session owns nothing.
    """
    # model: Access, "the list keeps closed and ended grants"
    held = [hold for hold in session.holds if hold.state != RESERVED]
    fences = tuple(PendingFence(h.topic, h.topic_id, h.partition, h.epoch, h.mode) for h in held)
    return replace(session, state=SEVERED, ended_at=now_ms, owns=(), fences=fences)


def wanted(session: SessionItem, now_ms: int) -> SessionItem:
    """Return the session with the mark that a claimer wants its access."""
    return replace(session, wanted_at=now_ms)


def with_hold(session: SessionItem, hold: WriteHold) -> SessionItem:
    """Return the session with this hold, which replaces an earlier one of the same producer and partition.

    A reserved hold replaces no granted one, because the log may still name the granted epoch.
    """

    def is_other(other: WriteHold) -> bool:
        is_same = (other.place, other.producer_name) == (hold.place, hold.producer_name)
        return not is_same or (hold.state == RESERVED and other.state != RESERVED)

    return replace(session, holds=(*filter(is_other, session.holds), hold))


def granted(session: SessionItem, topic_id: str, partition: int, epoch: int, producer_name: str) -> SessionItem:
    """Return the session with its reserved hold granted."""
    return _with_hold(session, (topic_id, partition, epoch, producer_name), (RESERVED,), LIVE)


def with_hold_state(
    session: SessionItem, topic_id: str, partition: int, epoch: int, producer_name: str, state: str
) -> SessionItem:
    """Return the session with one granted hold's state changed; a hold that has ended stays ended.

    A hold that was only reserved is dropped, so that no process counts it as a grant.
    """
    named = (topic_id, partition, epoch, producer_name)
    # model: Access, "a reservation is no grant"
    return _with_hold(_with_hold(session, named, (LIVE, CLOSED), state), named, (RESERVED,), None)


def without_producer(session: SessionItem, topic_id: str, producer_name: str) -> SessionItem:
    """Return the session with all holds of one of its producers closed, and its reserved ones dropped."""
    for hold in session.holds:
        if (hold.topic_id, hold.producer_name) == (topic_id, producer_name):
            named = (*hold.place, hold.epoch, producer_name)
            session = _with_hold(session, named, (LIVE,), CLOSED)
            session = _with_hold(session, named, (RESERVED,), None)
    return session


def without_reserved(
    session: SessionItem, topic_id: str, partition: int, epoch: int, producer_name: str
) -> SessionItem:
    """Return the session without its reserved hold."""
    return _with_hold(session, (topic_id, partition, epoch, producer_name), (RESERVED,), None)


def _with_hold(
    session: SessionItem, named: tuple[str, int, int, str], states: tuple[str, ...], state: str | None
) -> SessionItem:
    """Return the session with the named hold in ``state``, if it is in one of ``states``; ``None`` drops the hold."""
    topic_id, partition, epoch, producer_name = named
    holds: list[WriteHold] = []
    is_found = False
    for hold in session.holds:
        is_place = hold.epoch == epoch and hold.partition == partition and hold.topic_id == topic_id
        if not (is_place and hold.producer_name == producer_name and hold.state in states):
            holds.append(hold)
            continue
        is_found = True
        if state is not None:
            holds.append(replace(hold, state=state))
    return replace(session, holds=tuple(holds)) if is_found else session


# The bounds of a session's item, and the holds that it may forget


def crowded(session: SessionItem, count: int) -> list[tuple[str, int]]:
    """Return the places of all holds of a session, if with ``count`` more it might hold too much."""
    return [hold.place for hold in session.holds] if len(session.holds) + count > limits.HOLDS_MAX else []


def bounded(before: SessionItem, session: SessionItem, items: Mapping[tuple[str, int], AccessItem]) -> SessionItem:
    """Return the session without the holds that it may forget, if it has too many.

    Args:
        before: The session as it was read. All other holds of ``session`` are new.
        items: By place, the access items of its holds, as they were read after the session.

    Raises:
        ThrottledError: The session would write to too many partitions, remember too much, or fill its item.
    """
    session = _without_over(before, session, items)
    _check_growth(before, session)
    return session


def _without_over(
    before: SessionItem, session: SessionItem, items: Mapping[tuple[str, int], AccessItem]
) -> SessionItem:
    # The session must not forget a hold under which a process could still write, because a request that severs the
    # session fences only the holds in its item (protocol, "Lapsed sessions and full items").
    if session.holds == before.holds or len(session.holds) <= limits.HOLDS_MAX:
        return session
    known = set(before.holds)
    kept = tuple(h for h in session.holds if h not in known or not is_over(session.session_id, h, items.get(h.place)))
    if len({hold.place for hold in kept if hold.state in (LIVE, RESERVED)}) > limits.HOLDS_MAX:
        raise ThrottledError(
            f"one session writes to at most {limits.HOLDS_MAX} partitions; close or release some, or use another "
            "session"
        )
    if len(kept) > limits.HOLDS_KEPT_MAX:
        raise ThrottledError(
            f"the session remembers at most {limits.HOLDS_KEPT_MAX} partitions, and also those that it gave up, until "
            "another session is granted them; use another session"
        )
    return replace(session, holds=kept)


def is_over(session_id: str, hold: WriteHold, item: AccessItem | None) -> bool:
    """Return True if no process can write under this hold any longer, whatever it remembers.

    The end of a hold is not enough for that, nor is a reservation by another session, because the process that wrote it
    may have crashed before its marker. A grant of a higher epoch is enough, because it was confirmed after its marker.
    """
    if item is None:
        return False  # it was not read
    if item.version is None:
        return True  # the item was deleted with its topic's incarnation, after the SEAL
    if hold.state == RESERVED:
        # It was given up, or is another session's by now, so it will not be granted.
        reserved = [h for h in (item.claim, *item.shared) if h is not None]
        return all((h.name, h.epoch) != ((session_id, hold.producer_name), hold.epoch) for h in reserved)
    return item.granted is not None and item.granted.epoch > hold.epoch


def bytes_at_end(session: SessionItem) -> int:
    """Return the size of a session's item in the largest form that it may take without growth.

    That form has every hold in its longest state, or it is severed, with a fence for each hold. It must stay well below
    the size that an item may have (protocol, "Room in items"), so that a write that renews, closes, ends or severs
    always fits, and needs no check.
    """
    latest = limits.INT64_MAX  # longer than any time that will be written
    holds = tuple(replace(hold, state=RESERVED) for hold in session.holds)  # no state has a longer name
    ending = replace(
        session, state=SEVERED, expires_at=latest, ended_at=latest, wanted_at=latest, holds=holds, fences=()
    )
    fences = tuple(PendingFence(h.topic, h.topic_id, h.partition, h.epoch, h.mode) for h in session.holds)
    severed = replace(ending, owns=(), fences=fences)
    return max(size_of(one.key, one.to_value()) for one in (ending, severed))


def bytes_at_most(session: SessionItem) -> int:
    """Return a bound of ``bytes_at_end`` that follows from the numbers of holds and owned resources alone."""
    return _ENTRY_BYTES_MAX * (1 + len(session.holds) + len(session.owns)) + len(session.principal.encode())


def _check_growth(before: SessionItem, session: SessionItem) -> None:
    """Judge whether a session's item has room for its new entries.

    Args:
        before: The session as it was read. If it is beyond the limit already, it may change, but not grow.

    Raises:
        ThrottledError: There is no room.
    """
    if bytes_at_most(session) <= limits.SESSION_BYTES_MAX:
        return  # most sessions hold little, and each claim comes here
    size = bytes_at_end(session)
    if size > limits.SESSION_BYTES_MAX and size > bytes_at_end(before):
        raise ThrottledError(
            "the session holds and owns too much for its item; release some of what it owns, or use another session: "
            f"bytes={size} bytes_max={limits.SESSION_BYTES_MAX}"
        )
