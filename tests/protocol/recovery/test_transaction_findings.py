"""Verify reports the open transactions and pending offsets that no coordinator will end (I12, I14)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import errors
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import COMPLETE_COMMIT, EMPTY, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from fenceline.ports import Put
from fenceline.recovery.verify import Verified, verify_partition
from fenceline.transactions.item import ProducerIdItem, SubscriptionCursors, TopicPartitions, TransactionItem
from tests.support.service import REGION, TOPIC, LogBuilder, Part, Service, data, outcome, serve, slept_before


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    made.log.topics.create(TOPIC, partitions=2)
    yield made
    made.close()


def build(service: Service, *parts: Part) -> LogBuilder:
    """Make the log of partition 0, a segment for each part."""
    builder = LogBuilder(topic_id=service.topic_id())
    for part in parts:
        builder.add(part)
    builder.store(service.objects.store)
    return builder


def batch(producer_id: int, epoch: int) -> Part:
    return data("v", producer=(producer_id, epoch, 0), is_transactional=True)


def store(service: Service, state: str, epoch: int, *partitions: int, **members: Any) -> None:
    """Store the items of the transaction of producer 7, which names these partitions."""
    named = (TopicPartitions(service.topic_id(), TOPIC, partitions),) if partitions else ()
    item = TransactionItem("orders", 7, epoch, state, 60_000, partitions=named, **members)
    known = ProducerIdItem(7, "orders", 0)
    service.items.store.write([item.put(service.runtime), known.put(service.runtime)])


def verified(service: Service, partition: int = 0) -> Verified:
    context = Context(service.objects, service.items, service.runtime, REGION)
    found = verify_partition(context, service.log.topics.get(TOPIC), partition)
    assert (found.broken_at, found.problem) == (None, "")
    return found


@pytest.mark.parametrize(("state", "epoch"), [(ONGOING, 3), (PREPARE_COMMIT, 4), (PREPARE_ABORT, 4)])
def test_an_open_transaction_that_its_coordinator_will_end_is_no_finding(
    service: Service, state: str, epoch: int
) -> None:
    build(service, batch(7, 3))
    store(service, state, epoch, 0, 1)
    assert verified(service).findings == []


@pytest.mark.parametrize(
    ("state", "epoch", "partitions", "text"),
    [
        (None, 0, (0,), "a transaction hangs"),
        (COMPLETE_COMMIT, 4, (), "a transaction hangs"),
        (ONGOING, 4, (0,), "a transaction hangs"),
        (PREPARE_ABORT, 5, (0,), "a transaction hangs"),
        (ONGOING, 3, (1,), "does not name this partition"),
        (PREPARE_COMMIT, 4, (1,), "does not name this partition"),
        (EMPTY, 3, (), "does not name this partition"),
    ],
)
def test_an_open_transaction_that_no_coordinator_will_end_here_is_reported(
    service: Service, state: str | None, epoch: int, partitions: tuple[int, ...], text: str
) -> None:
    """I12."""
    build(service, data("plain"), batch(7, 3))
    if state is not None:
        store(service, state, epoch, *partitions)
    (finding,) = verified(service).findings
    assert text in finding
    assert finding.endswith("producer_id=7 producer_epoch=3 first_offset=1")


def test_a_transaction_that_ends_during_verify_is_no_finding(service: Service) -> None:
    """Its marker is durable before its transaction is complete, so a second look at the log shows it."""
    builder = build(service, batch(7, 3))

    def end() -> None:
        for part in (outcome(7, 4, is_commit=True), batch(7, 4)):
            builder.add(part)
        builder.store(service.objects.store, 1)
        store(service, ONGOING, 4, 0)

    service.items.always("get", slept_once(end), keys.transactional_id_item(7).sort)
    assert verified(service).findings == []
    assert verified(service).findings == []


def slept_once(act: Any) -> Any:
    """Return what becomes of the first such call, before which its process sleeps, and others act."""
    acts = iter([act])
    return lambda call: slept_before(next(acts, lambda: None))(call)


def test_a_segment_that_is_damaged_while_verify_ran_is_where_the_partition_is_broken(service: Service) -> None:
    build(service, batch(7, 3))
    key = keys.segment_key(service.topic_id(), 0, 1)
    damage = slept_once(lambda: service.objects.store.create(key, b"x", {}))
    service.items.always("get", damage, keys.transactional_id_item(7).sort)
    context = Context(service.objects, service.items, service.runtime, REGION)
    found = verify_partition(context, service.log.topics.get(TOPIC), 0)
    assert found.broken_at == 1
    assert found.problem


# Pending offsets (I14)


@pytest.fixture
def subscription(service: Service) -> str:
    """Return the id of a group's subscription."""
    service.log.subscriptions.subscribe(TOPIC, "group", is_latest=False)
    (item,) = service.items.store.query(keys.subscription_items(service.topic_id()))
    return str(item.value["subscription_id"])


