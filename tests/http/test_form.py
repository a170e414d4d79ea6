"""Contract, "Form of requests" and "Errors": each row a case, through the handlers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cramjam
import pytest

from fenceline import errors, limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.format import batch
from fenceline.model.record import Record
from fenceline.model.results import Appended
from fenceline.service.topics import Topics
from fenceline_http import dispatch, routes, wiring
from fenceline_http.route import Route
from tests.support.http_events import BATCH_TYPE, Answer, answer_of, call, event, send

RECORDS = "/v1/topics/orders/partitions/0/records"
ONE = {"records": [{"value": "1"}]}

pytestmark = pytest.mark.usefixtures("topic")


def next_offset() -> int:
    return int(call("GET", "/v1/topics/orders/partitions/0/offsets").json["next_offset"])


def assert_refused(answer: Answer, code: str, field: str | None = None) -> None:
    assert answer.code == code, answer.json
    leaf = errors.TABLE[code]
    problem = answer.json
    assert answer.status == problem["status"] == leaf.status
    assert (problem["type"], problem["title"], problem["next_step"]) == ("about:blank", leaf.title, leaf.next_step)
    assert problem.get("field") == field
    assert problem["detail"]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("", None),
        ("[]", None),
        ("null", None),
        ('"x"', None),
        ("{}", "records"),
        ('{"records": null}', "records"),
        ('{"records": []}', "records"),
        ('{"records": {}}', "records"),
        ('{"records": [1]}', "records[0]"),
        ('{"records": [null]}', "records[0]"),
        ('{"records": [{}]}', "records[0].value"),
        ('{"records": [{"value": "1"}, {"value": 1}]}', "records[1].value"),
        ('{"records": [{"value": true}]}', "records[0].value"),
        ('{"records": [{"value": "1", "key": 1}]}', "records[0].key"),
        ('{"records": [{"value": "1", "offset": 1}]}', "records[0].offset"),
        ('{"records": [{"value": "1", "timestamp": 1.0}]}', "records[0].timestamp"),
        ('{"records": [{"value": "1", "timestamp": 1e3}]}', "records[0].timestamp"),
        ('{"records": [{"value": "1", "timestamp": true}]}', "records[0].timestamp"),
        ('{"records": [{"value": "1", "timestamp": -1}]}', "records[0].timestamp"),
        ('{"records": [{"value": "1", "timestamp": 9223372036854775808}]}', "records[0].timestamp"),
        ('{"records": [{"value": "1", "timestamp": %s}]}' % ("9" * 5000), "records[0].timestamp"),
        ('{"records": [{"value": "1", "headers": {}}]}', "records[0].headers"),
        ('{"records": [{"value": "1", "headers": [["a"]]}]}', "records[0].headers[0]"),
        ('{"records": [{"value": "1", "headers": [["a", "b"], [null, "c"]]}]}', "records[0].headers[1]"),
        ('{"records": [{"value": "1", "headers": [["a", 1]]}]}', "records[0].headers[0]"),
        ('{"records": [{"value": "1"}], "encoding": "hex"}', "encoding"),
        ('{"records": [{"value": "1"}], "encoding": 1}', "encoding"),
        ('{"records": [{"value": "A"}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "AA"}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "AA==\\n"}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "AA=="}, {"value": "A_=="}], "encoding": "base64"}', "records[1].value"),
        ('{"records": [{"value": "AAAA=="}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "AAAA===="}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "AAAAAAAA===="}], "encoding": "base64"}', "records[0].value"),
        ('{"records": [{"value": "", "key": "é"}], "encoding": "base64"}', "records[0].key"),
        ('{"records": [{"value": "1"}], "expected_offset": -2}', "expected_offset"),
        ('{"records": [{"value": "1"}], "expected_offset": 0.0}', "expected_offset"),
        ('{"records": [{"value": "1"}], "expected_offset": false}', "expected_offset"),
        ('{"records": [{"value": "1"}], "expected_offset": []}', "expected_offset"),
        ('{"records": [{"value": "1"}], "expected_offset": [0, 1]}', "expected_offset"),
        ('{"records": [{"value": "1"}], "expected_offset": ["0"]}', "expected_offset[0]"),
        ('{"records": [{"value": "1"}], "acks": "1"}', "acks"),
        ('{"records": [{"value": "1"}], "acks": 1.0}', "acks"),
        ('{"records": [{"value": "1"}], "acks": true}', "acks"),
        ('{"records": [{"value": "1"}], "acks": []}', "acks"),
        ('{"records": [{"value": "1"}], "expected_offsets": 0}', "expected_offsets"),
        ('{"records": [{"value": "1"}], "expected_offsets": []}', "expected_offsets"),
        ('{"records": [{"value": "1"}], "expected_offsets": [0, 1]}', "expected_offsets"),
        ('{"records": [{"value": "1"}], "expected_offsets": [-2]}', "expected_offsets[0]"),
        ('{"records": [{"value": "1"}], "expected_offset": 0, "expected_offsets": [0]}', "expected_offsets"),
        ('{"records": [{"value": "1"}], "acks": 0, "expected_offsets": [0]}', "expected_offsets"),
        ('{"records": [{"value": "1"}], "acks": 0, "expected_offset": 0}', "expected_offset"),
        ('{"records": [{"value": "1"}], "acks": 0, "expected_offset": [0]}', "expected_offset"),
        ('{"records": [{"value": "1"}], "producer": {}}', "producer.producer_id"),
        ('{"records": [{"value": "1"}], "producer": []}', "producer"),
        (
            '{"records": [{"value": "1"}], "producer": {"producer_id": 1, "producer_epoch": 32768, "sequence": 0}}',
            "producer.producer_epoch",
        ),
        (
            '{"records": [{"value": "1"}], "producer": {"producer_id": 1, "producer_epoch": 0, "sequence": -1}}',
            "producer.sequence",
        ),
        (
            '{"records": [{"value": "1"}], "producer": {"producer_id": -1, "producer_epoch": 0, "sequence": 0}}',
            "producer.producer_id",
        ),
        (
            '{"records": [{"value": "1"}], '
            '"producer": {"producer_id": 1, "producer_epoch": 0, "sequence": 0, "name": "x"}}',
            "producer.name",
        ),
        ('{"records": [{"value": "1"}], "session": {"session_id": "s"}}', "session.topic_epoch"),
        ('{"records": [{"value": "1"}], "session": {"session_id": 1, "topic_epoch": 0}}', "session.session_id"),
        ('{"records": [{"value": "1"}], "transactional_id": 1}', "transactional_id"),
        ('{"records": [{"value": "1"}], "nope": 1}', "nope"),
        ('{"records": [{"value": "1"}], "records": [{"value": "1"}]}', "records"),
        ('{"records": [{"value": "\\ud800"}]}', "records[0].value"),
        ('{"records": [{"value": NaN}]}', "records[0].value"),
    ],
)
def test_a_produce_of_wrong_form_is_refused_with_its_field_and_writes_nothing(body: str, field: str | None) -> None:
    assert_refused(call("POST", RECORDS, body=body), "INVALID_REQUEST", field)
    assert next_offset() == 0


def test_null_for_an_optional_field_is_the_field_left_out() -> None:
    body = {
        "records": [{"value": None, "key": None, "headers": None, "timestamp": None}],
        **dict.fromkeys(("encoding", "acks", "expected_offset", "producer", "session", "transactional_id")),
    }
    assert call("POST", RECORDS, value=body).status == 200


@pytest.mark.parametrize(
    ("method", "path", "query", "field"),
    [
        ("GET", RECORDS, "", "offset"),
        ("GET", RECORDS, "offset=0&tail_offset=0", "offset"),
        ("GET", RECORDS, "offset=0&timestamp=0", "offset"),
        ("GET", RECORDS, "offset=", "offset"),
        ("GET", RECORDS, "offset=1.0", "offset"),
        ("GET", RECORDS, "offset=1e3", "offset"),
        ("GET", RECORDS, "offset=-1", "offset"),
        ("GET", RECORDS, "offset=+1", "offset"),
        ("GET", RECORDS, "offset=%D9%A3", "offset"),
        ("GET", RECORDS, "offset=" + "9" * 5000, "offset"),
        ("GET", RECORDS, "timestamp=9223372036854775808", "timestamp"),
        ("GET", RECORDS, "tail_offset=-1", "tail_offset"),
        ("GET", RECORDS, "offset=0&offset=0", "offset"),
        ("GET", RECORDS, "offset=0&off%73et=0", "offset"),
        ("GET", RECORDS, "offset=0&nope=1", "nope"),
        ("GET", RECORDS, "offset=0&group=%ff", "group"),
        ("GET", RECORDS, "offset=0&group=", "group"),
        ("GET", RECORDS, "offset=0&group=" + "g" * 250, "group"),
        ("GET", RECORDS, "offset=0&max_records=0", "max_records"),
        ("GET", RECORDS, "offset=0&max_records=-" + "9" * 50, "max_records"),
        ("GET", RECORDS, "offset=0&max_records=" + "0" * 50, "max_records"),
        ("GET", RECORDS, "offset=0&max_bytes=x", "max_bytes"),
        ("GET", RECORDS, "offset=0&wait_ms=20001", "wait_ms"),
        ("GET", RECORDS, "offset=0&wait_ms=-1", "wait_ms"),
        ("GET", RECORDS, "offset=0&isolation=serializable", "isolation"),
        ("GET", RECORDS, "offset=0&encoding=utf-8", "encoding"),
        ("GET", RECORDS, "offset=0&compacted=True", "compacted"),
        ("GET", RECORDS, "offset=0&compacted=1", "compacted"),
        ("GET", RECORDS, "tail_offset=0&compacted=true", "compacted"),
        ("GET", RECORDS, "timestamp=0&compacted=true", "compacted"),
        ("GET", "/v1/topics/orders/partitions/0/offsets", "timestamp=-1", "timestamp"),
        ("GET", "/v1/topics/orders/partitions/0/offsets", "offset=0", "offset"),
        ("GET", "/v1/topics/orders/partitions/0/segments", "origin=other", "origin"),
        ("GET", "/v1/topics/orders/partitions/0/segments", "limit=0", "limit"),
        ("GET", "/v1/topics", "limit=-1", "limit"),
        ("GET", "/v1/topics", "limit=x", "limit"),
        ("GET", "/v1/topics", "name=orders", "name"),
        ("GET", "/v1/topics/orders", "x=1", "x"),
        ("DELETE", "/v1/topics/orders", "x=1", "x"),
        ("GET", "/v1/health", "x", "x"),
        ("GET", "/v1/openapi.json", "x=1", "x"),
        ("POST", RECORDS, "acks=1", "acks"),
        ("PATCH", "/v1/topics/orders", "partitions=3", "partitions"),
    ],
)
def test_a_query_of_wrong_form_is_refused_with_its_parameter(method: str, path: str, query: str, field: str) -> None:
    answer = call(method, path, query, value=ONE if method == "POST" else None)
    assert_refused(answer, "INVALID_REQUEST", field)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        (RECORDS, "offset=0&max_records=10001"),
        (RECORDS, "offset=0&max_bytes=" + "9" * 5000),
        (RECORDS, "offset=0&max_records=" + "0" * 100 + "5"),
        (RECORDS, "&offset=0&&wait_ms=0&"),
        ("/v1/topics", "limit=9223372036854775808"),
        ("/v1/topics/orders/partitions/0/segments", "limit=101"),
    ],
)
def test_sizes_above_their_maximum_are_cut_with_any_digits_however_many(path: str, query: str) -> None:
    assert call("GET", path, query).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ("{}", "partitions"),
        ('{"partitions": []}', "partitions"),
        ('{"partitions": {}}', "partitions"),
        ('{"partitions": [1]}', "partitions[0]"),
        ('{"partitions": [{"partition": 0, "records": [{"value": "1"}]}]}', "partitions[0].topic"),
        ('{"partitions": [{"topic": "orders", "records": [{"value": "1"}]}]}', "partitions[0].partition"),
        ('{"partitions": [{"topic": "orders", "partition": "0"}]}', "partitions[0].partition"),
        ('{"partitions": [{"topic": "orders", "partition": -1}]}', "partitions[0].partition"),
        ('{"partitions": [{"topic": "orders", "partition": 0}]}', "partitions[0].records"),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "records": [{"value": 1}]}]}',
            "partitions[0].records[0].value",
        ),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "records": [{"value": "1"}]},'
            '{"topic": "orders", "partition": 0, "records": [{"value": "1"}]}]}',
            "partitions[1].partition",
        ),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "records": [{"value": "1"}]},'
            '{"topic": "orders", "partition": 1, "records": [{"value": "1"}], "acks": 1}]}',
            "partitions[1].acks",
        ),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "records": [{"value": "1"}], "session": {}}]}',
            "partitions[0].session.session_id",
        ),
        (
            '{"acks": 0, "partitions": [{"topic": "orders", "partition": 0, "records": [{"value": "1"}],'
            '"expected_offset": 0}]}',
            "partitions[0].expected_offset",
        ),
        (
            '{"partitions": [{"topic": "orders", "partition": 0, "records": [{"value": "1"}],'
            '"expected_offset": [1, 2]}]}',
            "partitions[0].expected_offset",
        ),
    ],
)
def test_produce_many_judges_the_form_of_every_entry_before_it_writes(body: str, field: str) -> None:
    assert_refused(call("POST", "/v1/produce", body=body), "INVALID_REQUEST", field)
    assert next_offset() == 0


def test_produce_many_takes_at_most_fifty_entries() -> None:
    entries = [{"topic": "orders", "partition": n, **ONE} for n in range(51)]
    assert_refused(call("POST", "/v1/produce", value={"partitions": entries}), "INVALID_REQUEST", "partitions")
    assert call("POST", "/v1/produce", value={"partitions": entries[:50]}).status == 200


@pytest.mark.parametrize("acks", [2, -2, 2**62])
def test_invalid_acks_are_refused_by_their_own_code(acks: int) -> None:
    assert_refused(call("POST", RECORDS, value={**ONE, "acks": acks}), "INVALID_REQUIRED_ACKS")
    entries = [{"topic": "orders", "partition": 0, **ONE}]
    assert_refused(call("POST", "/v1/produce", value={"acks": acks, "partitions": entries}), "INVALID_REQUIRED_ACKS")
    headers = {"content-type": BATCH_TYPE}
    assert_refused(call("POST", RECORDS, f"acks={acks}", headers=headers, body=b"x"), "INVALID_REQUIRED_ACKS")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": None}, "name"),
        ({"name": 1}, "name"),
        ({"name": "a", "partitions": "1"}, "partitions"),
        ({"name": "a", "partitions": 0}, "partitions"),
        ({"name": "a", "partitions": -1}, "partitions"),
        ({"name": "a", "partitions": 1.0}, "partitions"),
        ({"name": "a", "partitions": 10001}, "partitions"),
        ({"name": "a", "config": []}, "config"),
        ({"name": "a", "config": {"retention.ms": "1"}}, "config.retention.ms"),
        ({"name": "a", "config": {"retention.ms": -2}}, "config.retention.ms"),
        ({"name": "a", "config": {"nope": 1}}, "config.nope"),
        ({"name": "a", "config": {"check.expected.offsets": "true"}}, "config.check.expected.offsets"),
        ({"name": "a", "regions": "x"}, "regions"),
        ({"name": "a", "regions": [1]}, "regions[0]"),
        ({"name": "a", "topic_id": "x"}, "topic_id"),
    ],
)
def test_a_topic_of_wrong_form_is_refused_with_its_field(body: Any, field: str) -> None:
    assert_refused(call("POST", "/v1/topics", value=body), "INVALID_REQUEST", field)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "é", "x" * 250, "a\n"])
def test_an_illegal_name_is_an_invalid_topic_in_a_body_and_an_unknown_one_in_a_path(name: str) -> None:
    assert_refused(call("POST", "/v1/topics", value={"name": name}), "INVALID_TOPIC_EXCEPTION")
    if name and "/" not in name:
        assert_refused(call("GET", f"/v1/topics/{name}"), "UNKNOWN_TOPIC_OR_PARTITION")


@pytest.mark.parametrize(
    ("body", "code", "field"),
    [
        ("", None, None),
        ("{}", None, None),
        ('{"transaction_timeout_ms": 900001}', None, None),
        ('{"transactional_id": null, "producer_id": null}', None, None),
        ('{"transaction_timeout_ms": "1"}', "INVALID_REQUEST", "transaction_timeout_ms"),
        ('{"transactional_id": "t", "transaction_timeout_ms": 0}', "INVALID_TRANSACTION_TIMEOUT", None),
        ('{"transactional_id": "t", "transaction_timeout_ms": 900001}', "INVALID_TRANSACTION_TIMEOUT", None),
        ('{"transactional_id": 1}', "INVALID_REQUEST", "transactional_id"),
        ('{"producer_id": 1, "producer_epoch": 0}', "INVALID_REQUEST", "producer_id"),
        ('{"transactional_id": "t", "producer_id": 1}', "INVALID_REQUEST", "producer_epoch"),
        ('{"transactional_id": "t", "producer_epoch": 1}', "INVALID_REQUEST", "producer_id"),
        ('{"transactional_id": ""}', "INVALID_REQUEST", "transactional_id"),
        ('{"transaction_timeout_ms": -9223372036854775808}', None, None),
        ('{"transaction_timeout_ms": -9223372036854775809}', "INVALID_REQUEST", "transaction_timeout_ms"),
        (
            '{"transactional_id": "t", "transaction_timeout_ms": -9223372036854775808}',
            "INVALID_TRANSACTION_TIMEOUT",
            None,
        ),
        (
            '{"transactional_id": "t", "transaction_timeout_ms": 9223372036854775807}',
            "INVALID_TRANSACTION_TIMEOUT",
            None,
        ),
        (
            '{"transactional_id": "t", "producer_id": 1, "producer_epoch": 32768}',
            "INVALID_REQUEST",
            "producer_epoch",
        ),
        ('{"transactional_id": "t", "producer_id": -1, "producer_epoch": -1}', "INVALID_REQUEST", "producer_id"),
        ('{"id": 1}', "INVALID_REQUEST", "id"),
        ("[]", "INVALID_REQUEST", None),
    ],
)
def test_producer_ids_judges_its_pairs_and_the_time_out(body: str, code: str | None, field: str | None) -> None:
    answer = call("POST", "/v1/producer-ids", body=body)
    if code:
        assert_refused(answer, code, field)
    else:
        assert answer.status == 200
        assert set(answer.json) == {"producer_id", "producer_epoch"}


@pytest.mark.parametrize(
    ("content_type", "is_taken"),
    [
        (None, True),
        ("", True),
        ("application/json", True),
        ("Application/JSON ; Charset=UTF-8", True),
        ('application/json; charset="utf-8"', True),
        ("application/json; charset=latin-1", False),
        ("text/plain", False),
        ("application/vnd.apache.kafka.records", False),
        ("application/vnd.apache.kafka.records; version=1", False),
        ("application/jsonx", False),
        ("application/json, application/json", False),
    ],
)
def test_a_body_is_json_or_it_is_not_taken(content_type: str | None, is_taken: bool) -> None:
    headers = {} if content_type is None else {"content-type": content_type}
    answer = call("POST", RECORDS, headers=headers, value=ONE)
    if is_taken:
        assert answer.status == 200
    else:
        assert_refused(answer, "UNSUPPORTED_MEDIA_TYPE")


def test_no_body_needs_no_type_and_any_is_passed_over_where_it_may_be_left_out() -> None:
    """As `curl -X POST -d ''` sends it."""
    headers = {"content-type": "application/x-www-form-urlencoded"}
    assert call("POST", "/v1/producer-ids", headers=headers).status == 200
    assert_refused(call("POST", "/v1/producer-ids", headers=headers, body=b"{}"), "UNSUPPORTED_MEDIA_TYPE")
    assert_refused(call("POST", RECORDS, headers=headers), "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("content_type", [BATCH_TYPE, 'Application/Vnd.Apache.Kafka.Records;VERSION="2"'])
def test_batches_are_taken_where_records_are_appended_and_nowhere_else(content_type: str) -> None:
    headers = {"content-type": content_type}
    assert_refused(call("POST", RECORDS, headers=headers, body=b"x"), "CORRUPT_MESSAGE")
    for path in ("/v1/topics", "/v1/produce", "/v1/producer-ids", "/v1/topics/orders/partitions/0/trim"):
        assert_refused(call("POST", path, headers=headers, body=b"x"), "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize("path", [RECORDS, "/v1/topics", "/v1/produce", "/v1/producer-ids"])
def test_a_body_too_large_is_refused_before_it_is_parsed(path: str) -> None:
    answer = call("POST", path, body=b"{" * (limits.BODY_BYTES_MAX + 1))
    assert_refused(answer, "RECORD_LIST_TOO_LARGE")
    assert answer.json["bytes_max"] == 5_600_000
    assert_refused(call("POST", path, body=b"{" * limits.BODY_BYTES_MAX), "INVALID_REQUEST")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/topics/nope/partitions/0/records",
        "/v1/topics/orders/partitions/2/records",
        "/v1/topics/orders/partitions/x/records",
        "/v1/topics/orders/partitions/-1/records",
        "/v1/topics/orders/partitions/1.0/records",
        "/v1/topics/orders/partitions/٠/records",  # digits, and the number 0, but not ours
        "/v1/topics/orders/partitions/²/records",  # a digit, and no number
        f"/v1/topics/orders/partitions/{'9' * 5000}/records",
        "/v1/topics/a b/partitions/0/records",
        "/v1/topics/../partitions/0/records",
        "/v1/topics/orders\n/partitions/0/records",
    ],
)
def test_an_invalid_partition_in_a_path_is_an_unknown_partition(path: str) -> None:
    assert_refused(call("POST", path, value=ONE), "UNKNOWN_TOPIC_OR_PARTITION")
    assert_refused(call("GET", path, "offset=0"), "UNKNOWN_TOPIC_OR_PARTITION")


def test_the_form_is_judged_before_the_partition() -> None:
    assert_refused(call("POST", "/v1/topics/nope/partitions/0/records", body="{"), "INVALID_REQUEST")
    assert_refused(call("GET", "/v1/topics/nope/partitions/0/records"), "INVALID_REQUEST", "offset")


@pytest.mark.parametrize(
    "path",
    [
        "/docs/",
        "/v1",
        "/v1/",
        "/v2/topics",
        "/v1/topics/",
        "/v1/topics/orders/",
        "/v1/topics\n",
        "/v1//topics",
        "/v1/topics/orders/partitions/0",
        "/v1/topics/orders/subscriptions/s/backlog",
        "/v1/groups/g/members",
        "/v1/transactions/t/abort",
        "/v1/transactions//end",
        "/v1/coordinators/share/g",
        "/v1/coordinators/group",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "HEAD", "OPTIONS"])
def test_an_unknown_path_is_not_found_with_any_method(method: str, path: str) -> None:
    for function in routes.FUNCTIONS:
        assert answer_of(function, event(method, path))["statusCode"] == 404
    assert_refused(call(method, path), "NOT_FOUND")


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/topics", "POST, GET"),
        ("/v1/topics/orders", "GET, PATCH, DELETE"),
        (RECORDS, "POST, GET"),
        ("/v1/produce", "POST"),
        ("/v1/topics/orders/subscriptions", "GET"),
        ("/v1/topics/orders/subscriptions/s", "PUT, GET, DELETE"),
        ("/v1/groups/g/offsets", "GET, POST"),
        ("/v1/groups", "GET"),
        ("/v1/groups/g", "GET, DELETE"),
        ("/v1/groups/g/members/m", "POST, DELETE"),
        ("/v1/transactions", "GET"),
        ("/v1/transactions/t", "GET"),
        ("/v1/transactions/t/end", "POST"),
        ("/v1/coordinators/group/g", "GET"),
        ("/v1/health", "GET"),
        ("/", "GET"),
    ],
)
@pytest.mark.parametrize("method", ["PUT", "HEAD", "OPTIONS", "TRACE", "QUERY", "DELETE"])
def test_a_wrong_method_is_answered_with_the_allowed_ones_by_every_function(
    method: str, path: str, allowed: str
) -> None:
    if method in allowed or (method == "HEAD" and "GET" in allowed):
        return
    for function in routes.FUNCTIONS:
        response = answer_of(function, event(method, path))
        assert (response["statusCode"], json.loads(response["body"])["code"]) == (405, "METHOD_NOT_ALLOWED")
        assert response["headers"]["allow"] == allowed


def test_an_undocumented_error_passes_through_the_handler(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Topics, "get", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        call("GET", "/v1/topics/orders")


@pytest.mark.slow
def test_threads_that_share_a_handler_each_get_their_own_answer(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request is an argument: what one thread works on is nowhere that another could find it."""

    def append(topic: str, partition: int, request: AppendRequest, *, acks: int, principal: str) -> Appended:
        (record,) = request.records
        assert record.value is not None
        return Appended(int(record.value), partition, len(topic), False, acks, False, -1)

    monkeypatch.setattr(service.log, "append", append)

    def one(n: int) -> bool:
        body = {"records": [{"value": str(n)}]}
        if n % 3 == 0:
            return call("POST", f"/v1/topics/{'t' * (n % 7 + 1)}/partitions/{n}/records", body="{").code != ""
        answer = call("POST", f"/v1/topics/{'t' * (n % 7 + 1)}/partitions/{n}/records", value=body).json
        return (answer["base_offset"], answer["next_offset"], answer["count"]) == (n, n, n % 7 + 1)

    with ThreadPoolExecutor(16) as pool:
        assert all(pool.map(one, range(4_000)))


