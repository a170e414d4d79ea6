"""The service that a test borrows: in memory, on moto, or at a URL of this machine.

Rule: every request to moto runs under one lock, because moto lets two writers win one key.

Not here: the fixtures; see ``fenceline_testing``.
"""

from __future__ import annotations

import base64
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import httpx

from fenceline.client import Client
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_http import dispatch, wiring
from fenceline_http.store_meter import Meter, MeteredItems, MeteredObjects

URL = "http://fenceline.test"
MOTO_REGION = "us-east-1"
_BUCKET, _TABLE = "fenceline-test", "fenceline-test"


@dataclass(frozen=True, slots=True)
class Fenceline:
    """A service within this process.

    Args:
        client: A client of it; ``another_client()`` returns more.
        service: The log and the stores that the functions work with, and the meter of the stores' requests.
    """

    client: Client
    service: wiring.Service

    def another_client(self) -> Client:
        """Return a client that shares nothing with the first, to be closed by the caller."""
        return _client(self.service)

    def fetch(self, url: str) -> bytes:
        """Return the bytes that a segment's URL serves."""
        key = "log/" + url.partition("/log/")[2].partition("?")[0]
        return self.service.objects.get(key).body


@dataclass(frozen=True, slots=True)
class FencelineServer(Fenceline):
    """A service within this process that answers at ``url``, too."""

    url: str

    def another_client(self) -> Client:
        """Return a client that shares nothing with the first, to be closed by the caller."""
        return Client(self.url)


@contextmanager
def in_memory(*, item_age_ms: int = 0) -> Iterator[Fenceline]:
    """Lend an empty service on the embedded stores, in memory.

    Args:
        item_age_ms: As in ``Settings``; it is 60,000 in a deployed service.
    """
    from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore

    settings = Settings(":memory:", item_age_ms=item_age_ms)
    runtime = wiring.runtime_of(settings)
    objects = SqliteObjectStore(":memory:", now_ms=runtime.now_ms)
    with _lent(settings, objects, SqliteItemStore(":memory:"), runtime) as lent:
        yield lent


@contextmanager
def on_moto() -> Iterator[Fenceline]:
    """Lend an empty service on S3 and DynamoDB as moto has them, its requests one at a time."""
    from fenceline.adapters.aws.dynamodb import DynamoItemStore, dynamodb_client
    from fenceline.adapters.aws.s3 import S3ObjectStore

    elsewhere = {name: value for name, value in os.environ.items() if not name.startswith("AWS_ENDPOINT_URL")}
    with mock.patch.dict(os.environ, elsewhere, clear=True), locked_moto() as url:
        settings = Settings(region=MOTO_REGION, objects=f"s3://{_BUCKET}", items=f"dynamodb://{_TABLE}")
        objects = S3ObjectStore(_BUCKET, region=MOTO_REGION, endpoint_url=url)
        objects.create_bucket()
        items = DynamoItemStore(_TABLE, client=dynamodb_client(region=MOTO_REGION))
        items.create_table()
        with _lent(settings, objects, items, wiring.runtime_of(settings)) as lent:
            yield lent


@contextmanager
def serving() -> Iterator[FencelineServer]:
    """Lend an empty service in memory that answers at a URL of this machine."""
    from fenceline_cli.dev_server.bridge import Bridge
    from fenceline_cli.dev_server.thread import ServerThread

    with (
        in_memory() as lent,
        ServerThread(Bridge(lent.service), lent.service.log) as server,
        Client(server.url) as client,
    ):
        yield FencelineServer(client, lent.service, server.url)


_moto_lock = threading.RLock()


@contextmanager
def locked_moto() -> Iterator[str]:
    """Let AWS clients that are made inside this block speak to an empty moto, one request at a time.

    botocore's clients reach it without a socket. All others, the object store among them, reach the same moto at the
    URL that is lent.
    """
    from moto import mock_aws
    from moto.core.botocore_stubber import BotocoreStubber
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication

    unlocked, served = BotocoreStubber.__call__, DomainDispatcherApplication.__call__

    def locked(self: BotocoreStubber, *args: Any, **named: Any) -> Any:
        with _moto_lock:
            return unlocked(self, *args, **named)

    def answered(self: DomainDispatcherApplication, *args: Any) -> Any:
        with _moto_lock:
            return list(served(self, *args))  # an answer is made as it is read

    with (
        mock.patch.object(BotocoreStubber, "__call__", locked),
        mock.patch.object(DomainDispatcherApplication, "__call__", answered),
        mock_aws(),
    ):
        server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
        server.start()
        try:
            yield "http://{}:{}".format(*server.get_host_and_port())
        finally:
            server.stop()


@contextmanager
def _lent(
    settings: Settings, objects: wiring.Objects, items: wiring.Items, runtime: ThreadRuntime
) -> Iterator[Fenceline]:
    meter = Meter(runtime.monotonic_ms)
    log = wiring.log_of(settings, MeteredObjects(objects, meter), MeteredItems(items, meter), runtime)
    service = wiring.Service(settings, log, objects, items, ThreadRuntime(4), "0.0.0", meter)
    with _client(service) as client:
        try:
            yield Fenceline(client, service)
        finally:
            service.close()


def _client(service: wiring.Service) -> Client:
    return Client(URL, http=_Functions(service))


class _Functions(httpx.BaseTransport):
    """A transport to the routes of all functions, with the event that the gateway would send."""

    def __init__(self, service: wiring.Service) -> None:
        self._service = service

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = dispatch.respond(None, _event(request, self._service.runtime.now_ms()), self._service)
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body, request=request)


def _event(request: httpx.Request, now_ms: int) -> dict[str, Any]:
    """Return an event of an HTTP API, payload version 2.0, its body in base64, as for any body that is not text."""
    body = request.read()
    path, host = request.url.path, request.url.host
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": path,
        "rawQueryString": request.url.query.decode(),
        "headers": {name.lower(): value for name, value in request.headers.items()} | {"x-forwarded-proto": "http"},
        "requestContext": {
            "stage": "$default",
            "domainName": host,
            "http": {"method": request.method, "path": path},
            "timeEpoch": now_ms,
        },
        "body": base64.b64encode(body).decode() if body else None,
        "isBase64Encoded": bool(body),
    }
