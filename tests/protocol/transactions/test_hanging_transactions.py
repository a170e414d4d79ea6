"""An operator aborts a transaction that hangs, and no other ("Hanging transactions")."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline import limits
from fenceline.errors import (
    ConcurrentTransactionsError,
    InvalidProducerEpochError,
    InvalidTxnStateError,
    OutcomeUnknownError,
)
from fenceline.format import keys
from fenceline.model.transaction import COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT, ProducerPair
from fenceline.service.log import Log
from fenceline.transactions.hanging import abort_hanging
from fenceline.transactions.item import ProducerIdItem, TopicPartitions, TransactionItem
from tests.support.service import (
    TOPIC,
    LogBuilder,
    Service,
    data,
    is_unavailable,
    never_arrives,
    partition_of,
    partitions_of,
    serve,
    slept_before,
)
from tests.support.transacting import Producer, committed, opened, outcomes

PAIR = ProducerPair(70, 3)


@pytest.fixture
def service() -> Iterator[Service]:
    """Lend a log in which a batch of the pair is open in partition 0, and what comes before it is plain."""
    made = serve()
    made.log.topics.create(TOPIC, partitions=2)
    builder = LogBuilder(topic_id=made.topic_id())
    builder.add(data("plain"))
    builder.add(data("open", producer=(*PAIR, 0), is_transactional=True))
    builder.store(made.objects.store)
    yield made
    made.close()


def store(service: Service, state: str, epoch: int, *partitions: int) -> None:
    """Store the items of a transaction of the pair's producer, in which these partitions are named."""
    named = (TopicPartitions(service.topic_id(), TOPIC, partitions),) if partitions else ()
    now_ms = service.runtime.now_ms()
    item = TransactionItem("orders", PAIR.producer_id, epoch, state, 60_000, started_at=now_ms, partitions=named)
    known = ProducerIdItem(PAIR.producer_id, "orders", 0)
    service.items.store.write([item.put(service.runtime), known.put(service.runtime)])


def stored(service: Service) -> str:
    key = keys.transaction_item("orders")
    return str(service.items.store.get([key])[key].value["state"])


def abort(service: Service, pair: ProducerPair = PAIR, partition: int = 0, log: Log | None = None) -> None:
    log = log or service.another()
    until_ms = service.runtime.monotonic_ms() + 5_000
    abort_hanging(partitions_of(log), partition_of(log, partition), pair, until_ms)


def test_a_transaction_without_a_coordinator_is_aborted_with_the_bumped_epoch(service: Service) -> None:
    abort(service)
    assert (opened(service), outcomes(service)) == ([], [("abort", 4)])
    assert committed(service) == ["plain"]


@pytest.mark.parametrize(("state", "epoch"), [(COMPLETE_COMMIT, 4), (ONGOING, 4), (ONGOING, 9)])
def test_a_transaction_older_than_its_coordinators_is_aborted(service: Service, state: str, epoch: int) -> None:
    """Also beside a later transaction of the producer, which keeps its state."""
    store(service, state, epoch, 0, 1)
    abort(service)
    assert (outcomes(service), outcomes(service, 1), stored(service)) == ([("abort", 4)], [], state)


@pytest.mark.parametrize("partitions", [(0,), (1,), ()])
def test_an_ongoing_transaction_is_not_torn_apart(service: Service, partitions: tuple[int, ...]) -> None:
    """Whether it names this partition or not: its time-out, or an id request, ends it whole."""
    store(service, ONGOING, PAIR.producer_epoch, *partitions)
    with pytest.raises(InvalidTxnStateError, match="does not hang"):
        abort(service)
    assert (opened(service), outcomes(service), stored(service)) == ([PAIR.producer_id], [], ONGOING)


@pytest.mark.parametrize("pair", [ProducerPair(70, 2), ProducerPair(70, 4), ProducerPair(71, 3)])
def test_a_transaction_not_open_here_at_that_epoch_is_refused(service: Service, pair: ProducerPair) -> None:
    """Before the items are read: what its coordinator has prepared is left to others."""
    store(service, PREPARE_COMMIT, 4, 0)
    with pytest.raises(InvalidTxnStateError, match="no open transaction"):
        abort(service, pair)
    with pytest.raises(InvalidTxnStateError, match="no open transaction"):
        abort(service, PAIR, partition=1)
    assert (outcomes(service), stored(service)) == ([], PREPARE_COMMIT)


def test_a_transaction_of_another_producer_id_of_its_id_is_left_alone(service: Service) -> None:
    """The id got another producer id after the last epoch."""
    item = TransactionItem("orders", 80, 4, PREPARE_COMMIT, 60_000)
    known = ProducerIdItem(PAIR.producer_id, "orders", 0)
    service.items.store.write([item.put(service.runtime), known.put(service.runtime)])
    abort(service)
    assert (outcomes(service), stored(service)) == ([("abort", 4)], PREPARE_COMMIT)


