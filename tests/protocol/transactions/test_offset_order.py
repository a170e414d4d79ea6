"""The order of a cursor's commits: the one that was sent last takes effect, whichever transaction ends first.

Protocol, "Offsets in a transaction", I15.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import InvalidTxnStateError
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import ONGOING
from tests.support.sending import GROUP, Sender, cursor_of
from tests.support.service import TOPIC, LogBuilder, Service, data, marker, request, serve, slept_before
from tests.support.tries import tries

PLACE = (TOPIC, 0)


@pytest.fixture
def topics(service: Service) -> Service:
    """Return the service with ten records."""
    service.log.append(*PLACE, request(*map(str, range(10))))
    return service


def commit(service: Service, offset: int) -> None:
    service.log.subscriptions.commit(GROUP, [CommittedOffset(*PLACE, offset)])


def committed(service: Service) -> list[tuple[str, int, int]]:
    found, _ = service.log.subscriptions.committed(GROUP)
    return [(one.topic, one.partition, one.offset) for one in found]


def mark(service: Service) -> int:
    return service.log.subscriptions.get(TOPIC, GROUP, limit=1).cursors[0].mark_delete_offset


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize("outcomes", [*itertools.product([True, False], repeat=2)])
def test_of_two_transactions_the_one_that_sent_last_wins_in_any_order_of_the_ends(
    topics: Service, order: tuple[int, ...], outcomes: tuple[bool, ...]
) -> None:
    """I15: what was settled is never taken back by a commit that was sent before it."""
    senders = [Sender(topics, 7).begin(), Sender(topics, 8).begin()]
    senders[0].send((*PLACE, 8))
    senders[1].send((*PLACE, 4))
    settled = []
    for number in order:
        senders[number].end(is_commit=outcomes[number])
        settled.append(cursor_of(topics).settled)
    assert settled == sorted(settled)
    expected = 4 if outcomes[1] else 8 if outcomes[0] else None
    assert committed(topics) == ([] if expected is None else [(*PLACE, expected)])


def test_an_offset_sent_again_counts_as_sent_later(topics: Service) -> None:
    senders = [Sender(topics, 7).begin(), Sender(topics, 8).begin()]
    senders[0].send((*PLACE, 8))
    senders[1].send((*PLACE, 4))
    senders[0].send((*PLACE, 6))
    senders[0].end()
    senders[1].end()
    assert committed(topics) == [(*PLACE, 6)]


def moved_by_commit(topics: Service) -> None:
    commit(topics, 3)


def moved_by_seek(topics: Service) -> None:
    topics.log.subscriptions.seek(TOPIC, 0, GROUP, offset=3)


def moved_by_acknowledgement(topics: Service) -> None:
    topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(2))


@pytest.mark.parametrize("move", [moved_by_commit, moved_by_seek, moved_by_acknowledgement])
@pytest.mark.parametrize("is_before", [True, False])
def test_a_move_of_the_mark_is_in_force_unless_the_transaction_sent_after_it(
    topics: Service, move: Callable[[Service], None], is_before: bool
) -> None:
    topics.log.subscriptions.subscribe(TOPIC, GROUP, is_latest=False)
    sender = Sender(topics).begin()
    if is_before:
        move(topics)
    sender.send((*PLACE, 8))
    if not is_before:
        move(topics)
    assert mark(topics) == 3
    sender.end()
    assert mark(topics) == (8 if is_before else 3)


@pytest.mark.parametrize("move", [moved_by_commit, moved_by_seek])
def test_a_commit_that_repeats_the_mark_after_a_send_was_sent_later(
    topics: Service, move: Callable[[Service], None]
) -> None:
    """Nothing but the number changes: without that write the older pending offset would win."""
    commit(topics, 3)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 8))
    move(topics)
    sender.end()
    assert mark(topics) == 3


def test_a_commit_that_repeats_the_mark_writes_nothing_where_nothing_is_pending(topics: Service) -> None:
    commit(topics, 3)
    before = cursor_of(topics)
    commit(topics, 3)
    moved_by_seek(topics)
    assert cursor_of(topics) == before


def test_an_acknowledgement_that_leaves_the_mark_is_no_commit(topics: Service) -> None:
    """A pending offset that was sent before it takes effect, and passes over what was acknowledged above."""
    commit(topics, 3)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 8))
    for acknowledgement in (Acknowledgement(individual=[5, 9]), Acknowledgement(1), Acknowledgement(individual=[0])):
        topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, acknowledgement)
    assert mark(topics) == 3
    sender.end()
    (shown,) = topics.log.subscriptions.get(TOPIC, GROUP, limit=1).cursors
    assert (shown.mark_delete_offset, shown.individually_acknowledged) == (8, [])


def test_a_mark_that_the_log_start_passes_was_not_committed(topics: Service) -> None:
    """The mark counts as the log start, and an acknowledgement notes that: it moves the mark no further."""
    commit(topics, 1)
    sender = Sender(topics).begin()
    sender.send((*PLACE, 8))
    topics.log.partitions.trim(TOPIC, 0, 4)
    assert topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[6])) == 4
    sender.end()
    assert mark(topics) == 8


def test_a_mark_that_slides_over_markers_was_not_committed(service: Service) -> None:
    """An acknowledgement that leaves the mark notes as well how far it has slid by itself."""
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("0"))
    log.store(service.objects)
    commit(service, 1)
    sender = Sender(service).begin()
    log.add(marker(200))
    log.add(data("2", "3", "4"))
    log.store(service.objects, 1)
    sender.send((*PLACE, 4))
    assert service.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[3])) == 2
    assert cursor_of(service).mark == 2
    sender.end()
    assert mark(service) == 4


def test_an_acknowledgement_that_closes_the_gap_at_the_mark_is_a_commit(topics: Service) -> None:
    commit(topics, 3)
    sender = Sender(topics).begin()
    topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[4]))
    sender.send((*PLACE, 8))
    assert topics.log.subscriptions.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[3])) == 5
    sender.end()
    assert mark(topics) == 5


# Any order of steps, with other steps between a request's judgement and its write

OFFSETS = st.integers(0, 10)
STEP = st.one_of(
    st.tuples(st.just("send"), st.sampled_from([7, 8]), OFFSETS),
    st.tuples(st.just("commit"), st.just(0), OFFSETS),
    st.tuples(st.just("seek"), st.just(0), OFFSETS),
    st.tuples(st.just("end"), st.sampled_from([7, 8]), st.booleans()),
)


@dataclass
class Story:
    """A group's commits in one partition, and which of them are in force."""

    service: Service
    sent: dict[int, tuple[int, int]] = field(default_factory=dict)  # by producer: (when, offset)
    in_force: tuple[int, int] = (0, 0)
    clock: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self.senders = {producer: Sender(self.service, producer).begin() for producer in (7, 8)}

    def do(self, step: tuple[str, int, int]) -> None:
        kind, producer, value = step
        if kind == "send":
            self.senders[producer].send((*PLACE, value))
            self.sent[producer] = (next(self.clock), value)
        elif kind == "end":
            self.end(producer, is_commit=bool(value))
        else:
            if kind == "commit":
                commit(self.service, value)
            else:
                self.service.log.subscriptions.seek(TOPIC, 0, GROUP, offset=value)
            self.in_force = (next(self.clock), value)

    def end(self, producer: int, *, is_commit: bool) -> None:
        """End the transaction; steps of others may come between its decision and its settling."""
        item = self.senders[producer].prepare(is_commit=is_commit)
        sent = self.sent.pop(producer, (0, 0))
        self.senders[producer].settle(item)
        if is_commit:
            self.in_force = max(self.in_force, sent)
        self.senders[producer].begin()

    def check_named(self) -> None:
        """I14: an item that is not complete names each pending offset."""
        for producer, one in cursor_of(self.service).pending.items():
            item = self.senders[producer].item
            assert item.state == ONGOING or item.is_prepared
            assert one.producer_epoch == item.producer_epoch - item.is_prepared
            assert [cursors.partitions for cursors in item.cursors] == [(0,)]


@tries(25)
@given(st.lists(st.tuples(STEP, st.none() | STEP), max_size=7))
def test_the_commit_sent_last_is_in_force_under_concurrent_requests(steps: list[Any]) -> None:
    """Property (I14, I15): no step of another request, between a look and its write, changes the order."""
    with closing(serve()) as service:
        service.log.topics.create(TOPIC)
        service.log.append(*PLACE, request(*map(str, range(10))))
        service.log.subscriptions.subscribe(TOPIC, GROUP, is_latest=False)
        story, settled = Story(service), 0
        for step, between in steps:
            if between is not None:
                service.items.plan("write", slept_before(partial(_attempt, story, between)))
            _attempt(story, step)
            story.check_named()
            assert cursor_of(service).settled >= settled
            settled = cursor_of(service).settled
            assert mark(service) == story.in_force[1]
        for producer in (7, 8):
            _attempt(story, ("end", producer, 1))
        assert mark(service) == story.in_force[1]
        assert not cursor_of(service).pending


def _attempt(story: Story, step: tuple[str, int, int]) -> None:
    with suppress(InvalidTxnStateError):  # its transaction is ending, or has ended
        story.do(step)
