"""Options that several commands share, and what they are made into."""

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
from fenceline_cli.output import CommandError
from fenceline_cli.quiet_start import QuietStart

if TYPE_CHECKING:
    from fenceline.client import Client

DEFAULT_URL = "http://127.0.0.1:8080"
_HOST_CHARS_MAX = 200
_COMPLETION_MS = 500
_COMPLETIONS_MAX = 100
_RETRY_MS = 2_000  # who sits before a terminal would rather hear of it

Url = Annotated[str, typer.Option("--url", envvar="FENCELINE_URL", metavar="URL", help="Where the service is.")]


def topic_names(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the topics that a shell may complete: none where no server answers at once."""
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
    typer.Option("--session", metavar="ID", help="Under this session, which 'own' or 'producers claim' holds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs; an error as well.")]
IsSure = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

# The client's own words, which would load all of it only to show help.
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
        help="Before the command: the region of a service on AWS; requests are then signed by your credentials.",
    ),
]


# What was said before the command, for every one that speaks to a service.
signing_region: ContextVar[str | None] = ContextVar("signing_region", default=None)


def __getattr__(name: str) -> Any:
    """Load the client when it is first asked for: most of the time that a command takes to start."""
    if name != "Client":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # httpx looks for its own command line, and for all that this one draws with, when it is imported.
    cast("dict[str, Any]", sys.modules).setdefault("httpx._main", None)
    with QuietStart():
        from fenceline.client import Client

    return Client


def connect(url: str) -> Client:
    made = sys.modules[__name__].Client
    client: Client = made(url, retry_ms=_RETRY_MS, region=signing_region.get(), client_name=_client_name())
    return client


def _client_name() -> str:
    """Return how this process is found again: its host and pid."""
    host = re.sub(r"[^!-~]", "?", socket.gethostname())[:_HOST_CHARS_MAX]
    return f"{host}:{os.getpid()}"


def is_somebody_there() -> bool:
    """Whether a question can be answered: lines of a pipe are no answers."""
    return sys.stdin is not None and sys.stdin.isatty()


def confirm(is_sure: bool, question: str, what: str) -> None:
    """Return if ``question`` was answered with yes, or need not be asked.

    Raises:
        CommandError: Nobody is there to answer; ``what`` says in a sentence what would be lost.
        Abort: The answer is no.
    """
    if is_sure:
        return
    if not is_somebody_there():
        raise CommandError(f"{what}: say --yes")
    typer.confirm(question, abort=True, err=True)


def partitions_of(client: Client, topic: str, partition: int | None) -> list[int]:
    """Return the partitions that a command is about: the one it was given, or all that ``topic`` has.

    Raises:
        CommandError: The topic has no such partition.
    """
    count = client.topic(topic).partitions
    if partition is None:
        return list(range(count))
    if not 0 <= partition < count:
        raise CommandError(f"{topic} has no partition {partition}; it has 0 to {count - 1}")
    return [partition]
