"""A bar on stderr over things that are done one by one; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def counted(things: Sequence[T], what: str) -> Iterator[T]:
    """Yield the things, and show how many were done."""
    if not things or not sys.stderr.isatty():
        yield from things
        return
    from rich.console import Console  # only here: loading it takes longer than most commands
    from rich.progress import track

    yield from track(things, what, console=Console(stderr=True), transient=True)
