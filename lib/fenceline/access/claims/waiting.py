"""Polls for exclusive access, and the promotion of waiters in them (protocol, "Waiting").

Rule: a waiter is promoted in a poll, its own or another waiter's, because no process exists to promote waiters. It is
promoted once the waiters before it are granted or dead, and no session holds access. A poll may end anywhere: the next
one continues, and completes a reservation that was made for its waiter meanwhile.

Not here: how a claim is made (``claim``).
"""

from __future__ import annotations

from contextlib import suppress

from fenceline import limits
from fenceline.access import rules, session_item
from fenceline.access.claims.claim import Claiming
from fenceline.access.claims.decision import fenced, queue_position
from fenceline.access.claims.request import ResolvedClaim
from fenceline.access.claims.snapshot import ClaimSnapshot, SnapshotQuery, read_snapshot
from fenceline.access.producer import (
    CLOSED,
    FAILED,
    PENDING,
    ProducerRecord,
    is_legal_name,
    record_from_item,
)
from fenceline.access.rules import Claimant, Column, Waiter
from fenceline.access.session_item import SessionItem
from fenceline.errors import FencelineError, UnknownProducerError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partitions
from fenceline.model.access import GRANTED, QUEUED, Claim
from fenceline.model.topic import Topic


class Waiting:
    """The polls of one process."""

    def __init__(self, partitions: Partitions, claiming: Claiming) -> None:
        self._context = partitions.context
        self._partitions = partitions
        self._claiming = claiming

    def poll(self, topic: Topic, name: str, session_id: str, principal: str, *, wait_ms: int, timeout_ms: int) -> Claim:
        """Return the session's own producer, once it is granted or ``wait_ms`` are over. The wait renews the lease.

        Raises:
            UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: It has stopped waiting.
            UnknownProducerError: There is no such producer, or it was closed.
            ProducerFencedError: The producer belongs to another session, or a later claim replaced it.
            StoreUnavailableError, ContendedError, OutcomeUnknownError: Poll again; the producer keeps its place.
            StaleTopicId: The name no longer leads to this incarnation.
        """
        runtime = self._context.runtime
        until_ms = runtime.monotonic_ms() + wait_ms
        pause_ms = limits.POLL_FIRST_MS
        with self._context.poll() as poll:
            while True:
                producer = self._step(topic, name, session_id, principal, runtime.monotonic_ms() + timeout_ms)
                left_ms = until_ms - runtime.monotonic_ms()
                is_over = left_ms <= 0 or self._context.stopping.is_set
                if producer.state == GRANTED or is_over or not poll.may_wait(left_ms):
                    return producer
                runtime.sleep_ms(min(pause_ms, left_ms))
                pause_ms = min(2 * pause_ms, limits.POLL_LAST_MS)

    def _step(self, topic: Topic, name: str, session_id: str, principal: str, until_ms: int) -> Claim:
        record = read_record(self._context, topic, name)
        numbers = record.partitions if record is not None else ()
        snapshot = read_snapshot(self._partitions, SnapshotQuery(topic, numbers, session_id, name))
        session = session_item.judge_known(snapshot.sessions.get(session_id), session_id, principal)
        record = judge_record(snapshot, name, session_id)
        producer = shown(snapshot, record, session)
        if producer.state == GRANTED:
            return producer
        if record.state == QUEUED:
            self._promote_others(snapshot, record, until_ms)
        return self._claiming.make(topic, ResolvedClaim.of(record), until_ms, gives_up=False)

    def _promote_others(self, snapshot: ClaimSnapshot, record: ProducerRecord, until_ms: int) -> None:
        """Promote the first in line, if it is another waiter, and no session holds what both wait for."""
        ahead = [
            waiter
            for view in snapshot.views.values()
            for waiter in view.item.waiting
            if waiter.ticket < record.ticket and snapshot.is_waiting(waiter)
        ]
        if not ahead:
            return
        first = min(ahead, key=lambda waiter: waiter.ticket)
        if not _is_free(snapshot, first):
            return
        found = read_record(self._context, snapshot.topic, first.producer_name)
        if found is None or found.ticket != first.ticket or found.state != QUEUED:
            return
        # An error of this attempt is not this caller's, because the other waiter gets it in a poll of its own.
        with suppress(FencelineError):
            self._claiming.make(snapshot.topic, ResolvedClaim.of(found, renews=False), until_ms, gives_up=False)


def _is_free(snapshot: ClaimSnapshot, waiter: Waiter) -> bool:
    claimant = Claimant(waiter.session_id, waiter.producer_name, waiter.ticket)
    views = [view for p, view in snapshot.views.items() if p in waiter.partitions]
    return all(rules.column_of(view, claimant, snapshot.liveness) is Column.FREE for view in views)


def read_record(context: Context, topic: Topic, name: str) -> ProducerRecord | None:
    if not is_legal_name(name):
        return None
    key = keys.named_producer_item(topic.topic_id, name)
    item = context.items.get([key]).get(key)
    return None if item is None else record_from_item(item)


ANOTHERS = "the producer of that name belongs to another session; choose another name"


def unknown_producer(name: str) -> UnknownProducerError:
    what = "there is no such producer, or it was closed; claim again"
    return UnknownProducerError(f"{what}: producer_name={name[: limits.PRODUCER_NAME_CHARS_MAX]}")


def judge_record(snapshot: ClaimSnapshot, name: str, session_id: str | None) -> ProducerRecord:
    """Return a producer that may be shown, or polled by ``session_id``.

    Raises:
        UnknownProducerError: There is no such producer, or it or its session was closed.
        ProducerFencedError: It belongs to another session, or a fencer failed it.
    """
    record = snapshot.records.get(name)
    session = None if record is None else snapshot.sessions.get(record.session_id)
    if record is None or session is None:
        raise unknown_producer(name)
    if session_id not in (None, record.session_id):
        raise fenced(snapshot, ANOTHERS)
    if record.state == CLOSED or session.state == session_item.CLOSED:
        raise unknown_producer(name)
    if record.state == FAILED:
        raise fenced(snapshot, "another claim came first; claim again")
    return record


def shown(snapshot: ClaimSnapshot, record: ProducerRecord, session: SessionItem) -> Claim:
    """Return a producer as it is now.

    Raises:
        ProducerFencedError: The producer has lost all that it was granted, or its place in the line, and holds nothing.
        SessionExpiredError: The producer waits, and its session's lease lapsed.
    """
    if not snapshot.is_reserved_or_in_line(record):
        held = snapshot.held_of(record)
        if not held:
            what = "a later claim took its access" if record.state == GRANTED else "a fencer took its place in the line"
            raise fenced(snapshot, f"{what}; claim again")
        return record.granted_to(session, held)
    if not session.is_live(snapshot.now_ms):
        raise session_item.expired(session)
    return record.queued(session, 0 if record.state == PENDING else queue_position(snapshot, record))