def send(service: Service, subscription_id: str, *, epoch: int = 3, number: int = 1) -> None:
    """Leave an offset of producer 7 pending in the group's cursor of partition 0."""
    put_cursor(service, subscription_id, {"7": [epoch, number, 5, ""]})


def put_cursor(service: Service, subscription_id: str, pending: dict[str, Any]) -> None:
    key = keys.cursor_item("group", service.topic_id(), subscription_id, 0)
    item = service.items.store.get([key]).get(key)
    value = {"mark": 0, "metadata": "", "ranges": b"", "chunks": []} if item is None else dict(item.value)
    version = None if item is None else item.version
    put = Put(key, {**value, "pending": pending}, 1 if version is None else version + 1, version)
    service.items.store.write([put])


def cursors(service: Service, subscription_id: str, *partitions: int) -> tuple[SubscriptionCursors, ...]:
    return (SubscriptionCursors("group", service.topic_id(), subscription_id, partitions),)


@pytest.mark.parametrize(("state", "epoch"), [(ONGOING, 3), (PREPARE_COMMIT, 4), (PREPARE_ABORT, 4)])
def test_a_pending_offset_that_its_transaction_decides_is_no_finding(
    service: Service, subscription: str, state: str, epoch: int
) -> None:
    send(service, subscription)
    store(service, state, epoch, cursors=cursors(service, subscription, 0))
    assert verified(service).findings == []


@pytest.mark.parametrize(
    ("state", "epoch", "partitions"),
    [(None, 0, ()), (COMPLETE_COMMIT, 4, (0,)), (ONGOING, 4, (0,)), (EMPTY, 3, ()), (ONGOING, 3, (1,))],
)
def test_a_pending_offset_that_no_transaction_will_decide_is_reported(
    service: Service, subscription: str, state: str | None, epoch: int, partitions: tuple[int, ...]
) -> None:
    send(service, subscription)
    if state is not None:
        store(service, state, epoch, cursors=cursors(service, subscription, *partitions))
    (finding,) = verified(service).findings
    assert finding.endswith("group=group producer_id=7 producer_epoch=3")
    assert verified(service, 1).findings == []


def test_a_pending_offset_goes_with_its_subscription_and_with_no_commit(service: Service, subscription: str) -> None:
    """As the finding says: another commit leaves it where it is, and the group's offsets unstable."""
    build(service, data("v"))
    send(service, subscription)
    subscriptions, anew = service.log.subscriptions, [CommittedOffset(TOPIC, 0, 1, "")]
    subscriptions.commit("group", anew)
    (finding,) = verified(service).findings
    assert "delete its subscription" in finding
    with pytest.raises(errors.UnstableOffsetCommitError):
        subscriptions.committed("group", require_stable=True)
    subscriptions.unsubscribe(TOPIC, "group")
    subscriptions.commit("group", anew)
    assert verified(service).findings == []
    assert subscriptions.committed("group", require_stable=True) == (anew, False)


def test_a_pending_offset_that_was_decided_while_verify_ran_is_no_finding(service: Service, subscription: str) -> None:
    """Cursors are settled before their transaction is complete, so a second look at them shows it."""
    send(service, subscription)

    def decide() -> None:
        put_cursor(service, subscription, {})
        store(service, COMPLETE_COMMIT, 4)

    service.items.always("get", slept_once(decide), keys.transactional_id_item(7).sort)
    assert verified(service).findings == []
