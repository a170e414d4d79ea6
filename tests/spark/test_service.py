"""The client of a process of Spark."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from fenceline_spark import service
from fenceline_spark.service import client_of, freeze_modules

URL = "http://127.0.0.1:1"  # of no other test, since a client is kept for the life of its process

# Planning a stream's write, which PySpark does for each batch, in a process of its own.
_PLAN = """
import gc, sys
from pyspark.sql.types import BinaryType, StructType
from fenceline_spark.data_source import FencelineDataSource
source = FencelineDataSource({"endpoint": "http://127.0.0.1:1", "topic": "t"})
source.streamWriter(StructType().add("value", BinaryType()), False)
print(gc.get_freeze_count() > 1_000, "fenceline_spark.columns.encode" in sys.modules, "pandas" in sys.modules)
"""


@pytest.fixture(autouse=True)
def none_frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "_modules_frozen", 0)


def test_a_process_keeps_one_client_of_a_service_and_its_modules_are_no_garbage() -> None:
    gc.unfreeze()
    try:
        one = client_of(URL)
        assert gc.get_freeze_count() > 1_000
        assert client_of(URL) is one
    finally:
        gc.unfreeze()


def test_planning_a_write_loads_no_encoder_and_its_modules_are_no_garbage() -> None:
    found = subprocess.run([sys.executable, "-c", _PLAN], check=True, capture_output=True, text=True)
    assert found.stdout.split() == ["True", "False", "False"]


def test_imports_of_a_task_are_frozen_and_its_objects_collected(monkeypatch: pytest.MonkeyPatch) -> None:
    def collected(found: list[int]) -> bool:  # a frozen object is in no generation that a collection looks at
        return any(each is found for each in gc.get_objects())

    try:
        freeze_modules()
        made = [1]
        freeze_modules()
        assert collected(made)
        monkeypatch.setitem(sys.modules, "imported_by_a_task", service)
        freeze_modules()
        assert not collected(made)
    finally:
        gc.unfreeze()
