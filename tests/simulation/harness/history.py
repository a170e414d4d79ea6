"""The requests of clients and their answers, in the order in which they happened, and how they are printed.

Not here: any judgement (``log/checker.py``, ``access/checker.py``).
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fenceline.errors import FencelineError
from fenceline.model.record import Record
from tests.simulation.harness.world import NoReply, Process, Refused, World

T = TypeVar("T")

ENDLESS = 1 << 60  # the step of an answer that never came

KEYS = 3  # how many keys the records of a compacted topic have


@dataclass(frozen=True)
class Attempt:
    """One sending of one batch: ``id`` is in every record, so that what is stored shows which sending made it."""

    id: str
    batch: str  # the same for every retry
    count: int = 1
    expected: int | None = None
    producer: tuple[int, int, int] | None = None  # producer id, epoch, first sequence
    is_keyed: bool = False  # records have few keys, and some have no value

    @property
    def values(self) -> list[bytes]:
        return [f"{self.id}:{i}".encode() for i in range(self.count)]

    @property
    def records(self) -> list[Record]:
        return [self._record(text) for text in self.values]

    def _record(self, text: bytes) -> Record:
        chance = zlib.crc32(text)
        key = b"k%d" % (chance % KEYS) if self.is_keyed else None
        if self.is_keyed and chance % 5 == 0:
            return Record(None, key, [("text", text)], 1_800_000_000_000)
        return Record(text, key, timestamp=1_800_000_000_000)

    def __str__(self) -> str:
        members = [self.id, f"batch={self.batch}", f"count={self.count}"]
        if self.expected is not None:
            members.append(f"expected={self.expected}")
        if self.producer is not None:
            members.append("producer={}/{} sequence={}".format(*self.producer))
        return " ".join(members)


def text_of(record: Any) -> bytes:
    """Return the text of a record that names its sending: its value, or, if it is a tombstone, its header's."""
    text: bytes = record.headers[0][1] if record.value is None else record.value
    return text


@dataclass
class Operation:
    """One request of one client. Without an answer and without an error its outcome is unknown."""

    id: int
    client: str
    process: str
    kind: str
    topic: str
    partition: int
    request: Any
    began: int
    began_ms: float
    ended: int = ENDLESS
    ended_ms: float = 0
    answer: Any = None
    error: FencelineError | None = None

    @property
    def code(self) -> str | None:
        return None if self.error is None else self.error.code

    @property
    def is_answered(self) -> bool:
        return self.ended != ENDLESS and self.error is None

    def overlaps(self, start: int, end: int) -> bool:
        return self.began <= end and self.ended >= start

    def __str__(self) -> str:
        return f"#{self.id} {self.client} {self.kind} {self.topic}/{self.partition} {self.request}"


@dataclass
class History:
    """All operations of one seed."""

    world: World
    operations: list[Operation] = field(default_factory=list)

    def make(
        self,
        client: str,
        process: Process,
        kind: str,
        topic: str,
        partition: int,
        request: Any,
        run: Callable[[Any], T],
        timeout_ms: float = 30_000,
    ) -> T:
        """Make a request, and write down when it began and ended, and how.

        Raises:
            FencelineError: That was the answer.
            NoReply: It may have been done, or be done yet.
            Refused: It was not done.
        """
        world, number = self.world, len(self.operations) + 1
        where = f"{kind} {topic}/{partition} {request}"
        began = world.note(client, "asks", f"#{number} {process.name} {where}")
        operation = Operation(number, client, process.name, kind, topic, partition, request, began, world.now)
        self.operations.append(operation)
        try:
            answer = world.call(process, run, timeout_ms)
        except FencelineError as error:
            operation.error, operation.ended = error, world.note(client, "is told", f"#{number} {error.code}: {error}")
            operation.ended_ms = world.now
            raise
        except NoReply:
            world.note(client, "leaves", f"#{number} without an answer")
            raise
        except Refused:
            world.note(client, "finds", f"#{number} {process.name} down")
            self.operations.remove(operation) if self.operations[-1] is operation else self._forget(operation)
            raise
        operation.answer = answer
        operation.ended = world.note(client, "is told", f"#{number} {_brief(answer)}")
        operation.ended_ms = world.now
        return answer

    def _forget(self, operation: Operation) -> None:
        operation.kind = "refused"

    def lines(self) -> list[str]:
        return [
            f"{step:6d} {now / 1000:10.3f}s  {who:<14} {what:<8} {detail}"
            for step, now, who, what, detail in self.world.events
        ]

    def digest(self) -> str:
        return hashlib.sha256("\n".join(self.lines()).encode()).hexdigest()


def _brief(answer: Any) -> str:
    if getattr(answer, "position", None) is not None and hasattr(answer, "records"):
        records = [f"{record.offset}={text_of(record).decode()}" for record in answer.records]
        return f"position={answer.position} {answer.bounds} [{' '.join(records)}]"
    return str(answer)
