"""``fenceline subscription``: create, list, seek and delete subscriptions, and show their backlog."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fenceline.model.subscription import Lag
from fenceline_cli import positions
from fenceline_cli.moves import carry_out, move_of, show_moves, totals
from fenceline_cli.options import (
    DEFAULT_URL,
    AsJson,
    DryRun,
    InitialPosition,
    IsSure,
    OnePartition,
    TopicName,
    Url,
    confirm,
    connect,
    partitions_of,
)
from fenceline_cli.output import CommandError, print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.model.subscription import LaggingSubscription

app = typer.Typer(
    name="subscription",
    no_args_is_help=True,
    help="Create, list, seek and delete subscriptions, and show their backlog.",
    epilog="Example: fenceline subscription backlog orders billing",
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]

LIST_COLUMNS = ("name", "replicate_subscription_state", "active_region")
LAG_COLUMNS = ("topic", "name", "backlog", "oldest_unread_at", "owner", *LIST_COLUMNS[1:])
CURSOR_COLUMNS = ("partition", "mark_delete_offset", "individually_acknowledged", "backlog", "oldest_unread_at")


@app.command(
    epilog="Example: fenceline subscription create orders billing --from earliest\n\n"
    "Example: fenceline subscription create orders billing --replicated --from earliest"
)
def create(
    topic: TopicName,
    name: Name,
    start: Annotated[InitialPosition, typer.Option("--from", help="Where the subscription begins.")] = "latest",
    replicated: Annotated[
        bool | None,
        typer.Option(
            "--replicated/--not-replicated",
            show_default=False,
            help="Move the subscription in the topic's other regions, too, as it is acknowledged here (PIP-33), so that"
            " a consumer can go on in another region. Left out, a new one is not replicated, and an existing one stays"
            " as it is.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Create a subscription; an existing one stays where it is.

    A replicated one appears in the other regions by itself. Create it in one region only, and with --from earliest
    where others already read: what lies before latest is done with in every region.
    """
    with connect(url) as client:
        client.create_subscription(topic, name, initial_position=start, replicate_subscription_state=replicated)
        rows = [(one.partition, one.mark_delete_offset) for one in client.subscription(topic, name).partitions]
    if as_json:
        print_json({"name": name, "topic": topic, "mark_delete_offsets": dict(rows)})
        return
    marks = ",".join(f"{partition}:{mark}" for partition, mark in rows)
    typer.echo(f"subscribed {name} to {topic} mark_delete_offsets={marks}")


