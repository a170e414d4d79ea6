"""What runs on PySpark 4.0 and 4.1: with the names removed that they lack, and, where they are named, on themselves.

``FENCELINE_PYSPARKS`` names Pythons, by ``:``, each with another PySpark and all that fenceline depends on. Then all of
``older_driver`` runs on each, and so does a check of the two lists here:

    python -m venv v4.0 && v4.0/bin/pip install ".[aws,server,spark]" "pyspark==4.0.*"
    FENCELINE_PYSPARKS=v4.0/bin/python python -m pytest tests/spark/test_older_pyspark.py
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import datasource

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_testing import FencelineServer

ROOT = Path(__file__).parents[2]
PYTHONS = [python for python in os.environ.get("FENCELINE_PYSPARKS", "").split(":") if python]

_STREAMING = "pyspark.sql.streaming.datasource"
_FILTERS = (
    "EqualNullSafe", "EqualTo", "Filter", "GreaterThan", "GreaterThanOrEqual", "In", "IsNotNull", "IsNull", "LessThan",
    "LessThanOrEqual", "Not", "StringContains", "StringEndsWith", "StringStartsWith",
)  # fmt: skip
_LIMITS = ("DataSourceStreamReader.getDefaultReadLimit", "DataSourceStreamReader.reportLatestOffset")
# What pyspark.sql.datasource lacks in an older version, of all that it has in a newer one.
LACKS: Mapping[str, frozenset[str]] = {
    "4.0": frozenset({*_FILTERS, *_LIMITS, "DataSourceReader.pushFilters", "DataSourceStreamArrowWriter"}),
    "4.1": frozenset(_LIMITS),
}
# All that is imported of PySpark without a look whether it is there; 4.0 has it.
SINCE_4_0 = frozenset(
    {
        "pyspark",
        "pyspark.TaskContext",
        "pyspark.errors.PySparkException",
        "pyspark.sql.DataFrame",
        "pyspark.sql.Row",
        "pyspark.sql.SparkSession",
        "pyspark.sql.Window",
        "pyspark.sql.datasource",
        "pyspark.sql.datasource.DataSource",
        "pyspark.sql.datasource.DataSourceArrowWriter",
        "pyspark.sql.datasource.DataSourceReader",
        "pyspark.sql.datasource.DataSourceStreamReader",
        "pyspark.sql.datasource.DataSourceStreamWriter",
        "pyspark.sql.datasource.DataSourceWriter",
        "pyspark.sql.datasource.InputPartition",
        "pyspark.sql.datasource.WriterCommitMessage",
        "pyspark.sql.functions",
        "pyspark.sql.functions.col",
        "pyspark.sql.functions.count",
        "pyspark.sql.functions.countDistinct",
        "pyspark.sql.functions.element_at",
        "pyspark.sql.functions.floor",
        "pyspark.sql.functions.lag",
        "pyspark.sql.functions.lit",
        "pyspark.sql.functions.max",
        "pyspark.sql.functions.max_by",
        "pyspark.sql.functions.md5",
        "pyspark.sql.functions.min_by",
        "pyspark.sql.functions.struct",
        "pyspark.sql.functions.sum",
        "pyspark.sql.functions.when",
        "pyspark.sql.types.ArrayType",
        "pyspark.sql.types.BinaryType",
        "pyspark.sql.types.DataType",
        "pyspark.sql.types.IntegerType",
        "pyspark.sql.types.LongType",
        "pyspark.sql.types.StringType",
        "pyspark.sql.types.StructField",
        "pyspark.sql.types.StructType",
        "pyspark.sql.types.TimestampType",
        "pyspark.storagelevel.StorageLevel",
    }
)


def imported(path: Path) -> Iterator[str]:
    """Yield each name of PySpark that a module of ours uses."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module)) if module.partition(".")[0] == "pyspark":
                yield from (f"{module}.{one.name}" for one in node.names)
            case ast.Import():
                yield from (one.name for one in node.names if one.name.partition(".")[0] == "pyspark")
            case ast.Attribute(value=ast.Name(id="F")):
                yield f"pyspark.sql.functions.{node.attr}"


