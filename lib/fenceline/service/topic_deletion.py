"""The end of a topic: marked as going, each partition sealed, then the name freed (protocol, "Deleted topics").

Rule: nothing follows SEAL in a log, so once all partitions are sealed no append can land in this incarnation. The next
DELETE, or the sweeper, resumes a DELETE that crashed.

Not here: the objects and items that are left, which the sweeper deletes (``sweeper.deleted_topics``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fenceline.append.appender import appender_of
from fenceline.append.entries.entry import Entry, StoredBatch, stored_marker
from fenceline.format import control
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.state import TentativeState
from fenceline.log.topic_item import TopicItem
from fenceline.service.resolver import PartitionResolver


@dataclass(frozen=True, slots=True)
class SealEntry(Entry):
    """The marker after which nothing is appended to a partition."""

    goes_alone = True
    is_urgent = True
    is_going_allowed = True

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch:
        return stored_marker(tentative.state, control.SEAL, {}, now_ms)


def end_incarnation(context: Context, resolver: PartitionResolver, going: TopicItem, timeout_ms: int) -> None:
    """Seal every partition of a topic that is going, side by side, then free its name.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError, CorruptLogError: Not every partition is sealed.
    """
    topic, runtime = going.topic, context.runtime

    def seal(partition: int) -> None:
        with suppress(StaleTopicId):  # sealed already, by any request
            appender = appender_of(resolver.partitions, topic.name, topic.topic_id, partition)
            appender.append(SealEntry(), runtime.monotonic_ms() + timeout_ms)

    resolver.forget(topic.name)
    runtime.gather([partial(seal, p) for p in range(topic.partitions)])
    topics.free_name(context, going)
    resolver.forget(topic.name, going)
