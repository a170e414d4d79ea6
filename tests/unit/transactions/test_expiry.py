"""Expiry: which ids go, when, and both items of an id together; and walks over all shards that go on anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.log.context import Context
from fenceline.log.deletes import Budget
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from fenceline.ports import Item, Put
from fenceline.transactions.expiry import (
    ItemPage,
    expire_producer_ids,
    expire_transactions,
    is_expired,
    producer_ids_after,
    transactions_after,
)
from fenceline.transactions.item import ProducerIdItem, TransactionItem, transaction_from_item
from tests.support.service import Service, serve, slept_before

NOW = 10**12
WEEK = limits.TRANSACTIONAL_ID_MS

Walk = Callable[[Context, str], ItemPage]


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    yield made
    made.close()


def store(service: Service, *transactions: TransactionItem, given_at: int = NOW - WEEK) -> None:
    """Store transactions, each with the item of its producer id."""
    runtime = service.runtime
    for one in transactions:
        known = ProducerIdItem(one.producer_id, one.transactional_id, given_at)
        service.items.store.write([one.put(runtime), known.put(runtime)])


def transaction(name: str, producer_id: int, state: str = EMPTY, updated_at: int = NOW - WEEK) -> TransactionItem:
    return TransactionItem(name, producer_id, 3, state, 60_000, updated_at=updated_at)


def budget_of(service: Service, deletes_max: int = 10_000) -> Budget:
    return Budget(service.log.context, service.runtime.monotonic_ms() + 60_000, deletes_max)


def walked(service: Service, walk: Walk) -> list[Item]:
    """Return all that a walk finds, as one that goes on in another process after each page."""
    found: list[Item] = []
    place: str | None = ""
    while place is not None:
        page = walk(service.another().context, place)
        found += page.items
        place = page.following
    return found


def expire_all(service: Service, budget: Budget | None = None, now_ms: int = NOW) -> Budget:
    budget = budget or budget_of(service)
    expire_transactions(service.log.context, walked(service, transactions_after), now_ms=now_ms, budget=budget)
    expire_producer_ids(service.log.context, walked(service, producer_ids_after), now_ms=now_ms, budget=budget)
    return budget


def names(service: Service) -> set[str]:
    return {item.key.sort for item in walked(service, transactions_after)}


def producer_ids(service: Service) -> set[int]:
    return {keys.parse_transactional_id_item(item.key) for item in walked(service, producer_ids_after)}


@pytest.mark.parametrize("state", [EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT])
def test_an_id_expires_seven_days_after_its_last_request_if_nothing_of_it_is_open(state: str) -> None:
    is_over = state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
    assert is_expired(transaction("t", 1, state), NOW) == is_over
    assert not is_expired(transaction("t", 1, state, updated_at=NOW - WEEK + 1), NOW)


def test_both_items_of_an_id_go_and_every_other_stays(service: Service) -> None:
    store(
        service,
        transaction("over", 1),
        transaction("complete", 2, COMPLETE_ABORT),
        transaction("open", 3, ONGOING),
        transaction("prepared", 4, PREPARE_COMMIT),
        transaction("young", 5, updated_at=NOW - WEEK + 1),
    )
    budget = expire_all(service)
    assert names(service) == {"open", "prepared", "young"}
    assert producer_ids(service) == {3, 4, 5}
    assert budget.items == 4


@pytest.mark.parametrize("item", ["transaction", "producer id"])
def test_an_id_that_a_request_took_up_meanwhile_keeps_both_items(service: Service, item: str) -> None:
    """Both are deleted at the versions that were read, in one item transaction."""
    store(service, transaction("t", 1), transaction("other", 2))

    def take_up() -> None:
        key = keys.transaction_item("t") if item == "transaction" else keys.transactional_id_item(1)
        found = service.items.store.get([key])[key]
        service.items.store.write([Put(key, found.value, found.version + 1, found.version)])

    service.items.plan("write", slept_before(take_up))
    budget = expire_all(service)
    assert (names(service), producer_ids(service)) == ({"t"}, {1})
    assert budget.items == 2


def test_the_item_of_an_earlier_producer_id_goes_seven_days_after_it_was_given(service: Service) -> None:
    store(service, transaction("t", 9, ONGOING, updated_at=NOW), given_at=NOW - 3 * WEEK)
    for producer_id, given_at in ((1, NOW - WEEK), (2, NOW - WEEK + 1)):
        service.items.store.write([ProducerIdItem(producer_id, "t", given_at).put(service.runtime)])
    service.items.store.write([ProducerIdItem(3, "gone", NOW - WEEK).put(service.runtime)])
    assert expire_all(service).items == 2
    assert producer_ids(service) == {2, 9}
    assert names(service) == {"t"}


def test_a_producer_id_that_is_no_longer_the_id_s_goes_by_its_own_time(service: Service) -> None:
    """An id that expires takes along the item of its present producer id alone."""
    store(service, transaction("t", 9))
    service.items.store.write([ProducerIdItem(1, "t", NOW - 1).put(service.runtime)])
    expire_all(service)
    assert (names(service), producer_ids(service)) == (set(), {1})


@pytest.mark.parametrize("walk", [transactions_after, producer_ids_after])
def test_a_walk_sees_every_item_once_in_pages_of_a_shard(
    service: Service, walk: Walk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTION_ITEMS_MAX", 2)
    store(service, *(transaction(f"t{n}", n) for n in range(170)))
    found = [item.key for item in walked(service, walk)]
    assert len(found) == len(set(found)) == 170
    pages: list[Sequence[Item]] = []
    place: str | None = ""
    while place is not None:
        page = walk(service.log.context, place)
        pages.append(page.items)
        place = page.following
    assert max(map(len, pages)) == 2
    assert all(len({item.key.partition for item in page}) <= 1 for page in pages)


def test_a_walk_over_empty_shards_is_one_query_for_each(service: Service) -> None:
    before = service.items.calls["query"]
    assert walked(service, transactions_after) == []
    assert service.items.calls["query"] - before == COORDINATOR_SHARDS


def test_a_walk_goes_on_after_any_item(service: Service) -> None:
    store(service, *(transaction(f"t{n}", n) for n in range(300)))
    pages = [transactions_after(service.log.context, f"{shard:02d}/") for shard in range(COORDINATOR_SHARDS)]
    page = next(page for page in pages if len(page.items) > 2)
    rest = transactions_after(service.log.context, page.place(page.items[0]))
    assert list(rest.items) == list(page.items[1:])


def test_the_budget_ends_an_expiry(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MARKERS_AT_ONCE", 2)
    store(service, *(transaction(f"t{n}", n) for n in range(10)))
    budget = budget_of(service, deletes_max=4)
    expire_transactions(service.log.context, walked(service, transactions_after), now_ms=NOW, budget=budget)
    assert (budget.items, len(names(service))) == (4, 8)
    assert len(producer_ids(service)) == 8


def test_an_id_whose_producer_id_has_no_item_expires_too(service: Service) -> None:
    """Damage must not keep an item for ever."""
    one = transaction("t", 1)
    service.items.store.write([one.put(service.runtime)])
    expire_all(service)
    assert names(service) == set()


def test_an_item_of_the_same_producer_id_for_another_id_is_not_deleted_with_it(service: Service) -> None:
    """Damage: the producer id leads to another id, which is alive."""
    service.items.store.write([transaction("t", 1).put(service.runtime)])
    store(service, transaction("other", 1, ONGOING))
    expire_all(service)
    assert (names(service), producer_ids(service)) == ({"other"}, {1})
    (item,) = walked(service, transactions_after)
    assert transaction_from_item(item) == replace(transaction("other", 1, ONGOING), version=item.version)
