"""Links between simulated regions: each question goes to a process of the other region, or is lost on the way.

Rule: a link fails as the seed says: cut in one direction or both, slow, a lost question, a lost answer, an answer that
is old. A peer's answer is one that its process gave at some moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from fenceline.errors import FencelineError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fenceline.model.results import SegmentList
from fenceline.ports import NotFound
from fenceline.regions.peer import BeyondEnd, PeerProblem, PeerTopic
from tests.simulation.harness.stores import WatchedItemStore, WatchedObjectStore
from tests.simulation.harness.world import NoReply, Process, Refused, World

T = TypeVar("T")

ANSWER_MS = 2_000  # for which one question waits


@dataclass
class Site:
    """One simulated region: its stores, and the processes that serve it."""

    name: str
    objects: WatchedObjectStore
    items: WatchedItemStore
    processes: list[Process] = field(default_factory=list)
    writes: int = 0  # how many objects and items were written


@dataclass
class Links:
    """All links of a world. ``cut`` has the (asker, asked) pairs that no question passes."""

    world: World
    sites: dict[str, Site]
    lost: float = 0  # the share of questions, and of answers, that are lost
    slow_ms: float = 0
    stale: float = 0  # the share of answers about topics and segments that are given once more
    cut: set[tuple[str, str]] = field(default_factory=set)
    asked: int = 0
    may_forward: Callable[[str, str], bool] = lambda asker, origin: True
    problems: list[str] = field(default_factory=list)


@dataclass
class SimulatedPeer:
    """Another region, as one process asks it."""

    links: Links
    asker: str
    name: str
    last: dict[Any, Any] = field(default_factory=dict)

    def within(self, answer_ms: int) -> SimulatedPeer:
        return self

    def topic(self, name: str) -> PeerTopic | None:
        kept: PeerTopic | None = self.last.get(name)
        if kept is not None and self.links.world.rng.random() < self.links.stale:
            return kept
        found = self._ask("topic", lambda log: log.topics.get(name))
        if found is not None:
            self.last[name] = PeerTopic(found.topic_id, found.partitions, tuple(found.regions))
        return None if found is None else self.last[name]

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        links = self.links
        if origin != "own" and not links.may_forward(self.asker, origin):
            links.problems.append(f"I19: {self.asker} asks {self.name} for {origin}, which is not suspended")
        question = topic, partition, origin, offset, limit
        kept: SegmentList | None = self.last.get(question)
        if kept is not None and links.world.rng.random() < links.stale:
            return kept
        answer = self._ask(
            f"segments {origin} {offset}",
            lambda log: log.partitions.segments(topic, partition, offset=offset, limit=limit, origin=origin),
        )
        if answer is not None:
            self.last[question] = answer
        return answer

    def body(self, url: str, size: int) -> bytes:
        key = unquote(urlsplit(url).path.removeprefix("/objects/"))
        site = self.links.sites[self.name]
        try:
            body: bytes | None = self._ask(f"body {key}", lambda _: site.objects.get(key).body)
        except NotFound as fact:
            raise PeerProblem(f"no such object: {key}") from fact
        if body is None or len(body) != size:
            raise PeerProblem(f"a body of another size: {key}")
        return body

    def _ask(self, what: str, run: Callable[[Any], T]) -> T | None:
        links, world = self.links, self.links.world
        links.asked += 1
        world.pause()
        if (self.asker, self.name) in links.cut or world.rng.random() < links.lost:
            world.sleep(world.rng.random() * ANSWER_MS)
            raise PeerProblem(f"{self.name} is away: {what}")
        if links.slow_ms:
            world.sleep(world.rng.random() * links.slow_ms)
        process = world.rng.choice(links.sites[self.name].processes)
        try:
            answer = world.call(process, run, ANSWER_MS)
        except (NoReply, Refused) as error:
            raise PeerProblem(f"{self.name} does not answer: {what}") from error
        except UnknownTopicOrPartitionError:
            answer = None
        except OffsetOutOfRangeError as error:
            raise BeyondEnd(f"{self.name}: {error}") from error
        except FencelineError as error:
            raise PeerProblem(f"{self.name} refuses: {error}") from error
        if (self.asker, self.name) in links.cut or world.rng.random() < links.lost:
            raise PeerProblem(f"the answer of {self.name} is lost: {what}")
        return answer
