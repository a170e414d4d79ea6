"""Bars on stderr for steps that are done one by one; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

T = TypeVar("T")


def counted(things: Sequence[T], what: str) -> Iterator[T]:
    """Yield the things, and show how many were done."""
    if not things or not sys.stderr.isatty():
        yield from things
        return
    from rich.console import Console  # only here: loading it takes longer than most commands
    from rich.progress import track

    yield from track(things, what, console=Console(stderr=True), transient=True)


@contextmanager
def bar(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show a bar, and lend what moves it on by a number of steps."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    with progress_bar() as progress:
        task = progress.add_task(what, total=total)
        yield lambda steps: progress.advance(task, steps)


def progress_bar(counts: str = "") -> Progress:
    """Return a bar that shows the task, how much of it is done, and for how long it has gone on.

    Args:
        counts: A template of rich's fields in the place of "done/total".
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = TextColumn(counts) if counts else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), shown, TimeElapsedColumn())
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