@app.command(
    "list",
    epilog="Example: fenceline subscription list orders\n\n"
    "Example: fenceline subscription list --lag   (of all topics)",
)
def list_subscriptions(
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name; left out with --lag, all topics.")
    ] = None,
    lag: Annotated[
        bool,
        typer.Option(
            "--lag",
            help="Show how many records each has not acknowledged, when the oldest was appended, and the owner.",
        ),
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List the subscriptions of a topic; active_region is where the consumers of one should read, if that was set.

    With --lag, a topic of more than 1,000 partitions shows no lag: ask for one subscription by its name.
    """
    if lag:
        _list_lag(topic, url, as_json=as_json)
        return
    if topic is None:
        raise CommandError("name a TOPIC, or give --lag, which lists those of all topics")
    with connect(url) as client:
        found = client.subscriptions(topic)
    if as_json:
        print_json([{name: getattr(one, name) for name in LIST_COLUMNS} for one in found])
        return
    rows = [(one.name, str(one.replicate_subscription_state).lower(), one.active_region or "") for one in found]
    print_rows(LIST_COLUMNS, rows)


def _list_lag(topic: str | None, url: str, *, as_json: bool) -> None:
    with connect(url) as client:
        found = list(client.lag(topic))
    if as_json:
        print_json([_lag_entry(one) for one in found])
        return
    print_rows(LAG_COLUMNS, [_lag_row(one) for one in found])


def _lag_entry(one: LaggingSubscription) -> dict[str, Any]:
    entry, lag = one
    known = dict.fromkeys(Lag._fields) if lag is None else lag._asdict()
    owner = None if lag is None or lag.owner is None else lag.owner._asdict()
    return {**{name: getattr(entry, name) for name in ("topic", *LIST_COLUMNS)}, **known, "owner": owner}


def _lag_row(one: LaggingSubscription) -> tuple[object, ...]:
    entry, lag = one
    known: tuple[object, ...] = ("", "", "")
    if lag is not None:
        owner = "" if lag.owner is None else lag.owner.client_name or lag.owner.session_id
        known = (lag.backlog, "" if lag.oldest_unread_at is None else utc(lag.oldest_unread_at), owner)
    is_replicated = str(entry.replicate_subscription_state).lower()
    return (entry.topic, entry.name, *known, is_replicated, entry.active_region or "")


@app.command(
    epilog="Example: fenceline subscription backlog orders billing --json\n\n"
    "Example: fenceline subscription backlog orders   (of all its subscriptions)"
)
def backlog(
    topic: TopicName,
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="The subscription's name; left out, all of the topic's.")
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show a subscription's mark in each partition, and how many records it has not acknowledged.

    Without a name it shows each subscription of the topic in one line, as list --lag does.
    """
    if name is None:
        _list_lag(topic, url, as_json=as_json)
        return
    with connect(url) as client:
        found = client.subscription(topic, name)
    if as_json:
        print_json([asdict(cursor) for cursor in found.partitions])
        return
    rows = [
        (
            cursor.partition,
            cursor.mark_delete_offset,
            ",".join(f"{start}-{end - 1}" for start, end in cursor.individually_acknowledged),
            cursor.backlog,
            "" if cursor.oldest_unread_at is None else utc(cursor.oldest_unread_at),
        )
        for cursor in found.partitions
    ]
    print_rows(CURSOR_COLUMNS, rows)


@app.command(
    context_settings={"ignore_unknown_options": True},  # else -5 would be refused as an option
    epilog="Example: fenceline subscription seek orders billing earliest --dry-run\n\n"
    "Example: fenceline subscription seek orders billing -5 --partition 0   (before the last five)\n\n"
    "Example: fenceline subscription seek orders billing 2026-11-20T08:00Z --partition 0 --yes",
)
def seek(
    topic: TopicName,
    name: Name,
    where: Annotated[str, typer.Argument(metavar="WHERE", help=f"{positions.HELP}.")],
    partition: OnePartition = None,
    dry_run: DryRun = False,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Move a subscription: records below the place are then acknowledged, and the others are not.

    The command asks first: skipped records are no longer delivered, and others come again.
    """
    position = positions.parse(where, "WHERE", "is")
    with connect(url) as client:
        moves = [move_of(client, topic, name, n, position) for n in partitions_of(client, topic, partition)]
        if dry_run:
            show_moves(moves, as_json=as_json)
            return
        skipped, repeated = totals(moves)
        if skipped or repeated:
            what = f"{name} of {topic} skips {skipped} records, and gets {repeated} again"
            confirm(is_sure, f"Move it? {what[0].upper()}{what[1:]}.", f"{what} (--dry-run shows which)")
        carry_out(client, topic, name, moves, "moved", "mark_delete_offset", as_json=as_json)


@app.command(epilog="Example: fenceline subscription delete orders billing --yes")
def delete(
    topic: TopicName,
    name: Name,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a subscription and its place in the topic. This cannot be undone; the command asks first.

    Members of a group of this name that read the topic end with an error then. 'fenceline group delete' deletes a
    group, and refuses while it has members.
    """
    confirm(is_sure, f"Delete {name} of {topic}?", f"this deletes subscription {name} of {topic} for good")
    with connect(url) as client:
        client.delete_subscription(topic, name)
    if as_json:
        print_json({"deleted": name, "topic": topic})
    else:
        typer.echo(f"deleted {name} of {topic}")
