"""A claim: reserve, append the markers, confirm, and only then answer (protocol, "Claim").

Rule: *the marker in the log decides*. The write before the marker only reserves an epoch, and the write after it only
records the grant. Before a claim is answered with an error, it gives up all that it still has reserved. If it is
unknown whether that happened, the answer is that the outcome is unknown, and the same claim sent again completes it.

Not here: what a claim may take (``decision``), and which failure of several markers wins (``append.marker_round``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from fenceline.access import rules, session_item
from fenceline.access.claims.decision import Pending, decide
from fenceline.access.claims.request import ResolvedClaim, resolve
from fenceline.access.claims.snapshot import SnapshotQuery, read_snapshot
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.producer import PENDING, ProducerRecord, record_from_item, withdrawn
from fenceline.access.rules import AccessItem, access_from_item
from fenceline.access.session_item import SessionItem, session_from_item
from fenceline.append.entries.access_markers import GrantEntry, ShareEntry
from fenceline.append.marker_round import MarkerAppend, MarkerLost, append_markers
from fenceline.errors import (
    CorruptLogError,
    FencelineError,
    FixError,
    OutcomeUnknownError,
    ProducerFencedError,
    RetryError,
)
from fenceline.format import keys
from fenceline.format.control import SHARED
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.access import GRANTED, Claim
from fenceline.model.requests import ClaimRequest
from fenceline.model.topic import Topic
from fenceline.ports import Change, Item, ItemKey


@dataclass(frozen=True, slots=True)
class _Now:
    """The items of a pending claim, from a read of this attempt."""

    access: Mapping[int, AccessItem]
    session: SessionItem | None
    record: ProducerRecord | None


class Claiming:
    """The claims of one process."""

    def __init__(self, partitions: Partitions) -> None:
        self._context = partitions.context
        self._partitions = partitions

    def claim(self, topic: Topic, request: ClaimRequest, principal: str, until_ms: int) -> Claim:
        """Claim access, or a place in the line.

        Args:
            until_ms: When the caller stops waiting for the stores, on the monotonic clock.

        Raises:
            InvalidRequestError, UnknownTopicOrPartitionError: Nothing was written.
            UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: Nothing was written.
            ProducerFencedError, ProducerBusyError, ThrottledError: The claim has nothing.
            StoreUnavailableError, ContendedError: The claim has nothing; send it again.
            OutcomeUnknownError: The claim may have what it asked for; the same claim completes it.
            StaleTopicId: The name no longer leads to this incarnation.
        """
        claim = resolve(request, topic, principal, self._context.runtime.fresh_id)
        return self.make(topic, claim, until_ms, gives_up=True)

    def make(self, topic: Topic, claim: ResolvedClaim, until_ms: int, *, gives_up: bool) -> Claim:
        """Carry out a resolved claim; see ``claim``.

        Args:
            gives_up: Whether nothing stays reserved after an error. If false, the waiter's next poll completes the
                claim.
        """
        outcome = self._reserve(topic, claim)
        if isinstance(outcome, Claim):
            return outcome
        try:
            # model: Access, "grant only after the marker"
            offsets = self._append_markers(topic, outcome, until_ms)
            return self._confirm(topic, outcome, offsets)
        except (FixError, RetryError, CorruptLogError) as error:
            if gives_up or not isinstance(error, RetryError):
                self._give_up(outcome, is_new_session=claim.makes_session)
            raise

    # (1)

    def _reserve(self, topic: Topic, claim: ResolvedClaim) -> Claim | Pending:
        query = SnapshotQuery(topic, claim.partitions, claim.session_id, claim.request.producer_name)
        attempts = Attempts(self._context.runtime, "the claim")
        try:
            while True:
                with attempts:
                    decision = decide(read_snapshot(self._partitions, query), claim)
                    changes = decision.transaction.changes(self._context.runtime)
                    if changes:
                        # A claim that loses this write reads again, because a rival came first, or a session that
                        # looked dead renewed its lease.
                        self._context.items.write(changes)
                    return decision.outcome
        except CorruptLogError as error:
            if not attempts.is_unknown:
                raise
            what = "the claim may have reserved what it asked for; send the same claim again"
            raise OutcomeUnknownError(f"{what}: {error.detail}") from error

    # (2)

    def _append_markers(self, topic: Topic, pending: Pending, until_ms: int) -> dict[int, int]:
        """Append each partition's marker, side by side, and return the offsets right after them."""
        partitions = [p for p in pending.holders if p not in pending.offsets]
        markers = [MarkerAppend(topic.name, topic.topic_id, p, _marker(pending, p)) for p in partitions]
        try:
            offsets = append_markers(self._partitions, markers, until_ms)
        except MarkerLost as lost:
            if isinstance(lost.fact, StaleTopicId):
                raise lost.fact from None
            raise self._lost(topic, pending) from lost
        return dict(pending.offsets) | dict(zip(partitions, offsets, strict=True))

    # (3)

    def _confirm(self, topic: Topic, pending: Pending, offsets: Mapping[int, int]) -> Claim:
        """Record the grant of the markers that the log has."""
        # A refusal is final here, because ``make`` first gives up what is still reserved.
        attempts = Attempts(self._context.runtime, "the claim's confirmation", is_refusal_final=True)
        while True:
            with attempts:
                now = self._read(pending)
                record, session = now.record, now.session
                if session is None or record is None or record.name != pending.record.name:
                    raise self._lost(topic, pending)
                if record.state == GRANTED and set(pending.holders) <= set(record.next_offsets):
                    # Another request of the same claim recorded it, or an earlier attempt that was not answered.
                    return record.granted_to(session, record.partitions)
                session_item.judge_known(session, session.session_id, record.principal)
                if session.is_final:
                    raise session_item.expired(session)
                confirmed = self._confirmation(pending, now, record, session, offsets)
                if confirmed is None:
                    raise self._lost(topic, pending)
                transaction, record = confirmed
                # A request that severs the session, or claims, writes the same items, so only one of them succeeds.
                # model: Access, "grant on the session's version"
                self._context.items.write(transaction.changes(self._context.runtime))
                return record.granted_to(session, record.partitions)

    def _confirmation(
        self,
        pending: Pending,
        now: _Now,
        record: ProducerRecord,
        session: SessionItem,
        offsets: Mapping[int, int],
    ) -> tuple[ItemTransaction, ProducerRecord] | None:
        """Return the changes that grant what is reserved; ``None`` if some of it is no longer reserved."""
        topic_id, transaction = record.topic_id, ItemTransaction({})
        for p, holder in pending.holders.items():
            item = now.access[p]
            if record.access_mode == SHARED:
                granted = item if holder in item.shared else None
            else:
                granted = rules.confirmed(item, holder)
            # model: Access, "grant all or none"
            if granted is None or record.state != PENDING:
                return None
            transaction.change(keys.access_item(topic_id, p), item, granted)
            session = session_item.granted(session, topic_id, p, holder.epoch, holder.producer_name)
        record = replace(record, state=GRANTED, next_offsets={**record.next_offsets, **offsets})
        transaction.put(session.key, session)
        transaction.put(record.key, record)
        return transaction, record

    def _read(self, pending: Pending) -> _Now:
        record, holders = pending.record, pending.holders
        access_keys = {p: keys.access_item(record.topic_id, p) for p in holders}
        session_key, record_key = keys.session_item(record.session_id), record.key
        found: Mapping[ItemKey, Item] = self._context.items.get([*access_keys.values(), session_key, record_key])
        return _Now(
            {p: access_from_item(found.get(key)) for p, key in access_keys.items()},
            session_from_item(found[session_key]) if session_key in found else None,
            record_from_item(found[record_key]) if record_key in found else None,
        )

    def _lost(self, topic: Topic, pending: Pending) -> ProducerFencedError:
        """Return the error for a claim that came after another one, with the epochs now in force."""
        record = pending.record
        epochs: dict[str, int] = {}
        for p in record.partitions:
            state = self._partitions.get(topic.name, topic.topic_id, p).state
            epochs[str(p)] = state.topic_epoch
        return ProducerFencedError("another claim of these partitions came first; claim again", topic_epochs=epochs)

    # Giving up

    def _give_up(self, pending: Pending, *, is_new_session: bool) -> None:
        """Give up what is still reserved, in one write, and end a session that no answer has named yet.

        Raises:
            OutcomeUnknownError: The store failed, so the same claim may still be completed.
        """
        runtime = self._context.runtime
        try:
            attempts = Attempts(runtime, "the claim's end")
            while True:
                with attempts:
                    changes = self._withdrawal(pending, is_new_session=is_new_session)
                    if changes:
                        self._context.items.write(changes)
                    return
        except FencelineError as error:
            raise OutcomeUnknownError(
                f"the claim failed, and what it reserved could not be given up; send the claim again: {error.detail}"
            ) from error

    def _withdrawal(self, pending: Pending, *, is_new_session: bool) -> Sequence[Change]:
        runtime, topic_id = self._context.runtime, pending.record.topic_id
        now, transaction = self._read(pending), ItemTransaction({})
        session = now.session
        for p, holder in pending.holders.items():
            item = now.access[p]
            transaction.change(keys.access_item(topic_id, p), item, rules.given_up(item, holder))
            if session is not None:
                session = session_item.without_reserved(session, topic_id, p, holder.epoch, holder.producer_name)
        if session is not None and is_new_session and not session.is_final:
            session = session_item.closed(session, runtime.now_ms())
        if session is not None and now.session is not None:
            transaction.change(session.key, now.session, session)
        record = now.record
        if record is not None and record.name == pending.record.name and record.state == PENDING:
            transaction.put(record.key, withdrawn(record))
        return transaction.changes(runtime)


def _marker(pending: Pending, partition: int) -> GrantEntry | ShareEntry:
    holder, behind = pending.holders[partition], pending.behind.get(partition)
    if behind is not None:
        return ShareEntry(holder.epoch, behind)
    return GrantEntry(holder.session_id, holder.epoch, holder.producer_name, pending.client_name)
