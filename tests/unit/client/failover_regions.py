"""Real regions as a subscriber of several regions sees them: a test writes their logs, and says which requests fail.

Rule: a test writes each region's log, in that region's own order. Nothing travels by itself, neither records nor marks.

Rule: the clients have one clock, which the test moves. The services have the machine's.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx

from fenceline import errors
from fenceline.client import Client
from fenceline.format.segment import Replicated
from tests.support.regions import RegionWorld
from tests.support.runtime import AheadRuntime, FakeRuntime
from tests.support.served_regions import ServedRegion
from tests.support.service import LogBuilder, data, marker
from tests.support.wire import Fault, Script, Sent, refuses_the_connection

_MARKER = 0x9F  # of a newer fenceline; it is passed over


class FailoverRegion(ServedRegion):
    """A region with the topic ``t``.

    Attributes:
        runtime: The clients' surroundings.
        fault: What becomes of each request; ``None`` lets them through.
        logs: By partition, the identity of each record, which is also its value; ``-`` is a marker.
    """

    def __init__(self, world: RegionWorld, name: str, runtime: FakeRuntime) -> None:
        super().__init__(world[name])
        self.runtime = runtime
        self.fault: Fault | None = None
        self.logs: defaultdict[int, list[str]] = defaultdict(list)
        self.release = threading.Event()  # of the requests that hang
        self._world = world
        self._builders: dict[int, LogBuilder] = {}

    def connect(self) -> Client:
        return self.client(self.runtime)

    def script(self, sent: Sent) -> Script | None:
        fault = self.fault
        return super().script(sent) if fault is None else lambda _, carry_out: fault(carry_out)

    def fail(self, operation: str, fault: Fault) -> None:
        """Let each request of an operation go as ``fault`` says."""
        self.scripts[operation] = lambda _, carry_out: fault(carry_out)

    def refuse_connections(self) -> None:
        self.fault = refuses_the_connection

    def hang(self, carry_out: Callable[[], httpx.Response]) -> httpx.Response:
        """Give no answer until the test is over; meanwhile time goes on."""
        self.runtime.step_ms = 1_000
        self.release.wait()
        raise httpx.ReadTimeout("the answer was lost")

    def advise(self, region: str | None) -> None:
        """Say where the subscription's consumers should read."""
        self.outside.set_active_region("t", "s", region)

    def write(self, *identities: str, partition: int = 0) -> None:
        """Append records, each as its origin, life and number, such as ``a1:7``; ``-`` is a marker.

        The region's own records are of the present life of its topic, and their numbers follow each other.
        """
        made = LogBuilder(topic_id=self.region.service.topic_id("t"), partition=partition, region=self.name)
        builder = self._builders.setdefault(partition, made)
        start = len(builder.segments)
        for identity in identities:
            life, _, number = identity.partition(":")
            if identity == "-":
                builder.add(marker(_MARKER))
            elif life[0] == self.name:
                builder.add(data(identity))
                assert builder.state.own_records == int(number), "own records have each number once, in order"
            else:
                source = Replicated(self._topic_id(life), int(number), int(number))
                builder.add(data(identity), origin=life[0], replicated=source)
            self.logs[partition].append(identity)
        builder.store(self.region.service.objects, start)

    def _topic_id(self, life: str) -> str:
        """Return the id of the topic in another region, whose present life is its first one, such as ``a1``."""
        return self._world[life[0]].service.topic_id("t") if life[1:] == "1" else f"{life}-topic"

    def restore(self) -> None:
        """Let the region have lost its topic, and have another one of its name."""
        self.recreate(regions=list(self._world.regions))
        self.logs.clear()
        self._builders.clear()

    def acknowledged(self, partition: int = 0) -> set[str]:
        """Return the records that are acknowledged here."""
        try:
            cursor = self.outside.subscription("t", "s").partitions[partition]
        except errors.UnknownSubscriptionError:
            return set()
        ranges = [(0, cursor.mark_delete_offset), *cursor.individually_acknowledged]
        offsets = {offset for start, end in ranges for offset in range(start, end)}
        return {identity for n, identity in enumerate(self.logs[partition]) if n in offsets and identity != "-"}


@contextmanager
def regions(*names: str) -> Iterator[list[FailoverRegion]]:
    """Lend regions of these names, which have the topic ``t``."""
    world, clock = RegionWorld(*names, runtimes=dict.fromkeys(names, AheadRuntime())), FakeRuntime()
    world.create("t")
    made = [FailoverRegion(world, name, clock) for name in names]
    yield made
    for region in made:
        region.release.set()
    world.close()
