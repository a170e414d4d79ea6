"""A session that renews its own lease, and the rights that are held under one.

Rule: only the service ends a session (I9).

- A thread renews the lease when a third of it is spent, and then looks whether each right under it is still held. A
  loss is final, and is reported once to each callback that asked for it.

- A lease that could not be renewed in time ends a lock, because a lock has no other guard. It does not end a producer,
  because the log decides there.

- At its end a session gives back the rights under it. If that fails, the service frees them when the lease lapses.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.calls import public
from fenceline.client.faults import report_fault
from fenceline.client.problems import again
from fenceline.client.transport import log

OnLost = Callable[[errors.FencelineError], None]

GIVE_BACK_MS = 2_000  # for all tries together
_BEATS_PER_LEASE = 3
_PAUSES_PER_LEASE = 20  # while the service does not answer


@public
class Held:
    """A right that lasts until it is given back or lost. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loss: errors.FencelineError | None = None
        self._is_over = False
        self._callbacks: list[OnLost] = []

    @property
    def loss(self) -> errors.FencelineError | None:
        """The error by which it was lost; ``None`` while no loss is known."""
        return self._loss

    def check(self) -> None:
        """Raise the error by which it was lost, if it was."""
        if self._loss is not None:
            raise again(self._loss) from self._loss

    def when_lost(self, tell: OnLost) -> None:
        """Call ``tell`` once it is lost, or at once if it is already; in the thread that learns of it.

        An exception of ``tell`` then goes to ``threading.excepthook``, and the other callbacks still learn of the loss.
        """
        with self._lock:
            if self._loss is None:
                self._callbacks.append(tell)
                return
        _tell(tell, self._loss)

    def lose(self, error: errors.FencelineError) -> None:
        """Mark it as lost for good, unless it was given back or lost before."""
        with self._lock:
            if self._is_over or self._loss is not None:
                return
            self._loss = error
        for tell in self._callbacks:
            _tell(tell, error)

    def _end(self) -> bool:
        """Mark it as given back; return whether it was neither given back nor lost before."""
        with self._lock:
            was_held = not self._is_over and self._loss is None
            self._is_over = True
        return was_held


def _tell(tell: OnLost, error: errors.FencelineError) -> None:
    try:
        tell(error)
    except Exception:  # noqa: BLE001  a fault of the caller's; what follows the loss must happen
        report_fault()


@public
class Holding(Held, ABC):
    """A right that is held under a session, and ends with it.

    Args:
        is_session_own: The session is for this holding alone, and is closed with it.
    """

    def __init__(self, session: Session, *, is_session_own: bool) -> None:
        super().__init__()
        self.session = session
        self._is_session_own = is_session_own
        session.hold(self)

    @property
    def session_id(self) -> str:
        return self.session.session_id

    def close(self) -> None:
        """Give it back."""
        self.session.drop(self)
        if self._end() and not self._is_session_own:
            with suppress(errors.FencelineError):  # lapses with the session
                self.give_back()
        if self._is_session_own:
            self.session.close()

    @abstractmethod
    def give_back(self) -> None:
        """Ask the service to end it, while the session goes on."""

    def look(self, timeout_ms: int) -> None:
        """Raise the error by which it was lost, if it was lost although the session goes on."""

    def reconnect(self) -> bool:
        """Bring a session back whose lease lapsed; return whether this holding can do that.

        Raises:
            FixError: The session cannot come back by this holding, which is lost.
        """
        return False

    def lapse(self, error: errors.FencelineError) -> None:
        """Handle a lease that could not be renewed in time."""
        self.lose(error)


