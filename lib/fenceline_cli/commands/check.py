"""``fenceline check-store``: a long test of what the log depends on in an object store."""

from __future__ import annotations

import typer

from fenceline.ports import NoAnswer, Unavailable
from fenceline.recovery.store_check import examine
from fenceline_cli.options import AsJson
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows
from fenceline_cli.stores import Data, Items, Objects, opened

app = typer.Typer()

COLUMNS = ("property", "result")


@app.command(
    name="check-store",
    epilog="Example: fenceline check-store --objects s3://my-bucket --items dynamodb://my-table\n\n"
    "Example: fenceline check-store --data ./data",
)
def check_store(data: Data = None, objects: Objects = "", items: Items = "", as_json: AsJson = False) -> None:
    """Try every property of the object store that the log depends on, above all a race of creates for one key.

    The command may run beside servers: it writes below probe/, and deletes what it wrote. The exit code is 1 if a
    property does not hold: such a store loses acknowledged records.
    """
    with opened(data, None, objects, items) as context:
        try:
            report = examine(context.objects, context.runtime.fresh_id())
        except (Unavailable, NoAnswer) as fact:
            raise CommandError(
                f"the store stopped answering before the check was complete; try again: {fact}"
            ) from fact
    if as_json:
        print_json(
            [{"property": found.what, "holds": found.holds, "broken": found.broken} for found in report.findings]
        )
    else:
        rows = [(found.what, "ok" if found.holds else f"BROKEN: {found.broken}") for found in report.findings]
        print_rows(COLUMNS, rows)
    if not report.is_sound:
        raise typer.Exit(EXIT_FAILED)
