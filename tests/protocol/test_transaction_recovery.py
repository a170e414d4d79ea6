"""Transactions in recovery: a rebuild decides what it finds open, and verify reports what no coordinator will end.

Protocol: DESIGN.md, "Rebuild" and "Hanging transactions".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.model.transaction import (
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    check_transactional_id,
)
from fenceline.ports import Put, Unavailable
from fenceline.recovery.rebuild import Rebuilt, is_cut_off, rebuild
from fenceline.recovery.verify import Verified, verify_partition
from fenceline.transactions.expiry import producer_ids_after, transactions_after
from fenceline.transactions.hanging import find
from fenceline.transactions.item import (
    ProducerIdItem,
    SubscriptionCursors,
    TopicPartitions,
    TransactionItem,
    transaction_from_item,
)
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Part,
    Service,
    data,
    is_unavailable,
    outcome,
    serve,
    slept_before,
)

OTHER = "other"


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    made.log.topics.create(TOPIC, partitions=3)
    made.log.topics.create(OTHER)
    yield made
    made.close()


def build(service: Service, logs: dict[tuple[str, int], list[Part]]) -> LogBuilder:
    """Make the logs of these partitions, a segment for each part; return the builder of the last."""
    for (topic, partition), parts in logs.items():
        builder = LogBuilder(topic_id=service.topic_id(topic), partition=partition)
        for part in parts:
            builder.add(part)
        builder.store(service.objects.store)
    return builder


def batch(producer_id: int, epoch: int, sequence: int = 0) -> Part:
    return data("v", producer=(producer_id, epoch, sequence), is_transactional=True)


# Rebuild


def rebuilt(service: Service) -> tuple[Context, Rebuilt]:
    """Lose all items, and rebuild them into a new store."""
    items = SqliteItemStore(":memory:")
    context = Context(service.objects.store, items, service.runtime, REGION)
    return context, rebuild(context)


def transactions(context: Context) -> dict[str, TransactionItem]:
    found: dict[str, TransactionItem] = {}
    place: str | None = ""
    while place is not None:
        page = transactions_after(context, place)
        found |= {item.key.sort: transaction_from_item(item) for item in page.items}
        place = page.following
    return found


def test_what_is_open_is_aborted_wherever_it_is_open(service: Service) -> None:
    """With the bumped epoch, under an id of its own that the item of its producer id leads to."""
    build(
        service,
        {
            (TOPIC, 0): [batch(7, 3)],
            (TOPIC, 2): [data("plain"), batch(7, 3)],
            (OTHER, 0): [batch(7, 3), batch(8, 0), outcome(8, 1, is_commit=True)],
        },
    )
    context, found = rebuilt(service)
    assert found.transactions == 1
    (item,) = transactions(context).values()
    places = {
        TopicPartitions(service.topic_id(), TOPIC, (0, 2)),
        TopicPartitions(service.topic_id(OTHER), OTHER, (0,)),
    }
    assert (item.transactional_id, item.pair, item.state) == ("recovered-7-3", (7, 4), PREPARE_ABORT)
    assert (set(item.partitions), len(item.partitions)) == (places, 2)
    assert (item.is_fenced, item.ended, item.kept, item.decided_at) == (True, None, None, service.runtime.now_ms())
    known, led_to = find(context, [7])[7]
    assert led_to == item
    assert isinstance(known, ProducerIdItem)
    assert check_transactional_id(item.transactional_id)
    assert len(producer_ids_after(context, "07/").items) == 1


@pytest.mark.parametrize(
    ("ended", "state"),
    [
        (outcome(7, 4, is_commit=True), PREPARE_COMMIT),
        (outcome(7, 4, is_commit=False), PREPARE_ABORT),
        (outcome(7, 3, is_commit=True), PREPARE_ABORT),
        (outcome(9, 4, is_commit=True), PREPARE_ABORT),
    ],
    ids=["its commit", "its abort", "the commit before", "another producer's commit"],
)
def test_what_one_log_shows_committed_is_committed_in_all(service: Service, ended: Part, state: str) -> None:
    """A reader may have seen that part of it."""
    first = [batch(7, 2), outcome(7, 3, is_commit=True)]
    build(service, {(TOPIC, 0): [*first, batch(7, 3)], (OTHER, 0): [batch(9, 3), ended], (TOPIC, 1): [batch(7, 3)]})
    context, _ = rebuilt(service)
    item = transactions(context)["recovered-7-3"]
    assert item.state == state
    assert [(one.topic, one.partitions) for one in item.partitions] == [(TOPIC, (0, 1))]


def test_a_commit_is_found_in_a_log_that_was_read_later(service: Service) -> None:
    build(
        service,
        {(OTHER, 0): [batch(7, 3)], (TOPIC, 1): [batch(7, 3), outcome(7, 4, is_commit=True), batch(7, 4)]},
    )
    context, found = rebuilt(service)
    assert found.transactions == 2
    assert {name: item.state for name, item in transactions(context).items()} == {
        "recovered-7-3": PREPARE_COMMIT,
        "recovered-7-4": PREPARE_ABORT,
    }


def test_a_producer_id_that_was_open_at_two_epochs_leads_to_the_later(service: Service) -> None:
    """Damage before the loss: each is decided by itself, and the sweeper meets both."""
    build(service, {(TOPIC, 0): [batch(7, 5)], (TOPIC, 1): [batch(7, 3)]})
    context, _ = rebuilt(service)
    assert set(transactions(context)) == {"recovered-7-3", "recovered-7-5"}
    known, _ = find(context, [7])[7]
    assert known is not None
    assert known.transactional_id == "recovered-7-5"


def test_what_is_open_below_a_state_object_is_found(service: Service) -> None:
    build(service, {(TOPIC, 0): [batch(7, 3), data("a"), data("b")]})
    service.log.partitions.trim(TOPIC, 0, 2)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 0))
    context, _ = rebuilt(service)
    assert transactions(context)["recovered-7-3"].partitions[0].partitions == (0,)


def test_what_a_deleted_topic_has_open_is_not_named(service: Service) -> None:
    build(service, {(OTHER, 0): [batch(7, 3)], (TOPIC, 0): [batch(8, 3)]})
    service.log.topics.delete(OTHER)
    context, _ = rebuilt(service)
    assert list(transactions(context)) == ["recovered-8-3"]


def test_a_renamed_topic_is_named_as_it_is_called_now(service: Service) -> None:
    build(service, {(TOPIC, 0): [batch(7, 3)]})
    older = service.topic_id()
    service.items.store.close()
    service.items.store = SqliteItemStore(":memory:")
    service.runtime.advance(1_000)
    service.log = service.another()
    service.log.topics.create(TOPIC)
    context, _ = rebuilt(service)
    (named,) = transactions(context)["recovered-7-3"].partitions
    assert (named.topic_id, named.topic) == (older, f"{TOPIC}.recovered-{older[:8]}")


def test_many_are_decided(service: Service) -> None:
    build(service, {(TOPIC, 0): [batch(p, 3) for p in range(150)]})
    context, found = rebuilt(service)
    assert found.transactions == len(transactions(context)) == 150


def test_a_rebuild_that_dies_between_them_is_not_done(service: Service) -> None:
    """Nothing is served from what it left; the next one begins with an empty item store."""
    build(service, {(TOPIC, 0): [batch(7, 3), batch(8, 3)]})
    lost = serve(service.runtime)
    context = Context(service.objects.store, lost.items, service.runtime, REGION)
    lost.items.always("write", is_unavailable, "recovered-8")
    with pytest.raises(Unavailable):
        rebuild(context)
    assert is_cut_off(context)
    assert lost.items.store.query(keys.TOPICS) == []
    lost.close()


def test_the_epochs_of_recovered_transactions_are_markers_own(service: Service) -> None:
    """I13: also the last epoch of data has one above it."""
    build(service, {(TOPIC, 0): [batch(7, limits.PRODUCER_EPOCH_MAX)]})
    context, _ = rebuilt(service)
    (item,) = transactions(context).values()
    assert (item.producer_epoch, item.is_fenced) == (limits.MARKER_EPOCH_MAX, True)


# Verify


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
    build(service, {(TOPIC, 0): [batch(7, 3)]})
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
    build(service, {(TOPIC, 0): [data("plain"), batch(7, 3)]})
    if state is not None:
        store(service, state, epoch, *partitions)
    (finding,) = verified(service).findings
    assert text in finding
    assert finding.endswith("producer_id=7 producer_epoch=3 first_offset=1")


def test_what_ended_while_verify_ran_is_no_finding(service: Service) -> None:
    """Its marker is durable before its transaction is complete, so a second look at the log shows it."""
    builder = build(service, {(TOPIC, 0): [batch(7, 3)]})

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
    build(service, {(TOPIC, 0): [batch(7, 3)]})
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


def test_a_pending_offset_that_was_decided_while_verify_ran_is_no_finding(service: Service, subscription: str) -> None:
    """Cursors are settled before their transaction is complete, so a second look at them shows it."""
    send(service, subscription)

    def decide() -> None:
        put_cursor(service, subscription, {})
        store(service, COMPLETE_COMMIT, 4)

    service.items.always("get", slept_once(decide), keys.transactional_id_item(7).sort)
    assert verified(service).findings == []
