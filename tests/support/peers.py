"""Peers that are configured and away: for topics that name several regions.

Rule: each call of such a peer fails at once, so no test waits for one.

Not here: peers that answer; see ``regions``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NoReturn

from fenceline.regions.peer import PeerProblem, Peers


@dataclass(frozen=True)
class AwayPeer:
    """A peer that does not answer."""

    name: str

    def within(self, answer_ms: int) -> AwayPeer:
        return self

    def topic(self, name: str) -> NoReturn:
        raise PeerProblem("it is away")

    def segments(self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int) -> NoReturn:
        raise PeerProblem("it is away")

    def body(self, url: str, size: int) -> NoReturn:
        raise PeerProblem("it is away")


def peers_named(*names: str) -> Peers:
    """Return peers of these names, all of them away."""
    return {name: AwayPeer(name) for name in names}
