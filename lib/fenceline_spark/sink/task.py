"""A task's part of a write: its rows to the driver, or into a transaction of its own ("Exactly once on Spark").

Rule: a task decides nothing. Its rows become visible by the driver's one end, or never.

Rule: a task reads its rows to the end even if the batch was written before, because a stateful operator upstream
commits its state only at the end.

Not here: the end; see ``commit``. Spark's classes; see ``writers``.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

import pyarrow as pa

from fenceline import errors
from fenceline.client import Client
from fenceline.model.transaction import OnceMark
from fenceline_spark.sink import leftover_transactions
from fenceline_spark.sink.messages import Batch, Inline, Large, Message, Part, Repeat, Sent
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import Placing, encoded_bytes, packed
from fenceline_spark.sink.sending import PARALLEL, Sending
from fenceline_spark.sink.transaction import EXTEND_MS, OpenTransaction


def write_once(
    client: Client,
    options: SinkOptions,
    part: Part,
    rows: Iterable[pa.RecordBatch],
    *,
    parallel: int = PARALLEL,
    extend_ms: int = EXTEND_MS,
) -> Message:
    """Write one part of a batch so that the driver can make it visible, and return what the driver has to know.

    Raises:
        AlreadyCommittedError: A later batch of this query was written. Nothing of this part was.
        FencelineError: The rows were refused. Nothing of them will be visible.
    """
    batch, rows = part.batch, iter(rows)
    mark = None if batch.once_id is None else client.once(batch.once_id)
    last_note = None if mark is None else mark.note
    if mark is not None and is_written(batch, mark):
        return Repeat(part, last_note, sum(some.num_rows for some in rows))
    held, is_all = _up_to(rows, options.inline_bytes)
    if is_all:
        return Inline(part, last_note, packed(held))
    placing = Placing(client, options, first=batch.version + part.index, now_ms=client.runtime.now_ms())
    with (
        OpenTransaction(client, part.transactional_id(), extend_ms=extend_ms) as transaction,
        Sending(client, options, placing, transaction=transaction, parallel=parallel) as sending,
    ):
        for some in itertools.chain(held, rows):
            sending.add(placing.place(some))
        sending.flush()
        transaction.await_end(options.commit_timeout_ms)
        # The transaction has been open: either this finds the driver's id, or the driver's fence finds the transaction.
        if not batch.is_stream and leftover_transactions.is_given_up(client, batch):
            raise errors.InvalidTxnStateError(
                f"the write ended before this task of it, whose rows will not be visible: job={batch.run}"
            )
    return Large(part, last_note, transaction.transactional_id, transaction.pair, sending.counts)


def write_at_least_once(
    client: Client, options: SinkOptions, rows: Iterable[pa.RecordBatch], *, first: int, parallel: int = PARALLEL
) -> Sent:
    """Write rows as an idempotent producer, visible as they come. A task that is tried again writes them again.

    Args:
        first: As for ``Placing``.

    Raises:
        FencelineError: Rows were refused. Those before them may be visible.
    """
    placing = Placing(client, options, first=first, now_ms=client.runtime.now_ms())
    with Sending(client, options, placing, pair=client.producer_id(), parallel=parallel) as sending:
        for some in rows:
            sending.add(placing.place(some))
        sending.flush()
    return Sent(sending.counts)


def is_written(batch: Batch, mark: OnceMark) -> bool:
    """Return True if ``batch`` was written before, as ``mark`` says.

    Raises:
        AlreadyCommittedError: A later batch of a stream was written, so this checkpoint is an old one.
        InvalidRequestError: What was written by this txnAppId is another write, whose rows are not this one's.
    """
    if batch.is_stream and mark.version > batch.version:
        raise errors.AlreadyCommittedError(
            "the query wrote later batches than its checkpoint has; begin with a new checkpoint, or run "
            f'"fenceline spark forget {mark.app_id}": '
            f"app_id={mark.app_id} batch={batch.version} written={mark.version}",
            version=mark.version,
            note=mark.note,
        )
    if mark.version < batch.version:
        return False
    _check_same_write(batch, mark)
    return True


def _check_same_write(batch: Batch, mark: OnceMark) -> None:
    """Refuse a batch write whose txnAppId another write has, as far as ``mark`` shows it: its rows would be lost.

    A write with another target is another write, and so is a second write of one version in one run of the query around
    both.
    """
    run, *named = (mark.note or "").split(" ")
    if batch.is_stream or run == batch.run:
        return
    target = next((each for each in named if each.startswith(("topic=", "topics="))), batch.target)
    is_second = batch.within is not None and mark.version == batch.version and f"run={batch.within}" in named
    if target != batch.target or is_second:
        raise errors.InvalidRequestError(
            "another write has used this txnAppId, which counts for all topics together; give "
            f"each write its own txnAppId: txnAppId={batch.once_id} txnVersion={batch.version} {batch.target} "
            f"written={mark.version} written_to={target}",
            field="txnAppId",
        )


def _up_to(rows: Iterator[pa.RecordBatch], bytes_max: int) -> tuple[list[pa.RecordBatch], bool]:
    """Return the first rows, and whether they are all: those after them take more than ``bytes_max`` with them."""
    held: list[pa.RecordBatch] = []
    size = 0
    for some in rows:
        if some.num_rows:
            held.append(some)
            size += encoded_bytes(some)
            if size > bytes_max:
                return held, False
    return held, True
