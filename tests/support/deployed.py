"""Deployed regions in memory, with the calls of buckets, queues and schedules, on a clock that a test moves.

Rule: each message is delivered once it is due, ten in a call. Each new segment is a message of its bucket. A schedule
calls its functions at their minutes. Nothing else calls a function.

Rule: each request is counted that a function makes to a store, a peer or a queue, with the region that made it.

Not here: queues that only remember (``queues``), and regions without functions (``regions``).
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any, NamedTuple

from fenceline.service.log import Log
from fenceline_http.wiring import Service
from functions.replication import messages
from functions.replication.notify import Notifier
from functions.replication.replicate import Replicating
from functions.scheduled import compact, sweep
from tests.support.queues import event, failed, news_of, settings
from tests.support.regions import Region, RegionWorld

MINUTE_MS = 60_000
APART_MS = 7_000  # between the schedules of two regions: AWS does not start them together
COMPACT_MINUTES = 15
BATCH = 10  # messages in one call
MESSAGE_MS = 20  # until a message without delay is delivered
CALLS_MAX = 1_000  # in one minute, so that functions that call each other for ever fail a test

CLIENT, NOTIFIER, LOOK, SCHEDULE, SWEEPER, COMPACTOR = "client", "notifier", "look", "schedule", "sweeper", "compactor"
QUEUES = (NOTIFIER, LOOK)  # the functions that messages call
WRITES = ("objects.create", "objects.delete", "items.write")
SEND = "queue.send"  # counted for each message


class Request(NamedTuple):
    """One kind of request.

    Attributes:
        by: The region whose function made it.
        function: That function. The replicator is ``LOOK`` where a message calls it, and ``SCHEDULE`` otherwise.
        to: The region that was asked.
        what: The store, and the operation.
    """

    by: str
    function: str
    to: str
    what: str


class Look(NamedTuple):
    """A partition that a region looks at."""

    region: str
    topic: str
    partition: int


class Minute(NamedTuple):
    """The requests and looks of one minute.

    Attributes:
        requests: All that were made, by clients, too.
        looks: How many messages named each partition.
    """

    requests: Counter[Request]
    looks: Counter[Look]


class Call(NamedTuple):
    """A call of a function that is to come: a message, or a schedule's."""

    at_ms: int
    region: str
    function: str
    body: str
    sent_ms: int


class Remaining:
    """Lambda's context of a call that has just begun."""

    aws_request_id = "a request"

    def get_remaining_time_in_millis(self) -> int:
        return 900_000


@dataclass
class Functions:
    """The functions of one region: each is a process of its own."""

    notifier: Notifier
    replicator: Replicating
    services: Mapping[str, Service]


@dataclass
class QueueInMemory:
    """The queue ``pull`` of one region."""

    deployment: Deployment
    region: str

    def send(self, bodies: Sequence[str], *, delay_s: int = 0) -> None:
        for body in bodies:
            self.deployment.count(self.region, SEND)
            self.deployment.send(self.region, LOOK, body, delay_s * 1000)


@dataclass
class QueuesInMemory:
    own: QueueInMemory
    peers: Mapping[str, QueueInMemory]


