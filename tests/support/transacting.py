"""A transactional producer on the real coordinator, in one process of a service.

Rule: each method is one request, as the service makes it, and the test sees what it raises.

Not here: a coordinator of a few lines for tests of appends alone (``coordinating``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.append.entries.batch import AppendRequest
from fenceline.format import control
from fenceline.log.tail import Tail, verified_tail
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import Appended, ProducerRef
from fenceline.model.transaction import ProducerPair, TransactionMember
from fenceline.service.log import Log
from fenceline.transactions import item_store
from fenceline.transactions.coordinator import TransactionCoordinator
from fenceline.transactions.decide import JointEnd
from fenceline.transactions.end_due import Meetings
from fenceline.transactions.item import TopicPartitions, TransactionItem
from fenceline.transactions.joint_end import EndCoordinator
from tests.support.service import TOPIC, Service, partition_of, partitions_of

ID = "wordcount-0"
TIMEOUT_MS = 60_000
REQUEST_MS = 20_000
PARTITIONS = (0, 1, 2)  # those that ``ongoing`` names, of which the last one has no data
NO_PAIR = ProducerPair(-1, -1)


def coordinator_of(log: Log) -> TransactionCoordinator:
    return TransactionCoordinator(partitions_of(log), log.producing._producer_ids.take)


def meetings_of(log: Log) -> Meetings:
    return Meetings(partitions_of(log))


@dataclass
class Producer:
    """A producer with a transactional id, whose requests one process serves."""

    service: Service
    log: Log
    transactional_id: str = ID
    timeout_ms: int = TIMEOUT_MS
    pair: ProducerPair = NO_PAIR
    sequences: dict[tuple[str, int], int] = field(default_factory=dict)  # the next of each partition

    @property
    def coordinator(self) -> TransactionCoordinator:
        return coordinator_of(self.log)

    @property
    def until_ms(self) -> int:
        return int(self.service.runtime.monotonic_ms()) + REQUEST_MS

    def begin(self, *, keeps: bool = False) -> ProducerPair:
        """Ask for an id; with ``keeps`` the producer names its pair."""
        pair = self.pair if keeps else None
        return self.takes(self.coordinator.init(self.transactional_id, self.timeout_ms, pair, self.until_ms))

    def takes(self, pair: ProducerPair) -> ProducerPair:
        self.pair, self.sequences = pair, {}
        return pair

    def add(self, *partitions: int, topic: str = TOPIC) -> None:
        self.coordinator.add_partitions(
            self.transactional_id, self.pair, self.places(*partitions, topic=topic), self.until_ms
        )

    def places(self, *partitions: int, topic: str = TOPIC) -> Sequence[TopicPartitions]:
        return [TopicPartitions(self.service.topic_id(topic), topic, partitions)]

    def send(self, value: str = "v", partition: int = 0, topic: str = TOPIC) -> Appended:
        """Append the next batch, of one record, to a partition."""
        place = (topic, partition)
        sequence = self.sequences.get(place, 0)
        batch = AppendRequest.of_records(
            [Record(value.encode())],
            producer=ProducerRef(*self.pair, sequence),
            transactional_id=self.transactional_id,
        )
        answer = self.log.append(topic, partition, batch)
        assert answer is not None
        self.sequences[place] = sequence + 1
        return answer

    def end(self, *, is_commit: bool = True) -> ProducerPair:
        return self.takes(self.outcome(is_commit=is_commit))

    def outcome(self, *, is_commit: bool = True) -> ProducerPair:
        """End the transaction, and keep the pair, as a producer does that hears no answer."""
        request = JointEnd([TransactionMember(self.transactional_id, self.pair)], is_commit, is_passing_over=False)
        ends = EndCoordinator(partitions_of(self.log), self.log.producing._producer_ids.take)
        return ends.end(request, self.until_ms)[0].pair

    def get(self) -> TransactionItem:
        return self.coordinator.get(self.transactional_id, self.until_ms)

    def stored(self) -> TransactionItem:
        """Return the item as it is stored: nothing is ended."""
        found = item_store.read(self.log.context, self.transactional_id)
        assert found is not None
        return found


def tail_of(service: Service, log: Log, number: int = 0) -> Tail:
    return verified_tail(partition_of(log, number))


def opened(service: Service, partition: int = 0) -> list[int]:
    """Return the producers whose transactions are open at the log's end, as a fresh process finds it."""
    return sorted(tail_of(service, service.another(), partition).state.open_transactions)


def outcomes(service: Service, partition: int = 0) -> list[tuple[str, int]]:
    """Return the outcome and the epoch of each transaction's marker in the log, by offset."""
    found = []
    for segment in service.segments(partition=partition):
        for position, header in segment.batches:
            if header.is_control and header.producer_id >= 0:
                marker = control.parse_marker(segment.body, position, header)
                found.append(("commit" if marker.type == control.COMMIT else "abort", header.producer_epoch))
    return found


def committed(service: Service, partition: int = 0, *, offset: int = 0) -> list[str]:
    """Return the records that a committed read shows to a fresh process, which meets nothing."""
    log = service.another()
    page = log.partitions.read(TOPIC, partition, ReadRequest(offset=offset, is_read_committed=True))
    return [(record.value or b"").decode() for record in page.records]


def ongoing(service: Service, log: Log) -> Producer:
    """Return a producer with an ongoing transaction: two partitions have data, a third one is only named."""
    made = Producer(service, log)
    made.begin()
    made.add(*PARTITIONS)
    made.send("a", 0)
    made.send("a", 1)
    return made


def twin(producer: Producer, log: Log | None = None) -> Producer:
    """Return the same producer, served by another process: its requests are the same requests."""
    return Producer(producer.service, log or producer.service.another(), pair=producer.pair)


def check_one_outcome(service: Service, outcome: str, epoch: int) -> None:
    for partition in PARTITIONS:
        assert outcomes(service, partition) == [(outcome, epoch)]
        assert opened(service, partition) == []


def carried_out(call: Callable[[], Any]) -> Callable[[], Any]:
    """Return ``call`` with its answer dropped, for a rival of which only the effect counts."""

    def made() -> None:
        call()

    return made
