"""A slow reading of ranges, record by record, until the columnar one is here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from fenceline_spark.service import client_of
from fenceline_spark.source.reading import Reading, ReadRange

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    "topic_epoch": pa.int32(),
    "origin": pa.string(),
}


def read_range(reading: Reading, one: ReadRange) -> Iterator[pa.RecordBatch]:
    client = client_of(reading.endpoint, reading.region)
    at = one.start
    isolation = "read_committed" if reading.is_committed else "read_uncommitted"
    while at < one.end:
        page = client.read(one.topic, one.partition, offset=at, isolation=isolation)
        rows: list[dict[str, Any]] = [
            {
                "key": r.key,
                "value": r.value,
                "topic": one.topic,
                "partition": one.partition,
                "offset": r.offset,
                "timestamp": None if r.timestamp < 0 else r.timestamp * 1000,
                "timestampType": 0,
                "headers": [{"key": k, "value": v} for k, v in r.headers] or None,
                "topic_epoch": r.topic_epoch,
                "origin": r.origin,
            }
            for r in page.records
            if r.offset < one.end
        ]
        if rows:
            schema = pa.schema([(name, _TYPES[name]) for name in reading.columns])
            yield pa.RecordBatch.from_pylist([{n: row[n] for n in reading.columns} for row in rows], schema=schema)
        if page.position <= at:
            return
        at = page.position
