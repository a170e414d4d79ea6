"""Transactions in a rebuild: what it finds open has one outcome in all logs, and the serving processes end it.

Protocol, "Rebuild".
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore
from fenceline.errors import InvalidProducerIdMappingError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.model.transaction import (
    PREPARE_ABORT,
    PREPARE_COMMIT,
    OnceMark,
    check_transactional_id,
)
from fenceline.ports import Unavailable
from fenceline.recovery.rebuild import Rebuilt, is_cut_off, rebuild
from fenceline.transactions import committed_version
from fenceline.transactions.expiry import producer_ids_after, transactions_after
from fenceline.transactions.hanging import find
from fenceline.transactions.item import (
    ProducerIdItem,
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
)
from tests.support.sweeping import Died, swept
from tests.support.transacting import Producer, committed, outcomes

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


def test_an_open_transaction_is_aborted_in_every_log(service: Service) -> None:
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
def test_a_transaction_committed_in_one_log_is_committed_in_all(service: Service, ended: Part, state: str) -> None:
    """A reader may have seen that part of it."""
    first = [batch(7, 2), outcome(7, 3, is_commit=True)]
    build(service, {(TOPIC, 0): [*first, batch(7, 3)], (OTHER, 0): [batch(9, 3), ended], (TOPIC, 1): [batch(7, 3)]})
    context, _ = rebuilt(service)
    item = transactions(context)["recovered-7-3"]
    assert item.state == state
    assert [(one.topic, one.partitions) for one in item.partitions] == [(TOPIC, (0, 1))]


def test_transactions_decided_together_may_end_apart_and_their_version_is_forgotten(
    service: Service,
) -> None:
    """I26's one exception: the items were lost after the decision, and only one member has a marker in any log."""
    service.log.transactions.end_all([], True, OnceMark("app", 5, "run-1"))
    build(
        service,
        {
            (TOPIC, 0): [batch(7, 3), outcome(7, 4, is_commit=True)],
            (TOPIC, 1): [batch(7, 3)],
            (OTHER, 0): [batch(8, 3)],
        },
    )
    context, _ = rebuilt(service)
    found = transactions(context)
    assert {name: item.state for name, item in found.items()} == {
        "recovered-7-3": PREPARE_COMMIT,
        "recovered-8-3": PREPARE_ABORT,
    }
    assert committed_version.read(context, "app") is None


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


def test_a_producer_id_that_was_open_at_two_epochs_leads_to_the_first(service: Service) -> None:
    """Damage before the loss: each is decided by itself. The later one does not count as hanging until it is ended."""
    build(service, {(TOPIC, 0): [batch(7, 5)], (TOPIC, 1): [batch(7, 3)]})
    context, _ = rebuilt(service)
    assert set(transactions(context)) == {"recovered-7-3", "recovered-7-5"}
    known, _ = find(context, [7])[7]
    assert known is not None
    assert known.transactional_id == "recovered-7-3"


def test_a_transaction_open_below_a_state_object_is_found(service: Service) -> None:
    build(service, {(TOPIC, 0): [batch(7, 3), data("a"), data("b")]})
    service.log.partitions.trim(TOPIC, 0, 2)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 0))
    context, _ = rebuilt(service)
    assert transactions(context)["recovered-7-3"].partitions[0].partitions == (0,)


def test_open_transactions_of_a_deleted_topic_are_not_recovered(service: Service) -> None:
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


def served(service: Service) -> Service:
    """Lose all items, rebuild them, and sweep once as the serving processes do."""
    items = SqliteItemStore(":memory:")
    rebuild(Context(service.objects.store, items, service.runtime, REGION))
    service.items.store.close()
    service.items.store = items
    service.log = service.another()
    report = swept(service, is_thorough=True)
    assert (report.is_whole, report.problems) == (True, [])
    return service


@pytest.mark.parametrize("is_shown", [True, False])
def test_a_transaction_whose_end_died_between_two_markers_has_one_outcome_after_a_loss(
    service: Service, is_shown: bool
) -> None:
    """Its decision is lost with the items. Its first COMMIT, where that landed, decides for all partitions."""
    one = Producer(service, service.another())
    one.begin()
    one.send("a", 0)
    one.send("b", 1)
    creates = iter([True] if is_shown else [])

    def die(operation: str, key: str) -> None:
        if operation == "create" and not next(creates, False):
            raise Died

    service.objects.on_call = die
    with pytest.raises(Died):
        one.outcome(is_commit=True)
    service.objects.on_call = None
    served(service)
    expected = "commit" if is_shown else "abort"
    assert outcomes(service, 0) == outcomes(service, 1) == [(expected, 1)]
    assert (committed(service, 0), committed(service, 1)) == ((["a"], ["b"]) if is_shown else ([], []))


def test_a_producer_whose_transaction_was_recovered_begins_anew_under_another_producer_id(service: Service) -> None:
    one = Producer(service, service.another())
    one.begin()
    one.send("a", 0)
    served(service)
    before = one.pair
    one.log = service.log
    with pytest.raises(InvalidProducerIdMappingError):
        one.send("b", 1)
    assert one.begin().producer_id > before.producer_id
    one.send("c", 0)
    one.end()
    assert committed(service) == ["c"]


def test_every_epoch_of_a_producer_id_is_ended(service: Service) -> None:
    build(service, {(TOPIC, 0): [batch(7, 5)], (TOPIC, 1): [batch(7, 3)]})
    served(service)
    assert (outcomes(service, 0), outcomes(service, 1)) == ([("abort", 6)], [("abort", 4)])
