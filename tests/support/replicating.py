"""Entries of other regions' batches and markers, appended through a process's own queue.

Not here: logs that are made without a queue (``region_logs``), and regions that pull (``regions``).
"""

from __future__ import annotations

from typing import Any

from fenceline.append.entries.entry import Entry
from fenceline.append.entries.replicated import ReplicatedEntry
from fenceline.append.group import Ticket
from fenceline.format.batch import encode
from fenceline.format.segment import Replicated
from fenceline.log.region_state import Origin
from fenceline.log.state import PartitionState
from fenceline.model.record import Record
from fenceline.service.log import Log
from tests.support.runtime import START_MS
from tests.support.service import Service, appender_of, partition_of

THERE, LIFE = "there", "there-life-1"


def batch_of(*values: str) -> bytes:
    return encode([Record(value.encode()) for value in values], now_ms=START_MS).body


def entry_of(position: Origin | None, *values: str, topic_id: str = LIFE, region: str = THERE) -> ReplicatedEntry:
    """Return the entry of the next records of a region, a batch for each."""
    is_same = position is not None and position.topic_id == topic_id
    count, next_offset = (position.count, position.next_offset) if position is not None and is_same else (0, 0)
    source = Replicated(topic_id, next_offset + len(values), count + len(values))
    return ReplicatedEntry(region, position, source, [*map(batch_of, values)])


def state_of(service: Service) -> PartitionState:
    """Return the state at the log's end, as a fresh process folds it."""
    partition = partition_of(service.another())
    partition.open()
    return partition.state


def position_of(service: Service) -> Origin | None:
    return state_of(service).origins.get(THERE)


def put(service: Service, entry: Entry, *, log: Log | None = None, wait_ms: int = 10_000) -> Any:
    """Append an entry; return its answer."""
    appender = appender_of(log or service.log)
    return appender.append(entry, service.runtime.monotonic_ms() + wait_ms)


def together(service: Service, *entries: Entry) -> list[Any]:
    """Append entries that all wait in one process at the same moment; return what became of each."""
    appender = appender_of(service.log)
    tickets = [Ticket(entry, service.runtime.monotonic_ms() + 10_000) for entry in entries]
    for ticket in tickets:
        appender.queue.add(ticket)
    for ticket in tickets:
        while appender.queue.must_lead(ticket):
            appender.step(ticket)
            appender.queue.stop_leading()
    return [ticket.outcome for ticket in tickets]
