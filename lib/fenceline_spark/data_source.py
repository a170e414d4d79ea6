"""The data source ``fenceline`` as PySpark sees it: its name, its columns, its readers and writers.

Rule: options of a read are parsed as soon as there are any, so that ``load()`` refuses what is wrong.

Not here: reading and writing; see ``source`` and ``sink``.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from fenceline_spark.schema import columns_of, schema_of
from fenceline_spark.source.batch import BatchReader
from fenceline_spark.source.options import SourceOptions, is_read
from fenceline_spark.source.stream import StreamReader


class FencelineDataSource(DataSource):
    """fenceline's topics, to read and to write."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        # With .schema(…) load() asks for nothing more. So this is where it learns what is wrong.
        if is_read(options):
            SourceOptions.of(options)

    @classmethod
    def name(cls) -> str:
        return "fenceline"

    def schema(self) -> StructType:
        return schema_of(SourceOptions.of(self.options).included)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.of(self.options).for_batch()
        return BatchReader(options, columns_of(schema, options.included))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = SourceOptions.of(self.options).for_stream()
        return StreamReader(options, columns_of(schema, options.included))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from fenceline_spark.sink import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from fenceline_spark.sink import make_stream_writer

        return make_stream_writer(self.options, schema, overwrite)
