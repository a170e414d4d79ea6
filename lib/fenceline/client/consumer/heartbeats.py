"""The heartbeats of a consumer, sent by a thread of their own.

Rule: one heartbeat is under way at a time. Its answer goes into the ``Member``, under the lock that the program's
thread takes, too, and then the program's thread is woken. No request is sent under the lock.

Not here: what an answer means (``member``), and the program's callbacks (``consumer``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.consumer.member import Beat, Member
from fenceline.client.problems import again
from fenceline.client.requests.subscriptions import InitialPosition
from fenceline.client.session import GIVE_BACK_MS
from fenceline.client.transport import log


@dataclass(frozen=True, slots=True)
class Joining:
    """What a member says when it joins."""

    group: str
    topics: Sequence[str] | None
    topic_prefixes: Sequence[str] | None
    initial_position: InitialPosition
    instance_id: str | None
    assignor: str | None
    session_timeout_ms: int
    rebalance_timeout_ms: int


class Heartbeats:
    """The heartbeats of one member, from ``join`` to ``leave``. Safe to share between threads.

    Args:
        wake: Called after each answer that changes something for the program, in the thread that got it.

    Attributes:
        lock: Held while ``member`` is looked at or changed.
    """

    def __init__(self, client: ApiClient, joining: Joining, wake: Callable[[], None]) -> None:
        self._client = client
        self._runtime = client.runtime
        self._joining = joining
        self._wake = wake
        self.lock = self._runtime.lock()
        self._changed = self._runtime.condition(self.lock)
        self._is_stopping = False
        self._is_sending = False
        self.member = Member(
            self._runtime.fresh_id,
            self._runtime.monotonic_ms(),
            session_timeout_ms=joining.session_timeout_ms,
            rebalance_timeout_ms=joining.rebalance_timeout_ms,
            static=joining.instance_id is not None,
        )

    def join(self) -> None:
        """Send the first heartbeat, and let a thread send the others.

        Raises:
            FencelineError: The service refused it, or did not answer in the client's time.
        """
        with self.lock:
            beat = self.member.beat(self._runtime.monotonic_ms())
        self._send(beat, retry_ms=None, timeout_ms=None)
        self.check()
        threading.Thread(target=self._run, name="fenceline-member", daemon=True).start()

    def check(self) -> None:
        """Raise what ended the membership for good, if anything did."""
        failure = self.member.failure
        if failure is not None:
            raise (again(failure) if isinstance(failure, errors.FencelineError) else failure)

    def hurry(self) -> int:
        """Send the next heartbeat at once; return how many were answered by now."""
        with self.lock:
            self.member.hurry(self._runtime.monotonic_ms())
            self._changed.notify_all()
            return self.member.answers

    def wait_for_answer(self, answers: int, within_ms: int) -> bool:
        """Wait until more heartbeats than ``answers`` were answered; return whether that happened in time."""
        until_ms = self._runtime.monotonic_ms() + within_ms
        with self.lock:
            while self.member.answers <= answers and self.member.failure is None:
                left_ms = until_ms - self._runtime.monotonic_ms()
                if left_ms <= 0:
                    return False
                self._changed.wait(left_ms / 1000)
            return True

    def leave(self, *, is_coming_back: bool) -> None:
        """End the membership. Without an answer the service ends it when its lease is over."""
        until_ms = self._runtime.monotonic_ms() + GIVE_BACK_MS
        with self.lock:
            self._is_stopping = True
            self._changed.notify_all()
            # A join that is carried out after the leave would leave a member behind that no client is.
            while self._is_sending and (left_ms := until_ms - self._runtime.monotonic_ms()) > 0:
                self._changed.wait(left_ms / 1000)
            member_id, is_over = self.member.member_id, self.member.failure is not None
        if not is_over:
            with suppress(errors.FencelineError):
                self._client.leave_group(
                    self._joining.group, member_id, is_coming_back=is_coming_back, retry_ms=GIVE_BACK_MS
                )

    def _run(self) -> None:
        while (beat := self._next()) is not None:
            try:
                self._send(beat, retry_ms=0, timeout_ms=beat.timeout_ms)
            except errors.FencelineError as error:
                self._unanswered(beat, error)
            except BaseException as error:
                # A fault of this client. The program's thread must get it, and then this thread ends.
                with self.lock:
                    self.member.fail(error)
                    self._changed.notify_all()
                self._wake()
                raise

    def _next(self) -> Beat | None:
        """Wait until a heartbeat is due, and return it; ``None`` at the end."""
        with self.lock:
            while not (self._is_stopping or self._client.is_closed or self.member.failure is not None):
                now_ms = self._runtime.monotonic_ms()
                if now_ms >= self.member.due_ms:
                    self._is_sending = True
                    return self.member.beat(now_ms)
                self._changed.wait((self.member.due_ms - now_ms) / 1000)
            self._changed.notify_all()
            return None

    def _send(self, beat: Beat, *, retry_ms: int | None, timeout_ms: int | None) -> None:
        """Send a heartbeat, and take its answer or its refusal.

        Raises:
            FencelineError: No answer came, or another heartbeat was written first.
        """
        said = asdict(self._joining)
        group = said.pop("group")
        sent_ms = self._runtime.monotonic_ms()
        refusal: errors.FencelineError | None = None
        try:
            membership = self._client.group_heartbeat(
                group,
                beat.member_id,
                beat.member_epoch,
                owned=beat.owned,
                retry_ms=retry_ms,
                timeout_ms=timeout_ms,
                **(said if beat.member_epoch == 0 else {}),
            )
        except errors.FixError as error:
            refusal = error
        finally:
            with self.lock:
                self._is_sending = False
                self._changed.notify_all()
        with self.lock:
            before, now_ms = self.member.places.changes_count, self._runtime.monotonic_ms()
            if refusal is not None:
                self._tell_refusal(refusal, now_ms)
                self.member.refused(beat, refusal, now_ms)
            else:
                self.member.answered(beat, membership, sent_ms, now_ms)
            self._changed.notify_all()
            is_new = self.member.places.changes_count != before or self.member.is_settled or refusal is not None
        if is_new:
            self._wake()

    def _unanswered(self, beat: Beat, error: errors.FencelineError) -> None:
        with self.lock:
            now_ms, member = self._runtime.monotonic_ms(), self.member
            left_ms = None if member.lease_until_ms is None else max(member.lease_until_ms - now_ms, 0)
            if isinstance(error, errors.ContendedError):
                member.contended(beat, now_ms, self._runtime.random())
            else:
                log.warning(
                    "the service did not answer a heartbeat; the client asks again: group=%s member=%s left_ms=%s",
                    self._joining.group,
                    beat.member_id,
                    left_ms,
                )
                member.unanswered(beat, now_ms)
            is_lost = bool(member.places.lost)
        if is_lost:
            self._wake()

    def _tell_refusal(self, error: errors.FencelineError, now_ms: int) -> None:
        group, member = self._joining.group, self.member
        if isinstance(error, errors.UnreleasedInstanceIdError):
            log.warning("the consumer waits for its instance id: group=%s why=%s", group, error.detail)
        elif member.overdue_ms(now_ms):
            log.warning(
                "the group gave this member's partitions to others, because the program kept them for longer than "
                "rebalance_timeout_ms after it was asked for them; let it, or handle a record in less time: "
                "group=%s rebalance_timeout_ms=%d",
                group,
                self._joining.rebalance_timeout_ms,
            )
        elif member.epoch:
            log.warning("the group removed this member, which joins again: group=%s why=%s", group, error.code)
