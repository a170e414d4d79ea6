"""What ``fenceline replication status`` prints: tables, lines for a pipe, and a terminal that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fenceline_cli.output import print_rows, table_of, utc

if TYPE_CHECKING:
    from fenceline.model.region import Gap, RegionStatus, ReplicationStatus, ShownSnapshot

REGION_COLUMNS = (
    "region", "connected", "suspended", "lag_records", "lag_ms", "last_seen_at", "answered_at", "problem",
)  # fmt: skip
GAP_COLUMNS = ("partition", "region", "from_offset", "to_offset", "records")
SNAPSHOT_COLUMNS = ("partition", "snapshot_id", "local_offset", "offsets", "completed_at", "final")
PENDING_COLUMNS = ("partition", "snapshot_id", "started_at", "waiting_for")
WATCH_COLUMNS = ("time", "region", "connected", "suspended", "lag_records", "lag_ms", "problem")
ROWS_WATCHED = 8  # of each table, so that all fits

Look = tuple["ReplicationStatus", str | None]  # and why it is not new


class Part(NamedTuple):
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]


def document(found: ReplicationStatus) -> dict[str, Any]:
    """Return a status as API.md shows it, all pages in one."""
    members = asdict(found)
    del members["has_more"]
    return members


def show(topic: str, found: ReplicationStatus) -> None:
    """Print a status once."""
    typer.echo(f"region\t{found.region}")
    typer.echo(f"skipped_records\t{found.skipped_records}")
    is_table = sys.stdout.isatty()
    for part in parts(topic, found, with_commands=not is_table):
        print_rows(part.columns, part.rows, title=part.title)
    if is_table:  # outside the table, which would break the lines
        for gap in found.gaps:
            typer.echo(_skip_command(topic, gap))


def follow(looks: Iterator[Look], *, now_ms: Callable[[], int]) -> None:
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


def redraw(topic: str, looks: Iterator[Look]) -> None:
    """Show each status in the place of the one before; the last one stays on the terminal."""
    from rich.live import Live  # only here: loading it takes longer than most commands

    with Live(auto_refresh=False) as live:
        for found, trouble in looks:
            live.update(drawn(topic, found, trouble), refresh=True)


def drawn(topic: str, found: ReplicationStatus, trouble: str | None) -> Any:
    """Return what a terminal shows of one look."""
    from rich.console import Group
    from rich.text import Text

    heading = f"{topic} in {found.region}, skipped_records={found.skipped_records}   (Ctrl-C ends)"
    shown: list[Any] = [Text(heading)]
    if trouble is not None:
        shown.append(Text(f"no newer answer: {trouble}", style="red"))
    for part in parts(topic, found):
        shown.append(table_of(part.columns, part.rows[:ROWS_WATCHED], title=part.title))
        if len(part.rows) > ROWS_WATCHED:
            shown.append(Text(f"… and {len(part.rows) - ROWS_WATCHED} others"))
    shown += [Text(_skip_command(topic, gap)) for gap in found.gaps[:ROWS_WATCHED]]
    return Group(*shown)


def parts(topic: str, found: ReplicationStatus, *, with_commands: bool = False) -> list[Part]:
    """Return the tables of a status; only that of the regions may be without rows.

    Args:
        with_commands: Add to each gap the command that gives it up.
    """
    gap_columns = (*GAP_COLUMNS, "command") if with_commands else GAP_COLUMNS
    gaps = [
        (*(getattr(gap, name) for name in GAP_COLUMNS), *([_skip_command(topic, gap)] if with_commands else []))
        for gap in found.gaps
    ]
    pending: list[tuple[object, ...]] = [
        (one.partition, one.snapshot_id, utc(one.started_at), " ".join(one.waiting_for)) for one in found.pending
    ]
    newest = {one.partition: one for one in sorted(found.snapshots, key=lambda one: one.local_offset)}
    snapshots = [_snapshot_row(newest[partition]) for partition in sorted(newest)]
    all_parts = [
        Part("gaps", gap_columns, gaps),
        Part("newest snapshots", SNAPSHOT_COLUMNS, snapshots),
        Part("snapshots under way", PENDING_COLUMNS, pending),
    ]
    regions = Part("regions", REGION_COLUMNS, [_region_row(one) for one in found.regions])
    return [regions, *(part for part in all_parts if part.rows)]


def _region_row(one: RegionStatus) -> tuple[object, ...]:
    times = [_known(None if at is None else utc(at)) for at in (one.last_seen_at, one.answered_at)]
    lag = _known(one.lag_records), _known(one.lag_ms)
    return (one.region, _word(one.connected), _word(one.suspended), *lag, *times, one.problem or "")


def _snapshot_row(one: ShownSnapshot) -> tuple[object, ...]:
    offsets = " ".join(f"{region}:{offset}" for region, offset in sorted(one.offsets.items()))
    return one.partition, one.snapshot_id, one.local_offset, offsets, utc(one.completed_at), _word(one.final)


def _skip_command(topic: str, gap: Gap) -> str:
    return f"fenceline replication skip {topic} -p {gap.partition} --from {gap.region} --to {gap.to_offset}"


def _known(value: object) -> object:
    return "" if value is None else value


def _word(flag: bool) -> str:
    return str(flag).lower()
