"""Members of a group as processes, killed, frozen and added under load, over three servers on one bucket and one table.

Rule: whatever happens, each record is handled, what is committed is committed once in order, no commit of a removed
member takes effect, and each partition soon has a member (protocol, "Groups": G1, G2, G3 and G6).
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fenceline import Client, Record
from fenceline.client.producer import Producer
from tests.processes.group_crew import GROUP, LONGEST_S, TOPIC, Crew
from tests.processes.group_story import REFUSALS, Look, compare
from tests.processes.test_faults import Server, places
from tests.servers.proxy import Proxy, proxied
from tests.servers.run import CREDENTIALS
from tests.support.patience import wait_until

SERVERS = 3
APPEND_S = 0.1  # between two batches
BATCH = 4  # records of one partition
LOOK_S = 0.5
RETRY_MS = 600_000


class Fleet:
    """The servers, each behind a proxy whose address stays: those of a dead server lead to the others, meanwhile."""

    def __init__(self, servers: list[Server], stack: ExitStack) -> None:
        self.servers = servers
        self._proxies = [stack.enter_context(proxied(server.url)) for server in servers]
        self._pool = stack.enter_context(ThreadPoolExecutor(1))
        self.urls = [proxy.url for proxy in self._proxies]

    def kill(self, number: int) -> Callable[[], None]:
        """Kill a server, and start it again; return what waits until it is there."""
        self.servers[number].kill()
        self._lead(self._proxies[number], (number + 1) % SERVERS)

        def start() -> None:
            self.servers[number].start()
            self._lead(self._proxies[number], number)

        return self._pool.submit(start).result

    def _lead(self, proxy: Proxy, number: int) -> None:
        parts = urlsplit(self.servers[number].url)
        assert parts.hostname is not None
        assert parts.port is not None
        proxy.target = (parts.hostname, parts.port)


@dataclass
class Load:
    """A producer that goes on appending, and looks at what the group has committed."""

    client: Client
    producer: Producer
    partitions: int
    looks: list[Look]
    is_over: threading.Event

    def append(self) -> None:
        chance = random.Random(3)
        while not self.is_over.wait(APPEND_S):
            self.append_to(chance.randrange(self.partitions))
        self.producer.flush()

    def append_to(self, partition: int) -> None:
        self.producer.send_many([Record(b"work")] * BATCH, partition=partition)

    def look(self) -> None:
        while not self.is_over.wait(LOOK_S):
            self.looks.append(committed(self.client))


def committed(client: Client) -> Look:
    at = time.monotonic()
    return at, {one.partition: one.offset for one in client.committed_offsets(GROUP, topic=TOPIC)}


@contextmanager
def under_load(client: Client, partitions: int) -> Iterator[Load]:
    load = Load(client, client.producer(TOPIC), partitions, [], threading.Event())
    with load.producer, ThreadPoolExecutor(2) as pool:
        for partition in range(partitions):
            load.append_to(partition)
        working = [pool.submit(load.append), pool.submit(load.look)]
        try:
            yield load
        finally:
            load.is_over.set()
        for one in working:
            one.result()


def disturb(crew: Crew, fleet: Fleet, chance: random.Random, *, with_server: bool) -> None:
    """Kill a member, freeze two for longer than their leases, add one, and kill a server; wait until all is well."""
    victims = chance.sample(crew.awake, 3)
    wait_for_server = fleet.kill(chance.randrange(SERVERS)) if with_server else (lambda: None)
    crew.kill(victims[0])
    crew.freeze(victims[1])
    crew.freeze_before_commit(victims[2])
    crew.start()
    wait_until(crew.is_whole, patience_s=LONGEST_S)
    crew.thaw()
    wait_until(crew.is_whole, patience_s=LONGEST_S)
    wait_for_server()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("members", "partitions", "seconds"), [(6, 24, 0), pytest.param(12, 48, 60, marks=pytest.mark.prove)]
)
def test_members_that_are_killed_frozen_and_added_commit_each_record_once_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, members: int, partitions: int, seconds: int
) -> None:
    """G1, G2, G3 and G6 over three servers, on versitygw and DynamoDB Local; one round of harm at least."""
    for variable, value in CREDENTIALS.items():
        monkeypatch.setenv(variable, value)
    chance = random.Random(12)
    with ExitStack() as stack:
        place = stack.enter_context(places("versitygw and DynamoDB Local"))
        urls = {"AWS_ENDPOINT_URL_S3": place.objects, "AWS_ENDPOINT_URL_DYNAMODB": place.items}
        servers = [Server({**os.environ, **urls}) for _ in range(SERVERS)]
        for server in servers:
            stack.callback(server.end)
        servers[0].start("--create")
        with ThreadPoolExecutor(SERVERS) as pool:
            list(pool.map(Server.start, servers[1:]))
        fleet = Fleet(servers, stack)
        client = stack.enter_context(Client(fleet.urls[0], retry_ms=RETRY_MS))
        client.create_topic(TOPIC, partitions=partitions)
        crew = Crew(fleet.urls, tmp_path, partitions)
        try:
            for _ in range(members):
                crew.start()
            with under_load(client, partitions) as load:
                wait_until(crew.is_whole, patience_s=LONGEST_S)
                until, rounds = time.monotonic() + seconds, 0
                while not rounds or time.monotonic() < until:
                    disturb(crew, fleet, chance, with_server=rounds % 2 == 0)
                    rounds += 1
            ends = {partition: at.next_offset for partition, at in client.topic_offsets(TOPIC).items()}
            wait_until(lambda: crew.is_whole() and committed(client)[1] == ends, patience_s=LONGEST_S)
            load.looks.append(committed(client))
            crew.look()
            story = crew.story
            compare(story, ends, load.looks)
        finally:
            crew.end()
    assert crew.done["killed"] == rounds
    assert crew.done["frozen"] == 2 * rounds
    assert set(story.late) <= REFUSALS
    assert story.late.total() == 2 * rounds, story.late
    assert sum(ends.values()) > 100
