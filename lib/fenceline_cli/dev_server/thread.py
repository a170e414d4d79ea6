"""The local server in a thread of this process, for tests of programs that make their own client.

Rule: requests come through a socket and the same bridge as in ``fenceline dev``.

Not here: sweeping.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType

import uvicorn

from fenceline.service.log import Log
from fenceline_cli.dev_server.bridge import Bridge

_STOP_MS = 1_000  # for requests under way


class ServerThread:
    """A server of ``bridge`` on a free port of this machine; a context manager that ends it.

    Args:
        bridge: The application that answers.
        log: The log behind the bridge. Both are closed with the server, so that it waits for no long poll.
    """

    def __init__(self, bridge: Bridge, log: Log) -> None:
        self._bridge = bridge
        self._log = log
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}"
        config = uvicorn.Config(
            bridge,
            loop="uvloop",
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._listening],), daemon=True)

    def __enter__(self) -> ServerThread:
        # The socket listens already: a request that comes before the thread runs waits for its answer.
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.should_exit = True
        self._log.close()
        self._thread.join()
        self._listening.close()
        self._bridge.close(_STOP_MS)
