"""What the tests of Spark share: one session, and one service that answers at a URL of this machine.

Rule: every test here is marked ``spark``. Where Spark or Java is missing, one line says which, and none is run.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fenceline.client import Client
from fenceline_spark import java
from fenceline_testing import FencelineServer, serving
from tests.spark.driver_process import QUICK_JVM, QUICK_PLANS
from tests.spark.warm_daemon import warm_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
NEEDS_NOTHING = ("test_runs_here.py", "test_java.py")


def missing() -> str | None:
    """Return what keeps Spark from running here, in one line; ``None`` if nothing does."""
    if any(find_spec(name) is None for name in ("pyspark", "pyarrow", "numpy", "pandas")):
        return 'Spark is not installed here; run "make test-spark", which sets it up'
    try:
        java.find(os.environ)
    except java.NoJavaError as error:
        return str(error)
    return None


MISSING = missing()
if MISSING is not None:
    collect_ignore = [path.name for path in HERE.glob("test_*.py") if path.name not in NEEDS_NOTHING]


@pytest.hookimpl(tryfirst=True)  # xdist reads the groups by the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of Spark, and keep the files that share the session or the service in one process of pytest.

    They are one group, because a second session would cost as much as thirty of their tests. All other tests go
    wherever a process is free, those too that start Spark anew.
    """
    here = f"{HERE}{os.sep}"  # a text, because 14,000 paths are looked at
    ours = [item for item in items if str(item.path).startswith(here)]
    sharing = {item.path for item in ours if shares(item)}
    for item in ours:
        item.add_marker(pytest.mark.spark)
        if item.path in sharing:
            item.add_marker(pytest.mark.xdist_group("spark"))


def shares(item: pytest.Item) -> bool:
    """Return True if a test uses the session; or the service alone, and starts no Spark of its own beside it."""
    fixtures = getattr(item, "fixturenames", ())
    return "spark" in fixtures or ("server" in fixtures and item.get_closest_marker("slow") is None)


@pytest.fixture(scope="session")
def server() -> Iterator[FencelineServer]:
    """Lend one service for all tests of a run, so each makes topics of its own; see ``topic``."""
    with serving() as lent:
        yield lent


@pytest.fixture(scope="session")
def client(server: FencelineServer) -> Client:
    return server.client


@pytest.fixture
def topic(client: Client, request: pytest.FixtureRequest) -> str:
    """Return a new topic of two partitions, named for the test."""
    name = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower())[-60:].strip("-")
    client.create_topic(name, partitions=2)
    return name


@pytest.fixture(scope="session")
def spark(server: FencelineServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Lend the session of this run: two cores, which read and write ``server`` unless an option says otherwise."""
    java.provide()
    os.environ["FENCELINE_URL"] = server.url
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", str(warm_python(tmp_path_factory.mktemp("python"))))
        session = started(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


def started(warehouse: Path) -> SparkSession:
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("fenceline-tests")
        .config(map=QUICK_PLANS)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", QUICK_JVM)
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", str(warehouse))
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    return session