@pytest.mark.parametrize(("state", "outcome_"), [(PREPARE_COMMIT, "commit"), (PREPARE_ABORT, "abort")])
def test_a_prepared_transaction_is_finished_as_it_was_decided(service: Service, state: str, outcome_: str) -> None:
    """It is not aborted by hand: nothing is open here any longer, and that is the answer."""
    store(service, state, 4, 0, 1)
    with pytest.raises(InvalidTxnStateError, match="no open transaction"):
        abort(service)
    assert outcomes(service) == outcomes(service, 1) == [(outcome_, 4)]
    assert stored(service).startswith("Complete")


def test_a_transaction_beside_a_prepared_one_elsewhere_is_aborted(service: Service) -> None:
    """It is a later one, and it does not name this partition."""
    store(service, PREPARE_COMMIT, 6, 1)
    abort(service)
    assert (outcomes(service), outcomes(service, 1)) == ([("abort", 4)], [("commit", 6)])
    assert stored(service) == COMPLETE_COMMIT


def test_a_prepared_transaction_that_cannot_be_finished_is_left(service: Service) -> None:
    store(service, PREPARE_COMMIT, 4, 0, 1)
    service.objects.always("create", is_unavailable, keys.log_prefix(service.topic_id(), 1))
    with pytest.raises(ConcurrentTransactionsError):
        abort(service)
    assert stored(service) == PREPARE_COMMIT


def test_a_transaction_that_ends_while_it_is_judged_is_not_ended_twice(service: Service) -> None:
    """Its marker lands between the look at the log and the look at the items: the ABORT is judged at its offset."""
    store(service, ONGOING, PAIR.producer_epoch, 0)

    def end() -> None:
        rival = Producer(service, service.another(), "orders", pair=PAIR)
        rival.outcome(is_commit=True)

    acts = iter([end])

    def before_the_items(operation: str, key: str) -> None:
        if operation == "get" and key == keys.transactional_id_item(PAIR.producer_id).sort:
            for act in acts:
                act()

    service.items.on_call = before_the_items
    with pytest.raises(InvalidTxnStateError):
        abort(service)
    service.items.on_call = None
    assert outcomes(service) == [("commit", 4)]
    assert committed(service) == ["plain", "open"]


def test_a_repeat_finds_nothing_open(service: Service) -> None:
    """Also a repeat after an answer that was lost: the transaction was aborted once."""
    service.objects.plan("create", *[never_arrives] * 100)
    with pytest.raises(OutcomeUnknownError):
        abort(service)
    service.objects._planned.clear()
    abort(service)
    with pytest.raises(InvalidTxnStateError):
        abort(service)
    assert outcomes(service) == [("abort", 4)]


def test_the_producer_goes_on_after_the_abort_and_its_late_batch_is_refused(service: Service) -> None:
    """A transaction at the next epoch, which found this partition blocked, is served."""
    store(service, COMPLETE_COMMIT, 4)
    one = Producer(service, service.another(), "orders", pair=ProducerPair(70, 4))
    with pytest.raises(InvalidTxnStateError):
        one.send("blocked")
    abort(service)
    one.send("next")
    with pytest.raises(InvalidProducerEpochError):
        Producer(service, service.another(), "orders", pair=PAIR).send("late")
    one.end()
    assert committed(service) == ["plain", "next"]


def test_the_last_epoch_of_data_has_a_marker(service: Service) -> None:
    builder = LogBuilder(topic_id=service.topic_id(), partition=1)
    builder.add(data("v", producer=(9, limits.PRODUCER_EPOCH_MAX, 0), is_transactional=True))
    builder.store(service.objects.store)
    abort(service, ProducerPair(9, limits.PRODUCER_EPOCH_MAX), partition=1)
    assert outcomes(service, 1) == [("abort", limits.MARKER_EPOCH_MAX)]


def test_a_marker_that_another_operator_appended_meanwhile_is_enough(service: Service) -> None:
    """The second is refused, for nothing is open any longer, and the log has one."""
    log = service.another()
    prefix = keys.log_prefix(service.topic_id(), 0)
    rivals = iter([lambda: abort(service)])
    service.objects.always("create", lambda call: slept_before(next(rivals, lambda: None))(call), prefix)
    with pytest.raises(InvalidTxnStateError, match="no open transaction"):
        abort(service, log=log)
    assert outcomes(service) == [("abort", 4)]


def test_an_epoch_that_is_no_longer_the_open_one_is_refused_at_the_markers_own_offset(service: Service) -> None:
    """Between the look and the ABORT another operator was faster, and the producer's next transaction began here."""
    store(service, COMPLETE_COMMIT, 4)
    later = Producer(service, service.another(), "orders", pair=ProducerPair(70, 4))

    def rival() -> None:
        abort(service)
        later.send("next")

    acts = iter([rival])

    def behind_the_look(operation: str, key: str) -> None:
        if operation == "get" and key == keys.transactional_id_item(PAIR.producer_id).sort:
            for act in acts:
                act()

    service.items.on_call = behind_the_look
    with pytest.raises(InvalidTxnStateError, match="no open transaction"):
        abort(service)
    service.items.on_call = None
    assert (outcomes(service), opened(service)) == ([("abort", 4)], [PAIR.producer_id])
    later.end()
    assert committed(service) == ["plain", "next"]
