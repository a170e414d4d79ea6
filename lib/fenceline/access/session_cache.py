"""What one process remembers of sessions, for the appends that they send (DESIGN.md, "Appends with a session").

Rule: the memory only saves a look. The log says whether a session may still write, at exactly the offset of each
append. A refusal is answered after a fresh look, because the log does not show whether a session was severed or fenced.
An accepted append renews the lease when a third of it is spent, unless another process has ended that access.

Not here: the judgement of an append at its offset (``append.checks``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from fenceline import limits
from fenceline.access import fence_markers
from fenceline.access.session import (
    CLOSED,
    ENDED,
    RESERVED,
    SessionItem,
    expired,
    judge_known,
    renewed,
    unknown_session,
)
from fenceline.append.checks import SessionStatus
from fenceline.errors import FencelineError, SessionExpiredError
from fenceline.log.partition import Partition, Partitions
from fenceline.model.results import SessionRef
from fenceline.ports import StoreFact, VersionMoved

_RENEWALS = 4  # tries of one renewal, each from a fresh read


@dataclass(slots=True)
class WantedMark:
    """A mark that a claimer wants what a session holds: the session's creates in this process wait for a moment."""

    seen_at: int  # of the last mark that was honoured, by its maker's clock
    until_ms: int  # monotonic


class Grants:
    """The sessions that this process has met."""

    def __init__(self, partitions: Partitions) -> None:
        self._context = partitions.context
        self._partitions = partitions
        self._lock = self._context.runtime.lock()
        self._known: OrderedDict[str, SessionItem] = OrderedDict()
        self._entries = 0  # held and owned by all of these
        self._wanted: dict[str, WantedMark] = {}
        self._renewing: set[str] = set()

    def status(self, ref: SessionRef, partition: Partition, principal: str) -> tuple[SessionStatus, bool]:
        """Return what is known of the session's access to this partition, and whether this call looked.

        Raises:
            UnknownSessionError, NotAuthorizedError, SessionSeveredError: The session may not be used. Nothing was
                written.
            Unavailable: The item store could not be asked.
        """
        with self._lock:
            known = self._known.get(ref.session_id)
        if known is not None and known.principal == principal:
            hold = known.hold_of(partition.topic_id, partition.partition, ref.topic_epoch)
            if hold is not None and hold.state != RESERVED:
                return _status(known, ref, partition), False
        return self.look(ref, partition, principal), True

    def look(self, ref: SessionRef, partition: Partition, principal: str) -> SessionStatus:
        """Return what the session's item says of its access to this partition; see ``status``."""
        session = self._read(ref.session_id)
        return _status(judge_known(session, ref.session_id, principal), ref, partition)

    def _read(self, session_id: str) -> SessionItem:
        session = fence_markers.read_sessions(self._context, [session_id]).get(session_id)
        if session is None:
            raise unknown_session(session_id)
        fence_markers.meet(self._partitions, [session])
        self.note(session)
        return session

    def note(self, session: SessionItem) -> None:
        """Remember a session as it was read or written, unless a newer version is known."""
        now_ms, monotonic_ms = self._context.runtime.now_ms(), self._context.runtime.monotonic_ms()
        with self._lock:
            before = self._known.pop(session.session_id, None)
            if before is not None and (before.version or 0) > (session.version or 0):
                session = before
            self._known[session.session_id] = session
            self._entries += _entries(session) - (0 if before is None else _entries(before))
            wanted = self._wanted.get(session.session_id)
            is_young = abs(now_ms - session.wanted_at) < limits.WANTED_MS
            if is_young and (wanted is None or wanted.seen_at < session.wanted_at):
                self._wanted[session.session_id] = WantedMark(session.wanted_at, monotonic_ms + limits.HOLD_BACK_MS)
            while len(self._known) > limits.SESSIONS_CACHED_MAX or self._is_crowded:
                dropped_id, dropped = self._known.popitem(last=False)
                self._entries -= _entries(dropped)
                self._wanted.pop(dropped_id, None)

    @property
    def _is_crowded(self) -> bool:
        return self._entries > limits.SESSION_ENTRIES_CACHED_MAX and len(self._known) > 1

    def hold_back(self, session_id: str, until_ms: int) -> None:
        """Wait while a claimer that wants what the session holds goes first, at most until ``until_ms`` (I9)."""
        with self._lock:
            wanted = self._wanted.get(session_id)
        if wanted is not None:
            runtime = self._context.runtime
            left_ms = min(wanted.until_ms, until_ms) - runtime.monotonic_ms()
            if left_ms > 0:
                runtime.sleep_ms(left_ms)

    def renew(self, ref: SessionRef, partition: Partition) -> None:
        """Renew the lease after an accepted append, if a third of it is spent, also when it has lapsed."""
        with self._lock:
            known = self._known.get(ref.session_id)
            if known is None or ref.session_id in self._renewing or not self._is_due(known, ref, partition):
                return
            self._renewing.add(ref.session_id)
        try:
            self._renew(known, ref, partition)
        except (StoreFact, FencelineError):
            # The records are in the log, and the answer says so. No answer speaks of a renewal: the next append tries.
            return
        finally:
            with self._lock:
                self._renewing.discard(ref.session_id)

    def _renew(self, session: SessionItem, ref: SessionRef, partition: Partition) -> None:
        for _ in range(_RENEWALS):
            put = renewed(session, self._context.runtime.now_ms()).put(self._context.runtime)
            try:
                # A process that ends this access writes the same item: only one of the two succeeds.
                self._context.items.write([put])
            except VersionMoved:
                session = self._read(ref.session_id)
                if not self._is_due(session, ref, partition):
                    return
            else:
                self.note(SessionItem.from_value(ref.session_id, put.value, put.version))
                return

    def _is_due(self, session: SessionItem, ref: SessionRef, partition: Partition) -> bool:
        hold = session.hold_of(partition.topic_id, partition.partition, ref.topic_epoch)
        is_in_force = hold is not None and hold.state != ENDED and not session.is_final
        return is_in_force and session.is_renewal_due(self._context.runtime.now_ms())


def _entries(session: SessionItem) -> int:
    return len(session.holds) + len(session.owns) + len(session.fences)


def _status(session: SessionItem, ref: SessionRef, partition: Partition) -> SessionStatus:
    hold = session.hold_of(partition.topic_id, partition.partition, ref.topic_epoch)
    if hold is None or hold.state == RESERVED:
        return SessionStatus(ref.session_id, ref.topic_epoch, None)
    error = None
    if session.is_final:
        error = expired(session)
    elif hold.state == CLOSED:
        error = SessionExpiredError(
            f"the producer was closed; reconnect with topic_epochs, or claim again: session_id={ref.session_id}"
        )
    return SessionStatus(ref.session_id, ref.topic_epoch, hold.mode, error)
