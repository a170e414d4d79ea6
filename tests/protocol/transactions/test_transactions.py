"""Transactions from the first request to the last: what each request writes, and what a reader then sees."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from fenceline import errors, limits
from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_COMMIT, ProducerPair
from fenceline.transactions import item_store
from fenceline.transactions.coordinator import TransactionCoordinator
from fenceline.transactions.item import TransactionItem
from tests.support.claiming import code_of
from tests.support.service import TOPIC, Service, is_unavailable, loses_answer, partitions_of
from tests.support.transacting import ID, TIMEOUT_MS, Producer, committed, opened, outcomes


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer with an id, over a topic of 40 partitions."""
    made = Producer(wide, wide.log)
    made.begin()
    return made


def calls_of(service: Service, action: Callable[[], object]) -> Counter[str]:
    before = service.count()
    action()
    return service.count() - before


def at_epoch(producer: Producer, epoch: int) -> None:
    """Put a producer at an epoch that it would take long to reach."""
    found = producer.stored()
    item = replace(found, producer_epoch=epoch)
    producer.log.context.items.write([item.put(producer.log.context.runtime)])
    producer.takes(item.pair)


# From the first request to the last


def test_a_commit_shows_in_every_partition_at_once(wide: Service, producer: Producer) -> None:
    for partition in (0, 1):
        producer.send("a", partition)
        assert committed(wide, partition) == []
    first = producer.pair
    assert producer.end() == (first.producer_id, first.producer_epoch + 1)
    assert [committed(wide, partition) for partition in (0, 1)] == [["a"], ["a"]]
    assert [outcomes(wide, partition) for partition in (0, 1)] == [[("commit", 1)]] * 2
    assert producer.get().state == COMPLETE_COMMIT


def test_an_abort_leaves_nothing_and_the_next_transaction_goes_on(wide: Service, producer: Producer) -> None:
    producer.send("a")
    producer.end(is_commit=False)
    assert producer.get().state == COMPLETE_ABORT
    producer.send("b")
    producer.send("c")
    producer.end()
    assert committed(wide) == ["b", "c"]
    assert outcomes(wide) == [("abort", 1), ("commit", 2)]


def test_partitions_without_data_get_their_marker_too(wide: Service, producer: Producer) -> None:
    producer.add(0, 1)
    producer.send("a", 0)
    producer.end()
    assert outcomes(wide, 1) == [("commit", 1)]


def test_ten_transactions_in_a_row_have_one_marker_each(wide: Service, producer: Producer) -> None:
    for number in range(10):
        producer.send(f"{number}")
        producer.end(is_commit=number % 2 == 0)
    assert [epoch for _, epoch in outcomes(wide)] == list(range(1, 11))
    assert committed(wide) == ["0", "2", "4", "6", "8"]


def test_an_empty_transaction_is_aborted_without_a_marker_and_has_nothing_to_commit(
    wide: Service, producer: Producer
) -> None:
    assert code_of(producer.end) == "INVALID_TXN_STATE"
    first = producer.pair
    assert producer.end(is_commit=False) == (first.producer_id, 1)
    producer.takes(first)
    assert producer.end(is_commit=False) == (first.producer_id, 1)
    assert wide.objects.calls["create"] == 1  # the topic's


def test_an_end_again_gets_the_same_pair_and_no_other_result(producer: Producer) -> None:
    producer.send()
    following = producer.outcome()
    assert producer.outcome() == following
    assert code_of(lambda: producer.outcome(is_commit=False)) == "INVALID_TXN_STATE"
    old, new = producer.pair, producer.takes(following)
    producer.send()
    producer.takes(old)
    assert code_of(producer.outcome) == "PRODUCER_FENCED"
    assert new == following


# Ids