def test_no_module_needs_a_name_that_pyspark_4_0_lacks() -> None:
    """A name that is not in the list yet is looked up in PySpark 4.0, and then put there, or into ``versions``."""
    folders = [ROOT / "lib" / name for name in ("fenceline_spark", "pyspark_fenceline", "fenceline_cli")]
    used = {name: path for folder in folders for path in folder.rglob("*.py") for name in imported(path)}
    used = {name: path for name, path in used.items() if not name.startswith(f"{_STREAMING}.")}
    assert {name: path.name for name, path in used.items() if name not in SINCE_4_0} == {}
    streaming = {path.name for folder in folders for path in folder.rglob("*.py") if _STREAMING in path.read_text()}
    assert streaming == {"versions.py"}


class Older:
    """fenceline for Spark, imported where PySpark lacks some names."""

    def __init__(self, url: str) -> None:
        self._url = url

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(f"fenceline_spark.{name}")

    def source(self, **options: str) -> Any:
        found = importlib.import_module("pyspark_fenceline").DefaultSource
        return found({"endpoint": self._url, **options})

    def rows(self, reader: Any, *offsets: Any) -> list[int]:
        """Return the offsets of all rows that a reader's tasks give."""
        parts = reader.partitions(*offsets)
        return [row for part in parts for batch in reader.read(part) for row in batch.column("offset").to_pylist()]


@pytest.fixture(params=LACKS)
def older(request: pytest.FixtureRequest, server: FencelineServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Older]:
    for name in LACKS[request.param]:
        owner, _, method = name.rpartition(".")
        monkeypatch.delattr(getattr(datasource, owner) if owner else datasource, method)
    monkeypatch.setitem(sys.modules, _STREAMING, None)  # type: ignore[arg-type]
    before = taken_out()
    yield Older(server.url)
    importlib.import_module("fenceline_spark.service").client_of(server.url, None).close()
    taken_out()
    sys.modules.update(before)


def taken_out() -> dict[str, ModuleType]:
    """Let the next import of fenceline for Spark be a fresh one, and return the modules of the last one."""
    ours = [name for name in sys.modules if name.partition(".")[0] in ("fenceline_spark", "pyspark_fenceline")]
    return {name: sys.modules.pop(name) for name in ours}


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    for partition in range(2):
        client.produce(topic, partition, [Record(b"v")] * 3)
    return topic


def test_a_batch_is_read_without_what_older_versions_lack(older: Older, filled: str) -> None:
    source = older.source(subscribe=filled)
    assert older.rows(source.reader(source.schema())) == [0, 1, 2] * 2
    narrowing = older.source(subscribe=filled, narrowByFilters="true")
    if hasattr(datasource.DataSourceReader, "pushFilters"):
        assert narrowing.reader(source.schema()).pushFilters.__func__ is datasource.DataSourceReader.pushFilters
    else:
        with pytest.raises(Exception, match=r"needs PySpark 4\.1 or newer; .*: option=narrowByFilters pyspark="):
            narrowing.reader(source.schema())


def test_a_stream_takes_all_there_is_and_goes_on_after_a_restart(older: Older, client: Client, filled: str) -> None:
    source = older.source(subscribe=filled, startingOffsets="earliest")
    reader = source.streamReader(source.schema())
    start = reader.initialOffset()
    end = reader.latestOffset()
    assert older.rows(reader, start, end) == [0, 1, 2] * 2
    assert reader.latestOffset() == end
    client.produce(filled, 1, [Record(b"v")])
    after = reader.latestOffset()
    assert older.rows(reader, end, after) == [3]
    restarted = source.streamReader(source.schema())  # it knows of no offset yet
    assert restarted.latestOffset() == after
    client.produce(filled, 0, [Record(b"v")])
    last = restarted.latestOffset()
    assert older.rows(restarted, after, last) == [3]
    again = source.streamReader(source.schema())
    assert older.rows(again, after, last) == [3]
    assert again.latestOffset() == last


