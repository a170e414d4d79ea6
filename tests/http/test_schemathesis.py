"""Requests made from the served document, legal and not, to the real handlers behind a real socket: never a 5xx.

Rule: by day each operation gets a few requests, because ``test_declared_forms`` sends every wrong form in this process.
By night each gets a hundred.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Literal

import pytest
from hypothesis import HealthCheck, given, settings

from fenceline import limits
from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline_http import wiring
from fenceline_http.route import Route
from fenceline_http.routes import ROUTES
from tests.http.conftest import service_in_memory
from tests.support.http_events import BATCH_TYPE, BYTES_TYPE, DOCUMENT, call
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving

Mode = Literal["positive", "negative"]


@cache
def schema_and_checks() -> tuple[Any, list[Any]]:
    """Load the document; schemathesis is imported here, because its import takes a second of every worker."""
    import schemathesis
    from schemathesis.checks import load_all_checks, not_a_server_error
    from schemathesis.specs.openapi import checks

    load_all_checks()

    @schemathesis.serializer(BYTES_TYPE)
    def as_batch(_: Any, value: Any) -> Any:
        return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")

    return schemathesis.openapi.from_dict(DOCUMENT), [
        not_a_server_error,
        checks.content_type_conformance,
        checks.response_headers_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
        checks.unsupported_method,
    ]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        service = service_in_memory()
        patch.setattr(wiring, "service", lambda: service)
        for name in {route.method.lower() for route in ROUTES}:
            assert call("POST", "/v1/topics", value={"name": name, "partitions": 2}).status == 201
            batch = encode([Record(b"v", b"k")], now_ms=1).body
            path = f"/v1/topics/{name}/partitions/0/records"
            assert call("POST", path, headers={"content-type": BATCH_TYPE}, body=batch).status == 200
        with serving(service) as served:
            yield served


def cases() -> Iterator[tuple[Route, Mode]]:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        yield route, "positive"
        if operation["parameters"] or "requestBody" in operation:
            yield route, "negative"


def assert_answers_are_promised(url: str, route: Route, mode: Mode, examples: int) -> None:
    from schemathesis import GenerationMode

    schema, checks = schema_and_checks()
    operation = schema[route.path][route.method]

    @given(case=operation.as_strategy(generation_mode=GenerationMode(mode)))
    @settings(
        max_examples=examples, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
    )
    def send(case: Any) -> None:
        if "wait_ms" in (case.query or {}):
            case.query["wait_ms"] = 1
        if mode == "positive" and "topic" in case.path_parameters:
            case.path_parameters["topic"] = route.method.lower()  # most names that it makes up name no topic
            if "partition" in case.path_parameters:
                case.path_parameters["partition"] %= 2
        response = case.call(base_url=url, timeout=PATIENCE_S)
        if len(response.request.path_url) > limits.URL_BYTES_MAX:
            assert response.status_code == 414  # the server's own answer, which belongs to no operation
        else:
            case.validate_response(response, checks=checks)

    send()


@pytest.mark.slow
def test_no_answer_to_a_few_requests_is_one_that_the_document_does_not_promise(url: str) -> None:
    for route, mode in cases():
        assert_answers_are_promised(url, route, mode, 2)


@pytest.mark.prove
@pytest.mark.slow
@pytest.mark.parametrize(
    ("route", "mode"),
    [pytest.param(*case, id=f"{case[1]} {case[0].method} {case[0].path}") for case in cases()],
)
def test_no_answer_is_one_that_the_document_does_not_promise(url: str, route: Route, mode: Mode) -> None:
    assert_answers_are_promised(url, route, mode, 100)
