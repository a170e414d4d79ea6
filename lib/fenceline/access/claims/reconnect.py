"""Reconnections: claims that say which epochs they had (DESIGN.md, "Reconnection").

Rule: a reconnection is judged before the table, and one with lower epochs before it disturbs anything. The same session
resumes access that no later access replaced, under the same epochs, also when its lease had lapsed. Waiters keep their
places.

Not here: new claims (``decision``).
"""

from __future__ import annotations

from dataclasses import replace

from fenceline.access import hold_limits, rules
from fenceline.access import session as sessions
from fenceline.access.claims.outcome import Ask, Decision, fenced, new_record, taken_name
from fenceline.access.claims.snapshot import ClaimSnapshot, ItemTransaction
from fenceline.access.producer import PENDING, ProducerRecord, granted_producer
from fenceline.access.rules import PartitionAccess, Reconnection
from fenceline.access.session import Hold, SessionItem
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.access import GRANTED, QUEUED


def reconnect(snapshot: ClaimSnapshot, ask: Ask, session: SessionItem) -> Decision | None:
    """Return the decision on a claim that had access before; ``None`` if it is a new claim."""
    assert ask.topic_epochs is not None
    verdicts = {
        p: rules.reconnection_of(view, ask.topic_epochs[p], ask.session_id, ask.mode)
        for p, view in snapshot.views.items()
    }
    if Reconnection.FENCED in verdicts.values():
        raise fenced(snapshot, "a later claim came, or these epochs were never granted; claim without topic_epochs")
    if session.state == sessions.CLOSED:
        raise sessions.expired(session)
    if set(verdicts.values()) != {Reconnection.RESUMES}:
        return None
    named = [_names(view, ask, ask.topic_epochs[p]) for p, view in snapshot.views.items()]
    names = [name for name in named[0] if all(name in others for others in named[1:])]
    if ask.producer_name is not None:
        names = [name for name in names if name == ask.producer_name]
    return _resumed(snapshot, ask, session, names[0]) if names else None


def _names(view: PartitionAccess, ask: Ask, epoch: int) -> list[str]:
    """Return the names of the session's producers on a partition: several may share it."""
    own = view.item.shared if ask.mode == SHARED else (view.item.granted,)
    held = [h for h in own if h is not None and (h.session_id, h.epoch) == (ask.session_id, epoch)]
    return [h.producer_name for h in held if h.producer_name]  # an owner has no producer name


def _resumed(snapshot: ClaimSnapshot, ask: Ask, session: SessionItem, name: str) -> Decision:
    assert ask.topic_epochs is not None
    topic, epochs = snapshot.topic, dict(ask.topic_epochs)
    # A process that ends this access writes the same items: only one of the two succeeds, whatever the clocks say.
    draft = ItemTransaction(snapshot, checks_all=True)  # model: Access, "a reconnection writes what it read"
    session = sessions.renewed(session, snapshot.now_ms)
    for p, view in snapshot.views.items():
        draft.access[p] = rules.resumed(view.item, (ask.session_id, name))
        session = sessions.with_hold(session, Hold(topic.name, topic.topic_id, p, epochs[p], ask.mode, name))
    draft.sessions[session.session_id] = hold_limits.bounded(snapshot.sessions[ask.session_id], session, snapshot.held)
    record = snapshot.records.get(name)
    if record is not None and not _is_of(record, ask):
        # Another claim of its own session is under way (a lapsed session may come back to it), or the name belongs to a
        # live producer. That one must close first.
        is_own = record.session_id == ask.session_id
        if (is_own and record.state in (PENDING, QUEUED)) or snapshot.is_alive(record):
            raise taken_name(snapshot, record)
        record = replace(new_record(snapshot, ask, name), version=record.version)
    record = record or new_record(snapshot, ask, name)
    offsets = {p: _next_offset(view) for p, view in snapshot.views.items()} | dict(record.next_offsets)
    epochs = dict(record.topic_epochs) | epochs
    draft.record = replace(record, state=GRANTED, topic_epochs=epochs, next_offsets=offsets)
    return Decision(draft, granted_producer(draft.record, session, ask.partitions))


def _is_of(record: ProducerRecord, ask: Ask) -> bool:
    return record.session_id == ask.session_id and set(ask.partitions) <= set(record.partitions)


def _next_offset(view: PartitionAccess) -> int:
    """Return the offset right after a grant's marker."""
    is_exclusive = view.state.access_mode == EXCLUSIVE
    return view.state.access_offset + 1 if is_exclusive else view.state.next_offset
