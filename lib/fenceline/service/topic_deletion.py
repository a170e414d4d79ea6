"""Topics, deleted: marked as going, each partition sealed, and only then the name given up (DESIGN.md, section 10).

The rule: nothing follows SEAL in a log, so that once all are sealed nobody's append can land in this incarnation any
more. A DELETE that died is gone on with by the next one, or by the sweeper.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from fenceline.append.entry import Marked, Stamped, TentativeState
from fenceline.format import control
from fenceline.format.batch import parse_header
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.topic_item import TopicItem
from fenceline.service.resolver import PartitionResolver


@dataclass(frozen=True, slots=True)
class SealEntry:
    """The marker that ends a partition's life."""

    size: int = 0
    producer_id: int | None = None
    is_internal: bool = True
    is_going_allowed: bool = True

    def check(self, tentative: TentativeState, now_ms: int) -> Stamped:
        offset, epoch = tentative.state.next_offset, tentative.state.topic_epoch
        body = control.encode_marker(control.SEAL, {}, base_offset=offset, leader_epoch=epoch, now_ms=now_ms)
        return Stamped(body, parse_header(body), Marked(offset))


def end_incarnation(context: Context, resolver: PartitionResolver, going: TopicItem, timeout_ms: int) -> None:
    """Seal every partition of a topic that is going, side by side, and give its name up.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError, CorruptLogError: Not all is sealed.
    """
    topic, runtime = going.topic, context.runtime

    def seal(partition: int) -> None:
        with suppress(StaleTopicId):  # sealed already: nothing follows SEAL, whoever wrote it
            resolver.appender(topic, partition).append(SealEntry(), runtime.monotonic_ms() + timeout_ms)

    resolver.forget(topic.name)
    runtime.gather([partial(seal, p) for p in range(topic.partitions)])
    topics.free_name(context, going)
    resolver.forget(topic.name, going)
