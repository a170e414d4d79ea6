"""One run over one partition: what is missing is pulled from each peer, then what is due is done ("Triggers").

Rule: a look that finds nothing takes no lease and writes nothing. Otherwise one process works at a partition at a time,
for 60 s at most. A process that finds the lease taken wakes the holder, which then goes round once more.

Rule: one peer's problem stops neither the other links nor what is due here. It is noted, and that peer is asked again
after a pause.

Not here: what wakes a run; see ``service.replication``. How one peer's records are taken; see ``own_link``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from fenceline import limits
from fenceline.append.appender import Appender, Appenders
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.topic_item import TopicItem
from fenceline.regions.contacts import Contacts, Place
from fenceline.regions.forwarding import Forwarding, Missing
from fenceline.regions.link_item import Link, Seen
from fenceline.regions.own_link import Found, OwnLink
from fenceline.regions.peer import Peers

Source: TypeAlias = OwnLink | Forwarding
Finding: TypeAlias = tuple[Source, Found | Missing]


class Run(NamedTuple):
    """What a run did.

    Attributes:
        took_records: The records of other regions that it appended.
        next_ms: After how many ms the partition should be looked at again; ``None``: when it is woken.
    """

    took_records: int
    next_ms: int | None


class Look(NamedTuple):
    """What there is to do in a partition.

    Attributes:
        findings: What each source has.
        is_due: Whether a run has anything to do.
        next_ms: As ``Run.next_ms``.
    """

    findings: Sequence[Finding]
    is_due: bool
    next_ms: int | None


@dataclass(frozen=True, slots=True)
class Here:
    """A partition of a replicated topic, as a run finds it."""

    appender: Appender
    topic: TopicItem
    sources: Sequence[Source]
    connected: Callable[[str], bool]

    @property
    def place(self) -> Place:
        return Place(self.appender.partition.topic_id, self.appender.partition.partition)


class Ticks:
    """What is due in a partition beside pulling: nothing."""

    def is_due(self, here: Here, link: Link) -> bool:
        """Return True if ``tick`` has anything to do now."""
        return False

    def tick(self, here: Here, link: Link) -> int | None:
        """Do what is due, and return after how many ms more may be; ``None`` if nothing is due by time."""
        return None


class Replicator:
    """The replicator of one process. Safe to share between threads.

    Args:
        ticks: Does what is due beside pulling.
    """

    def __init__(
        self, context: Context, appenders: Appenders, peers: Peers, contacts: Contacts, ticks: Ticks | None = None
    ) -> None:
        self._context = context
        self._appenders = appenders
        self._peers = peers
        self._contacts = contacts
        self._ticks = ticks or Ticks()

    def look(self, topic: str, partition: int) -> Look:
        """Return what there is to do in a partition. Nothing is written, and no lease is taken.

        Raises:
            FencelineError: The log here is damaged.
            StoreFact: A store here could not be asked.
        """
        try:
            here = self._open(topic, partition)
            return Look((), False, None) if here is None else self._look(here, self._link(here))
        except StaleTopicId:
            return Look((), False, 0)

    def run(self, topic: str, partition: int, *, until_ms: int | None = None) -> Run:
        """Pull what is missing in a partition, and do what is due there.

        Args:
            until_ms: When the run begins nothing more, on the monotonic clock, if that is before its 60 s are over. An
                append that it has begun ends up to 20 s later.

        Raises:
            FencelineError: An append here failed, or the log here is damaged. The next run finds what was appended.
            StoreFact: A store here could not be asked.
        """
        stop_ms = self._context.runtime.monotonic_ms() + limits.LINK_RUN_MS
        if until_ms is not None:
            stop_ms = min(stop_ms, until_ms)
        try:
            here = self._open(topic, partition)
            if here is None:
                return Run(0, None)
            link = self._link(here)
            look = self._look(here, link)
            if not look.is_due:
                return Run(0, look.next_ms)
            if not link.enter():
                return Run(0, None)  # the holder goes round once more
            return _Rounds(self, here, link, stop_ms).run(look)
        except StaleTopicId:
            return Run(0, 0)  # the topic was deleted; the name may lead to another one

    def _open(self, name: str, partition: int) -> Here | None:
        """Return a partition that other regions have, too; ``None`` if there is none."""
        found = topics.find(self._context, name)
        if found is None or found.is_going or not 0 <= partition < found.topic.partitions:
            return None
        others = [region for region in found.topic.regions if region != self._context.region]
        if not others:
            return None
        appender = self._appenders.of(name, found.topic.topic_id, partition)
        if not appender.partition.is_fresh:
            appender.partition.open()
        asked = [region for region in others if region in self._peers and region not in found.suspended]
        sources: list[Source] = [OwnLink(appender, self._peers[region], self._contacts) for region in asked]
        for suspended in others:
            if suspended in found.suspended:
                sources += [Forwarding(appender, self._peers[y], suspended, self._contacts) for y in asked]
        place = Place(found.topic.topic_id, partition)
        return Here(appender, found, sources, lambda region: self._is_connected(place, region))

    def _is_connected(self, place: Place, region: str) -> bool:
        return self._contacts.of(place, region).is_connected(self._context.runtime.now_ms())

    def _link(self, here: Here) -> Link:
        """Return the partition's link item, with what other processes noted of it, the first time."""
        link = Link(self._context, *here.place)
        if not self._contacts.is_done(here.place, "link"):
            self._learn(here, link.read)
            self._contacts.note_done(here.place, "link")
        return link

    def _learn(self, here: Here, read: Callable[[], object]) -> None:
        raise NotImplementedError

    def _look(self, here: Here, link: Link) -> Look:
        raise NotImplementedError
