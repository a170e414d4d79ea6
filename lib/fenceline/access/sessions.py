"""Sessions of clients, each with a lease, because HTTP has no connection (contract, "Sessions and producers").

Rule: each change is one conditional write. A heartbeat renews only a live session. A lapsed session comes back only by
an append of its own that the log accepts, or by a reconnection. A request that finds a severed session finishes its
fences before it answers.

Not here: the item of a session, and its judgement (``session_item``); appends under a session (``session_cache``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from fenceline import limits
from fenceline.access import fence_markers, session_item
from fenceline.access.resources import OwnershipItem, Resource, partition_named
from fenceline.access.rules import Holder, access_from_item
from fenceline.access.session_item import EXPIRED, LIVE, OwnedHold, SessionItem, WriteHold
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE
from fenceline.log.context import Context
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.access import Hold, SessionState
from fenceline.ports import Item, ItemKey


def create(context: Context, *, lease_ms: int | None, client_name: str | None, principal: str) -> SessionState:
    """Make a session.

    Raises:
        InvalidRequestError: ``lease_ms`` or ``client_name`` is out of its bounds. Nothing was written.
        StoreUnavailableError, OutcomeUnknownError: The item store failed. A session may have been made that no caller
            knows.
    """
    lease_ms = limits.LEASE_MS_DEFAULT if lease_ms is None else lease_ms
    session_item.check_lease(lease_ms)
    if client_name is not None:
        session_item.check_client_name(client_name)
    runtime = context.runtime
    attempts = Attempts(runtime, "the session")
    while True:
        with attempts:
            session_id, now_ms = runtime.fresh_id(), runtime.now_ms()
            made = session_item.created(
                session_id, principal=principal, lease_ms=lease_ms, now_ms=now_ms, client_name=client_name
            )
            # If this write is not answered, no caller knows the session, and it lapses.
            context.items.write([made.put(runtime)])
            return _shown(made, LIVE)


def read(partitions: Partitions, session_id: str, principal: str) -> SessionState:
    """Return a session as it is now, with all that it holds.

    Raises:
        UnknownSessionError, NotAuthorizedError: There is no such session, or it is another principal's.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: It is severed, and is not fenced everywhere yet.
        Unavailable: The item store could not be asked.
    """
    context = partitions.context
    known = fence_markers.read_fenced(partitions, [session_id]).get(session_id)
    session = session_item.judge_principal(known, session_id, principal)
    is_expired = session.state == LIVE and session.is_lapsed(context.runtime.now_ms())
    holds = () if session.is_final else holds_of(context, [session])[0]
    return _shown(session, EXPIRED if is_expired else session.state, holds)


def heartbeat(partitions: Partitions, session_id: str, principal: str) -> SessionState:
    """Renew a live session's lease: one conditional write.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The lease was not renewed.
        StoreUnavailableError, ContendedError: The lease was not renewed; send the heartbeat again.
        OutcomeUnknownError: The lease may have been renewed.
    """
    context, runtime = partitions.context, partitions.context.runtime
    attempts = Attempts(runtime, "the session")
    while True:
        with attempts:
            known = fence_markers.read_fenced(partitions, [session_id]).get(session_id)
            session = session_item.judge_live(known, session_id, principal, runtime.now_ms())
            renewed = session_item.renewed(session, runtime.now_ms())
            # A process that ends one of the session's holds writes the same item, so no caller learns from a heartbeat
            # that it keeps a hold which was ended.
            context.items.write([renewed.put(runtime)])
            return _shown(renewed, LIVE)


def close(
    partitions: Partitions,
    session_id: str,
    principal: str,
    note: Callable[[SessionItem], None],
) -> None:
    """End a session, lapsed or not, with all that it holds. A session that is closed already stays as it is.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError: Nothing was changed.
        StoreUnavailableError, ContendedError, OutcomeUnknownError: Close it again.
    """
    context, runtime = partitions.context, partitions.context.runtime
    attempts = Attempts(runtime, "the session")
    while True:
        with attempts:
            known = fence_markers.read_fenced(partitions, [session_id]).get(session_id)
            session = session_item.judge_known(known, session_id, principal)
            if session.is_final:
                note(session)  # closed by a write whose answer was lost, or by another process
                return
            closed = session_item.closed(session, runtime.now_ms())
            put = closed.put(runtime)
            context.items.write([put])
            note(closed.written(put))
            return


def _shown(session: SessionItem, state: str, holds: Sequence[Hold] = ()) -> SessionState:
    made = session.session_id, session.lease_ms, session.expires_at, session.client_name, session.created_at
    return SessionState(*made, state, holds)


# What a session holds


def holds_of(context: Context, sessions: Sequence[SessionItem]) -> list[tuple[Hold, ...]]:
    """Return what each session holds by the items now: the resources that it owns, and its exclusive partitions.

    The items of all of them are read together, a hundred a call.

    Raises:
        Unavailable: The item store could not be asked.
    """
    held = [hold for session in sessions for hold in _written(session)]
    owned = [(one, Resource.of(one).key) for session in sessions for one in _owned(session)]
    topics = {keys.topic_item(hold.topic) for hold in held}
    topics |= {
        keys.topic_item(place[0]) for one, _ in owned if one.topic_id and (place := partition_named(one.resource))
    }
    found = context.read_items(
        sorted({*topics, *(keys.access_item(*hold.place) for hold in held), *(key for _, key in owned)})
    )
    current_ids = {
        item.value["topic_id"] for key, item in found.items() if key in topics and not item.value["is_going"]
    }
    return [tuple(_holds(session, current_ids, found)) for session in sessions]


def _written(session: SessionItem) -> list[WriteHold]:
    return [hold for hold in session.holds if hold.mode == EXCLUSIVE and hold.state == LIVE]


def _owned(session: SessionItem) -> list[OwnedHold]:
    # Owned write access is also one of the session's holds.
    return [owned for owned in session.owns if not Resource.of(owned).is_write_access]


def _holds(session: SessionItem, current_ids: Collection[object], found: Mapping[ItemKey, Item]) -> dict[Hold, None]:
    shown: dict[Hold, None] = {}
    for hold in _written(session):
        item = access_from_item(found.get(keys.access_item(*hold.place)))
        holder = Holder(session.session_id, hold.epoch, hold.producer_name)
        if hold.topic_id in current_ids and item.granted == holder:
            shown[Hold(None, f"{hold.topic}/{hold.partition}")] = None
    for one in _owned(session):
        is_current = not one.topic_id or one.topic_id in current_ids
        owner = OwnershipItem.from_item(found.get(Resource.of(one).key)).session_id
        if is_current and owner == session.session_id:
            shown[Hold(one.group, one.resource)] = None
    return shown
