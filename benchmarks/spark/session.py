"""The one session of Spark that all is measured in.

Rule: two cores, Spark's own defaults, and no user interface.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CORES = 2


@contextmanager
def session(directory: Path, jars: Sequence[Path]) -> Iterator[Any]:
    """Lend the session; what it keeps on disk is below ``directory``.

    Raises:
        NoJavaError: Spark finds no Java. Nothing was started.
    """
    from pyspark.sql import SparkSession

    from fenceline_spark import java

    java.provide()
    made = (
        SparkSession.builder.master(f"local[{CORES}]")
        .appName("fenceline-bench")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.memory", "2g")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.local.dir", str(directory / "spark"))
        .config("spark.sql.warehouse.dir", str(directory / "warehouse"))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    made.sparkContext.setLogLevel("ERROR")
    try:
        yield made
    finally:
        made.stop()
