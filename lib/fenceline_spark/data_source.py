"""The data source ``fenceline`` as PySpark sees it: its name, its columns, its readers and writers.

Rule: ``load()`` refuses wrong options, because it asks for the columns. If ``.schema(…)`` gives the columns, then the
first action or ``start()`` refuses wrong options, because Spark asks for nothing before.

Not here: reading and writing; see ``source`` and ``sink``.
"""

from __future__ import annotations

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from fenceline.errors import FixError
from fenceline_spark.plain_errors import plain_errors
from fenceline_spark.schema import columns_of, schema_of
from fenceline_spark.service import freeze_modules
from fenceline_spark.source.batch import BatchReader
from fenceline_spark.source.options import SourceOptions
from fenceline_spark.source.stream import RefusedStream, make_stream_reader


class FencelineDataSource(DataSource):
    """fenceline's topics, to read and to write."""

    @classmethod
    def name(cls) -> str:
        return "fenceline"

    @plain_errors
    def schema(self) -> StructType:
        freeze_modules()
        return schema_of(SourceOptions.of(self.options).included)

    @plain_errors
    def reader(self, schema: StructType) -> DataSourceReader:
        freeze_modules()
        options = SourceOptions.of(self.options).for_batch()
        return BatchReader(options, columns_of(schema, options.included))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        freeze_modules()
        try:
            options = SourceOptions.of(self.options).for_stream()
            return make_stream_reader(options, columns_of(schema, options.included))
        except FixError as error:
            return RefusedStream(error)

    @plain_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from fenceline_spark.sink import make_writer

        freeze_modules()
        return make_writer(self.options, schema, overwrite)

    @plain_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from fenceline_spark.sink import make_stream_writer

        freeze_modules()
        return make_stream_writer(self.options, schema, overwrite)
