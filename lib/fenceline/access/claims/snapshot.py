"""All that a claim is judged by, read at one moment, and the changes that follow from it.

Rule: the items are read before the sessions that they name, and every change is conditional on the version that was
read. So the write that ends a session which looked dead fails if that session came back meanwhile. The states of the
partitions come from verified tails.

Not here: the decision (``decision``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from fenceline import limits
from fenceline.access import fence_markers, hold_limits
from fenceline.access.producer import PENDING, ProducerRecord, is_legal_name, record_from_item
from fenceline.access.rules import AccessItem, Liveness, PartitionAccess, Waiter, access_from_item
from fenceline.access.session import SessionItem, session_from_item
from fenceline.format import keys
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tail
from fenceline.log.topic_item import topic_from_item
from fenceline.model.access import GRANTED, QUEUED
from fenceline.model.topic import Topic, unknown_partition
from fenceline.ports import Change, Check, Item, ItemKey, Put
from fenceline.runtime import Runtime


@dataclass(frozen=True, slots=True)
class ClaimSnapshot:
    """A topic's access, as far as one claim concerns it."""

    topic: Topic
    views: dict[int, PartitionAccess]  # of the claim's partitions
    others: dict[int, AccessItem]  # of further partitions that waiters and records name
    sessions: dict[str, SessionItem]  # those that are named and exist
    records: dict[str, ProducerRecord]  # by name
    tickets: Item | None  # the counter
    held: dict[tuple[str, int], AccessItem]  # of the claimer's holds, where they are almost too many
    now_ms: int
    topic_version: int | None = None  # of the topic's item

    @property
    def liveness(self) -> Liveness:
        return Liveness(self.is_live, self.is_gone, lambda waiter: self.is_in_line(waiter.ticket, waiter.partitions))

    def item(self, partition: int) -> AccessItem:
        view = self.views.get(partition)
        return self.others.get(partition, AccessItem()) if view is None else view.item

    def is_live(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        return session is not None and session.is_live(self.now_ms)

    def is_gone(self, session_id: str) -> bool:
        session = self.sessions.get(session_id)
        return session is None or session.is_final

    def is_waiting(self, waiter: Waiter) -> bool:
        return self.liveness.is_waiting(waiter)

    def is_in_line(self, ticket: int, partitions: Iterable[int]) -> bool:
        """Return True if a waiter is in the line of all its partitions; a fencer takes it out where it claims."""
        return all(any(w.ticket == ticket for w in self.item(p).waiting) for p in partitions)

    def is_held(self, record: ProducerRecord, partition: int) -> bool:
        """Return True if a producer still has what it was granted on a partition."""
        view = self.views.get(partition) or PartitionAccess(partition, self.item(partition), PartitionState())
        return view.is_held_by(record.name, record.topic_epochs.get(partition, -1))

    def held_of(self, record: ProducerRecord) -> list[int]:
        """Return what a producer was granted and still has, also while it claims the rest again, or waits for it."""
        if record.state not in (GRANTED, PENDING, QUEUED):
            return []
        return [p for p in record.partitions if p in record.next_offsets and self.is_held(record, p)]

    def is_alive(self, record: ProducerRecord) -> bool:
        """Return True if its name is taken: it holds something, or waits, and its session is live."""
        is_live = self.is_live(record.session_id)
        return is_live and (self.is_reserved_or_in_line(record) or bool(self.held_of(record)))

    def is_reserved_or_in_line(self, record: ProducerRecord) -> bool:
        """Return True if the claim of a record that is not granted yet may still be granted."""
        if record.state == QUEUED:
            return self.is_in_line(record.ticket, record.partitions)
        items = [self.item(p) for p in record.partitions if p not in record.next_offsets]
        holders = [holder for item in items for holder in (item.claim, *item.shared) if holder is not None]
        return record.state == PENDING and any(holder.name == record.name for holder in holders)


@dataclass(slots=True)
class ItemTransaction:
    """Changes to what a snapshot shows, written all or none."""

    snapshot: ClaimSnapshot
    access: dict[int, AccessItem] = field(default_factory=dict)
    sessions: dict[str, SessionItem] = field(default_factory=dict)
    record: ProducerRecord | None = None
    ticket: int | None = None  # the one that was drawn
    checks_all: bool = False  # items that stay as they were are conditions, too

    def session(self, session_id: str) -> SessionItem | None:
        """Return a session with the changes so far."""
        return self.sessions.get(session_id) or self.snapshot.sessions.get(session_id)

    def draw_ticket(self) -> int:
        """Return the topic's next ticket. Of two claims that draw it at the same time, only one can write."""
        counter = self.snapshot.tickets
        self.ticket = 1 if counter is None else int(str(counter.value["next"]))
        return self.ticket

    def changes(self, runtime: Runtime) -> list[Change]:
        topic_id = self.snapshot.topic.topic_id
        puts: list[Change] = [
            item.put(keys.access_item(topic_id, p), runtime)
            for p, item in self.access.items()
            if item != self.snapshot.item(p)
        ]
        puts += [s.put(runtime) for s in self.sessions.values() if s != self.snapshot.sessions.get(s.session_id)]
        if self.checks_all:
            puts += self._checks(topic_id)
        if self.record is not None:
            puts.append(self.record.put(runtime))
        if self.ticket is not None:
            counter = self.snapshot.tickets
            version = runtime.fresh_version() if counter is None else counter.version + 1
            expected = None if counter is None else counter.version
            puts.append(Put(keys.tickets_item(topic_id), {"next": self.ticket + 1}, version, expected))
        if any(isinstance(put, Put) and put.expected is None for put in puts):
            # A process that was frozen until this incarnation was collected must leave no item: none would delete it.
            puts.append(Check(keys.topic_item(self.snapshot.topic.name), self.snapshot.topic_version))
        return puts

    def _checks(self, topic_id: str) -> list[Change]:
        """Return the conditions on the items that do not change."""
        items = [(p, item) for p, item in self.access.items() if item == self.snapshot.item(p)]
        known = [one for one in self.sessions.values() if one == self.snapshot.sessions.get(one.session_id)]
        checks: list[Change] = [Check(keys.access_item(topic_id, p), item.version) for p, item in items]
        return [*checks, *(Check(session.key, session.version) for session in known)]


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """What a snapshot must show.

    Args:
        partitions: The claim's.
        session_id: The claimer's.
        producer_name: The record's; with ``None``, all records of the session on these partitions.
    """

    topic: Topic
    partitions: Sequence[int]
    session_id: str | None
    producer_name: str | None


def read_snapshot(partitions: Partitions, wanted: SnapshotQuery) -> ClaimSnapshot:
    """Read what a claim is judged by, and fence the severed sessions in it.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        UnknownTopicOrPartitionError: There is no such partition.
        FencelineError: The fences of a severed session could not be finished. Nothing else was written.
        Unavailable: A store could not be asked.
    """
    while True:
        snapshot = _read_once(partitions, wanted)
        severed = [session for session in snapshot.sessions.values() if session.fences]
        if not severed:
            return snapshot
        fence_markers.meet(partitions, severed)


def _read_once(partitions: Partitions, wanted: SnapshotQuery) -> ClaimSnapshot:
    context, topic, numbers = partitions.context, wanted.topic, wanted.partitions
    topic_key, tickets_key = keys.topic_item(topic.name), keys.tickets_item(topic.topic_id)
    access_keys = {p: keys.access_item(topic.topic_id, p) for p in numbers}
    first = [topic_key, tickets_key, *access_keys.values()]
    if wanted.producer_name is not None and is_legal_name(wanted.producer_name):
        first.append(keys.named_producer_item(topic.topic_id, wanted.producer_name))
    if wanted.session_id is not None and keys.is_session_id(wanted.session_id):
        first.append(keys.session_item(wanted.session_id))
    found = dict(context.items.get(first))
    known = topic_from_item(found[topic_key]) if topic_key in found else None
    if known is None or known.topic.topic_id != topic.topic_id or known.is_going:
        raise StaleTopicId
    for partition in numbers:
        if not 0 <= partition < known.topic.partitions:
            raise unknown_partition(known.topic, partition)
    items = {p: access_from_item(found.get(key)) for p, key in access_keys.items()}
    second = _second_keys(wanted, items, found)
    # After the items: if they say that access is granted, the log that is read now has its marker.
    # model: Access, "look at the log after the items"
    tails = [partial(_state, partitions, topic, p) for p in numbers]
    reads = [partial(context.items.get, some) for some in _chunks(second)]
    states = context.runtime.gather(tails)
    for read in context.runtime.gather(reads):
        found |= read
    return _snapshot(context, wanted, items, dict(zip(numbers, states, strict=True)), found)


def _state(partitions: Partitions, topic: Topic, partition: int) -> PartitionState:
    return verified_tail(partitions.get(topic.name, topic.topic_id, partition)).state


def _chunks(wanted: Sequence[ItemKey]) -> list[Sequence[ItemKey]]:
    at = range(0, len(wanted), limits.TRANSACTION_ITEMS_MAX)
    return [wanted[start : start + limits.TRANSACTION_ITEMS_MAX] for start in at]


def _second_keys(wanted: SnapshotQuery, items: dict[int, AccessItem], found: dict[ItemKey, Item]) -> list[ItemKey]:
    """Return the keys that the first items name: sessions, further partitions, the session's records and holds."""
    topic_id = wanted.topic.topic_id
    second: dict[ItemKey, None] = {}
    names: set[str] = set()
    for item in items.values():
        for named in _named(item):
            second[keys.session_item(named[0])] = None
            if named[0] == wanted.session_id and named[1]:
                names.add(named[1])
        for waiter in item.waiting:
            second |= {keys.access_item(topic_id, p): None for p in waiter.partitions if p not in items}
    if wanted.producer_name is not None:
        record_key = keys.named_producer_item(topic_id, wanted.producer_name)
        if record_key in found:
            record = record_from_item(found[record_key])
            second[keys.session_item(record.session_id)] = None
            second |= {keys.access_item(topic_id, p): None for p in record.partitions if p not in items}
    else:
        second |= {keys.named_producer_item(topic_id, name): None for name in sorted(names)}
    if wanted.session_id is not None and keys.is_session_id(wanted.session_id):
        session = found.get(keys.session_item(wanted.session_id))
        places = [] if session is None else hold_limits.crowded(session_from_item(session), len(items))
        second |= {keys.access_item(*place): None for place in places}
    # The access items are read again, after the session: only then is an earlier grant to it sure to be seen.
    return [key for key in second if key not in found or key.sort == "access"]


def _named(item: AccessItem) -> list[tuple[str, str]]:
    holders = [holder.name for holder in (item.granted, item.claim, *item.shared) if holder is not None]
    return [*holders, *(waiter.name for waiter in item.waiting)]


def _snapshot(
    context: Context,
    wanted: SnapshotQuery,
    items: dict[int, AccessItem],
    states: dict[int, PartitionState],
    found: dict[ItemKey, Item],
) -> ClaimSnapshot:
    topic_id = wanted.topic.topic_id
    access = {key: access_from_item(item) for key, item in found.items() if key.sort == "access"}
    others = {keys.parse_partition_items(key)[1]: item for key, item in access.items() if _is_of(key, topic_id)}
    records = [record_from_item(item) for key, item in found.items() if key.partition == keys.producers_of(topic_id)]
    sessions = [session_from_item(item) for key, item in found.items() if key == keys.session_item(key.sort)]
    session = next((one for one in sessions if one.session_id == wanted.session_id), None)
    places = [] if session is None else hold_limits.crowded(session, len(items))
    return ClaimSnapshot(
        topic=wanted.topic,
        topic_version=found[keys.topic_item(wanted.topic.name)].version,
        views={p: PartitionAccess(p, items[p], states[p]) for p in wanted.partitions},
        others={p: item for p, item in others.items() if p not in items},
        sessions={one.session_id: one for one in sessions},
        records={record.producer_name: record for record in records},
        tickets=found.get(keys.tickets_item(topic_id)),
        held={place: access.get(keys.access_item(*place), AccessItem()) for place in places},
        now_ms=context.runtime.now_ms(),
    )


def _is_of(key: ItemKey, topic_id: str) -> bool:
    return keys.parse_partition_items(key)[0] == topic_id


def settled(draft: ItemTransaction, puts: Sequence[Change]) -> ItemTransaction:
    """Return the draft as it is once written: each item with its new version."""
    versions = {put.key: put.version for put in puts if isinstance(put, Put)}
    topic_id = draft.snapshot.topic.topic_id
    return replace(
        draft,
        access={
            p: replace(item, version=versions.get(keys.access_item(topic_id, p), item.version))
            for p, item in draft.access.items()
        },
        sessions={i: replace(s, version=versions.get(s.key, s.version)) for i, s in draft.sessions.items()},
        record=None
        if draft.record is None
        else replace(draft.record, version=versions.get(draft.record.key, draft.record.version)),
    )