def test_an_id_request_fences_the_instance_before_and_aborts_what_it_left(wide: Service, producer: Producer) -> None:
    producer.send("a")
    second = Producer(wide, wide.another())
    second.begin()
    assert second.pair == (producer.pair.producer_id, 2)  # 1 is the markers' alone
    assert (opened(wide), committed(wide)) == ([], [])
    for request in (producer.send, producer.end, lambda: producer.add(0), lambda: producer.begin(keeps=True)):
        assert code_of(request) in ("PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH")
    second.send("b")
    second.end()
    assert committed(wide) == ["b"]


def test_a_producer_that_names_its_pair_keeps_its_id_and_a_repeat_gets_the_same_pair(producer: Producer) -> None:
    producer.send("a")
    first = producer.pair
    second = producer.begin(keeps=True)
    assert second == (first.producer_id, 2)
    producer.takes(first)
    assert producer.begin(keeps=True) == second
    producer.send("b")
    producer.takes(first)
    assert code_of(lambda: producer.begin(keeps=True)) == "PRODUCER_FENCED"
    assert producer.stored().state == ONGOING


def test_a_refused_pair_aborts_nothing(wide: Service, producer: Producer) -> None:
    producer.send("a")
    stranger = Producer(wide, wide.another(), pair=ProducerPair(producer.pair.producer_id, 7))
    assert code_of(lambda: stranger.begin(keeps=True)) == "PRODUCER_FENCED"
    assert producer.stored().state == ONGOING
    producer.end()
    assert committed(wide) == ["a"]


def test_an_unknown_id_gets_both_of_its_items_in_one_write(wide: Service) -> None:
    first = Producer(wide, wide.log)
    first.begin()
    other = Producer(wide, wide.log, "another")
    counted = calls_of(wide, other.begin)
    assert counted["items.write"] == 1
    found = item_store.read_by_producer(wide.log.context, other.pair.producer_id)
    assert found is not None
    assert (found.transactional_id, found.pair) == ("another", other.pair)


@pytest.mark.parametrize("timeout_ms", [0, -1, limits.TRANSACTION_TIMEOUT_MS_MAX + 1, limits.INT64_MAX])
def test_a_time_out_out_of_bounds_is_refused_before_anything_is_written(wide: Service, timeout_ms: int) -> None:
    producer = Producer(wide, wide.log, timeout_ms=timeout_ms)
    counted = calls_of(wide, lambda: code_of(producer.begin))
    assert code_of(producer.begin) == "INVALID_TRANSACTION_TIMEOUT"
    assert not counted


def test_the_latest_time_out_holds(wide: Service, producer: Producer) -> None:
    producer.timeout_ms = 5
    producer.begin(keeps=True)
    producer.send()
    wide.runtime.advance(6)
    assert code_of(lambda: producer.add(1)) == "PRODUCER_FENCED"


# The last epoch


@pytest.mark.parametrize("is_commit", [True, False])
def test_after_the_last_epoch_comes_a_new_producer_id(wide: Service, producer: Producer, is_commit: bool) -> None:
    at_epoch(producer, limits.PRODUCER_EPOCH_MAX)
    producer.send("a")
    old = producer.pair
    following = producer.outcome(is_commit=is_commit)
    assert following.producer_epoch == 0
    assert following.producer_id != old.producer_id
    assert outcomes(wide) == [("commit" if is_commit else "abort", limits.MARKER_EPOCH_MAX)]
    assert producer.outcome(is_commit=is_commit) == following
    assert item_store.read_by_producer(wide.log.context, old.producer_id) is None
    found = item_store.read_by_producer(wide.log.context, following.producer_id)
    assert found is not None
    assert found.transactional_id == ID
    producer.takes(following)
    producer.send("b")
    producer.end()
    assert committed(wide) == (["a", "b"] if is_commit else ["b"])


