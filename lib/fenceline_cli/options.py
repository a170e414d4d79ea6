"""Options that several commands share, and the values that commands make of them: a client, an answer, partitions.

Not here: the options that name stores (``stores``), and those of a single command.
"""

from __future__ import annotations

import os
import re
import socket
import sys
from contextvars import ContextVar
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from fenceline.errors import FencelineError
from fenceline.quiet_start import QuietStart
from fenceline_cli.output import CommandError

if TYPE_CHECKING:
    from fenceline.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
_HOST_CHARS_MAX = 200
_COMPLETION_MS = 500
_COMPLETIONS_MAX = 100
_RETRY_MS = 2_000  # short: a person at a terminal prefers an error to a long wait

Url = Annotated[str, typer.Option("--url", envvar="FENCELINE_URL", metavar="URL", help="The URL of the service.")]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that a shell may complete: none if no server answers at once."""
    url, region = ctx.params.get("url") or DEFAULT_URL, ctx.find_root().params.get("region")
    try:
        with sys.modules[__name__].Client(url, timeout_ms=_COMPLETION_MS, retry_ms=0, region=region) as client:
            return [topic.name for topic in islice(client.topics(prefix=incomplete), _COMPLETIONS_MAX)]
    except FencelineError:
        return []


TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The topic's name.", autocompletion=topic_names, show_default=False)
]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Act under this session, which 'own' or 'producers claim' holds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs; errors, too.")]
IsSure = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
OnePartition = Annotated[int | None, typer.Option(min=0, help="Move only this partition; left out, all.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Move nothing: show how many records would be skipped, or come again.")
]

# Copies of the client's own types, because importing them would load the client only to show help.
InitialPosition = Literal["latest", "earliest"]
Isolation = Literal["read_uncommitted", "read_committed"]
AccessMode = Literal["Shared", "Exclusive", "WaitForExclusive", "ExclusiveWithFencing"]
Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]


SigningRegion = Annotated[
    str | None,
    typer.Option(
        "--region",
        envvar="FENCELINE_AWS_REGION",
        metavar="REGION",
        help="The region of a service on AWS, given before the command; signs requests with your credentials.",
    ),
]


# The option --region, which is given before the command, for every command that speaks to a service.
signing_region: ContextVar[str | None] = ContextVar("signing_region", default=None)


def __getattr__(name: str) -> Any:
    """Load the client when it is first asked for, because it is most of a command's start."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # httpx would import its own command line, and with it rich.
    cast("dict[str, Any]", sys.modules).setdefault("httpx._main", None)
    with QuietStart():
        from fenceline.client import Client

    return Client


def connect(url: str, **given: Any) -> Client:
    """Return a client of the service at ``url``; ``given`` are further arguments of ``Client``."""
    arguments = {"retry_ms": _RETRY_MS, "region": signing_region.get(), "client_name": _client_name(), **given}
    client: Client = sys.modules[__name__].Client(url, **arguments)
    return client


def _client_name() -> str:
    """Return the name that people find this process by: its host and pid."""
    host = re.sub(r"[^!-~]", "?", socket.gethostname())[:_HOST_CHARS_MAX]
    return f"{host}:{os.getpid()}"


def can_answer() -> bool:
    """Return True if a person can answer a question: lines of a pipe are no answers."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(is_sure: bool, question: str, what: str) -> None:
    """Return if ``question`` was answered with yes, or need not be asked.

    Raises:
        CommandError: There is no terminal to ask at; ``what`` says in a sentence what would be lost.
        Abort: The answer is no.
        KeyboardInterrupt: Ctrl-C was pressed instead of an answer.
    """
    if is_sure:
        return
    if not can_answer():
        raise CommandError(f"there is no terminal to ask for confirmation, and {what}; say --yes")
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            typer.echo(err=True)  # ends the question's line
            raise KeyboardInterrupt from None
        raise


def partitions_of(client: Client, topic: str, partition: int | None) -> list[int]:
    """As ``chosen_partitions``; the service says how many ``topic`` has."""
    return chosen_partitions(topic, client.topic(topic).partitions, partition)


def chosen_partitions(topic: str, count: int, partition: int | None) -> list[int]:
    """Return the partitions that a command works on: the one that it was given, or all ``count`` of ``topic``.

    Raises:
        CommandError: The topic has no such partition.
    """
    if partition is None:
        return list(range(count))
    if not 0 <= partition < count:
        raise CommandError(f"topic {topic} has no partition {partition}; it has 0 to {count - 1}")
    return [partition]
