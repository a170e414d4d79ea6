"""The demo's query: a topic of access-log lines, counted by the hour and written once into another topic.

The query is a program of its own, which knows nothing of the demo:
``python examples/spark_counting_job.py URL CHECKPOINT``. However it ended, it goes on from its checkpoint when it is
started again. It ends when all lines are counted.

Each batch that Spark has done is a line of JSON on stdout.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 (its usual name)
from pyspark.sql.streaming import StreamingQueryListener

from fenceline_spark import java

LINES, COUNTS = "access-log", "requests-by-hour"
LINES_IN_BATCH = 1_000
REQUEST = r'^\S+ \S+ \S+ \[[^\]]+\] "\S+ (\S+)[^"]*" (\d{3}) (\d+|-)'
# A request is of the first kind whose pattern matches its path.
KINDS = {
    "image": r"(?i)\.(png|jpe?g|gif|ico|svg)$",
    "style": r"(?i)\.(css|js)$",
    "file": r"(?i)\.(gz|jar|mp4|pdf|rpm|tar|tgz|zip)$",
    "feed": r"(?i)(atom|feed|rss|\.xml$)",
}


def counted(lines: DataFrame) -> DataFrame:
    """Return for each hour and kind: requests, errors and bytes. An hour comes out when no line of it can come."""
    line = F.col("value").cast("string")
    request = lines.select("timestamp", *(F.regexp_extract(line, REQUEST, at).alias(f"_{at}") for at in (1, 2, 3)))
    path, status, size = F.col("_1"), F.expr("try_cast(_2 AS int)"), F.expr("coalesce(try_cast(_3 AS bigint), 0)")
    kind = F.lit("page")
    for name, pattern in reversed(KINDS.items()):
        kind = F.when(path.rlike(pattern), name).otherwise(kind)
    return (
        request.withWatermark("timestamp", "10 minutes")
        .groupBy(F.window("timestamp", "1 hour").alias("hour"), kind.alias("kind"))
        .agg(
            F.count("*").alias("requests"),
            F.count_if(status >= 400).alias("errors"),
            F.sum(size).alias("bytes"),
        )
    )


def records(counts: DataFrame, driver: str) -> DataFrame:
    """Return the counts as records; a header names the driver that wrote them."""
    hour = F.date_format(F.col("hour.start"), "yyyy-MM-dd'T'HH:mm:ss'Z'")
    value = F.to_json(F.struct(hour.alias("hour"), "kind", "requests", "errors", "bytes"))
    by = F.struct(F.lit("driver").alias("key"), F.lit(driver).cast("binary").alias("value"))
    return counts.select(hour.alias("key"), value.alias("value"), F.array(by).alias("headers"))


class Progress(StreamingQueryListener):
    """Prints the progress of each batch."""

    def onQueryStarted(self, event) -> None:  # noqa: N802 (as the next three: Spark's names)
        pass

    def onQueryProgress(self, event) -> None:  # noqa: N802
        told = event.progress
        offsets = json.loads(told.sources[0].endOffset).get(LINES, {})
        print(json.dumps({"batch": told.batchId, "read": sum(offsets.values())}), flush=True)

    def onQueryIdle(self, event) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event) -> None:  # noqa: N802
        pass


def main(endpoint: str, checkpoint: str, driver: str = "1") -> None:
    java.provide()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("count requests by the hour")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")  # starts faster: it lives for seconds
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.streams.addListener(Progress())
    lines = (
        spark.readStream.format("fenceline")
        .option("endpoint", endpoint)
        .option("subscribe", LINES)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", LINES_IN_BATCH)
        .load()
    )
    query = (
        records(counted(lines), driver)
        .writeStream.format("fenceline")
        .option("endpoint", endpoint)
        .option("topic", COUNTS)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
