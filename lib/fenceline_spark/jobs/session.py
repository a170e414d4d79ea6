"""The session that a job of the command line runs in, and its failure in one line.

Rule: ``spark-submit`` decides where a job runs. Without it a job uses all cores of this machine. The output of Java is
then kept back, because a job prints only its result, or one line that says what failed.

Rule: Ctrl-C ends a job without a traceback, and leaves no process. While Spark starts or stops, Ctrl-C waits for that.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from fenceline_spark.java import NoJavaError, provide

_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # set where spark-submit began this process
_RAISED = re.compile(r"^(?:[\w.]+\.)?(\w+): (.+)$", re.MULTILINE)
_WRAPPERS = ("PythonException", "SparkException")
_SHOWN_CHARS = 300


class JobError(Exception):
    """A job that failed; the message is one line, and says what to do."""


@contextmanager
def session(name: str) -> Iterator[SparkSession]:
    """Lend the session of a job, and end it.

    Args:
        name: What Spark's own pages call the job.

    Raises:
        JobError: Spark did not start, or a task failed. The message is that of the error in the task.
    """
    builder = SparkSession.builder.appName(name).config("spark.sql.session.timeZone", "UTC")
    if _SUBMITTED in os.environ:
        spark = builder.getOrCreate()
    else:
        spark = _local(builder.master("local[*]").config("spark.ui.enabled", "false"))
    try:
        spark.sparkContext.setLogLevel("OFF")  # what fails is raised, and printed once
        for own in ("SQLQueryContextLogger", "py4j.clientserver"):  # PySpark's, for the same errors, and for Ctrl-C
            logging.getLogger(own).setLevel(logging.CRITICAL + 1)
        with one_line_errors():
            yield spark
    finally:
        with _interrupted_after():
            spark.stop()


@contextmanager
def _interrupted_after() -> Iterator[None]:
    """Hold the first Ctrl-C back until the block is over; a second one counts at once.

    Raises:
        KeyboardInterrupt: Ctrl-C came meanwhile.
    """
    is_held = False

    def hold(*_: object) -> None:
        nonlocal is_held
        is_held = True
        signal.signal(signal.SIGINT, before)

    before = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()  # no other thread may set a handler
    if is_main and before is signal.default_int_handler:
        signal.signal(signal.SIGINT, hold)
    try:
        yield
    finally:
        if is_main:
            signal.signal(signal.SIGINT, before)  # PySpark's own fails where its session stops
    if is_held:
        raise KeyboardInterrupt


def _local(builder: SparkSession.Builder) -> SparkSession:
    try:
        provide()
    except NoJavaError as error:
        raise JobError(str(error)) from error
    with _stderr_kept() as kept:
        try:
            with _interrupted_after():  # Java that is cut off in its start would wait forever
                return builder.getOrCreate()
        except KeyboardInterrupt:
            started = SparkSession.getActiveSession()
            if started is not None:
                started.stop()
            raise
        except (PySparkException, OSError) as error:
            kept.seek(0)
            last = kept.read().decode(errors="replace").strip().rpartition("\n")[2]
            raise JobError(f"Spark did not start: {last or reason(str(error))}") from error


@contextmanager
def _stderr_kept() -> Iterator[IO[bytes]]:
    """Give the processes that begin meanwhile a file as stderr, for their whole life, and lend it."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as kept:
        os.dup2(kept.fileno(), 2)
        try:
            yield kept
        finally:
            os.dup2(before, 2)
            os.close(before)


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Raise the error of a task as one line.

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
    raised = [message for name, message in _RAISED.findall(text) if name not in _WRAPPERS]
    return raised[-1].strip() if raised else " ".join(text.split())[:_SHOWN_CHARS]
