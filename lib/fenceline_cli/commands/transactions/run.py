"""``fenceline txn run``: its options, and its output at the end.

Not here: the loop itself (``loop``).
"""

from __future__ import annotations

from typing import Annotated

import typer

from fenceline import limits
from fenceline.errors import (
    FencelineError,
    InvalidRequestError,
    OffsetOutOfRangeError,
    OutcomeUnknownError,
    OwnerFencedError,
    ProducerFencedError,
    SessionSeveredError,
)
from fenceline_cli import units
from fenceline_cli.codec_alone import load_codec
from fenceline_cli.commands.transactions.batch_command import BatchError, Interrupted, Signals
from fenceline_cli.held_right import in_ms
from fenceline_cli.options import DEFAULT_URL, AsJson, InitialPosition, Url, connect, topic_names
from fenceline_cli.output import CommandError, describe, fail, print_json
from fenceline_cli.record_lines import Format

# To a run these say that a later one works for the group now, or has its transactional id.
TAKEN_OVER = (ProducerFencedError, OwnerFencedError, SessionSeveredError)

EXAMPLES = (
    "Example: fenceline txn run --in orders --out paid --group payments -- awk '/^paid/'\n\n"
    "Example: fenceline txn run --in orders --out totals --group totals --format json --once -- ./totals.py\n\n"
    "Example: fenceline txn run --in a --out b --group copy --format json -- cat   (copies every record)"
)


Command = Annotated[
    list[str], typer.Argument(metavar="-- COMMAND", help="What to run for each batch, after two dashes.")
]
Source = Annotated[str, typer.Option("--in", metavar="TOPIC", help="The topic to read.", autocompletion=topic_names)]
Target = Annotated[
    str, typer.Option("--out", metavar="TOPIC", help="The topic to write to.", autocompletion=topic_names)
]
TransactionalId = Annotated[
    str | None,
    typer.Option(
        metavar="ID", show_default="GROUP:OUT", help="The transactional id, which must not change between runs."
    ),
]
Once = Annotated[
    bool, typer.Option("--once", help="End at the present end of each partition; left out, wait for new records.")
]
Start = Annotated[
    InitialPosition, typer.Option("--from", help="Where the group begins in a partition that it has no offset for.")
]
LineFormat = Annotated[
    Format, typer.Option("--format", help="What a line is, in and out. A tab ends the key in key-value.")
]
RecordsMax = Annotated[int, typer.Option("--batch", metavar="N", min=1, help="At most so many records are one batch.")]
Timeout = Annotated[
    float,
    typer.Option(
        metavar="DURATION",
        parser=units.seconds,
        show_default="1m",
        help="How long a transaction may be open, up to 15m: only as long as output is being written.",
    ),
]


def run(
    command: Command,
    source: Source,
    target: Target,
    group: Annotated[str, typer.Option(metavar="NAME", help="The group whose offsets say what was processed.")],
    transactional_id: TransactionalId = None,
    once: Once = False,
    start: Start = "earliest",
    format_: LineFormat = "value",
    records_max: RecordsMax = 1_000,
    timeout: Timeout = limits.TRANSACTION_TIMEOUT_MS_DEFAULT / 1_000,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Process a topic by a command, exactly once.

    The command is started once for each batch. Its stdin has a line for each record, and then ends. Each line that it
    prints is a record for --out, in the partition of its key. If it ends with 0, its output and the group's offsets are
    committed in one transaction. A batch without output commits the offsets alone. If it ends with another code, the
    batch is aborted, and that code is this command's, too.

    After an error, or a crash at any point, the same call goes on where the group is. Nothing is repeated in --out, and
    nothing is left out. What else a command changes, it may change again. Only committed records are read. Partitions
    that are added to --in are read, too, within a minute.

    With --format value a record's key, headers and time are left out, and key-value adds the key. Both pass bytes as
    they are, and refuse a record that no line can carry: a tombstone, or a line break in it. The format json carries
    every record, as 'fenceline consume --format json' and 'fenceline produce --json-lines' do: in base64 where it is
    not UTF-8.

    One run at a time works for a group. A later one takes its partitions and its transactional id over, and the earlier
    one ends with an error. Ctrl-C and SIGTERM end the command, abort an open transaction, and end this command. After a
    kill -9 the running command goes on to its end, but what it prints is lost. The next call runs its batch anew.
    """
    if source == target and not once:
        raise CommandError("it would read what it writes, without an end; give another --out, or --once")
    if transactional_id is None:
        transactional_id = _default_id(group, target)
    load_codec()
    from fenceline_cli.commands.transactions.loop import Job, JobRun, Progress  # only here: help needs no records

    job = Job(source, target, group, transactional_id, format_, command, start, records_max, in_ms(timeout), once)
    done = Progress()
    with Signals() as signals:
        try:
            with connect(url) as client:
                JobRun(client, job, done, signals).go()
        except Interrupted as stop:
            rest = "; one more may have been, since its answer did not come" if done.is_committing else ""
            typer.echo(f"interrupted: {done}{rest}", err=True)
            raise typer.Exit(128 + stop.number) from None
        except BatchError as error:
            problem = {"code": "COMMAND_FAILED", "exit_code": error.exit_code}
            fail(f"{error}, so its batch was aborted; {done} before", exit_code=error.exit_code, problem=problem)
        except (FencelineError, CommandError) as error:
            cause = _cause(error)
            before = f"; {done} before" if done.transactions else ""
            raise CommandError(f"{_reason(cause, source, group)}{before}") from cause
    if as_json:
        counts = {"transactions": done.transactions, "read": done.read, "written": done.written}
        print_json({"transactional_id": transactional_id, **counts})
    else:
        typer.echo(str(done))


def _default_id(group: str, target: str) -> str:
    """Return the same id for each run of a group with this output. A topic's name has no colon."""
    from fenceline.model.transaction import check_transactional_id

    try:
        return check_transactional_id(f"{group}:{target}")
    except InvalidRequestError as error:
        raise CommandError(f"the group's name makes no transactional id; give --transactional-id: {group}") from error


def _cause(error: Exception) -> Exception:
    """Return the error for which a transaction was aborted, or ``error`` itself."""
    from fenceline.client.transactions.errors import TransactionAbortedError

    cause = error.__cause__ if isinstance(error, TransactionAbortedError) else None
    return cause if isinstance(cause, FencelineError) else error


def _reason(error: Exception, source: str, group: str) -> str:
    """Return the reason of an end, and what to do unless the same call again is right."""
    if not isinstance(error, FencelineError):
        return str(error)
    if isinstance(error, TAKEN_OVER):
        advice = "a later run has taken over, or --timeout was over"
    elif isinstance(error, OffsetOutOfRangeError):
        advice = f"go on at the first record that is left by 'fenceline subscription seek {source} {group} earliest'"
    elif isinstance(error, OutcomeUnknownError):
        advice = "it may have been committed; either way nothing is repeated"
    else:
        return describe(error)
    return f"{error.code}: {error.detail} ({advice})"
