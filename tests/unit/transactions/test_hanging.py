"""Which open transactions hang, which are due, and which are overdue: pure functions over the two items."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.append.entries.entry import StoredBatch
from fenceline.errors import InvalidTxnStateError
from fenceline.log.state import OngoingTransaction, PartitionState, TentativeState
from fenceline.model.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    ProducerPair,
)
from fenceline.transactions.hanging import AbortEntry, FoundProducerId, find, is_due, is_hanging, is_named, is_overdue
from fenceline.transactions.item import ProducerIdItem, TransactionItem
from tests.support.service import Service, serve

KNOWN = ProducerIdItem(7, "orders", 0)
STATES = (EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT)
NOW = 10_000_000


def item(state: str, epoch: int, producer_id: int = 7) -> TransactionItem:
    return TransactionItem("orders", producer_id, epoch, state, 60_000)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", [4, 5, 6, 7])
def test_a_transaction_hangs_once_its_epoch_is_past_and_its_markers_are_not_on_their_way(
    state: str, epoch: int
) -> None:
    """Epoch 5 is open in the partition (T 6, "Hanging")."""
    is_on_its_way = epoch == 6 and state in (PREPARE_COMMIT, PREPARE_ABORT)
    assert is_hanging(KNOWN, item(state, epoch), 5) == (epoch > 5 and not is_on_its_way)


def test_a_transaction_whose_items_are_gone_hangs() -> None:
    assert is_hanging(None, None, 5)
    assert is_hanging(KNOWN, None, 5)


def test_a_transaction_whose_id_has_another_producer_id_now_hangs() -> None:
    assert is_hanging(KNOWN, item(ONGOING, 5, producer_id=8), 5)
    assert is_hanging(KNOWN, item(PREPARE_ABORT, 6, producer_id=8), 5)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("epoch", [4, 5, 6])
def test_an_item_names_an_open_epoch_while_it_is_ongoing_or_its_ending_is_not_complete(state: str, epoch: int) -> None:
    """I12 and I14: epoch 5 is open."""
    expected = (state, epoch) in {(ONGOING, 5), (PREPARE_COMMIT, 6), (PREPARE_ABORT, 6)}
    assert is_named(item(state, epoch), 7, 5) == expected
    assert not is_named(item(state, epoch, producer_id=8), 7, 5)
    assert not is_named(None, 7, 5)


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("ms", [0, 60_000, 60_001, 60_000 + limits.TRANSACTION_OVERDUE_MS, 10**6])
def test_a_due_transaction_is_overdue_five_minutes_later(state: str, ms: int) -> None:
    """It is ongoing, or prepared, for so many ms (I9: by the caller's clock)."""
    is_prepared = state in (PREPARE_COMMIT, PREPARE_ABORT)
    one = replace(item(state, 5), started_at=NOW - ms, decided_at=NOW - ms if is_prepared else None)
    assert is_due(one, NOW) == (is_prepared or (state == ONGOING and ms > 60_000))
    late_ms = ms if is_prepared else ms - 60_001
    assert is_overdue(one, NOW) == (is_due(one, NOW) and late_ms >= limits.TRANSACTION_OVERDUE_MS)


def test_an_extended_transaction_is_due_and_overdue_after_its_extension() -> None:
    """I28: an extension that ends before the time-out changes nothing."""
    one = replace(item(ONGOING, 5), started_at=NOW - 10**6, expires_at=NOW)
    assert not is_due(one, NOW)
    assert is_due(one, NOW + 1)
    assert not is_overdue(one, NOW + limits.TRANSACTION_OVERDUE_MS)
    assert is_overdue(one, NOW + limits.TRANSACTION_OVERDUE_MS + 1)
    shorter = replace(one, started_at=NOW, expires_at=NOW + 1)
    assert not is_due(shorter, NOW + 60_000)


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    yield made
    made.close()


def test_a_producer_id_is_followed_to_its_transaction_by_two_calls_for_many(service: Service) -> None:
    """Each leads to its item, and that to the transaction: either may be gone."""
    context, runtime = service.log.context, service.runtime
    transaction = TransactionItem("a", 1, 3, ONGOING, 60_000, ended=ProducerPair(1, 2))
    puts = [ProducerIdItem(p, name, 5).put(runtime) for p, name in ((1, "a"), (2, "a"), (3, "gone"))]
    stored = transaction.put(runtime)
    context.items.write([*puts, stored])
    before = service.items.calls["get"]
    found = find(context, [3, 1, 2, 9, 1])
    assert service.items.calls["get"] - before == 2
    versions = {p: put.version for p, put in zip((1, 2, 3), puts, strict=True)}
    assert found == {
        1: FoundProducerId(ProducerIdItem(1, "a", 5, versions[1]), transaction.written(stored)),
        2: FoundProducerId(ProducerIdItem(2, "a", 5, versions[2]), transaction.written(stored)),
        3: FoundProducerId(ProducerIdItem(3, "gone", 5, versions[3]), None),
        9: FoundProducerId(None, None),
    }


@pytest.mark.parametrize("epoch", [None, 4, 5, 6, 7])
def test_an_abort_is_appended_only_where_exactly_its_epoch_is_open(epoch: int | None) -> None:
    """Judged at the marker's offset. Otherwise an earlier transaction would be ended, and a later one reported so."""
    opened = {} if epoch is None else {7: OngoingTransaction(epoch, 40, NOW)}
    state = PartitionState(next_offset=50, topic_epoch=4, open_transactions=opened)
    verdict = AbortEntry(7, 5).check(TentativeState(state, {7: None}, 0), NOW)
    assert isinstance(verdict, StoredBatch if epoch == 5 else InvalidTxnStateError)
