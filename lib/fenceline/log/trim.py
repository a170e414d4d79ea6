"""Explicit trims: the log start moves forward to exactly the offset that a caller asks for ("The log start").

Rule: first the checkpoint moves to the new log start or beyond; then the log start moves, in the same item, so that
nothing below the log start is ever needed. Then the object under ``state/`` follows.

Not here: deleting the objects below the log start; see ``sweeper``.
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
    """Move the log start to ``before_offset``, unless it lies there or beyond, and return the log start then.

    Raises:
        OffsetOutOfRangeError: ``before_offset`` lies beyond the next offset. Nothing was changed.
        StoreUnavailableError, ContendedError: The log start was not moved.
        OutcomeUnknownError: It may have been moved.
        StaleTopicId, CorruptLogError: As ``verified_tail``.
    """
    bounds = verified_tail(partition).bounds
    if before_offset > bounds.next_offset:
        raise out_of_range(before_offset, bounds)
    if before_offset <= bounds.log_start_offset:
        return bounds.log_start_offset
    log_start = move_log_start(partition, before_offset)
    # The trim is done already, so a failure here is ignored: nothing is deleted before this object exists, and the next
    # trim makes a missing one.
    with suppress(StoreFact, CorruptLogError, StaleTopicId):
        keep_state(partition, log_start)
    return log_start


def keep_state(partition: Partition, log_start: int) -> None:
    """Store the state at the log start, for a rebuild from the objects alone, at most once in 10 minutes."""
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
        expiration_ms=partition.refresh().topic.setting("producer.id.expiration.ms"),
        is_over=lambda: context.runtime.monotonic_ms() >= until_ms,
    )
