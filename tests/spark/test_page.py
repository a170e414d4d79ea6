"""The pages of Spark against the code: its options are those that there are, and what it shows in Python runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fenceline.client import Client
from fenceline.model.record import Record
from fenceline_spark.jobs import archive
from fenceline_spark.sink.options import OPTIONS as OF_THE_SINK
from fenceline_spark.source.options import OPTIONS as OF_THE_SOURCE
from fenceline_testing import FencelineServer
from tests.support.readme import PYTHON as IN_THE_README

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FOLDER = Path(__file__).parents[2] / "docs/reference/spark"
PAGES = "\n".join((FOLDER / f"{name}.md").read_text() for name in ("index", "source", "sink", "jobs"))
(OF_THE_README,) = (code for code in IN_THE_README if "pyspark" in code)
READ, STREAM, LOAD, IN_EACH_BATCH, ARCHIVE = re.findall(r"^```python\n(.*?)^```$", PAGES, re.MULTILINE | re.DOTALL)
TABLES = re.findall(
    r"^\| option \| default \| meaning \|\n\|---\|---\|---\|\n(.*?)\n\n", PAGES, re.MULTILINE | re.DOTALL
)


@pytest.mark.parametrize(
    ("table", "options"), list(zip(TABLES, (OF_THE_SOURCE, OF_THE_SINK), strict=True)), ids=["source", "sink"]
)
def test_a_page_has_every_option_and_no_other(table: str, options: tuple[object, ...]) -> None:
    shown = [re.match(r"\| `(\w+)` \|", row)[1] for row in table.splitlines()]  # type: ignore[index]
    assert sorted(shown) == sorted(option.name for option in options)  # type: ignore[attr-defined]


def test_the_python_code_of_the_pages_runs(
    spark: SparkSession, server: FencelineServer, client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Batch, stream and ``foreachBatch``, each twice: the second time nothing is written anew."""
    for topic in ("orders", "shouted", "counts"):
        client.create_topic(topic)
    client.produce("orders", 0, [Record(value, key=b"ann") for value in (b"book", b"pen")])
    exec(READ, {})
    assert "|ann| book|        0|     0|" in capsys.readouterr().out
    loaded: dict[str, DataFrame] = {"spark": spark}
    exec(LOAD, loaded)
    assert loaded["orders"].count() == 2

    assert OF_THE_README.count("http://127.0.0.1:8080") == 1
    exec(OF_THE_README.replace("http://127.0.0.1:8080", server.url), {})
    assert "| book|        0|     0|" in capsys.readouterr().out

    for code in (STREAM, STREAM, IN_EACH_BATCH, IN_EACH_BATCH):
        assert code.count('"checkpoints/') == 1
        exec(code.replace('"checkpoints/', f'"{tmp_path}/'), {"spark": spark})
    archive(spark, "orders", str(tmp_path / "archive"), endpoint=server.url)
    assert ARCHIVE.count('"/mnt/archive"') == 1
    shown: dict[str, DataFrame] = {"spark": spark}
    exec(ARCHIVE.replace("/mnt/archive", str(tmp_path / "archive")), shown)
    assert [bytes(row.value) for row in shown["orders"].orderBy("offset").collect()] == [b"book", b"pen"]

    with client.reader("shouted", isolation="read_committed") as reader:
        assert [(record.key, record.value) for _, record in reader] == [(b"ann", b"BOOK"), (b"ann", b"PEN")]
    with client.reader("counts", isolation="read_committed") as reader:
        assert [(record.key, record.value) for _, record in reader] == [(b"ann", b"2")]
