"""A transactional producer: records to many partitions, and a group's offsets, all or nothing (KIP-98).

Rule: one instance of a transactional id has one transaction at a time. An instance that begins later fences it.

Not here: the transaction itself; see ``open``.
"""

from __future__ import annotations

from collections.abc import Callable

from fenceline.client.api import ApiClient
from fenceline.client.calls import public
from fenceline.client.transactions.batches import TransactionSender
from fenceline.client.transactions.instance import Instance
from fenceline.client.transactions.open import OpenTransaction
from fenceline.client.transactions.partition_pickers import PartitionPickers
from fenceline.format.batch import Codec
from fenceline.model.transaction import ProducerPair


@public
class TransactionalProducer:
    """A writer of transactions, made by ``Client.transactional_producer``; a context manager that closes it.

    Read, process, write, each input's effect exactly once, however often the worker is killed and started again::

        with (
            client.transactional_producer("worker-3") as producer,
            client.own("input/3", group="workers", wait_ms=None) as owner,
        ):
            done = client.committed_offsets("workers", topic="input", partition=3, require_stable=True)
            start = done[0].offset if done else "earliest"
            for _, records in client.reader("input", [3], start=start, isolation="read_committed").pages():
                with producer.transaction() as txn:
                    for record in records:
                        txn.send("output", key=record.key, value=work(record))
                    txn.send_offsets("workers", [CommittedOffset("input", 3, records[-1].offset + 1)], session=owner)

    The outputs and the offset show together at the end of the block, to readers with ``isolation="read_committed"``.

    - *Abortable.* ``TransactionAbortedError``: nothing of the transaction will ever show. Go back to the group's
      committed offsets, and begin another one.

    - *Fatal.* ``errors.ProducerFencedError``: another instance has the transactional id now, or a transaction was open
      for longer than ``timeout_ms``. Nothing of it will ever show. End, or begin with a new producer.

    - *Unknown.* ``CommitOutcomeUnknownError``: the commit was not answered in time. Call the transaction's ``commit``
      again. If the error's ``is_fenced`` is true, look at the committed offsets with ``require_stable``.

    A program that takes over the work of another begins in this order, too. First it makes its producer, which ends the
    transaction that the other one left open. Then it owns the partitions: with a ``generation`` it takes them at once,
    and without one it waits until the other's lease is over. Last it reads the committed offsets with
    ``require_stable``.

    One thread uses a producer at a time. It looks at its topics again each 60 s. Partitions that were added count from
    the next transaction on.
    """

    def __init__(
        self,
        client: ApiClient,
        transactional_id: str,
        *,
        timeout_ms: int,
        linger_ms: int,
        batch_bytes: int,
        compression: Codec,
        max_in_flight: int,
        buffer_bytes: int,
        delivery_ms: int,
        partitioner: Callable[[bytes, int], int],
    ) -> None:
        self._client = client
        self._delivery_ms = delivery_ms
        self._instance = Instance(client, transactional_id, timeout_ms=timeout_ms, end_ms=delivery_ms)
        self._pickers = PartitionPickers(client, partitioner)
        self._sender = TransactionSender(
            client,
            transactional_id,
            self._pickers,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            compression=compression,
            max_in_flight=max_in_flight,
            buffer_bytes=buffer_bytes,
            delivery_ms=delivery_ms,
        )
        self._last: OpenTransaction | None = None
        self._is_closed = False

    @property
    def transactional_id(self) -> str:
        return self._instance.transactional_id

    @property
    def pair(self) -> ProducerPair:
        """The producer id and the epoch of the present transaction, or of the next one."""
        return self._instance.pair

    def __enter__(self) -> TransactionalProducer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def transaction(self) -> OpenTransaction:
        """Return a transaction, which begins and ends with its ``with`` block.

        Entering the block raises:

        - ``ProducerFencedError``: this instance is fenced for good.

        - ``CommitOutcomeUnknownError``: the last commit was not answered yet.

        - Another ``FencelineError``: the service could not be asked what became of the last abort. Nothing was begun.

        Raises:
            RuntimeError: The producer was closed, or a transaction of it is open.
        """
        if self._is_closed:
            raise RuntimeError("the producer was closed; make a new one with Client.transactional_producer")
        self._instance.check_free()
        self._last = OpenTransaction(
            self._client, self._instance, self._sender, self._pickers, delivery_ms=self._delivery_ms
        )
        return self._last

    def close(self) -> None:
        """Begin no further transaction, and abort the one that is open: its block then ends with a ``RuntimeError``."""
        self._is_closed = True
        try:
            if self._last is not None and self._last.outcome == "open":
                self._last.abort_by_close()
        finally:
            self._pickers.close()
            self._sender.close()
