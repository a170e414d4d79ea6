"""The decision on a claim of write access, from one snapshot (protocol, "Claim", "Reconnection"; PIP-68).

Rule: a decision is one set of conditional changes, or a refusal that changes nothing. A claim takes all its partitions
or none. They are only reserved until its markers are in the log (``claim``).

Rule: a reconnection, which names the epochs that it had, is judged before the table, and is refused for lower epochs
before it changes anything. The same session resumes access that no later access replaced, under the same epochs, also
when its lease had lapsed. Waiters keep their places.

Not here: reads and writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline import limits
from fenceline.access import rules, session_item
from fenceline.access.claims.request import ResolvedClaim
from fenceline.access.claims.snapshot import ClaimSnapshot
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.producer import CLOSED, PENDING, ProducerRecord
from fenceline.access.rules import (
    EXCLUSIVE_WITH_FENCING,
    AccessItem,
    Claimant,
    Column,
    Holder,
    PartitionAccess,
    Reconnection,
    Verdict,
    Waiter,
)
from fenceline.access.session_item import SessionItem, WriteHold
from fenceline.errors import ProducerBusyError, ProducerFencedError, ThrottledError
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.access import GRANTED, QUEUED, Claim


@dataclass(frozen=True, slots=True)
class Pending:
    """The reservations of a claim, to be granted once its markers are in the log.

    Args:
        holders: By partition, the reserved access.
        behind: By partition, the ended exclusive session that shared access follows, and that the log still names.
        offsets: By partition, the offset at which shared access that needs no marker begins.
        client_name: As the claimer's session is named.
    """

    record: ProducerRecord
    holders: Mapping[int, Holder]
    behind: Mapping[int, str] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)
    client_name: str | None = None


@dataclass(frozen=True, slots=True)
class DecidedClaim:
    """The decision on a claim: its changes, and an answer, or a reservation to complete first."""

    transaction: ItemTransaction
    outcome: Claim | Pending


def decide(snapshot: ClaimSnapshot, claim: ResolvedClaim) -> DecidedClaim:
    """Return the decision on a claim.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: The session is judged first.
        ProducerFencedError, ProducerBusyError: The claim is refused for its epochs, for its name, or by the table.
        ThrottledError: The claim is more than one partition, or one session, takes.
    """
    session = snapshot.sessions.get(claim.session_id)
    if not claim.makes_session:
        session = session_item.judge_known(session, claim.session_id, claim.principal)
    if session is not None:
        epochs = claim.request.topic_epochs
        resumed = None if epochs is None else _reconnected(snapshot, claim, session, epochs)
        if resumed is not None:
            return resumed
        session_item.judge_live(session, claim.session_id, claim.principal, snapshot.now_ms)
    return ClaimDecision(snapshot, claim).decide()


class ClaimDecision:
    """One claim, judged by one snapshot."""

    def __init__(self, snapshot: ClaimSnapshot, claim: ResolvedClaim) -> None:
        self.snapshot = snapshot
        self.claim = claim
        self.mode = claim.mode
        self.liveness = snapshot.liveness
        self.transaction = snapshot.transaction()
        self.record = self._same_claim()
        self.name = self.record.producer_name if self.record else claim.request.producer_name or claim.fresh_name

    def _same_claim(self) -> ProducerRecord | None:
        """Return the record of the same claim by the same session, as long as it is neither closed nor failed."""
        claim, snapshot = self.claim, self.snapshot
        named = claim.request.producer_name
        for name in [*snapshot.records] if named is None else [named]:
            record = snapshot.records.get(name)
            if record is not None and claim.is_of(record) and snapshot.is_alive(record):
                return record
        return None

    def decide(self) -> DecidedClaim:
        record, snapshot = self.record, self.snapshot
        taken = snapshot.records.get(self.name)
        if record is None and taken is not None and snapshot.is_alive(taken):
            raise taken_name(snapshot, taken)
        held = set() if record is None else set(snapshot.held_of(record))
        reserved = self._reserved()
        todo = [p for p in self.claim.partitions if p not in held and p not in reserved]
        if todo:
            return self._by_table(todo, held, reserved)
        assert record is not None
        if reserved:
            return DecidedClaim(self.transaction, self._pending(record, reserved))
        return DecidedClaim(self.transaction, record.granted_to(self._claimer(), self.claim.partitions))

    def _reserved(self) -> dict[int, Holder]:
        """Return the access that the same claim reserved before, and was not granted yet."""
        record = self.record
        if record is None or record.state != PENDING:
            return {}
        found: dict[int, Holder] = {}
        for p in record.partitions:
            item = self.snapshot.item(p)
            own = item.shared if self.mode == SHARED else (item.claim,)
            epoch = record.topic_epochs.get(p)
            for holder in own:
                if holder is not None and holder.name == record.name and holder.epoch == epoch:
                    found[p] = holder
        return {p: holder for p, holder in found.items() if p not in record.next_offsets}

    def _pending(self, record: ProducerRecord, reserved: Mapping[int, Holder]) -> Pending:
        if self.mode == EXCLUSIVE:
            session = self.transaction.session(self.claim.session_id)
            return Pending(record, reserved, client_name=None if session is None else session.client_name)
        states = {p: self.snapshot.views[p].state for p in reserved}
        behind = {p: state.session_id for p, state in states.items() if state.session_id is not None}
        return Pending(record, reserved, behind, {p: s.next_offset for p, s in states.items() if p not in behind})

    def _by_table(self, todo: Sequence[int], held: set[int], reserved: Mapping[int, Holder]) -> DecidedClaim:
        snapshot, claim, record = self.snapshot, self.claim, self.record
        is_queued = record is not None and record.state == QUEUED and snapshot.is_reserved_or_in_line(record)
        ticket = record.ticket if record is not None and is_queued else None
        claimant = Claimant(claim.session_id, self.name, ticket, keeps=bool(held or reserved))
        views = [snapshot.views[p] for p in todo]
        columns = [rules.column_of(view, claimant, self.liveness) for view in views]
        verdict = rules.verdict_of(claim.request.access_mode, columns)
        if verdict == Verdict.BUSY:
            raise busy(columns, self._in_the_way(views))
        if verdict == Verdict.FENCED:
            raise fenced(snapshot, f"{blocked_by(columns)}; claim with another access_mode, or wait")
        if verdict == Verdict.QUEUED:
            return self._still_queued(record) if record is not None and is_queued else self._queued(held)
        return self._granted(claimant, views, held, reserved)

    def _in_the_way(self, views: Sequence[PartitionAccess]) -> SessionItem | None:
        holders = [holder for view in views for holder in rules.holders(view, self.liveness)]
        others = [holder.session_id for holder in holders if holder.session_id != self.claim.session_id]
        return self.snapshot.sessions.get(others[0]) if others else None

    def _change_access(self, partition: int, item: AccessItem) -> None:
        key = keys.access_item(self.snapshot.topic.topic_id, partition)
        self.transaction.change(key, self.snapshot.item(partition), item)

    # Queued

    def _queued(self, held: set[int]) -> DecidedClaim:
        snapshot, claim, tickets = self.snapshot, self.claim, self.snapshot.tickets
        # Of two claims that draw a ticket at the same time, only one can write, because both write the counter.
        waiter = Waiter(tickets.following, claim.session_id, self.name, claim.partitions)
        drawn = replace(tickets, following=tickets.following + 1)
        for p, view in snapshot.views.items():
            item = rules.queued(view, waiter, self.liveness, waiters_max=limits.SESSIONS_PER_PARTITION_MAX)
            if item is None:
                raise throttled("sessions wait for this partition", limits.SESSIONS_PER_PARTITION_MAX)
            self._change_access(p, item)
        session = self._renewed()
        self.transaction.change_session(session)
        record = self._record(QUEUED, held, {}, {}, ticket=waiter.ticket)
        self.transaction.put(record.key, record)
        self.transaction.put(keys.tickets_item(snapshot.topic.topic_id), drawn)
        return DecidedClaim(self.transaction, record.queued(session, queue_position(snapshot, record)))

    def _still_queued(self, record: ProducerRecord) -> DecidedClaim:
        session = self._claimer()
        if self.claim.renews and session.is_renewal_due(self.snapshot.now_ms):
            session = session_item.renewed(session, self.snapshot.now_ms)
            self.transaction.change_session(session)
        return DecidedClaim(self.transaction, record.queued(session, queue_position(self.snapshot, record)))

    # Granted

    def _granted(
        self, claimant: Claimant, views: Sequence[PartitionAccess], held: set[int], reserved: Mapping[int, Holder]
    ) -> DecidedClaim:
        """Reserve the access that the claim takes; shared access that needs no marker is granted at once."""
        snapshot, claim, is_shared = self.snapshot, self.claim, self.mode == SHARED
        holders = dict(reserved)
        for p in held:  # a waiter has a place in the line of every partition, and needs no new epoch here
            self._change_access(p, rules.out_of_line(snapshot.item(p), claimant.name))
        for view in views:
            self._change_access(view.partition, self._taken(view, claimant))
            self._end(view)  # model: Access, "write the end before acting on it"
            epoch = view.state.topic_epoch if is_shared else view.epoch + 1
            holders[view.partition] = Holder(claim.session_id, epoch, self.name)
        is_marked = any(snapshot.views[p].state.access_mode == EXCLUSIVE for p in holders)
        is_pending = not is_shared or is_marked
        session = self._hold(holders, is_pending=is_pending)
        epochs = {p: holder.epoch for p, holder in holders.items()}
        offsets = {} if is_pending else {p: snapshot.views[p].state.next_offset for p in holders}
        record = self._record(PENDING if is_pending else GRANTED, held, epochs, offsets)
        self.transaction.put(record.key, record)
        if is_pending:
            return DecidedClaim(self.transaction, self._pending(record, holders))
        return DecidedClaim(self.transaction, record.granted_to(session, claim.partitions))

    def _taken(self, view: PartitionAccess, claimant: Claimant) -> AccessItem:
        if self.mode == SHARED:
            return self._pruned(view.partition, rules.shared(view, claimant, self.liveness))
        if view.epoch >= limits.INT32_MAX:
            raise fenced(self.snapshot, "the partition has no epoch left; create the topic again to get new ones")
        fails_waiters = self.claim.request.access_mode == EXCLUSIVE_WITH_FENCING
        return rules.reserved(view, claimant, self.liveness, fails_waiters=fails_waiters)

    def _pruned(self, partition: int, item: AccessItem) -> AccessItem:
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
        alive = rules.holders(view, self.liveness)
        for holder in rules.over(view, alive):
            self._end_hold(holder, view.partition)
        for holder in alive:
            session = self.transaction.session(holder.session_id)
            if session is not None and holder.session_id != self.claim.session_id:
                self.transaction.change_session(session_item.wanted(session, self.snapshot.now_ms))

    def _end_hold(self, holder: Holder, partition: int) -> None:
        session = self.transaction.session(holder.session_id)
        if session is None or session.is_final:
            return
        named = self.snapshot.topic.topic_id, partition, holder.epoch, holder.producer_name
        self.transaction.change_session(session_item.with_hold_state(session, *named, session_item.ENDED))

    def _claimer(self) -> SessionItem:
        return self.snapshot.sessions[self.claim.session_id]

    def _renewed(self) -> SessionItem:
        """Return the claimer's session, renewed, or the session that the claim makes."""
        claim, snapshot = self.claim, self.snapshot
        session = self.transaction.session(claim.session_id)
        if session is not None:
            return session_item.renewed(session, snapshot.now_ms) if claim.renews else session
        assert claim.makes_session
        return session_item.created(
            claim.session_id,
            principal=claim.principal,
            lease_ms=claim.lease_ms,
            now_ms=snapshot.now_ms,
            client_name=claim.request.client_name,
        )

    def _hold(self, holders: Mapping[int, Holder], *, is_pending: bool) -> SessionItem:
        """Note in the session all that it holds, before its markers, because a request that severs it must find all."""
        topic = self.snapshot.topic
        state = session_item.RESERVED if is_pending else session_item.LIVE
        session = self._renewed()
        for p, holder in holders.items():
            hold = WriteHold(topic.name, topic.topic_id, p, holder.epoch, self.mode, self.name, state)
            session = session_item.with_hold(session, hold)
        before = self.snapshot.sessions.get(session.session_id)
        if before is not None:
            session = session_item.bounded(before, session, self.snapshot.held)
        self.transaction.change_session(session)
        return session

    def _record(
        self, state: str, held: set[int], epochs: Mapping[int, int], offsets: Mapping[int, int], ticket: int = 0
    ) -> ProducerRecord:
        """Return the claim's record, with the partitions that it keeps of an earlier grant."""
        snapshot, kept = self.snapshot, self.record if held else None
        before = snapshot.records.get(self.name)
        if kept is not None:
            epochs = {p: kept.topic_epochs[p] for p in held} | dict(epochs)
            offsets = {p: kept.next_offsets[p] for p in held} | dict(offsets)
        return new_record(
            snapshot,
            self.claim,
            self.name,
            state,
            ticket=ticket,
            topic_epochs=epochs,
            next_offsets=offsets,
            since=snapshot.now_ms if kept is None else kept.since,
            version=None if before is None else before.version,
        )


