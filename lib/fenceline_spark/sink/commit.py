"""The driver's part of a write: one end for all that the tasks wrote ("Exactly once on Spark").

Rule: nothing is kept in memory from one call to the next, because the messages and the service have all of it.

Rule: a batch becomes visible by the one request that raises ``once`` to its version, whole or not at all.

Not here: what the service does by that request; see ``fenceline.transactions``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from fenceline import errors, limits
from fenceline.client import Client
from fenceline.model.transaction import OnceMark, TopicPartition, TransactionMember
from fenceline_spark.sink import leftover_transactions
from fenceline_spark.sink.driver_rows import DriverRows
from fenceline_spark.sink.messages import Batch, Inline, Large, Message, Repeat, rows_of, run_of
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.placing import Placing, joined, unpacked
from fenceline_spark.sink.sending import PARALLEL
from fenceline_spark.sink.task import is_written
from fenceline_spark.sink.transaction import EXTEND_MS, abort, is_fenced

# Not below "fenceline", which is silent unless a program asks for output: a warning is meant to be seen.
log = logging.getLogger("fenceline_spark")

PAIRS_MAX = 5  # asked for by one commit: each further one was fenced by a driver that should have ended


class EndUnansweredError(errors.OutcomeUnknownError):
    """The end of a batch may have been decided: its rows are visible whole, or not at all."""


class _NothingDecided(Exception):
    """The driver's own transaction is over, and it is certain that no end of this batch was decided by its pair."""

    def __init__(self, refusal: errors.FencelineError) -> None:
        self.refusal = refusal


@dataclass(slots=True)
class _Collected:
    """The rows that the tasks of one batch left to be written, in the order of the tasks."""

    batch: Batch
    inline: list[list[pa.RecordBatch]] = field(default_factory=list)  # one list for each task that has rows
    large: list[Large] = field(default_factory=list)
    repeats: int = 0
    repeated_rows: int = 0
    last_notes: set[str | None] = field(default_factory=set)

    @property
    def rows(self) -> int:
        """The number of rows that are left to be written."""
        handed: int = sum(batch.num_rows for rows in self.inline for batch in rows)
        return handed + sum(count for one in self.large for count in one.counts.values())


