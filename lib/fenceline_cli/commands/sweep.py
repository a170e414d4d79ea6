"""``fenceline sweep``: retention and collection on the stores themselves, beside a server or without one."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from fenceline import limits
from fenceline.service.log import Log
from fenceline.sweeper.sweep import sweep as sweep_stores
from fenceline_cli import units
from fenceline_cli.options import AsJson
from fenceline_cli.output import EXIT_FAILED, print_json, print_rows
from fenceline_cli.stores import Data, Items, Objects, Region, opened

app = typer.Typer()

_NO_END_S = 7 * 86_400
COUNTS = (
    "topics",
    "partitions",
    "checkpoints",
    "log_starts",
    "states",
    "compactions",
    "transactions",
    "transactions_overdue",
    "transactions_ahead",
    "transactions_hanging",
    "objects",
    "items",
)


def _seconds(text: str | float) -> float:
    seconds = units.seconds(text)
    if seconds < 1:
        raise typer.BadParameter(f"takes at least 1s: {text}")
    return seconds


@app.command(epilog="Example: fenceline sweep --data ./data\n\nExample: fenceline sweep --data ./data --seconds 30")
def sweep(
    data: Data = None,
    objects: Objects = "",
    items: Items = "",
    seconds: Annotated[
        float,
        typer.Option(
            metavar="DURATION",
            parser=_seconds,
            show_default="7d",
            help="How long to work at most, as 30s or 5m; the next run continues.",
        ),
    ] = _NO_END_S,
    as_json: AsJson = False,
    region: Region = "local",
) -> None:
    """Move log starts by retention, and delete what has not been needed for an hour or longer.

    The command goes once over everything. It also brings checkpoints forward, compacts what is due, finishes deletions
    of topics, and expires producers. It ends transactions that are decided, or whose time-out is over, and reports
    those that hang, and those that a wrong clock has begun. It may run beside servers and other sweepers, and be ended
    at any time.

    The columns count what was done; "objects" and "items" are those deleted, and "transactions" those ended. The exit
    code is 1 if anything went wrong, or hangs.
    """
    with opened(data, region, objects, items) as context:
        log = Log(context.objects, context.items, context.runtime, region=region)
        report = sweep_stores(log, duration_ms=round(seconds * 1_000), deletes_max=limits.INT64_MAX, is_thorough=True)
    assert report is not None  # `None` only for a caller that asks for a pause
    counts = asdict(report)
    if as_json:
        print_json(counts)
    else:
        print_rows(
            (*COUNTS, "result"), [(*(counts[name] for name in COUNTS), "whole" if report.is_whole else "to go on")]
        )
    for problem in report.problems:
        typer.echo(f"error: {problem}", err=True)
    if report.problems:
        raise typer.Exit(EXIT_FAILED)
