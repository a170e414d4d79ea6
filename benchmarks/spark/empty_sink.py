"""A sink in Python that takes rows and keeps none, for the least cost of a sink in Python.

Not here: Spark's own empty sink, which never leaves Java (``noop``).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

NAME = "empty"


def register(spark: SparkSession) -> None:
    """Let ``spark`` find the sink as ``format("empty")``."""
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers need not find this module
    spark.dataSource.register(_Empty)


class _Writer(DataSourceArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        gc.freeze()  # as fenceline's, so that no collection of what is imported counts
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _StreamWriter(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        gc.freeze()
        for _ in iterator:
            pass
        return WriterCommitMessage()


class _Empty(DataSource):
    @classmethod
    def name(cls) -> str:
        return NAME

    def writer(self, schema: Any, overwrite: bool) -> _Writer:  # noqa: ARG002
        gc.freeze()
        return _Writer()

    def streamWriter(self, schema: Any, overwrite: bool) -> _StreamWriter:  # noqa: ARG002, N802
        gc.freeze()
        return _StreamWriter()
