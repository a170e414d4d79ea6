"""A peer that publishes its address and its bucket, in parameters of AWS in its own region.

Rule: the address is read when the peer is first asked, and again after five minutes, because it changes when the peer
is deployed again. While it cannot be read, the last known address is used. A peer without any known address cannot be
asked, which is a ``PeerProblem``. Such a failure is remembered for some seconds, because otherwise each partition would
wait for a time-out of its own.

Not here: the requests themselves (``adapters.peer_http``).
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, TypeVar

from fenceline.adapters.aws.client import Failure, make_client
from fenceline.model.results import SegmentList
from fenceline.ports import Unavailable
from fenceline.regions.peer import Peer, PeerProblem, PeerTopic

ADDRESS_S = 300
FAILED_S = 10  # for which a first address is not read again after a failure
_ANSWER_MS = 2_000


A = TypeVar("A")


class Address(NamedTuple):
    """The address of a peer, and its bucket."""

    url: str
    bucket: str  # "" while its stack is of an older version, which does not publish it


class Published(Generic[A]):
    """The peer at the address that it published last. Safe to share between threads.

    Args:
        connect: Makes the peer at an address.
        address: Reads the address; raises the exceptions of a client of AWS. ``parameter_reader`` makes it.
        now_s: A clock that only grows.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[A], Peer],
        address: Callable[[], A],
        *,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._connect = connect
        self._address = address
        self._now_s = now_s
        self._lock = threading.Lock()
        self._read_at: float | None = None
        self._failed: tuple[float, str] | None = None  # when the first address could not be read, and why
        self._known: A | None = None
        self._peer: Peer | None = None

    def peer(self) -> Peer:
        """Return the peer.

        Raises:
            PeerProblem: No address of the peer is known, and none can be read.
        """
        with self._lock:
            if self._peer is None or self._read_at is None or self._now_s() - self._read_at > ADDRESS_S:
                self._peer = self._looked()
            return self._peer

    def _looked(self) -> Peer:
        if self._failed is not None and self._now_s() - self._failed[0] < FAILED_S:
            raise PeerProblem(self._failed[1])
        try:
            found = self._address()
        except (*Failure, Unavailable) as error:
            if self._peer is None:
                reason = " ".join(str(error).split())
                self._failed = self._now_s(), f"the peer {self.name}: its address cannot be read: reason={reason}"
                raise PeerProblem(self._failed[1]) from error
            self._read_at = self._now_s()
            return self._peer
        self._read_at = self._now_s()
        if self._peer is not None and found == self._known:
            return self._peer
        self._known = found
        return self._connect(found)


class PublishedPeer:
    """Another region, at the address that it publishes. Safe to share between threads."""

    def __init__(self, published: Published[Any]) -> None:
        self._published = published
        self._answer_ms: int | None = None

    @property
    def name(self) -> str:
        return self._published.name

    def within(self, answer_ms: int) -> PublishedPeer:
        """Return the same peer, with calls that take at most ``answer_ms``, once its address is known."""
        hurried = copy.copy(self)
        hurried._answer_ms = answer_ms
        return hurried

    def topic(self, name: str) -> PeerTopic | None:
        return self._peer().topic(name)

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        return self._peer().segments(topic, partition, origin=origin, offset=offset, limit=limit)

    def body(self, url: str, size: int) -> bytes:
        return self._peer().body(url, size)

    def _peer(self) -> Peer:
        found = self._published.peer()
        return found if self._answer_ms is None else found.within(self._answer_ms)


def parameter_reader(url: str, bucket: str, region: str) -> Callable[[], Address]:
    """Return a function that reads the two parameters of a peer, by their names, in its region of AWS."""
    made: list[Any] = []

    def read() -> Address:
        if not made:
            made.append(make_client("ssm", {"sdk": "botocore", "region": region, "answer_ms": _ANSWER_MS}))
        return Address(value_of(url), value_of(bucket, is_optional=True))

    def value_of(name: str, *, is_optional: bool = False) -> str:
        try:
            value: str = made[0].get_parameter(Name=name)["Parameter"]["Value"]
        except made[0].exceptions.ParameterNotFound:
            if is_optional:
                return ""
            raise
        return value

    return read
