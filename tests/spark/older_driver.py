"""A program that runs batch, sink, stream and jobs on its Python's PySpark: ``python -m tests.spark.older_driver``.

Rule: it asserts what holds on each version, and ends with a line that names the version. It needs no pytest.

Not here: which versions there are; see ``test_older_pyspark``.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from fenceline.adapters.sqlite.directory import open_directory
from fenceline.append.entries.batch import AppendRequest
from fenceline.client import Client
from fenceline.format import batch
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.settings import Settings
from fenceline_spark import java
from fenceline_spark.jobs import archive, archived, audit, compact, replay, verify_archive
from fenceline_spark.versions import HAS_ADMISSION_CONTROL, HAS_FILTERS
from fenceline_testing import serving
from tests.spark.driver_process import QUICK_JVM


def session() -> SparkSession:
    java.provide()
    conf = {
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": QUICK_JVM,
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.python.filterPushdown.enabled": "true",  # unknown to 4.0, and of no effect there
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def rows_of(spark: SparkSession, topic: str) -> int:
    return spark.read.format("fenceline").option("subscribe", topic).load().count()


def check_batch(spark: SparkSession) -> None:
    reader = spark.read.format("fenceline").option("subscribe", "orders").option("includeHeaders", "true")
    read = reader.load()
    assert read.where("partition = 1 AND offset >= 90").count() == 10
    assert read.count() == 200
    if HAS_FILTERS:
        narrowed = reader.option("narrowByFilters", "true").load()
        assert narrowed.where("partition = 1 AND offset >= 90").count() == 10
    once = {"topic": "copy", "txnAppId": "app", "txnVersion": "0"}
    for _ in range(2):
        chosen = read.select("key", "value", "headers", "timestamp", "partition")
        chosen.write.format("fenceline").options(**once).mode("append").save()
    assert rows_of(spark, "copy") == 200


def stream(spark: SparkSession, checkpoint: Path, options: Mapping[str, str]) -> None:
    given = {"subscribe": "orders", "startingOffsets": "earliest", **options}
    rows = spark.readStream.format("fenceline").options(**given).load().select("key", "value")
    writer = rows.writeStream.format("fenceline").option("topic", "streamed").trigger(availableNow=True)
    writer.option("checkpointLocation", str(checkpoint)).start().awaitTermination()


def check_stream(spark: SparkSession, client: Client, folder: Path) -> None:
    stream(spark, folder / "checkpoint", {})
    assert rows_of(spark, "streamed") == 200
    client.produce("orders", 0, [Record(b"later")] * 5)
    for _ in range(2):
        stream(spark, folder / "checkpoint", {})
        assert rows_of(spark, "streamed") == 205
    refusal = ""
    try:
        stream(spark, folder / "limited", {"maxOffsetsPerTrigger": "1000"})
    except StreamingQueryException as error:
        refusal = str(error)
    assert ("the option needs PySpark 4.2 or newer" in refusal) is not HAS_ADMISSION_CONTROL, refusal


def check_jobs(spark: SparkSession, url: str, folder: Path) -> None:
    to = folder / "archive"
    made = archive(spark, "orders", to, endpoint=url)
    assert made is not None
    assert made.records == archived(spark, "orders", to).count() == 205
    assert verify_archive(spark, "orders", to).findings == ()
    assert audit(spark, ["orders", "copy"], endpoint=url).findings == []
    assert replay(spark, "orders", "replayed", name="again", endpoint=url).written == 1
    assert rows_of(spark, "replayed") == 205
    runtime = ThreadRuntime()
    objects, items = open_directory(folder / "data", now_ms=runtime.now_ms)
    log = Log(objects, items, runtime, region="here")
    log.topics.create("prices", config={"cleanup.policy": "compact"})
    records = [Record(b"1", b"a"), Record(b"2", b"a"), Record(b"3", b"b")]
    log.append("prices", 0, AppendRequest.of_batch(batch.encode(records, now_ms=runtime.now_ms()).body))
    assert compact(spark, Settings(str(folder / "data"), "here", 0), "prices", 0).records == 2
    objects.close()
    items.close()


def main() -> None:
    with serving() as server, tempfile.TemporaryDirectory() as folder:
        os.environ["FENCELINE_URL"] = server.url
        spark = session()
        for topic in ("orders", "copy", "streamed", "replayed"):
            server.client.create_topic(topic, partitions=2)
        for partition in range(2):
            records = [Record(b"v%d" % n, b"k", (("h", b"x"),)) for n in range(100)]
            server.client.produce("orders", partition, records)
        check_batch(spark)
        check_stream(spark, server.client, Path(folder))
        check_jobs(spark, server.url, Path(folder))
        spark.stop()
    print(f"all of it runs: pyspark={pyspark.__version__}")


if __name__ == "__main__":
    main()
