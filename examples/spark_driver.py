"""A driver of Spark whose requests pass a gate, which kills it at the moment that was chosen.

Rule: the moment is a request, and never a time. The gate holds that request until the driver is dead, so that each run
of the demo is killed at the same points.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

JOB = Path(__file__).with_name("spark_counting_job.py")
_HOP_BY_HOP = {"connection", "content-length", "date", "keep-alive", "server", "transfer-encoding"}
_ANSWER_S = 120


@dataclass(frozen=True)
class Moment:
    """The request at which a driver dies.

    Args:
        told: What the driver is doing at that moment.
        request: The method and the path, as a regular expression.
        decided: How many batches were decided before (``/v1/transactions/end``).
        is_answered: The service has done what the request asks, and the driver never hears of it.
    """

    told: str
    request: str
    decided: int
    is_answered: bool = False

    def is_now(self, request: str, decided: int, *, is_answered: bool) -> bool:
        is_due = (decided, is_answered) == (self.decided, self.is_answered)
        return is_due and re.match(self.request, request) is not None


class Driver:
    """One process of the job, with its JVM and its Python workers, behind a gate of its own.

    Args:
        number: Which start this is; the job writes it into each record.
        service: The URL of the service.
        dies: When it is killed; ``None`` lets it end.
        on_batch: Called with what the job prints of each batch.
    """

    def __init__(
        self,
        number: int,
        service: str,
        directory: Path,
        dies: Moment | None,
        on_batch: Callable[[dict[str, Any]], None],
    ) -> None:
        self.number = number
        self.was_killed = False
        self.decided = 0  # batches, of which the last one's driver may not have heard
        self._dies = dies
        self._lock = threading.Lock()
        self._gate = ThreadingHTTPServer(("127.0.0.1", 0), _gate_of(self, urlsplit(service)))
        self._gate.daemon_threads = True
        threading.Thread(target=self._gate.serve_forever, daemon=True).start()
        self._on_batch = on_batch
        self.log = directory / f"driver-{number}.log"
        endpoint = f"http://127.0.0.1:{self._gate.server_address[1]}"
        with self.log.open("w") as log:
            # A session of its own, so that all of its processes can be found, those too that leave its group.
            self._process = subprocess.Popen(
                [sys.executable, str(JOB), endpoint, str((directory / "checkpoint").resolve()), str(number)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def run(self) -> int:
        """Wait until the driver has ended or was killed, and return its exit code."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                if line.startswith("{") and line.endswith("}\n"):  # a killed process may leave half a line
                    self._on_batch(json.loads(line))
        code = self._process.wait()
        self.close()
        return code

    def close(self) -> None:
        """Kill the processes that still run, and let no further request through."""
        self._kill()
        self._gate.shutdown()
        self._gate.server_close()

    def passes(self, request: str, *, is_answered: bool) -> bool:
        """Return True if a request, or its answer, may go on; kill the driver if this is the moment."""
        with self._lock:
            if self.was_killed:
                return False
            if self._dies and self._dies.is_now(request, self.decided, is_answered=is_answered):
                self.was_killed = True
                self._kill()
            self.decided += is_answered and request == "POST /v1/transactions/end"
            return not self.was_killed

    def _kill(self) -> None:
        """Kill every process of the driver's session, as ``kill -9`` does."""
        for pid in _processes_of(self._process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # it ended by itself


def _processes_of(session: int) -> list[int]:
    """Return the processes of a session, the first one first."""
    if Path("/proc/self").exists():
        running = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    else:
        running = [int(pid) for pid in subprocess.check_output(["ps", "-A", "-o", "pid="], text=True).split()]
    return sorted((pid for pid in running if _session_of(pid) == session), key=lambda pid: pid != session)


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _gate_of(driver: Driver, service: Any) -> type[BaseHTTPRequestHandler]:
    """Return the handler that passes each request of ``driver`` to ``service``, and its answer back."""

    class Gate(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            request = f"{self.command} {urlsplit(self.path).path}"
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            self.close_connection = True  # unless the answer gets through
            if not driver.passes(request, is_answered=False):
                return
            upstream = http.client.HTTPConnection(service.hostname, service.port, timeout=_ANSWER_S)
            try:
                upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "connection":
                        upstream.putheader(name, value)
                upstream.endheaders(body or None)
                answer = upstream.getresponse()
                content = answer.read()
            finally:
                upstream.close()
            if not driver.passes(request, is_answered=True):
                return
            self.close_connection = False
            self.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in _HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            """Print nothing for each request."""

    return Gate
