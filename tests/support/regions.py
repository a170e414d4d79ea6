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
from urllib.parse import unquote, urlsplit

from fenceline.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fenceline.format.segment import Segment
from fenceline.log.region_state import Origin
from fenceline.model.requests import ReadRequest
from fenceline.model.results import SegmentList
from fenceline.ports import NotFound
from fenceline.regions.peer import BeyondEnd, Peer, PeerProblem, Peers, PeerTopic
from fenceline.regions.peer_status import PeerStatuses
from fenceline.regions.replicator import Replicator, RunResult
from fenceline.service.log import Log
from tests.support.runtime import FakeRuntime
from tests.support.service import TOPIC, Service, partition_of, partitions_of, request, serve

Hook = Callable[[str], None]  # of the operation: "topic", "segments" or "body"


@dataclass
class PeerInProcess:
    """Another region of the world, as one region asks it.

    Attributes:
        is_down: Each call fails.
        slow_ms: What each call takes, on the runtime's clocks.
        region: The name under which it answers; another one than ``name`` is another region's answer.
        on_call: Called with the operation before each call; it may raise, wait, or act as another process.
        stale: Each question for segments gets this answer, if it is set: a proxy's, or that of a frozen process.
        segments_seen: Changes each answer of segments.
        body_seen: Changes each body.
        topic_seen: Changes each answer of a topic.
    """

    name: str
    service: Service
    region: str
    log: Log
    is_down: bool = False
    slow_ms: int = 0
    on_call: Hook | None = None
    stale: SegmentList | None = None
    segments_seen: Callable[[SegmentList], SegmentList] = lambda answer: answer
    body_seen: Callable[[bytes], bytes] = lambda body: body
    topic_seen: Callable[[PeerTopic | None], PeerTopic | None] = lambda topic: topic
    calls: Counter[str] = field(default_factory=Counter)
    body_bytes: int = 0  # of all bodies so far
    asked: list[tuple[str, int | None]] = field(default_factory=list)  # (origin, offset) of each question for segments

    def within(self, answer_ms: int) -> PeerInProcess:
        return self

    def topic(self, name: str) -> PeerTopic | None:
        self._begin("topic")
        try:
            found = self.log.topics.get(name)
        except UnknownTopicOrPartitionError:
            return self.topic_seen(None)
        return self.topic_seen(
            PeerTopic(found.topic_id, found.partitions, tuple(found.regions), found.setting("compaction.order"))
        )

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        self._begin("segments")
        self.asked.append((origin, offset))
        if self.region != self.name:
            raise PeerProblem(f"the peer {self.name} says that it is another region: {self.region}")
        if self.stale is not None:
            return self.stale
        try:
            answer = self.log.partitions.segments(topic, partition, offset=offset, limit=limit, origin=origin)
        except UnknownTopicOrPartitionError:
            return None
        except InvalidRequestError as error:
            raise PeerProblem(f"the peer {self.name} refused: {error}") from error
        except OffsetOutOfRangeError as error:
            raise BeyondEnd(f"the peer {self.name} refused: {error}") from error
        return self.segments_seen(answer)

    def body(self, url: str, size: int) -> bytes:
        self._begin("body")
        key = unquote(urlsplit(url).path.removeprefix("/objects/"))
        try:
            body = self.body_seen(self.service.objects.get(key).body)
        except NotFound as fact:
            raise PeerProblem(f"the peer {self.name} has no such object: {key}") from fact
        if len(body) != size:
            raise PeerProblem(f"the peer {self.name} sent a body of another size: bytes={len(body)} announced={size}")
        self.body_bytes += size
        return body

    def _begin(self, operation: str) -> None:
        self.calls[operation] += 1
        if self.on_call is not None:
            self.on_call(operation)
        if self.slow_ms:
            self.service.runtime.advance(self.slow_ms)
        if self.is_down:
            raise PeerProblem(f"the peer {self.name} is away")


@dataclass
class Region:
    """One region of the world: its stores and processes, and the other regions as it asks them."""

    name: str
    service: Service
    peers: dict[str, PeerInProcess] = field(default_factory=dict)

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
        return _with_peers(self.service.another(**{"region": self.name, **options}), self.peers)

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
            _with_peers(region.log, region.peers)

    def __getitem__(self, name: str) -> Region:
        return self.regions[name]

    def connect(self, region: Region, other: Region) -> None:
        """Configure ``region`` with ``other`` as a peer."""
        log = other.service.another(region=other.name)
        region.peers[other.name] = PeerInProcess(other.name, other.service, other.name, log)

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


def _with_peers(log: Log, peers: Mapping[str, PeerInProcess]) -> Log:
    object.__setattr__(log.context, "peers", frozenset(peers))
    log._peers = peers
    return log