def test_a_raw_event_carries_bytes_both_ways(service: wiring.Service) -> None:
    raw = {**event("POST", RECORDS), "body": json.dumps(ONE).encode(), "isRaw": True}
    assert dispatch.respond("produce", raw, service).status == 200
    accept = {"accept": BATCH_TYPE}
    response = dispatch.respond("read", {**event("GET", RECORDS, "offset=0", accept), "isRaw": True}, service)
    assert isinstance(response.body, bytes)
    assert response.body == send(event("GET", RECORDS, "offset=0", accept)).body


# Content codings, HEAD


def as_zstd(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip", " gzip ", "zstd"])
@pytest.mark.parametrize("path", [RECORDS, "/v1/produce"])
def test_a_body_may_come_compressed(coding: str, path: str) -> None:
    body = ONE if path == RECORDS else {"partitions": [{"topic": "orders", "partition": 0, **ONE}]}
    sent = json.dumps(body).encode()
    packed = as_zstd(sent) if coding == "zstd" else gzip.compress(sent)
    assert call("POST", path, body=packed, headers={"content-encoding": coding}).status == 200
    assert next_offset() == 1


def test_a_batch_in_a_compressed_body_is_stored_as_it_was_made() -> None:
    made = batch.encode([Record(b"v")], now_ms=1_700_000_000_000).body
    headers = {"content-encoding": "gzip", "content-type": BATCH_TYPE}
    assert call("POST", RECORDS, body=gzip.compress(bytes(made)), headers=headers).status == 200
    assert call("GET", RECORDS, "offset=0").json["records"][0]["value"] == "v"


@pytest.mark.parametrize(
    "coding", ["br", "deflate", "compress", "gzip, gzip", "gzip,zstd", "aws-chunked", "é", "x" * 999]
)
def test_a_body_in_another_coding_is_refused_and_nothing_is_written(coding: str) -> None:
    answer = call("POST", RECORDS, body=json.dumps(ONE), headers={"content-encoding": coding})
    assert_refused(answer, "UNSUPPORTED_MEDIA_TYPE")
    assert "gzip and zstd" in answer.json["detail"]
    assert next_offset() == 0


@pytest.mark.parametrize("coding", ["identity", "", " "])
def test_a_body_without_a_coding_is_taken_as_it_is(coding: str) -> None:
    assert call("POST", RECORDS, body=json.dumps(ONE), headers={"content-encoding": coding}).status == 200


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
@pytest.mark.parametrize(
    "change", [lambda packed: b'{"records": []}', lambda packed: packed[:-5], lambda packed: b"\0"]
)
def test_a_body_that_is_not_in_its_coding_is_refused(coding: str, change: Callable[[bytes], bytes]) -> None:
    sent = json.dumps(ONE).encode()
    packed = as_zstd(sent) if coding == "zstd" else gzip.compress(sent)
    assert_refused(call("POST", RECORDS, body=change(packed), headers={"content-encoding": coding}), "INVALID_REQUEST")
    assert next_offset() == 0


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_the_decoded_size_of_a_compressed_body_is_bounded(coding: str) -> None:
    huge = b" " * (limits.BODY_BYTES_MAX + 1)
    packed = as_zstd(huge) if coding == "zstd" else gzip.compress(huge)
    assert len(packed) < 10_000
    answer = call("POST", RECORDS, body=packed, headers={"content-encoding": coding})
    assert_refused(answer, "RECORD_LIST_TOO_LARGE")
    assert answer.json["bytes_max"] == limits.BODY_BYTES_MAX


@pytest.mark.parametrize("route", [route for route in routes.ROUTES if route.method == "GET"], ids=lambda r: r.path)
def test_head_answers_as_get_does(route: Route) -> None:
    path = route.path.replace("{topic}", "orders").replace("{partition}", "0")
    query = "offset=0" if route.path.endswith("/records") else ""
    answers = [answer_of(route.function, event(method, path, query)) for method in ("GET", "HEAD")]
    assert len({(each["statusCode"], each["headers"]["content-type"]) for each in answers}) == 1