# Reconnections


def _reconnected(
    snapshot: ClaimSnapshot, claim: ResolvedClaim, session: SessionItem, epochs: Mapping[int, int]
) -> DecidedClaim | None:
    """Return the decision on a claim that had access before; ``None`` if it is a new claim."""
    verdicts = {
        p: rules.reconnection_of(view, epochs[p], claim.session_id, claim.mode) for p, view in snapshot.views.items()
    }
    if Reconnection.FENCED in verdicts.values():
        raise fenced(snapshot, "a later claim came, or these epochs were never granted; claim without topic_epochs")
    if session.state == session_item.CLOSED:
        raise session_item.expired(session)
    if set(verdicts.values()) != {Reconnection.RESUMES}:
        return None
    named = [_names(view, claim, epochs[p]) for p, view in snapshot.views.items()]
    names = [name for name in named[0] if all(name in others for others in named[1:])]
    if claim.request.producer_name is not None:
        names = [name for name in names if name == claim.request.producer_name]
    return resumed(snapshot, claim, session, names[0], epochs) if names else None


def _names(view: PartitionAccess, claim: ResolvedClaim, epoch: int) -> list[str]:
    """Return the names of the session's producers on a partition, which several may share."""
    own = view.item.shared if claim.mode == SHARED else (view.item.granted,)
    held = [h for h in own if h is not None and (h.session_id, h.epoch) == (claim.session_id, epoch)]
    return [h.producer_name for h in held if h.producer_name]  # an owner has no producer name


