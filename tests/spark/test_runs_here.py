"""Whether Spark runs on this machine at all: the one test of Spark that is always collected."""

from __future__ import annotations

import os

import pytest

from tests.spark.conftest import MISSING


def test_spark_runs_on_this_machine(request: pytest.FixtureRequest) -> None:
    if MISSING is not None:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS"):
            pytest.fail(MISSING, pytrace=False)
        pytest.skip(MISSING)
    assert request.getfixturevalue("spark").range(3).count() == 3
