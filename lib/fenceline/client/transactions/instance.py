"""One instance of a transactional id: the producer id and epoch that its transactions have, and what may end them.

Rule: an epoch is known, or is asked for again before the next transaction begins.

- Each end that the service answers gives the next transaction's epoch (KIP-890).

- An abort that was not answered is sent again, because its repeat is answered the same. If the service knows nothing of
  the transaction, the instance asks for an epoch by its present pair (KIP-360), by which no other instance can get one.

- A commit that was not answered is only ever repeated, because an abort might contradict what was decided.

- ``PRODUCER_FENCED`` ends the instance for good.

Not here: which records are in a transaction; see ``batches``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Literal

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.transactions.errors import CommitOutcomeUnknownError, TransactionAbortedError, refusal_in
from fenceline.client.transport import log
from fenceline.model.transaction import ProducerPair

ABORT_MS = 10_000  # for the tries of an abort: its time-out, or the next transaction, ends what it leaves open

# The states say whether the pair may begin a transaction; "open" has one that was not ended, as far as answers say.
_State = Literal["ready", "open", "asking", "fenced"]


class Instance:
    """The right of one process to begin transactions under ``transactional_id``, one after the other.

    The first request fences every earlier instance, and ends the transaction that it left open.

    Args:
        timeout_ms: How long a transaction may be open.
        end_ms: How long an end is sent again until it is answered.
    """

    def __init__(self, client: ApiClient, transactional_id: str, *, timeout_ms: int, end_ms: int) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._end_ms = end_ms
        self._state: _State = "ready"
        self._is_commit_open = False  # a commit was sent, and no answer says what it decided
        self._fence: BaseException | None = None
        self._lock = threading.Lock()
        self._busy: int | None = None  # the thread whose transaction is open
        self.pair = client.transactional_producer_id(transactional_id, timeout_ms=timeout_ms)

    def begin(self) -> ProducerPair:
        """Take the turn for a transaction of this thread, and return its pair.

        Raises:
            RuntimeError: A transaction is open already.
            ProducerFencedError: The instance is fenced for good.
            CommitOutcomeUnknownError: The last commit was not answered yet.
            FencelineError: The service did not answer what the instance has to know first. Nothing was begun.
        """
        with self._lock:
            self.check_free()
            self._busy = threading.get_ident()
        try:
            self._make_ready()
        except BaseException:
            self.leave()
            raise
        self._state = "open"  # until its end is answered: an interrupt may come at any line
        return self.pair

    def check_free(self) -> None:
        """Raise ``RuntimeError`` if a transaction is open."""
        if self._busy is not None:
            raise RuntimeError(_nested(self._busy == threading.get_ident(), self.transactional_id))

    def leave(self) -> None:
        """Give the turn back: the transaction is over, or its commit waits for an answer."""
        with self._lock:
            self._busy = None

    def end_unsent(self) -> None:
        """End a transaction of which no request was sent: its pair serves the next one."""
        self._state = "ready"

    def commit(self, pair: ProducerPair) -> None:
        """Commit the transaction of ``pair``, or repeat its commit that was not answered.

        Raises:
            RuntimeError: The pair's transaction is no longer the instance's last one.
            TransactionAbortedError, ProducerFencedError: Nothing was committed, and nothing will be.
            CommitOutcomeUnknownError: It may have been committed.
        """
        if pair != self.pair:
            raise RuntimeError(f"another transaction was begun since, so this one is over: {pair} {self.pair}")
        was_sent, self._is_commit_open = self._is_commit_open, True  # also if an interrupt ends the request
        try:
            self.pair = self._client.end_transaction(self.transactional_id, self.pair, "commit", retry_ms=self._end_ms)
        except errors.FencelineError as error:
            refusal = refusal_in(error)
            is_fenced = isinstance(refusal, errors.ProducerFencedError)
            if was_sent or not isinstance(error, (errors.FixError, errors.RetryError)):
                if is_fenced:
                    self.fence(refusal)
                raise self._unknown(error, is_fenced=is_fenced) from error
            # Each try was refused, or promised that it did nothing. Nothing but this request could have committed.
            self._is_commit_open = False
            if is_fenced:
                raise self.fence(refusal) from error
            detail = f"the service refused to commit, so this transaction will be aborted: reason={error.detail}"
            raise TransactionAbortedError(detail) from error
        self._is_commit_open, self._state = False, "ready"

    def abort(self) -> None:
        """Abort. Without an answer, the next ``begin`` sends it again."""
        if self._state != "open":
            return
        try:
            self._abort(min(ABORT_MS, self._end_ms), timeout_ms=ABORT_MS)
        except errors.FencelineError as error:
            log.warning("the client aborts a transaction again before the next begins: why=%s", error.code)

    def check(self) -> None:
        """Raise ``ProducerFencedError`` if the instance is known to be fenced."""
        if self._fence is not None:
            raise _fenced(self._fence, self.transactional_id) from self._fence

    def fence(self, error: BaseException) -> errors.ProducerFencedError:
        """Mark the instance as fenced for good, and return the error to raise."""
        self._state, self._fence = "fenced", error
        return _fenced(error, self.transactional_id)

    def _make_ready(self) -> None:
        self.check()
        if self._is_commit_open:
            raise CommitOutcomeUnknownError(
                f"the last commit was not answered; call its commit() again, or make a new producer: "
                f"transactional_id={self.transactional_id}",
                is_fenced=False,
            )
        if self._state == "open":
            self._abort(self._end_ms)
        if self._state == "asking":
            self._take(
                lambda: self._client.transactional_producer_id(
                    self.transactional_id, timeout_ms=self._timeout_ms, pair=self.pair, retry_ms=self._end_ms
                )
            )
        self.check()

    def _abort(self, retry_ms: int, timeout_ms: int | None = None) -> None:
        try:
            self._take(
                lambda: self._client.end_transaction(
                    self.transactional_id, self.pair, "abort", retry_ms=retry_ms, timeout_ms=timeout_ms
                )
            )
        except errors.FencelineError as error:
            if not isinstance(refusal_in(error), errors.FixError):
                raise
            # There is nothing to abort by this pair: it is no longer known, or never was.
            self._state = "asking"

    def _take(self, ask: Callable[[], ProducerPair]) -> None:
        try:
            self.pair = ask()
        except errors.FencelineError as error:
            if isinstance(refusal := refusal_in(error), errors.ProducerFencedError):
                self.fence(refusal)
                return
            raise
        self._state = "ready"

    def _unknown(self, error: errors.FencelineError, *, is_fenced: bool) -> CommitOutcomeUnknownError:
        then = "this instance is fenced, so look at what it changed" if is_fenced else "call commit() again"
        return CommitOutcomeUnknownError(
            f"the commit may have been decided; {then}: transactional_id={self.transactional_id} reason={error.detail}",
            is_fenced=is_fenced,
        )


def _fenced(error: BaseException, transactional_id: str) -> errors.ProducerFencedError:
    return errors.ProducerFencedError(
        "this instance is fenced for good; end, or begin with a new producer: "
        f"transactional_id={transactional_id} reason={error}"
    )


def _nested(is_same_thread: bool, transactional_id: str) -> str:
    if is_same_thread:
        return f"a transaction is open already; end it before the next begins: transactional_id={transactional_id}"
    return (
        "another thread has a transaction open with this producer; give each thread a producer with a transactional id "
        f"of its own: transactional_id={transactional_id}"
    )
