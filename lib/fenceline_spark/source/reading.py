"""The arguments of the tasks of a read: one range of offsets for each task, and how to read it.

Rule: no URL is part of the arguments, so that planning costs the same whatever the number of segments.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql.datasource import InputPartition


@dataclass(frozen=True)
class ReadRange(InputPartition):
    """The records of one partition with offsets in [start, end)."""

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int


@dataclass(frozen=True)
class ReadSettings:
    """The options of a read that hold for each of its ranges.

    Attributes:
        endpoint: The URL of the service.
        region: The region that requests are signed for, as the client's ``region``; ``None`` signs none.
        columns: The names of the columns asked for, in their order.
        is_committed: Rows of open and aborted transactions are left out (``read_committed``).
        origin: ``own`` leaves replicated records out; ``None`` reads all.
        fails_on_loss: Records that are no longer kept fail the task; otherwise they are counted and passed over.
    """

    endpoint: str
    region: str | None
    columns: tuple[str, ...]
    is_committed: bool = True
    origin: str | None = None
    fails_on_loss: bool = True
