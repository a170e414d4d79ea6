"""The real handlers behind a real socket of this process."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn

from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.runtime import ThreadRuntime
from fenceline.settings import Settings
from fenceline_cli.dev_server.bridge import Bridge
from fenceline_cli.dev_server.http_limits import LimitedHttp
from fenceline_cli.dev_server.usage_counts import UsageCounts
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_http import wiring
from fenceline_http.store_meter import Meter, MeteredItems, MeteredObjects


def metered_service() -> wiring.Service:
    """Return a service in memory whose stores are counted, as each server's are. Nothing sweeps it."""
    runtime = ThreadRuntime()
    objects, items = SqliteObjectStore(":memory:", now_ms=runtime.now_ms), SqliteItemStore(":memory:")
    meter, settings = Meter(runtime.monotonic_ms), Settings(":memory:", item_age_ms=0)
    log = wiring.log_of(settings, MeteredObjects(objects, meter), MeteredItems(items, meter), runtime)
    return wiring.Service(settings, log, objects, items, ThreadRuntime(4), "0.0.0", meter)


@contextmanager
def serving(service: wiring.Service, origins: WebOrigins | None = None, *, has_console: bool = True) -> Iterator[str]:
    """Serve, and lend the URL; ``wiring.service`` must return the same service. It is closed at the end."""
    bridge = Bridge(service, origins, usage=UsageCounts(service) if has_console else None)
    server = uvicorn.Server(uvicorn.Config(bridge, http=LimitedHttp, lifespan="off", ws="none", log_config=None))
    listening = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    while not server.started:
        time.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        service.log.close()
        thread.join()
        assert bridge.close(60_000)
        service.close()
