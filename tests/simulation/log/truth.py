"""The truth of the log: each partition of each incarnation of a topic.

Rule: the truth is made from the objects that were really made, and no process is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from tests.simulation.harness.history import ENDLESS, Operation
from tests.simulation.harness.stores import Creation

WINDOW = 5
INT32_MAX = 2**31 - 1


class Violation(AssertionError):
    """The log broke a promise."""


@dataclass(frozen=True)
class StoredBatch:
    """One batch as it is in the log, a text for each record; without any it is a marker."""

    base_offset: int
    next_offset: int
    values: Sequence[bytes]
    producer: tuple[int, int, int] | None = None  # producer id, epoch, first sequence
    is_seal: bool = False
    step: int = 0
    keys: Sequence[bytes | None] = ()
    tombstones: Sequence[bool] = ()

    @property
    def attempt(self) -> str:
        return self.values[0].decode().rpartition(":")[0]


Parse = Callable[[Creation], tuple[str, int, Sequence[StoredBatch]]]  # (topic id, partition, batches)


@dataclass
class ProducerModel:
    """A second, plain statement of idempotence (KIP-98), to judge the first by."""

    epoch: int = -1
    last: int = -1
    window: list[tuple[int, int, int]] = field(default_factory=list)  # first and last sequence, base offset

    def judge(self, epoch: int, first: int, count: int) -> tuple[str, int]:
        """Return the answer that an append would get, and a duplicate's base offset."""
        last = _last(first, count)
        for known_first, known_last, base in self.window:
            if epoch == self.epoch and (known_first, known_last) == (first, last):
                return "DUPLICATE", base
        if epoch < self.epoch:
            return "INVALID_PRODUCER_EPOCH", -1
        if self.epoch >= 0 and first != (0 if epoch > self.epoch else (self.last + 1) % (INT32_MAX + 1)):
            return "OUT_OF_ORDER_SEQUENCE_NUMBER", -1
        return "APPEND", -1

    def after(self, epoch: int, first: int, count: int, base: int) -> ProducerModel:
        last = _last(first, count)
        window = self.window if epoch == self.epoch else []
        return ProducerModel(epoch, last, [*window, (first, last, base)][-WINDOW:])


@dataclass
class Life:
    """One incarnation of a topic."""

    name: str
    topic_id: str
    began: int  # when its item was written
    created: int = ENDLESS  # when its creator was answered
    may_end: int = ENDLESS  # from here on, a DELETE under way
    ended: int = ENDLESS  # when a DELETE was answered


@dataclass
class PartitionLog:
    """One partition of one incarnation: its batches in order, and its tail and producers at every moment."""

    life: Life
    partition: int
    batches: list[StoredBatch] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)  # a step for each segment
    tails: list[int] = field(default_factory=list)  # the next offset after each
    producers: dict[int, list[tuple[int, ProducerModel]]] = field(default_factory=dict)
    horizons: Sequence[tuple[int, int]] = ()  # (step, horizon) of each compacted view that came into force

    def tail_at(self, step: int) -> int:
        index = bisect_right(self.steps, step)
        return self.tails[index - 1] if index else 0

    def was_tail(self, offset: int, start: int, end: int) -> bool:
        """Return True if the next offset was ``offset`` at some moment."""
        low, high = self.tail_at(start), self.tail_at(end)
        return low <= offset <= high and (offset == low or offset in self.tails)

    def was_next(self, offset: int, start: int, end: int) -> bool:
        """Return True if some batch got ``offset``, or would have: also within a segment, which is judged in order."""
        low, high = self.tail_at(start), self.tail_at(end)
        return low <= offset <= high and (offset == low or offset in {batch.next_offset for batch in self.batches})

    def producer_between(self, producer_id: int, start: int, end: int) -> list[ProducerModel]:
        """Return each state that the producer had at some moment."""
        states = [(0, ProducerModel()), *self.producers.get(producer_id, [])]
        first = max(i for i, (step, _) in enumerate(states) if step <= start)
        return [state for step, state in states[first:] if step <= end]

    def data(self, start: int, end: int) -> list[tuple[int, bytes]]:
        found = []
        for batch in self.batches:
            if batch.next_offset > start and batch.base_offset < end:
                found += [(batch.base_offset + i, value) for i, value in enumerate(batch.values)]
        return [(offset, value) for offset, value in found if start <= offset < end]

    def horizons_between(self, start: int, end: int) -> set[int]:
        """Return the horizon of each compacted view that was in force at some moment; 0 means that none was."""
        before = [horizon for step, horizon in self.horizons if step <= start]
        return {before[-1] if before else 0, *(horizon for step, horizon in self.horizons if start < step <= end)}

    def compacted(self, start: int, end: int, horizon: int, deletes_to: int) -> list[tuple[int, bytes]]:
        """Return the records of a view in [start, end): below the horizon the newest of each key, and then all.

        Tombstones below ``deletes_to`` are left out.
        """
        newest, tombstones = dict[bytes, int](), set[int]()
        for batch in self.batches:
            for i, key in enumerate(batch.keys):
                offset = batch.base_offset + i
                if key is not None and offset < horizon:
                    newest[key] = offset
                    tombstones.update([offset] if batch.tombstones[i] and offset < deletes_to else [])
        shown = set(newest.values()) - tombstones
        return [(offset, text) for offset, text in self.data(start, end) if offset >= horizon or offset in shown]

    def add(self, step: int, batches: Sequence[StoredBatch]) -> None:
        """Add a segment's batches.

        Raises:
            Violation: They do not follow (I2), or a batch of an idempotent producer was not the next.
        """
        for batch in batches:
            tail = self.batches[-1].next_offset if self.batches else 0
            if batch.base_offset != tail or batch.next_offset <= tail:
                raise Violation(f"I2: {self}: a batch at {batch.base_offset} where {tail} is next")
            if self.batches and self.batches[-1].is_seal:
                raise Violation(f"{self}: something follows SEAL at {batch.base_offset}")
            if batch.producer is not None:
                self._produce(step, batch, *batch.producer)
            self.batches.append(batch)
        self.steps.append(step)
        self.tails.append(self.batches[-1].next_offset)

    def _produce(self, step: int, batch: StoredBatch, producer_id: int, epoch: int, first: int) -> None:
        states = self.producers.setdefault(producer_id, [])
        state = states[-1][1] if states else ProducerModel()
        verdict, _ = state.judge(epoch, first, len(batch.values))
        if verdict != "APPEND":
            raise Violation(f"{self}: stored at {batch.base_offset} ({batch.attempt}), but it was {verdict}")
        states.append((step, state.after(epoch, first, len(batch.values), batch.base_offset)))

    def __str__(self) -> str:
        return f"{self.life.name}/{self.partition} ({self.life.topic_id[:6]})"


