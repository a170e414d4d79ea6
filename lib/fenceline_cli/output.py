"""The output of commands: results on stdout, each error as one line on stderr.

Rule: on a terminal results are tables; through a pipe they are plain lines with tabs, and ``--json`` is for programs.
An error states its code, what happened and what to do, with ``--json`` as one JSON object. The exit code says what to
do next. Ctrl-C ends a command without a message, except ``produce`` and ``failover``, which say how far they came. A
pipe that its reader closes is no error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from io import TextIOWrapper
from typing import TYPE_CHECKING, Any, NoReturn

import typer
from typer.core import TyperGroup

from fenceline.errors import FencelineError, NextStep, printable

if TYPE_CHECKING:
    from rich.table import Table

EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_UNAVAILABLE = 3
EXIT_UNKNOWN = 4
EXIT_CORRUPT = 5
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as in a shell
EXIT_TERMINATED = 143  # 128 + SIGTERM

EXIT_CODES = """\b
Exit codes, each with its error's next_step:

\b
  0    done; also if the reader of the output closed its pipe.
  1    refused, or failed: the same command will fail again (fix).
  2    misused: the command line is wrong, and nothing was done.
  3    unavailable: nothing was done; try again (retry).
  4    outcome unknown: it may have been done; look before you try again (check).
  5    corrupt: stored data is damaged (stop).
  75   'lock' did not get its lock in time, or lost it.
  130  ended by Ctrl-C; 143 by SIGTERM.

'lock' and 'txn run' pass on the exit code of the command that they run; it is 127 if that cannot be run."""

_EXIT_CODE_OF: Mapping[NextStep, int] = {
    "fix": EXIT_FAILED,
    "retry": EXIT_UNAVAILABLE,
    "check": EXIT_UNKNOWN,
    "stop": EXIT_CORRUPT,
}
_NEXT_STEPS = {
    "fix": "the same command will fail again",
    "retry": "nothing was done; try again",
    "check": "it may have been done; look before you try again",
    "stop": "stored data is damaged; run 'fenceline verify --data DIR'",
}
# For codes that call for more than their next step.
_NEXT_STEPS_BY_CODE = {
    "PRODUCER_BUSY": "the other producer may end by itself; try again later",
    "RESOURCE_OWNED": "its owner may end by itself; try again later, wait, or sever the owner with --generation",
    "PRODUCER_FENCED": "'fenceline producers list TOPIC' shows the producers that may write there",
    "OFFSET_MISMATCH": "look what was appended in between, and go on from there",
    "SESSION_SEVERED": "another session has taken what this one held; stop, or start again under a new session",
    "SESSION_EXPIRED": "the lease is over, and another session may hold it now; start again",
    "OWNER_FENCED": "another session owns it; 'fenceline own RESOURCE --show' shows which",
}


# Which extra of the package brings a module that some commands need.
_EXTRA_OF = {
    **dict.fromkeys(("uvicorn", "uvloop", "httptools"), "server"),
    **dict.fromkeys(("boto3", "botocore", "obstore"), "aws"),
}

# typer's own click has this class, and typer does not export it.
_UsageError: Any = typer.BadParameter.__bases__[0]


class CommandError(Exception):
    """A command that cannot do what it was given; the message is the line to print, and says what to do.

    Args:
        extra: Further members of the ``--json`` object.
    """

    def __init__(self, line: str, **extra: Any) -> None:
        super().__init__(line)
        self.extra = extra


class RegionError(CommandError):
    """An answer of one of several regions' services; the line names the region, and the option for its URL."""

    def __init__(self, error: FencelineError, region: str, option: str) -> None:
        what_to_do = _what_to_do(error)
        if _is_without_server(error):
            what_to_do = f"start the server of region {region}, or name another with {option} {region}=URL"
        detail = f"region {region}: {_detail(error)}"
        super().__init__(f"{error.code}: {detail} ({what_to_do})", detail=detail, what_to_do=what_to_do, region=region)


class RegionSilentError(RegionError):
    """The service of a region did not answer, or answered that it was not able to: trying again may help."""


# True if this command was given --json. Set before its options are parsed, because parsing may fail.
_is_json: ContextVar[bool] = ContextVar("is_json", default=False)