def test_an_empty_abort_at_the_last_epoch_gets_a_new_producer_id(wide: Service, producer: Producer) -> None:
    at_epoch(producer, limits.PRODUCER_EPOCH_MAX)
    following = producer.outcome(is_commit=False)
    assert following.producer_epoch == 0
    assert producer.outcome(is_commit=False) == following
    found = item_store.read_by_producer(wide.log.context, following.producer_id)
    assert found is not None


def test_a_time_out_at_the_last_epoch_leaves_the_next_id_to_the_next_request(wide: Service, producer: Producer) -> None:
    at_epoch(producer, limits.PRODUCER_EPOCH_MAX)
    producer.send("a")
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert producer.get().pair == (producer.pair.producer_id, limits.MARKER_EPOCH_MAX)
    assert outcomes(wide) == [("abort", limits.MARKER_EPOCH_MAX)]
    assert producer.begin().producer_epoch == 0
    producer.send("b")
    producer.end()
    assert committed(wide) == ["b"]


def test_an_id_request_that_may_have_aborted_is_not_reported_as_one_that_wrote_nothing(
    wide: Service, producer: Producer
) -> None:
    """The store did not answer the abort, and then there is no new producer id to be had."""
    at_epoch(producer, limits.PRODUCER_EPOCH_MAX)
    producer.send("a")
    left = iter([100])

    def take() -> int:
        for spare in left:
            return spare
        raise errors.StoreUnavailableError("the counter is away, and nothing was written")

    coordinator = TransactionCoordinator(partitions_of(producer.log), take)
    wide.items.plan("write", loses_answer)
    assert code_of(lambda: coordinator.init(ID, TIMEOUT_MS, None, producer.until_ms)) == "OUTCOME_UNKNOWN"
    assert producer.get().state == COMPLETE_ABORT


# Time-outs


def test_a_time_out_aborts_and_fences_the_request_that_meets_it(wide: Service, producer: Producer) -> None:
    producer.send("a")
    wide.runtime.advance(TIMEOUT_MS)
    producer.add(0)
    wide.runtime.advance(1)
    assert code_of(lambda: producer.add(1)) == "PRODUCER_FENCED"
    assert outcomes(wide) == [("abort", 1)]
    assert outcomes(wide, 1) == []
    assert code_of(producer.end) == "PRODUCER_FENCED"
    assert (producer.stored().state, producer.stored().is_fenced) == (COMPLETE_ABORT, True)
    assert producer.begin() == (producer.pair.producer_id, 2)


def test_the_own_end_wins_over_a_time_out_that_no_process_has_met(wide: Service, producer: Producer) -> None:
    producer.send("a")
    wide.runtime.advance(10 * TIMEOUT_MS)
    producer.end()
    assert committed(wide) == ["a"]


def test_a_get_ends_what_is_due(wide: Service, producer: Producer) -> None:
    producer.send("a")
    assert producer.get().state == ONGOING
    wide.runtime.advance(TIMEOUT_MS + 1)
    assert producer.get().state == COMPLETE_ABORT
    assert opened(wide) == []
    assert code_of(lambda: Producer(wide, wide.log, "none").get()) == "TRANSACTIONAL_ID_NOT_FOUND"


# Groups


def test_offsets_are_sent_only_to_a_group_that_was_added_to_what_is_ongoing(wide: Service, producer: Producer) -> None:
    def ongoing(group: str) -> TransactionItem:
        return producer.coordinator.ongoing(ID, producer.pair, group, producer.until_ms)

    assert code_of(lambda: ongoing("g")) == "INVALID_TXN_STATE"
    producer.coordinator.add_group(ID, producer.pair, "g", producer.until_ms)
    assert ongoing("g") == producer.stored()
    assert code_of(lambda: ongoing("h")) == "INVALID_TXN_STATE"
    producer.end()
    assert code_of(lambda: ongoing("g")) == "INVALID_TXN_STATE"


# What it costs


