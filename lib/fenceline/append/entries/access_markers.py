"""ACCESS markers as entries of the queue. A claim appends one to each of its partitions ("Exclusive access").

Rule: a marker is checked at exactly the offset that it would get, like every append. A marker whose epoch is not above
the state's is never appended, because it is in the log already, or its claim is lost.

Each marker says where the ACCESS marker before it is, so that the history of access is a walk from marker to marker.
That, and the names of the holder, are for people: nothing is decided by them.

Not here: which sessions get access; see ``access``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fenceline.append.entries.entry import Entry, Marked, StoredBatch, stored_marker
from fenceline.errors import ProducerFencedError
from fenceline.format import control
from fenceline.format.control import EXCLUSIVE, SHARED
from fenceline.log.state import PartitionState, TentativeState


@dataclass(frozen=True, slots=True)
class GrantEntry(Entry):
    """The marker that gives a session exclusive access, with its epoch."""

    session_id: str
    epoch: int
    producer_name: str = ""  # "" for an owner
    client_name: str | None = None  # as the session is named
    goes_alone = True
    is_urgent = True

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked | ProducerFencedError:
        """Return the marker as it would be stored, its place in the log, or that another claim came first."""
        state = tentative.state
        # model: Access, "the marker's epoch is above the state's"
        if state.topic_epoch < self.epoch:  # I8
            return exclusive_marker(state, self, now_ms)
        if (state.session_id, state.topic_epoch) == (self.session_id, self.epoch):
            return Marked(state.access_offset)
        return lost(state)


@dataclass(frozen=True, slots=True)
class ShareEntry(Entry):
    """The marker back to shared access, in the same epoch, after an exclusive session that has ended."""

    epoch: int
    session_id: str  # the session that has ended
    goes_alone = True
    is_urgent = True

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked | ProducerFencedError:
        """Return the marker as it would be stored, its place in the log, or that another claim came first."""
        state = tentative.state
        if state.topic_epoch == self.epoch and state.access_mode == SHARED:
            return Marked(state.access_offset)
        if (state.session_id, state.topic_epoch) == (self.session_id, self.epoch):
            return shared_marker(state, now_ms)
        return lost(state)


def lost(state: PartitionState) -> ProducerFencedError:
    """Return the refusal of a marker that came too late."""
    return ProducerFencedError(
        f"another session's claim of this partition came first; claim again: topic_epoch={state.topic_epoch}",
        topic_epoch=state.topic_epoch,
    )


def exclusive_marker(state: PartitionState, grant: GrantEntry, now_ms: int) -> StoredBatch:
    """Return the marker that gives a session exclusive access, at the state's next offset."""
    value: dict[str, str | None] = {"mode": EXCLUSIVE, "session_id": grant.session_id}
    if grant.producer_name:
        value["producer_name"] = grant.producer_name
    if grant.client_name is not None:
        value["client_name"] = grant.client_name
    return _access_marker(state, value, now_ms, grant.epoch)


def shared_marker(state: PartitionState, now_ms: int, *, epoch: int | None = None) -> StoredBatch:
    """Return the marker that makes access shared again, at the state's next offset.

    Args:
        epoch: The topic epoch that it brings; ``None`` for the one in force.
    """
    return _access_marker(state, {"mode": SHARED, "session_id": None}, now_ms, epoch)


def _access_marker(
    state: PartitionState, value: Mapping[str, str | None], now_ms: int, epoch: int | None
) -> StoredBatch:
    return stored_marker(state, control.ACCESS, {**value, "previous": state.access_offset}, now_ms, epoch=epoch)
