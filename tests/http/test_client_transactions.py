"""Transactional producers of the client against the service itself, on a network that loses requests and answers.

Rule: a transaction shows once or never, as its producer was answered, whatever is lost and whichever instance fenced.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import dataclass, field

import httpx
import pytest

from fenceline import (
    Client,
    CommitOutcomeUnknownError,
    CommittedOffset,
    OpenTransaction,
    Record,
    TransactionAbortedError,
    TransactionalProducer,
    errors,
)
from fenceline_testing.service import Fenceline, in_memory
from tests.support.runtime import AheadRuntime

TOPICS = ("a", "b")
PARTITIONS = 3
LOST = 0.12  # of the requests, and as many of the answers
PATIENT_MS, HASTY_MS = 600_000, 1  # for which a producer sends again


class Lossy(httpx.BaseTransport):
    """A network that loses some requests, and some answers."""

    def __init__(self, inner: httpx.BaseTransport, chance: random.Random) -> None:
        self._inner = inner
        self._chance = chance
        self._lock = threading.Lock()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        with self._lock:
            drawn = self._chance.random()
        if drawn < LOST:
            raise httpx.ReadError("the request was lost")
        answer = self._inner.handle_request(request)
        if drawn < 2 * LOST:
            raise httpx.ReadTimeout("the answer was lost")
        return answer


@dataclass
class Outcomes:
    """What the producers of one transactional id were answered."""

    sent: Counter[str] = field(default_factory=Counter)  # records of each transaction
    committed: list[str] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)


class InTheMiddleError(Exception):
    """The error of a program in its transaction."""


class Program:
    """Instances of one transactional id, one after the other, each with some transactions."""

    def __init__(self, client: Client, name: str, chance: random.Random) -> None:
        self._client = client
        self._name = name
        self._chance = chance
        self.outcomes = Outcomes()

    def run(self, transactions: int) -> None:
        number = 0
        while number < transactions:
            patience_ms = self._chance.choice([PATIENT_MS, HASTY_MS])
            try:
                with self._client.transactional_producer(self._name, linger_ms=0, delivery_ms=patience_ms) as producer:
                    while number < transactions:
                        number += 1
                        self._one(producer, number)
            except errors.FencelineError:
                continue  # the next instance

    def _one(self, producer: TransactionalProducer, number: int) -> None:
        tag = f"{self._name}-{number}"
        txn = producer.transaction()
        try:
            with txn:
                for n in range(self._chance.randint(1, 4)):
                    where = self._chance.randrange(PARTITIONS)
                    txn.send(self._chance.choice(TOPICS), value=f"{tag}:{n}".encode(), partition=where)
                    self.outcomes.sent[tag] += 1
                txn.send_offsets(f"g-{self._name}", [CommittedOffset("in", 0, number)])
                self._disturb()
        except (InTheMiddleError, TransactionAbortedError):
            self.outcomes.aborted.append(tag)
        except CommitOutcomeUnknownError as error:
            self._ask_again(txn, tag, error)
        except errors.ProducerFencedError:
            self.outcomes.aborted.append(tag)
            raise
        except errors.FencelineError:
            assert txn.outcome == "not begun"
            raise
        else:
            self.outcomes.committed.append(tag)

    def _disturb(self) -> None:
        drawn = self._chance.random()
        if drawn < 0.2:
            raise InTheMiddleError
        if drawn < 0.3:
            self._client.transactional_producer_id(self._name)

    def _ask_again(self, txn: OpenTransaction, tag: str, error: CommitOutcomeUnknownError) -> None:
        assert txn.outcome == "unknown"
        if not error.is_fenced and self._chance.random() < 0.5:
            try:
                txn.commit()
            except CommitOutcomeUnknownError:
                pass
            else:
                self.outcomes.committed.append(tag)
                return
        self.outcomes.unknown.append(tag)
        raise error


def shown(client: Client) -> Counter[str]:
    """Return how often each value is in the log, as a reader of what is committed sees it."""
    values: Counter[str] = Counter()
    for topic in TOPICS:
        with client.reader(topic, isolation="read_committed") as reader:
            for _, record in reader:
                values[(record.value or b"").decode()] += 1
    return values


def run(lent: Fenceline, seed: int, programs: int, transactions: int) -> list[Outcomes]:
    for topic in TOPICS:
        lent.client.create_topic(topic, partitions=PARTITIONS)
    lent.client.create_topic("in")
    lent.client.produce("in", 0, [Record(b"x")] * 1_000)
    clients, running = [], []
    for n in range(programs):
        inner = lent.another_client()._transport._http._transport
        network = Lossy(inner, random.Random(f"{seed} network {n}"))
        clients.append(Client("http://lossy", http=network, runtime=AheadRuntime()))
        running.append(Program(clients[-1], f"id{n}", random.Random(f"{seed} program {n}")))
    threads = [threading.Thread(target=program.run, args=(transactions,)) for program in running]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n in range(programs):
        lent.client.transactional_producer_id(f"id{n}")  # ends what is left open
    return [program.outcomes for program in running]


def check(lent: Fenceline, outcomes: Outcomes, name: str) -> None:
    values = Counter({value: count for value, count in shown(lent.client).items() if value.startswith(f"{name}-")})
    tags = Counter(value.partition(":")[0] for value in values)
    assert set(values.values()) <= {1}
    assert tags == {tag: outcomes.sent[tag] for tag in tags}
    assert set(outcomes.committed) <= set(tags)
    assert not set(outcomes.aborted) & set(tags)
    assert set(tags) <= {*outcomes.committed, *outcomes.unknown}
    committed = lent.client.committed_offsets(f"g-{name}", require_stable=True)
    last = max((int(tag.partition("-")[2]) for tag in tags), default=None)
    assert [one.offset for one in committed] == ([] if last is None else [last])


@pytest.mark.parametrize("partitions", [1, 8, 32])
def test_a_transaction_takes_a_create_for_each_batch_and_each_marker_and_three_item_writes(partitions: int) -> None:
    with in_memory() as lent:
        lent.client.create_topic("a", partitions=partitions)
        with lent.client.transactional_producer("id", linger_ms=3_600_000) as producer:
            lent.service.meter.take()
            with producer.transaction() as txn:
                for n in range(partitions):
                    txn.send("a", value=b"x", partition=n)
            calls = lent.service.meter.take().calls

    assert (calls["objects.create"], calls["items.write"]) == (2 * partitions, 3)


@pytest.mark.parametrize("seed", range(3))
def test_each_transaction_shows_once_or_never_under_lost_answers(seed: int) -> None:
    with in_memory() as lent:
        for n, outcomes in enumerate(run(lent, seed, programs=2, transactions=8)):
            check(lent, outcomes, f"id{n}")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 140))
def test_each_of_many_transactions_shows_once_or_never_under_lost_answers(seed: int) -> None:
    with in_memory() as lent:
        for n, outcomes in enumerate(run(lent, seed, programs=3, transactions=30)):
            check(lent, outcomes, f"id{n}")
