"""The ends of transactions: what each answer, or none, says about the transaction, and about its producer."""

from contextlib import suppress

import httpx
import pytest

from fenceline import Client, CommitOutcomeUnknownError, CommittedOffset, TransactionAbortedError, errors
from fenceline.client.transactions.instance import ABORT_MS
from fenceline.client.transport import BACKOFF, TRY_MS
from fenceline.format import keys
from fenceline.ports import Delete
from tests.support.runtime import AheadRuntime
from tests.support.wire import Wire, answers, loses_the_answer, loses_the_request
from tests.unit.client.transactions.blocks import TOPICS, block, fence, raises

AWAY = answers(errors.StoreUnavailableError("the store is away"))
BUSY = answers(errors.ConcurrentTransactionsError("it is being finished"))
ALWAYS = 1_000  # times: more than any deadline allows


def producer_of(service, **options):
    return service.client().transactional_producer("id", **options)


def sends_a(txn):
    txn.send("t", value=b"a").result(60_000)


def committed(service):
    return [value for _, value in service.committed]


def write(producer, value):
    with producer.transaction() as txn:
        txn.send("t", value=value)
    return txn


def results(service):
    return [body["result"] for body in service.values("endTransaction")]


def time_out(service, pair):
    """Let a transaction be open for too long, and a request of its producer meet it."""
    service.clock.ahead_ms += 61_000
    with pytest.raises(errors.ProducerFencedError):
        service.outside.add_group_to_transaction("id", pair, "g")


def forget(service):
    """Do what a sweeper does with an id by which nothing was written for 7 days."""
    key = keys.transaction_item("id")
    items = service.service.items
    items.write([Delete(key, items.get([key])[key].version)])


def fences(service, first):
    """Return a fault: another instance begins once ``first`` has done its part, and the answer is that of ``first``."""

    def fault(carry_out):
        try:
            return first(carry_out)
        finally:
            fence(service)

    return fault


def interrupts(carry_out=lambda: None):
    if callable(carry_out):
        carry_out()
    raise KeyboardInterrupt


def test_a_commit_is_sent_again_until_it_is_answered():
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [loses_the_request, loses_the_answer, BUSY, AWAY]
    with producer_of(service) as producer:
        write(producer, b"a")
        write(producer, b"b")

    assert committed(service) == [b"a", b"b"]
    assert results(service) == ["commit"] * 6


def test_a_producer_fenced_before_its_commit_knows_that_nothing_was_committed():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        txn = producer.transaction()
        with pytest.raises(errors.ProducerFencedError, match="this instance is fenced"):
            block(txn, sends_a, lambda _: fence(service))
        assert txn.outcome == "aborted"
        for _ in range(2):
            with pytest.raises(errors.ProducerFencedError), producer.transaction():
                pass

    assert committed(service) == []
    assert results(service) == ["commit"]


def test_a_transaction_that_was_open_for_too_long_is_aborted_and_its_producer_fenced():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        with pytest.raises(errors.ProducerFencedError):
            block(producer.transaction(), sends_a, lambda _: time_out(service, producer.pair))
        with pytest.raises(errors.ProducerFencedError), producer.transaction():
            pass

    with producer_of(service) as producer:
        write(producer, b"b")
    assert committed(service) == [b"b"]


def test_a_batch_of_a_fenced_instance_makes_the_blocks_end_say_so():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        fence(service)
        with pytest.raises(errors.ProducerFencedError), producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert txn.outcome == "aborted"

    assert results(service) == ["abort"]


@pytest.mark.parametrize(
    ("inside", "expected"),
    [(TransactionAbortedError("inside"), errors.ProducerFencedError), (KeyError("inside"), KeyError)],
)
def test_an_error_inside_the_block_that_the_abort_explains_is_replaced_and_any_other_is_not(inside, expected):
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        with pytest.raises(expected):
            block(producer.transaction(), sends_a, lambda _: fence(service), raises(inside))
        with pytest.raises(errors.ProducerFencedError), producer.transaction():
            pass


def test_offsets_of_a_fenced_instance_are_fatal_and_no_abort_is_sent():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        fence(service)
        with pytest.raises(errors.ProducerFencedError), producer.transaction() as txn:
            txn.send_offsets("g", [CommittedOffset("in", 0, 1)])

    assert results(service) == []


