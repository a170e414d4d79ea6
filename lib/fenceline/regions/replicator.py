"""One run over one partition: what is missing is pulled from each peer, then what is due is done ("Triggers").

Rule: a look that finds nothing takes no lease and writes nothing. Otherwise one process works at a partition at a time,
for 60 s at most. A process that finds the lease taken wakes the holder, which then goes round once more. That a peer
begins to fail, or answers again, is something to write: an alarm counts from then, whichever process looks next.

Rule: one peer's problem stops neither the other links nor what is due here. It is noted, and that peer is asked again
after a pause. Sources take turns, and each has one in a run, whatever the others cost.

Not here: what wakes a run; see ``service.replication``. How one peer's records are taken; see ``own_link``.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeAlias

from fenceline import limits
from fenceline.append.appender import appender_of
from fenceline.errors import FencelineError
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.ports import StoreFact
from fenceline.regions import ticks
from fenceline.regions.contacts import Contacts, Place
from fenceline.regions.forwarding import Forwarding, Missing
from fenceline.regions.link_item import Link, Seen
from fenceline.regions.own_link import Found, OwnLink
from fenceline.regions.peer import Peers, PeerTopic
from fenceline.regions.work import Work

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
        next_ms: As ``Run.next_ms``, if it has nothing to do.
    """

    findings: Sequence[Finding]
    is_due: bool
    next_ms: int | None


class Here(NamedTuple):
    """A partition of a replicated topic, as a run finds it."""

    work: Work
    link: Link
    sources: Sequence[Source]

    @property
    def place(self) -> Place:
        return Place(self.work.partition.topic_id, self.work.partition.partition)


