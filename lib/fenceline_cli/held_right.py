"""A right that a command holds, such as a lock: its lease, its owner's name, and its end.

Rule: such a command gives its right back at the end, or says how the right was lost.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.errors import FencelineError
from fenceline_cli import units
from fenceline_cli.output import utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.client.session import Held

EXIT_NOT_HELD = 75  # sysexits' EX_TEMPFAIL: not granted in time, or lost


def lease_seconds(text: str | float) -> float:
    """Parse a lease.

    Raises:
        BadParameter: The text is no duration, or not from one second to five minutes.
    """
    lease = units.seconds(text)
    if not 1 <= lease <= 300:
        raise typer.BadParameter(f"a lease lasts from 1s to 5m: {text}")
    return lease


LeaseSeconds = Annotated[
    float,
    typer.Option(
        "--lease",
        metavar="DURATION",
        parser=lease_seconds,
        help="How long the session outlives this process, from 1s to 5m; a plain number is in seconds.",
    ),
]
WaitSeconds = Annotated[
    float | None,
    typer.Option(
        "--wait",
        metavar="DURATION",
        parser=units.seconds,
        help="How long to wait for access, as 30s or 2m; left out, as long as it takes.",
    ),
]


def in_ms(seconds: float) -> int:
    return round(seconds * 1000)


def owner_line(client: Client, error: FencelineError, group: str | None) -> str:
    """Return a line about the owner of the resource that ``error`` refused, or the error's own if none is known."""
    with suppress(FencelineError):
        owner = client.ownership(error.resource, group=group, retry_ms=0)
        if owner.session_id is not None and owner.until is not None:
            name = owner.client_name or f"session {owner.session_id[:8]}"
            since = "" if owner.since is None else f" since {utc(owner.since)}"
            return f"held by {name}{since} until {utc(owner.until)} unless renewed"
    return error.detail


def hold(held: Held) -> None:
    """Wait until ``held`` is lost, and raise the error that says how; never return."""
    lost = threading.Event()
    held.when_lost(lambda _: lost.set())
    while not lost.wait(3600):
        pass
    held.check()


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, so that the program gives back what it holds."""

    def end(number: int, _frame: FrameType | None) -> None:
        raise typer.Exit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
