"""The release of resources that a session owns, and the look at a resource's owner.

Rule: a session releases what it claimed, also where the topic's name leads elsewhere by now. Generation and token stay.
Access that a producer of the session holds is closed with the producer, not released (protocol, "Owners and
producers").

Not here: the request by which a session owns a resource (``own``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fenceline import limits
from fenceline.access import rules, session_item
from fenceline.access.fence_markers import read_sessions
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.ownership.decision import FoundResource, owners, released
from fenceline.access.ownership.snapshot import Items, keys_named, read_claimer, read_found, read_owners, resolve
from fenceline.access.producer import record_from_item
from fenceline.access.resources import OwnershipItem, Resource, check_group, check_released, check_resource
from fenceline.access.rules import Holder, access_from_item
from fenceline.access.session_item import CLOSED, SessionItem, liveness_of
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.access import Ownership

# Each takes an ownership and a partition's access; with the session that is a third of a write's items, and two thirds
# of its bytes.
_AT_ONCE = limits.RESOURCES_PER_OWN_MAX


def release(
    partitions: Partitions, session_id: str, resources: Sequence[str], *, group: str | None = None, principal: str = ""
) -> None:
    """Give up those of the resources that the session owns, and ignore the others.

    Raises:
        InvalidRequestError: A name is out of its bounds. Nothing was changed, as with the next ones.
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session, in this order.
        StoreUnavailableError, ContendedError: Nothing was released; send it again.
        OutcomeUnknownError: Some may have been released; send it again.
    """
    context = partitions.context
    check_released(group, resources)
    attempts = Attempts(context.runtime, "the ownerships")
    while True:
        with attempts:
            while _release_some(partitions, session_id, resources, group, principal):
                attempts.is_unknown = True  # a part is released
            return


def _release_some(
    partitions: Partitions, session_id: str, resources: Sequence[str], group: str | None, principal: str
) -> bool:
    """Release what one write can of the resources that the session owns; return True if it still owns others."""
    named = [keys.lock_item(group, one) for one in resources]
    session, items = read_claimer(partitions, session_id, principal, named)
    # By the resources that the session claimed, because a name may lead to another incarnation by now.
    mine = [o for o in session.owns if o.group == group and o.resource in resources]
    if mine:
        _release(partitions.context, session, [Resource.of(owned) for owned in mine[:_AT_ONCE]], items)
    return len(mine) > _AT_ONCE


def give_up(context: Context, session_id: str, taken: Iterable[Resource]) -> None:
    """Give up all that a refused request has taken, in one write if its topics still exist.

    Raises:
        OutcomeUnknownError, StoreUnavailableError, ContendedError: The session may still own some of it.
    """
    resources = list(taken)
    for at in range(0, len(resources), _AT_ONCE):
        some = resources[at : at + _AT_ONCE]
        attempts = Attempts(context.runtime, "the ownerships")
        while True:
            with attempts:
                session = read_sessions(context, [session_id]).get(session_id)
                if session is not None and not session.is_final:  # else it owns nothing
                    locks = [one.key for one in some if one.is_plain]
                    _release(context, session, some, context.items.get(locks) if locks else {})
                break


def _release(context: Context, session: SessionItem, resources: Sequence[Resource], locks: Items) -> None:
    """Release these in one write; ``locks`` has the items of the plain strings among them."""
    own_keys = [one.key for one in resources]
    wanted = [key for one, key in zip(resources, own_keys, strict=True) if not one.is_plain]
    wanted += [keys.access_item(one.topic_id, one.partition) for one in resources if one.is_write_access]
    items = {**locks, **(context.items.get(wanted) if wanted else {})}
    transaction = ItemTransaction({})
    for resource, own_key in zip(resources, own_keys, strict=True):
        known = OwnershipItem.from_item(items.get(own_key))
        if known.session_id == session.session_id:
            transaction.put(own_key, released(known))
        else:  # lost, or claimed by the same session right now, where looks may differ
            transaction.require(own_key, known.version)
        if resource.is_write_access:
            # Only its access as an owner, because the session's producers keep theirs.
            key = keys.access_item(resource.topic_id, resource.partition)
            item = access_from_item(items.get(key))
            transaction.change(key, item, rules.closed(item, (session.session_id, "")))
            session = _closed(session, resource)
    gone = {one.owned for one in resources}
    left = replace(session, owns=tuple(owned for owned in session.owns if owned not in gone))
    transaction.put(left.key, left)
    context.items.write(transaction.changes(context.runtime))


def _closed(session: SessionItem, resource: Resource) -> SessionItem:
    place = resource.topic_id, resource.partition
    for hold in session.holds:
        if hold.place == place and not hold.producer_name:
            session = session_item.with_hold_state(session, *place, hold.epoch, "", CLOSED)
    return session


def read_owner(partitions: Partitions, resource: str, *, group: str | None, principal: str) -> Ownership:
    """Return the owner of a resource now, and the resource's last generation and token.

    Raises:
        InvalidRequestError: A name is out of its bounds.
        StoreUnavailableError, ContendedError: A store failed.
        CorruptLogError: The partition's log is damaged.
    """
    context = partitions.context
    check_group(group)
    check_resource(resource)
    attempts = Attempts(context.runtime, "the ownership")
    while True:
        with attempts:
            named = context.items.get(keys_named([resource], group))
            (found,) = read_found(partitions, [resolve(resource, group, named)], named)
            known = read_owners(partitions, [found])
            held = owners(found, liveness_of(known.get, context.runtime.now_ms()))
            token = found.item.fencing_token if found.view is None else found.view.state.topic_epoch
            if not held:
                return Ownership(resource, group, found.item.generation, token, None)
            owner = known[held[0].session_id]
            since = _since(context, found, held[0])
            return Ownership(
                resource,
                group,
                found.item.generation,
                max(token, held[0].epoch),
                owner.id_for(principal),
                owner.client_name,
                since,
                owner.expires_at,
            )


def _since(context: Context, found: FoundResource, holder: Holder) -> int | None:
    """Return when a holder got the resource: as its owner, or as a producer of the partition."""
    if not holder.producer_name:
        return found.item.since if found.item.session_id == holder.session_id else None
    key = keys.named_producer_item(found.resource.topic_id, holder.producer_name)
    item = context.items.get([key]).get(key)
    record = None if item is None else record_from_item(item)
    return record.since if record is not None and record.session_id == holder.session_id else None
