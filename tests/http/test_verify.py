"""Contract, "Read", checks of segments, through the handlers."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.format import keys
from fenceline_http import wiring
from tests.support.http_events import call

PARTITION = "/v1/topics/orders/partitions/0"
VERIFY = f"{PARTITION}/verify"


@pytest.fixture(autouse=True)
def _log(topic: str) -> None:
    """Six segments of one record."""
    for n in range(6):
        assert call("POST", f"{PARTITION}/records", value={"records": [{"value": str(n)}]}).status == 200


def verify(query: str = "") -> Any:
    answer = call("GET", VERIFY, query)
    assert answer.status == 200, answer.json
    return answer.json


def damage(service: wiring.Service, base: int) -> str:
    key = keys.segment_key(call("GET", "/v1/topics/orders").json["topic_id"], 0, base)
    stored = service.objects.get(key)
    service.objects.delete(key)
    service.objects.create(key, stored.body[:-1] + bytes([stored.body[-1] ^ 1]), stored.metadata)
    return key


def test_a_whole_log_is_checked_page_by_page() -> None:
    assert verify() == {"position": 6, "segments": 6, "records": 6, "findings": [], "has_more": False}
    first = verify("limit=4")
    assert first == {"position": 4, "segments": 4, "records": 4, "findings": [], "has_more": True}
    last = verify(f"offset={first['position']}&limit=4")
    assert last == {"position": 6, "segments": 2, "records": 2, "findings": [], "has_more": False}
    assert verify("offset=6") == {"position": 6, "segments": 0, "records": 0, "findings": [], "has_more": False}


@pytest.mark.parametrize("base", [0, 3, 5])
def test_a_damaged_segment_is_a_finding_where_a_read_is_an_error(service: wiring.Service, base: int) -> None:
    key = damage(service, base)
    service.log.close()
    page = verify()
    assert (page["segments"], page["records"], page["has_more"]) == (6, 5, False)
    [finding] = page["findings"]
    assert (finding["key"], finding["offset"]) == (key, base)
    assert "a batch does not match its CRC" in finding["what"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("limit=0", "limit"),
        ("limit=-1", "limit"),
        ("limit=ten", "limit"),
        ("limit=", "limit"),
        ("offset=-1", "offset"),
        ("offset=first", "offset"),
        ("offset=9223372036854775808", "offset"),
        ("start=1", "start"),
        ("offset=0&offset=1", "offset"),
    ],
)
def test_a_check_that_cannot_be_made_is_refused(query: str, field: str) -> None:
    answer = call("GET", VERIFY, query)
    assert (answer.status, answer.code, answer.json["field"]) == (400, "INVALID_REQUEST", field)


def test_a_limit_beyond_the_most_is_the_most() -> None:
    assert verify(f"limit={'9' * 50}")["segments"] == 6


def test_beyond_the_log_is_out_of_range_and_no_partition_is_unknown() -> None:
    answer = call("GET", VERIFY, f"offset={2**63 - 1}")
    assert (answer.status, answer.code) == (416, "OFFSET_OUT_OF_RANGE")
    assert (answer.json["log_start_offset"], answer.json["next_offset"], answer.json["topic"]) == (0, 6, "orders")
    for path in ("/v1/topics/orders/partitions/2/verify", "/v1/topics/none/partitions/0/verify"):
        assert call("GET", path).code == "UNKNOWN_TOPIC_OR_PARTITION"


def test_only_a_get_verifies() -> None:
    assert call("POST", VERIFY, value={}).status == 405
