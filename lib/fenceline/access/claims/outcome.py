"""The outcomes of a claim: their types, and the refusals with what a caller needs to react.

Rule: nothing is decided here, except the position of a waiter in the line.

Not here: the decision (``decision``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fenceline.access.claims.snapshot import ClaimSnapshot, ItemTransaction
from fenceline.access.producer import CLOSED, ProducerRecord
from fenceline.access.rules import Column, Holder
from fenceline.access.session import SessionItem, named_to_others
from fenceline.errors import ProducerBusyError, ProducerFencedError, ThrottledError
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.model.access import Producer


@dataclass(frozen=True, slots=True)
class Ask:
    """A claim with all its names chosen, so that each attempt is the same claim."""

    access_mode: str
    partitions: tuple[int, ...]
    session_id: str
    principal: str
    producer_name: str | None  # None: the name of the same claim, if it was made before
    fresh_name: str
    lease_ms: int | None  # of the session to make; None: it exists
    topic_epochs: Mapping[int, int] | None = None
    client_name: str | None = None  # of the session to make
    renews: bool = True  # the session's lease; false where another session's poll promotes a waiter

    @property
    def mode(self) -> str:
        """The mode that is granted: three access modes ask for exclusive access."""
        return SHARED if self.access_mode == SHARED else EXCLUSIVE


@dataclass(frozen=True, slots=True)
class Pending:
    """What a claim has reserved, to be granted once its markers are in the log.

    Args:
        holders: By partition, what is reserved.
        behind: By partition, the ended exclusive session that shared access follows: the log still names it.
        offsets: By partition, where shared access begins that needs no marker.
    """

    record: ProducerRecord
    holders: Mapping[int, Holder]
    behind: Mapping[int, str] = field(default_factory=dict)
    offsets: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a claim: an answer, or a reservation to complete first."""

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
    """Return how many live waiters have a lower ticket, on any of these partitions."""
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
        "the name belongs to a live producer until it closes, is fenced, or its lease lapses; choose another name: "
        f"producer_name={record.producer_name}{named_to_others(snapshot.sessions.get(record.session_id))}"
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
    named = "" if Column.WAITERS in columns else named_to_others(holder)
    until = f"{blocked_by(columns)}; claim again after they have ended, or wait with WaitForExclusive"
    return ProducerBusyError(f"{until}:{named}" if named else until)


def throttled(what: str, maximum: int) -> ThrottledError:
    return ThrottledError(f"already {maximum} {what}, the most there may be; try again when some have left")
