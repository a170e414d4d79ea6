"""Rows that the tasks handed to the driver, in transactions that the driver opens for them.

Rule: a partition's rows are all in one transaction, in the order of the tasks. One transaction is enough, unless the
rows touch more partitions than it may have.

Not here: the end; see ``commit``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Self

import pyarrow as pa

from fenceline import limits
from fenceline.client import Client
from fenceline.model.transaction import TopicPartition, TransactionMember
from fenceline_spark.columns.encode import Columns
from fenceline_spark.sink.messages import Batch
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import Placing, joined
from fenceline_spark.sink.sending import Sending
from fenceline_spark.sink.transaction import OpenTransaction

JOINED_BYTES = 32 * limits.MIB  # placed at once


class DriverRows:
    """The driver's own transactions of a batch; a context manager that aborts them where an exception leaves it."""

    def __init__(
        self, client: Client, options: SinkOptions, placing: Placing, batch: Batch, *, parallel: int, extend_ms: int
    ) -> None:
        self._client = client
        self._options = options
        self._placing = placing
        self._batch = batch
        self._parallel = parallel
        self._extend_ms = extend_ms
        self._open = ExitStack()
        self._own: list[tuple[OpenTransaction, Sending]] = []
        self._sendings: dict[TopicPartition, Sending] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._open.__exit__(*exc)  # type: ignore[arg-type]

    @property
    def members(self) -> Sequence[TransactionMember]:
        """The transactions that were opened."""
        return [TransactionMember(one.transactional_id, one.pair) for one, _ in self._own]

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        """Write all of ``rows``, and return once they are stored.

        Raises:
            FencelineError: They were refused. None of them will be visible.
        """
        for some in _together(rows):
            for where, columns in self._placing.place(some):
                self._add(where, columns)
        for _, sending in self._own:
            sending.flush()

    def _add(self, where: TopicPartition, columns: Columns) -> None:
        sending = self._sendings.get(where)
        if sending is None:
            if len(self._sendings) == len(self._own) * limits.TRANSACTION_PARTITIONS_MAX:
                self._begin()
            sending = self._sendings[where] = self._own[-1][1]
        sending.add([(where, columns)])

    def _begin(self) -> None:
        # The id of a restart's first one is the same, and the others begin as all of the query's ids: it fences both.
        number, prefix = len(self._own), self._batch.prefix
        name = prefix if number == 0 else f"{prefix}.inline.{number}"
        transaction = self._open.enter_context(OpenTransaction(self._client, name, extend_ms=self._extend_ms))
        sending = Sending(self._client, self._options, self._placing, transaction=transaction, parallel=self._parallel)
        self._own.append((transaction, self._open.enter_context(sending)))


def _together(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of many small batches as few."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for some in rows:
        if held and held_bytes + some.nbytes > JOINED_BYTES:
            yield joined(held)
            held, held_bytes = [], 0
        held.append(some)
        held_bytes += some.nbytes
    if held:
        yield joined(held)
