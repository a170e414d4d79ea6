"""One process of transactions on a shared directory: ``python -m tests.processes.transactor DIRECTORY ROLE ID``.

Rule: it prints a line for all that its caller must know: what it is about to send, and what it was answered. A process
that is refused, since another instance of its id came after it, prints ``fenced`` and ends.

Not here: which process is killed or stopped, and what must hold of it (``test_transactions``).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import (
    AlreadyCommittedError,
    FencelineError,
    InvalidProducerEpochError,
    InvalidProducerIdMappingError,
    InvalidTxnStateError,
    ProducerFencedError,
)
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import OnceMark, ProducerPair, TransactionMember
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log

T = TypeVar("T")

INPUT, OUTPUT, GROUP = "in", "out", "processors"
PARTITIONS = 2
TIMEOUT_MS = 900_000  # no time-out: what is left open is ended by the next instance
APP, MEMBERS = "query", 3
RECORDS_MAX = 20  # of a transaction of the processor
_FENCED = (ProducerFencedError, InvalidProducerEpochError, InvalidProducerIdMappingError, InvalidTxnStateError)


class Fenced(Exception):
    """Another instance has the id, or its transaction was ended for it."""


def report(*words: object) -> None:
    print(*words, flush=True)


def persist(act: Callable[[], T]) -> T:
    """Make a request, and the same again until it has an answer.

    Raises:
        Fenced: The request was refused for good.
    """
    while True:
        try:
            return act()
        except _FENCED as error:
            raise Fenced(str(error)) from error
        except FencelineError as error:
            if error.next_step not in ("retry", "check"):
                raise


class Instance:
    """One instance of a transactional producer."""

    def __init__(self, log: Log, transactional_id: str) -> None:
        self._log = log
        self.id = transactional_id
        self.pair: ProducerPair = persist(lambda: log.transactions.init(transactional_id, TIMEOUT_MS))
        report("begun", *self.pair)

    @property
    def name(self) -> str:
        """Return the name of its present transaction: no other has it."""
        return f"{self.id}-{self.pair.producer_id}-{self.pair.producer_epoch}"

    def produce(self, topic: str, partition: int, values: list[str]) -> None:
        producer = ProducerRef(*self.pair, 0)
        records = [Record(value.encode()) for value in values]
        request = AppendRequest.of_records(records, producer=producer, transactional_id=self.id)
        persist(lambda: self._log.append(topic, partition, request))

    def send_offset(self, partition: int, offset: int) -> None:
        offsets = [CommittedOffset(INPUT, partition, offset, "")]
        persist(lambda: self._log.transactions.add_group(self.id, self.pair, GROUP))
        persist(lambda: self._log.transactions.send_offsets(self.id, self.pair, GROUP, offsets))

    def end(self, *, is_commit: bool) -> None:
        name = self.name
        report("asked", name, int(is_commit))
        self.pair = persist(lambda: self._log.transactions.end(self.id, self.pair, is_commit))
        report("ended", name, int(is_commit))


def produce(log: Log, transactional_id: str) -> None:
    """Produce to each partition in transactions, of which every third is aborted."""
    instance, count = Instance(log, transactional_id), 0
    while True:
        for partition in range(PARTITIONS):
            instance.produce(INPUT, partition, [f"{instance.name}:{partition}:{n}" for n in range(2)])
        count += 1
        instance.end(is_commit=count % 3 != 0)


def process(log: Log, transactional_id: str) -> None:
    """Read, process, write: each committed input becomes one output."""
    instance = Instance(log, transactional_id)
    positions = [position(log, partition) for partition in range(PARTITIONS)]
    while True:
        for partition in range(PARTITIONS):
            positions[partition] = process_some(log, instance, partition, positions[partition], wait_ms=100)


def commit(log: Log, name: str) -> None:
    """Commit the versions of one application with three transactions each, beside a process that does the same."""
    instances = [Instance(log, f"{name}.{number}") for number in range(MEMBERS)]
    while True:
        version, run = persist(lambda: log.transactions.once(APP)).version + 1, instances[0].name
        for number, instance in enumerate(instances):
            for partition in range(PARTITIONS):
                instance.produce(OUTPUT, partition, [f"{version}|{run}|{number}|{n}" for n in range(2)])
        report("raises", version, run)
        try:
            _end_together(log, instances, OnceMark(APP, version, run))
        except AlreadyCommittedError as error:
            report("beaten", version, run, error.extra["note"])
            for instance in instances:
                instance.end(is_commit=False)
        else:
            report("committed", version, run)


def _end_together(log: Log, instances: list[Instance], once: OnceMark) -> None:
    members = [TransactionMember(instance.id, instance.pair) for instance in instances]
    following = persist(lambda: log.transactions.end_all(members, True, once))
    for instance, member in zip(instances, following, strict=True):
        instance.pair = member.pair


def position(log: Log, partition: int) -> int:
    """Return where the group goes on: stable, since the instance before may have left offsets pending (KIP-447)."""
    found, _ = persist(
        lambda: log.subscriptions.committed(GROUP, topic=INPUT, partition=partition, require_stable=True)
    )
    return found[0].offset if found else 0


def process_some(log: Log, instance: Instance, partition: int, start: int, *, wait_ms: int = 0) -> int:
    """Process a page of the input in one transaction; return where the next one begins."""
    request = ReadRequest(offset=start, max_records=RECORDS_MAX, wait_ms=wait_ms, is_read_committed=True)
    page: Any = persist(lambda: log.partitions.read(INPUT, partition, request))
    if not page.records:
        return int(page.position)
    values = [f"{partition}/{record.offset}/{record.value.decode()}" for record in page.records]
    for target in range(PARTITIONS):
        if values[target::PARTITIONS]:
            instance.produce(OUTPUT, target, values[target::PARTITIONS])
    instance.send_offset(partition, page.position)
    instance.end(is_commit=True)
    return int(page.position)


def main(directory: str, role: str, transactional_id: str) -> None:
    runtime = ThreadRuntime(4)
    objects, items = open_directory(directory, now_ms=runtime.now_ms)
    log = Log(objects, items, runtime, region="local")
    try:
        {"produce": produce, "process": process, "commit": commit}[role](log, transactional_id)
    except Fenced:
        report("fenced")


if __name__ == "__main__":
    main(*sys.argv[1:])
