"""Options that several commands share, and what they are made into."""

from __future__ import annotations

import os
import re
import socket
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Annotated

import typer

from fenceline.client import Client
from fenceline_cli.output import CommandError

DEFAULT_URL = "http://127.0.0.1:8080"
_HOST_CHARS_MAX = 200
_RETRY_MS = 2_000  # who sits before a terminal would rather hear of it

Url = Annotated[str, typer.Option("--url", envvar="FENCELINE_URL", metavar="URL", help="Where the service is.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Session = Annotated[
    str | None,
    typer.Option("--session", metavar="ID", help="Under this session, which 'own' or 'producers claim' holds."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


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


def connect(url: str) -> Client:
    return Client(url, retry_ms=_RETRY_MS, region=signing_region.get(), client_name=_client_name())


def _client_name() -> str:
    """Return how this process is found again: its host and pid."""
    host = re.sub(r"[^!-~]", "?", socket.gethostname())[:_HOST_CHARS_MAX]
    return f"{host}:{os.getpid()}"


def timestamp_of(text: str, where: str) -> int:
    """Return the ms of a time that stands behind an @; ``where`` is what takes it."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise CommandError(f"{where} @ takes a time in ISO form, such as @2026-11-20T08:00:00Z: {text}") from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


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
