"""``fenceline subscription``: create, list, seek, delete, backlog."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import Annotated

import typer

from fenceline.client.subscription_requests import InitialPosition
from fenceline_cli.options import DEFAULT_URL, AsJson, TopicName, Url, connect, partitions_of, timestamp_of
from fenceline_cli.output import CommandError, print_json, print_rows

app = typer.Typer(no_args_is_help=True, help="Create, list, seek and delete subscriptions, and see their backlog.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The subscription's name.")]

CURSOR_COLUMNS = ("partition", "mark_delete_offset", "individually_acknowledged", "backlog")


@app.command(epilog="Example: fenceline subscription create orders billing --from earliest")
def create(
    topic: TopicName,
    name: Name,
    start: Annotated[InitialPosition, typer.Option("--from", help="Where it begins.")] = "latest",
    url: Url = DEFAULT_URL,
) -> None:
    """Create a subscription; one that there is stays where it is."""
    with connect(url) as client:
        client.create_subscription(topic, name, initial_position=start)
        rows = [(one.partition, one.mark_delete_offset) for one in client.subscription(topic, name).partitions]
    marks = ",".join(f"{partition}:{mark}" for partition, mark in rows)
    typer.echo(f"subscribed {name} to {topic} mark_delete_offsets={marks}")


@app.command("list", epilog="Example: fenceline subscription list orders")
def list_subscriptions(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the subscriptions of a topic."""
    with connect(url) as client:
        found = client.subscriptions(topic)
    if as_json:
        names = [{"name": one.name, "replicate_subscription_state": one.replicate_subscription_state} for one in found]
        print_json(names)
        return
    rows = [(one.name, str(one.replicate_subscription_state).lower()) for one in found]
    print_rows(("name", "replicate_subscription_state"), rows)


@app.command(epilog="Example: fenceline subscription backlog orders billing --json")
def backlog(topic: TopicName, name: Name, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show how far a subscription is in each partition, and how many records it has not acknowledged."""
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
        )
        for cursor in found.partitions
    ]
    print_rows(CURSOR_COLUMNS, rows)


@app.command(
    epilog="Example: fenceline subscription seek orders billing earliest\n\n"
    "Example: fenceline subscription seek orders billing @2026-11-20T08:00:00Z --partition 0"
)
def seek(
    topic: TopicName,
    name: Name,
    where: Annotated[
        str, typer.Argument(metavar="WHERE", help="earliest, latest, an offset, or @ and a time (by default UTC).")
    ],
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition; else all.")] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Move a subscription: what lies below is acknowledged then, and what lies behind is not."""
    offset, timestamp = None, None
    if where.startswith("@"):
        timestamp = timestamp_of(where[1:], "WHERE")
    elif where.isdecimal() and where.isascii():
        offset = int(where)
    elif where not in ("earliest", "latest"):
        raise CommandError(f"WHERE is earliest, latest, an offset, or a time such as @2026-11-20T08:00:00Z: {where}")
    with connect(url) as client:
        for number in partitions_of(client, topic, partition):
            if timestamp is None and not where.isdecimal():
                bounds = client.offsets(topic, number).bounds
                offset = bounds.log_start_offset if where == "earliest" else bounds.next_offset
            mark = client.seek(topic, name, number, offset=offset, timestamp=timestamp)
            typer.echo(f"moved {name} on {topic}/{number} mark_delete_offset={mark}")


@app.command(epilog="Example: fenceline subscription delete orders billing --yes")
def delete(
    topic: TopicName,
    name: Name,
    is_sure: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete a subscription and where it was. It cannot be undone."""
    if not is_sure:
        if not sys.stdin.isatty():
            raise CommandError("a subscription is deleted for good: say --yes")
        typer.confirm(f"Delete {name} of {topic}?", abort=True)
    with connect(url) as client:
        client.delete_subscription(topic, name)
    typer.echo(f"deleted {name} of {topic}")
