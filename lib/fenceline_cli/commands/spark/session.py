"""Spark as a command borrows it, started for the command and ended with it, and one line where it is not installed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fenceline.model.topic import LEGAL_NAME
from fenceline.quiet_start import QuietStart
from fenceline_cli.options import connect
from fenceline_cli.output import CommandError
from fenceline_cli.progress import progress_bar

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OURS = "fenceline"


def require_spark() -> None:
    """Load the modules that run jobs, before a command does anything else.

    Raises:
        CommandError: A part of it is not installed, or too old.
    """
    try:
        with QuietStart():
            import fenceline_spark.jobs  # noqa: F401  # only here: a second, and an extra
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing.startswith(_OURS):
            raise
        if error.name == "pyspark.sql.datasource":  # 4.0 is the first that has it
            line = 'this command needs PySpark 4.0 or newer, and an older one is installed: pip install "pyspark>=4.0"'
            raise CommandError(line) from error
        line = f'this command runs on Spark, and {missing} is not installed: pip install "fenceline-log[spark]"'
        raise CommandError(line) from error


def require_topics(url: str, *topics: str) -> None:
    """Ask the service for these topics, because Spark takes much longer to start than a refusal takes.

    Raises:
        CommandError: No topic can have such a name.
        FencelineError: There is no such topic, or no service answers.
    """
    for topic in topics:
        if LEGAL_NAME.fullmatch(topic) is None:
            raise CommandError(f"no topic can have this name; it has 1 to 249 of A-Z a-z 0-9 . _ -: topic={topic}")
    with connect(url) as client:
        for topic in topics:
            client.topic(topic)


@contextmanager
def borrowed_session(what: str) -> Iterator[SparkSession]:
    """Lend a session of Spark, and show on a terminal how far its stages are. Elsewhere say that Spark starts.

    Args:
        what: The job's name, for the bar and for Spark's own pages.

    Raises:
        CommandError: Spark is not installed, did not start, or a task failed.
    """
    require_spark()
    from fenceline_spark.jobs.progress import watched
    from fenceline_spark.jobs.session import JobError, session

    if not sys.stderr.isatty():
        typer.echo(f"{what}: starting Spark …", err=True)
    try:
        with progress_bar() as progress:
            task = progress.add_task(f"{what}: starting Spark", total=None)
            with (
                session(f"fenceline {what}") as spark,
                watched(spark, lambda done, of: progress.update(task, description=what, completed=done, total=of)),
            ):
                yield spark
    except JobError as error:
        raise CommandError(str(error)) from error