class Replicator:
    """The replicator of one process. Safe to share between threads."""

    def __init__(self, context: Context, partitions: Partitions, peers: Peers, contacts: Contacts) -> None:
        self._context = context
        self._partitions = partitions
        self._peers = peers
        self._contacts = contacts

    def look(self, topic: str, partition: int) -> Look:
        """Return what there is to do in a partition. Nothing is written, and no lease is taken.

        Raises:
            FencelineError: The log here is damaged.
            StoreFact: A store here could not be asked.
        """
        try:
            here = self._open(topic, partition)
            return Look((), False, None) if here is None else self._look(here)
        except StaleTopicId:
            return Look((), False, 0)

    def run(self, topic: str, partition: int, *, until_ms: int | None = None, is_alone: bool = False) -> Run:
        """Pull what is missing in a partition, and do what is due there.

        Args:
            is_alone: Whether this is the only run over the partition anywhere, so that a lease is left over.
            until_ms: When the run begins nothing more, on the monotonic clock, if that is before its 60 s are over. A
                source that was found to have something has its first turn all the same. An append that has begun ends
                up to 20 s later.

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
            look = self._look(here)
            if not look.is_due:
                return Run(0, look.next_ms)
            has_lease = here.link.enter(is_alone=is_alone)
            self._contacts.learn(here.place, here.link.value)
            if not has_lease:
                return Run(0, None)  # the holder goes round once more
            return self._rounds(here, look, stop_ms)
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
        appender = appender_of(self._partitions, name, found.topic.topic_id, partition)
        here = appender.partition
        if not here.is_fresh:
            here.open()
        asked = [region for region in others if region in self._peers]
        # A suspended region is pulled, too, if it answers: only snapshots leave it out.
        sources: list[Source] = [OwnLink(here, self._peers[region], self._contacts) for region in asked]
        for suspended in others:
            if suspended in found.suspended:
                lenders = [region for region in asked if region not in found.suspended]
                sources += [Forwarding(here, self._peers[y], suspended, self._contacts) for y in lenders]
        place = Place(found.topic.topic_id, partition)
        link = self._link(place)
        connected = partial(self._is_connected, place)
        return Here(Work(self._context, appender, found, link, connected, partial(self._there, place)), link, sources)

    def _is_connected(self, place: Place, region: str) -> bool:
        contact = self._contacts.of(place, region)
        # Of another history nothing is taken, so the answer to a REQUEST would never arrive.
        return contact.is_connected(self._context.runtime.now_ms()) and not contact.has_other_history

    def _there(self, place: Place, region: str) -> PeerTopic | None:
        return self._contacts.of(place, region).topic

    def _link(self, place: Place) -> Link:
        """Return the link item as this process knows it; the first time, it is read."""
        link = Link(self._context, *place)
        known = self._contacts.link_of(place)
        if known is None:
            self._contacts.learn(place, link.read())
        else:
            link.value = known
        return link

    def _look(self, here: Here) -> Look:
        asked = [source for source in here.sources if not self._pause_ms(here, source)]
        found = self._contacts.gather([source.look for source in asked])
        findings = [(source, one) for source, one in zip(asked, found, strict=True) if one is not None]
        if findings:  # the round ticks after it has taken them
            return Look(findings, True, None)
        due = ticks.look(here.work)
        if due.has_updates and not here.link.is_read:  # another process may have applied them
            self._contacts.learn(here.place, here.link.read())
            due = ticks.look(here.work)
        return Look((), due.is_now or self._is_news(here), self._next_ms(here, due.request_in))

    def _is_news(self, here: Here) -> bool:
        """Return True if a peer has begun to fail, or answers again, and the link item does not say so yet."""
        stored = here.link.value.seen
        return any(
            (seen.problem is None) != (peer not in stored or stored[peer].problem is None)
            for peer, seen in self._seen(here).items()
        )

    def _seen(self, here: Here) -> dict[str, Seen]:
        contacts = self._contacts.contacts(here.place)
        peers = {peer: contact for peer, contact in contacts.items() if peer in self._peers}
        return {peer: seen for peer, one in peers.items() if (seen := one.last_known) is not None}

    def _pause_ms(self, here: Here, source: Source) -> int:
        return self._contacts.pause_ms(here.place, source.name, source.position)

    def _next_ms(self, here: Here, due_ms: int | None) -> int | None:
        """Return when the first of what is due later is due: by time, or because a peer had a problem."""
        pauses = [pause_ms for source in here.sources if (pause_ms := self._pause_ms(here, source))]
        return min([*pauses, *([] if due_ms is None else [due_ms])], default=None)

    def _rounds(self, here: Here, look: Look, stop_ms: int) -> Run:
        """Go round, with the lease, until nothing woke this process since the last look, or its time is over."""
        link, took = here.link, 0
        going = _Going(self._context, link, stop_ms)
        try:
            while True:
                records, next_ms = self._round(here, look, going)
                took += records
                self._note(here)
                if going.has_lost:
                    return Run(took, None)  # another process has the lease, and goes on
                is_last = link.leave() or going.is_over
                if is_last:
                    break
                look = self._look(here)
            while going.is_over and link.is_held:
                link.leave()
            return Run(took, 0 if going.is_over else next_ms)
        except (FencelineError, StoreFact):
            with suppress(FencelineError, StoreFact):  # otherwise the lease lapses
                while link.is_held:  # what has woken it is left to the next run, too
                    link.leave()
            raise
        finally:
            self._contacts.keep_link(here.place, link.value)

    def _round(self, here: Here, look: Look, going: _Going) -> tuple[int, int | None]:
        """Take what was found, one answer of each source at a time, and do what is due; return the records taken."""
        took, findings = 0, list(look.findings)
        begun_ms = self._context.runtime.monotonic_ms()
        while True:
            more: list[Finding] = []
            for source, found in findings:
                records, next_found = self._take(here, source, found, going)
                took += records
                more += [] if next_found is None else [(source, next_found)]
            due_ms = ticks.tick(here.work)
            findings = more
            if not findings or not going.on():
                # After a long round the other peers no longer count as connected, though nothing is wrong with them. So
                # a REQUEST may not have been found due. The next run asks them first.
                is_long = self._context.runtime.monotonic_ms() - begun_ms >= limits.CONNECTED_MS
                return took, 0 if is_long else self._next_ms(here, due_ms)

    def _take(
        self, here: Here, source: Source, found: Found | Missing, going: _Going
    ) -> tuple[int, Found | Missing | None]:
        """Take one answer's segments; return their records, and what to take next of this source."""
        if self._context.stopping.is_set:
            return 0, None
        partition = here.work.partition
        if partition.is_fresh:
            partition.verified()
        else:
            partition.open()
        if source.position != found.position:  # another process was faster
            return 0, source.look() if going.on() else None
        if isinstance(source, OwnLink):
            assert isinstance(found, Found)
            taken = source.take(found, here.work.appender, going.on)
        else:
            assert isinstance(found, Missing)
            taken = source.take(found, here.work.appender, going.on)
        is_done = taken.problem is not None or (taken.is_whole and not found.is_long)
        return taken.records, None if is_done or not going.on() else source.look()

    def _note(self, here: Here) -> None:
        """Note in the link item what this process knows of the peers. It is stored when the lease is left."""
        here.link.note(self._contacts.notes(here.place), self._seen(here))


@dataclass(slots=True)
class _Going:
    """Whether a run may go on: it has time, and the lease."""

    context: Context
    link: Link
    stop_ms: int
    has_lost: bool = False

    @property
    def is_over(self) -> bool:
        """Return True if the run's time is over."""
        return self.context.runtime.monotonic_ms() >= self.stop_ms or self.context.stopping.is_set

    def on(self) -> bool:
        """Return True if another step may begin; the lease is renewed where that is due.

        Raises:
            FencelineError: The store of the lease.
        """
        if self.has_lost or self.is_over:
            return False
        self.has_lost = not self.link.keep()
        return not self.has_lost