@pytest.mark.parametrize("first", [loses_the_answer, loses_the_request])
def test_a_producer_fenced_after_a_lost_commit_answer_cannot_know_the_outcome(first):
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [fences(service, first)]
    with producer_of(service) as producer:
        with pytest.raises(CommitOutcomeUnknownError) as caught, producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert (caught.value.is_fenced, txn.outcome) == (True, "unknown")
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            txn.commit()  # a further try learns nothing
        assert caught.value.is_fenced
        with pytest.raises(errors.FencelineError), producer.transaction():
            pass

    assert committed(service) == ([b"a"] if first is loses_the_answer else [])


def test_an_answer_from_behind_the_decision_leaves_the_outcome_open_too():
    """``CONCURRENT_TRANSACTIONS``: it is decided and not done. Then another instance began, which finished it."""
    service = Wire(*TOPICS)

    def decides(carry_out):
        carry_out()
        return BUSY(carry_out)

    service.faults["endTransaction"] = [fences(service, decides)]
    with producer_of(service) as producer:
        with pytest.raises(CommitOutcomeUnknownError) as caught, producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert caught.value.is_fenced

    assert committed(service) == [b"a"]


@pytest.mark.parametrize("fault", [loses_the_answer, loses_the_request, BUSY])
def test_a_commit_without_an_answer_ends_at_its_deadline_and_can_only_be_repeated(fault):
    service = Wire(*TOPICS)
    runtime = AheadRuntime()
    service.faults["endTransaction"] = [fault] * ALWAYS
    with service.client(runtime).transactional_producer("id", delivery_ms=60_000) as producer:
        before = sum(runtime.slept_ms)
        with pytest.raises(CommitOutcomeUnknownError) as caught, producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert 50_000 < sum(runtime.slept_ms) - before < 60_000
        assert (caught.value.is_fenced, txn.outcome) == (False, "unknown")
        with pytest.raises(CommitOutcomeUnknownError, match="call its commit"), producer.transaction():
            pass
        with pytest.raises(RuntimeError, match="is over"):
            txn.abort()

        service.faults["endTransaction"].clear()
        txn.commit()
        assert txn.outcome == "committed"
        write(producer, b"b")

    assert committed(service) == [b"a", b"b"]


def test_a_commit_that_hangs_is_given_up_when_its_time_is_over():
    service = Wire(*TOPICS)
    runtime = AheadRuntime()
    waited = []

    def hang(request):
        if not request.url.path.endswith("/end"):
            return service.handle_request(request)
        waited.append(request.extensions["timeout"]["read"] * 1_000)
        runtime.sleep_ms(waited[-1])
        raise httpx.ReadTimeout("the answer was lost")

    client = Client("http://fake", runtime=runtime, http=httpx.MockTransport(hang), timeout_ms=30_000)
    producer = client.transactional_producer("id", delivery_ms=2_000)
    with pytest.raises(CommitOutcomeUnknownError), producer.transaction() as txn:
        txn.send("t", value=b"a")
    assert sum(waited) <= 2_000


def test_a_commit_that_is_repeated_and_then_refused_stays_unknown():
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [loses_the_answer] * ALWAYS
    with producer_of(service) as producer:
        with pytest.raises(CommitOutcomeUnknownError), producer.transaction() as txn:
            txn.send("t", value=b"a")
        service.faults["endTransaction"].clear()
        fence(service)
        with pytest.raises(CommitOutcomeUnknownError) as caught:
            txn.commit()

    assert caught.value.is_fenced
    assert committed(service) == [b"a"]


def test_an_interrupt_during_a_commit_leaves_it_unknown_and_it_can_be_repeated():
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [interrupts]
    with producer_of(service) as producer:
        with pytest.raises(KeyboardInterrupt), producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert txn.outcome == "unknown"
        with pytest.raises(CommitOutcomeUnknownError), producer.transaction():
            pass
        txn.commit()

    assert committed(service) == [b"a"]


@pytest.mark.parametrize(
    "fault", [AWAY, answers(errors.NotAuthorizedError("no")), answers(errors.InvalidTxnStateError(""))]
)
def test_a_commit_that_was_surely_not_decided_is_aborted_before_the_next_begins(fault):
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [fault] * ALWAYS
    with producer_of(service) as producer:
        with pytest.raises(TransactionAbortedError), producer.transaction() as txn:
            txn.send("t", value=b"a")
        assert txn.outcome == "aborted"
        service.faults["endTransaction"].clear()
        write(producer, b"b")

    assert committed(service) == [b"b"]
    assert results(service)[-2:] == ["abort", "commit"]


