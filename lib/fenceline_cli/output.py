"""What commands print: results on stdout, each error as one line on stderr.

The rule: on a terminal results are tables; through a pipe they are plain lines with tabs, and ``--json`` is for
programs. An error says its code, what happened and what to do, and the exit code is 1. Ctrl-C and a closed pipe end
without a word, but for ``produce``, which says how far it came.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NoReturn

import httpx
import typer
from rich.console import Console
from rich.table import Table
from typer.core import TyperGroup

from fenceline.errors import FencelineError

EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as a shell tells it

_NEXT_STEPS = {
    "fix": "the same command will fail again",
    "retry": "nothing was done; try again",
    "check": "it may have been done; look before you try again",
    "stop": "stored data is damaged; run 'fenceline verify --data DIR'",
}
# Where the code says more than its next step.
_NEXT_STEPS_BY_CODE = {
    "PRODUCER_BUSY": "it may end by itself; try again later",
    "RESOURCE_OWNED": "it may end by itself; try again later, wait, or sever its owner with --generation",
    "PRODUCER_FENCED": "see who may write there by 'fenceline producers list TOPIC'",
    "OFFSET_MISMATCH": "look what was appended in between, and go on from there",
    "SESSION_SEVERED": "somebody else has taken it",
    "SESSION_EXPIRED": "it was held no longer; somebody else may have it",
    "OWNER_FENCED": "somebody else owns it",
}


_UsageError: Any = typer.BadParameter.__bases__[0]  # typer carries a click of its own, and does not export this


class CommandError(Exception):
    """What a command was given does not do; the message is the line to print, and says what to do."""


class ErrorsAsLines(TyperGroup):
    """A group of commands whose errors come out as one line each."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            _fail_misused(error, ctx)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FencelineError as error:
            fail(describe(error))
        except CommandError as error:
            fail(str(error))
        except _UsageError as error:
            _fail_misused(error, ctx)
        except BrokenPipeError:
            # The interpreter flushes stdout once more when it ends, which must not complain either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(EXIT_FAILED) from None
        except OSError as error:
            fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


def fail(line: str, *, exit_code: int = EXIT_FAILED) -> NoReturn:
    """Print ``line`` as this command's error, and end it."""
    typer.echo(f"error: {' '.join(line.split())}", err=True)
    raise typer.Exit(exit_code)


def describe(error: FencelineError) -> str:
    """Return one line: the code, what happened, and what to do."""
    detail, step = error.detail, _NEXT_STEPS_BY_CODE.get(error.code, _NEXT_STEPS[error.next_step])
    if _is_without_server(error):
        detail = detail.partition("; ")[0]  # behind it stands what to do, as a library says it
        step = "start a server with 'fenceline dev --data DIR', or name another with --url or FENCELINE_URL"
    return f"{error.code}: {detail} ({step})"


def print_json(document: Any) -> None:
    typer.echo(json.dumps(document, ensure_ascii=False))


def utc(ms: int) -> str:
    """Return a time as a column shows it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table on a terminal, else a line of column names and a line for each row, with tabs."""
    console = Console()
    if not console.is_terminal:
        for row in [columns, *rows]:
            typer.echo("\t".join(map(str, row)))
        return
    table = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[n], int) for row in rows)
        table.add_column(column, justify="right" if is_number else "left")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)


def _fail_misused(error: Any, ctx: Any) -> NoReturn:
    message = error.format_message().rstrip(".")
    if not message or "\n" in message:  # A group without a command: its help was shown.
        raise error
    path = error.ctx.command_path if error.ctx else ctx.command_path
    fail(f"{message} (see '{path} --help')", exit_code=EXIT_MISUSED)


def _is_without_server(error: FencelineError) -> bool:
    cause = error.__cause__
    return isinstance(cause, httpx.ConnectError | httpx.ConnectTimeout)
