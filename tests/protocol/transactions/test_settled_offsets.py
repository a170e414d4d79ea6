"""Pending offsets are settled: once, on the cursor's version, and never in a cursor that is gone."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import OutcomeUnknownError, StoreUnavailableError
from fenceline.format import keys
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import ItemKey
from fenceline.subscriptions import cursor_store
from fenceline.transactions.item import SubscriptionCursors
from fenceline.transactions.pending_offsets import settle
from tests.support.sending import GROUP, Sender, cursor_of
from tests.support.service import TOPIC, Service, append, is_unavailable, loses_answer, moves, never_arrives

P = 7


@pytest.fixture
def filled(service: Service) -> Service:
    """Return the service with forty records, of which the group has committed three."""
    append(service.log, *map(str, range(40)))
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 3, "old")])
    return service


def named(service: Service) -> SubscriptionCursors:
    found = cursor_store.find(service.log.context, service.topic_id(), GROUP)
    assert found is not None
    return SubscriptionCursors(GROUP, found.topic_id, found.subscription_id, (0,))


def send(service: Service, offset: int, *, epoch: int = 4) -> None:
    """Send an offset in a transaction, which is left ongoing."""
    Sender(service, P, epoch).begin().send(CommittedOffset(TOPIC, 0, offset, "new"))


def end(
    service: Service, *, is_commit: bool = True, epoch: int = 5, cursors: SubscriptionCursors | None = None
) -> None:
    settle(service.log.context, cursors or named(service), 0, P, epoch, is_commit)


@pytest.mark.parametrize(("is_commit", "mark", "metadata"), [(True, 9, "new"), (False, 3, "old")])
def test_an_offset_is_settled_once_and_a_repeat_writes_nothing(
    filled: Service, is_commit: bool, mark: int, metadata: str
) -> None:
    send(filled, 9)
    cursors, before = named(filled), filled.count()
    end(filled, is_commit=is_commit, cursors=cursors)
    assert filled.count() - before == {"items.get": 1, "items.write": 1}
    found = cursor_of(filled)
    assert (found.mark, found.metadata, found.pending) == (mark, metadata, {})
    writes = filled.count()["items.write"]
    end(filled, is_commit=is_commit)
    assert (filled.count()["items.write"], cursor_of(filled)) == (writes, found)


def test_a_late_finisher_of_an_older_epoch_leaves_the_next_transaction_s_offset(filled: Service) -> None:
    send(filled, 9)
    end(filled)
    send(filled, 12, epoch=5)
    for is_commit in (True, False):
        end(filled, is_commit=is_commit)
    assert cursor_of(filled).mark == 9
    end(filled, epoch=6)
    assert cursor_of(filled).mark == 12


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_settling_that_failed_is_made_once_more(filled: Service, fault: Any) -> None:
    send(filled, 9)
    filled.items.plan("write", fault)
    end(filled)
    found = cursor_of(filled)
    assert (found.mark, found.settled, found.pending) == (9, 2, {})


def test_a_settling_is_decided_anew_from_a_cursor_that_moved(filled: Service) -> None:
    """A commit comes between the look and the write: it was sent later, and stays."""
    send(filled, 9)

    def meanwhile(call: Any) -> Any:
        filled.another().subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 6)])
        return call()

    filled.items.plan("write", meanwhile)
    end(filled)
    found = cursor_of(filled)
    assert (found.mark, found.settled, found.pending) == (6, 3, {})


@pytest.mark.parametrize(
    ("fault", "error"), [(never_arrives, OutcomeUnknownError), (is_unavailable, StoreUnavailableError)]
)
def test_a_store_that_stays_away_leaves_the_offset_pending(filled: Service, fault: Any, error: Any) -> None:
    send(filled, 9)
    cursors = named(filled)
    filled.items.always("write", fault)
    with pytest.raises(error):
        end(filled, cursors=cursors)
    filled.items.always("write", None)
    assert list(cursor_of(filled).pending) == [P]


def left(service: Service) -> list[ItemKey]:
    return [item.key for item in service.items.store.query(keys.cursor_items(GROUP))]


def test_a_subscription_that_was_deleted_took_its_pending_offsets_along(filled: Service) -> None:
    """One that is created anew has another id: what was sent to the earlier one never reaches it."""
    send(filled, 9)
    gone = named(filled)
    filled.log.subscriptions.unsubscribe(TOPIC, GROUP)
    end(filled, cursors=gone)
    assert left(filled) == []
    filled.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 2)])
    end(filled, cursors=gone)
    found = cursor_of(filled)
    assert (found.mark, found.sent) == (2, 1)


def test_a_cursor_that_is_deleted_while_it_is_settled_is_not_made_again(filled: Service) -> None:
    send(filled, 9)
    gone = named(filled)

    def meanwhile(call: Any) -> Any:
        filled.another().subscriptions.unsubscribe(TOPIC, GROUP)
        return call()

    filled.items.plan("write", meanwhile)
    end(filled, cursors=gone)
    assert left(filled) == []


def test_a_topic_that_was_deleted_and_created_again_keeps_nothing_of_the_earlier_one(filled: Service) -> None:
    send(filled, 9)
    gone = named(filled)
    filled.log.topics.delete(TOPIC)
    filled.log.topics.create(TOPIC)
    end(filled, cursors=gone)
    assert filled.log.subscriptions.committed(GROUP) == ([], False)


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("chunk_ranges", [2, 8])
def test_a_cursor_of_many_ranges_is_settled_whole(
    filled: Service, monkeypatch: pytest.MonkeyPatch, is_commit: bool, chunk_ranges: int
) -> None:
    """Its chunks are more than one write takes, or fit beside the cursor: a commit forgets all of them."""
    if chunk_ranges == 2:
        monkeypatch.setattr(limits, "TRANSACTION_ITEMS_MAX", 8)
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", chunk_ranges)
    consumers = filled.log.subscriptions
    for offset in range(5, 35, 2):
        consumers.acknowledge(TOPIC, 0, GROUP, Acknowledgement(individual=[offset]))
    before = cursor_of(filled)
    assert len(before.acknowledged) == 15
    send(filled, 9)
    assert cursor_of(filled).acknowledged == before.acknowledged
    cursors = named(filled)
    end(filled, is_commit=is_commit)
    found = cursor_of(filled)
    chunks = filled.items.store.query(keys.chunk_items(cursors.subscription_id))
    if is_commit:
        assert (found.mark, found.acknowledged.ranges, chunks) == (9, [], [])
    else:
        assert (found.mark, found.acknowledged) == (3, before.acknowledged)
        assert chunks
