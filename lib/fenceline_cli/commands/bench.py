"""``fenceline bench``: the benchmarks of a checkout, which have this command's options. The wheel has none of them."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from fenceline_cli.output import EXIT_MISUSED, fail

NOT_HERE = (
    "the benchmarks are in fenceline's repository, and not installed; in a checkout run 'make bench', or 'make bench"
    " ARGS=…' with these options"
)


def _app(root: Path) -> typer.Typer:
    """Return the command: that of the benchmarks below ``root``, or one that says where they are."""
    if (root / "benchmarks" / "command.py").is_file():
        if str(root) not in sys.path:
            sys.path.insert(0, str(root))
        found: typer.Typer = import_module("benchmarks.command").app
        return found
    absent = typer.Typer()
    any_options: dict[Any, Any] = {"allow_extra_args": True, "ignore_unknown_options": True}

    @absent.command(context_settings=any_options)
    def bench() -> None:
        """Measure appends, reads and access: in a checkout of fenceline's repository, which has the benchmarks."""
        fail(NOT_HERE, exit_code=EXIT_MISUSED)

    return absent


app = _app(Path(__file__).parents[3])
