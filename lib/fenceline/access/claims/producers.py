"""A topic's named producers: look, list, close (contract, "Sessions and producers").

Rule: a producer is shown by its record, its session, and its partitions now. Closing a producer ends its access, not
its session. A reconnection undoes the closing, until another claim comes.

Not here: polls of a producer that waits (``waiting``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from fenceline import limits
from fenceline.access import fence_markers, rules, session_item
from fenceline.access.claims.decision import fenced
from fenceline.access.claims.snapshot import ClaimSnapshot, SnapshotQuery, Tickets, read_snapshot
from fenceline.access.claims.waiting import ANOTHERS, judge_record, read_record, shown, unknown_producer
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.producer import CLOSED, ProducerRecord, record_from_item
from fenceline.access.rules import AccessItem, access_from_item
from fenceline.access.session_item import LIVE, SessionItem, session_from_item
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.model.access import QUEUED, Claim, ProducerPage
from fenceline.model.topic import Topic


def read(partitions: Partitions, topic: Topic, name: str, principal: str) -> Claim:
    """Return a producer as a principal may see it, without renewing anything.

    Raises:
        UnknownProducerError, ProducerFencedError, SessionExpiredError, SessionSeveredError: As the contract says.
        StaleTopicId: The name no longer leads to this incarnation.
    """
    context = partitions.context
    record = read_record(context, topic, name)
    numbers = () if record is None else record.partitions
    snapshot = read_snapshot(partitions, SnapshotQuery(topic, numbers, None, name))
    record = judge_record(snapshot, name, None)
    # A refusal names the session, too, so another principal's is judged by the beginning of its id.
    session_id = record.session_id if record.principal == principal else record.session_id[:8]
    session = session_item.judge_known(snapshot.sessions.get(record.session_id), session_id, record.principal)
    return record.shown_to(principal, shown(snapshot, record, replace(session, session_id=session_id)))


def listed(context: Context, topic: Topic, principal: str, *, start_after: str, limit: int) -> ProducerPage:
    """Return the first ``limit`` producers after a name that hold access, or wait for it, by the items alone.

    Raises:
        Unavailable: The item store could not be asked.
    """
    after = start_after[: limits.PRODUCER_NAME_CHARS_MAX + 1]  # because a store's keys have bounds; no name is longer
    found: list[tuple[ProducerRecord, Claim]] = []
    while True:
        at_once = max(limit + 1 - len(found), limits.TRANSACTION_ITEMS_MAX)
        items = context.items.query(keys.producers_of(topic.topic_id), start_after=after, limit=at_once)
        found += _shown(context, topic, [record_from_item(item) for item in items])
        if len(items) < at_once or len(found) > limit:
            break
        after = items[-1].key.sort
    page = found[:limit]
    waiting = sorted((one for one in page if one[1].state == QUEUED), key=lambda one: one[0].ticket)
    return ProducerPage(
        [record.shown_to(principal, claim) for record, claim in page if claim.state != QUEUED],
        [record.shown_to(principal, claim) for record, claim in waiting],
        len(found) > limit,
    )


def _shown(context: Context, topic: Topic, records: Sequence[ProducerRecord]) -> list[tuple[ProducerRecord, Claim]]:
    """Return the producers among ``records`` that hold access, or wait for it, in that order."""
    snapshot = _snapshot(context, topic, records)
    found: list[tuple[ProducerRecord, Claim]] = []
    for record in records:
        session = snapshot.sessions.get(record.session_id)
        if session is None or session.is_final or record.state == CLOSED:
            continue
        with suppress(FencelineError):  # fenced, failed or lapsed: not listed
            found.append((record, shown(snapshot, record, session)))
    return found


def _snapshot(context: Context, topic: Topic, records: Sequence[ProducerRecord]) -> ClaimSnapshot:
    """Read the snapshot for these producers, with all waiters before them, also those that are not among them."""
    others = _read_access(context, topic, {p for record in records for p in record.partitions})
    waiters = [waiter for item in others.values() for waiter in item.waiting]
    others |= _read_access(context, topic, {p for waiter in waiters for p in waiter.partitions} - others.keys())
    ids = {one.session_id for one in records} | {one.session_id for one in waiters}
    found = context.read_items([keys.session_item(session_id) for session_id in sorted(ids)])
    return ClaimSnapshot(
        topic=topic,
        views={},
        others=others,
        sessions={key.sort: session_from_item(item) for key, item in found.items()},
        records={record.producer_name: record for record in records},
        tickets=Tickets(),
        held={},
        now_ms=context.runtime.now_ms(),
    )


def _read_access(context: Context, topic: Topic, partitions: Iterable[int]) -> dict[int, AccessItem]:
    access_keys = {p: keys.access_item(topic.topic_id, p) for p in sorted(partitions)}
    items = context.read_items(list(access_keys.values()))
    return {p: access_from_item(items.get(key)) for p, key in access_keys.items()}


def close(
    partitions: Partitions,
    topic: Topic,
    name: str,
    session_id: str,
    principal: str,
    note: Callable[[SessionItem], None],
) -> None:
    """Close a producer, with all that it holds, has reserved, or waits for. A closed or fenced one stays as it is.

    If another session has taken the name since, and nothing of this producer is left, it counts as closed, so that the
    same request, sent again, gets the same answer. No session remembers a producer that was never granted, so for such
    a producer the repeated request is refused.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError: Nothing was changed.
        UnknownProducerError, ProducerFencedError: There is no such producer, or it belongs to another session. Nothing
            was changed.
        StoreUnavailableError, ContendedError: Nothing was changed; close it again.
        OutcomeUnknownError: The producer may be closed; close it again.
    """
    context = partitions.context
    was_its = False  # whether the name was this producer's in an earlier attempt
    attempts = Attempts(context.runtime, "the producer")
    while True:
        with attempts:
            record = read_record(context, topic, name)
            known = fence_markers.read_fenced(partitions, [session_id]).get(session_id)
            session = session_item.judge_known(known, session_id, principal)
            is_its = record is not None and record.session_id == session_id
            if record is None or not is_its:
                states = {hold.state for hold in session.granted_to(topic.topic_id, name)}
                if LIVE in states or not (states or was_its):
                    raise _not_its(partitions, topic, name, record)
            if record is None or not is_its or record.state == CLOSED or session.is_final:
                note(session)  # closed by a write whose answer was lost, or by another process
                return
            was_its = True
            transaction = _closed_access(context, record)
            left = session_item.without_producer(session, topic.topic_id, name)
            put = left.put(context.runtime)
            transaction.put(record.key, replace(record, state=CLOSED))
            # A process that ends the access meanwhile writes the same items, so that this write fails, and the request
            # is judged again.
            context.items.write([put, *transaction.changes(context.runtime)])
            note(left.written(put))
            return


def _not_its(partitions: Partitions, topic: Topic, name: str, record: ProducerRecord | None) -> FencelineError:
    if record is None:
        return unknown_producer(name)
    return fenced(read_snapshot(partitions, SnapshotQuery(topic, record.partitions, None, name)), ANOTHERS)


def _closed_access(context: Context, record: ProducerRecord) -> ItemTransaction:
    access_keys = [keys.access_item(record.topic_id, p) for p in record.partitions]
    found, transaction = context.items.get(access_keys), ItemTransaction({})
    for key in access_keys:
        item = access_from_item(found.get(key))
        transaction.change(key, item, rules.closed(item, record.name))
    return transaction
