"""A transaction that a task, or the driver, writes rows into, until another request ends it.

Rule: the transaction begins by asking for its id again, which fences every earlier writer of that id. It is kept open
while rows come, however slowly, and after that for as long as its end may take.

Not here: the end; see ``commit``. The rows; see ``sending``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from fenceline import errors, limits
from fenceline.client import Client
from fenceline.client.transactions.errors import refusal_in
from fenceline.model.transaction import ProducerPair, TopicPartition

log = logging.getLogger("fenceline_spark")

TIMEOUT_MS = 60_000  # after which the transaction of a process that died ends by itself
EXTEND_MS = 20_000
ABORT_MS = 10_000  # for the tries of an abort: what it leaves open ends by its time-out


class OpenTransaction:
    """A new transaction of ``transactional_id``; a context manager that aborts where an exception leaves the block.

    Args:
        extend_ms: How often it is extended by ``TIMEOUT_MS`` while the block runs.
    """

    def __init__(self, client: Client, transactional_id: str, *, extend_ms: int = EXTEND_MS) -> None:
        self._client = client
        self.transactional_id = transactional_id
        self._extend_ms = extend_ms
        self._partitions: set[TopicPartition] = set()
        self._is_begun = False  # a request was sent that may have opened it at the service
        self._failure: errors.FencelineError | None = None
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self.pair: ProducerPair = client.transactional_producer_id(transactional_id, timeout_ms=TIMEOUT_MS)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if kind is not None and self._is_begun:
            abort(self._client, self.transactional_id, self.pair)

    def include(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions, in one request, before rows go there.

        Raises:
            InvalidRequestError: The transaction would have more partitions than one may have.
        """
        self.check()
        new = [one for one in dict.fromkeys(partitions) if one not in self._partitions]
        if not new:
            return
        count = len(self._partitions) + len(new)
        if count > limits.TRANSACTION_PARTITIONS_MAX:
            raise errors.InvalidRequestError(
                "the rows touch more partitions than one transaction takes; write fewer in each task, by repartition: "
                f"partitions={count} partitions_max={limits.TRANSACTION_PARTITIONS_MAX}"
            )
        self._is_begun = True
        self._client.add_partitions_to_transaction(self.transactional_id, self.pair, new)
        self._partitions.update(new)
        if self._keeper is None:
            self._keeper = threading.Thread(target=self._keep_open, name="fenceline-extend", daemon=True)
            self._keeper.start()

    def await_end(self, timeout_ms: int) -> None:
        """Let the transaction be open for ``timeout_ms`` from now on, after its last row."""
        self._stop()
        self.check()
        self._extend(timeout_ms)

    def _extend(self, timeout_ms: int) -> None:
        self._client.extend_transaction(self.transactional_id, self.pair, timeout_ms)

    def check(self) -> None:
        """Raise the refusal that an extension met, if one did: the transaction is over."""
        if self._failure is not None:
            raise self._failure

    def _keep_open(self) -> None:
        while not self._over.wait(self._extend_ms / 1000):
            try:
                self._extend(TIMEOUT_MS)
            except errors.FencelineError as error:
                self._failure = error
                return

    def _stop(self) -> None:
        self._over.set()
        if self._keeper is not None:
            self._keeper.join()


def abort(client: Client, transactional_id: str, pair: ProducerPair) -> None:
    """Abort the transaction of this pair, if it is still open. Without an answer its time-out ends it."""
    try:
        client.end_transaction(transactional_id, pair, "abort", retry_ms=ABORT_MS, timeout_ms=ABORT_MS)
    except errors.FencelineError as error:
        if not isinstance(refusal_in(error), errors.FixError):  # else it is over already
            log.warning(
                "a transaction was not aborted, and ends by its time-out: transactional_id=%s why=%s",
                transactional_id,
                error.code,
            )


def is_fenced(error: errors.FencelineError) -> bool:
    """Return True if a request was refused because its transactional id was asked for again, or timed out."""
    refusal = refusal_in(error)
    if isinstance(refusal, errors.ProducerFencedError):
        return "topic_epoch" not in refusal.extra and "topic_epochs" not in refusal.extra  # else its session was
    return isinstance(refusal, errors.InvalidProducerEpochError | errors.InvalidTxnStateError)