class ErrorsAsLines(TyperGroup):
    """A group of commands that prints each error as one line."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        own = args[: args.index("--")] if "--" in args else args  # after "--": another program's command
        _is_json.set("--json" in own)
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            _fail_misused(error, ctx)
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit from None

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except FencelineError as error:
            fail(describe(error), exit_code=exit_code_of(error), problem=_problem(error))
        except CommandError as error:
            cause = error.__cause__ if isinstance(error.__cause__, FencelineError) else None
            problem = {} if cause is None else _problem(cause)
            fail(str(error), exit_code=exit_code_of(cause), problem={**problem, "detail": str(error), **error.extra})
        except _UsageError as error:
            _fail_misused(error, ctx)
        except BrokenPipeError:
            discard_stdout()
            raise typer.Exit from None
        except OSError as error:
            fail(f"{error.strerror or error}: {error.filename}" if error.filename else str(error))
        except ModuleNotFoundError as error:
            extra = _EXTRA_OF.get((error.name or "").partition(".")[0])
            if extra is None:
                raise
            fail(f'this command needs {error.name}, which is not installed; run pip install "fenceline-log[{extra}]"')
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None


def discard_stdout() -> None:
    """Discard the output that the interpreter flushes at its end, which would go to a closed pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def exit_code_of(error: FencelineError | None) -> int:
    """Return the exit code for an error's next step; ``None`` is an error that no service answered."""
    return EXIT_FAILED if error is None else _EXIT_CODE_OF[error.next_step]


def fail(line: str, *, exit_code: int = EXIT_FAILED, problem: Mapping[str, Any] | None = None) -> NoReturn:
    """Print ``line`` as this command's error, or with ``--json`` its problem document, and end it."""
    line = printable(" ".join(line.split()))
    if _is_json.get():
        code = "USAGE" if exit_code == EXIT_MISUSED else "COMMAND_FAILED"
        members = {"code": code, "next_step": "fix", "status": None, "detail": line, **(problem or {})}
        typer.echo(_json_text(members, sys.stderr), err=True)
    else:
        typer.echo(f"error: {line}", err=True)
    raise typer.Exit(exit_code)


def describe(error: FencelineError) -> str:
    """Return one line: the code, what happened, and what to do."""
    return f"{error.code}: {_detail(error)} ({_what_to_do(error)})"


def _detail(error: FencelineError) -> str:
    # After its ";" the client advises programs; the command line has advice of its own.
    return error.detail.partition("; ")[0] if _is_without_server(error) else error.detail


def _problem(error: FencelineError) -> dict[str, Any]:
    return {**error.problem(), "what_to_do": _what_to_do(error)}


def _what_to_do(error: FencelineError) -> str:
    if _is_without_server(error):
        return "start a server with 'fenceline dev --data DIR', or name another with --url or FENCELINE_URL"
    return _NEXT_STEPS_BY_CODE.get(error.code, _NEXT_STEPS[error.next_step])


def print_json(document: Any) -> None:
    typer.echo(_json_text(document, sys.stdout))


def _json_text(document: Any, stream: Any) -> str:
    """Return JSON as ``stream`` can carry it: escaped where its encoding is not UTF-8."""
    is_utf8 = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "").replace("_", "") == "utf8"
    return json.dumps(document, ensure_ascii=not is_utf8)


@contextmanager
def warnings_shown(name: str) -> Iterator[None]:
    """Print what the library logs as ``name``, from warnings on, as lines on stderr while the block runs."""
    import logging  # which a command that needs no client does not load

    class Lines(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            typer.echo(f"warning: {record.getMessage()}", err=True)

    handler, log = Lines(logging.WARNING), logging.getLogger(name)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


def carry_any_text() -> None:
    """Let stdout and stderr escape a character that their encoding lacks, instead of ending the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def cell_text(cell: object) -> str:
    """Return a cell's text in one line: tabs, line ends and other control characters escaped as in Python."""
    text = str(cell)
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def utc(ms: int) -> str:
    """Return a time as a column shows it."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def print_rows(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table on a terminal, else a line of column names and a line for each row, with tabs."""
    if not sys.stdout.isatty():
        for row in [columns, *rows]:
            typer.echo("\t".join(map(cell_text, row)))
        return
    from rich.console import Console  # only here: loading it takes longer than most commands

    Console().print(table_of(columns, rows, title=title))


def table_of(columns: Sequence[str], rows: Sequence[Sequence[object]], *, title: str | None = None) -> Table:
    """Return a table for a terminal."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        is_number = bool(rows) and all(isinstance(row[n], int) for row in rows)
        # Folded, because a name that is cut short can be given to no other command.
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        # As text: in a string rich would take what is in brackets for a style.
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else Text(cell_text(cell)) for cell in row))
    return table


def _fail_misused(error: Any, ctx: Any) -> NoReturn:
    message = error.format_message().rstrip(".")
    if not message or "\n" in message:  # a group without a command, whose help was shown
        raise error
    path = error.ctx.command_path if error.ctx else ctx.command_path
    fail(f"{message} (see '{path} --help')", exit_code=EXIT_MISUSED)


def _is_without_server(error: FencelineError) -> bool:
    """Return True if no process listens at the service's address, rather than a proxy or a name being to blame."""
    import httpx  # only here: loaded already by a command that asks a service

    is_unconnected = isinstance(error.__cause__, httpx.ConnectError | httpx.ConnectTimeout)
    return is_unconnected and error.detail.startswith("no fenceline answers at ")
