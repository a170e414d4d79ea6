"""Requests of the clients of transactions, as they are written into the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.append.entries.batch import AppendRequest
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from fenceline.model.transaction import ProducerPair

TOPIC = "t"
OTHER = "u"  # deleted and created again, where a seed has that


@dataclass(frozen=True)
class Sending:
    """One sending of one transactional batch; a repeat has the same values."""

    transactional_id: str
    pair: ProducerPair
    sequence: int
    values: tuple[str, ...]

    def request(self) -> AppendRequest:
        records = [Record(text.encode(), None, timestamp=1_800_000_000_000) for text in self.values]
        producer = ProducerRef(*self.pair, self.sequence)
        return AppendRequest.of_records(records, producer=producer, transactional_id=self.transactional_id)

    def made(self, topic: str, partition: int, log: Any) -> Any:
        return log.append(topic, partition, self.request())


@dataclass(frozen=True)
class Ending:
    """One END_TXN."""

    transactional_id: str
    pair: ProducerPair
    is_commit: bool

    def made(self, log: Any) -> Any:
        return log.transactions.end(self.transactional_id, self.pair, self.is_commit)


@dataclass(frozen=True)
class Asking:
    """One id request, of one instance of a client."""

    transactional_id: str
    instance: str
    pair: ProducerPair | None
    timeout_ms: int

    def made(self, log: Any) -> Any:
        return log.transactions.init(self.transactional_id, self.timeout_ms, self.pair)


@dataclass
class Batch:
    """A batch of a transaction, and what its sender knows of it."""

    partition: int
    sequence: int
    values: tuple[str, ...]
    topic: str = TOPIC
    is_acknowledged: bool = False
    # Each sending was refused: none may be in the log.
    is_refused: bool = True


@dataclass
class Transaction:
    """One transaction of one instance, and what its client knows of it."""

    transactional_id: str
    instance: str
    pair: ProducerPair
    batches: list[Batch] = field(default_factory=list)
    offset: int | None = None  # the group's, if its answer came
    asked: bool | None = None  # whether a commit was asked for; None: no end was
    answered: bool = False
    # Each END_TXN was refused, and the first of them, too: it decided nothing.
    is_refused: bool = False
    ended: int | None = None  # the step of the answer

    def values(self) -> Sequence[str]:
        return [text for batch in self.batches for text in batch.values]


def plain(values: Sequence[str], producer: ProducerRef | None = None) -> AppendRequest:
    records = [Record(text.encode(), timestamp=1_800_000_000_000) for text in values]
    return AppendRequest.of_records(records, producer=producer)
