"""Batches that would wait in the queue: their admission is asked for meanwhile, and decides nothing alone (I12)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from fenceline import errors
from fenceline.append.entries.batch import AppendRequest
from fenceline.model.results import Appended
from tests.support.coordinating import Coordinator
from tests.support.patience import PATIENCE_S
from tests.support.service import TOPIC, Gate, Service, append


class Waiting:
    """Batches that are sent while an earlier group of the same process is being created."""

    def __init__(self, service: Service, pool: ThreadPoolExecutor) -> None:
        self.service = service
        self.pool = pool
        self.gate = Gate()
        self.txn = Coordinator(service)
        self.txn.serves(service.log)
        self.txn.send(service.log, "before")  # from now on the process knows the producer
        self.txn.end(service.log)

    def blocked(self, act: Callable[[], object]) -> Future[object]:
        """Do ``act``, whose create waits for the gate, and return once it waits."""
        self.service.objects.plan("create", self.gate)
        first = self.pool.submit(act)
        assert self.gate.reached.wait(PATIENCE_S)
        return first

    def send(self, request: AppendRequest) -> Future[Appended | None]:
        """Send a batch, and return once the coordinator was asked for it."""
        asked = len(self.txn.asked)
        sent = self.pool.submit(self.service.log.append, TOPIC, 0, request)
        for _ in range(int(PATIENCE_S * 1000)):
            if len(self.txn.asked) > asked:
                return sent
            self.service.runtime.sleep_ms(1)
        raise AssertionError("the coordinator was not asked")


@pytest.fixture
def waiting(live_service: Service) -> Iterator[Waiting]:
    with ThreadPoolExecutor(4) as pool:
        made = Waiting(live_service, pool)
        try:
            yield made
        finally:
            made.gate.opened.set()


def test_a_batch_asks_while_the_group_before_it_is_created_and_asks_once(waiting: Waiting) -> None:
    service, txn = waiting.service, waiting.txn
    first = waiting.blocked(lambda: append(service.log, "plain"))
    sent = waiting.send(txn.batch("a"))
    assert not sent.done()
    waiting.gate.opened.set()
    first.result(PATIENCE_S)
    assert sent.result(PATIENCE_S) is not None
    assert len(txn.asked) == 2
    assert service.values() == [b"before", b"plain", b"a"]


def test_a_batch_that_lands_meanwhile_overrules_a_refused_admission(waiting: Waiting) -> None:
    """The same batch was sent twice, and its transaction is decided: the second one is a duplicate of the first."""
    service, txn = waiting.service, waiting.txn
    batch = txn.batch("a")
    first = waiting.blocked(lambda: service.log.append(TOPIC, 0, batch))
    txn.decide()
    again = waiting.send(batch)
    waiting.gate.opened.set()
    first.result(PATIENCE_S)
    found = again.result(PATIENCE_S)
    assert found is not None
    assert found.duplicate


def test_a_marker_that_lands_meanwhile_refuses_what_was_admitted(waiting: Waiting) -> None:
    service, txn = waiting.service, waiting.txn
    first = waiting.blocked(lambda: append(service.log, "plain"))
    sent = waiting.send(txn.batch("late"))
    txn.end(service.another())  # it takes the offset at which the group waits
    waiting.gate.opened.set()
    first.result(PATIENCE_S)
    with pytest.raises(errors.InvalidProducerEpochError):
        sent.result(PATIENCE_S)
    assert service.values() == [b"before", b"plain"]
