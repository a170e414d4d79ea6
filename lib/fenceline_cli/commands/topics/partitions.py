"""``fenceline offsets`` and ``fenceline trim``: the beginning and the end of partitions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, TopicName, Url, confirm, connect, partitions_of
from fenceline_cli.output import print_json, print_rows

if TYPE_CHECKING:
    from fenceline.client import Client

app = typer.Typer()

OFFSET_COLUMNS = (
    "partition",
    "log_start_offset",
    "next_offset",
    "last_stable_offset",
    "topic_epoch",
    "access_mode",
    "compaction_horizon",
)


@app.command(epilog="Example: fenceline offsets orders\n\nExample: fenceline offsets orders --partition 0 --json")
def offsets(
    topic: TopicName,
    partition: Annotated[int | None, typer.Option(help="Show only this partition.")] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show where each partition of a topic begins and ends."""
    with connect(url) as client:
        rows = offset_rows(client, topic, partitions_of(client, topic, partition))
    if as_json:
        print_json([dict(zip(OFFSET_COLUMNS, row, strict=True)) for row in rows])
    else:
        print_rows(OFFSET_COLUMNS, rows)


@app.command(epilog="Example: fenceline trim orders 0 1000 --yes   (deletes the offsets 0 to 999)")
def trim(
    topic: TopicName,
    partition: Annotated[int, typer.Argument(metavar="PARTITION", min=0)],
    offset: Annotated[int, typer.Argument(metavar="OFFSET", min=0, help="The first offset to keep.")],
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Delete every record of a partition below OFFSET. This cannot be undone; the command asks first."""
    with connect(url) as client:
        bounds = client.offsets(topic, partition).bounds
        if bounds.log_start_offset < offset <= bounds.next_offset:
            what = f"the records at offsets {bounds.log_start_offset} to {offset - 1} of {topic}/{partition}"
            confirm(is_sure, f"Delete {what}?", f"this deletes {what} for good")
        log_start_offset = client.trim(topic, partition, offset)
    if as_json:
        print_json({"topic": topic, "partition": partition, "log_start_offset": log_start_offset})
    else:
        typer.echo(f"trimmed {topic}/{partition} log_start_offset={log_start_offset}")


def offset_rows(client: Client, topic: str, partitions: Iterable[int]) -> list[tuple[int | str, ...]]:
    """Return a row of ``OFFSET_COLUMNS`` for each partition."""
    rows: list[tuple[int | str, ...]] = []
    for partition in partitions:
        now = client.offsets(topic, partition)
        bounds = (now.bounds.log_start_offset, now.bounds.next_offset, now.bounds.last_stable_offset)
        rows.append((partition, *bounds, now.topic_epoch, now.access_mode, now.compaction_horizon))
    return rows
