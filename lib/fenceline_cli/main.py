"""The command line: the options of ``fenceline`` itself, and its start and end.

Not here: the commands. Each is loaded when the command is called (``command_table``).
"""

from __future__ import annotations

import gc
import os
import sys

from fenceline.quiet_start import QuietStart

with QuietStart():
    from typing import Annotated

    import typer

    from fenceline_cli import options
    from fenceline_cli.command_table import Commands
    from fenceline_cli.output import EXIT_CODES, EXIT_INTERRUPTED, carry_any_text

app = typer.Typer(
    name="fenceline",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich needs a tenth of a second to draw help
    context_settings={"max_content_width": 100},
    help="A partitioned log on object storage, with writers and readers that can be fenced.",
    epilog="Example: fenceline dev --data ./data\n\n"
    f"Example: fenceline topic create orders --partitions 8\n\n{EXIT_CODES}",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from fenceline import __version__

        typer.echo(f"fenceline {__version__}")
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
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    carry_any_text()
    try:
        app()
    except KeyboardInterrupt:  # before a command began
        sys.exit(EXIT_INTERRUPTED)
    finally:
        # At its end Python looks for garbage in all that was loaded: a tenth of a short command's time.
        gc.freeze()


if __name__ == "__main__":
    main()
