"""An event meets the handler of its route, and its response is what a gateway takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from fenceline_http import dispatch, responses
from fenceline_http.responses import Response
from fenceline_http.wiring import Service
from fenceline_testing.service import in_memory
from tests.support.http_events import event

ONE = {"records": [{"value": "v"}]}


@pytest.fixture
def service() -> Iterator[Service]:
    with in_memory() as lent:
        yield replace(lent.service, version="7.0.0")


def status(service: Service, method: str, path: str, stage: str = "$default") -> int:
    sent = event(method, path)
    sent["requestContext"]["stage"] = stage
    return dispatch.respond("admin", sent, service).status


@pytest.mark.parametrize(
    ("method", "path", "stage", "expected"),
    [
        ("GET", "/v1/health", "$default", 200),
        ("get", "/v1/health", "$default", 200),
        ("GET", "/prod/v1/health", "prod", 200),  # a named stage is not part of the route
        ("GET", "/prod/v1/health", "$default", 404),
        ("GET", "/v1/health/", "$default", 404),  # a slash at the end is another path
        ("GET", "//v1/health", "$default", 404),
        ("GET", "/v1/topics//partitions/0/trim", "$default", 404),  # no parameter is empty
        ("GET", "/v1/topics/%6frders", "$default", 404),  # the gateway has decoded the path, once
        ("HEAD", "/v1/health", "$default", 200),
        ("HEAD", "/v1/health/", "$default", 404),
        ("HEAD", "/v1/produce", "$default", 405),
        ("OPTIONS", "/v1/health", "$default", 405),
        ("", "/v1/health", "$default", 405),
        ("GET", "", "$default", 404),
    ],
)
def test_a_request_takes_the_route_of_its_method_and_its_whole_path(
    service: Service, method: str, path: str, stage: str, expected: int
) -> None:
    assert status(service, method, path, stage) == expected


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/v1/nothing", "no such path: path=/v1/nothing"),
        ("/x/v1/a", "no such path; each begins with /v1/, so look at the path in the service's URL: path=/x/v1/a"),
    ],
)
def test_a_path_outside_of_the_api_is_refused_with_what_may_be_wrong(service: Service, path: str, detail: str) -> None:
    response = dispatch.respond(None, event("GET", path), service)
    assert json.loads(response.body)["detail"] == detail


def test_a_caller_that_names_no_function_reaches_the_routes_of_all(service: Service) -> None:
    service.log.topics.create("orders")
    statuses = {
        path: dispatch.respond(None, event("GET", path), service).status
        for path in ("/v1/health", "/v1/topics/orders/partitions/0/offsets", "/v1/sessions/none", "/v1/nothing")
    }
    assert list(statuses.values()) == [200, 200, 404, 404]
    assert dispatch.respond(None, event("PUT", "/v1/health"), service).headers["allow"] == "GET"


def test_a_response_is_a_gateways_event_without_cookies_and_bytes_are_in_base64(service: Service) -> None:
    response = dispatch.respond("admin", event("GET", "/v1/health"), service).to_event()
    assert set(response) == {"statusCode", "headers", "body", "isBase64Encoded", "cookies"}
    assert (response["headers"], response["cookies"], response["isBase64Encoded"]) == (
        {"content-type": "application/json"},
        [],
        False,
    )
    shown = json.loads(response["body"])
    assert [shown[name] for name in ("status", "region", "version", "peers")] == ["ok", "local", "7.0.0", []]
    binary = Response(200, b"\xff").to_event()
    assert (binary["body"], binary["isBase64Encoded"]) == ("/w==", True)
    assert Response(204).to_event() == {**response, "statusCode": 204, "headers": {}, "body": ""}


def test_a_response_that_no_gateway_carries_is_an_error_but_to_a_caller_in_the_process(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "handler_of", lambda route: lambda request: Response(200, bytes(5_000_000)))
    refused = dispatch.respond("admin", event("GET", "/v1/health"), service)
    assert (refused.status, refused.codes) == (413, ["MESSAGE_TOO_LARGE"])
    taken = dispatch.respond("admin", {**event("GET", "/v1/health"), "isRaw": True}, service)
    assert taken.body == bytes(5_000_000)


@pytest.mark.parametrize(
    ("path", "body", "codes", "duplicates"),
    [
        ("/v1/topics/orders/partitions/0/records", ONE, [], 0),
        ("/v1/topics/orders/partitions/0/records", {"records": [{"value": "duplicate"}]}, [], 1),
        ("/v1/topics/nope/partitions/0/records", ONE, ["UNKNOWN_TOPIC_OR_PARTITION"], 0),
        (
            "/v1/produce",
            {
                "partitions": [
                    {"topic": name, "partition": 0, "records": [{"value": "v"}]} for name in ("orders", "a", "b")
                ]
            },
            ["UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_OR_PARTITION"],
            0,
        ),
        ("/v1/nothing", {}, ["NOT_FOUND"], 0),
    ],
)
def test_a_response_says_its_codes_and_duplicates_as_values(
    service: Service, path: str, body: dict[str, Any], codes: list[str], duplicates: int
) -> None:
    service.log.topics.create("orders")
    if duplicates:
        body["producer"] = {"producer_id": 1, "producer_epoch": 0, "sequence": 0}
        dispatch.respond("produce", event("POST", path, body=json.dumps(body)), service)
    response = dispatch.respond("produce", event("POST", path, body=json.dumps(body)), service)
    assert (response.codes, response.duplicates) == (codes, duplicates)


def test_the_place_of_a_batch_repeats_no_name_that_is_too_long() -> None:
    assert responses.place("x" * 5_000, 1) == {"topic": "x" * 249 + "…", "partition": 1}
