"""Histories of one transactional id, with requests that are repeated, cut off and too late (I10, I13)."""

from __future__ import annotations

import itertools
from collections.abc import Hashable
from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, ProducerPair
from fenceline.transactions.decide import Add, Decision, End, Fence, Init, Meet, Request, Send, completed, decide
from fenceline.transactions.item import TopicPartitions, TransactionItem

PLACE = TopicPartitions("id", "orders", (0,))
TIMEOUT_MS = 10


@dataclass
class History:
    """One id's item, what was answered, and what was decided."""

    item: TransactionItem | None
    now_ms: int = 1_000
    ids: itertools.count[int] = field(default_factory=lambda: itertools.count(100))
    requests: itertools.count[int] = field(default_factory=itertools.count)
    known: list[ProducerPair] = field(default_factory=lambda: [ProducerPair(1, 0)])
    given: dict[ProducerPair, Hashable] = field(default_factory=dict)  # to which request
    outcomes: dict[ProducerPair, str] = field(default_factory=dict)  # of the markers, by their pair
    fences: set[ProducerPair] = field(default_factory=set)

    def write(self, decision: Decision) -> None:
        before, after = self.item, decision.item
        if before is not None and before.is_prepared:
            assert decision == replace(completed(before, self.now_ms), item=after)  # I10
        if after.is_prepared:
            assert after.pair not in self.outcomes  # prepared once with this pair
            self.outcomes[after.pair] = after.state
            if after.ended is None:
                self.fences.add(after.pair)
        if after.is_fenced:
            assert after.pair not in self.given  # I13: its epoch is given to no producer
            self.fences.add(after.pair)
        if before is not None and before.producer_id == after.producer_id:
            assert after.producer_epoch >= before.producer_epoch
        assert after.state != ONGOING or after.pair not in self.fences
        self.item = after

    def carry_out(self, request: Request, writes: int) -> TransactionItem | None:
        """Serve a request by a process that dies before its next write after ``writes``; return the answer, if any."""
        for _ in range(10):
            decision = decide(self.item, request, self.now_ms, spare=next(self.ids))
            steps = [decision, *([completed(decision.item, self.now_ms)] if decision.item.is_prepared else [])]
            for step in steps:
                if step.is_change:
                    if writes == 0:
                        return None
                    writes -= 1
                    self.write(step)
            if decision.is_answer:
                return self.item
        raise AssertionError("no answer")

    def answer(self, request: Request, writes: int) -> None:
        try:
            found = self.carry_out(request, writes)
        except FencelineError:
            return
        if found is None or not isinstance(request, Init | End):
            return
        pair = found.pair
        keeps_id = isinstance(request, End) or request.pair is not None
        to = (request.pair, isinstance(request, Init)) if keeps_id else next(self.requests)
        assert self.given.setdefault(pair, to) == to  # I13: to one request, its repeats apart
        assert pair not in self.fences
        assert pair.producer_epoch <= limits.PRODUCER_EPOCH_MAX
        if isinstance(request, End):
            assert found.ended == request.pair
            assert found.state == (COMPLETE_COMMIT if request.is_commit else COMPLETE_ABORT)
        self.known.append(pair)


@st.composite
def requests(draw: st.DrawFn, history: History) -> Request:
    kind = draw(st.sampled_from(["init", "keep", "add", "send", "commit", "abort", "meet", "due", "fence"]))
    # Mostly the newest pair, which may be in force; else an earlier one, or one that no request was given.
    newest = history.known[-1]
    other = [*history.known[-3:], history.known[0], newest._replace(producer_epoch=newest.producer_epoch + 1)]
    pair = draw(st.sampled_from([newest] * 10 + other))
    made: dict[str, Request] = {
        "init": Init("t", TIMEOUT_MS),
        "keep": Init("t", TIMEOUT_MS, pair),
        "add": Add(pair, (PLACE,), ("g",)),
        "send": Send(pair, "g"),
        "commit": End(pair, is_commit=True),
        "abort": End(pair, is_commit=False),
        "meet": Meet(),
        "due": Meet(is_due=True),
        "fence": Fence(),
    }
    return made[kind]


@given(st.data(), st.sampled_from([None, 0, limits.PRODUCER_EPOCH_MAX - 2, limits.PRODUCER_EPOCH_MAX]))
def test_a_pair_is_given_once_and_an_outcome_is_decided_once(data: st.DataObject, epoch: int | None) -> None:
    first = None if epoch is None else TransactionItem("t", 1, epoch, EMPTY, TIMEOUT_MS)
    history = History(first)
    if epoch is not None:
        history.known.append(ProducerPair(1, epoch))
        history.given[ProducerPair(1, epoch)] = "before"
    for _ in range(data.draw(st.integers(1, 25))):
        history.now_ms += data.draw(st.sampled_from([0, 1, TIMEOUT_MS + 1]))
        history.answer(data.draw(requests(history)), data.draw(st.sampled_from([0, 1, 2, 9, 9, 9])))


@given(st.data(), st.sampled_from([ONGOING, PREPARE_COMMIT]))
def test_no_request_writes_over_a_decided_outcome(data: st.DataObject, state: str) -> None:
    """Only a time-out, the producer's own end, an id request and a fence change what is ongoing; nothing what is
    prepared."""
    found = TransactionItem("t", 1, 3, state, TIMEOUT_MS, started_at=0, ended=ProducerPair(1, 2))
    history = History(found, known=[ProducerPair(1, epoch) for epoch in (2, 3, 4)])
    request = data.draw(requests(history))
    now_ms = data.draw(st.integers(0, 2 * TIMEOUT_MS))
    try:
        decision = decide(found, request, now_ms)
    except FencelineError:
        return
    if state == PREPARE_COMMIT:
        assert not decision.is_change
    if decision.item.is_fenced:
        assert now_ms > TIMEOUT_MS or isinstance(request, Init | Fence) or request == Meet(is_due=True)