class Committer:
    """The end of batches, and what comes after it."""

    def __init__(
        self, client: Client, options: SinkOptions, *, parallel: int = PARALLEL, extend_ms: int = EXTEND_MS
    ) -> None:
        self._client = client
        self._options = options
        self._parallel = parallel
        self._extend_ms = extend_ms

    def commit(self, messages: Sequence[Message]) -> None:
        """Make the rows of all tasks visible at once, unless this batch was written before.

        Raises:
            AlreadyCommittedError: A later batch of this query was written. Nothing of this one was.
            EndUnansweredError: The batch is visible whole, or not at all. Its next run finds out, if it has ``once``.
            FencelineError: The batch was refused. Nothing of it is visible; ``abort`` frees readers.
        """
        if not messages:
            return
        found = _collected(messages)
        if found.repeats:
            if found.large or found.inline:
                self._give_way(found)
            else:
                for note in found.last_notes:
                    _check_same_rows(found.batch, note, found.repeated_rows)
            _tell_repeat(found.batch, None)
            return
        if not found.large and not found.inline:
            return
        self._check(found)
        if not self._end(found):
            note = self._give_way(found).note
            _check_same_rows(found.batch, note, found.rows)
            _tell_repeat(found.batch, note)
            return
        leftover_transactions.fence_rivals(self._client, found.large, parallel=self._parallel)
        if found.batch.is_stream and {run_of(note) for note in found.last_notes} != {found.batch.run}:
            leftover_transactions.fence_all(self._client, found.batch, parallel=self._parallel)

    def abort(self, batch: Batch, messages: Iterable[object] = ()) -> None:
        """End all that tasks of ``batch`` left open, so that no reader waits for it.

        If the query has gone on to later batches, another driver has them, so only the transactions of ``messages`` are
        ended.
        """
        for message in messages:
            if isinstance(message, Large):
                abort(self._client, message.transactional_id, message.pair)
        if not batch.is_stream:
            leftover_transactions.give_up(self._client, batch)
        if not self._is_past(batch):
            leftover_transactions.fence_all(self._client, batch, parallel=self._parallel)

    def _is_past(self, batch: Batch) -> bool:
        if not batch.is_stream or batch.once_id is None:
            return False
        try:
            return self._client.once(batch.once_id).version >= batch.version
        except errors.StoreUnavailableError:
            return False

    def _check(self, found: _Collected) -> None:
        _check_members(len(found.large) + bool(found.inline))
        if self._options.expected_offsets is not None:
            self._check_one_task_each(found)

    def _check_one_task_each(self, found: _Collected) -> None:
        tasks: dict[TopicPartition, int] = defaultdict(int)
        for one in found.large:
            for where in one.counts:
                tasks[where] += 1
        for rows in found.inline:
            placing = self._placing(found.batch)
            for where in {where for where, _ in placing.place(joined(rows))}:
                tasks[where] += 1
        for where, count in tasks.items():
            if count > 1:
                raise errors.InvalidRequestError(
                    "rows with expected offsets must come from one task for each partition; "
                    f'call .repartition("partition") before the write: topic={where.topic} '
                    f"partition={where.partition} tasks={count}"
                )

    def _placing(self, batch: Batch) -> Placing:
        return Placing(self._client, self._options, first=batch.version, now_ms=self._client.runtime.now_ms())

    def _end(self, found: _Collected) -> bool:
        """Commit all of the batch; return False if another run of it, or a later batch, was written before."""
        for tries_left in reversed(range(PAIRS_MAX)):
            try:
                self._try(found)
            except errors.AlreadyCommittedError:
                return False
            except EndUnansweredError:
                # Going round would write the rows twice where the end was decided, and its version forgotten since.
                if not self._is_known(found.batch):
                    raise
                return False
            except _NothingDecided as nothing:
                if not tries_left:
                    raise nothing.refusal from None
                log.warning("another driver asked for this query's id; writing again: id=%s", found.batch.prefix)
            except errors.FencelineError as error:
                raise _explained(error, found) from error
            else:
                break
        return True

    def _try(self, found: _Collected) -> None:
        large = [TransactionMember(one.transactional_id, one.pair) for one in found.large]
        placing = self._placing(found.batch)
        # If the end is refused, this block aborts what the driver wrote.
        with DriverRows(
            self._client, self._options, placing, found.batch, parallel=self._parallel, extend_ms=self._extend_ms
        ) as own:
            try:
                own.write(batch for rows in found.inline for batch in rows)
            except errors.FencelineError as error:
                if is_fenced(error):  # by these pairs no end was sent, so what they wrote is never visible
                    raise _NothingDecided(error) from error
                raise
            _check_members(len(own.members) + len(large))
            self._commit(found, own.members, large)

    def _commit(self, found: _Collected, own: Sequence[TransactionMember], large: Sequence[TransactionMember]) -> None:
        """End all members by one decision.

        Args:
            own: Those that the driver has opened.

        Raises:
            AlreadyCommittedError: Another run of the batch was first, or a later batch was written.
            EndUnansweredError: It may have been decided.
        """
        batch = found.batch
        once = None if batch.once_id is None else OnceMark(batch.once_id, batch.version, batch.note(found.rows))
        try:
            # I29: the commit of a batch, which raises `once` to its version. A run that loses has shown no reader
            # anything.
            self._client.end_transactions([*own, *large], "commit", once=once)
        except errors.OutcomeUnknownError as error:
            raise _unanswered(error, batch) from error
        except errors.ProducerFencedError as error:
            # Its own answer, no earlier one being lost. Without `once` nothing would stop a second decision.
            named = error.extra.get("transactional_id")
            if once is not None and named in {member.transactional_id for member in own}:
                raise _NothingDecided(error) from error
            raise

    def _is_known(self, batch: Batch) -> bool:
        """Return True if the service says that this batch was written; False also where it does not answer."""
        try:
            return self._decided(batch) is not None
        except errors.StoreUnavailableError:
            return False

    def _decided(self, batch: Batch) -> OnceMark | None:
        """Return the version in the service if this batch was written, by whichever run."""
        mark = None if batch.once_id is None else self._client.once(batch.once_id)
        return mark if mark is not None and is_written(batch, mark) else None

    def _give_way(self, found: _Collected) -> OnceMark:
        """Fence this run's transactions, once it is sure that another run has written the batch; return the stored
        version.

        Raises:
            InvalidTxnStateError: No run has, because the version was forgotten meanwhile. Nothing was written.
        """
        batch = found.batch
        mark = self._decided(batch)
        if mark is None:
            raise errors.InvalidTxnStateError(
                "a task met this batch as written, and it is no longer; start the query again: "
                f"app_id={batch.once_id} batch={batch.version}"
            )
        for one in found.large:
            abort(self._client, one.transactional_id, one.pair)
        return mark