def resumed(
    snapshot: ClaimSnapshot, claim: ResolvedClaim, session: SessionItem, name: str, epochs: Mapping[int, int]
) -> DecidedClaim:
    """Return the decision that gives a producer its access back."""
    topic, transaction = snapshot.topic, snapshot.transaction()
    before, session = session, session_item.renewed(session, snapshot.now_ms)
    # A process that ends this access writes the same items, so only one of the two succeeds, whatever the clocks say.
    # model: Access, "a reconnection writes what it read"
    transaction.require(session.key, session.version)
    for p, view in snapshot.views.items():
        key = keys.access_item(topic.topic_id, p)
        transaction.require(key, view.item.version)
        transaction.change(key, view.item, rules.resumed(view.item, (claim.session_id, name)))
        session = session_item.with_hold(session, WriteHold(topic.name, topic.topic_id, p, epochs[p], claim.mode, name))
    transaction.change_session(session_item.bounded(before, session, snapshot.held))
    record = snapshot.records.get(name)
    if record is not None and not claim.is_within(record):
        # Another claim of its own session is under way (a lapsed session may come back to it), or the name belongs to a
        # live producer, which must close first.
        is_own = record.session_id == claim.session_id
        if (is_own and record.state in (PENDING, QUEUED)) or snapshot.is_alive(record):
            raise taken_name(snapshot, record)
        record = new_record(snapshot, claim, name, version=record.version)
    record = record or new_record(snapshot, claim, name)
    offsets = {p: _next_offset(view) for p, view in snapshot.views.items()} | dict(record.next_offsets)
    record = replace(record, state=GRANTED, topic_epochs={**record.topic_epochs, **epochs}, next_offsets=offsets)
    transaction.put(record.key, record)
    return DecidedClaim(transaction, record.granted_to(session, claim.partitions))


