"""Where records begin, found for all at once."""

from __future__ import annotations

import numpy as np
import pytest

from fenceline import Record
from fenceline.format import batch
from fenceline.format.batch import HEADER_BYTES
from fenceline_spark.columns import record_bounds
from fenceline_spark.columns.record_bounds import SLACK, BatchSpan


@pytest.mark.parametrize("block_bytes", [1, 2, 3, 64, 100_000])
def test_places_are_found_across_blocks(monkeypatch: pytest.MonkeyPatch, block_bytes: int) -> None:
    monkeypatch.setattr(record_bounds, "_BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(record_bounds, "_walk", lambda *_: pytest.fail("followed step by step"))
    records = [Record(b"v" * (n % 90), None if n % 5 == 0 else b"key %d" % n, timestamp=n % 7) for n in range(300)]
    body = batch.encode(records, now_ms=0, codec="none").body[HEADER_BYTES:]
    places = record_bounds.record_places(memoryview(body + SLACK), [BatchSpan(0, len(body), len(records))])
    assert len(places) == len(records) + 1
    assert places[-1] == len(body)
    assert np.all(np.diff(places) > 0)
