"""The progress of ``fenceline produce``: a bar on a terminal, and a line while nothing is stored.

Rule: all of it goes to stderr, and the watch only looks, except that it calls ``on_failure`` when a record could not be
stored, because a thread that waits for input would not notice.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import typer

from fenceline_cli.progress import progress_bar

if TYPE_CHECKING:
    from rich.progress import Progress

    from fenceline.client import Producer

_LOOK_S = 0.2
_COUNTS = "{task.fields[count]:,} records, {task.fields[rate]:,.0f}/s"
_PATIENCE_LOOKS = 15  # without an acknowledgement, before the line is printed


class Watch:
    """A context manager whose thread looks at ``producer`` while it is entered.

    Attributes:
        given: The number of records that the producer was given so far.
    """

    def __init__(
        self,
        producer: Producer,
        url: str,
        *,
        file: Path | None,
        prints: bool = False,
        bytes_read: Callable[[], int],
        on_failure: Callable[[], None],
    ) -> None:
        self.given = 0
        self._producer = producer
        self._url = url
        self._bytes_read = bytes_read
        self._on_failure = on_failure
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fenceline-watch", daemon=True)
        self._progress: Progress | None = None
        # A bar would be in the way of a person who types the lines, and of lines that are printed to the same terminal.
        is_in_the_way = (file is None and sys.stdin.isatty()) or (prints and sys.stdout.isatty())
        if sys.stderr.isatty() and not is_in_the_way:
            self._progress = progress_bar(_COUNTS)
            total = None if file is None else file.stat().st_size or None  # `None` for a pipe, which has no size
            self._task = self._progress.add_task("producing", total=total, count=0, rate=0.0)

    def __enter__(self) -> Watch:
        if self._progress is not None:
            self._progress.start()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        if self._progress is not None:
            self._progress.stop()

    def _run(self) -> None:
        acknowledged, looks, is_told = 0, 0, False
        # Looks are counted and not seconds, because a process that was stopped meanwhile did not wait for the server.
        while not self._is_over.wait(_LOOK_S):
            before, acknowledged = acknowledged, self._producer.acknowledged
            self._show(acknowledged)
            if self._producer.failure is not None:
                self._on_failure()
                return
            is_waiting = acknowledged == before and acknowledged < self.given
            looks = looks + 1 if is_waiting else 0
            is_told = is_told and is_waiting
            if is_waiting and not is_told and (why := self._why(looks)) is not None:
                is_told = True
                self._tell(f"waiting for the server: {why}; the command tries again until Ctrl-C ends it")

    def _why(self, looks: int) -> str | None:
        """Return why nothing is stored: the server's error at once, or its silence after a while."""
        trouble = self._producer.trouble
        if trouble is not None and trouble.__cause__ is None:
            return f"{trouble.code}: {trouble.detail}"
        return f"it does not answer at {self._url}" if looks >= _PATIENCE_LOOKS else None

    def _tell(self, line: str) -> None:
        if self._progress is None:
            typer.echo(line, err=True)
        else:
            self._progress.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _show(self, acknowledged: int) -> None:
        if self._progress is None:
            return
        rate = acknowledged / max(self._progress.tasks[0].elapsed or 0, 0.001)
        self._progress.update(self._task, completed=self._bytes_read(), count=acknowledged, rate=rate)
