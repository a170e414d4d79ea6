"""Explicit trims: the log start moved forward, to exactly the offset that was asked for (DESIGN.md, section 10).

The rule: first the checkpoint is brought to the new log start or beyond, then the log start moves, in the same item; so
nothing is ever needed that lies below it; then the object under ``state/`` follows. Objects are deleted by the sweeper.
"""

from __future__ import annotations

from contextlib import suppress

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.log.checkpoint import move_log_start
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.replay import newest_state, write_state
from fenceline.log.tail import out_of_range, verified_tail
from fenceline.ports import StoreFact


def trim(partition: Partition, before_offset: int) -> int:
    """Forget every record below ``before_offset``, and return the log start.

    Raises:
        OffsetOutOfRangeError: ``before_offset`` lies beyond the next offset. Nothing was changed.
        StoreUnavailableError, ContendedError: The log start was not moved.
        OutcomeUnknownError: It may have been.
        StaleTopicId, CorruptLogError: As ``verified_tail``.
    """
    bounds = verified_tail(partition).bounds
    if before_offset > bounds.next_offset:
        raise out_of_range(before_offset, bounds)
    if before_offset <= bounds.log_start_offset:
        return bounds.log_start_offset
    log_start = move_log_start(partition, before_offset)
    # The trim stands. Nothing is deleted before this object is there; the next trim makes it up.
    with suppress(StoreFact, CorruptLogError, StaleTopicId):
        keep_state(partition, log_start)
    return log_start


def keep_state(partition: Partition, log_start: int) -> None:
    """Store the fold at the log start, for a rebuild from the objects alone: at most once in 10 minutes."""
    context, topic_id, number = partition.context, partition.topic_id, partition.partition
    newest = newest_state(context, topic_id, number)
    if newest is not None and 0 <= context.runtime.now_ms() - newest.modified_at < limits.STATE_MS:
        return
    until_ms = context.runtime.monotonic_ms() + limits.STATE_REQUEST_MS  # the sweeper has more time
    write_state(
        context,
        topic_id,
        number,
        log_start,
        segments_max=limits.STATE_SEGMENTS_MAX,
        expiration_ms=partition.look().topic.setting("producer.id.expiration.ms"),
        is_over=lambda: context.runtime.monotonic_ms() >= until_ms,
    )
