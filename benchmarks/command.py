"""``fenceline bench``: the log's cost on this machine, or on a bucket and a table, as ratios."""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchmarks import parts
from fenceline_cli.options import AsJson
from fenceline_cli.output import CommandError, print_json, print_rows
from fenceline_cli.stores import Items, Objects, chosen, prepare

if TYPE_CHECKING:
    from benchmarks.figures import Row

app = typer.Typer()


@app.command(
    epilog="Example: fenceline bench\n\nExample: fenceline bench --json > bench.json\n\n"
    "Example: fenceline bench --part appends --part http\n\n"
    "Example: fenceline bench --objects s3://my-bucket/bench --items dynamodb://my-table\n\n"
    "Example: fenceline bench --objects s3://my-bucket/bench --items dynamodb://my-table --part combining --seconds 10"
)
def bench(
    as_json: AsJson = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="The directory to write to, on the disk to measure.")
    ] = None,
    objects: Objects = "",
    items: Items = "",
    part: Annotated[
        list[str] | None,
        typer.Option(
            "--part",
            metavar="NAME",
            help=f"Measure this part alone; repeat for more. In a directory: {', '.join(parts.ON_DISK)}."
            f" On a bucket: {', '.join(parts.ON_BUCKET)}.",
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option("--seconds", min=0.1, help="On a bucket: how long each race of processes lasts.")
    ] = 20.0,
    slow_endpoint: Annotated[
        str, typer.Option("--slow-endpoint", metavar="URL", help="The same S3 with 30 ms added to each request.")
    ] = "",
    latencies: Annotated[
        Path | None,
        typer.Option("--latencies", help="On a bucket: the file to write each race's latencies to, in ms, as JSON."),
    ] = None,
) -> None:
    """Measure appends against bare creates, how cost grows, access, transactions; on a bucket reads, races, requests.

    On a bucket, up to 64 processes append to one partition, near it, and with --slow-endpoint also 30 ms away. Then
    clients of one server do.

    The command takes a few minutes and needs no server. It removes what it wrote; on S3 a sweeper collects the rest.
    """

    def report_part(name: str) -> None:
        typer.echo(f"measuring {name} …", err=True)

    names = _named(parts.ON_BUCKET if objects or items else parts.ON_DISK, part or [])
    if objects or items:
        if directory is not None:
            raise CommandError("two places to measure are named; give either --directory, or --objects and --items")
        from benchmarks.on_bucket import S3Bench  # only here: needs fenceline-log[aws]

        settings = chosen(None, objects, items)
        prepare(settings, is_create=True)
        on_s3 = S3Bench(settings, slow_endpoint=slow_endpoint, seconds=seconds)
        on_s3.run(names, on_part=report_part)
        if latencies is not None:
            latencies.write_text(json.dumps(on_s3.latencies))
        _show(on_s3.rows, as_json=as_json)
        return
    _show(_measure_on_disk(names, directory, report_part), as_json=as_json)


def _named(known: Mapping[str, str], given: Sequence[str]) -> list[str]:
    try:
        return parts.chosen(known, given)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="'--part'") from error


def _measure_on_disk(names: Sequence[str], directory: Path | None, on_part: Callable[[str], None]) -> list[Row]:
    from benchmarks import access, on_disk, transactions

    measures: Mapping[str, Callable[[Path], list[Row]]] = {
        "appends": on_disk.appends,
        "sizes": on_disk.sizes,
        "http": on_disk.http,
        "access": access.measure,
        "transactions": transactions.measure,
    }
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        for name in names:
            on_part(parts.ON_DISK[name])
            rows += measures[name](Path(scratch))
    return rows


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print_rows(
            ("what", "value", "unit", "goal"), [(row.what, f"{row.value:,.3f}", row.unit, row.goal) for row in rows]
        )
