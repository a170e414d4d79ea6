"""What a local server was asked for, as its console shows it: requests, times, refusals, store calls and dollars."""

import json
import math
import time
from collections import Counter

import httpx
import pytest

from fenceline_cli import prices, usage
from fenceline_cli.dev_server.process import ServerProcess
from fenceline_http import wiring
from tests.support.patience import PATIENCE_S
from tests.support.serving import metered_service, serving


@pytest.fixture
def served(monkeypatch):
    """A server in this process whose stores are counted, as each server's are."""
    service = metered_service()
    monkeypatch.setattr(wiring, "service", lambda: service)
    with serving(service) as url, httpx.Client(base_url=url, timeout=PATIENCE_S) as http:
        yield http


def usage_of(http):
    return http.get("/console/usage.json").json()


def by_operation(found):
    return {one["operation"]: one for one in found["requests"]}


def test_requests_are_counted_by_operation_and_refusals_by_code(served):
    assert served.post("/v1/topics", json={"name": "orders"}).status_code == 201
    records = "/v1/topics/orders/partitions/0/records"
    for _ in range(3):
        assert served.post(records, json={"records": [{"value": "a"}]}).status_code == 200
    late = {"records": [{"value": "a"}], "expected_offset": 0}
    assert served.post(records, json=late).json()["code"] == "OFFSET_MISMATCH"
    assert served.get("/v1/nothing").status_code == 404
    assert served.get("/v1/health", headers={"origin": "http://evil.example"}).status_code == 403
    found = usage_of(served)
    counted = {operation: one["count"] for operation, one in by_operation(found).items()}
    assert counted == {"appendRecords": 4, None: 2, "createTopic": 1}
    assert {one["code"]: one["count"] for one in found["refusals"]} == {
        "NOT_AUTHORIZED": 1,
        "NOT_FOUND": 1,
        "OFFSET_MISMATCH": 1,
    }
    assert found["log"] == {
        "appends": 4,
        "creates": found["log"]["creates"],
        "lost_races": 0,
        "conflicts": 0,
        "duplicates": 0,
    }
    assert found["log"]["creates"] >= 3
    assert {one["call"]: one["count"] for one in found["stores"]}["objects.create"] == found["log"]["creates"]
    for one in found["requests"]:
        assert 0 < one["p50_ms"] <= one["p99_ms"]
    assert (found["source"], found["region"], found["workers"], found["error"]) == ("server", "local", 1, None)
    assert found["since"] <= found["until"]


def test_a_repeated_batch_and_a_held_read_are_counted_as_such(served):
    assert served.post("/v1/topics", json={"name": "orders"}).status_code == 201
    records = "/v1/topics/orders/partitions/0/records"
    given = served.post("/v1/producer-ids", json={}).json()
    sent = {
        "records": [{"value": "a"}],
        "producer": {**given, "sequence": 0},
    }
    assert [served.post(records, json=sent).json()["duplicate"] for _ in range(2)] == [False, True]
    assert served.get(f"{records}?offset=0&wait_ms=1").status_code == 200
    found = usage_of(served)
    assert found["log"]["duplicates"] == 1
    read = by_operation(found)["readRecords"]
    assert (read["count"], read["held"], read["p50_ms"]) == (1, 1, None)


def test_dollars_are_those_of_the_counted_calls(served):
    for number in range(3):
        assert served.post("/v1/topics", json={"name": f"topic-{number}"}).status_code == 201
    found = usage_of(served)
    parts = {one["what"]: one for one in found["dollars"]["parts"]}
    calls = {one["call"]: one["count"] for one in found["stores"]}
    assert parts["API Gateway requests"] == {
        "what": "API Gateway requests",
        "count": 3,
        "dollars": 3 * prices.API_REQUEST,
    }
    assert parts["S3 PUT and LIST"]["count"] == calls["objects.create"] + calls.get("objects.list", 0)
    assert parts["DynamoDB write units"]["count"] >= calls["items.write"] > 0
    assert math.isclose(found["dollars"]["total"], sum(one["dollars"] for one in parts.values()))
    assert found["dollars"]["prices"] == {"date": prices.DATE, "region": prices.REGION}
    assert f"{prices.READ_MS} ms for a read" in found["dollars"]["assumed"]


def test_the_console_itself_is_not_counted(served):
    for _ in range(3):
        assert served.get("/console/main.js").status_code == 200
    assert usage_of(served)["requests"] == []


def test_an_object_that_s3_would_give_is_not_counted_as_a_request(served):
    assert served.post("/v1/topics", json={"name": "orders"}).status_code == 201
    partition = "/v1/topics/orders/partitions/0"
    assert served.post(f"{partition}/records", json={"records": [{"value": "a"}]}).status_code == 200
    [segment] = served.get(f"{partition}/segments").json()["segments"]
    assert served.get(segment["url"]).status_code == 200
    assert by_operation(usage_of(served)).keys() == {"createTopic", "appendRecords", "listSegments"}


def test_times_are_right_within_a_twentieth():
    buckets = Counter(usage.bucket_of(ms) for ms in range(1, 1001))
    assert usage.quantile_ms(buckets, 0.5) == pytest.approx(500, rel=0.05)
    assert usage.quantile_ms(buckets, 0.99) == pytest.approx(990, rel=0.05)
    assert usage.quantile_ms({}, 0.5) is None
    assert usage.quantile_ms(Counter([usage.bucket_of(0)]), 0.5) == pytest.approx(0.01, rel=0.05)


def test_what_is_counted_is_bounded():
    """Each name is that of an operation, a code or a kind of call, and each time has a bucket."""
    times = [10**exponent for exponent in range(-9, 9)]
    assert len({usage.bucket_of(ms) for ms in times}) < len(range(usage.bucket_of(0), usage.bucket_of(10**9))) < 400


@pytest.mark.slow
def test_the_workers_of_a_server_are_added_up(tmp_path):
    with ServerProcess(tmp_path, workers=2) as server:
        for _ in range(20):  # each on a connection of its own, for either worker to take
            assert httpx.get(f"{server.url}/v1/health", timeout=PATIENCE_S).status_code == 200
        until = time.monotonic() + PATIENCE_S
        while True:  # a worker leaves its counts within a second
            found = httpx.get(f"{server.url}/console/usage.json", timeout=PATIENCE_S).json()
            if by_operation(found).get("getHealth", {}).get("count") == 20 or time.monotonic() > until:
                break
            time.sleep(0.1)
    assert by_operation(found)["getHealth"]["count"] == 20, json.dumps(found)
    assert (found["workers"], found["counted_workers"]) == (2, 2)
