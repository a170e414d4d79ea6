"""The client of a process of Spark."""

from __future__ import annotations

import gc

from fenceline_spark.service import client_of


def test_a_process_keeps_one_client_of_a_service_and_its_modules_are_no_garbage() -> None:
    client_of.cache_clear()
    gc.unfreeze()
    try:
        one = client_of("http://127.0.0.1:1")
        assert gc.get_freeze_count() > 1_000
        assert client_of("http://127.0.0.1:1") is one
    finally:
        gc.unfreeze()
        client_of.cache_clear()
