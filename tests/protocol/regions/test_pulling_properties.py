"""Pulling cut anywhere, by crashes, lost answers, other processes and small segments, gives one and the same log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.format import control
from fenceline.regions.replicator import Replicator
from tests.protocol.regions.test_pulling import numbers
from tests.support.regions import RegionWorld
from tests.support.service import TOPIC, LogBuilder, Part, data, loses_answer, marker, outcome


class Died(BaseException):
    """The death of a process in the middle of a call."""


@dataclass
class SentBatch:
    """A batch of the source, and what is to become of it."""

    values: list[str]
    number: int  # of its last record, or of the record before a marker
    next_offset: int
    producer: int | None = None  # of a transaction that is open, or was
    is_committed: bool | None = None  # None: it is open
    marker_type: int | None = None


@dataclass
class SourceLog:
    """The log of the region that is pulled from, made batch by batch, and what another region must have of it."""

    world: RegionWorld
    builder: LogBuilder
    sent: list[SentBatch] = field(default_factory=list)
    parts: list[Part] = field(default_factory=list)
    open: dict[int, list[SentBatch]] = field(default_factory=dict)
    epochs: dict[int, int] = field(default_factory=dict)
    number: int = 0
    offset: int = 0
    log_start: int = 0

    def add(self, kind: int, count: int) -> None:
        producer = kind % 2
        if kind < 2:
            self.send(data(*self.named(count)), self.named(count))
        elif kind < 4:
            epoch = self.epochs.get(producer, 0)
            part = data(*self.named(count), producer=(producer, epoch, -1), is_transactional=True)
            sent = self.send(part, self.named(count))
            sent.producer = producer
            self.open.setdefault(producer, []).append(sent)
        elif kind < 6 and producer in self.open:
            is_commit = count > 1
            self.epochs[producer] = epoch = self.epochs.get(producer, 0) + 1
            for sent in self.open.pop(producer):
                sent.is_committed = is_commit
            self.send(outcome(producer, epoch, is_commit=is_commit), [], control.COMMIT)
        else:
            marker_type = (0x1F0, 0x9F)[producer]  # one travels
            self.send(marker(marker_type, {}), [], marker_type)

    def named(self, count: int) -> list[str]:
        return [f"{self.number + n}" for n in range(1, count + 1)]

    def send(self, part: Part, values: list[str], marker_type: int | None = None) -> SentBatch:
        self.parts.append(part)
        self.number += len(values)
        self.offset += len(values) or 1
        self.sent.append(SentBatch(values, self.number, self.offset, marker_type=marker_type))
        return self.sent[-1]

    def flush(self) -> None:
        if self.parts:
            self.builder.add(*self.parts)
            self.builder.store(self.world["a"].service.objects, len(self.builder.segments) - 1)
            self.parts = []

    @property
    def stable(self) -> int:
        """Return the last stable offset of what is stored."""
        stored = self.builder.state.next_offset
        first = [s.next_offset - len(s.values) for sent in self.open.values() for s in sent]
        return max(min([stored, *first]), self.log_start)

    def due(self) -> list[SentBatch]:
        kept = [s for s in self.sent if self.log_start < s.next_offset <= self.stable]
        return [
            s
            for s in kept
            if (s.marker_type is None and s.is_committed is not False)
            or (s.marker_type is not None and control.travels(s.marker_type))
        ]


def crash_before(call: Callable[[], Any]) -> Any:
    raise Died


def crash_after(call: Callable[[], Any]) -> Any:
    call()
    raise Died


def check(world: RegionWorld, source: SourceLog) -> None:
    """Check that what is there is a run from the start of what is due (I17)."""
    due = [(value, s.number - len(s.values) + n) for s in source.due() for n, value in enumerate(s.values, start=1)]
    assert numbers(world["b"], "a") == due[: len(numbers(world["b"], "a"))]


def act(world: RegionWorld, replicator: Replicator, action: int) -> Replicator:
    """Pull in one of several ways, and return the replicator of the process that goes on."""
    objects = world["b"].service.objects
    if action == 0:
        return replicator
    if action == 1:
        replicator = world["b"].replicator(world["b"].another())
    faults = {2: loses_answer, 3: crash_before, 4: crash_after}
    if action in faults:
        objects.plan("create", faults[action])
    try:
        replicator.run(TOPIC, 0)
    except Died:
        world.runtime.advance(limits.LINK_LEASE_MS)
        replicator = world["b"].replicator(world["b"].another())
    objects._planned.clear()
    if action == 5:  # the source trims what was taken
        position = world["b"].origin("a")
        if position is not None:
            world["a"].log.partitions.trim(TOPIC, 0, position.next_offset)
    return replicator


STEPS = st.lists(
    st.tuples(st.integers(0, 7), st.integers(1, 3), st.booleans(), st.integers(0, 5)), min_size=1, max_size=25
)


@given(
    steps=STEPS,
    trims_at=st.none() | st.integers(0, 12),
    trims_to=st.integers(0, 12),
    bytes_max=st.sampled_from([1, 160, 400, limits.MIB]),
    segments_max=st.sampled_from([1, 3, 100]),
)
def test_pulling_cut_anywhere_gives_the_same_log(
    steps: list[tuple[int, int, bool, int]], trims_at: int | None, trims_to: int, bytes_max: int, segments_max: int
) -> None:
    world = RegionWorld("a", "b")
    world.create()
    source = SourceLog(world, LogBuilder(topic_id=world["a"].service.topic_id(), region="a"))
    replicator = world["b"].replicator()
    with (
        mock.patch.object(limits, "REPLICATED_BYTES_MAX", bytes_max),
        mock.patch.object(limits, "SEGMENTS_MAX", segments_max),
    ):
        for at, (kind, count, is_last, action) in enumerate(steps):
            source.add(kind, count)
            if not is_last:
                continue
            source.flush()
            if trims_at is not None and at >= trims_at:
                trims_at = None
                if world["b"].origin("a") is None:
                    source.log_start = min(trims_to, source.stable)
                    world["a"].log.partitions.trim(TOPIC, 0, source.log_start)
            replicator = act(world, replicator, action)
            check(world, source)
        source.flush()
        for _ in range(40):
            world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
            if not act(world, replicator, 1).run(TOPIC, 0).took_records:
                break
    due = source.due()
    assert world["b"].values() == [value for sent in due for value in sent.values]
    assert numbers(world["b"], "a") == [(value, int(value)) for sent in due for value in sent.values]
    markers = [
        control.type_of(segment.body, at, header)
        for segment in world["b"].segments()
        for at, header in segment.batches
        if header.is_control
    ]
    assert markers == [sent.marker_type for sent in due if sent.marker_type is not None]
    world.close()
