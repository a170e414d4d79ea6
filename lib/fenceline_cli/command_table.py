"""The commands that exist, and the group that loads the module of the command that was asked for.

Rule: listing a command does not load it, because its line in ``fenceline --help`` is here. The rest of its help is in
its module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_group

from fenceline.quiet_start import QuietStart
from fenceline_cli.output import ErrorsAsLines

# A command's name, its module in `commands`, and its line of help.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "dev": ("dev", "Serve the whole HTTP API on this machine."),
    "console": ("console", "Serve the console here, in front of a service elsewhere."),
    # Commands that speak to a service, at --url.
    "topic": ("topics.command", "Create, list, describe, alter and delete topics."),
    "produce": ("produce.command", "Append a record for each line."),
    "consume": ("consume.command", "Print records, one on a line."),
    "offsets": ("topics.partitions", "Show where each partition of a topic begins and ends."),
    "trim": ("topics.partitions", "Delete every record of a partition below an offset."),
    "subscription": ("subscriptions", "Create, list, seek and delete subscriptions."),
    "group": ("groups.command", "List, show, reset and delete consumer groups."),
    "regions": ("regions", "List, suspend and resume the other regions of a topic."),
    "replication": ("replication", "Show how far regions are with a topic; snapshots and gaps."),
    "failover": ("failover.command", "Move a subscription to another region."),
    "producers": ("producers", "Show who may write to a topic and who could; claim it (PIP-68)."),
    "session": ("sessions", "List live sessions, and show what one holds."),
    "txn": ("transactions.command", "List, describe and end transactions; run a command in them."),
    "own": ("own", "Own resources, or show their owners."),
    "lock": ("lock.command", "Run a command while holding a lock."),
    # Commands that work on the stores themselves, without a service.
    "verify": ("recovery.command", "Check every segment, and the items against them."),
    "rebuild": ("recovery.command", "Make all items anew from the objects."),
    "sweep": ("sweep", "Apply retention, and delete what is no longer needed."),
    "compact": ("compact", "Compact a topic with cleanup.policy=compact."),
    "spark": ("spark.command", "Compact, archive, audit and replay topics, on Spark."),
    "check-store": ("check", "Try what the log depends on in an object store."),
    "bench": ("bench", "Measure appends, reads and access, in a checkout."),
    "cost": ("cost.command", "Print what appends and reads cost on AWS."),
}


class Loaded(Mapping[str, Any]):
    """Every command by its name, each loaded when it is looked up."""

    def __init__(self) -> None:
        self._by_module: dict[str, Mapping[str, Any]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __getitem__(self, name: str) -> Any:
        module, _ = COMMANDS[name]
        if module not in self._by_module:
            with QuietStart():
                app = import_module(f"fenceline_cli.commands.{module}").app
            around = typer.Typer(rich_markup_mode=None)
            around.add_typer(app)
            self._by_module[module] = get_group(around).commands
        return self._by_module[module][name]


class Commands(ErrorsAsLines):
    """The group ``fenceline`` itself: it lists all commands, and loads one."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands: Any = Loaded()

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, what) for name, (_, what) in COMMANDS.items()])

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        item = type(super().shell_complete(ctx, "--help")[0])  # a class that typer does not export
        return [item(name, help=what) for name, (_, what) in COMMANDS.items() if name.startswith(incomplete)]
