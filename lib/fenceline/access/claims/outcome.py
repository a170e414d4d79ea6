"""What a claim comes to: the types of its outcomes, and the refusals with what their senders need.

The rule: nothing is decided here, but for where in the line somebody stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.access.claims.snapshot import ClaimSnapshot, ItemTransaction
from fenceline.access.producer import CLOSED, ProducerRecord
from fenceline.access.rules import Column, Holder
from fenceline.access.session import SessionItem, told
from fenceline.errors import ProducerBusyError, ProducerFencedError, ThrottledError
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.access import Producer


@dataclass(frozen=True, slots=True)
class Ask:
    """A claim whose names are settled, so that each attempt at it is the same claim."""

    access_mode: str
    partitions: tuple[int, ...]
    session_id: str
    principal: str
    producer_name: str | None  # None: that of the same claim, if there was one before
    fresh_name: str
    lease_ms: int | None  # of the session to make; None: it exists
    topic_epochs: Mapping[int, int] | None = None
    client_name: str | None = None  # of the session to make
    renews: bool = True  # the session; not where another's poll promotes it, who may be dead

    @property
    def mode(self) -> str:
        """What is granted: exclusive access comes in three ways."""
        return SHARED if self.access_mode == SHARED else EXCLUSIVE


@dataclass(frozen=True, slots=True)
class Pending:
    """What a claim has reserved, to be granted once its markers stand in the log.

    Args:
        holders: By partition, what is reserved.
        behind: By partition, whose exclusive access a shared one comes behind: the log still names that session.
        offsets: By partition, where shared access begins that needs no marker any more.
    """

    record: ProducerRecord
    holders: Mapping[int, Holder]
    behind: Mapping[int, str] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a claim: an answer, or something to complete first."""

    draft: ItemTransaction
    outcome: Producer | Pending


def new_record(snapshot: ClaimSnapshot, ask: Ask, name: str) -> ProducerRecord:
    return ProducerRecord(
        snapshot.topic.topic_id,
        name,
        ask.session_id,
        ask.principal,
        ask.access_mode,
        ask.partitions,
        CLOSED,
        since=snapshot.now_ms,
    )


def queue_position(snapshot: ClaimSnapshot, ticket: int, partitions: Sequence[int]) -> int:
    """Return how many live waiters stand before this ticket, on any of its partitions."""
    ahead = {
        waiter.ticket
        for p in partitions
        for waiter in snapshot.item(p).waiting
        if waiter.ticket < ticket and snapshot.is_waiting(waiter)
    }
    return len(ahead)


def fenced(snapshot: ClaimSnapshot, why: str) -> ProducerFencedError:
    epochs = {str(p): view.epoch_in_force for p, view in snapshot.views.items()}
    return ProducerFencedError(f"{why}: topic={snapshot.topic.name}", topic_epochs=epochs)


def taken_name(snapshot: ClaimSnapshot, record: ProducerRecord) -> ProducerBusyError:
    return ProducerBusyError(
        "the name is a live producer's, until it closes, is fenced, or its lease lapses; take another: "
        f"producer_name={record.producer_name}{told(snapshot.sessions.get(record.session_id))}"
    )


def who(columns: Sequence[Column]) -> str:
    if Column.WAITERS in columns:
        return "others wait for exclusive access"
    return "a session has exclusive access" if Column.EXCLUSIVE in columns else "sessions share the access"


def busy(columns: Sequence[Column], holder: SessionItem | None) -> ProducerBusyError:
    """Return the answer to a claim that others are in the way of.

    Args:
        holder: One of those that have access, if there are any.
    """
    named = "" if Column.WAITERS in columns else told(holder)
    until = f"{who(columns)}, until they are granted it, close or lapse; claim again later"
    return ProducerBusyError(f"{until}:{named}" if named else until)


def throttled(what: str, maximum: int) -> ThrottledError:
    return ThrottledError(f"no more than {maximum} {what}; try again when some have left")
