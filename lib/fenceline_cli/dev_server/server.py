"""The local server: the deployed handlers behind one port of this machine.

Rule: the line with the URL is printed once requests are answered, and not before. A signal ends everything in good
order, long polls included. Workers live no longer than the process that started them, however that process ends.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import uvicorn

from fenceline.adapters.sqlite.directory import CannotOpen
from fenceline.memory import keep_freed
from fenceline.ports import Unavailable
from fenceline.settings import Settings
from fenceline_cli.dev_server.bridge import Bridge
from fenceline_cli.dev_server.http_limits import LimitedHttp
from fenceline_cli.dev_server.replicate_loop import ReplicateLoop
from fenceline_cli.dev_server.sweep_loop import SweepLoop
from fenceline_cli.dev_server.usage_counts import UsageCounts
from fenceline_cli.dev_server.web_origin import WebOrigins
from fenceline_cli.signal_handlers import on_signals
from fenceline_console import PREFIX
from fenceline_http import wiring

_BACKLOG = 2_048
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that clients close them
_GRACE_S = 1  # for answers under way when the server stops
_STOP_MS = 1_000  # for threads under way after that
_WORKERS_STOP_S = 2.5


class _CannotServe(Exception):
    """The reason why there is no server; the message is for its user."""


def serve(
    settings: Settings,
    host: str = "127.0.0.1",
    port: int = 8080,
    workers: int = 1,
    *,
    allowed_hosts: Sequence[str] = (),
    cors_origins: Sequence[str] = (),
    has_console: bool = True,
) -> int:
    """Serve until SIGTERM or SIGINT; print a line with the URL once ready, and one with the console's.

    Args:
        settings: The settings that wire the handlers.
        host: The address to listen at.
        port: 0 takes a free one.
        workers: How many processes share the port and the data directory.
        allowed_hosts, cors_origins: As in ``WebOrigins``.
        has_console: Whether the console is served, too.

    Returns:
        The exit code: 0 after a signal, 1 after one line on stderr. That line says which of the port, the directory
        and the origins can't be used, or that a worker ended by itself.
    """
    try:
        _serve(settings, _origins(host, allowed_hosts, cors_origins), port, workers, has_console)
    except _CannotServe as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def _serve(settings: Settings, origins: WebOrigins, port: int, workers: int, has_console: bool) -> None:
    host = origins.host
    with _listen(host, port) as listening:
        origins = origins.at(listening.getsockname()[0])
        shown = f"[{host}]" if ":" in host else host
        url = f"http://{shown}:{listening.getsockname()[1]}"
        line = f"fenceline is ready: {url}" + (f"\nconsole: {url}{PREFIX}" if has_console else "")
        os.environ.update(settings.to_env())
        try:
            if workers == 1:
                usage = UsageCounts(wiring.service()) if has_console else None
                bridge = Bridge(wiring.service(), origins, usage=usage)
                _run(wiring.service(), bridge, listening, lambda: print(line, flush=True))
            else:
                # Opened here first, so that a directory that can't be used is reported once, not by each worker.
                wiring.service_of(settings).close()
                with tempfile.TemporaryDirectory(prefix="fenceline-usage-") as shared:
                    _supervise(listening, origins, workers, line, shared if has_console else "")
        except CannotOpen as error:
            raise _CannotServe(f"the server cannot open the data directory: {error}") from error
        except Unavailable as error:
            raise _CannotServe(str(error)) from error


def _origins(host: str, allowed_hosts: Sequence[str], cors_origins: Sequence[str]) -> WebOrigins:
    try:
        return WebOrigins(host, allowed_hosts, cors_origins)
    except ValueError as error:
        raise _CannotServe(str(error)) from error


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        reason = os.strerror(error.errno).lower() if error.errno and error.errno > 0 else str(error)
        raise _CannotServe(
            f"the server cannot listen on {host}:{port}: {reason}; choose another --port (0: a free one) or --host"
        ) from error


# One process


def _run(
    service: wiring.Service,
    bridge: Bridge,
    listening: socket.socket,
    announce: Callable[[], None],
    watch: Callable[[Callable[[], None]], None] | None = None,
) -> None:
    """Serve on ``listening`` until a signal comes, or ``watch`` calls its argument."""
    keep_freed()
    config = uvicorn.Config(
        bridge,
        loop="uvloop",
        http=LimitedHttp,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=_BACKLOG,
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=_GRACE_S,
    )
    server = _Server(config, service, announce)
    if watch is not None:
        threading.Thread(target=watch, args=(server.stop,), daemon=True).start()
    sweeping = SweepLoop(service.log)
    sweeping.start()
    replicating = _replicate_loop(service)
    replicating.start()
    server.run([listening])
    has_ended = bridge.close(_STOP_MS)
    has_ended = replicating.stop(_STOP_MS) and has_ended
    if sweeping.stop(_STOP_MS) and has_ended:
        service.close()
    else:
        # A thread hangs in a store. Its writes are then as durable, or not, as if the machine had stopped.
        sys.stdout.flush()
        os._exit(0)


def _replicate_loop(service: wiring.Service) -> ReplicateLoop:
    settings = service.settings
    return ReplicateLoop(service.log, Path(settings.data_dir) if settings.is_embedded else None)


class _Server(uvicorn.Server):
    """The server of uvicorn, which announces that it answers, and ends long polls when it stops."""

    def __init__(self, config: uvicorn.Config, service: wiring.Service, announce: Callable[[], None]) -> None:
        super().__init__(config)
        self._service = service
        self._announce = announce

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._announce()

    def stop(self) -> None:
        self.should_exit = True
        # In a thread of its own, because a signal may come while this thread holds a lock that closing needs.
        threading.Thread(target=self._service.log.close, daemon=True).start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Stop at a signal, and exit in order: uvicorn would raise the signal again at the end."""
        with on_signals(self.stop):
            yield


