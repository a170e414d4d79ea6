"""Data loss: records that a read asks for, and that the log does not keep.

Rule: markers and aborted records are never loss.

Rule: a read that fails by data loss names the first partition, the range asked for, the range kept, and the ways out. A
read that goes on without the records says so once a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.errors import OffsetOutOfRangeError

WAYS_OUT = (
    "read what is kept, by other offsets or a new checkpoint, or set failOnDataLoss=false to go on without the rest"
)

_SUBSCRIBE_AGAIN = (
    "name them again, beside any new ones, or begin a new checkpoint, or set failOnDataLoss=false to go on without them"
)

DELETED = "retention or a trim deleted records"
NOT_SUBSCRIBED = "the checkpoint belongs to other topics or partitions than the query reads"
CUT_SHORT = "the log ends before that offset, as after the loss of a region"

# Not below "fenceline", which is silent unless a program asks for output: a warning is meant to be seen.
log = logging.getLogger("fenceline_spark")


class DataLossError(OffsetOutOfRangeError):
    """Records that were asked for are not kept, and ``failOnDataLoss`` is true. No row of the batch was shown."""


@dataclass(frozen=True)
class Loss:
    """A range of one partition that was asked for, and what is kept.

    Attributes:
        asked: Offsets [start, end) that were asked for. -1 as the end is an end not known yet.
        kept: Offsets [log start, next offset); ``None`` if the topic or the partition is gone.
        why: The reason, as a clause.
    """

    topic: str
    partition: int
    asked: tuple[int, int]
    kept: tuple[int, int] | None
    why: str = DELETED

    @property
    def skipped(self) -> int:
        """Return how many of the offsets asked for are not kept."""
        start, end = self.asked
        if self.kept is None:
            return max(end - start, 0)
        return max(min(end, self.kept[0]) - start, 0) + max(end - max(start, self.kept[1]), 0)

    def __str__(self) -> str:
        kept = "none" if self.kept is None else _shown(self.kept)
        return f"topic={self.topic} partition={self.partition} asked={_shown(self.asked)} kept={kept}"


def data_loss_error(losses: Sequence[Loss]) -> DataLossError:
    """Return the error of a read that needs all of its records, by the first of ``losses``."""
    first = losses[0]
    others = f" partitions_lost={len(losses)}" if len(losses) > 1 else ""
    if first.why == NOT_SUBSCRIBED:
        return DataLossError(f"{NOT_SUBSCRIBED}; {_SUBSCRIBE_AGAIN}: {first}{others}")
    return DataLossError(f"records that were asked for are not kept: {first.why}; {WAYS_OUT}: {first}{others}")


def report(losses: Sequence[Loss], *, fails: bool) -> None:
    """Raise the error of ``losses`` if the read ``fails`` by them; otherwise warn of all of them, once.

    Raises:
        DataLossError: There are losses, and the read fails by them.
    """
    if not losses:
        return
    if fails:
        raise data_loss_error(losses)
    log.warning(
        "fenceline goes on without records that are not kept: partitions=%d offsets=%d %s",
        len(losses),
        sum(loss.skipped for loss in losses),
        "; ".join(f"{loss} why={loss.why}" for loss in losses),
    )


def _shown(offsets: tuple[int, int]) -> str:
    start, end = offsets
    return f"[{start}, {'…' if end < 0 else end})"
