"""The records that are read and written: real reviews, and records of 1 KiB, as rows and as batches.

Rule: both systems get the same records, each in its key's partition by Kafka's murmur2.
"""

from __future__ import annotations

import bz2
import random
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from fenceline import Client, Record
from fenceline.format import batch
from fenceline.format.batch import Codec
from fenceline.format.partitioner import partition_of

REVIEWS = Path(__file__).parents[2] / "examples" / "data" / "anonreviews.csv.bz2"
PARTITIONS = 8
BATCH_BYTES = 1_000_000  # a producer's, before compression
KIB = 1024
FILES = 2  # in a DataFrame, with a task each
COLUMNS = "key binary, value binary"
# Settings by which a producer of Kafka makes batches as large; its default is 16 KiB.
LARGE_BATCHES = {"kafka.batch.size": "1000000", "kafka.linger.ms": "50"}
_FIELDS_BYTES = 16  # in a record, at most, beside its key and value


@cache
def reviews(count: int | None = None) -> Sequence[Record]:
    """Return the first ``count`` reviews, or all: the key is the reviewer, the value the line, the time that of it."""
    with bz2.open(REVIEWS, "rb") as lines:
        next(lines)
        return [_review(line.rstrip()) for line in islice(lines, count)]


def _review(line: bytes) -> Record:
    key, rest = line.split(b",", 1)
    written = datetime.fromisoformat(rest[-16:].decode()).replace(tzinfo=UTC)
    return Record(line, key, timestamp=int(written.timestamp() * 1000))


def large(count: int) -> Sequence[Record]:
    """Return records of 1 KiB, with the reviews' keys."""
    chance = random.Random(0)
    values = [chance.randbytes(KIB) for _ in range(100)]
    return [
        Record(values[n % len(values)], record.key, timestamp=record.timestamp)
        for n, record in enumerate(reviews(count))
    ]


def keyed(count: int, keys: int) -> Iterator[Record]:
    """Yield records over so many keys, in an order in which neighbours are unrelated."""
    order = list(range(keys))
    random.Random(0).shuffle(order)
    for n in range(count):
        key = order[n % keys]
        yield Record(b"the value of key %d at turn %d" % (key, n // keys), b"%d" % key, timestamp=n)


def load(client: Client, topic: str, records: Sequence[Record], *, times: int, codec: Codec = "none") -> None:
    """Make a topic of ``PARTITIONS`` partitions with ``records``, so many times over, as a producer would send them."""
    client.create_topic(topic, partitions=PARTITIONS)
    parted: list[list[Record]] = [[] for _ in range(PARTITIONS)]
    for record in records:
        parted[partition_of(record.key or b"", PARTITIONS)].append(record)
    with ThreadPoolExecutor(2) as threads:
        list(threads.map(lambda n: append(client, topic, n, batches(parted[n], codec), times=times), range(PARTITIONS)))


def append(client: Client, topic: str, partition: int, bodies: Sequence[bytes], *, times: int = 1) -> None:
    for _ in range(times):
        for body in bodies:
            client.produce_batch(
                topic, partition, body, effect="once", expected_offset=None, session=None, retry_ms=60_000
            )


def batches(records: Sequence[Record], codec: Codec = "none") -> list[bytes]:
    """Return the records as a producer's batches."""
    bodies, at = [], 0
    while at < len(records):
        size = 0
        end = at
        while end < len(records) and size < BATCH_BYTES:
            size += len(records[end].value or b"") + len(records[end].key or b"") + _FIELDS_BYTES
            end += 1
        bodies.append(batch.encode(records[at:end], now_ms=0, codec=codec).body)
        at = end
    return bodies


def frame(spark: Any, records: Sequence[Record], path: Path) -> Any:
    """Return the records as a DataFrame of ``key`` and ``value``, kept in files below ``path``."""
    path.mkdir(parents=True, exist_ok=True)
    per_file = -(-len(records) // FILES)
    for number, first in enumerate(range(0, len(records), per_file)):
        write_file(records[first : first + per_file], path / f"{number:06d}.parquet")
    return spark.read.schema(COLUMNS).parquet(str(path))


def write_file(records: Sequence[Record], path: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    columns = {"key": [record.key for record in records], "value": [record.value for record in records]}
    schema = pa.schema([(name, pa.binary()) for name in columns])
    parquet.write_table(pa.table(columns, schema=schema), path)
