"""The systems of a run: the session of Spark, the service, and the rival where there is one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.spark.measure import Bench
from benchmarks.spark.ours import FencelineProcess
from benchmarks.spark.rivals import Kafka


@dataclass(frozen=True)
class Systems:
    """The systems that take part in a run.

    Args:
        kafka: ``None`` without a rival.
        directory: For files of the run.
        tell: Prints a line about its progress.
    """

    spark: Any
    fenceline: FencelineProcess
    kafka: Kafka | None
    bench: Bench
    directory: Path
    tell: Callable[[str], None]

    def fresh_directory(self) -> Path:
        return Path(tempfile.mkdtemp(dir=self.directory))
