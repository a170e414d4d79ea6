"""The session that a job of the command line runs in, and what failed in it, in one line.

Rule: ``spark-submit`` decides where a job runs. Without it a job uses all cores of this machine.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set where spark-submit began this process
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+)$", re.MULTILINE)


class JobError(Exception):
    """A job that failed; the message is one line, and says what to do."""


@contextmanager
def session(name: str, *, shows_progress: bool = False) -> Iterator[SparkSession]:
    """Lend the session of a job, and end it.

    Args:
        name: What Spark's own pages call the job.
        shows_progress: Show a bar on stderr for each stage.

    Raises:
        JobError: A task failed. The message is that of the error in the task.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = (
        SparkSession.builder.appName(name)
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true")
        .config("spark.ui.showConsoleProgress", str(shows_progress).lower())
    )
    if _SUBMITTED not in os.environ:
        builder = builder.master("local[*]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")  # what fails is raised, and printed once
    try:
        with one_line_errors():
            yield spark
    finally:
        spark.stop()


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Raise what a task raised as one line.

    Raises:
        JobError: A task failed.
    """
    try:
        yield
    except PySparkException as error:
        raise JobError(reason(str(error))) from error


def reason(text: str) -> str:
    """Return the message of the error that ended a task, from the traceback that Spark gives."""
    text = text.partition("JVM stacktrace:")[0]
    raised = [match for match in _RAISED.findall(text) if match[0] not in ("PythonException", "SparkException")]
    return raised[-1][1].strip() if raised else " ".join(text.split())
