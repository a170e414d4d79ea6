"""Read, process by a command, write, exactly once: the loop of ``fenceline txn run``.

Rule: a batch's output, and the group's offsets after its input, are committed together, in one transaction, or not at
all. So this process, its command and the service may die at any point: input whose transaction was committed is not
read again, and all other input is.

- One run at a time works for a group. A later run first takes the transactional id and the input's partitions from an
  earlier run, whose later requests are then refused. Only after that the later run reads the group's offsets, and waits
  for those that are still pending (KIP-447).

- Partitions that are added to the input are taken and read, too, each from its beginning or where the group is.

- The transaction is opened after the command has ended, so that a slow command neither delays a reader nor times out.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from fenceline.errors import FixError, RetryError, UnknownTopicOrPartitionError, UnstableOffsetCommitError
from fenceline_cli.commands.transactions.batch import Feed, RecordGroup, read_records, write_lines
from fenceline_cli.commands.transactions.batch_command import run_command
from fenceline_cli.options import InitialPosition, partitions_of

if TYPE_CHECKING:
    from fenceline.client import Client, Reader
    from fenceline.client.owner import Owner
    from fenceline.client.session import Session
    from fenceline.client.topic_watch import TopicWatch
    from fenceline.client.transactions.producer import TransactionalProducer
    from fenceline.client.types import CommittedOffset
    from fenceline.model.record import Record
    from fenceline.model.topic import Topic
    from fenceline_cli.commands.transactions.batch_command import Signals
    from fenceline_cli.record_lines import Format

T = TypeVar("T")

AT_ONCE = 32  # partitions in one request that owns, or that commits offsets
_TELL_S = 10.0  # between two lines of progress, on a terminal


@dataclass(frozen=True, slots=True)
class Job:
    """The arguments of one run."""

    source: str
    target: str
    group: str
    transactional_id: str
    format: Format
    command: Sequence[str]
    start: InitialPosition
    records_max: int
    timeout_ms: int
    is_once: bool


@dataclass(slots=True)
class Progress:
    """The counts of what was committed so far.

    Attributes:
        is_committing: A commit is on its way, whose outcome is not known yet.
    """

    transactions: int = 0
    read: int = 0
    written: int = 0
    is_committing: bool = False

    def __str__(self) -> str:
        were = "1 transaction was" if self.transactions == 1 else f"{self.transactions} transactions were"
        read = "1 record" if self.read == 1 else f"{self.read} records"
        return f"{were} committed, {read} read and {self.written} written"


class JobRun:
    """One run: what it was asked to do, and how far it came."""

    def __init__(self, client: Client, job: Job, progress: Progress, signals: Signals) -> None:
        self._client = client
        self._job = job
        self._progress = progress
        self._signals = signals
        self._is_away_told = False

    def go(self) -> None:
        """Process batch after batch: for ever, or up to the input's present end.

        Raises:
            BatchError: The command failed.
            CommandError: A record cannot be a line, or a line is no record.
            FencelineError: The service refused, or another run has taken over.
            Interrupted: A signal came. An open transaction was aborted.
        """
        job, client = self._job, self._client
        partitions = partitions_of(client, job.source, None)
        client.topic(job.target)
        with ExitStack() as held:
            producer = held.enter_context(
                client.transactional_producer(job.transactional_id, timeout_ms=job.timeout_ms)
            )
            session = held.enter_context(client.session())
            owners = [held.enter_context(owner) for owner in self.owners(session, partitions)]
            reader = held.enter_context(
                client.reader(
                    job.source,
                    partitions,
                    start=self.starts(partitions, session, job.start),
                    follow=not job.is_once,
                    isolation="read_committed",
                )
            )
            feed = held.enter_context(Feed(reader, job.records_max, on_away=None if job.is_once else self._wait))
            for owner in owners:
                owner.when_lost(feed.fail)  # else a run that waits for records would not notice
            added = _Added(self, len(partitions), session, reader, feed)
            if not job.is_once:
                held.callback(added.watch(client, job.source).close)
            for batch in with_progress(feed.batches(), self._progress):
                self._is_away_told = False
                self._process(batch, producer, session)

    def owners(self, session: Session, partitions: Sequence[int]) -> list[Owner]:
        """Take the partitions from an earlier run: it can commit no offsets from now on."""
        names = [f"{self._job.source}/{partition}" for partition in partitions]
        return [
            # Generation 0 severs any owner.
            self._client.own(some, group=self._job.group, generation=0, session=session)
            for some in chunks(names, AT_ONCE)
        ]

    def starts(self, partitions: Sequence[int], session: Session, start: InitialPosition) -> Mapping[int, int]:
        """Return the offset at which the group goes on in each partition, once no transaction can still move it."""
        job, client = self._job, self._client
        committed = {one.partition: one.offset for one in self._stable_offsets()}
        fresh = [partition for partition in partitions if partition not in committed]
        if not fresh:
            return committed
        bounds = {partition: offsets.bounds for partition, offsets in client.topic_offsets(job.source, fresh).items()}
        if start == "earliest":
            return {**committed, **{partition: at.log_start_offset for partition, at in bounds.items()}}
        ends = {partition: at.last_stable_offset for partition, at in bounds.items()}
        # Committed now: the next run must not begin at a later end.
        for some in chunks(_committed(job.source, ends), AT_ONCE):
            client.commit_offsets(job.group, some, session_id=session.session_id)
        return {**committed, **ends}

    def _stable_offsets(self) -> Sequence[CommittedOffset]:
        job, is_told = self._job, False
        while True:
            try:
                return self._client.committed_offsets(job.group, topic=job.source, require_stable=True)
            except UnstableOffsetCommitError as error:
                if not is_told:
                    typer.echo(f"waiting for the transaction of an earlier run to end: {error.detail}", err=True)
                is_told = True

    def _wait(self, error: RetryError) -> None:
        if not self._is_away_told:
            typer.echo(f"waiting for the server: {error.code}: {error.detail}; the command tries again", err=True)
        self._is_away_told = True

    def _process(self, batch: RecordGroup, producer: TransactionalProducer, session: Session) -> None:
        job = self._job
        with tempfile.TemporaryFile() as stdin:
            write_lines(batch, job.format, job.source, stdin)
            stdin.seek(0)
            with run_command(job.command, stdin, self._signals) as printed:
                self._commit(batch, read_records(printed, job.format), producer, session)

    def _commit(
        self, batch: RecordGroup, output: Iterable[list[Record]], producer: TransactionalProducer, session: Session
    ) -> None:
        job, written = self._job, 0
        try:
            with producer.transaction() as transaction:
                for records in output:
                    transaction.send_many(job.target, records)
                    written += len(records)
                transaction.send_offsets(job.group, _committed(job.source, batch.offsets), session=session)
                transaction.flush()
                self._signals.hold_back()  # only the commit itself is left
                self._progress.is_committing = True
        finally:
            self._signals.let_go()
        self._progress.is_committing = False
        self._progress.transactions += 1
        self._progress.read += len(batch.records)
        self._progress.written += written
        self._signals.check()


class _Added:
    """The partitions that are added to the input while a run goes on."""

    def __init__(self, run: JobRun, first: int, session: Session, reader: Reader, feed: Feed) -> None:
        self._run = run
        self._owned_to = self._read_to = first
        self._session = session
        self._reader = reader
        self._feed = feed

    def watch(self, client: Client, topic: str) -> TopicWatch:
        from fenceline.client.topic_watch import TopicWatch  # only here: `options` says how the client is loaded

        watch = TopicWatch(client, self._take)
        watch.add(topic)
        return watch

    def _take(self, topic: Topic) -> None:
        """Take and read what is new. After a failure that may pass the next look goes on."""
        try:
            self._read_added(topic)
        except UnknownTopicOrPartitionError:  # it was deleted: the reader says so
            raise
        except FixError as error:  # else the run would leave these partitions out, and say nothing
            self._feed.fail(error)
            raise

    def _read_added(self, topic: Topic) -> None:
        for some in chunks(range(self._owned_to, topic.partitions), AT_ONCE):
            for owner in self._run.owners(self._session, some):  # given back with the session
                owner.when_lost(self._feed.fail)
            self._owned_to = some[-1] + 1
        if new := range(self._read_to, self._owned_to):
            # All of their records came after the run began, whatever its start is.
            starts = self._run.starts(new, self._session, "earliest")
            for partition in new:
                self._reader.add(partition, starts[partition])
            self._read_to = self._owned_to


def with_progress(batches: Iterable[RecordGroup], progress: Progress) -> Iterator[RecordGroup]:
    """Yield the batches, and on a terminal print the progress now and then."""
    before = time.monotonic()
    for batch in batches:
        yield batch
        if sys.stderr.isatty() and time.monotonic() - before >= _TELL_S:
            typer.echo(str(progress), err=True)
            before = time.monotonic()


def chunks(things: Sequence[T], size: int) -> list[Sequence[T]]:
    return [things[start : start + size] for start in range(0, len(things), size)]


def _committed(topic: str, offsets: Mapping[int, int]) -> list[CommittedOffset]:
    from fenceline.client.types import CommittedOffset  # only here: `options` says how the client is loaded

    return [CommittedOffset(topic, partition, offset) for partition, offset in offsets.items()]
