"""Ten minutes of silence in three deployed regions: nothing is written, and only the schedules cause requests (I24).

Rule: the regions have each other's records, an aborted tail, a subscription that was acknowledged to the end, and one
that never was. Then no client sends a request. Each request is counted, and each minute must have exactly those that
its schedules cause.

Rule: the sweeper is no part of replication. It makes and deletes an object for the store's time, and writes its
position. It does the same where there are no peers.

Not here: how functions are called (``tests.support.deployed``), and what silence costs (``test_cost_regions``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from fenceline.model.requests import Acknowledgement, ReadRequest
from tests.support.deployed import (
    CLIENT,
    COMPACTOR,
    LOOK,
    NOTIFIER,
    SCHEDULE,
    SEND,
    SWEEPER,
    WRITES,
    Deployment,
    Look,
    Minute,
    Request,
)
from tests.support.transacting import Producer

pytestmark = pytest.mark.xdist_group("silence")  # each deployment is watched once

REGIONS = ("a", "b", "c")
CONSUMED, PLAIN, LOCAL = "orders", "plain", "local"  # with replicated subscriptions, without, and in one region alone
PARTITIONS = {CONSUMED: 3, PLAIN: 6, LOCAL: 2}
MINUTES = 10
LOOK_MINUTES = 5
SETTLING_MINUTES = 2  # after the last request of a client: what processes remember of it is a minute old then

# What is asked in the own region, where processes are warm.
OF_SCHEDULE = {"items.query": 1}  # for the topics
OF_SCHEDULE_BY_TOPIC = {"items.get": 1, "items.query": 1}  # for its subscriptions, where other regions have it
OF_LOOK = {"items.get": 3, "items.query": 1, "objects.get": 1, "objects.list": 1}
OF_LOOK_BY_CURSORS = {"items.get": 1}  # where there are any
# What a look asks of each peer, and what that costs there.
OF_PEER = {"peer.topic": 1, "peer.segments": 1, "items.get": 2, "objects.get": 1, "objects.list": 1}
OF_PEER_BY_TOPIC = {"items.get": 1}  # once a minute
OF_SWEEPER = {"objects.create": 1, "objects.delete": 1, "items.write": 1}


@dataclass
class Silence:
    """What happened in each minute."""

    is_cold: bool
    minutes: Sequence[Minute]

    def requests(self, *functions: str) -> list[Counter[Request]]:
        """Return those of these functions, by minute."""
        return [
            Counter({one: count for one, count in minute.requests.items() if one.function in functions})
            for minute in self.minutes
        ]


@pytest.fixture(scope="module", params=["warm", "cold"])
def silence(request: pytest.FixtureRequest) -> Iterator[Silence]:
    deployment = Deployment.of(*REGIONS)
    write(deployment)
    deployment.minute()
    deployment.minute()
    acknowledge(deployment)
    for _ in range(SETTLING_MINUTES):
        deployment.minute()
    deployment.is_cold = request.param == "cold"
    silent = Silence(deployment.is_cold, [deployment.minute() for _ in range(MINUTES)])
    check_all_arrived(deployment)
    yield silent
    deployment.close()


def write(deployment: Deployment) -> None:
    for topic in (CONSUMED, PLAIN):
        deployment.world.create(topic, partitions=PARTITIONS[topic])
    for name in ("billing", "never"):
        deployment["a"].log.subscriptions.subscribe(CONSUMED, name, replicate_subscription_state=True)
    for name in REGIONS:
        region = deployment[name]
        region.log.topics.create(LOCAL, partitions=PARTITIONS[LOCAL])
        for topic, partitions in PARTITIONS.items():
            for partition in range(partitions):
                region.append(name, name, topic=topic, partition=partition)
    producer = Producer(deployment["b"].service, deployment["b"].log)
    for topic in (CONSUMED, PLAIN):
        producer.begin()
        producer.add(0, topic=topic)
        producer.send("aborted", topic=topic)
        producer.end(is_commit=False)


def acknowledge(deployment: Deployment) -> None:
    subscriptions = deployment["a"].log.subscriptions
    for partition in range(PARTITIONS[CONSUMED]):
        read = ReadRequest(max_records=100, is_read_committed=True)
        page = subscriptions.read(CONSUMED, partition, "billing", read)
        assert len(page.records) == 2 * len(REGIONS)
        subscriptions.acknowledge(CONSUMED, partition, "billing", Acknowledgement(page.records[-1].offset))


def check_all_arrived(deployment: Deployment) -> None:
    for name in REGIONS:
        region = deployment[name]
        for topic in (CONSUMED, PLAIN):
            for partition in range(PARTITIONS[topic]):
                values = region.values(topic, partition, is_read_committed=True)
                assert sorted(values) == sorted(2 * REGIONS), (name, topic, partition)
        for partition in range(PARTITIONS[CONSUMED]):
            read = ReadRequest(max_records=100, is_read_committed=True)
            page = region.log.subscriptions.read(CONSUMED, partition, "billing", read)
            assert not page.records, (name, partition)


def test_nothing_is_written(silence: Silence) -> None:
    """No marker, no replicated record, no lease, no note. The sweeper's are those of a region without peers."""
    for minute in silence.minutes:
        written = Counter({one: count for one, count in minute.requests.items() if one.what in WRITES})
        assert written == Counter(
            {Request(name, SWEEPER, name, what): n for name in REGIONS for what, n in OF_SWEEPER.items()}
        )


