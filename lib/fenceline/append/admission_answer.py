"""The question of a check to a transaction's coordinator, and the time for which the answer holds ("Admission").

An admission says: at some moment after it was asked for, the coordinator was Ongoing at the batch's epoch and named
this partition. So the marker that ends that epoch here comes after that moment.

Rule: an answer holds only while this process follows the log segment by segment, because then the process knows what
the log has said of a producer since the question. The answer must be asked for again after 60 s, and once anything that
the process knew may have been dropped.

Not here: reading the coordinator's item, which is done beside the queue; see ``transactions``.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline import limits
from fenceline.log.context import Context, Instant

LOWERED = -1  # in the place of ``seen``, once a batch of the same group has lowered a producer's epoch


@dataclass(frozen=True, slots=True)
class AskCoordinator:
    """The entry may be appended once the coordinator's item was read, after this check, and allows it.

    Args:
        seen: How often the states of the partition's producers had been dropped before the check
            (``Partition.producers_dropped``).
    """

    seen: int


@dataclass(frozen=True, slots=True)
class CoordinatorAnswer:
    """The coordinator's item allowed the entry.

    Args:
        asked: When the answer was asked for: a moment before the item was read.
        seen: The ``seen`` of the check that asked.
    """

    context: Context
    asked: Instant
    seen: int

    def holds(self, seen: int) -> bool:
        """Return True if the answer still counts for a check with this ``seen`` (I12).

        A check has ``LOWERED``, for which no answer counts, if an earlier batch of its group lowered an epoch, because
        the number of drops does not show that.
        """
        # model: Transaction, "a new state voids an admission"
        return self.seen == seen != LOWERED and self.context.is_within(limits.ADMISSION_MS, self.asked)
