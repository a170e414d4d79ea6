"""The progress of a job, asked of Spark now and then: the tasks of the stages that run, done and in all.

Not here: how it is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

_EVERY_S = 0.3

OnProgress = Callable[[int, int], object]  # (tasks done, tasks)


@contextmanager
def watched(spark: SparkSession, on_progress: OnProgress) -> Iterator[None]:
    """Call ``on_progress`` from another thread, a few times a second, while stages run."""
    is_over = threading.Event()
    watcher = threading.Thread(target=_watch, args=(spark, on_progress, is_over), name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _watch(spark: SparkSession, on_progress: OnProgress, is_over: threading.Event) -> None:
    tracker = spark.sparkContext.statusTracker()
    while not is_over.wait(_EVERY_S):
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        running = [stage for stage in stages if stage is not None]
        if running:
            on_progress(sum(one.numCompletedTasks for one in running), sum(one.numTasks for one in running))
