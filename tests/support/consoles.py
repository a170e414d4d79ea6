"""Commands that serve a console, as processes of their own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_END_S = 60


@contextmanager
def started(*arguments: object, lines: int = 1) -> Iterator[Sequence[str]]:
    """Run a command, and lend the first lines that it prints."""
    command = [sys.executable, "-m", "fenceline_cli.main", *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield [process.stdout.readline().rstrip("\n") for _ in range(lines)]
        finally:
            process.terminate()
            process.wait(_END_S)


def origin_of(line: str) -> str:
    """Return the URL of a server, from the line with its console's address."""
    return line.removeprefix("console: ").removesuffix("/console")


@contextmanager
def console(*arguments: object) -> Iterator[str]:
    """Serve ``fenceline console`` with these options, and lend its URL."""
    with started("console", "--port", 0, *arguments) as [line]:
        yield origin_of(line)
