"""The server of the console's proxy: on this machine alone, until a signal ends it."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import webbrowser
from collections.abc import Iterator

import uvicorn

from fenceline_cli.console_proxy.app import ConsoleProxy
from fenceline_cli.dev_server.http_limits import LimitedHttp
from fenceline_cli.output import CommandError
from fenceline_cli.signal_handlers import on_signals
from fenceline_console import PREFIX

HOST = "127.0.0.1"


def listen(port: int) -> socket.socket:
    """Return a socket on this machine's own address.

    Raises:
        CommandError: The port is taken, or may not be used.
    """
    try:
        return socket.create_server((HOST, port))
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno else str(error)
        raise CommandError(
            f"the console cannot listen on {HOST}:{port}: {reason}; choose another --port (0: a free one)"
        ) from error


def config_of(proxy: ConsoleProxy) -> uvicorn.Config:
    """Return how the proxy is served."""
    logging.getLogger("uvicorn.error").addHandler(logging.NullHandler())  # the page says that an answer broke off
    return uvicorn.Config(
        proxy,
        http=LimitedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,  # the page counts leases down by the service's clock, and not by this machine's
        proxy_headers=False,
        timeout_graceful_shutdown=1,
    )


def serve(proxy: ConsoleProxy, listening: socket.socket, *, shown: str, is_opened: bool) -> None:
    """Serve until SIGTERM or SIGINT; print the console's address, with ``shown``, once requests are answered."""
    url = f"http://{HOST}:{listening.getsockname()[1]}{PREFIX}"
    _Server(config_of(proxy), proxy, url, shown, is_opened=is_opened).run([listening])


class _Server(uvicorn.Server):
    """The server of uvicorn, which announces that it answers, and closes the proxy's connections at its end."""

    def __init__(self, config: uvicorn.Config, proxy: ConsoleProxy, url: str, shown: str, *, is_opened: bool) -> None:
        super().__init__(config)
        self._proxy = proxy
        self._url = url
        self._shown = shown
        self._is_opened = is_opened

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    def _announce(self) -> None:
        print(f"console: {self._url}", self._shown, sep="\n", flush=True)
        if self._is_opened and not webbrowser.open(self._url):
            print("no browser could be opened; open that address yourself", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        await self._proxy.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and exit in order: uvicorn would raise the signal again at the end."""
        with on_signals(self._stop):
            yield

    def _stop(self) -> None:
        self.should_exit = True
