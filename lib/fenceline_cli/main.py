"""The command line: what ``fenceline`` is called with, and nothing else. Each command lives in a module of its own."""

from __future__ import annotations

import sys

from fenceline_cli.quiet_start import QuietStart

with QuietStart():  # what follows takes most of a second
    from importlib import metadata
    from typing import Annotated

    import typer

    from fenceline_cli import (
        bench_command,
        check_command,
        compact_command,
        consume_command,
        cost_command,
        dev_command,
        lock_command,
        options,
        own_command,
        partition_commands,
        produce_command,
        producer_commands,
        store_commands,
        subscription_commands,
        sweep_command,
        topic_commands,
    )
    from fenceline_cli.output import EXIT_INTERRUPTED, ErrorsAsLines

app = typer.Typer(
    name="fenceline",
    cls=ErrorsAsLines,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="A partitioned log on object storage, with writers and readers that can be fenced.",
    epilog="Example: fenceline dev --data ./data\n\nExample: fenceline topic create orders --partitions 8",
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
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


app.add_typer(dev_command.app)

# Commands that speak to a service, at --url.
app.add_typer(topic_commands.app, name="topic")
app.add_typer(produce_command.app)
app.add_typer(consume_command.app)
app.add_typer(partition_commands.app)
app.add_typer(subscription_commands.app, name="subscription")
app.add_typer(producer_commands.app, name="producers")
app.add_typer(own_command.app)
app.add_typer(lock_command.app)

# Commands that work on the stores themselves, without a service.
app.add_typer(store_commands.app)
app.add_typer(sweep_command.app)
app.add_typer(compact_command.app)
app.add_typer(check_command.app)
app.add_typer(bench_command.app)
app.add_typer(cost_command.app)


def main() -> None:
    """Run the command of ``sys.argv``."""
    try:
        app()
    except KeyboardInterrupt:  # before a command began
        sys.exit(EXIT_INTERRUPTED)


if __name__ == "__main__":
    main()