@public
class Session(Held):
    """A session, made by ``Client.session``; a context manager that closes it. A thread renews its lease until then.

    Attributes:
        session_id: The id that requests name.
        lease_ms: How long the session lives without a renewal.
    """

    def __init__(self, client: ApiClient, lease_ms: int | None) -> None:
        super().__init__()
        self._renewed_ms = client.runtime.monotonic_ms()  # earlier than the service's own count
        lease = client.create_session(lease_ms=lease_ms)
        self.session_id = lease.session_id
        self.lease_ms = lease.lease_ms
        self._client = client
        self._runtime = client.runtime
        self._beat_ms = max(lease.lease_ms // _BEATS_PER_LEASE, 1)
        self._pause_ms = max(lease.lease_ms // _PAUSES_PER_LEASE, 1)
        self._holdings: list[Holding] = []
        self._on_renewed: list[Callable[[], None]] = []
        self._own_lock = self._runtime.lock()
        self._changed = self._runtime.condition(self._own_lock)
        self._is_stopping = False
        threading.Thread(target=self._run, name="fenceline-session", daemon=True).start()

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def is_lapsed(self) -> bool:
        """True if the lease was not renewed in time, by this machine's clock: another session may have taken over."""
        return self.left_ms == 0

    @property
    def left_ms(self) -> int:
        """The time until the lease ends without a further renewal, by this machine's clock; 0 once it lapsed."""
        return max(self._renewed_ms + self.lease_ms - self._runtime.monotonic_ms(), 0)

    def when_renewed(self, tell: Callable[[], None]) -> None:
        """Call ``tell`` after each renewal, in the thread that renews. It should return soon."""
        self._on_renewed.append(tell)

    def hold(self, holding: Holding) -> None:
        """Look after ``holding``, until the session ends or it is dropped."""
        with self._own_lock:
            self._holdings.append(holding)
        if self.loss is not None:
            holding.lose(self.loss)

    def drop(self, holding: Holding) -> None:
        with self._own_lock:
            self._holdings = [one for one in self._holdings if one is not holding]

    def lose(self, error: errors.FencelineError) -> None:
        super().lose(error)
        if self.loss is not None:
            for holding in self._held():  # a later one learns it in `hold`
                holding.lose(self.loss)

    def close(self) -> None:
        """End the session, and all that it holds."""
        with self._own_lock:
            self._is_stopping = True
            self._changed.notify_all()
        if self._end():
            with suppress(errors.FencelineError):  # lapses by itself
                self._client.close_session(self.session_id, retry_ms=GIVE_BACK_MS)

    def _run(self) -> None:
        due_ms = self._renewed_ms + self._beat_ms
        while self._wait_until(due_ms) and not self._client.is_closed:
            is_answered = self._beat()
            if self.loss is not None:
                return
            if is_answered:
                self._look()
                due_ms = self._renewed_ms + self._beat_ms
            else:
                log.warning(
                    "the service did not answer a heartbeat; the client asks again: session=%s… left_ms=%d pause_ms=%d",
                    self.session_id[:8],
                    self.left_ms,
                    self._pause_ms,
                )
                self._lapse_if_due()
                due_ms = self._runtime.monotonic_ms() + self._pause_ms

    def _wait_until(self, due_ms: int) -> bool:
        """Wait until ``due_ms``, and return whether the session goes on."""
        with self._own_lock:
            while not self._is_stopping and (left_ms := due_ms - self._runtime.monotonic_ms()) > 0:
                self._changed.wait(left_ms / 1000)
            return not self._is_stopping

    def _beat(self) -> bool:
        """Renew the lease, and return whether the service answered."""
        began_ms = self._runtime.monotonic_ms()
        timeout_ms = min(self._beat_ms, self.left_ms) or self._beat_ms
        try:
            self._client.heartbeat(self.session_id, retry_ms=0, timeout_ms=timeout_ms)
        except errors.SessionExpiredError as error:
            if not self._came_back(error):
                return False
        except errors.FixError as error:
            self.lose(error)
        except errors.FencelineError:
            # The service did not answer. The lease may go on; the next try comes after a pause.
            return False
        if self.loss is None:
            self._renewed_ms = began_ms  # earlier than the service's own count
            for tell in self._on_renewed:
                tell()
        return True

    def _came_back(self, expired: errors.SessionExpiredError) -> bool:
        """Reconnect by a holding, or lose the session; return whether the service answered."""
        for holding in self._held():
            try:
                if holding.reconnect():
                    return True
            except errors.FixError as error:
                self.drop(holding)
                holding.lose(error)
            except errors.FencelineError:
                # The service did not answer. The next heartbeat gets the same refusal, and tries again.
                return False
        self.lose(expired)
        return True

    def _look(self) -> None:
        for holding in self._held():
            try:
                holding.look(self._beat_ms)
            except errors.FixError as error:
                self.drop(holding)
                holding.lose(error)
            except errors.FencelineError:
                return  # without an answer: the next beat looks again

    def _lapse_if_due(self) -> None:
        if self.is_lapsed:
            detail = (
                f"the service answered no heartbeat in time, so the lease lapsed: session_id={self.session_id} "
                f"lease_ms={self.lease_ms}"
            )
            for holding in self._held():
                holding.lapse(errors.SessionExpiredError(detail))

    def _held(self) -> list[Holding]:
        with self._own_lock:
            return list(self._holdings)