class Truth:
    """Every partition that ever was.

    Raises:
        Violation: What was stored is no log.
    """

    def __init__(
        self,
        created: Iterable[Creation],
        lives: Sequence[Life],
        parse: Parse,
        operations: Sequence[Operation],
        views: Mapping[tuple[str, int], Sequence[tuple[int, int]]] = MappingProxyType({}),
    ) -> None:
        self.lives = lives
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.found: dict[str, list[tuple[PartitionLog, StoredBatch]]] = {}
        # Segments made again where one was collected: no reader may see them.
        self.ghosts: list[Creation] = []
        seen: dict[str, Creation] = {}
        by_id = {life.topic_id: life for life in lives}
        for creation in created:
            if not creation.key.startswith("log/"):
                continue
            if creation.key in seen:
                self.ghosts.append(creation)
                continue
            seen[creation.key] = creation
            topic_id, partition, batches = parse(creation)
            if topic_id not in by_id:
                raise Violation(f"a segment of no topic: {creation.key}")
            log = self.logs.setdefault((topic_id, partition), PartitionLog(by_id[topic_id], partition))
            log.add(creation.step, batches)
            for batch in batches:
                if batch.values:
                    self.found.setdefault(batch.attempt, []).append((log, batch))
        for where, log in self.logs.items():
            log.horizons = views.get(where, ())
        self._bound_lives(operations)

    def log(self, life: Life, partition: int) -> PartitionLog:
        return self.logs.get((life.topic_id, partition)) or PartitionLog(life, partition)

    def segment_step(self, log: PartitionLog, batch: StoredBatch) -> int:
        return log.steps[bisect_right(log.tails, batch.base_offset)]

    def candidates(self, operation: Operation) -> list[Life]:
        """Return the incarnations that the operation may have met."""
        return [
            life
            for life in self.lives
            if life.name == operation.topic and life.began <= operation.ended and life.ended >= operation.began
        ]

    def _bound_lives(self, operations: Sequence[Operation]) -> None:
        for life in self.lives:
            for operation in operations:
                if operation.topic != life.name:
                    continue
                if operation.kind == "create" and operation.is_answered and operation.answer.topic_id == life.topic_id:
                    life.created = operation.ended
                if operation.kind == "delete" and operation.ended >= life.began:
                    life.may_end = min(life.may_end, operation.began)
                    if operation.is_answered and operation.began > life.began:
                        life.ended = min(life.ended, operation.ended)


def _last(first: int, count: int) -> int:
    return (first + count - 1) % (INT32_MAX + 1)
