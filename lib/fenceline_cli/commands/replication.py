"""``fenceline replication``: how far a region is with a topic's other regions; snapshots; gaps to be given up."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from fenceline.errors import RetryError
from fenceline_cli.commands.regions import state_of
from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, TopicName, Url, confirm, connect
from fenceline_cli.output import CommandError, describe, print_json, print_rows, table_of, utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.region import Gap, RegionStatus, ReplicationStatus, ShownSnapshot

app = typer.Typer(
    name="replication",
    no_args_is_help=True,
    help="Show how far the region of --url is with the records of a topic's other regions.",
    epilog="Example: fenceline replication status orders --watch",
)

WATCH_MS = 1_000  # between two looks
CANNOT_DRAW = ("dumb", "unknown")  # terminals that are written to as a pipe is
ROWS_DRAWN = 8  # in each table, so that all fits on a terminal

REGION_COLUMNS = (
    "region", "connected", "suspended", "lag_records", "lag_ms", "last_seen_at", "answered_at", "problem",
)  # fmt: skip
GAP_COLUMNS = ("partition", "region", "from_offset", "to_offset", "records")
SNAPSHOT_COLUMNS = ("partition", "snapshot_id", "local_offset", "offsets", "completed_at", "final")
PENDING_COLUMNS = ("partition", "snapshot_id", "started_at", "waiting_for")
WATCH_COLUMNS = ("time", "region", "connected", "suspended", "lag_records", "lag_ms", "problem")

Look = tuple["ReplicationStatus", str | None]  # and why it is not new


class Table(NamedTuple):
    """One table of a status, for a pipe or for a terminal."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


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
                print_json(_document(found))
            else:
                _show(topic, found)
            return
        looks = _looks(client, topic)
        if as_json:
            for found, _ in looks:
                print_json(_document(found))
                sys.stdout.flush()
        elif sys.stdout.isatty() and os.environ.get("TERM") not in CANNOT_DRAW:
            _redraw(topic, looks)
        else:
            _follow(looks, now_ms=client.runtime.now_ms)


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
    """Return in words the records that a skip to this offset gives up.

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


# A status on a terminal, through a pipe, and as JSON


def _document(found: ReplicationStatus) -> dict[str, Any]:
    """Return a status as the contract shows it, all pages in one."""
    members = asdict(found)
    del members["has_more"]
    return members


def _show(topic: str, found: ReplicationStatus) -> None:
    """Print a status once."""
    if sys.stdout.isatty():
        from rich.console import Console  # only here: loading it takes longer than most commands

        console = Console()
        console.print(drawn(topic, found, width=console.width))
        return
    typer.echo(f"region\t{found.region}")
    typer.echo(f"skipped_records\t{found.skipped_records}")
    for table in _tables(topic, found, is_short=False):
        print_rows(table.columns, table.rows)


def _follow(looks: Iterator[Look], *, now_ms: Callable[[], int]) -> None:
    """Print a line for each region at each look."""
    for number, (found, trouble) in enumerate(looks):
        if number == 0:
            typer.echo("\t".join(WATCH_COLUMNS))
        time = utc(now_ms())
        if trouble is not None:
            typer.echo(f"warning: {trouble}", err=True)
            continue
        for one in found.regions:
            row = (time, one.region, _word(one.connected), _word(one.suspended))
            rest = (_known(one.lag_records), _known(one.lag_ms), one.problem or "")
            typer.echo("\t".join(map(str, (*row, *rest))))
        sys.stdout.flush()


def _redraw(topic: str, looks: Iterator[Look]) -> None:
    """Draw each status in the place of the one before, on a screen of its own; the last one stays on the terminal."""
    from rich.console import Console  # only here, too
    from rich.live import Live

    console, drawing = Console(), None
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            for found, trouble in looks:
                drawing = drawn(topic, found, trouble, width=console.width)
                live.update(drawing, refresh=True)
    finally:
        if drawing is not None:
            console.print(drawing)


def drawn(topic: str, found: ReplicationStatus, trouble: str | None = None, *, width: int) -> Any:
    """Return a status for a terminal: a few rows of each table, which is a list if the terminal is too narrow for it.

    Args:
        width: Of the terminal, in columns. All tables fit where that is 80, unless offsets are large.
    """
    from rich.console import Group
    from rich.text import Text

    shown: list[Any] = [Text(f"{topic} in region {found.region}   skipped records: {found.skipped_records:,}")]
    if trouble is not None:
        shown.append(Text(f"no newer answer: {trouble}", style="red"))
    for table in _tables(topic, found, is_short=True):
        rows = table.rows[:ROWS_DRAWN]
        if _width(table) <= width:
            shown.append(table_of(table.columns, rows, title=table.title))
        else:
            cells = [", ".join(f"{name} {cell}" for name, cell in zip(table.columns, row, strict=True)) for row in rows]
            shown += [Text(f"{table.title}:", style="bold"), *map(Text, cells)]
        if len(table.rows) > ROWS_DRAWN:
            shown.append(Text(f"… and {len(table.rows) - ROWS_DRAWN} others"))
    # Outside the tables, which would break the lines.
    shown += [Text(f"{one.region}: {one.problem}", style="red") for one in found.regions if one.problem is not None]
    shown += [Text(_skip_command(topic, gap)) for gap in found.gaps[:ROWS_DRAWN]]
    return Group(*shown)


def _width(table: Table) -> int:
    """Return how wide a table is if no cell is broken: each cell has a space on both sides, and a line after it."""
    columns = zip(table.columns, *table.rows[:ROWS_DRAWN], strict=True)
    return 1 + sum(3 + max(len(f"{cell:,}" if isinstance(cell, int) else str(cell)) for cell in one) for one in columns)


def _tables(topic: str, found: ReplicationStatus, *, is_short: bool) -> list[Table]:
    """Return the tables of a status; only that of the regions may be without rows.

    Args:
        is_short: For a terminal. Ids and times are cut short, and what is wrong is left out.
    """
    time, id_size = (_clock, 8) if is_short else (utc, None)
    regions = [_short_region_row(one) if is_short else _region_row(one) for one in found.regions]
    gaps = [
        (gap.partition, gap.region, gap.from_offset, gap.to_offset, gap.records, _skip_command(topic, gap))
        for gap in found.gaps
    ]
    snapshots = [
        (
            one.partition,
            one.snapshot_id[:id_size],
            one.local_offset,
            _offsets(one),
            time(one.completed_at),
            _word(one.final),
        )
        for one in _newest(found)
    ]
    pending = [
        (one.partition, one.snapshot_id[:id_size], time(one.started_at), " ".join(one.waiting_for))
        for one in found.pending
    ]
    if is_short:
        tables = [
            Table("regions", ("region", "state", "lag in records", "lag in ms", "last seen"), regions),
            Table("gaps", GAP_COLUMNS, [row[:-1] for row in gaps]),
            Table("newest snapshots", ("partition", "id", "offset here", "offsets", "at", "final"), snapshots),
            Table("snapshots under way", ("partition", "id", "since", "waiting for"), pending),
        ]
    else:
        tables = [
            Table("regions", REGION_COLUMNS, regions),
            Table("gaps", (*GAP_COLUMNS, "command"), gaps),
            Table("newest snapshots", SNAPSHOT_COLUMNS, snapshots),
            Table("snapshots under way", PENDING_COLUMNS, pending),
        ]
    return [table for n, table in enumerate(tables) if n == 0 or table.rows]


def _newest(found: ReplicationStatus) -> list[ShownSnapshot]:
    """Return the newest snapshot of each partition."""
    newest = {one.partition: one for one in sorted(found.snapshots, key=lambda one: one.local_offset)}
    return [newest[partition] for partition in sorted(newest)]


def _region_row(one: RegionStatus) -> tuple[object, ...]:
    times = [_known(None if at is None else utc(at)) for at in (one.last_seen_at, one.answered_at)]
    lag = _known(one.lag_records), _known(one.lag_ms)
    return (one.region, _word(one.connected), _word(one.suspended), *lag, *times, one.problem or "")


def _short_region_row(one: RegionStatus) -> tuple[object, ...]:
    seen = "" if one.last_seen_at is None else _clock(one.last_seen_at)
    return (one.region, state_of(one), _known(one.lag_records), _known(one.lag_ms), seen)


def _offsets(one: ShownSnapshot) -> str:
    return " ".join(f"{region}:{offset}" for region, offset in sorted(one.offsets.items()))


def _skip_command(topic: str, gap: Gap) -> str:
    return f"fenceline replication skip {topic} -p {gap.partition} --from {gap.region} --to {gap.to_offset}"


def _clock(at_ms: int) -> str:
    """Return the time of day, which is enough for what is drawn again each second."""
    return utc(at_ms).partition("T")[2]


def _known(value: object) -> object:
    return "" if value is None else value


def _word(flag: bool) -> str:
    return str(flag).lower()