@dataclass
class Deployment:
    """Regions that are deployed together. Time passes in ``minute`` alone.

    Attributes:
        is_cold: Each call of a function, and of the peers that it asks, begins in a process with nothing in memory.
    """

    world: RegionWorld
    is_cold: bool = False
    _minute: Minute = field(default_factory=lambda: Minute(Counter(), Counter()))
    _calls: list[Call] = field(default_factory=list)
    _functions: dict[str, Functions] = field(default_factory=dict)
    _caller: tuple[str, str] = (CLIENT, CLIENT)

    @classmethod
    def of(cls, *names: str) -> Deployment:
        made = cls(RegionWorld(*names))
        for name, region in made.world.regions.items():
            made._watch(name, region)
            made._functions[name] = made._processes(region)
        made.world.runtime.advance(-made.world.runtime.wall_ms % MINUTE_MS)
        return made

    def __getitem__(self, name: str) -> Region:
        return self.world[name]

    def close(self) -> None:
        self.world.close()

    def minute(self) -> Minute:
        """Let a minute pass, with all that is called in it. What clients did before counts as of this minute."""
        begin_ms = self._now_ms()
        number = begin_ms // MINUTE_MS
        scheduled = [SCHEDULE, SWEEPER, *([] if number % COMPACT_MINUTES else [COMPACTOR])]
        for at, region in enumerate(self.world.regions):
            at_ms = begin_ms + at * APART_MS
            self._calls += [Call(at_ms, region, function, "", at_ms) for function in scheduled]
        for calls in itertools.count():
            if not self._calls or min(self._calls).at_ms >= begin_ms + MINUTE_MS:
                break
            assert calls < CALLS_MAX, "the regions never fall silent"
            self._next()
        self.world.runtime.advance(begin_ms + MINUTE_MS - self._now_ms())
        passed, self._minute = self._minute, Minute(Counter(), Counter())
        return passed

    def send(self, region: str, function: str, body: str, delay_ms: int = 0) -> None:
        """Send a message to the queue that calls a function of a region."""
        now_ms = self._now_ms()
        self._calls.append(Call(now_ms + max(delay_ms, MESSAGE_MS), region, function, body, now_ms))

    def count(self, to: str, what: str) -> None:
        """Count a request of the function that is called now."""
        self._minute.requests[Request(*self._caller, to, what)] += 1

    def _next(self) -> None:
        """Make the next call: of a schedule, or with the messages of one queue that are due by then."""
        first = min(self._calls)
        self.world.runtime.advance(max(first.at_ms - self._now_ms(), 0))
        together = [first]
        if first.function in QUEUES:
            due = [one for one in self._calls if one[1:3] == first[1:3] and one.at_ms <= self._now_ms()]
            together = sorted(due)[:BATCH]
        for one in together:
            self._calls.remove(one)
        region = self.world[first.region]
        if self.is_cold:
            self._functions[region.name] = self._processes(region)
            for peer in region.peers.values():
                peer.log = self.world[peer.name].service.another(region=peer.name)
        self._caller = (region.name, first.function)
        try:
            report = self._run(self._functions[region.name], first.function, together)
        finally:
            self._caller = (CLIENT, CLIENT)
        assert not failed({"batchItemFailures": (), **report}), report

    def _run(self, functions: Functions, function: str, calls: Sequence[Call]) -> Mapping[str, Any]:
        service = functions.services[function]
        if function == LOOK:
            places = [messages.from_body(one.body) for one in calls]
            self._minute.looks.update(Look(calls[0].region, *place) for place in places)
        if function in QUEUES:
            batch = event(*(one.body for one in calls), sent_ms=max(one.sent_ms for one in calls))
            run = functions.notifier.run if function == NOTIFIER else functions.replicator.run
            return run(batch, None, service)
        at = {"time": datetime.fromtimestamp(calls[0].at_ms / 1000, UTC).isoformat()}
        if function == SCHEDULE:
            return functions.replicator.run(at, None, service)
        if function == SWEEPER:
            return sweep.run(at, Remaining(), service)
        return compact.run(at, Remaining(), service)

    def _processes(self, region: Region) -> Functions:
        queues = QueuesInMemory(QueueInMemory(self, region.name), {n: QueueInMemory(self, n) for n in region.peers})
        replicator = self._service(region, region.another())
        services = {name: self._service(region, region.another()) for name in (NOTIFIER, SWEEPER, COMPACTOR)}
        services |= {LOOK: replicator, SCHEDULE: replicator}
        return Functions(Notifier(lambda _: queues), Replicating(lambda _: queues), services)

    def _service(self, region: Region, log: Log) -> Service:
        stores = region.service.objects.store, region.service.items.store
        return Service(settings(region.name, region.peers), log, *stores, self.world.runtime, "0.0.0")

    def _watch(self, name: str, region: Region) -> None:
        def asked(operation: str, key: str) -> None:
            self.count(name, f"objects.{operation}")
            if operation == "create" and key.startswith("log/") and key.endswith(".log"):
                self.send(name, NOTIFIER, news_of(key))

        region.service.objects.on_call = asked
        region.service.items.on_call = lambda operation, _: self.count(name, f"items.{operation}")
        for peer in region.peers.values():
            peer.on_call = partial(self._asked_peer, peer.name)

    def _asked_peer(self, peer: str, operation: str) -> None:
        self.count(peer, f"peer.{operation}")

    def _now_ms(self) -> int:
        return int(self.world.runtime.now_ms())
