"""Fences: the markers that end the write access of a severed session, in each partition (protocol, "Fences").

Rule: severing is one write, which lists in the session's item the access that is still to be fenced. A request that
finds a severed session with such a list fences all of it before it answers, and so does the sweeper. Then the list is
emptied. A fence is judged at exactly its offset, so a second process that fences the same list adds nothing.

Not here: what refuses the append of a fenced session (``append.checks``); which sessions are severed
(``ownership.decision``).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from fenceline import limits
from fenceline.access.session_item import SEVERED, PendingFence, SessionItem, session_from_item
from fenceline.append.appender import appender_of
from fenceline.append.entries.access_markers import shared_marker
from fenceline.append.entries.entry import Entry, Marked, StoredBatch
from fenceline.format import keys
from fenceline.format.control import EXCLUSIVE
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.log.state import PartitionState, TentativeState


def due_epoch(state: PartitionState, fence: PendingFence, session_id: str) -> int | None:
    """Return the epoch of the marker that ends this access; ``None`` where the log has ended it already.

    Exclusive access ends with its own epoch, also before its own marker is in the log, because a marker is never
    appended after one whose epoch is not lower. Shared access ends only with a higher epoch, because the log does not
    name its sessions. That epoch ends the access of the other shared sessions, too, and they claim again.
    """
    if fence.mode == EXCLUSIVE:
        # model: Access, "a fence comes before its marker, too"
        is_named = (state.access_mode, state.session_id, state.topic_epoch) == (EXCLUSIVE, session_id, fence.epoch)
        return fence.epoch if is_named or state.topic_epoch < fence.epoch else None
    # The last epoch has no higher one, and no claim can follow it either.
    # model: Access, "a shared grant's fence raises the epoch"
    return fence.epoch + 1 if state.topic_epoch <= fence.epoch < limits.INT32_MAX else None


@dataclass(frozen=True, slots=True)
class FenceEntry(Entry):
    """The marker that ends one access, unless that has ended before the marker's offset."""

    fence: PendingFence
    session_id: str
    goes_alone = True
    is_urgent = True

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked:
        state = tentative.state
        epoch = due_epoch(state, self.fence, self.session_id)
        if epoch is None:
            return Marked(state.next_offset)
        return shared_marker(state, now_ms, epoch=epoch)


def finish(partitions: Partitions, session: SessionItem) -> None:
    """Fence all access on a severed session's list, side by side, and empty the list.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The list stays; the next request that finds the
            session resumes it.
        CorruptLogError: A partition's log is damaged.
    """
    context = partitions.context
    until_ms = context.runtime.monotonic_ms() + limits.FENCE_MS

    def end(fence: PendingFence) -> None:
        with suppress(StaleTopicId):  # nothing follows SEAL
            appender = appender_of(partitions, fence.topic, fence.topic_id, fence.partition)
            appender.append(FenceEntry(fence, session.session_id), until_ms)

    context.runtime.gather([partial(end, fence) for fence in session.fences])
    attempts = Attempts(context.runtime, "the severed session")
    while True:
        with attempts:
            found = read_sessions(context, [session.session_id]).get(session.session_id)
            if found is None or not found.fences:
                return  # another process has finished it
            context.items.write([replace(found, fences=()).put(context.runtime)])
            return


def read_sessions(context: Context, session_ids: Iterable[str]) -> dict[str, SessionItem]:
    """Return those of the sessions that exist, up to 100 of them read in one call.

    Raises:
        Unavailable: The item store could not be asked.
    """
    wanted = [keys.session_item(one) for one in sorted(set(session_ids)) if keys.is_session_id(one)]
    return {key.sort: session_from_item(item) for key, item in context.read_items(wanted).items()}


def read_fenced(partitions: Partitions, session_ids: Iterable[str]) -> dict[str, SessionItem]:
    """Return those of the sessions that exist, once the fences of the severed ones are finished; see ``finish``."""
    known = read_sessions(partitions.context, session_ids)
    finish_all(partitions, known.values())
    return known


def finish_all(partitions: Partitions, sessions: Iterable[SessionItem]) -> None:
    """Finish the fences of the severed sessions among these; see ``finish``."""
    for session in sessions:
        # model: Access, "fences before the answer"
        if session.state == SEVERED and session.fences:
            finish(partitions, session)
