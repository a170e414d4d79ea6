"""A program that copies one topic into another, exactly once: ``python -m tests.spark.driver_process '{…}'``.

Rule: it knows nothing of the test that kills it. Its whole state is the checkpoint, and what the service has.

Not here: which process is killed, and what must hold of it (``test_driver_crashes``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping

from fenceline_spark import java

# What starts faster, and is slower after minutes that no driver here lives.
QUICK_JVM = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    # Spark's own classes are not what is tested here: to verify their bytecode takes a seventh of a start.
    " -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
# What runs a small plan without compiling Java for it.
QUICK_PLANS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


def quick_options() -> str:
    """Return what starts a driver so by the variable ``SPARK_SUBMIT_OPTS``, where a test can't change its program."""
    return " ".join([QUICK_JVM, *(f"-D{name}={value}" for name, value in QUICK_PLANS.items())])


def copy(
    endpoint: str,
    source: str,
    target: str,
    checkpoint: str,
    inline_bytes: int,
    offsets_per_trigger: int = 1_000_000,
    master: str = "local[2]",
    conf: Mapping[str, str] | None = None,
) -> None:
    """Copy all records that are there, batch by batch, from where the checkpoint says."""
    from pyspark.sql import SparkSession

    java.provide()
    builder = SparkSession.builder.master(master).config("spark.ui.enabled", "false")
    for name in "driver", "executor":
        builder = builder.config(f"spark.{name}.extraJavaOptions", QUICK_JVM)
    # A test may stop a driver for as long as another one takes. Spark would end it then, by its own heartbeat.
    builder = builder.config("spark.network.timeout", "1h")
    for name, value in (QUICK_PLANS | dict(conf or {})).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rows = (
        spark.readStream.format("fenceline")
        .option("endpoint", endpoint)
        .option("subscribe", source)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", offsets_per_trigger)
        .load()
    )
    query = (
        rows.select("key", "value")
        .writeStream.format("fenceline")
        .option("endpoint", endpoint)
        .option("topic", target)
        .option("inlineBytes", inline_bytes)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    copy(**json.loads(sys.argv[1]))
