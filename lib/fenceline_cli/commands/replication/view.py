"""What ``fenceline replication status`` prints: tables, lines for a pipe, and a terminal that is redrawn."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import typer

from fenceline_cli.commands.regions import state_of
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
ROWS_DRAWN = 8  # of each table, so that all fits on a terminal

Look = tuple["ReplicationStatus", str | None]  # and why it is not new


class Part(NamedTuple):
    """One table."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[object, ...]]


def document(found: ReplicationStatus) -> dict[str, Any]:
    """Return a status as API.md shows it, all pages in one."""
    members = asdict(found)
    del members["has_more"]
    return members


def show(topic: str, found: ReplicationStatus) -> None:
    """Print a status once."""
    if sys.stdout.isatty():
        from rich.console import Console  # only here: loading it takes longer than most commands

        Console().print(drawn(topic, found))
        return
    typer.echo(f"region\t{found.region}")
    typer.echo(f"skipped_records\t{found.skipped_records}")
    for part in _parts(topic, found):
        print_rows(part.columns, part.rows)


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
    from rich.live import Live  # only here, too

    with Live(auto_refresh=False) as live:
        for found, trouble in looks:
            live.update(drawn(topic, found, trouble), refresh=True)


def drawn(topic: str, found: ReplicationStatus, trouble: str | None = None) -> Any:
    """Return what a terminal shows: short enough for 80 columns, and for a few rows of each table."""
    from rich.console import Group
    from rich.text import Text

    shown: list[Any] = [Text(f"{topic} in region {found.region}   skipped records: {found.skipped_records:,}")]
    if trouble is not None:
        shown.append(Text(f"no newer answer: {trouble}", style="red"))
    for part in _short_parts(found):
        shown.append(table_of(part.columns, part.rows[:ROWS_DRAWN], title=part.title))
        if len(part.rows) > ROWS_DRAWN:
            shown.append(Text(f"… and {len(part.rows) - ROWS_DRAWN} others"))
    # Outside the tables, which would break the lines.
    shown += [Text(f"{one.region}: {one.problem}", style="red") for one in found.regions if one.problem is not None]
    shown += [Text(_skip_command(topic, gap)) for gap in found.gaps[:ROWS_DRAWN]]
    return Group(*shown)


def _parts(topic: str, found: ReplicationStatus) -> list[Part]:
    """Return the tables of a status; only that of the regions may be without rows."""
    columns = (*GAP_COLUMNS, "command")
    gaps = [(*_gap_row(gap), _skip_command(topic, gap)) for gap in found.gaps]
    snapshots = [
        (one.partition, one.snapshot_id, one.local_offset, _offsets(one), utc(one.completed_at), _word(one.final))
        for one in _newest(found)
    ]
    pending = [
        (one.partition, one.snapshot_id, utc(one.started_at), " ".join(one.waiting_for)) for one in found.pending
    ]
    return [
        Part("regions", REGION_COLUMNS, [_region_row(one) for one in found.regions]),
        *_with_rows(
            Part("gaps", columns, gaps),
            Part("newest snapshots", SNAPSHOT_COLUMNS, snapshots),
            Part("snapshots under way", PENDING_COLUMNS, pending),
        ),
    ]


def _short_parts(found: ReplicationStatus) -> list[Part]:
    """Return the same tables for a terminal: ids and times are cut short, and what is wrong is left out."""
    regions = [
        (one.region, state_of(one), _known(one.lag_records), _known(one.lag_ms), _clock(one.last_seen_at))
        for one in found.regions
    ]
    snapshots = [
        (
            one.partition,
            one.snapshot_id[:8],
            one.local_offset,
            _offsets(one),
            _clock(one.completed_at),
            _word(one.final),
        )
        for one in _newest(found)
    ]
    pending = [
        (one.partition, one.snapshot_id[:8], _clock(one.started_at), " ".join(one.waiting_for)) for one in found.pending
    ]
    return [
        Part("regions", ("region", "state", "lag in records", "lag in ms", "last seen"), regions),
        *_with_rows(
            Part("gaps", GAP_COLUMNS, [_gap_row(gap) for gap in found.gaps]),
            Part("newest snapshots", ("partition", "id", "offset here", "offsets", "at", "final"), snapshots),
            Part("snapshots under way", ("partition", "id", "since", "waiting for"), pending),
        ),
    ]


def _with_rows(*parts: Part) -> list[Part]:
    return [part for part in parts if part.rows]


def _newest(found: ReplicationStatus) -> list[ShownSnapshot]:
    """Return the newest snapshot of each partition."""
    newest = {one.partition: one for one in sorted(found.snapshots, key=lambda one: one.local_offset)}
    return [newest[partition] for partition in sorted(newest)]


def _gap_row(gap: Gap) -> tuple[object, ...]:
    return gap.partition, gap.region, gap.from_offset, gap.to_offset, gap.records


def _region_row(one: RegionStatus) -> tuple[object, ...]:
    times = [_known(None if at is None else utc(at)) for at in (one.last_seen_at, one.answered_at)]
    lag = _known(one.lag_records), _known(one.lag_ms)
    return (one.region, _word(one.connected), _word(one.suspended), *lag, *times, one.problem or "")


def _offsets(one: ShownSnapshot) -> str:
    return " ".join(f"{region}:{offset}" for region, offset in sorted(one.offsets.items()))


def _skip_command(topic: str, gap: Gap) -> str:
    return f"fenceline replication skip {topic} -p {gap.partition} --from {gap.region} --to {gap.to_offset}"


def _clock(at_ms: int | None) -> str:
    """Return the time of day, which is enough for what is drawn again each second."""
    return "" if at_ms is None else utc(at_ms).partition("T")[2]


def _known(value: object) -> object:
    return "" if value is None else value


def _word(flag: bool) -> str:
    return str(flag).lower()
