"""The sessions of appends: a cache of their items, the renewal of their leases, and the end of an exclusive session.

Rule: the cache only saves a look. The log says whether a session may still write, at exactly the offset of each append.
A refusal is answered after a fresh look, because the log does not show whether a session was severed or fenced
(protocol, "Appends with a session"). An accepted append renews the lease when a third of it is spent, unless another
process has ended that access.

Rule: the end of an exclusive session is written, in its own item and the partition's, before an append without a
session relies on it (I9). A renewal or a reconnection writes the same items, so only one of the two succeeds
(protocol, "Appends without a session").

Not here: the judgement of an append at its offset (``append.checks``), and requests about sessions (``sessions``).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from fenceline import limits
from fenceline.access import fence_markers, rules, session_item
from fenceline.access.item_transaction import ItemTransaction
from fenceline.access.rules import AccessItem, Holder, access_from_item
from fenceline.access.session_item import CLOSED, ENDED, RESERVED, SessionItem, session_from_item
from fenceline.append.checks import AdmitFirst, SessionStatus
from fenceline.errors import (
    FencelineError,
    OutcomeUnknownError,
    ProducerBusyError,
    SessionExpiredError,
    StoreUnavailableError,
)
from fenceline.format import keys
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import Attempts
from fenceline.model.results import SessionRef
from fenceline.ports import StoreFact, VersionMoved

_RENEWALS = 4  # tries of one renewal, each from a fresh read


@dataclass(slots=True)
class WantedMark:
    """A mark that a claimer wants a session's access, for which the session's creates in this process wait a moment."""

    seen_at: int  # when the last mark that was honoured was made, by its maker's clock
    until_ms: int  # monotonic


class SessionCache:
    """The sessions that this process has met, for the appends that they send. Safe to share between threads."""

    def __init__(self, partitions: Partitions) -> None:
        self._context = partitions.context
        self._partitions = partitions
        self._lock = self._context.runtime.lock()
        self._known: OrderedDict[str, SessionItem] = OrderedDict()
        self._entries = 0  # the holds and ownerships of all of these
        self._wanted: dict[str, WantedMark] = {}
        self._renewing: set[str] = set()

    def status(self, ref: SessionRef, partition: Partition, principal: str) -> tuple[SessionStatus, bool]:
        """Return the session's access to this partition, as far as it is known, and whether this call looked.

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
        return self.read_status(ref, partition, principal), True

    def read_status(self, ref: SessionRef, partition: Partition, principal: str) -> SessionStatus:
        """Return the session's access to this partition by a read of its item; see ``status``."""
        session = self._read(ref.session_id)
        return _status(session_item.judge_known(session, ref.session_id, principal), ref, partition)

    def _read(self, session_id: str) -> SessionItem:
        session = fence_markers.read_fenced(self._partitions, [session_id]).get(session_id)
        if session is None:
            raise session_item.unknown_session(session_id)
        self.remember(session)
        return session

    def remember(self, session: SessionItem) -> None:
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
        """Wait while a claimer that wants the session's access goes first, at most until ``until_ms`` (I9)."""
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
            # No answer depends on the renewal, because the records are in the log, and the next append tries again.
            return
        finally:
            with self._lock:
                self._renewing.discard(ref.session_id)

    def _renew(self, session: SessionItem, ref: SessionRef, partition: Partition) -> None:
        for _ in range(_RENEWALS):
            renewed = session_item.renewed(session, self._context.runtime.now_ms())
            put = renewed.put(self._context.runtime)
            try:
                # A process that ends this access writes the same item, so only one of the two succeeds.
                self._context.items.write([put])
            except VersionMoved:
                session = self._read(ref.session_id)
                if not self._is_due(session, ref, partition):
                    return
            else:
                self.remember(renewed.written(put))
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
        error = session_item.expired(session)
    elif hold.state == CLOSED:
        error = SessionExpiredError(
            f"the producer was closed; reconnect with topic_epochs, or claim again: session_id={ref.session_id}"
        )
    return SessionStatus(ref.session_id, ref.topic_epoch, hold.mode, error)


# Appends without a session where the log names an exclusive one


def admit(partitions: Partitions, partition: Partition, asked: AdmitFirst) -> tuple[str, int]:
    """Write that an exclusive session has ended, if it has, and return it with its epoch.

    Raises:
        ProducerBusyError: The session is live. Nothing was written.
        StoreUnavailableError, ContendedError: The item store failed. No record was written.
    """
    try:
        _end(partitions, partition, asked)
    except OutcomeUnknownError as error:
        # The session's end may be written, and the next append asks again. This append wrote nothing.
        what = "a store did not answer, and nothing was appended; send the batch again"
        raise StoreUnavailableError(f"{what}: {error.detail}") from error
    return asked.session_id, asked.topic_epoch


def _end(partitions: Partitions, partition: Partition, asked: AdmitFirst) -> None:
    context = partitions.context
    access_key = keys.access_item(partition.topic_id, partition.partition)
    session_key = keys.session_item(asked.session_id)
    # A refusal is final, because it refuses the append, and nothing of an append is written here.
    attempts = Attempts(context.runtime, "the partition's access", is_refusal_final=True)
    while True:
        with attempts:
            found = context.items.get([access_key, session_key])
            item = access_from_item(found.get(access_key))
            session = session_from_item(found[session_key]) if session_key in found else None
            if session is not None:
                fence_markers.finish_all(partitions, [session])
            holder = _holder(item, asked)
            if holder is None:
                return  # its end is written already, or its claim was given up
            if session is not None and session.is_live(context.runtime.now_ms()) and not holder.is_closed:
                raise _busy(session, asked)
            ended = rules.ended(item, asked.session_id, asked.topic_epoch)
            transaction = ItemTransaction({})
            transaction.put(access_key, ended)
            if session is not None and not session.is_final:
                place = partition.topic_id, partition.partition
                over = session_item.with_hold_state(session, *place, holder.epoch, holder.producer_name, ENDED)
                transaction.put(session_key, over)
            # A process that loses this write reads again, because a renewal may have come first.
            # model: Access, "write the end before acting on it"
            context.items.write(transaction.changes(context.runtime))
            return


def _holder(item: AccessItem, asked: AdmitFirst) -> Holder | None:
    """Return the access that the log names, if it was granted or reserved and has not been ended."""
    for holder in (item.granted, item.claim):
        if holder is not None and (holder.session_id, holder.epoch) == (asked.session_id, asked.topic_epoch):
            return None if holder.is_ended else holder
    return None


def _busy(session: SessionItem, asked: AdmitFirst) -> ProducerBusyError:
    return ProducerBusyError(
        "another session has exclusive access; wait until it closes or its lease lapses, or claim access: "
        f"session_id={session.session_id[:8]} epoch={asked.topic_epoch} expires_at={session.expires_at}"
        f"{session_item.named(session)}"
    )
