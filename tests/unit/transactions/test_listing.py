"""The listing of transactions over all coordinator shards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.log.context import Context
from fenceline.log.sharded_list import Reads
from fenceline.model.transaction import EMPTY, ONGOING, PREPARE_ABORT, STATES, ProducerPair, TopicPartition, Transaction
from fenceline.transactions.item import ProducerIdItem, TopicPartitions, TransactionItem
from fenceline.transactions.listing import list_transactions
from tests.support.runtime import START_MS
from tests.support.service import Service, serve

PLACE = TopicPartitions("id", "orders", (0, 2))


def put(context: Context, *items: TransactionItem) -> None:
    for item in items:
        given = ProducerIdItem(item.producer_id, item.transactional_id, 0).put(context.runtime)
        context.items.write([item.put(context.runtime), given])


def listed(context: Context, **asked: Any) -> list[str]:
    found, _ = list_transactions(context, **{"limit": 100, **asked})
    return [one.transactional_id for one in found]


@pytest.fixture
def context(service: Service) -> Context:
    return service.log.context


def test_there_may_be_none(context: Context) -> None:
    assert list_transactions(context, limit=1) == ([], False)


@given(
    ids=st.sets(st.text(st.sampled_from("ab\u00e9\uff5e\U0001f600"), min_size=1, max_size=4), max_size=60),
    limit=st.integers(1, 20),
)
def test_pages_have_every_id_once_in_byte_order(ids: set[str], limit: int) -> None:
    service = serve()
    put(service.log.context, *(TransactionItem(one, number, 0) for number, one in enumerate(ids)))
    found: list[str] = []
    has_more = True
    while has_more:
        page, has_more = list_transactions(service.log.context, start_after=found[-1] if found else "", limit=limit)
        assert len(page) == limit or not has_more
        found += [one.transactional_id for one in page]
    assert found == sorted(ids, key=str.encode)
    service.close()


def test_many_ids_of_one_shard_are_read_in_turn(context: Context) -> None:
    from fenceline.format.partitioner import coordinator_shard

    ids = sorted(f"{n}" for n in range(4_000) if coordinator_shard(f"{n}") == 7)
    put(context, *(TransactionItem(one, number, 0) for number, one in enumerate(ids)))
    assert listed(context, limit=30) == ids[:30]
    assert listed(context, limit=1_000) == ids
    assert listed(context, limit=10, start_after=ids[-2]) == ids[-1:]
    assert listed(context, start_after="9" * 5_000) == []


def test_transactions_are_shown_with_what_they_name_while_they_are_open(context: Context) -> None:
    item = TransactionItem("t", 7, 3, ONGOING, 60_000, started_at=5, partitions=(PLACE,), groups=("g",))
    put(context, item, replace(item, transactional_id="u", producer_id=8, state=EMPTY))
    places = [TopicPartition("orders", 0), TopicPartition("orders", 2)]
    shown, has_more = list_transactions(context, limit=2)
    assert list(shown) == [
        Transaction("t", ONGOING, 7, 3, 60_000, 5, places, ("g",)),
        Transaction("u", EMPTY, 8, 3, 60_000, None),
    ]
    assert not has_more


def test_listings_by_state_by_producer_id_and_by_age(context: Context) -> None:
    ages = {"young": 10, "old": 20}
    for number, (name, age) in enumerate(ages.items()):
        for state in (EMPTY, ONGOING, PREPARE_ABORT):
            made = TransactionItem(
                f"{name}-{state}", 10 * number + len(state), 0, state, 60_000, started_at=START_MS - age
            )
            put(context, made)
    assert listed(context, states=[ONGOING]) == ["old-Ongoing", "young-Ongoing"]
    assert listed(context, states=[ONGOING, EMPTY], limit=3) == ["old-Empty", "old-Ongoing", "young-Empty"]
    assert listed(context, states=["Dead"]) == []
    assert listed(context, longer_than_ms=10) == ["old-Ongoing", "old-PrepareAbort"]
    assert listed(context, longer_than_ms=9, states=[PREPARE_ABORT]) == ["old-PrepareAbort", "young-PrepareAbort"]
    assert listed(context, producer_id=len(ONGOING)) == ["young-Ongoing"]
    assert listed(context, producer_id=len(ONGOING), start_after="young-Ongoing") == []
    assert listed(context, producer_id=len(ONGOING), states=[EMPTY]) == []
    assert listed(context, producer_id=99) == listed(context, producer_id=-1) == []
    assert list_transactions(context, states=[ONGOING], limit=1)[1] is True
    assert list_transactions(context, states=[ONGOING], limit=2)[1] is False


def test_an_earlier_producer_id_lists_nothing(context: Context) -> None:
    put(context, TransactionItem("t", 7, 3))
    context.items.write([ProducerIdItem(6, "t", 0).put(context.runtime)])
    assert listed(context, producer_id=6) == []
    assert listed(context, producer_id=ProducerPair(7, 3).producer_id) == ["t"]


def test_an_unknown_state_is_refused(context: Context) -> None:
    assert listed(context, states=list(STATES)) == []
    with pytest.raises(InvalidRequestError):
        list_transactions(context, states=["ongoing"], limit=1)


def test_a_listing_reads_a_bounded_number_and_says_where_to_go_on(context: Context) -> None:
    """Whatever fits of them: many ids are at rest, and few have a transaction."""
    ids = sorted(f"id-{n:04d}" for n in range(1_500))
    busy = {"id-0700", "id-1499"}
    put(context, *(TransactionItem(one, n, 0, ONGOING if one in busy else EMPTY) for n, one in enumerate(ids)))
    found, pages, place = [], 0, ""
    while pages == 0 or place:
        reads = Reads(items_max=400)
        page, has_more = list_transactions(context, states=[ONGOING], start_after=place, limit=5, reads=reads)
        assert reads.items <= 400 + 128
        assert has_more == (reads.go_on_after is not None)
        found += [one.transactional_id for one in page]
        pages, place = pages + 1, reads.go_on_after or ""
    assert found == sorted(busy)
    assert 4 <= pages <= 12


def test_a_listing_reads_a_bounded_number_of_bytes(context: Context) -> None:
    wide = tuple(TopicPartitions(f"{n:032d}", "t" * 200, (0,)) for n in range(20))
    put(context, *(TransactionItem(f"id-{n:03d}", n, 0, EMPTY, partitions=wide) for n in range(600)))
    reads = Reads(bytes_max=1_000_000)
    assert list_transactions(context, states=[ONGOING], limit=5, reads=reads) == ([], True)
    assert 1_000_000 <= reads.bytes < 1_500_000, "of three times as many"


def test_listings_of_one_read_each_cover_all_ids(context: Context) -> None:
    put(context, *(TransactionItem(f"id-{n}", n, 0, EMPTY) for n in range(60)))
    reads = Reads(items_max=1)
    found: list[str] = []
    while found == [] or reads.go_on_after is not None:
        after, reads = reads.go_on_after or "", Reads(items_max=1)
        page, _ = list_transactions(context, start_after=after, limit=1_000, reads=reads)
        assert page, "each listing comes forward"
        found += [one.transactional_id for one in page]
    assert found == sorted(f"id-{n}" for n in range(60))


def test_only_what_a_principal_may_use_is_listed(context: Context) -> None:
    for n, principal in enumerate(("alice", "bob", "")):
        put(context, TransactionItem(f"of-{principal}", n, 0, principal=principal))
    assert listed(context, principal="alice") == ["of-", "of-alice"]
    assert listed(context) == ["of-", "of-alice", "of-bob"]
    assert listed(context, principal="alice", producer_id=1) == []


def test_a_transaction_begun_by_a_wrong_clock_is_listed_with_any_minimum_age(context: Context) -> None:
    ahead = limits.TRANSACTION_AHEAD_MS
    day = limits.EXTENSION_MS_MAX
    for n, (name, started_at, expires_at) in enumerate(
        (
            ("begun", START_MS + ahead + 1, None),
            ("extended", START_MS, START_MS + day + ahead + 1),
            ("in order", START_MS + ahead, START_MS + day + ahead),
        )
    ):
        put(context, TransactionItem(name, n, 0, ONGOING, 60_000, started_at=started_at, expires_at=expires_at))
    assert listed(context, longer_than_ms=10**9) == ["begun", "extended"]
