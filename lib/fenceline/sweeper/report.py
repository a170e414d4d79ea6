"""The report of one run of the sweeper: counts, and problems.

Rule: numbers and texts only. Schedules log it, and metrics are made of it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class SweepReport:
    """The report of one run."""

    is_whole: bool = False  # False: the next run continues where this one stopped
    is_thorough: bool = False
    topics: int = 0
    partitions: int = 0
    checkpoints: int = 0  # brought forward
    log_starts: int = 0  # moved by retention
    states: int = 0  # objects made under state/
    compactions: int = 0
    transactions: int = 0  # ended, because they were due
    transactions_overdue: int = 0  # due for 5 minutes, and not ended by this run either
    transactions_ahead: int = 0  # open, with a time that the store's clock has not shown yet: see ``problems``
    transactions_hanging: int = 0  # open in a partition, and no coordinator will end them: see ``problems``
    group_members: int | None = None  # of all groups; None unless this run looked at every group
    groups_unsettled: int | None = None  # likewise: with members, and not Stable for a minute
    objects: int = 0  # deleted
    items: int = 0  # deleted
    problems: list[str] = field(default_factory=list)
    unexpected: int = 0  # errors that no step should raise: see ``problems``
    is_corrupt: bool = False  # stored data breaks an invariant: see ``problems``
