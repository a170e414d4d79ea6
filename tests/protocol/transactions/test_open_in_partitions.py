"""What is open in the partitions of a topic, and which of it hangs."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.answers import to_json
from fenceline.format import keys
from fenceline.model.transaction import (
    COMPLETE_COMMIT,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    OpenTransaction,
    OpenTransactionPage,
    ProducerPair,
)
from fenceline.transactions.item import ProducerIdItem, TransactionItem
from fenceline_http import responses
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Service, data, outcome

PAIR = ProducerPair(70, 3)


def is_open(service: Service, partition: int, *pairs: tuple[int, int]) -> LogBuilder:
    """Let each of these pairs have a batch open in a partition, after a plain record."""
    log = LogBuilder(topic_id=service.topic_id(), partition=partition)
    log.add(data("plain"))
    for pair in pairs:
        log.add(data("open", producer=(*pair, 0), is_transactional=True))
    log.store(service.objects.store)
    return log


def store(service: Service, state: str, epoch: int, *, producer_id: int = PAIR.producer_id) -> None:
    item = TransactionItem("orders", producer_id, epoch, state, 60_000, started_at=START_MS)
    known = ProducerIdItem(PAIR.producer_id, "orders", 0)
    service.items.store.write([item.put(service.runtime), known.put(service.runtime)])


def listed(service: Service, **asked: int) -> OpenTransactionPage:
    return service.another().transactions.open_in(TOPIC, **asked)


@pytest.fixture
def three(service: Service) -> Service:
    service.log.topics.alter(TOPIC, partitions=3)
    return service


@pytest.mark.parametrize(
    ("state", "epoch", "hangs"),
    [
        (ONGOING, 3, False),
        (PREPARE_COMMIT, 4, False),
        (PREPARE_ABORT, 4, False),
        (COMPLETE_COMMIT, 4, True),
        (ONGOING, 4, True),
        (PREPARE_ABORT, 5, True),
    ],
)
def test_a_transaction_hangs_where_its_id_will_not_end_it(
    service: Service, state: str, epoch: int, hangs: bool
) -> None:
    is_open(service, 0, PAIR)
    store(service, state, epoch)
    expected = OpenTransaction(0, PAIR, 1, START_MS + 2, "orders", hangs)
    assert listed(service) == OpenTransactionPage([expected], has_more=False)


def test_what_no_id_has_hangs_and_has_no_id(service: Service) -> None:
    is_open(service, 0, PAIR)
    assert listed(service).transactions == [OpenTransaction(0, PAIR, 1, START_MS + 2, None, True)]
    store(service, ONGOING, 0, producer_id=71)  # the id has another producer id by now
    assert listed(service).transactions == [OpenTransaction(0, PAIR, 1, START_MS + 2, "orders", True)]


def test_a_transaction_that_ends_while_it_is_looked_at_is_not_called_hanging(service: Service) -> None:
    """Property: what the items say to be past hangs only if it is open by a later look at the log."""
    log = is_open(service, 0, PAIR)
    store(service, ONGOING, 3)

    def then_it_ends(call: Any) -> Any:
        service.items.always("get", None)
        log.add(outcome(70, 4, is_commit=True))
        log.store(service.objects.store, 2)
        item = keys.transaction_item("orders")
        version = service.items.store.get([item])[item].version
        done = TransactionItem("orders", 70, 4, COMPLETE_COMMIT, 60_000, version=version)
        service.items.store.write([done.put(service.runtime)])
        return call()

    another = service.another()
    assert len(another.transactions.open_in(TOPIC).transactions) == 1  # which opens the partition
    service.items.always("get", then_it_ends, prefix=keys.transactional_id_item(70).sort)
    assert another.transactions.open_in(TOPIC).transactions == []


def test_partitions_are_looked_at_in_pages_and_the_first_offset_comes_first(three: Service) -> None:
    is_open(three, 0, (71, 0), (70, 0))
    is_open(three, 2, (70, 0))
    page = listed(three, limit=1)
    assert [(one.partition, one.pair.producer_id, one.start_offset) for one in page.transactions] == [
        (0, 71, 1),
        (0, 70, 2),
    ]
    assert (page.has_more, page.next_partition) == (True, 1)
    assert listed(three, start_partition=1, limit=1) == OpenTransactionPage([], True, 2)
    last = listed(three, start_partition=2, limit=1)
    assert ([one.partition for one in last.transactions], last.has_more, last.next_partition) == ([2], False, None)
    assert listed(three, start_partition=9) == OpenTransactionPage([], has_more=False)


def test_a_page_has_whole_partitions_and_no_more_than_one_partition_may_have(
    three: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "OPEN_TRANSACTIONS_MAX", 3)
    is_open(three, 0, (70, 0), (71, 0))
    is_open(three, 1, (70, 0), (71, 0))
    is_open(three, 2, (70, 0))
    page = listed(three)
    assert ([one.partition for one in page.transactions], page.next_partition) == ([0, 0], 1)
    rest = listed(three, start_partition=1)
    assert ([one.partition for one in rest.transactions], rest.has_more) == ([1, 1, 2], False)


def test_the_largest_page_passes_the_gateway() -> None:
    longest = '"' * limits.TRANSACTIONAL_ID_BYTES_MAX
    pair = ProducerPair(limits.INT64_MAX, 32_767)
    one = OpenTransaction(9_999, pair, limits.INT64_MAX, limits.INT64_MAX, longest, False)
    page = OpenTransactionPage([one] * limits.OPEN_TRANSACTIONS_MAX, True, 9_999)
    assert len(responses.to_json(to_json(page))) < responses.LIST_BYTES_MAX
    response = responses.json(page).to_event()
    assert len(response["body"]) < limits.GATEWAY_BYTES_MAX
