"""A transactional producer, with a coordinator of a few lines in the place of the real one.

Rule: the coordinator answers only the questions of an append: whether a pair may write, and whether its transaction is
prepared. Appends ask it through the same seam as the real one.

Not here: the states of a real transaction, and its item (``fenceline.transactions``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.append.entries.batch import AppendRequest
from fenceline.append.entries.entry import Marked
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.errors import ProducerFencedError
from fenceline.log.partition import Partition
from fenceline.model.record import Record
from fenceline.model.results import Appended, ProducerRef
from fenceline.model.transaction import ProducerPair
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service, appender_of

ID = "wordcount-0"


@dataclass
class Coordinator:
    """The transaction of one transactional id, for all processes of a service."""

    service: Service
    producer_id: int = 7
    epoch: int = 0
    is_prepared: bool = False
    partitions: set[int] = field(default_factory=set)
    asked: list[AskCoordinator] = field(default_factory=list)  # by batches
    sequences: dict[int, int] = field(default_factory=dict)  # the next of each partition
    beside: Callable[[], object] = lambda: None  # what happens while an admission is on its way back

    def serves(self, log: Log) -> Log:
        """Let the process ask this coordinator; return the process."""
        log.producing.__dict__["admissions"] = self
        return log

    def admit(
        self, partition: Partition, transactional_id: str, pair: ProducerPair, asked: AskCoordinator, until_ms: int
    ) -> CoordinatorAnswer:
        self.asked.append(asked)
        at = partition.context.instant()
        assert transactional_id == ID
        if pair != (self.producer_id, self.epoch) or self.is_prepared:
            raise ProducerFencedError("the transaction of this epoch is past")
        self.partitions.add(partition.partition)
        beside, self.beside = self.beside, lambda: None
        beside()
        return CoordinatorAnswer(partition.context, at, asked.seen)

    def batch(self, *values: str, partition: int = 0, epoch: int | None = None, **more: Any) -> AppendRequest:
        """Return the producer's next batch for a partition."""
        sequence = self.sequences.get(partition, 0)
        self.sequences[partition] = sequence + len(values)
        ref = ProducerRef(self.producer_id, self.epoch if epoch is None else epoch, sequence)
        records = [Record(value.encode()) for value in values]
        return AppendRequest.of_records(records, producer=ref, transactional_id=ID, **more)

    def send(self, log: Log, *values: str, partition: int = 0, **more: Any) -> Appended:
        """Append the producer's next batch to a partition."""
        answer = log.append(TOPIC, partition, self.batch(*values, partition=partition, **more))
        assert answer is not None
        return answer

    def decide(self) -> None:
        """Decide the transaction; its markers carry the epoch from now on."""
        self.epoch += 1
        self.is_prepared = True
        self.sequences = {}

    def mark(self, log: Log, partition: int = 0, *, is_commit: bool = True, epoch: int | None = None) -> Marked | None:
        """Bring the marker to one partition, as a finisher does; return ``None`` where its transaction is past."""
        topic_id = self.service.topic_id()
        appender = appender_of(log, partition, topic_id=topic_id)
        entry = EndEntry(self.producer_id, self.epoch if epoch is None else epoch, is_commit)
        while True:
            answer = appender.append(entry, self.service.runtime.monotonic_ms() + 10_000)
            if isinstance(answer, Marked):
                return answer
            assert isinstance(answer, AskCoordinator)
            at = appender.partition.context.instant()
            if not self.is_prepared or self.epoch != entry.producer_epoch:
                return None
            entry = replace(entry, prepared=CoordinatorAnswer(appender.partition.context, at, answer.seen))

    def end(self, log: Log, *, is_commit: bool = True) -> None:
        """Decide the transaction and finish it."""
        self.decide()
        for partition in sorted(self.partitions):
            self.mark(log, partition, is_commit=is_commit)
        self.partitions, self.is_prepared = set(), False