def test_the_schedule_alone_sends_messages_one_for_each_look(silence: Silence) -> None:
    for minute in silence.minutes:
        sent = {one: count for one, count in minute.requests.items() if one.what == SEND}
        assert sent == {Request(name, SCHEDULE, name, SEND): len(looks_of(minute, name)) for name in REGIONS}
        assert not any(one.function in (CLIENT, NOTIFIER) for one in minute.requests)


def test_a_consumed_partition_is_looked_at_each_minute_and_any_other_one_once_in_five(silence: Silence) -> None:
    for at in range(MINUTES - LOOK_MINUTES + 1):
        looks: Counter[Look] = sum((minute.looks for minute in silence.minutes[at : at + LOOK_MINUTES]), Counter())
        assert looks == {
            Look(name, topic, partition): times
            for name in REGIONS
            for topic, times in ((CONSUMED, LOOK_MINUTES), (PLAIN, 1))
            for partition in range(PARTITIONS[topic])
        }


def test_each_look_asks_each_peer_once_and_each_request_is_of_the_schedule(silence: Silence) -> None:
    for minute, requests in zip(silence.minutes, silence.requests(SCHEDULE, LOOK), strict=True):
        if silence.is_cold:
            # A new process also compares the source's history with what was taken.
            assert asked(requests) == asked(expected(minute)) + segments(expected(minute))
        else:
            assert requests == expected(minute)


def test_no_minute_asks_more_than_that_of_the_same_turn_before(silence: Silence) -> None:
    found = silence.requests(SCHEDULE, LOOK, SWEEPER)
    assert found[LOOK_MINUTES:] == found[:-LOOK_MINUTES]
    assert sum(map(Counter.total, silence.requests(COMPACTOR))) <= len(REGIONS)  # one listing in 15 minutes


def looks_of(minute: Minute, region: str) -> list[Look]:
    return [one for one in minute.looks.elements() if one.region == region]


def asked(requests: Counter[Request]) -> Counter[Request]:
    return Counter({one: count for one, count in requests.items() if one.what.startswith("peer.")})


def segments(requests: Counter[Request]) -> Counter[Request]:
    return Counter({one: count for one, count in requests.items() if one.what == "peer.segments"})


def expected(minute: Minute) -> Counter[Request]:
    """Return the requests of a minute in which the schedules name these partitions, where processes are warm."""
    found: Counter[Request] = Counter()

    def add(by: str, function: str, to: Iterable[str], each: dict[str, int], times: int = 1) -> None:
        for other in to:
            for what, count in each.items():
                found[Request(by, function, other, what)] += times * count

    for name in REGIONS:
        peers = [other for other in REGIONS if other != name]
        looks = looks_of(minute, name)
        add(name, SCHEDULE, [name], OF_SCHEDULE)
        add(name, SCHEDULE, [name], OF_SCHEDULE_BY_TOPIC, len((CONSUMED, PLAIN)))
        add(name, SCHEDULE, [name], {SEND: 1}, len(looks))
        add(name, LOOK, [name], OF_LOOK, len(looks))
        add(name, LOOK, [name], OF_LOOK_BY_CURSORS, sum(one.topic == CONSUMED for one in looks))
        add(name, LOOK, peers, OF_PEER, len(looks))
        add(name, LOOK, peers, OF_PEER_BY_TOPIC, len({one.topic for one in looks}))
    return found
