"""A local server as a child process, for programs that start a server of their own: the demo and the benchmark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

READY_PREFIX = "http://"
_END_S = 60  # before it is killed


class ServerProcess:
    """A process of ``fenceline dev`` on this machine; a context manager that ends it.

    Args:
        directory: The directory of its stores; ``None`` if ``options`` name the stores.
        port: 0 takes a free one.
        options: Further options of ``fenceline dev``.
        messages: The file for the server's messages about its work; left out, this process's stderr.
        env: Variables in place of this process's own.

    Raises:
        RuntimeError: The server did not start; the message is what it printed.
    """

    def __init__(
        self,
        directory: Path | None,
        *,
        workers: int = 1,
        port: int = 0,
        options: Sequence[str] = (),
        messages: IO[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        stores = [] if directory is None else ["--data", str(directory)]
        self._command = [sys.executable, "-m", "fenceline_cli.main", "dev", *stores]
        self._command += ["--port", str(port), "--workers", str(workers), *options]
        self._messages = messages
        self._env = env or {}
        self.url = ""

    def __enter__(self) -> ServerProcess:
        self._process = subprocess.Popen(
            self._command,
            env={**os.environ, **self._env},
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if READY_PREFIX not in line:
            self._process.wait()
            self._process.stdout.close()
            raise RuntimeError(f"the server did not start: {line.strip() or 'see its message above'}")
        self.url = READY_PREFIX + line.split(READY_PREFIX, 1)[1].split()[0]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill(self) -> None:
        """End the server in the middle of its work, as ``kill -9`` does. Entered again, it comes back."""
        self._process.kill()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def send(self, sent: signal.Signals) -> None:
        """Send the server a signal, as one that stops it or lets it go on."""
        self._process.send_signal(sent)

    def cpu_seconds(self) -> float:
        """Return the CPU time that the server has used, all its threads together (Linux only; else 0)."""
        try:
            fields = Path(f"/proc/{self._process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except FileNotFoundError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
