"""The command line: what ``fenceline`` is called with, and nothing else.

Each command lives in a module of its own, which is loaded when the command is called (``command_table``).
"""

from __future__ import annotations

import gc
import os
import sys

from fenceline_cli.quiet_start import QuietStart

with QuietStart():
    from typing import Annotated

    import typer

    from fenceline_cli import options
    from fenceline_cli.command_table import Commands
    from fenceline_cli.output import EXIT_CODES, EXIT_INTERRUPTED

app = typer.Typer(
    name="fenceline",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich draws help in a tenth of a second
    context_settings={"max_content_width": 100},
    help="A partitioned log on object storage, with writers and readers that can be fenced.",
    epilog="Example: fenceline dev --data ./data\n\n"
    f"Example: fenceline topic create orders --partitions 8\n\n{EXIT_CODES}",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib import metadata

        typer.echo(f"fenceline {metadata.version('fenceline')}")
        raise typer.Exit


@app.callback()
def everywhere(
    region: options.SigningRegion = None,
    _version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version, and end.")
    ] = False,
) -> None:
    options.signing_region.set(region)


def main() -> None:
    """Run the command of ``sys.argv``."""
    if sys.stdout is None:  # closed by who called
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    try:
        app()
    except KeyboardInterrupt:  # before a command began
        sys.exit(EXIT_INTERRUPTED)
    finally:
        gc.freeze()  # Python's end looks for garbage in all that was loaded: a tenth of a short command's time


if __name__ == "__main__":
    main()