def test_a_restarted_stream_fails_by_what_is_lost_once_it_hears_where_it_starts(
    older: Older, client: Client, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    strict, lenient = older.source(subscribe=filled), older.source(subscribe=filled, failOnDataLoss="false")
    started = strict.streamReader(strict.schema())
    start = started.initialOffset()
    client.delete_topic(filled)
    client.create_topic(filled)
    client.produce(filled, 0, [Record(b"v")] * 2)
    loss = older.module("source.data_loss").DataLossError
    with pytest.raises(loss, match="created anew"):
        started.latestOffset()  # before Spark notes an end
    restarted = strict.streamReader(strict.schema())
    end = restarted.latestOffset()
    with pytest.raises(loss, match="created anew"):
        restarted.partitions(start, end)
    assert older.rows(lenient.streamReader(lenient.schema()), start, end) == [0, 1]
    assert ["created anew" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("maxOffsetsPerTrigger", {"maxOffsetsPerTrigger": "5"}),
        ("minOffsetsPerTrigger", {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "1m"}),
    ],
)
def test_a_limit_says_which_version_has_one(older: Older, filled: str, name: str, options: dict[str, str]) -> None:
    source = older.source(subscribe=filled, **options)
    reader = source.streamReader(source.schema())
    for ask in (reader.initialOffset, reader.latestOffset):
        with pytest.raises(Exception, match=rf"needs PySpark 4\.2 or newer; .*: option={name} pyspark="):
            ask()


def test_the_writers_are_of_the_classes_to_which_spark_gives_arrow_columns(older: Older) -> None:
    writers = older.module("sink.writers")
    assert issubclass(writers.BatchWriter, datasource.DataSourceArrowWriter)
    # 4.0 asks for this class alone, in streams, too.
    of_streams = getattr(datasource, "DataSourceStreamArrowWriter", datasource.DataSourceArrowWriter)
    assert issubclass(writers.StreamWriter, of_streams)


def test_every_job_is_imported_without_what_older_versions_lack(older: Older) -> None:
    assert callable(older.module("jobs").archive)


_LIST_NAMES = """
import importlib, inspect, json, sys
from importlib.util import find_spec
import pyspark
from pyspark.sql import datasource
lacks = [name for name in json.loads(sys.argv[1]) if not hasattr(
    getattr(datasource, name.rpartition(".")[0]) if "." in name else datasource, name.rpartition(".")[2])]
missing = []
for name in json.loads(sys.argv[2]):
    owner, _, last = name.rpartition(".")
    if find_spec(name if not owner else owner) is None or (owner and not hasattr(importlib.import_module(owner), last)):
        missing.append(name)
streaming = find_spec("pyspark.sql.streaming.datasource") is not None
print(json.dumps([pyspark.__version__, lacks, missing, streaming]))
"""


def run(python: str, *arguments: str) -> str:
    environ = {**os.environ, "PYTHONPATH": f"{ROOT / 'lib'}:{ROOT}"}
    ended = subprocess.run([python, *arguments], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-5_000:]
    return ended.stdout


if PYTHONS:

    @pytest.mark.slow
    @pytest.mark.parametrize("python", PYTHONS)
    def test_an_older_version_lacks_what_the_lists_say_and_runs_all_of_it(python: str) -> None:
        every = sorted(set().union(*LACKS.values()))
        version, lacks, missing, has_streaming = json.loads(
            run(python, "-c", _LIST_NAMES, json.dumps(every), json.dumps(sorted(SINCE_4_0)))
        )
        known = LACKS.get(version[:3], frozenset())
        assert (set(lacks), missing, has_streaming) == (set(known), [], not known)
        result = run(python, "-m", "tests.spark.older_driver")
        assert result.splitlines()[-1] == f"all of it runs: pyspark={version}"
