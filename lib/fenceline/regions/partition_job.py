"""One partition's job: the partition, its topic, its lease, and the known state of the other regions.

Rule: values only. Any process may do the job, at any time, and several may do it at once, because each write is
conditional on the log, or on the version of an item.

Not here: the choice of a process (``regions.replicator``), and of the work (``regions.due_work``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from fenceline.append.appender import Appender
from fenceline.append.entries.entry import Entry, Marked, Outdated
from fenceline.append.entries.region_markers import RequestEntry, ResponseEntry, SnapshotEntry, UpdateEntry
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.topic_item import TopicItem
from fenceline.regions.peer import PeerTopic

APPEND_MS = 10_000  # for one marker to be appended

MarkerEntry = RequestEntry | ResponseEntry | SnapshotEntry | UpdateEntry


class AppliedUpdates(Protocol):
    """The memory of a partition between two ticks of a replicator. It may be lost."""

    @property
    def applied_to(self) -> int:
        """The offset below which each UPDATE of another region was applied."""

    def applied(self, offset: int) -> None:
        """Remember that each UPDATE of another region below ``offset`` was applied."""


@dataclass(frozen=True, slots=True)
class PartitionJob:
    """One partition, with all that the work in it besides its batches needs.

    Attributes:
        topic: The topic, as it was looked at for this job.
        connected: Returns True if the region of that name answered for this topic less than 10 s ago, with the log from
            which records were taken.
        there: Returns the topic as the region of that name last showed it; ``None`` if that is not known.
    """

    context: Context
    appender: Appender
    topic: TopicItem
    link: AppliedUpdates
    connected: Callable[[str], bool]
    there: Callable[[str], PeerTopic | None] = lambda _: None
    partition: Partition = field(init=False)
    others: Sequence[str] = field(init=False)  # the topic's other regions

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition", self.appender.partition)
        others = [region for region in self.topic.topic.regions if region != self.context.region]
        object.__setattr__(self, "others", others)

    @property
    def asked(self) -> Mapping[str, PeerTopic | None]:
        """Return the regions that a REQUEST asks, each with its topic, if that is known.

        They are the topic's other regions that have this partition, and are not suspended. A region without this
        partition has no records that a cursor could pass.
        """
        found = {region: self.there(region) for region in self.others if region not in self.topic.suspended}
        number = self.partition.partition
        return {region: topic for region, topic in found.items() if topic is None or number < topic.partitions}

    def append(self, entry: MarkerEntry) -> Marked | Outdated:
        """Append a marker; see ``append_marker``."""
        return append_marker(self.appender, entry, APPEND_MS + self.context.create_ms)


def append_marker(appender: Appender, entry: Entry, wait_ms: int) -> Marked | Outdated:
    """Append a marker, or learn that it is in the log, or no longer due.

    Raises:
        FencelineError: As ``Appender.append``.
        StaleTopicId: The log is sealed, or the name leads elsewhere. Nothing was written.
    """
    outcome = appender.append(entry, appender.partition.context.runtime.monotonic_ms() + wait_ms)
    assert isinstance(outcome, Marked | Outdated)
    return outcome