def _check_members(count: int) -> None:
    if count > limits.TRANSACTIONS_PER_END_MAX:
        raise errors.InvalidRequestError(
            f"too many tasks wrote more than inlineBytes, and one commit takes {limits.TRANSACTIONS_PER_END_MAX}; "
            f"write fewer partitions, as by .coalesce({limits.TRANSACTIONS_PER_END_MAX}): tasks={count}"
        )


def _unanswered(error: errors.OutcomeUnknownError, batch: Batch) -> EndUnansweredError:
    if batch.is_stream:
        then = "start the query again, which finds out"
    elif batch.once_id is not None:
        then = "write again with the same txnAppId and txnVersion, which finds out"
    else:
        then = "read the topics before you write the rows again; with txnAppId and txnVersion a second write finds out"
    return EndUnansweredError(
        "the rows of the batch are visible, or none of them is, since the answer to its commit was lost; "
        f"{then}: id={batch.prefix} why={error.detail}"
    )


def _explained(error: errors.FencelineError, found: _Collected) -> errors.FencelineError:
    """Return ``error``, or what it means where a task's transaction was over before the commit."""
    named = error.extra.get("transactional_id")
    is_of_a_task = named in {one.transactional_id for one in found.large}
    if not isinstance(error, errors.ProducerFencedError) or not is_of_a_task:
        return error
    return errors.ProducerFencedError(
        "nothing was written: a task's transaction ended before the commit, fenced or after commitTimeoutMs; start the "
        "query again, or raise commitTimeoutMs: "
        f"transactional_id={named}",
        transactional_id=named,
    )


def _collected(messages: Sequence[Message]) -> _Collected:
    ordered = sorted(messages, key=lambda message: message.part.index)
    found = _Collected(ordered[0].part.batch)
    for message in ordered:
        found.last_notes.add(message.last_note)
        match message:
            case Large():
                found.large.append(message)
            case Inline(rows=bytes() as rows):
                found.inline.append(unpacked(rows))
            case Repeat():
                found.repeats += 1
                found.repeated_rows += message.rows
    return found


def _check_same_rows(batch: Batch, note: str | None, rows: int) -> None:
    """Refuse a stream's batch that is not the one that was written: its rows would be passed over.

    Spark repeats a batch by the offsets that it logged, so that the repeat has as many rows. A batch with another
    number of rows comes from an older checkpoint.

    Args:
        note: What was remembered with the batch's version.
        rows: How many rows the batch has now.

    Raises:
        AlreadyCommittedError: It has another number of rows.
    """
    written = rows_of(note)
    if not batch.is_stream or written is None or rows == written:
        return
    raise errors.AlreadyCommittedError(
        "this batch was written with another number of rows, so the checkpoint is from before it, or the query gives "
        "other rows each time. Begin with a new checkpoint, or write it again after "
        f'"fenceline spark forget {batch.once_id}": '
        f"app_id={batch.once_id} batch={batch.version} rows={rows} written={written}",
        version=batch.version,
        note=note,
    )


def _tell_repeat(batch: Batch, note: str | None) -> None:
    """Warn of a batch write that found its version written.

    Args:
        note: Of the run that wrote it, or a later version.
    """
    if batch.is_stream:
        return
    what = "nothing was written, since this version is not above the last one"
    if run_of(note) == batch.run:
        what = "the rows are written: the answer was lost, and this job's own first request was decided"
    log.warning("%s: txnAppId=%s txnVersion=%d", what, batch.once_id, batch.version)
