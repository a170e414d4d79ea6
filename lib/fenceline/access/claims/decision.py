"""The decision on a claim of write access, from one snapshot (DESIGN.md, "Claim"; PIP-68).

Rule: a decision is one set of conditional changes, or a refusal that changes nothing. A claim takes all its partitions
or none. What it takes is only reserved until its markers are in the log (``claim``).

Not here: reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from fenceline import limits
from fenceline.access import hold_limits, rules
from fenceline.access import session as sessions
from fenceline.access.claims.outcome import (
    Ask,
    Decision,
    Pending,
    blocked_by,
    busy,
    fenced,
    new_record,
    queue_position,
    taken_name,
    throttled,
)
from fenceline.access.claims.reconnect import reconnect
from fenceline.access.claims.snapshot import ClaimSnapshot, ItemTransaction
from fenceline.access.producer import PENDING, ProducerRecord, granted_producer, queued_producer
from fenceline.access.rules import EXCLUSIVE_WITH_FENCING, Claimant, Holder, PartitionAccess, Verdict, Waiter
from fenceline.access.session import Hold, SessionItem
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.access import GRANTED, QUEUED


def decide(snapshot: ClaimSnapshot, ask: Ask) -> Decision:
    """Return the decision on a claim.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session is judged first.
        ProducerFencedError, ProducerBusyError: The claim is refused for its epochs, for its name, or by the table.
        ThrottledError: It is more than one partition, or one session, takes.
    """
    session = snapshot.sessions.get(ask.session_id)
    if ask.lease_ms is None:
        session = sessions.judge_known(session, ask.session_id, ask.principal)
    if ask.topic_epochs is not None and session is not None:
        resumed = reconnect(snapshot, ask, session)
        if resumed is not None:
            return resumed
    if session is not None:
        sessions.judge_live(session, ask.session_id, ask.principal, snapshot.now_ms)
    return ClaimDecision(snapshot, ask).decide()


class ClaimDecision:
    """One claim, judged by one snapshot."""

    def __init__(self, snapshot: ClaimSnapshot, ask: Ask) -> None:
        self.snapshot = snapshot
        self.ask = ask
        self.draft = ItemTransaction(snapshot)
        self.record = self._same_claim()
        self.name = self.record.producer_name if self.record else ask.producer_name or ask.fresh_name

    def _same_claim(self) -> ProducerRecord | None:
        """Return the record of the same claim by the same session, as long as it is neither closed nor failed."""
        ask, snapshot = self.ask, self.snapshot
        for name in [*snapshot.records] if ask.producer_name is None else [ask.producer_name]:
            record = snapshot.records.get(name)
            is_same = record is not None and (record.session_id, record.access_mode, record.partitions) == (
                ask.session_id,
                ask.access_mode,
                ask.partitions,
            )
            if is_same and record is not None and snapshot.is_alive(record):
                return record
        return None

    def decide(self) -> Decision:
        record, snapshot = self.record, self.snapshot
        taken = snapshot.records.get(self.name)
        if record is None and taken is not None and snapshot.is_alive(taken):
            raise taken_name(snapshot, taken)
        held = self._held()
        reserved = self._reserved()
        todo = [p for p in self.ask.partitions if p not in held and p not in reserved]
        if not todo:
            assert record is not None
            if reserved:
                return Decision(self.draft, self._pending(record, reserved))
            return self._answer(record)
        return self._by_table(todo, held, reserved)

    def _held(self) -> set[int]:
        return set() if self.record is None else set(self.snapshot.held_of(self.record))

    def _reserved(self) -> dict[int, Holder]:
        """Return what the same claim reserved before, and was not granted yet."""
        record = self.record
        if record is None or record.state != PENDING:
            return {}
        found: dict[int, Holder] = {}
        for p in record.partitions:
            item = self.snapshot.item(p)
            own = item.shared if self.ask.mode == SHARED else (item.claim,)
            epoch = record.topic_epochs.get(p)
            for holder in own:
                if holder is not None and holder.name == record.name and holder.epoch == epoch:
                    found[p] = holder
        return {p: holder for p, holder in found.items() if p not in record.next_offsets}

    def _pending(self, record: ProducerRecord, reserved: Mapping[int, Holder]) -> Pending:
        if self.ask.mode == EXCLUSIVE:
            return Pending(record, reserved)
        states = {p: self.snapshot.views[p].state for p in reserved}
        behind = {p: state.session_id for p, state in states.items() if state.session_id is not None}
        return Pending(record, reserved, behind, {p: s.next_offset for p, s in states.items() if p not in behind})

    def _answer(self, record: ProducerRecord) -> Decision:
        session = self.snapshot.sessions[record.session_id]
        return Decision(self.draft, granted_producer(record, session, self.ask.partitions))

    def _by_table(self, todo: Sequence[int], held: set[int], reserved: Mapping[int, Holder]) -> Decision:
        snapshot, ask, record = self.snapshot, self.ask, self.record
        is_queued = record is not None and record.state == QUEUED and snapshot.is_reserved_or_in_line(record)
        ticket = record.ticket if record is not None and is_queued else None
        claimant = Claimant(ask.session_id, self.name, ticket, keeps=bool(held or reserved))
        views = [snapshot.views[p] for p in todo]
        columns = [rules.column_of(view, claimant, snapshot.liveness) for view in views]
        verdict = rules.verdict_of(ask.access_mode, columns)
        if verdict == Verdict.BUSY:
            raise busy(columns, self._in_the_way(views))
        if verdict == Verdict.FENCED:
            raise fenced(snapshot, f"{blocked_by(columns)}; claim with another access_mode, or wait")
        if verdict == Verdict.QUEUED:
            return self._still_queued(record) if record is not None and is_queued else self._queued(held)
        return self._granted(claimant, views, held, reserved)

    def _in_the_way(self, views: Sequence[PartitionAccess]) -> SessionItem | None:
        holders = [holder for view in views for holder in rules.holders(view, self.snapshot.liveness)]
        others = [holder.session_id for holder in holders if holder.session_id != self.ask.session_id]
        return self.snapshot.sessions.get(others[0]) if others else None

    # Queued

    def _queued(self, held: set[int]) -> Decision:
        snapshot, ask, draft = self.snapshot, self.ask, self.draft
        waiter = Waiter(draft.draw_ticket(), ask.session_id, self.name, ask.partitions)
        for p, view in snapshot.views.items():
            item = rules.queued(view, waiter, snapshot.liveness, waiters_max=limits.SESSIONS_PER_PARTITION_MAX)
            if item is None:
                raise throttled("sessions wait for this partition", limits.SESSIONS_PER_PARTITION_MAX)
            draft.access[p] = item
        session = self._session()
        draft.sessions[session.session_id] = session
        draft.record = replace(self._kept_record(QUEUED, held), ticket=waiter.ticket)
        position = queue_position(snapshot, waiter.ticket, ask.partitions)
        return Decision(draft, queued_producer(draft.record, session, position))

    def _still_queued(self, record: ProducerRecord) -> Decision:
        session = self.snapshot.sessions[record.session_id]
        if self.ask.renews and session.is_renewal_due(self.snapshot.now_ms):
            session = sessions.renewed(session, self.snapshot.now_ms)
            self.draft.sessions[session.session_id] = session
        return Decision(
            self.draft,
            queued_producer(record, session, queue_position(self.snapshot, record.ticket, record.partitions)),
        )

    # Granted

    def _granted(
        self, claimant: Claimant, views: Sequence[PartitionAccess], held: set[int], reserved: Mapping[int, Holder]
    ) -> Decision:
        """Reserve what the claim takes; shared access that needs no marker is granted at once."""
        snapshot, ask, draft = self.snapshot, self.ask, self.draft
        holders = dict(reserved)
        for p in held:  # a waiter has a place in the line of every partition, and needs no new epoch here
            draft.access[p] = rules.out_of_line(snapshot.item(p), claimant.name)
        for view in views:
            draft.access[view.partition] = self._taken(view, claimant)
            self._end(view)  # model: Access, "write the end before acting on it"
            if ask.mode == SHARED:
                holders[view.partition] = Holder(ask.session_id, view.state.topic_epoch, self.name)
            else:
                holders[view.partition] = Holder(ask.session_id, view.epoch + 1, self.name)
        is_marked = any(snapshot.views[p].state.access_mode == EXCLUSIVE for p in holders)
        is_pending = ask.mode == EXCLUSIVE or is_marked
        self._hold(holders, is_pending=is_pending)
        record = self._kept_record(PENDING if is_pending else GRANTED, held)
        epochs = {**record.topic_epochs, **{p: h.epoch for p, h in holders.items()}}
        offsets = dict(record.next_offsets)
        if not is_pending:
            offsets |= {p: snapshot.views[p].state.next_offset for p in holders}
        draft.record = replace(record, topic_epochs=epochs, next_offsets=offsets)
        if is_pending:
            return Decision(draft, self._pending(draft.record, holders))
        return Decision(draft, granted_producer(draft.record, draft.sessions[ask.session_id], ask.partitions))

    def _taken(self, view: PartitionAccess, claimant: Claimant) -> rules.AccessItem:
        snapshot, ask = self.snapshot, self.ask
        if ask.mode == SHARED:
            return self._pruned(view.partition, rules.shared(view, claimant, snapshot.liveness))
        if view.epoch >= limits.INT32_MAX:
            raise fenced(snapshot, "the partition has no epoch left; create the topic again to get new ones")
        fails_waiters = ask.access_mode == EXCLUSIVE_WITH_FENCING
        return rules.reserved(view, claimant, snapshot.liveness, fails_waiters=fails_waiters)

    def _pruned(self, partition: int, item: rules.AccessItem) -> rules.AccessItem:
        """Return the item without some closed or lapsed sessions, where there are too many, and end their holds."""
        over = len(item.shared) - limits.SESSIONS_PER_PARTITION_MAX
        if over <= 0:
            return item
        dead = [h for h in item.shared[:-1] if h.is_closed or not self.snapshot.is_live(h.session_id)]
        if len(dead) < over:
            raise throttled("sessions share this partition", limits.SESSIONS_PER_PARTITION_MAX)
        gone = dead[:over]
        for holder in gone:
            self._end_hold(holder, partition)
        return replace(item, shared=tuple(h for h in item.shared if h not in gone))

    def _end(self, view: PartitionAccess) -> None:
        """End the access that is over, and mark the sessions that still block the claim as wanted."""
        for holder in rules.over(view, self.snapshot.liveness):
            self._end_hold(holder, view.partition)
        for holder in rules.holders(view, self.snapshot.liveness):
            session = self.draft.session(holder.session_id)
            if session is not None and holder.session_id != self.ask.session_id:
                self.draft.sessions[holder.session_id] = sessions.wanted(session, self.snapshot.now_ms)

    def _end_hold(self, holder: Holder, partition: int) -> None:
        session = self.draft.session(holder.session_id)
        if session is None or session.is_final:
            return
        named = self.snapshot.topic.topic_id, partition, holder.epoch, holder.producer_name
        self.draft.sessions[session.session_id] = sessions.with_hold_state(session, *named, sessions.ENDED)

    def _session(self) -> SessionItem:
        """Return the claimer's session, renewed; or the one that the claim makes."""
        ask, snapshot = self.ask, self.snapshot
        session = self.draft.session(ask.session_id)
        if session is not None:
            return sessions.renewed(session, snapshot.now_ms) if ask.renews else session
        assert ask.lease_ms is not None
        return sessions.created(
            ask.session_id,
            principal=ask.principal,
            lease_ms=ask.lease_ms,
            now_ms=snapshot.now_ms,
            client_name=ask.client_name,
        )

    def _hold(self, holders: Mapping[int, Holder], *, is_pending: bool) -> None:
        """Note in the session what it holds, before its markers: a request that severs it must find all of it."""
        topic, mode = self.snapshot.topic, self.ask.mode
        state = sessions.RESERVED if is_pending else sessions.LIVE
        session = self._session()
        for p, holder in holders.items():
            hold = Hold(topic.name, topic.topic_id, p, holder.epoch, mode, self.name, state)
            session = sessions.with_hold(session, hold)
        before = self.snapshot.sessions.get(session.session_id)
        if before is not None:
            session = hold_limits.bounded(before, session, self.snapshot.held)
        self.draft.sessions[session.session_id] = session

    def _kept_record(self, state: str, held: set[int]) -> ProducerRecord:
        """Return the claim's record, with what it keeps of an earlier grant."""
        record = new_record(self.snapshot, self.ask, self.name)
        before = self.snapshot.records.get(self.name)
        epochs = {p: self.record.topic_epochs[p] for p in held} if self.record else {}
        offsets = {p: self.record.next_offsets[p] for p in held} if self.record else {}
        version = None if before is None else before.version
        since = self.record.since if self.record and held else record.since
        return replace(record, state=state, topic_epochs=epochs, next_offsets=offsets, since=since, version=version)
