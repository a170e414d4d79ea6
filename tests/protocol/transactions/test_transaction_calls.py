"""What a transaction costs its stores, counted over 1, 8 and 32 partitions (protocol, "Limits").

Rule: the process is warm. It knows the partitions and the producer, as after its first transaction.

Not here: how long the calls take, which the benchmark measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from fenceline.model.requests import ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import TopicPartition
from tests.support.patience import PATIENCE_S
from tests.support.service import TOPIC, Gate, Service, append, serve_in_real_time
from tests.support.transacting import ID, Producer

COUNTS = pytest.mark.parametrize("n", [1, 8, 32])
GROUP = "counters"


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer whose first transaction is over, over a topic of 40 partitions."""
    return warmed(Producer(wide, wide.log))


def warmed(producer: Producer) -> Producer:
    log = producer.log
    producer.begin()
    producer.add(*range(32))
    for partition in range(32):
        producer.send("warm", partition)
    producer.end()
    for partition in range(32):
        log.partitions.checkpoint(TOPIC, partition)  # so that none is due soon
    return producer


def calls_of(service: Service, act: Callable[[], object]) -> Counter[str]:
    before = service.count()
    act()
    return service.count() - before


def add(producer: Producer, n: int) -> None:
    places = [TopicPartition(TOPIC, partition) for partition in range(n)]
    assert not any(producer.log.transactions.add_partitions(ID, producer.pair, places))


def end(producer: Producer) -> None:
    producer.takes(producer.log.transactions.end(ID, producer.pair, True))


@COUNTS
def test_with_all_partitions_added_in_one_request_it_takes_n_creates_n_markers_and_3_writes(
    wide: Service, producer: Producer, n: int
) -> None:
    added = calls_of(wide, lambda: add(producer, n))
    assert added["items.write"] == 1
    sent = calls_of(wide, lambda: [producer.send("a", partition) for partition in range(n)])
    assert sent == {"objects.create": n, "items.get": n}  # a partition's first batch reads the item
    more = calls_of(wide, lambda: [producer.send("b", partition) for partition in range(n)])
    assert more == {"objects.create": n}
    assert calls_of(wide, lambda: end(producer)) == {"objects.create": n, "items.get": 1, "items.write": 2}


@COUNTS
def test_with_batches_side_by_side_and_no_addition_it_takes_4_writes_at_most(n: int) -> None:
    """The first batch's admission leads; those of all others wait for it meanwhile, and go in one write together."""
    service = serve_in_real_time(timeout_ms=300_000)
    service.log.topics.create(TOPIC, partitions=40)
    producer, gate = warmed(Producer(service, service.log)), Gate()
    service.items.plan("write", gate)
    before = service.count()
    with ThreadPoolExecutor(n) as pool:
        first = pool.submit(producer.send, "a", 0)
        assert gate.reached.wait(PATIENCE_S)
        others = [pool.submit(producer.send, "a", partition) for partition in range(1, n)]
        (line,) = service.log.producing.admissions._lines.values()
        while len(line.waiting) < len(others):
            service.runtime.sleep_ms(1)
        gate.opened.set()
        for one in (first, *others):
            one.result(PATIENCE_S)
    end(producer)
    made = service.count() - before
    assert made["objects.create"] == 2 * n
    assert made["items.write"] == (3 if n == 1 else 4)
    service.close()


@COUNTS
def test_offsets_take_a_write_for_the_group_one_for_each_send_and_one_for_each_cursor(
    wide: Service, producer: Producer, n: int
) -> None:
    transactions = wide.log.transactions

    def send(offset: int) -> None:
        offsets = [CommittedOffset(TOPIC, partition, offset) for partition in range(n)]
        transactions.send_offsets(ID, producer.pair, GROUP, offsets)

    for _ in range(2):  # the first time the cursors are made
        assert calls_of(wide, lambda: transactions.add_group(ID, producer.pair, GROUP))["items.write"] == 1
        assert [calls_of(wide, lambda offset=offset: send(offset))["items.write"] for offset in (0, 1)] == [1, 1]
        ended = calls_of(wide, lambda: end(producer))
        assert (ended["items.write"], ended["objects.create"]) == (2 + n, 0)


@pytest.mark.parametrize("wanted", [{"offset": 0}, {"tail_offset": 2}, {"timestamp": 0}])
def test_a_committed_read_of_data_without_transactions_makes_no_call_more(
    service: Service, wanted: dict[str, int]
) -> None:
    for value in "abcd":
        append(service.log, value)
    log = service.another()
    counts = []
    for is_committed in (False, True, False, True):
        request = ReadRequest(**wanted, is_read_committed=is_committed)
        counts.append(calls_of(service, lambda request=request: log.partitions.read(TOPIC, 0, request)))
    assert counts[2] == counts[3]
    assert counts[1] == counts[2]
