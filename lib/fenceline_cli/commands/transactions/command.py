"""``fenceline txn``: list, describe and end transactions, and show or forget the version that an application committed.

Not here: ``fenceline txn run``; see ``run``.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sized
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fenceline.answers import to_json
from fenceline_cli import units
from fenceline_cli.commands.transactions import run
from fenceline_cli.commands.transactions.stuck_transactions import Hanging, find_hanging
from fenceline_cli.options import (
    DEFAULT_URL,
    AsJson,
    IsSure,
    TopicName,
    Url,
    confirm,
    connect,
    partitions_of,
    topic_names,
)
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.transaction import OnceMark, OpenTransaction, ShownProducerState, Transaction


app = typer.Typer(
    name="txn",
    no_args_is_help=True,
    help="List, describe and end transactions, and run a command in transactions.\n\n"
    "Readers with read_committed wait at last_stable_offset ('fenceline offsets') until the transaction that is open "
    "there ends. 'open' shows it with its transactional id, and 'fence' ends it at once. If it hangs, 'find-hanging' "
    "shows it, too, and 'abort' ends it.\n\n"
    "With AWS credentials a transactional id belongs to the role or user that made it. 'list --operator' and "
    "'fence --operator' reach the ids of others, and 'find-hanging' and 'abort' always do. They need leave for "
    "/v1/operator/*, which operators have.",
    epilog="Example: fenceline txn list --state Ongoing\n\n"
    "Example: fenceline txn run --in orders --out totals --group totals -- ./totals.py",
)

State = Literal["Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"]
AsOperator = Annotated[
    bool,
    typer.Option(
        "--operator", help="Reach the ids of all roles and users, as an operator; it needs leave for /v1/operator/*."
    ),
]
TransactionalId = Annotated[str, typer.Argument(metavar="ID", help="The transactional id.")]

COLUMNS = (
    "transactional_id", "state", "producer_id", "producer_epoch", "timeout", "started_at", "partitions", "groups",
)  # fmt: skip
OPEN_COLUMNS = (
    "partition", "producer_id", "producer_epoch", "start_offset", "since", "transactional_id", "is_hanging",
)  # fmt: skip
HANGING_COLUMNS = (
    "topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_append", "transactional_id", "why",
)  # fmt: skip


@app.command(
    "list",
    epilog="Example: fenceline txn list\n\n"
    "Example: fenceline txn list --state Ongoing --longer-than 5m\n\n"
    "Example: fenceline txn list --producer-id 7003 --json",
)
def list_transactions(
    state: Annotated[State | None, typer.Option(help="List only transactional ids in this state.")] = None,
    producer_id: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="List only the id that has this producer id.")
    ] = None,
    longer_than: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=units.seconds,
            help="List only transactions that have been open, or being ended, for longer, as 30s or 5m.",
        ),
    ] = None,
    as_operator: AsOperator = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List transactional ids by name, each with the state of its transaction. This only looks, and ends nothing.

    Those of other roles and users are left out without --operator. Ongoing is open. PrepareCommit and PrepareAbort are
    decided, and being ended. The other states have no transaction: partitions and groups are empty there.
    """
    longer_than_ms = None if longer_than is None else round(longer_than * 1_000)
    with connect(url) as client:
        found = list(
            client.transactions(
                state=state, producer_id=producer_id, longer_than_ms=longer_than_ms, as_operator=as_operator
            )
        )
    if as_json:
        print_json([_document(one) for one in found])
        return
    print_rows(COLUMNS, [_row(one) for one in found])


