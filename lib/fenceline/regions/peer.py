"""Another region as a replicator sees it: its topics, the segments of one origin, and their bodies ("Pulling").

Rule: a peer is asked, and never written to. A peer's answer is believed about its own records only, under its
configured name. Each problem with a peer is a ``PeerProblem``, whose text an operator reads.

Not here: the peer over HTTP (``adapters.peer_http``); the batches that are taken (``regions.source_batches``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from fenceline.errors import printable
from fenceline.model.results import SegmentList


class PeerProblem(Exception):
    """A peer is away, slow, or gives an answer that cannot be used. Nothing of that answer was taken.

    Its text is shown on terminals, so nothing unprintable is left of a text that the peer sent.
    """

    def __init__(self, text: str) -> None:
        super().__init__(printable(text))


class BeyondEnd(PeerProblem):
    """The peer was asked for segments from an offset beyond its log's end."""


@dataclass(frozen=True, slots=True)
class PeerTopic:
    """A topic as a peer shows it."""

    topic_id: str
    partitions: int
    regions: tuple[str, ...]
    order: str | None = field(default=None, compare=False)  # its ``compaction.order``, if it is known


class Peer(Protocol):
    """One other region. Safe to share between threads. Each call ends within a bounded time."""

    @property
    def name(self) -> str:
        """The peer's name in the configuration of this region."""

    def within(self, answer_ms: int) -> Peer:
        """Return the same peer, with calls that take at most ``answer_ms``."""

    def topic(self, name: str) -> PeerTopic | None:
        """Return the topic of that name; ``None`` if it has none.

        Raises:
            PeerProblem: It gave no usable answer.
        """

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        """Return segments of one origin, as its ``GET segments``; ``None`` if it has no such topic or partition.

        Args:
            origin: "own", or the name of a third region.
            offset: Where to begin; ``None``: at its log start.

        Raises:
            BeyondEnd: Its log ends before ``offset``.
            PeerProblem: It gave no usable answer, or another region's.
        """

    def body(self, url: str, size: int) -> bytes:
        """Return a segment's body, by the URL of its entry.

        Args:
            size: The size in the entry; not one byte more is read.

        Raises:
            PeerProblem: It gave no body, or one of another size.
        """


Peers: TypeAlias = Mapping[str, Peer]
"""The configured peers by name."""
