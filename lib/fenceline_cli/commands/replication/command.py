"""``fenceline replication``: how far a region is with a topic's other regions; snapshots; gaps to be given up."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.errors import RetryError
from fenceline_cli.commands.replication import view
from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, TopicName, Url, confirm, connect
from fenceline_cli.output import CommandError, describe, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fenceline.client import Client
    from fenceline.model.region import ReplicationStatus

app = typer.Typer(
    name="replication",
    no_args_is_help=True,
    help="Show how far the region of --url is with the records of a topic's other regions.",
    epilog="Example: fenceline replication status orders --watch",
)

WATCH_MS = 1_000  # between two looks


@app.command(
    epilog="Example: fenceline replication status orders\n\n"
    "Example: fenceline replication status orders --watch\n\n"
    "Example: fenceline replication status orders --watch --json | jq .regions"
)
def status(
    topic: TopicName,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            "-w",
            help="Look again each second until Ctrl-C: a terminal is redrawn, a pipe gets a line for each region.",
        ),
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what this region lacks of each other region, what is wrong, and the snapshots of subscriptions.

    The column lag_records counts the committed records of a region that are not here yet, and lag_ms is the age of the
    oldest. Both are empty while that region is not connected. A gap is a range of records that a region no longer keeps
    and that never arrived here. Its link waits until 'fenceline replication skip' gives them up.

    A snapshot says which offsets of the regions belong together: a subscription moves elsewhere from one to the next.
    Only the newest of each partition is shown, and the ones that wait for an answer. With --json all are.
    """
    with connect(url) as client:
        if not watch:
            found = client.replication(topic)
            if as_json:
                print_json(view.document(found))
            else:
                view.show(topic, found)
            return
        looks = _looks(client, topic)
        if as_json:
            for found, _ in looks:
                print_json(view.document(found))
                sys.stdout.flush()
        elif sys.stdout.isatty():
            view.redraw(topic, looks)
        else:
            view.follow(looks, now_ms=client.runtime.now_ms)


def _looks(client: Client, topic: str) -> Iterator[tuple[ReplicationStatus, str | None]]:
    """Yield the status each second, and why a look found nothing newer."""
    found, trouble = client.replication(topic), None
    while True:
        yield found, trouble
        client.runtime.sleep_ms(WATCH_MS)
        try:
            found, trouble = client.replication(topic), None
        except RetryError as error:
            trouble = describe(error)


@app.command(epilog="Example: fenceline replication snapshot orders")
def snapshot(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Start a snapshot in each partition that another region has, and print its id.

    Snapshots start by themselves where replicated subscriptions are in use, once a second at most. Start one before a
    planned move, so that fewer records are repeated; 'fenceline failover' does. 'fenceline replication status' shows
    when it is complete.
    """
    with connect(url) as client:
        snapshot_id = client.snapshot(topic)
    if as_json:
        print_json({"snapshot_id": snapshot_id, "topic": topic})
    else:
        typer.echo(f"started a snapshot of {topic} snapshot_id={snapshot_id}")


@app.command(epilog="Example: fenceline replication skip orders -p 0 --from b --to 340")
def skip(
    topic: TopicName,
    partition: Annotated[
        int, typer.Option("--partition", "-p", metavar="N", min=0, help="The partition that has the gap.")
    ],
    region: Annotated[str, typer.Option("--from", metavar="REGION", help="The region that no longer keeps them.")],
    to: Annotated[
        int,
        typer.Option(
            metavar="OFFSET",
            min=0,
            help="The end of the gap, or of the batch that is refused: an offset in that region, as shown by 'fenceline"
            " replication status'.",
        ),
    ],
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Give up records that another region no longer keeps and that never arrived here; its link then goes on.

    A batch that is refused here is given up in the same way, up to its end. 'fenceline replication status' shows it.

    This region never has these records then, even if a third one still keeps them. To take them from there, suspend
    the region instead ('fenceline regions suspend'). This cannot be undone; the command asks first.
    """
    with connect(url) as client:
        if not is_sure:
            given_up = f"{_given_up(client.replication(topic), topic, partition, region, to)} of {region}"
            what = f"this gives up {given_up} in {topic}/{partition} for good"
            question = f"Give up {given_up} in {topic}/{partition}, up to its offset {to}?"
            confirm(is_sure, question, what)
        skipped = client.skip(topic, partition, region, to)
    if as_json:
        print_json({"topic": topic, "partition": partition, "region": region, "skipped_records": skipped})
    else:
        typer.echo(f"skipped {skipped} records of {region} in {topic}/{partition} to_offset={to}")


def _given_up(status: ReplicationStatus, topic: str, partition: int, region: str, to: int) -> str:
    """Return in words what a skip to this offset gives up.

    Raises:
        CommandError: There is no gap, and no batch that is refused; or the gap ends elsewhere.
    """
    found = [gap for gap in status.gaps if (gap.partition, gap.region) == (partition, region)]
    problems = [one.problem or "" for one in status.regions if one.region == region]
    refused = re.compile(rf" to={to} reason=.* partition={partition}(?!\d)")
    if any(map(refused.search, problems)):
        return "the batch that is refused"
    if not found:
        raise CommandError(
            f"{topic}/{partition} has no gap of {region}; 'fenceline replication status {topic}' shows those that exist"
        )
    if found[0].to_offset != to:
        raise CommandError(
            f"the gap of {region} in {topic}/{partition} ends at offset {found[0].to_offset}; give that as --to"
        )
    return f"{found[0].records} records"
