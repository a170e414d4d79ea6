"""What a check asks of a transaction's coordinator, and for how long the answer holds ("Admission").

An admission says: at some moment after it was asked for, the coordinator was Ongoing at the batch's epoch and named
this partition. So the marker that ends that epoch here comes after that moment.

Rule: an answer holds only while this process follows the log segment by segment. What the log has said of a producer
since the question is then known. The answer must be asked for again after 60 s, and once anything may have been
dropped.

Not here: reading the coordinator's item, which is done beside the queue; see ``transactions``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline import limits
from fenceline.log.context import Context, Instant

LOWERED = -1  # in the place of ``seen``, once a batch of the same group has lowered a producer's epoch


@dataclass(frozen=True, slots=True)
class AskCoordinator:
    """The entry may be appended once the coordinator's item was read, after this check, and says so.

    Args:
        seen: How often what is known of the partition's producers had been dropped before the check
            (``Partition.producers_dropped``).
    """

    seen: int


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """The coordinator's item allowed the entry.

    Args:
        asked: When the answer was asked for: a moment before the item was read.
        seen: Of the check that asked.
    """

    context: Context
    asked: Instant
    seen: int

    def holds(self, seen: int) -> bool:
        """Return True if the answer still counts for a check with this ``seen`` (I12).

        Behind a batch that lowered an epoch within its group a check has ``LOWERED``, for which no answer counts. The
        number says nothing of what another group saw.
        """
        # model: Transaction, "a new state voids an admission"
        return self.seen == seen != LOWERED and self.context.is_within(limits.ADMISSION_MS, self.asked)
