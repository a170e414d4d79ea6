"""Links between simulated regions: each question goes to a process of the other region, or is lost on the way.

Rule: a link fails as the seed says: cut in one direction or both, slow, a lost question, a lost answer, an answer that
is old. A peer's answer is one that its process gave at some moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fenceline.errors import FencelineError
from fenceline.regions.peer import PeerProblem
from tests.simulation.harness.stores import WatchedItemStore, WatchedObjectStore
from tests.simulation.harness.world import NoReply, Process, Refused, World
from tests.support.peers import PeerCall

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


class ProcessLinks:
    """The links of one process: what becomes of its questions to other regions.

    Attributes:
        answered: The last answer to each question about topics and segments.
    """

    def __init__(self, links: Links, asker: str) -> None:
        self.links = links
        self.asker = asker
        self.answered: dict[PeerCall, Any] = {}

    def ask(self, call: PeerCall) -> Any:
        """Return the answer to a call, or an earlier one; the observer of a peer."""
        links = self.links
        if call.method == "segments" and call.origin != "own" and not links.may_forward(self.asker, call.origin):
            links.problems.append(f"I19: {self.asker} asks {call.peer} for {call.origin}, which is not suspended")
        kept = self.answered.get(call)
        if kept is not None and links.world.rng.random() < links.stale:
            return kept
        answer = self._carry_out(call)
        if answer is not None and call.method != "body":
            self.answered[call] = answer
        return answer

    def _carry_out(self, call: PeerCall) -> Any:
        links, world, asked = self.links, self.links.world, call.peer
        what = f"{call.method} {call.arguments}"
        links.asked += 1
        world.pause()
        if (self.asker, asked) in links.cut or world.rng.random() < links.lost:
            world.sleep(world.rng.random() * ANSWER_MS)
            raise PeerProblem(f"{asked} is away: {what}")
        if links.slow_ms:
            world.sleep(world.rng.random() * links.slow_ms)
        site = links.sites[asked]
        process = world.rng.choice(site.processes)
        try:
            answer = world.call(process, lambda log: call(log, site.objects), ANSWER_MS)
        except (NoReply, Refused) as error:
            raise PeerProblem(f"{asked} does not answer: {what}") from error
        except FencelineError as error:
            raise PeerProblem(f"{asked} refuses: {error}") from error
        if (self.asker, asked) in links.cut or world.rng.random() < links.lost:
            raise PeerProblem(f"the answer of {asked} is lost: {what}")
        return answer
