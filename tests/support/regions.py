"""Several regions in one process: a log on its own stores in memory for each, and peers that ask the other logs.

Rule: a peer answers as the other region's service does at that moment, except for the faults that a test gives it. All
regions share one runtime unless a test gives each its own, so that time passes everywhere at once.

Not here: peers over HTTP, and a region's stores; see ``service``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fenceline.format.segment import Segment
from fenceline.log.region_state import Origin
from fenceline.model.requests import ReadRequest
from fenceline.ports import ObjectStore
from fenceline.regions.peer import Peer, Peers
from fenceline.regions.peer_status import PeerStatuses
from fenceline.regions.replicator import Replicator, RunResult
from fenceline.service.log import Log
from tests.support.peers import ObservedPeer, PeerCall, is_away
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, partition_of, partitions_of, request, serve


class WatchedPeer(ObservedPeer):
    """Another region of the world, as one region asks it: its calls are counted, and a test says which faults it has.

    Attributes:
        log: What answers.
        is_down: Each call fails.
        on_call: Called with the operation before each call; it may raise, wait, or act as another process.
        seen: By operation, what changes each of its answers: a proxy, or a peer that lies.
        calls: How many calls there were, by operation.
        asked: The origin and the offset of each question for segments.
    """

    def __init__(self, name: str, log: Log, objects: ObjectStore) -> None:
        super().__init__(name, self._observe)
        self.log = log
        self.is_down = False
        self.on_call: Callable[[str], None] | None = None
        self.seen: dict[str, Callable[[Any], Any]] = {}
        self.calls: Counter[str] = Counter()
        self.asked: list[tuple[str, int | None]] = []
        self._objects = objects

    def _observe(self, call: PeerCall) -> Any:
        self.calls[call.method] += 1
        if self.on_call is not None:
            self.on_call(call.method)
        if self.is_down:
            is_away(call)
        if call.method == "segments":
            self.asked.append((call.origin, call.offset))
        answer = call(self.log, self._objects)
        return self.seen[call.method](answer) if call.method in self.seen and answer is not None else answer


@dataclass
class Region:
    """One region of the world: its stores and processes, and the other regions as it asks them."""

    name: str
    service: Service
    peers: dict[str, WatchedPeer] = field(default_factory=dict)

    @property
    def log(self) -> Log:
        return self.service.log

    def replicator(self, log: Log | None = None) -> Replicator:
        """Return a replicator with nothing in memory, of this region's process or another one."""
        log = log or self.log
        return Replicator(log.context, partitions_of(log), self.asked, PeerStatuses(log.context.runtime))

    @cached_property
    def own_replicator(self) -> Replicator:
        """The replicator of the region's first process."""
        return self.replicator()

    def pull(self, topic: str = TOPIC, partition: int = 0) -> RunResult:
        """Run the region's replicator over a partition once."""
        return self.own_replicator.run(topic, partition)

    def segments(self, topic: str = TOPIC, partition: int = 0) -> list[Segment]:
        """Return every segment that is stored, by offset."""
        return self.service.segments(topic, partition)

    def origin(self, region: str, topic: str = TOPIC, partition: int = 0) -> Origin | None:
        """Return the position in another region's log, as a fresh process folds it."""
        log = self.another()
        found = partition_of(log, partition, topic=topic)
        found.open()
        return found.state.origins.get(region)

    @property
    def asked(self) -> Peers:
        """Return the peers as the protocol takes them."""
        peers: dict[str, Peer] = dict(self.peers)
        return peers

    def another(self, **options: Any) -> Log:
        """Return another process of this region."""
        return with_peers(self.service.another(**{"region": self.name, **options}), self.peers)

    def append(self, *values: str, topic: str = TOPIC, partition: int = 0) -> int:
        """Append one batch of the region's own, and return its base offset."""
        answer = self.log.append(topic, partition, request(*values))
        assert answer is not None
        return answer.base_offset

    def values(self, topic: str = TOPIC, partition: int = 0, *, is_read_committed: bool = False) -> list[str]:
        """Return every record that is kept, as a fresh process reads it."""
        found, offset = [], None
        log = self.another()
        while True:
            read = ReadRequest(offset=offset, max_records=10_000, is_read_committed=is_read_committed)
            page = log.partitions.read(topic, partition, read)
            found += [(record.value or b"").decode() for record in page.records]
            if page.position in (offset, page.bounds.next_offset):
                return found
            offset = page.position


class RegionWorld:
    """Regions by name, each of which is configured with all others.

    Args:
        runtimes: The runtime of each region that has one of its own.
    """

    def __init__(self, *names: str, runtimes: Mapping[str, Any] | None = None) -> None:
        self.runtime = FakeRuntime()
        own = runtimes or {}
        self.regions = {
            name: Region(name, serve(own.get(name, self.runtime), region=name)) for name in names or ("a", "b")
        }
        for region in self.regions.values():
            for other in self.regions.values():
                if other is not region:
                    self.connect(region, other)
            with_peers(region.log, region.peers)

    def __getitem__(self, name: str) -> Region:
        return self.regions[name]

    def connect(self, region: Region, other: Region) -> None:
        """Configure ``region`` with ``other`` as a peer."""
        log = other.service.another(region=other.name)
        region.peers[other.name] = WatchedPeer(other.name, log, other.service.objects)

    def create(self, topic: str = TOPIC, *, partitions: int = 1, regions: Sequence[str] | None = None) -> None:
        """Create the topic in each of ``regions``, naming all of them; by default in every region."""
        for name in regions or self.regions:
            self[name].log.topics.create(topic, partitions=partitions, regions=list(regions or self.regions))

    def replace_log(self, name: str) -> None:
        """Let a region be another process from now on: it has nothing in memory."""
        region = self[name]
        region.service.log = region.another()
        for other in self.regions.values():
            if name in other.peers:
                other.peers[name].log = region.service.another(region=name)

    def settle(self, topic: str = TOPIC, partition: int = 0) -> None:
        """Let each region pull until none takes anything; time passes between."""
        for _ in range(100):
            took = sum(region.pull(topic, partition).took_records for region in self.regions.values())
            if not took:
                return
            self.runtime.advance(1_000)
        raise AssertionError("the regions never settle")

    def close(self) -> None:
        for region in self.regions.values():
            region.service.close()


def with_peers(log: Log, peers: Mapping[str, WatchedPeer]) -> Log:
    """Configure a process with peers, which may come to be while it runs."""
    object.__setattr__(log.context, "peers", frozenset(peers))
    log._peers = peers
    return log