def _next_offset(view: PartitionAccess) -> int:
    """Return the offset right after a grant's marker."""
    is_exclusive = view.state.access_mode == EXCLUSIVE
    return view.state.access_offset + 1 if is_exclusive else view.state.next_offset


def new_record(
    snapshot: ClaimSnapshot, claim: ResolvedClaim, name: str, state: str = CLOSED, **more: Any
) -> ProducerRecord:
    return ProducerRecord(
        snapshot.topic.topic_id,
        name,
        claim.session_id,
        claim.principal,
        claim.request.access_mode,
        claim.partitions,
        state,
        **{"since": snapshot.now_ms, **more},
    )


def queue_position(snapshot: ClaimSnapshot, record: ProducerRecord) -> int:
    """Return how many live waiters have a lower ticket than a producer that waits, on any of its partitions."""
    ahead = {
        waiter.ticket
        for p in record.partitions
        for waiter in snapshot.item(p).waiting
        if waiter.ticket < record.ticket and snapshot.is_waiting(waiter)
    }
    return len(ahead)


# Refusals, with the members that a caller needs to react


def fenced(snapshot: ClaimSnapshot, why: str) -> ProducerFencedError:
    epochs = {str(p): view.epoch_in_force for p, view in snapshot.views.items()}
    return ProducerFencedError(f"{why}: topic={snapshot.topic.name}", topic_epochs=epochs)


def taken_name(snapshot: ClaimSnapshot, record: ProducerRecord) -> ProducerBusyError:
    return ProducerBusyError(
        "the name belongs to a live producer until it closes, is fenced, or its lease lapses; choose another name: "
        f"producer_name={record.producer_name}{session_item.named_to_others(snapshot.sessions.get(record.session_id))}"
    )


def blocked_by(columns: Sequence[Column]) -> str:
    if Column.WAITERS in columns:
        return "other sessions wait for exclusive access"
    return "another session has exclusive access" if Column.EXCLUSIVE in columns else "other sessions share the access"


def busy(columns: Sequence[Column], holder: SessionItem | None) -> ProducerBusyError:
    """Return the error for a claim that other sessions block.

    Args:
        holder: One session that has access, if there is any.
    """
    named = "" if Column.WAITERS in columns else session_item.named_to_others(holder)
    until = f"{blocked_by(columns)}; claim again after they have ended, or wait with WaitForExclusive"
    return ProducerBusyError(f"{until}:{named}" if named else until)


def throttled(what: str, maximum: int) -> ThrottledError:
    return ThrottledError(f"already {maximum} {what}, the most there may be; try again when some have left")