@app.command(epilog="Example: fenceline txn describe totals:totals\n\nExample: fenceline txn describe my-id --json")
def describe(transactional_id: TransactionalId, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show the transaction of an id: its state, its producer, its partitions and its groups.

    A transaction whose time-out is over is aborted by this look, and one that is decided is ended. That of another role
    or user is refused; an operator finds it with 'fenceline txn list --operator --json'.
    """
    with connect(url) as client:
        found = client.transaction(transactional_id)
    if as_json:
        print_json(_document(found))
        return
    timeout_ms, started_at = found.transaction_timeout_ms, found.started_at
    times_out_at = "" if started_at is None else utc(max(started_at + timeout_ms, found.expires_at or 0))
    for name, value in (
        ("transactional_id", found.transactional_id),
        ("state", found.state),
        ("producer_id", found.producer_id),
        ("producer_epoch", found.producer_epoch),
        ("timeout", units.shown(timeout_ms, "ms")),
        ("started_at", "" if started_at is None else utc(started_at)),
        ("times_out_at", times_out_at),
        ("groups", " ".join(found.groups)),
    ):
        typer.echo(f"{name}\t{value}")
    print_rows(("topic", "partition"), [(place.topic, place.partition) for place in found.partitions])


@app.command(
    epilog="Example: fenceline txn fence totals:totals\n\nExample: fenceline txn fence --operator totals:totals"
)
def fence(
    transactional_id: TransactionalId,
    as_operator: AsOperator = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Fence the producer of a transactional id, and abort its open transaction.

    The command takes the id's next epoch, as a new producer would. From then on the old producer can neither write nor
    commit. A transaction that was decided before stays as it was decided. An id that does not exist is not made.

    With --operator the id may be that of another role or user. It then belongs to none, until the next producer asks
    for it.
    """
    with connect(url) as client:
        if as_operator:
            before, now = client.fence_transactional_id(transactional_id)
        else:
            before = client.transaction(transactional_id)
            timeout_ms = before.transaction_timeout_ms  # kept as it was
            now = client.transactional_producer_id(transactional_id, timeout_ms=timeout_ms)
    if as_json:
        pair = {"producer_id": now.producer_id, "producer_epoch": now.producer_epoch}
        print_json({"fenced": transactional_id, **pair, "before": _document(before)})
        return
    pair_text = f"producer_id={now.producer_id} producer_epoch={now.producer_epoch}"
    typer.echo(f"fenced {transactional_id} {pair_text} before={before.state}: {_what_became_of(before)}")


def _what_became_of(before: Transaction) -> str:
    from fenceline.model import transaction as states

    if before.state == states.ONGOING:
        assert before.started_at is not None
        places = f"{_counted(before.partitions, 'partition')} and {_counted(before.groups, 'group')}"
        # Between the look and the request its producer may have ended it.
        return (
            f"its transaction of {places}, begun at {utc(before.started_at)}, is aborted, unless it ended just before"
        )
    if before.state == states.PREPARE_COMMIT:
        return "its transaction was decided before, and is committed"
    if before.state == states.PREPARE_ABORT:
        return "its transaction was decided before, and is aborted"
    return "it had no open transaction"


@app.command("open", epilog="Example: fenceline txn open orders")
def list_open(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the transactions that are open in the partitions of a topic. This only looks, and ends nothing.

    Readers with read_committed wait at the first start_offset of a partition. One that is_hanging is open although no
    transactional id can end it: 'fenceline txn abort' ends it.
    """
    with connect(url) as client:
        found = list(client.open_transactions(topic))
    if as_json:
        print_json([to_json(one) for one in found])
        return
    print_rows(OPEN_COLUMNS, [_open_row(one) for one in found])


def _open_row(one: OpenTransaction) -> tuple[object, ...]:
    what = (one.transactional_id or "", str(one.is_hanging).lower())
    return one.partition, *map(str, one.pair), one.start_offset, utc(one.since), *what


def _counted(many: Sized, what: str) -> str:
    return f"{len(many)} {what}" if len(many) == 1 else f"{len(many)} {what}s"


@app.command(
    "find-hanging",
    epilog="Example: fenceline txn find-hanging\n\nExample: fenceline txn find-hanging orders --partition 3 --json",
)
def find(
    topic: Annotated[
        str | None,
        typer.Argument(metavar="[TOPIC]", help="Look only at this topic.", autocompletion=topic_names),
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="Look only at this one.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Find transactions that hang, and print what ends each.

    A transaction hangs if it is open in a partition, but no producer and no time-out can end it. Its transactional id
    no longer exists then, or has a later epoch. That is a sign of damage. Readers with read_committed, compaction and
    retention wait for it until 'fenceline txn abort' ends it. The command only looks; its exit code is 1 if anything
    hangs.

    It is for operators: it looks at the ids of all roles and users, and needs leave for GET /v1/operator/transactions.
    """
    if topic is None and partition is not None:
        raise CommandError("--partition needs a topic; give TOPIC, too")
    with connect(url) as client:
        found = find_hanging(client, topic, partition)
    if as_json:
        print_json([_hanging_document(one, url) for one in found])
    else:
        _print_hanging(found, url)
    if found:
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: fenceline txn abort orders -p 3 --producer-id 7003 --producer-epoch 12 --yes")
def abort(
    topic: TopicName,
    partition: Annotated[int, typer.Option("--partition", "-p", metavar="N", min=0, help="Where it hangs.")],
    producer_id: Annotated[int, typer.Option(metavar="N", min=0, help="Its producer id.")],
    producer_epoch: Annotated[int, typer.Option(metavar="N", min=0, help="Its producer epoch.")],
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Abort a transaction that hangs in a partition, as 'fenceline txn find-hanging' prints it.

    Readers with read_committed never see its records then. This cannot be undone; the command asks first. One that does
    not hang is refused: its producer, its time-out or 'fenceline txn fence' ends it, in all its partitions at once.

    It is for operators, and needs leave for POST /v1/operator/abort-transaction.
    """
    from fenceline.model.transaction import ProducerPair

    what = f"the transaction of producer {producer_id}, epoch {producer_epoch}, in {topic}/{partition}"
    with connect(url) as client:
        partitions_of(client, topic, partition)
        since = _open_since(client, topic, partition, producer_id, producer_epoch)
        if since is not None:  # else the service refuses it
            records = f"its records from offset {since} on"
            confirm(is_sure, f"Abort {what}? Readers will not see {records}.", f"this aborts {what}, with {records}")
        pair_of_it = ProducerPair(producer_id, producer_epoch)
        client.abort_hanging_transaction(topic, partition, pair_of_it, as_operator=True)
    if as_json:
        pair = {"producer_id": producer_id, "producer_epoch": producer_epoch}
        print_json({"aborted": {"topic": topic, "partition": partition, **pair}})
    else:
        typer.echo(f"aborted {topic}/{partition} producer_id={producer_id} producer_epoch={producer_epoch}")


@app.command(
    epilog="Example: fenceline txn once hourly-totals\n\n"
    "Example: fenceline txn once   (all applications)\n\n"
    "Example: fenceline txn once hourly-totals --delete --yes"
)
def once(
    app_id: Annotated[
        str | None, typer.Argument(metavar="[APP_ID]", help="The application's id; left out, all are listed.")
    ] = None,
    is_deleted: Annotated[
        bool, typer.Option("--delete", help="Forget it, so that any version can be committed again.")
    ] = False,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the last version that an application has committed by 'once', by which run (note), and when.

    A version of -1 means that it has committed none. With --delete the command forgets the version, after it has asked.
    A run of the application that repeats a version then commits it again.
    """
    if app_id is None:
        if is_deleted:
            raise CommandError("name the APP_ID whose version --delete forgets")
        _list_once(url, as_json=as_json)
        return
    with connect(url) as client:
        found = client.once(app_id)
        if is_deleted and found.version >= 0:
            confirm(
                is_sure,
                f"Forget version {found.version} of {app_id}? A repeated version is then committed again.",
                f"this forgets version {found.version} of {app_id}, and a repeated version is then committed again",
            )
            client.forget_once(app_id)
    if is_deleted:
        _show_forgotten(found, as_json=as_json)
    elif as_json:
        print_json(_once_document(found))
    else:
        for name, value in (
            ("app_id", found.app_id),
            ("version", found.version),
            ("note", found.note or ""),
            ("committed_at", "" if found.committed_at is None else utc(found.committed_at)),
        ):
            typer.echo(f"{name}\t{value}")


def _list_once(url: str, *, as_json: bool) -> None:
    with connect(url) as client:
        found = list(client.once_versions())
    if as_json:
        print_json([_once_document(one) for one in found])
        return
    rows = [(one.app_id, one.version, one.note or "", utc(one.committed_at or 0)) for one in found]
    print_rows(("app_id", "version", "note", "committed_at"), rows)


def _open_since(client: Client, topic: str, partition: int, producer_id: int, producer_epoch: int) -> int | None:
    states: list[ShownProducerState] = [
        one for one in client.producer_states(topic, partition) if one.producer_id == producer_id
    ]
    for one in states:
        if one.producer_epoch == producer_epoch and one.current_txn_start_offset >= 0:
            return one.current_txn_start_offset
    return None


def _row(one: Transaction) -> tuple[object, ...]:
    started_at = "" if one.started_at is None else utc(one.started_at)
    # As text: a table would write ids with separators.
    pair = (str(one.producer_id), str(one.producer_epoch))
    times = (units.shown(one.transaction_timeout_ms, "ms"), started_at)
    return one.transactional_id, one.state, *pair, *times, len(one.partitions), len(one.groups)


def _document(one: Transaction) -> dict[str, Any]:
    """Return a transaction as the contract shows it."""
    return {
        "transactional_id": one.transactional_id,
        "state": one.state,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "transaction_timeout_ms": one.transaction_timeout_ms,
        "started_at": one.started_at,
        "partitions": [{"topic": place.topic, "partition": place.partition} for place in one.partitions],
        "groups": list(one.groups),
        **({} if one.expires_at is None else {"expires_at": one.expires_at}),
    }


def _print_hanging(found: list[Hanging], url: str) -> None:
    rows = [_hanging_row(one) for one in found]
    if not sys.stdout.isatty():
        print_rows(
            (*HANGING_COLUMNS, "command"), [(*row, _command(one, url)) for row, one in zip(rows, found, strict=True)]
        )
        return
    if not found:
        typer.echo("no transaction hangs")
        return
    print_rows(HANGING_COLUMNS, rows)
    for one in found:  # outside the table, which would break the lines
        typer.echo(_command(one, url))


def _hanging_row(one: Hanging) -> tuple[object, ...]:
    pair = (str(one.producer_id), str(one.producer_epoch))
    return (
        one.topic,
        one.partition,
        *pair,
        one.start_offset,
        utc(one.last_timestamp),
        one.transactional_id or "",
        one.why,
    )


def _hanging_document(one: Hanging, url: str) -> dict[str, Any]:
    return {**{name: getattr(one, name) for name in Hanging.__slots__}, "command": _command(one, url)}


def _command(one: Hanging, url: str) -> str:
    """Return the command that ends a hanging transaction."""
    command = ["fenceline", "txn", "abort", one.topic, "-p", one.partition]
    command += ["--producer-id", one.producer_id, "--producer-epoch", one.producer_epoch]
    if url not in (DEFAULT_URL, os.environ.get("FENCELINE_URL")):
        command += ["--url", url]
    return shlex.join(map(str, command))


def _show_forgotten(found: OnceMark, *, as_json: bool) -> None:
    if as_json:
        print_json({"forgotten": _once_document(found)})
    elif found.version < 0:
        typer.echo(f"nothing to forget: {found.app_id} has committed no version")
    else:
        typer.echo(f"forgot {found.app_id} version={found.version}")


def _once_document(found: OnceMark) -> dict[str, Any]:
    """Return the version as the contract shows it."""
    return {
        "app_id": found.app_id,
        "version": found.version,
        "note": found.note,
        "committed_at": found.committed_at,
    }


app.command("run", epilog=run.EXAMPLES)(run.run)
