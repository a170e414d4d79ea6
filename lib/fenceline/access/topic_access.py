"""The access to a topic's partitions: their holders, waiters and owners (contract, "Access and its history").

Rule: a look changes nothing. Items are read before the sessions that they name, and the log's ends after both, so that
the log has the markers of what the items grant.

Not here: earlier holders (``read.access_history``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain

from fenceline.access import rules
from fenceline.access.producer import ProducerRecord, record_from_item
from fenceline.access.resources import OwnershipItem
from fenceline.access.rules import AccessItem, Holder, Liveness, PartitionAccess, Waiter, access_from_item
from fenceline.access.session_item import SessionItem, liveness_of, session_from_item
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail, verified_tails
from fenceline.model.access import AccessHolder, AccessState, GroupOwner, PartitionOwner, TopicAccess
from fenceline.model.topic import Topic
from fenceline.ports import Item


@dataclass(frozen=True, slots=True)
class _Look:
    """The items about access to some partitions, with the sessions and the producers that they name."""

    principal: str
    now_ms: int
    access: Mapping[int, AccessItem]  # those of the partitions, and of others for which their waiters wait, too
    owned: Mapping[int, Mapping[str | None, OwnershipItem]]  # by partition and group; None is for writing
    sessions: Mapping[str, SessionItem]
    producers: Mapping[str, ProducerRecord]  # by name

    @property
    def liveness(self) -> Liveness:
        def is_in_line(waiter: Waiter) -> bool:
            places = (self.access.get(p, AccessItem()).waiting for p in waiter.partitions)
            return all(any(one.ticket == waiter.ticket for one in line) for line in places)

        return liveness_of(self.sessions.get, self.now_ms, is_in_line)


def list_access(context: Context, topic: Topic, partitions: Sequence[Partition], principal: str) -> TopicAccess:
    """Return the access to consecutive partitions of one incarnation, as a principal may see it.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tails``.
    """
    numbers = [partition.partition for partition in partitions]
    look = _look(context, topic, numbers, principal)

    def shown(partition: Partition, tail: Tail) -> AccessState:
        return _shown(look, PartitionAccess(partition.partition, look.access[partition.partition], tail.state))

    has_more = bool(numbers) and numbers[-1] + 1 < topic.partitions
    return TopicAccess(verified_tails(partitions, shown), has_more)


def _look(context: Context, topic: Topic, numbers: Sequence[int], principal: str) -> _Look:
    access = _read_access(context, topic, numbers)
    queries = [partial(_read_owned, context, topic, p) for p in numbers]
    owned = dict(zip(numbers, context.runtime.gather(queries), strict=True))
    waiters = [waiter for item in access.values() for waiter in item.waiting]
    access |= _read_access(context, topic, {p for waiter in waiters for p in waiter.partitions} - access.keys())
    # Those that share access are not shown, and may be many.
    holders = [holder for p in numbers for holder in (access[p].granted, access[p].claim) if holder is not None]
    owners = chain.from_iterable(owned[p].values() for p in numbers)
    ids = {one.session_id for one in owners if one.session_id is not None}
    ids |= {holder.session_id for holder in holders} | {waiter.session_id for waiter in waiters}
    names = {holder.producer_name for holder in holders if holder.producer_name}
    wanted = [keys.session_item(one) for one in sorted(ids)]
    wanted += [keys.named_producer_item(topic.topic_id, name) for name in sorted(names)]
    found = context.read_items(wanted)
    of_topic = keys.producers_of(topic.topic_id)
    sessions = [session_from_item(item) for key, item in found.items() if key.partition != of_topic]
    records = [record_from_item(item) for key, item in found.items() if key.partition == of_topic]
    return _Look(
        principal,
        context.runtime.now_ms(),
        access,
        owned,
        {session.session_id: session for session in sessions},
        {record.producer_name: record for record in records},
    )


def _read_access(context: Context, topic: Topic, numbers: Iterable[int]) -> dict[int, AccessItem]:
    wanted = {p: keys.access_item(topic.topic_id, p) for p in sorted(numbers)}
    found = context.read_items(list(wanted.values()))
    return {p: access_from_item(found.get(key)) for p, key in wanted.items()}


def _read_owned(context: Context, topic: Topic, number: int) -> dict[str | None, OwnershipItem]:
    """Return the ownerships of a partition by group. What was never owned is not there."""
    own = keys.ownership_item(topic.topic_id, number, None)
    items: Sequence[Item] = context.query_items(own.partition, own.sort)
    return {keys.parse_ownership_item(item.key): OwnershipItem.from_item(item) for item in items}


def _shown(look: _Look, view: PartitionAccess) -> AccessState:
    liveness, owned = look.liveness, look.owned[view.partition]
    held = rules.holders(view, liveness)
    owners = {
        group: _owner(look, item)
        for group, item in owned.items()
        if group is not None and item.session_id is not None and liveness.is_live(item.session_id)
    }
    writer = owned.get(None)
    owns = held and not held[0].producer_name and writer is not None and writer.session_id == held[0].session_id
    return AccessState(
        view.partition,
        view.state.topic_epoch,
        view.state.access_mode,
        _holder(look, view, held[0]) if held else None,
        sum(liveness.is_waiting(waiter) for waiter in view.item.waiting),
        _owner(look, writer) if owns and writer is not None else None,
        [GroupOwner(group, owner) for group, owner in sorted(owners.items())],
    )


def _holder(look: _Look, view: PartitionAccess, holder: Holder) -> AccessHolder:
    session = look.sessions[holder.session_id]
    record, since = look.producers.get(holder.producer_name), None
    if not holder.producer_name:
        owned = look.owned[view.partition].get(None)
        since = owned.since if owned is not None and owned.session_id == holder.session_id else None
    elif record is not None and record.session_id == holder.session_id:
        since = record.since
    return AccessHolder(
        holder.producer_name or None,
        session.client_name,
        session.id_for(look.principal),
        since,
        session.expires_at,
    )


def _owner(look: _Look, item: OwnershipItem) -> PartitionOwner:
    session = look.sessions[item.session_id or ""]
    return PartitionOwner(
        session.client_name, session.id_for(look.principal), item.generation, item.since, session.expires_at
    )
