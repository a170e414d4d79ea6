"""The form of a transactional batch, judged before its topic is looked up (contract, "Produce")."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from fenceline import errors
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import batch
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef
from tests.support.coordinating import ID
from tests.support.runtime import START_MS

PRODUCER: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


@pytest.mark.parametrize("transactional_id", ["", ".", "..", "a/b", "a\nb", "é" * 125])
@pytest.mark.parametrize("is_binary", [True, False])
def test_a_transactional_id_that_no_path_carries_is_no_batchs(transactional_id: str, is_binary: bool) -> None:
    body = batch.encode([Record(b"a")], now_ms=START_MS, **PRODUCER, is_transactional=True).body
    binary = partial(AppendRequest.of_batch, body)
    json = partial(AppendRequest.of_records, [Record(b"a")], producer=ProducerRef(7, 0, 0))
    with pytest.raises(errors.InvalidRequestError) as refusal:
        (binary if is_binary else json)(transactional_id=transactional_id)
    assert refusal.value.field == "transactional_id"


def test_half_a_transactional_batch_is_refused_by_its_form() -> None:
    with pytest.raises(errors.InvalidRequestError) as refusal:
        AppendRequest.of_records([Record(b"a")], transactional_id=ID)
    assert refusal.value.field == "producer"
    for has_bit in (True, False):
        body = batch.encode([Record(b"a")], now_ms=START_MS, **PRODUCER, is_transactional=has_bit).body
        with pytest.raises(errors.InvalidRequestError) as refusal:
            AppendRequest.of_batch(body, transactional_id=None if has_bit else ID)
        assert refusal.value.field == "transactional_id"
    with pytest.raises(errors.InvalidRecordError):
        AppendRequest.of_batch(
            batch.encode([Record(b"a")], now_ms=START_MS, is_transactional=True).body, transactional_id=ID
        )
