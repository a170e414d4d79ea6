"""The sweeper that meets a transaction dies, or meets a rival, at each moment of its run: one outcome, everywhere.

Protocol, "Ending a transaction" and "Meeting a transaction".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count

import pytest

from fenceline.errors import ConcurrentTransactionsError, InvalidTxnStateError, ProducerFencedError
from fenceline.model.transaction import COMPLETE_ABORT, COMPLETE_COMMIT
from fenceline.transactions.hanging import abort_hanging
from tests.support.service import TOPIC, Service, partition_of, partitions_of, serve
from tests.support.sweeping import Calls, Died, swept
from tests.support.transacting import TIMEOUT_MS, Producer, committed, opened, outcomes

Act = Callable[[Service, Producer], None]


def due() -> tuple[Service, Producer]:
    """Return a service with a transaction of two partitions, past its time-out, that only the items show."""
    service = serve()
    service.log.topics.create(TOPIC, partitions=2, config={"retention.ms": -1})
    one = Producer(service, service.another())
    one.begin()
    one.send("a", 0)
    one.send("b", 1)
    for partition in range(2):
        service.log.partitions.checkpoint(TOPIC, partition)
    swept(service)  # the first round is thorough
    service.runtime.advance(2 * TIMEOUT_MS)
    return service, one


def a_run(service: Service, one: Producer) -> None:
    swept(service)


def a_thorough_run(service: Service, one: Producer) -> None:
    swept(service, is_thorough=True)


def its_end(service: Service, one: Producer) -> None:
    """Commit as a producer whose END_TXN comes in time: the sweeper has not met the transaction."""
    one.outcome(is_commit=True)


def each_moment(act: Act, run: Act = a_run) -> Iterator[tuple[Service, Producer]]:
    """Yield the service after a run in which ``act`` happened at one of its moments, for each of them."""
    for at in count():
        service, one = due()

        def what(service: Service = service, one: Producer = one) -> None:
            act(service, one)

        with Calls(service, at, what) as calls, suppress(Died):
            run(service, one)
        if calls.count <= at:
            service.close()
            return
        yield service, one
        service.close()


def check_one_outcome(service: Service, one: Producer) -> str:
    """Assert that, once the next run is over, the transaction has ended once and alike in both partitions."""
    report = swept(service, is_thorough=True)
    assert (report.is_whole, report.problems, report.transactions_hanging) == (True, [], 0)
    assert opened(service) == opened(service, 1) == []
    assert outcomes(service) == outcomes(service, 1)
    ((outcome, epoch),) = outcomes(service)
    assert epoch == 1
    is_commit = outcome == "commit"
    assert (committed(service), committed(service, 1)) == ((["a"], ["b"]) if is_commit else ([], []))
    assert one.stored().state == (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)
    return outcome


@pytest.mark.slow
def test_a_sweeper_that_dies_anywhere_leaves_what_the_next_run_ends() -> None:
    def die(service: Service, one: Producer) -> None:
        raise Died

    for service, one in each_moment(die, a_thorough_run):
        assert check_one_outcome(service, one) == "abort"


@pytest.mark.slow
def test_an_end_at_any_moment_of_the_sweeper_s_meeting_wins_or_is_fenced() -> None:
    """I10: one write decides, and both read which."""
    answers: list[str] = []

    def end(service: Service, one: Producer) -> None:
        try:
            one.outcome(is_commit=True)
            answers.append("commit")
        except (ProducerFencedError, ConcurrentTransactionsError):
            answers.append("abort")

    for service, one in each_moment(end):
        assert check_one_outcome(service, one) == answers[-1]
    assert set(answers) == {"commit", "abort"}


@pytest.mark.slow
def test_two_sweepers_end_a_transaction_once() -> None:
    def sweep_too(service: Service, one: Producer) -> None:
        swept(service, is_thorough=True)

    for service, one in each_moment(sweep_too):
        assert check_one_outcome(service, one) == "abort"


@pytest.mark.slow
def test_an_abort_by_hand_at_any_moment_of_an_end_tears_nothing() -> None:
    """What is ongoing or prepared does not hang: neither before its decision, nor between its markers."""

    def abort(service: Service, one: Producer) -> None:
        log = service.another()
        with suppress(InvalidTxnStateError, ConcurrentTransactionsError):
            abort_hanging(partitions_of(log), partition_of(log), one.pair, service.runtime.monotonic_ms() + 5_000)

    for service, one in each_moment(abort, its_end):
        assert check_one_outcome(service, one) == "commit"
