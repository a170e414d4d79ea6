"""The stores of a process of Spark, the driver or a worker.

Rule: opened stores are kept for the life of the process. PySpark reuses its workers, so connections outlive a task.
"""

from __future__ import annotations

from functools import cache

from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_http import wiring


@cache
def log_of(settings: Settings) -> Log:
    """Return this process's log on the stores that ``settings`` names.

    Raises:
        CannotOpen, Unavailable: The stores can't be used.
    """
    runtime = wiring.runtime_of(settings)
    objects, items = wiring.stores_of(settings, now_ms=runtime.now_ms)
    return wiring.log_of(settings, objects, items, runtime)


@cache
def partition_of(settings: Settings, topic: str, topic_id: str, partition: int) -> Partition:
    """Return this process's partition of one incarnation of a topic; it is not opened.

    Raises:
        CannotOpen, Unavailable: The stores can't be used.
    """
    context: Context = log_of(settings).context
    return Partition(context, topic, topic_id, partition)
