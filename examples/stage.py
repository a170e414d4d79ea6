"""The stage of the examples with several processes: a server, and children that speak JSON lines.

Rule: every process that a stage started ends with it, even one that was stopped by a signal.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from fenceline_cli.dev_server.process import ServerProcess

Event = dict[str, Any]

# Through a pipe, lines are not wrapped at the terminal's width.
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)


class ComparisonError(Exception):
    """A difference between the log and what was promised."""


def check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ComparisonError(otherwise)


def show_result(what: str, result: str) -> None:
    console.print(f"[green]✓[/] {what}: {result}")


@contextmanager
def serving(url: str | None) -> Iterator[str]:
    """Yield ``url``, or that of a server on a fresh directory, which ends and is removed with the stage."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="fenceline-") as directory, ServerProcess(Path(directory)) as server:
        yield server.url


class Child:
    """A process of this program: commands go to its stdin, events come from its stdout, both as JSON lines.

    Args:
        on_event: Called with each event, in a thread for this child; at last with ``{"event": "ended"}``.
    """

    def __init__(self, program: str, arguments: list[str], on_event: Callable[[Child, Event], None]) -> None:
        self._on_event = on_event
        self._process = subprocess.Popen(
            [sys.executable, program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def send(self, **command: Any) -> None:
        """Send the child a command; a child that has ended does not get it."""
        assert self._process.stdin is not None
        with self._lock, suppress(BrokenPipeError, ValueError):
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()

    def kill(self) -> None:
        """End the child in the middle of its work, as ``kill -9`` does."""
        self._process.kill()
        self._end_input()
        self._thread.join()

    def stop(self) -> None:
        """Stop the child by SIGSTOP: until it is continued it does nothing, and does not know that time goes on."""
        self._process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> int:
        """Ask the child to end, and return its exit code."""
        self.go_on()
        self._end_input()
        try:
            code = self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._thread.join()
        return code

    def _end_input(self) -> None:
        assert self._process.stdin is not None
        with self._lock, suppress(BrokenPipeError):  # ended with input unread
            self._process.stdin.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._on_event(self, json.loads(line))
        self._process.wait()
        self._on_event(self, {"event": "ended"})


def say(**event: Any) -> None:
    """Send the parent an event, as a child."""
    with _SAYING:
        print(json.dumps(event), flush=True)


def commands() -> Iterator[Event]:
    """Yield the parent's commands, as a child, until the parent closes the pipe."""
    for line in sys.stdin:
        yield json.loads(line)


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        check(time.monotonic() < deadline, f"this did not happen within {seconds:.0f} s: {what}")
        time.sleep(0.005)


_SAYING = threading.Lock()
