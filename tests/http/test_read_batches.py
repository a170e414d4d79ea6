"""Contract, "Read", the batches of a page, through the handlers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fenceline import limits
from fenceline.model.results import Bounds, Page, PageBatch, ReadRecord
from fenceline_http import record_page
from tests.support.http_events import BATCH_TYPE, call
from tests.support.http_transactions import Producer

RECORDS = "/v1/topics/orders/partitions/0/records"

pytestmark = pytest.mark.usefixtures("topic")


def read(query: str = "") -> Any:
    answer = call("GET", RECORDS, f"offset=0&batches=true&{query}")
    assert answer.status == 200, answer.json
    return answer.json


def test_a_page_shows_who_wrote_its_records_and_what_became_of_them() -> None:
    producer = Producer()
    ids = []
    for value, end in (("kept", "commit"), ("lost", "abort"), ("held", "")):
        assert producer.produce(value).status == 200
        ids.append({**producer.pair, "base_sequence": 0})
        if end:
            assert producer.end(end).status == 200
    assert call("POST", RECORDS, value={"records": [{"value": "plain"}]}).status == 200
    page = read()
    assert [one["value"] for one in page["records"]] == ["kept", "lost", "held", "plain"]
    found = [(one["base_offset"], one["next_offset"], one["outcome"]) for one in page["batches"]]
    assert found == [(0, 1, "committed"), (2, 3, "aborted"), (4, 5, "open"), (5, 6, None)]
    assert [{name: one[name] for name in ids[0]} for one in page["batches"][:3]] == ids
    plain = page["batches"][3]
    assert plain.items() >= {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "codec": "none"}.items()
    assert (plain["is_transactional"], plain["bytes"] > 61, plain["appended_at"] > 0) == (False, True, True)
    assert {one["outcome"] for one in read("isolation=read_committed")["batches"]} == {"committed"}
    assert producer.end("commit").status == 200
    assert [one["outcome"] for one in read()["batches"]] == ["committed", "aborted", "committed", None]


def test_without_being_asked_for_a_page_has_no_batches() -> None:
    assert call("POST", RECORDS, value={"records": [{"value": "v"}]}).status == 200
    assert "batches" not in call("GET", RECORDS, "offset=0").json
    assert "batches" not in call("GET", RECORDS, "offset=0&batches=false").json
    assert call("GET", RECORDS, "offset=1&batches=true").json["batches"] == []


@pytest.mark.parametrize("more", ["batches=1", "batches=", "batches=yes", "batches=true&compacted=true"])
def test_batches_that_cannot_be_shown_are_refused(more: str) -> None:
    answer = call("GET", RECORDS, f"offset=0&{more}")
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", "batches")


def test_batches_are_named_in_json_alone() -> None:
    answer = call("GET", RECORDS, "offset=0&batches=true", headers={"accept": BATCH_TYPE})
    assert (answer.code, answer.json["field"]) == ("INVALID_REQUEST", "batches")
    either = call("GET", RECORDS, "offset=0&batches=true", headers={"accept": f"{BATCH_TYPE}, application/json"})
    assert either.json["batches"] == []


def page_of(count: int, size: int, records: int = 1, value: bytes = b"x") -> Page:
    """Return a page of ``count`` batches of so many records each, each record with a value of ``size`` bytes."""
    made = [ReadRecord(n, 0, None, value * size, (), -1, None) for n in range(count * records)]
    batches = [
        PageBatch(n * records, (n + 1) * records, 2**60, 9, 2**30, "snappy", True, "committed", 2**40, 2**20)
        for n in range(count)
    ]
    return Page(made, count * records, Bounds(0, 10**6, 10**6), batches=batches)


@pytest.mark.parametrize("encoding", ["utf8", "base64"])
@pytest.mark.parametrize(
    ("count", "size", "records"), [(10_000, 300, 1), (10_000, 1, 1), (30, 200_000, 1), (9, 400, 2_000)]
)
def test_a_page_with_its_batches_is_cut_below_four_mebibytes(
    count: int, size: int, records: int, encoding: str
) -> None:
    text = record_page.to_json(page_of(count, size, records), encoding)
    page = json.loads(text)
    shown, cut = len(page["records"]), count * records
    assert len(text) < limits.REPLY_BYTES_MAX
    assert page["position"] == shown
    assert len(page["batches"]) == -(-shown // records)
    assert len(text) > limits.REPLY_BYTES_MAX * 0.9 or shown == cut


def test_a_single_record_too_large_still_has_its_batch() -> None:
    page = json.loads(record_page.to_json(page_of(3, 1_000_000, value=b"\0"), "utf8"))
    assert (page["encoding"], len(page["records"]), len(page["batches"])) == ("base64", 1, 1)
