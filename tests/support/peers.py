"""Other regions within this process, each of whose calls goes through an observer: to count it, or to let it fail.

Rule: an observed peer asks nothing by itself. Its observer gets each call, and either carries it out on the log and the
objects of a region, or raises. The answer is checked as ``HttpPeer`` checks it: the region's name, and a body's size.

Not here: regions with stores and processes (``regions``), and a peer that is asked over HTTP (``peer_over_http``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn
from urllib.parse import unquote, urlsplit

from fenceline.errors import InvalidRequestError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from fenceline.model.results import SegmentList
from fenceline.ports import NotFound, ObjectStore
from fenceline.regions.peer import BeyondEnd, PeerProblem, Peers, PeerTopic
from fenceline.service.log import Log


@dataclass(frozen=True, slots=True)
class PeerCall:
    """A call of a peer. Calling it carries it out.

    Attributes:
        method: Its name in ``regions.peer.Peer``: "topic", "segments" or "body".
        arguments: All of them, in the order of the protocol.
    """

    peer: str
    method: str
    arguments: tuple[Any, ...]

    def __call__(self, log: Log, objects: ObjectStore) -> Any:
        """Return what the region answers that has this log and these objects.

        Raises:
            PeerProblem: It refuses, or has no such object.
        """
        try:
            return _ANSWERS[self.method](log, objects, *self.arguments)
        except UnknownTopicOrPartitionError:
            return None
        except OffsetOutOfRangeError as error:
            raise BeyondEnd(f"the peer {self.peer} refused: {error}") from error
        except InvalidRequestError as error:
            raise PeerProblem(f"the peer {self.peer} refused: {error}") from error
        except NotFound as fact:
            raise PeerProblem(f"the peer {self.peer} has no such object: {self.arguments[0]}") from fact

    @property
    def origin(self) -> str:
        """Return the origin of the segments that are asked for."""
        origin: str = self.arguments[2]
        return origin

    @property
    def offset(self) -> int | None:
        """Return from where on segments are asked for."""
        offset: int | None = self.arguments[3]
        return offset


def _topic(log: Log, _objects: ObjectStore, name: str) -> PeerTopic:
    found = log.topics.get(name)
    return PeerTopic(found.topic_id, found.partitions, tuple(found.regions), found.setting("compaction.order"))


def _segments(
    log: Log, _objects: ObjectStore, topic: str, partition: int, origin: str, offset: int | None, limit: int
) -> SegmentList:
    return log.partitions.segments(topic, partition, offset=offset, limit=limit, origin=origin)


def _body(_log: Log, objects: ObjectStore, url: str, _size: int) -> bytes:
    return objects.get(unquote(urlsplit(url).path.removeprefix("/objects/"))).body


_ANSWERS: dict[str, Callable[..., Any]] = {"topic": _topic, "segments": _segments, "body": _body}


class ObservedPeer:
    """A ``Peer`` whose calls go through an observer, which returns the answer."""

    def __init__(self, name: str, observer: Callable[[PeerCall], Any]) -> None:
        self.name = name
        self.observer = observer

    def within(self, answer_ms: int) -> ObservedPeer:
        return self

    def topic(self, name: str) -> PeerTopic | None:
        found: PeerTopic | None = self._ask("topic", name)
        return found

    def segments(
        self, topic: str, partition: int, *, origin: str, offset: int | None, limit: int
    ) -> SegmentList | None:
        answer: SegmentList | None = self._ask("segments", topic, partition, origin, offset, limit)
        if answer is not None and answer.region != self.name:
            raise PeerProblem(f"the peer {self.name} says that it is another region: {answer.region}")
        return answer

    def body(self, url: str, size: int) -> bytes:
        body: bytes = self._ask("body", url, size)
        if len(body) != size:
            raise PeerProblem(f"the peer {self.name} sent a body of another size: bytes={len(body)} announced={size}")
        return body

    def _ask(self, method: str, *arguments: Any) -> Any:
        return self.observer(PeerCall(self.name, method, arguments))


def is_away(call: PeerCall) -> NoReturn:
    """Answer no call."""
    raise PeerProblem(f"the peer {call.peer} is away")


def peers_named(*names: str) -> Peers:
    """Return peers of these names that are configured and away, for topics that name several regions."""
    return {name: ObservedPeer(name, is_away) for name in names}