@pytest.mark.parametrize("fault", [loses_the_answer, loses_the_request, AWAY, BUSY])
def test_an_abort_without_an_answer_is_given_up_soon_and_sent_again_before_the_next_begins(fault):
    service = Wire(*TOPICS)
    runtime = AheadRuntime()
    with service.client(runtime).transactional_producer("id") as producer:
        service.faults["endTransaction"] = [fault] * ALWAYS
        with suppress(KeyError), producer.transaction() as txn:
            txn.send("t", value=b"a").result(60_000)
            began = runtime.monotonic_ms()
            raise KeyError
        # It gives up where the next pause and try would end too late.
        assert runtime.monotonic_ms() - began >= ABORT_MS - BACKOFF.max_ms - TRY_MS
        assert sum(runtime.slept_ms) < ABORT_MS
        with pytest.raises(errors.FencelineError), producer.transaction():
            pass  # nothing is begun before it is known how the last one ended
        service.faults["endTransaction"].clear()
        write(producer, b"b")
        assert producer.pair.producer_epoch == 2

    assert committed(service) == [b"b"]
    assert service.count("createProducerId") == 1


def test_an_interrupt_during_an_abort_leaves_it_to_the_next_transaction():
    service = Wire(*TOPICS)
    service.faults["endTransaction"] = [interrupts]
    with producer_of(service) as producer:
        with pytest.raises(KeyboardInterrupt):
            block(producer.transaction(), sends_a, raises(KeyError()))
        write(producer, b"b")

    assert committed(service) == [b"b"]
    assert results(service) == ["abort", "abort", "commit"]


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_an_interrupt_just_before_an_end_is_sent_leaves_nothing_in_the_next_transaction(monkeypatch, end):
    """Its epoch may be in use at the service, so it must not serve another transaction."""
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        with monkeypatch.context() as patched:
            patched.setattr(producer._instance, end, interrupts)
            txn = producer.transaction()
            with pytest.raises(KeyboardInterrupt):
                block(txn, sends_a, *([raises(KeyError())] if end == "abort" else []))
        write(producer, b"b")
        if end == "commit":
            with pytest.raises(RuntimeError, match="another transaction was begun"):
                txn.commit()

    assert committed(service) == [b"b"]
    assert results(service) == ["abort", "commit"]


def test_an_instance_whose_id_is_no_longer_known_asks_by_its_pair():
    service = Wire(*TOPICS)
    with producer_of(service) as producer:
        write(producer, b"a")
        pair = producer.pair
        forget(service)
        with pytest.raises(TransactionAbortedError), producer.transaction() as txn:
            txn.send("t", value=b"b")
        service.faults["createProducerId"] = [loses_the_answer, loses_the_request]
        write(producer, b"c")

    assert committed(service) == [b"a", b"c"]
    asked = [(body.get("producer_id"), body.get("producer_epoch")) for body in service.values("createProducerId")]
    assert asked == [(None, None), pair, pair, pair]


def test_an_id_request_by_the_pair_without_an_answer_is_repeated_by_the_same_pair():
    """An epoch by the pair is given once; another request of this pair would look like another instance's."""
    service = Wire(*TOPICS)
    with producer_of(service, delivery_ms=1_000) as producer:
        service.faults["endTransaction"] = [
            answers(errors.InvalidProducerIdMappingError("")),
        ]
        with suppress(KeyError), producer.transaction() as txn:
            txn.send("t", value=b"a").result(60_000)
            raise KeyError
        service.faults["createProducerId"] = [loses_the_answer] * ALWAYS
        with pytest.raises(errors.FencelineError), producer.transaction():
            pass
        service.faults["createProducerId"].clear()
        write(producer, b"b")

    assert committed(service) == [b"b"]
    assert results(service) == ["abort", "commit"]


def test_a_producer_takes_over_from_one_that_left_a_transaction_open():
    service = Wire(*TOPICS)
    first = producer_of(service)
    abandoned = first.transaction().__enter__()
    abandoned.send("t", value=b"a").result(60_000)
    with producer_of(service, timeout_ms=5_000) as second:
        write(second, b"b")
    with pytest.raises(errors.ProducerFencedError):
        abandoned.commit()

    assert committed(service) == [b"b"]
    bodies = service.values("createProducerId")
    assert bodies[1] == {"transactional_id": "id", "transaction_timeout_ms": 5_000}
