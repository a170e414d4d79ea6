"""One transactional id in several threads of several processes: each instance fences the one before it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise

import pytest

from fenceline.errors import FixError, RetryError
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service, serve_in_real_time
from tests.support.transacting import Producer, committed, opened, outcomes

PARTITIONS = (0, 1, 2)
ROUNDS = 5


class Instance:
    """One instance of the producer: transactions, until another instance fences it; then it asks for an id again."""

    def __init__(self, service: Service, log: Log, name: str) -> None:
        self.producer = Producer(service, log)
        self.name = name
        self.committed: list[str] = []

    def run(self) -> None:
        producer = self.producer
        for number in range(ROUNDS):
            value, is_commit = f"{self.name}-{number}", number % 3 != 2
            try:
                repeated(producer.begin)
                for partition in PARTITIONS:
                    repeated(partial(producer.send, value, partition))
                repeated(partial(producer.end, is_commit=is_commit))
            except FixError:
                continue  # fenced before its end: its transaction is aborted
            if is_commit:
                self.committed.append(value)


def repeated(request: Callable[[], object]) -> None:
    """Send a request until it has an answer."""
    while True:
        try:
            request()
        except RetryError:
            continue
        return


@pytest.mark.slow
def test_instances_that_fence_each_other_commit_what_they_acknowledged_and_nothing_else() -> None:
    service = serve_in_real_time(timeout_ms=300_000)
    service.log.topics.create(TOPIC, partitions=len(PARTITIONS))
    logs = [service.log, service.another()]
    instances = [Instance(service, logs[number % 2], f"{number}") for number in range(4)]
    with ThreadPoolExecutor(len(instances)) as pool:
        list(pool.map(Instance.run, instances))
    Producer(service, service.log).begin()
    expected = sorted(value for one in instances for value in one.committed)
    assert expected
    for partition in PARTITIONS:
        assert opened(service, partition) == []
        assert sorted(committed(service, partition)) == expected
        epochs = [epoch for _, epoch in outcomes(service, partition)]
        assert all(before < after for before, after in pairwise(epochs))
    service.close()