# Several


def _supervise(listening: socket.socket, origins: WebOrigins, workers: int, line: str, shared: str) -> None:
    """Run workers on one port until a signal comes. They end when this process's pipe closes, however it ends."""
    stopping = threading.Event()
    alive_read, alive_write = os.pipe()
    ready_read, ready_write = os.pipe()
    inherited = (listening.fileno(), ready_write, alive_read)
    command = [
        sys.executable,
        "-m",
        __spec__.name,
        *map(str, inherited),
        origins.to_json(),
        shared,
        str(workers),
    ]
    with on_signals(stopping.set):
        children = [subprocess.Popen(command, pass_fds=inherited) for _ in range(workers)]
        os.close(ready_write)
        os.close(alive_read)
        os.set_blocking(ready_read, False)
        missing = workers
        while not stopping.wait(0.02):
            if missing:
                with contextlib.suppress(BlockingIOError):
                    missing -= len(os.read(ready_read, workers))
                if not missing:
                    print(line, flush=True)
            if any(child.poll() is not None for child in children):
                break
        os.close(alive_write)
        _reap(children)
    os.close(ready_read)
    if not stopping.is_set():
        raise _CannotServe("a worker process ended by itself, so the server stopped; the worker's own message is above")


def _reap(children: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + _WORKERS_STOP_S
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _work(origins: WebOrigins, shared: str, workers: int, listening_fd: int, ready_fd: int, alive_fd: int) -> None:
    """Serve as a worker, on an inherited socket, while the pipe ``alive_fd`` is open at its other end.

    Args:
        shared: The directory of the workers' counts; empty for no console.
    """

    def watch(stop: Callable[[], None]) -> None:
        os.read(alive_fd, 1)
        stop()

    with socket.socket(fileno=listening_fd) as listening:
        usage = UsageCounts(wiring.service(), workers, Path(shared)) if shared else None
        bridge = Bridge(wiring.service(), origins, usage=usage)
        _run(wiring.service(), bridge, listening, lambda: _announce(ready_fd), watch)


def _announce(ready_fd: int) -> None:
    os.write(ready_fd, b".")
    os.close(ready_fd)


if __name__ == "__main__":
    _work(WebOrigins.from_json(sys.argv[4]), sys.argv[5], int(sys.argv[6]), *map(int, sys.argv[1:4]))
