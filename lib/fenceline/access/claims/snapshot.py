"""The snapshot by which a claim is judged: items, sessions and verified tails, read together.

Rule: the items are read before the sessions that they name. The states of the partitions come from verified tails.

Not here: the decision (``decision``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from fenceline.access import fence_markers, session_item
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.producer import PENDING, ProducerRecord, is_legal_name, record_from_item
from fenceline.access.rules import AccessItem, Liveness, PartitionAccess, Waiter, access_from_item
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.format import keys
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tail
from fenceline.log.topic_item import topic_from_item
from fenceline.model.access import GRANTED, QUEUED
from fenceline.model.topic import Topic, unknown_partition
from fenceline.ports import Check, Item, ItemKey


@dataclass(frozen=True, slots=True)
class Tickets:
    """A topic's counter of tickets, as it is stored."""

    following: int = 1
    version: int | None = None  # None: it is not stored yet

    def to_value(self) -> dict[str, Any]:
        return {"next": self.following}


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """A topic's access, as far as one claim concerns it."""

    topic: Topic
    views: dict[int, PartitionAccess]  # the claim's partitions
    others: dict[int, AccessItem]  # further partitions that waiters and records name
    sessions: dict[str, SessionItem]  # the named ones that exist
    records: dict[str, ProducerRecord]  # by name
    tickets: Tickets
    held: dict[tuple[str, int], AccessItem]  # the claimer's holds, where they are almost too many
    now_ms: int
    topic_version: int | None = None  # the version of the topic's item

    @property
    def liveness(self) -> Liveness:
        def is_in_line(waiter: Waiter) -> bool:
            return self.is_in_line(waiter.ticket, waiter.partitions)

        return session_item.liveness_of(self.sessions.get, self.now_ms, is_in_line)

    def transaction(self) -> ItemTransaction:
        """Return the write that follows from this snapshot, with no change in it yet.

        The write is conditional on the topic's item if it makes an item, because a process that was frozen until this
        incarnation was collected must not leave an item, which no process would ever delete.
        """
        is_here = Check(keys.topic_item(self.topic.name), self.topic_version)
        return ItemTransaction(self.sessions, if_made=is_here, too_large="claim; claim fewer partitions at once")

    def item(self, partition: int) -> AccessItem:
        view = self.views.get(partition)
        return self.others.get(partition, AccessItem()) if view is None else view.item

    def is_live(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        return session is not None and session.is_live(self.now_ms)

    def is_waiting(self, waiter: Waiter) -> bool:
        return self.liveness.is_waiting(waiter)

    def is_in_line(self, ticket: int, partitions: Iterable[int]) -> bool:
        """Return True if a waiter is in the line of all its partitions; a fencer removes it where the fencer claims."""
        return all(any(w.ticket == ticket for w in self.item(p).waiting) for p in partitions)

    def is_held(self, record: ProducerRecord, partition: int) -> bool:
        """Return True if a producer still has the access that it was granted on a partition."""
        view = self.views.get(partition) or PartitionAccess(partition, self.item(partition), PartitionState())
        return view.is_held_by(record.name, record.topic_epochs.get(partition, -1))

    def held_of(self, record: ProducerRecord) -> list[int]:
        """Return the partitions that a producer was granted and still has, also while it claims or waits for others."""
        if record.state not in (GRANTED, PENDING, QUEUED):
            return []
        return [p for p in record.partitions if p in record.next_offsets and self.is_held(record, p)]

    def is_alive(self, record: ProducerRecord) -> bool:
        """Return True if the producer's name is taken: it holds access, or waits, and its session is live."""
        is_live = self.is_live(record.session_id)
        return is_live and (self.is_reserved_or_in_line(record) or bool(self.held_of(record)))

    def is_reserved_or_in_line(self, record: ProducerRecord) -> bool:
        """Return True if the claim of a record that is not granted yet may still be granted."""
        if record.state == QUEUED:
            return self.is_in_line(record.ticket, record.partitions)
        items = [self.item(p) for p in record.partitions if p not in record.next_offsets]
        holders = [holder for item in items for holder in (item.claim, *item.shared) if holder is not None]
        return record.state == PENDING and any(holder.name == record.name for holder in holders)


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """The extent of a snapshot.

    Args:
        partitions: The claim's partitions.
        session_id: The claimer's session.
        producer_name: The record to read; with ``None``, all records of the session on these partitions.
    """

    topic: Topic
    partitions: Sequence[int]
    session_id: str | None
    producer_name: str | None

    def record_key(self) -> ItemKey | None:
        if self.producer_name is None or not is_legal_name(self.producer_name):
            return None
        return keys.named_producer_item(self.topic.topic_id, self.producer_name)

    def session_key(self) -> ItemKey | None:
        if self.session_id is None or not keys.is_session_id(self.session_id):
            return None
        return keys.session_item(self.session_id)


def read_snapshot(partitions: Partitions, query: SnapshotQuery) -> ClaimSnapshot:
    """Read the snapshot by which a claim is judged, and fence the severed sessions in it.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        UnknownTopicOrPartitionError: There is no such partition.
        FencelineError: The fences of a severed session could not be finished. Nothing else was written.
        Unavailable: A store could not be asked.
    """
    while True:
        snapshot = _read_once(partitions, query)
        severed = [session for session in snapshot.sessions.values() if session.fences]
        if not severed:
            return snapshot
        fence_markers.finish_all(partitions, severed)


def _read_once(partitions: Partitions, query: SnapshotQuery) -> ClaimSnapshot:
    context, topic = partitions.context, query.topic
    topic_key, tickets_key = keys.topic_item(topic.name), keys.tickets_item(topic.topic_id)
    access_keys = {p: keys.access_item(topic.topic_id, p) for p in query.partitions}
    record_key, session_key = query.record_key(), query.session_key()
    own_keys = [key for key in (record_key, session_key) if key is not None]
    found = dict(context.items.get([topic_key, tickets_key, *access_keys.values(), *own_keys]))
    known = topic_from_item(found[topic_key]) if topic_key in found else None
    if known is None or known.topic.topic_id != topic.topic_id or known.is_going:
        raise StaleTopicId
    for partition in query.partitions:
        if not 0 <= partition < known.topic.partitions:
            raise unknown_partition(known.topic, partition)
    items = {p: access_from_item(found.get(key)) for p, key in access_keys.items()}
    record = record_from_item(found[record_key]) if record_key in found else None
    session = session_from_item(found[session_key]) if session_key in found else None
    named = _named(query, items, record, session)
    # The log is read after the items, so if they say that access is granted, the log has its marker.
    # model: Access, "look at the log after the items"
    states = context.runtime.gather([partial(_state, partitions, topic, p) for p in query.partitions])
    found |= context.read_items(named.to_read(found))
    return ClaimSnapshot(
        topic=topic,
        topic_version=found[topic_key].version,
        views={p: PartitionAccess(p, items[p], state) for p, state in zip(query.partitions, states, strict=True)},
        others={p: access_from_item(found.get(key)) for p, key in named.others.items()},
        sessions={i: session_from_item(found[key]) for i, key in named.sessions.items() if key in found},
        records={name: record_from_item(found[key]) for name, key in named.records.items() if key in found},
        tickets=_tickets(found.get(tickets_key)),
        held={place: access_from_item(found.get(key)) for place, key in named.held.items()},
        now_ms=context.runtime.now_ms(),
    )


def _state(partitions: Partitions, topic: Topic, partition: int) -> PartitionState:
    return verified_tail(partitions.get(topic.name, topic.topic_id, partition)).state


def _tickets(item: Item | None) -> Tickets:
    return Tickets() if item is None else Tickets(int(str(item.value["next"])), item.version)


@dataclass(slots=True)
class _Named:
    """The keys of the items that the first items of a snapshot name."""

    sessions: dict[str, ItemKey]  # by id
    others: dict[int, ItemKey]  # access items of further partitions
    records: dict[str, ItemKey]  # by the producer's name
    held: dict[tuple[str, int], ItemKey]  # access items of the claimer's holds, where they are almost too many

    def to_read(self, found: Mapping[ItemKey, Item]) -> list[ItemKey]:
        """Return the keys to read, without those that were found already.

        The access items of the holds are always read, because only a read after the session's is sure to show an
        earlier grant.
        """
        named = (*self.sessions.values(), *self.others.values(), *self.records.values())
        return list(dict.fromkeys((*(key for key in named if key not in found), *self.held.values())))


def _named(
    query: SnapshotQuery,
    items: Mapping[int, AccessItem],
    record: ProducerRecord | None,
    session: SessionItem | None,
) -> _Named:
    topic_id, waiters = query.topic.topic_id, [waiter for item in items.values() for waiter in item.waiting]
    names = [name for item in items.values() for name in item.names()]
    further = {p for waiter in waiters for p in waiter.partitions}
    session_ids = dict.fromkeys(session_id for session_id, _ in names)
    if query.session_id is not None and session is not None:
        session_ids[query.session_id] = None
    if query.producer_name is None:
        of_session = sorted({name for session_id, name in names if name and session_id == query.session_id})
    else:
        of_session = [query.producer_name] if record is not None else []
    if record is not None:
        session_ids[record.session_id] = None
        further |= set(record.partitions)
    places = [] if session is None else session_item.crowded(session, len(items))
    further |= {p for held_topic_id, p in places if held_topic_id == topic_id}
    return _Named(
        sessions={session_id: keys.session_item(session_id) for session_id in session_ids},
        others={p: keys.access_item(topic_id, p) for p in sorted(further - items.keys())},
        records={name: keys.named_producer_item(topic_id, name) for name in of_session},
        held={place: keys.access_item(*place) for place in places},
    )