def test_a_transaction_over_n_partitions_is_2_n_creates_and_3_item_writes(wide: Service, producer: Producer) -> None:
    """The addition, the decision and the completion; a partition's first batch reads one item, the next ask nothing."""
    for partition in range(10):
        producer.log.partitions.checkpoint(TOPIC, partition)
    producer.add(*range(10))
    for partition in range(10):  # a warm process: it knows the partitions
        producer.send("a", partition)
    producer.end()
    places, coordinator = producer.places(*range(10)), producer.coordinator
    added = calls_of(wide, lambda: coordinator.add_partitions(ID, producer.pair, places, producer.until_ms))
    assert added == {"items.get": 1, "items.write": 1}
    first = calls_of(wide, lambda: [producer.send("a", partition) for partition in range(10)])
    assert first == {"items.get": 10, "objects.create": 10}
    more = calls_of(wide, lambda: [producer.send("b", partition) for partition in range(10)])
    assert more == {"objects.create": 10}
    assert calls_of(wide, producer.end) == {"items.get": 1, "items.write": 2, "objects.create": 10}


def test_a_partition_that_was_added_costs_no_write(wide: Service, producer: Producer) -> None:
    places, coordinator = producer.places(0, 1), producer.coordinator
    for writes in (1, 0):
        added = calls_of(wide, lambda: coordinator.add_partitions(ID, producer.pair, places, producer.until_ms))
        assert (added["items.get"], added["items.write"]) == (1, writes)


# What cannot be finished


def test_a_store_that_is_away_after_the_decision_leaves_it_prepared_and_the_same_request_goes_on(
    wide: Service, producer: Producer
) -> None:
    producer.send("a", 0)
    producer.send("a", 1)
    prefix = keys.log_prefix(wide.topic_id(), 1)
    wide.objects.always("create", is_unavailable, prefix)
    assert code_of(producer.outcome) == "CONCURRENT_TRANSACTIONS"
    assert producer.stored().state == PREPARE_COMMIT
    assert outcomes(wide, 0) == [("commit", 1)]
    for request in (producer.begin, lambda: producer.add(3)):
        assert code_of(request) in ("CONCURRENT_TRANSACTIONS", "PRODUCER_FENCED")
    assert producer.get().state == PREPARE_COMMIT
    wide.objects.always("create", None)
    assert producer.outcome().producer_epoch == 1
    assert [outcomes(wide, partition) for partition in (0, 1)] == [[("commit", 1)]] * 2


def test_one_damaged_log_keeps_the_transaction_prepared_and_the_others_get_their_markers(
    wide: Service, producer: Producer
) -> None:
    for partition in range(3):
        producer.send("a", partition)
    fresh = Producer(wide, wide.another(), pair=producer.pair)
    key = keys.segment_key(wide.topic_id(), 1, 0)
    found = wide.objects.store.get(key)
    wide.objects.store.delete(key)
    wide.objects.store.create(key, found.body[:-1] + b"?", found.metadata)
    with pytest.raises(errors.CorruptLogError):
        fresh.outcome()
    assert fresh.stored().state == PREPARE_COMMIT
    assert [outcomes(wide, partition) for partition in (0, 2)] == [[("commit", 1)]] * 2
    assert fresh.get().state == PREPARE_COMMIT
    wide.objects.store.delete(key)
    wide.objects.store.create(key, found.body, found.metadata)
    assert fresh.get().state == COMPLETE_COMMIT


def test_a_topic_that_was_deleted_or_created_again_is_done(wide: Service, producer: Producer) -> None:
    wide.log.topics.create("other")
    producer.send("a", 0)
    producer.send("a", 0, topic="other")
    wide.another().topics.delete("other")
    wide.another().topics.create("other")
    producer.end()
    assert committed(wide) == ["a"]
    assert wide.segments("other") == []
    producer.send("b", 0, topic="other")
    producer.end()
    assert len(wide.segments("other")) == 2


def test_an_id_that_is_new_is_empty(producer: Producer) -> None:
    assert producer.get().state == EMPTY
