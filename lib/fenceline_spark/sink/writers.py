"""The classes that PySpark asks a sink for, and a task's place in its query.

Rule: writers hold options alone, because PySpark makes new ones for every batch, and again for its commit, in other
processes.

Not here: what a task and the driver do; see ``task`` and ``commit``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from fenceline.client import Client
from fenceline.errors import InvalidRequestError
from fenceline_spark.plain_errors import plain_errors
from fenceline_spark.service import client_of
from fenceline_spark.sink.messages import Batch, Message, Part
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.versions import StreamArrowWriter

if TYPE_CHECKING:
    from fenceline_spark.sink.commit import Committer

# Properties that Spark sets for the tasks of a streaming query.
_QUERY_ID, _BATCH_ID, _RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"


@dataclass(frozen=True)
class BatchWriter(DataSourceArrowWriter):
    """A batch write: one job, named by ``job``."""

    options: SinkOptions
    job: str

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from fenceline_spark.sink.task import write_at_least_once, write_once  # only in tasks: half a second of imports

        task = _task()
        if not self.options.is_exactly_once:
            return write_at_least_once(_client(self.options), self.options, iterator, first=task.partitionId())
        within = None if task.getLocalProperty(_QUERY_ID) is None else task.getLocalProperty(_RUN_ID)
        part = Part(self._batch(within), task.partitionId(), task.attemptNumber())
        return write_once(_client(self.options), self.options, part, iterator)

    @plain_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self.options.is_exactly_once:
            _committer(self.options).commit(_all(messages))

    @plain_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:  # noqa: ARG002 - PySpark's
        if self.options.is_exactly_once:
            _committer(self.options).abort(self._batch())

    def _batch(self, within: str | None = None) -> Batch:
        name, app_id, version = f"spark.{self.job}", self.options.txn_app_id, self.options.txn_version or 0
        return Batch(name, app_id, version, self.job, is_stream=False, target=self.options.target, within=within)


@dataclass(frozen=True)
class StreamWriter(StreamArrowWriter):
    """A micro-batch of a streaming query, whose id the tasks know."""

    options: SinkOptions

    @plain_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from fenceline_spark.sink.task import write_at_least_once, write_once  # only in tasks: half a second of imports

        task = _task()
        query, version = _property(task, _QUERY_ID), int(_property(task, _BATCH_ID))
        index = task.partitionId()
        if not self.options.is_exactly_once:
            return write_at_least_once(_client(self.options), self.options, iterator, first=version + index)
        name = f"spark.{query}"
        batch = Batch(name, name, version, _property(task, _RUN_ID), is_stream=True)
        return write_once(_client(self.options), self.options, Part(batch, index, task.attemptNumber()), iterator)

    @plain_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 - PySpark's
        if self.options.is_exactly_once:
            _committer(self.options).commit(_all(messages))

    @plain_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002 - PySpark's
        """Free readers. Where every task failed, no message says the query's id, and the time-outs do it."""
        if self.options.is_exactly_once:
            for message in messages:
                if isinstance(message, Message):
                    _committer(self.options).abort(message.part.batch, messages)
                    return


def _client(options: SinkOptions) -> Client:
    return client_of(options.endpoint, options.region)


def _committer(options: SinkOptions) -> Committer:
    from fenceline_spark.sink.commit import Committer  # only in a commit, as with tasks

    return Committer(_client(options), options)


def _all(messages: Sequence[WriterCommitMessage | None]) -> Sequence[Message]:
    """Return the messages of all tasks.

    Raises:
        InvalidRequestError: A task has none, so not all rows are there.
    """
    if not all(isinstance(message, Message) for message in messages):
        raise InvalidRequestError(f"a task left no message, so nothing was written: messages={len(messages)}")
    return cast("Sequence[Message]", messages)


def _task() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("rows are written by tasks of Spark alone; call save() or start()")
    return task


def _property(task: TaskContext, name: str) -> str:
    found: str | None = task.getLocalProperty(name)
    if found is None:
        raise RuntimeError(f"this version of Spark does not tell tasks which batch they write: property={name}")
    return found
