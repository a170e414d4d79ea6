"""``fenceline bench``: the log's cost on this machine, or on a bucket and a table, as ratios."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline_cli.options import AsJson
from fenceline_cli.output import CommandError, print_json, print_rows
from fenceline_cli.stores import Items, Objects, chosen, prepare

if TYPE_CHECKING:
    from fenceline_cli.benchmark.run import Row

app = typer.Typer()


@app.command(
    epilog="Example: fenceline bench\n\nExample: fenceline bench --json > bench.json\n\n"
    "Example: fenceline bench --objects s3://my-bucket/bench --items dynamodb://my-table"
)
def bench(
    as_json: AsJson = False,
    directory: Annotated[
        Path | None, typer.Option("--directory", help="The directory to write to, on the disk to measure.")
    ] = None,
    objects: Objects = "",
    items: Items = "",
    slow_endpoint: Annotated[
        str, typer.Option("--slow-endpoint", metavar="URL", help="The same S3 with 30 ms added to each request.")
    ] = "",
) -> None:
    """Measure appends against bare creates, how cost grows, access, transactions; on a bucket reads, rivals, requests.

    The command takes a few minutes and needs no server. It removes what it wrote; on S3 a sweeper collects the rest.
    """

    def report_part(name: str) -> None:
        typer.echo(f"measuring {name} …", err=True)

    if objects or items:
        if directory is not None:
            raise CommandError("two places to measure are named; give either --directory, or --objects and --items")
        from fenceline_cli.benchmark.s3 import S3Bench  # only here: needs fenceline[aws]

        settings = chosen(None, objects, items)
        prepare(settings, is_create=True)
        on_s3 = S3Bench(settings, slow_endpoint=slow_endpoint)
        on_s3.run(on_part=report_part)
        _show(on_s3.rows, as_json=as_json)
        return
    from fenceline_cli.benchmark import access, transactions
    from fenceline_cli.benchmark.run import Bench

    with tempfile.TemporaryDirectory(dir=directory) as scratch:
        run = Bench(Path(scratch))
        run.run(on_part=report_part)
        report_part("exclusive access")
        rows = [*run.rows, *access.measure(Path(scratch))]
        report_part("transactions")
        rows += transactions.measure(Path(scratch))
    _show(rows, as_json=as_json)


def _show(rows: Sequence[Row], *, as_json: bool) -> None:
    if as_json:
        print_json([dataclasses.asdict(row) for row in rows])
    else:
        print_rows(
            ("what", "value", "unit", "goal"), [(row.what, f"{row.value:,.3f}", row.unit, row.goal) for row in rows]
        )
