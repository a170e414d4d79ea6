"""Requests made from the served document, legal and not, to the real handlers behind a real socket: never a 5xx."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from fenceline.format.batch import encode
from fenceline.model.record import Record
from fenceline_http import wiring
from fenceline_http.route import Route
from fenceline_http.routes import ROUTES
from tests.http.conftest import service_in_memory
from tests.support.http_events import BATCH_TYPE, BYTES_TYPE, DOCUMENT, call
from tests.support.patience import PATIENCE_S
from tests.support.serving import serving

load_all_checks()
SCHEMA = schemathesis.openapi.from_dict(DOCUMENT)
CHECKS = [
    not_a_server_error,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
]


@schemathesis.serializer(BYTES_TYPE)
def as_batch(_: Any, value: Any) -> Any:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "replace")


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


def cases() -> Iterator[Any]:
    for route in ROUTES:
        operation = DOCUMENT["paths"][route.path][route.method.lower()]
        yield pytest.param(route, GenerationMode.POSITIVE, id=f"{route.method} {route.path}")
        if operation["parameters"] or "requestBody" in operation:
            yield pytest.param(route, GenerationMode.NEGATIVE, id=f"not {route.method} {route.path}")


@pytest.mark.slow
@pytest.mark.parametrize(("route", "mode"), list(cases()))
def test_no_answer_is_one_that_the_document_does_not_promise(url: str, route: Route, mode: GenerationMode) -> None:
    operation = SCHEMA[route.path][route.method]

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(max_examples=30, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    def send(case: schemathesis.Case) -> None:
        if "wait_ms" in (case.query or {}):
            case.query["wait_ms"] = 1
        if mode is GenerationMode.POSITIVE and "topic" in case.path_parameters:
            case.path_parameters["topic"] = route.method.lower()  # most names that it makes up name no topic
            if "partition" in case.path_parameters:
                case.path_parameters["partition"] %= 2
        case.call_and_validate(base_url=url, checks=CHECKS, timeout=PATIENCE_S)

    send()
