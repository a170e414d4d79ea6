"""A request that the local server's end does not wait for gets a documented answer all the same."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import MutableMapping
from typing import Any

import pytest

from fenceline_cli.dev_server.bridge import Bridge
from fenceline_http import dispatch, responses, wiring
from fenceline_http.responses import Response
from tests.support.patience import PATIENCE_S


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("POST", "/v1/transactions/loader-1/end", 504, "OUTCOME_UNKNOWN"),
        ("POST", "/v1/topics/orders/partitions/0/records", 504, "OUTCOME_UNKNOWN"),
        ("GET", "/v1/topics/orders/partitions/0/records", 503, "STORE_UNAVAILABLE"),
        ("POST", "/v1/poll", 503, "STORE_UNAVAILABLE"),
    ],
)
def test_a_request_that_is_cut_off_by_the_end_of_the_server_is_never_a_500(
    service: wiring.Service, monkeypatch: pytest.MonkeyPatch, method: str, path: str, status: int, code: str
) -> None:
    is_under_way, may_end = threading.Event(), threading.Event()

    def respond(*_: Any) -> Response:
        is_under_way.set()
        assert may_end.wait(PATIENCE_S)
        return responses.empty(204)

    monkeypatch.setattr(dispatch, "respond", respond)
    bridge = Bridge(service)
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return {"body": b"{}"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    async def cut_off() -> None:
        scope: dict[str, Any] = {
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "scheme": "http",
        }
        scope |= {"server": ("127.0.0.1", 80)}
        request = asyncio.ensure_future(
            bridge({**scope, "type": "http", "headers": [(b"host", b"127.0.0.1")]}, receive, send)
        )
        assert await asyncio.to_thread(is_under_way.wait, PATIENCE_S)
        request.cancel()
        await request

    try:
        asyncio.run(cut_off())
    finally:
        may_end.set()
        assert bridge.close(60_000)
    start, content = sent
    assert start["status"] == status
    assert (b"content-type", b"application/problem+json") in start["headers"]
    assert json.loads(content["body"])["code"] == code
