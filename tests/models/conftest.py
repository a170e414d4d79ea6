from __future__ import annotations

import os

import pytest

from models.runner import CheckerMissing, check


@pytest.fixture(scope="session")
def checker() -> None:
    """Leave a test out where no checker can be had, and say why in one line. CI leaves none out."""
    try:
        check("Append", bounds={"Batches": "{b1}"})
    except CheckerMissing as error:
        if os.environ.get("FENCELINE_REQUIRE_SERVERS") == "1":
            raise
        pytest.skip(str(error))
