"""The sink: rows written exactly once, whole batches or none of their rows ("Exactly once on Spark").

Rule: a task encodes rows and sends them in a transaction of its own, or hands few rows to the driver. The driver's one
request makes all of them visible.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from pyspark.sql.types import StructType

from fenceline.errors import InvalidRequestError
from fenceline_spark.service import client_of
from fenceline_spark.sink.columns import check_columns
from fenceline_spark.sink.options import SinkOptions
from fenceline_spark.sink.writers import BatchWriter, StreamWriter


def make_writer(options: Mapping[str, str], schema: StructType, is_overwrite: bool) -> BatchWriter:
    """Return the writer of one batch write.

    Raises:
        InvalidRequestError: An option or a column is refused, or the mode is overwrite. Nothing was written.
        UnknownTopicOrPartitionError: There is no topic of that name. A write makes none.
    """
    found = SinkOptions.of(options, is_stream=False)
    if is_overwrite:
        raise InvalidRequestError(
            'a log is only appended to, so overwrite is refused; write with .mode("append"): mode=overwrite'
        )
    check_columns(schema, found.topic)
    if found.topic is not None:
        client_of(found.endpoint, found.region).topic(found.topic)
    return BatchWriter(found, uuid.uuid4().hex)


def make_stream_writer(options: Mapping[str, str], schema: StructType, is_overwrite: bool) -> StreamWriter:
    """Return the writer of one batch of a stream.

    Raises:
        InvalidRequestError: An option or a column is refused, or the output mode is complete. Nothing was written.
    """
    found = SinkOptions.of(options, is_stream=True)
    if is_overwrite:
        raise InvalidRequestError(
            "a log is only appended to, so output mode complete is refused; write in mode append, or from foreachBatch "
            "with txnVersion: outputMode=complete"
        )
    check_columns(schema, found.topic)
    return StreamWriter(found)
