"""One job, unchanged, where people run Spark: on a machine, and on a cluster to which fenceline is brought.

Not here: a cluster whose machines have fenceline; see ``test_attempts_of_tasks``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark
import pytest

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_spark import java
from fenceline_testing import FencelineServer
from tests.spark.driver_process import QUICK_JVM

pytestmark = pytest.mark.slow

SUBMIT = Path(sys.executable).with_name("spark-submit")
LIB = Path(__file__).parents[2] / "lib"
JOB = """
import sys
from pyspark.sql import SparkSession

spark = SparkSession.builder.getOrCreate()
_, source, target, checkpoint = sys.argv
lines = spark.readStream.format("fenceline").option("subscribe", source).option("startingOffsets", "earliest").load()
written = lines.select("key", "value").writeStream.format("fenceline").option("topic", target)
written.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
print(spark.sparkContext.master, spark.read.format("fenceline").option("subscribe", target).load().count())
"""


def submit(url: str, folder: Path, *arguments: str, **environ: str) -> str:
    """Submit the job as people do, and return what it printed."""
    given = {**os.environ, "FENCELINE_URL": url, "SPARK_HOME": str(Path(pyspark.__file__).parent)}
    given |= {"SPARK_LOCAL_DIRS": str(folder / "scratch"), "SPARK_WORKER_DIR": str(folder / "work")}
    java.provide(given)
    job = folder / "job.py"
    job.write_text(JOB)
    quick = [f"--conf=spark.{name}.extraJavaOptions={QUICK_JVM}" for name in ("driver", "executor")]
    command = [SUBMIT, "--conf=spark.ui.enabled=false", *quick, *arguments[:-2], job, *arguments[-2:]]
    ended = subprocess.run(
        [*command, folder / "checkpoint"],
        cwd=folder,
        env={**given, **environ},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5_000:]
    return ended.stdout


@pytest.fixture
def copied(client: Client, topic: str) -> str:
    """Return the topic that the job writes; ``topic``, which it reads, has 200 records."""
    for partition in range(2):
        client.produce(topic, partition, [Record(b"line %d" % number, key=b"k") for number in range(100)])
    client.create_topic(f"{topic}-copied", partitions=3)
    return f"{topic}-copied"


@pytest.mark.prove  # CI has the same job, submitted alike, on a cluster that lacks fenceline
def test_a_job_runs_on_a_machine(server: FencelineServer, topic: str, copied: str, tmp_path: Path) -> None:
    assert submit(server.url, tmp_path, "--master", "local[*]", topic, copied) == "local[*] 200\n"


def without_fenceline(folder: Path) -> Path:
    """Return a Python that has what fenceline needs, and not fenceline."""
    python = folder / "python"
    packages = sysconfig.get_path("purelib")
    python.write_text(f'#!/bin/sh\nexport PYTHONPATH="$PYTHONPATH:{packages}"\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    found = subprocess.run([python, "-c", "import fenceline"], cwd=folder, capture_output=True, text=True, check=False)
    assert "No module named 'fenceline'" in found.stderr
    return python


def test_the_same_job_runs_on_a_cluster_to_which_it_brings_fenceline_as_py_files(
    server: FencelineServer, topic: str, copied: str, tmp_path: Path
) -> None:
    """``--py-files`` reaches the tasks; Spark looks for formats in the driver's ``PYTHONPATH`` alone."""
    python = str(without_fenceline(tmp_path))
    packed = shutil.make_archive(str(tmp_path / "fenceline"), "zip", LIB)
    master = "local-cluster[2,1,1024]"
    printed = submit(
        server.url,
        tmp_path,
        *("--master", master, "--py-files", packed, topic, copied),
        PYSPARK_PYTHON=python,
        PYSPARK_DRIVER_PYTHON=python,
        PYTHONPATH=packed,
    )
    assert printed == f"{master} 200\n"
