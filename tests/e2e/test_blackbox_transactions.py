"""Transactions seen from outside, by the contract's requests: in memory, on moto, on `fenceline dev`, deployed.

Rule: this module runs before ``test_deployed``, whose last test destroys the region. Where a test waits for a time-out,
a slow machine may miss it before the test's requests are through. Then the test begins again with a longer one.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

from fenceline import Client, errors
from tests.e2e.conftest import Service
from tests.support.patience import PATIENCE_S

T = TypeVar("T")

TIMEOUTS_MS = (1_000, 8_000, 32_000)

_names = itertools.count(1)


@pytest.fixture
def client(service: Service) -> Client:
    return service.client


@pytest.fixture
def topics(client: Client) -> Iterator[tuple[str, str]]:
    """Make two topics."""
    made = [f"moved-{next(_names)}" for _ in range(2)]
    for name in made:
        client.create_topic(name, partitions=2)
    yield made[0], made[1]
    for name in made:
        client.delete_topic(name)


class Producer:
    """A producer with a transactional id, which is the same for no two tests."""

    def __init__(self, client: Client, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.id = f"mover {next(_names)}"
        body = {"transactional_id": self.id, "transaction_timeout_ms": timeout_ms}
        self.pair = client._call("POST", "/v1/producer-ids", "repeatable", body=body)

    def post(self, what: str, **fields: Any) -> dict[str, Any]:
        path = f"/v1/transactions/{self.id.replace(' ', '%20')}/{what}"
        return self.client._call("POST", path, "repeatable", body={**self.pair, **fields})

    def add_group(self, group: str) -> None:
        path = f"/v1/transactions/{self.id.replace(' ', '%20')}/groups"
        self.client._transport.request("POST", path, effect="repeatable", body={**self.pair, "group": group})

    def produce(self, topic: str, value: str, partition: int = 0) -> None:
        body = {
            "records": [{"value": value}],
            "producer": {**self.pair, "sequence": 0},
            "transactional_id": self.id,
        }
        self.client._call("POST", f"/v1/topics/{topic}/partitions/{partition}/records", "repeatable", body=body)

    def end(self, result: str) -> None:
        self.pair = self.post("end", result=result)


def values(client: Client, topic: str, partition: int = 0) -> list[str]:
    """Return what is committed."""
    params = {"offset": 0, "isolation": "read_committed"}
    page = client._call("GET", f"/v1/topics/{topic}/partitions/{partition}/records", "none", params=params)
    return [record["value"] for record in page["records"]]


def offsets(client: Client, group: str, **params: Any) -> list[int]:
    page = client._call("GET", f"/v1/groups/{group}/offsets", "none", params=params, retry_ms=0)
    return [one["offset"] for one in page["offsets"]]


def eventually(look: Callable[[], T], wanted: T) -> T:
    """Return what ``look`` finds as soon as that is what is wanted: what is due is met by a look a moment later."""
    deadline = time.monotonic() + PATIENCE_S
    while (found := look()) != wanted and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def begun(client: Client, begin: Callable[[Producer], None]) -> Producer:
    """Return a producer that is gone after ``begin``, as its transaction's time-out will say."""
    for timeout_ms in TIMEOUTS_MS:
        producer = Producer(client, timeout_ms)
        try:
            begin(producer)
        except (errors.ProducerFencedError, errors.InvalidProducerEpochError):
            continue
        return producer
    raise AssertionError("the machine is too slow")


def test_a_commit_over_two_topics_and_a_groups_offsets_shows_as_a_whole(
    client: Client, topics: tuple[str, str]
) -> None:
    source, target = topics
    for value in ("in-0", "in-1"):
        client._call("POST", f"/v1/topics/{source}/partitions/0/records", "once", body={"records": [{"value": value}]})
    group = f"movers-{next(_names)}"
    producer = Producer(client)
    places = [{"topic": target, "partition": 0}, {"topic": target, "partition": 1}]
    assert producer.post("partitions", partitions=places) == {"results": places}
    producer.produce(target, "a")
    producer.produce(target, "b", 1)
    producer.produce(source, "c")
    producer.add_group(group)
    producer.post("offsets", group=group, offsets=[{"topic": source, "partition": 0, "offset": 2}])
    assert (values(client, target), values(client, target, 1), values(client, source)) == ([], [], ["in-0", "in-1"])
    assert offsets(client, group) == []
    with pytest.raises(errors.UnstableOffsetCommitError):
        offsets(client, group, require_stable=True)
    producer.end("commit")
    assert (values(client, target), values(client, target, 1)) == (["a"], ["b"])
    assert values(client, source) == ["in-0", "in-1", "c"]
    assert offsets(client, group, require_stable=True) == [2]


def test_an_aborted_transaction_leaves_nothing_and_the_next_one_follows(
    client: Client, topics: tuple[str, str]
) -> None:
    producer = Producer(client)
    for name in topics:
        producer.produce(name, "no")
    producer.end("abort")
    for name in topics:
        producer.produce(name, "yes")
    producer.end("commit")
    assert [values(client, name) for name in topics] == [["yes"], ["yes"]]


def test_a_second_instance_fences_the_first(client: Client, topics: tuple[str, str]) -> None:
    first = Producer(client)
    first.produce(topics[0], "lost")
    again = client._call("POST", "/v1/producer-ids", "repeatable", body={"transactional_id": first.id})
    assert again["producer_epoch"] > first.pair["producer_epoch"]
    with pytest.raises(errors.ProducerFencedError):
        first.end("commit")
    assert values(client, topics[0]) == []


def test_a_reader_ends_a_transaction_whose_time_is_over(client: Client, topics: tuple[str, str]) -> None:
    """Its producer is gone. The function that reads writes the markers in every partition."""

    def begin(producer: Producer) -> None:
        for name in topics:
            producer.produce(name, "lost")

    producer = begun(client, begin)
    for name in topics:
        client._call("POST", f"/v1/topics/{name}/partitions/0/records", "once", body={"records": [{"value": "after"}]})
    for name in topics:
        assert eventually(lambda name=name: values(client, name), ["after"]) == ["after"]  # type: ignore[misc]
    with pytest.raises(errors.ProducerFencedError):
        producer.end("commit")


def test_a_look_at_stable_offsets_ends_a_transaction_whose_time_is_over(
    client: Client, topics: tuple[str, str]
) -> None:
    group = f"movers-{next(_names)}"
    client._call("POST", f"/v1/topics/{topics[0]}/partitions/0/records", "once", body={"records": [{"value": "v"}]})

    def begin(producer: Producer) -> None:
        producer.add_group(group)
        producer.post("offsets", group=group, offsets=[{"topic": topics[0], "partition": 0, "offset": 1}])

    producer = begun(client, begin)

    def stable() -> list[int] | None:
        try:
            return offsets(client, group, require_stable=True)
        except errors.UnstableOffsetCommitError:
            return None

    assert eventually(stable, []) == []
    with pytest.raises(errors.ProducerFencedError):
        producer.end("commit")


def test_transactions_of_several_producers_at_once_show_whole_or_not_at_all(
    service: Service, topics: tuple[str, str]
) -> None:
    """Each writes its number to both topics, and every second one aborts."""

    def move(number: int) -> None:
        with service.another_client() as client:
            producer = Producer(client)
            for _ in range(3):
                for name in topics:
                    producer.produce(name, f"{number}")
                producer.end("commit" if number % 2 else "abort")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(move, range(4)))
    for name in topics:
        assert sorted(values(service.client, name)) == ["1", "1", "1", "3", "3", "3"]
