"""Batches and ends of one producer in any order, judged by processes that forget: what is open is named (I11, I12).

The log is one partition's, and each append is judged at its end, as the create makes sure. Two processes follow it.
What they know of the coordinator may be old: every answer comes some steps after its question, and is used later still.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from fenceline.append.admission_answer import AskCoordinator
from fenceline.append.checks import Accepted, Terms, check_append
from fenceline.append.entries.entry import Marked, StoredBatch
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.format.batch import BatchHeader
from fenceline.format.segment import SegmentMetadata
from fenceline.log.state import (
    PartitionState,
    ProducerEvent,
    ProducerState,
    TentativeState,
    advance,
    apply_batch,
    lowers_epoch,
    next_sequence,
)
from tests.support.runtime import START_MS
from tests.support.service import REGION

P = 7
EXPIRATION_MS = 1_000


@dataclass(frozen=True)
class Answer:
    """An answer of the coordinator, without the time for which it holds: the count alone must be enough."""

    epoch: int
    seen: int

    def holds(self, seen: int) -> bool:
        return self.seen == seen


@dataclass
class Process:
    known: ProducerState | None = None
    seen: int = 0
    asked: dict[str, Answer] = field(default_factory=dict)  # what is on its way to the coordinator
    answered: dict[str, Answer] = field(default_factory=dict)

    def fold(self, event: ProducerEvent) -> None:
        self.seen += lowers_epoch(self.known, event)
        self.known = advance(self.known, event)


@dataclass
class World:
    log: PartitionState = field(default_factory=PartitionState)
    truth: ProducerState | None = None
    now_ms: int = START_MS
    state: str = "Empty"
    epoch: int = 0
    is_named: bool = False
    is_marked: bool = False
    has_forgotten: bool = False  # that a marker is here: then it may come again, which changes nothing
    processes: tuple[Process, Process] = field(default_factory=lambda: (Process(), Process()))

    def act(self, what: str, process: Process, epochs_back: int) -> None:
        epoch = max(self.epoch - epochs_back, 0)
        match what:
            case "ask" | "ask end":
                process.asked[what[4:]] = Answer(epoch, process.seen)
            case "answer" | "answer end":
                self.answer(process, what[7:])
            case "send":
                self.send(process, epoch, is_transactional=True)
            case "send plain":
                self.send(process, epoch, is_transactional=False)
            case "end":
                self.end(process, epoch)
            case "decide":
                if self.state == "Ongoing":
                    self.state, self.epoch, self.is_marked = "Prepare", self.epoch + 1, False
            case "complete":
                if self.state == "Prepare" and (self.is_marked or not self.is_named):
                    self.state, self.is_named = "Complete", False
            case "lapse":
                self.now_ms += EXPIRATION_MS + 1
            case "forget" | "expire":
                process.seen += 1
                is_gone = what == "expire" and self.is_lapsed()
                process.known = None if is_gone else self.truth
                self.has_forgotten = self.has_forgotten or is_gone

    def is_lapsed(self) -> bool:
        is_open = P in self.log.open_transactions
        return self.truth is not None and not is_open and self.now_ms - self.truth.time > EXPIRATION_MS

    def answer(self, process: Process, about: str) -> None:
        """Read the coordinator's item, and write it for an admission."""
        asked = process.asked.pop(about, None)
        if asked is None or asked.epoch != self.epoch or (self.state == "Prepare") is not (about == "end"):
            return
        if not about:
            self.state, self.is_named = "Ongoing", True
        process.answered[about] = asked

    def send(self, process: Process, epoch: int, *, is_transactional: bool) -> None:
        known = process.known
        goes_on = known is not None and known.producer_epoch == epoch and self.now_ms - known.time <= EXPIRATION_MS
        first = next_sequence(known.last_sequence) if known is not None and goes_on else 0
        header = BatchHeader(
            self.log.next_offset, 100, -1, 2, 0, 0x10 if is_transactional else 0, 0, 0, 0, P, epoch, first, 1
        )
        admission: Any = process.answered.get("")
        if admission is not None and admission.epoch != epoch:
            admission = None
        terms = Terms(None, False, EXPIRATION_MS, admission=admission)
        verdict = check_append(self.log, known, header, terms, now_ms=self.now_ms, producers_dropped=process.seen)
        if isinstance(verdict, Accepted):
            self.append(header, b"")

    def end(self, process: Process, epoch: int) -> None:
        prepared: Any = process.answered.get("end")
        if prepared is not None and prepared.epoch != epoch:
            prepared = None
        tentative = TentativeState(self.log, {P: process.known}, process.seen)
        verdict = EndEntry(P, epoch, is_commit=True, prepared=prepared).check(tentative, self.now_ms)
        if isinstance(verdict, AskCoordinator):
            return
        is_its_own = self.state == "Prepare" and self.epoch == epoch
        if isinstance(verdict, StoredBatch):
            assert is_its_own or self.has_forgotten, "a marker lands while its transaction is prepared"
            self.append(verdict.header, verdict.body)
        assert isinstance(verdict, StoredBatch | Marked)
        self.is_marked = self.is_marked or is_its_own

    def append(self, header: BatchHeader, body: bytes) -> None:
        before = self.truth
        metadata = SegmentMetadata("id", self.now_ms, REGION, 0, 0, -1)
        folded = apply_batch(self.log, header, body, 0, metadata=metadata, region=REGION)
        self.log = folded.state
        for _, event in folded.events:
            self.has_forgotten = self.has_forgotten or lowers_epoch(self.truth, event)
            self.truth = advance(self.truth, event)
            for process in self.processes:
                process.fold(event)
        if header.is_control:
            assert before is None or before.producer_epoch <= header.producer_epoch, "no marker lowers an epoch"

    def check(self) -> None:
        for opened in self.log.open_transactions.values():
            ends_with = self.epoch - (self.state == "Prepare")
            assert self.state in ("Ongoing", "Prepare"), "what is open is not over"
            assert self.is_named
            assert opened.producer_epoch == ends_with
            assert self.truth is not None
            assert self.truth.producer_epoch == opened.producer_epoch


STEPS = (
    ["ask", "answer", "send"] * 3
    + ["ask end", "answer end", "end", "decide", "complete"] * 2
    + ["send plain", "lapse", "forget", "expire"]
)


@pytest.mark.parametrize("seed", range(0, 60, 10))
def test_an_open_transaction_is_always_named_under_forgotten_and_late_calls(seed: int) -> None:
    for chance in map(random.Random, range(seed, seed + 10)):
        world = World()
        for _ in range(150):
            process = world.processes[chance.randrange(2)]
            world.act(chance.choice(STEPS), process, chance.choice([0, 0, 1, 2]))
            world.check()
