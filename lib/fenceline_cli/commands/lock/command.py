"""``fenceline lock``: a command that runs only while a resource is owned.

Rule: the command is ended, with all that it started, the moment the lock is lost, and at the latest when the lease is
over, even if this process is stopped or killed (``guard``).

Because a frozen machine ends nothing, a system that the command changes should check FENCELINE_FENCING_TOKEN.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from fenceline.errors import FencelineError, ResourceOwnedError, SessionExpiredError
from fenceline_cli.commands.own import Generation, Group
from fenceline_cli.held_right import EXIT_NOT_HELD, LeaseSeconds, WaitSeconds, ending_in_order, in_ms, owner_line
from fenceline_cli.options import DEFAULT_URL, Url, connect
from fenceline_cli.output import describe, fail

if TYPE_CHECKING:
    from fenceline.client import Owner

app = typer.Typer()

_GRACE_S = 2.0  # between SIGTERM and SIGKILL
_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@app.command(
    epilog="Example: fenceline lock nightly-report -- ./report.sh --all\n\n"
    "Example: fenceline lock nightly-report --wait 0 -- ./report.sh"
)
def lock(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="Any name; its owner holds the lock.")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND", help="What to run, after two dashes.")],
    group: Group = None,
    generation: Generation = None,
    wait: WaitSeconds = None,
    lease: LeaseSeconds = 30,
    url: Url = DEFAULT_URL,
) -> None:
    """Run a command while holding a lock, and end it the moment the lock is lost.

    The exit code is the command's, or 75 if the lock was not granted in time, or was lost. The command's environment
    has FENCELINE_RESOURCE, FENCELINE_GENERATION, FENCELINE_FENCING_TOKEN and FENCELINE_SESSION_ID.
    """
    with ending_in_order(), connect(url) as client:

        def tell(error: FencelineError) -> None:
            typer.echo(f"waiting for {resource}: {owner_line(client, error, group)}", err=True)

        try:
            owner = client.own(
                resource,
                group=group,
                generation=generation,
                wait_ms=None if wait is None else in_ms(wait),
                lease_ms=in_ms(lease),
                on_wait=None if wait == 0 else tell,
            )
        except ResourceOwnedError as error:
            fail(describe(error), exit_code=EXIT_NOT_HELD)
        with owner:
            exit_code = _run(command, owner)
    raise typer.Exit(exit_code)


def _run(command: list[str], owner: Owner) -> int:
    was_ended = threading.Event()
    with _signals() as signals:
        guard, pipe = _start(command, owner)
        try:
            signals.go_to(guard.pid)

            def end(_error: FencelineError) -> None:
                if guard.returncode is None:
                    was_ended.set()
                    _signal(guard.pid, signal.SIGTERM)
                    timer = threading.Timer(_GRACE_S, _signal, (guard.pid, signal.SIGKILL))
                    timer.daemon = True
                    timer.start()

            owner.when_lost(end)
            with _in_foreground(guard.pid):
                exit_code = guard.wait()
        finally:
            pipe.close()  # ends a command that still runs
    if exit_code < 0 or was_ended.is_set():
        _signal(guard.pid, signal.SIGKILL)  # for what the command started
        loss = owner.loss or SessionExpiredError("this process did not renew the lease in time")
        fail(
            f"{loss.code}: {loss.detail}; the lock was lost, so the command was ended",
            exit_code=EXIT_NOT_HELD,
        )
    return exit_code


def _start(command: list[str], owner: Owner) -> tuple[subprocess.Popen[bytes], BinaryIO]:
    """Start the command under its guard; return the guard, which leads their process group, and the pipe to it."""
    read_end, write_end = os.pipe()
    pipe = os.fdopen(write_end, "wb", buffering=0)
    try:
        guard = subprocess.Popen(
            # -P: modules in the present directory are for the command, not for the guard.
            [sys.executable, "-P", "-m", "fenceline_cli.commands.lock.guard", str(read_end), *command],
            env=_environment(owner),
            pass_fds=(read_end,),
            process_group=0,
        )
    finally:
        os.close(read_end)

    def renew() -> None:
        with suppress(OSError, ValueError):  # guard ended, or pipe closed
            pipe.write(f"{owner.session.left_ms}\n".encode())

    renew()
    owner.session.when_renewed(renew)
    return guard, pipe


def _environment(owner: Owner) -> dict[str, str]:
    ((resource, owned),) = owner.owned.items()
    return {
        **os.environ,
        "FENCELINE_RESOURCE": resource,
        "FENCELINE_GENERATION": str(owned.generation),
        "FENCELINE_FENCING_TOKEN": str(owned.fencing_token),
        "FENCELINE_SESSION_ID": owner.session_id,
    }


class _Signals:
    """The signals that would end this process: it passes them to the command, and goes on waiting for it."""

    def __init__(self) -> None:
        self._process_group: int | None = None
        self._early: list[int] = []

    def go_to(self, process_group: int) -> None:
        self._process_group = process_group
        for number in self._early:
            _signal(process_group, number)

    def forward(self, number: int, _frame: FrameType | None) -> None:
        if self._process_group is None:
            self._early.append(number)
        else:
            _signal(self._process_group, number)


@contextmanager
def _signals() -> Iterator[_Signals]:
    signals = _Signals()
    before = {number: signal.signal(number, signals.forward) for number in _FORWARDED}
    try:
        yield signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _in_foreground(process_group: int) -> Iterator[None]:
    """Let the command read from the terminal, if there is one: only one process group at a time may do so."""
    if not sys.stdin.isatty() or os.tcgetpgrp(sys.stdin.fileno()) != os.getpgrp():
        yield
        return
    terminal, mine = sys.stdin.fileno(), os.getpgrp()
    before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)  # else taking the terminal back would stop this process
    os.tcsetpgrp(terminal, process_group)
    _signal(process_group, signal.SIGCONT)  # for a command that has asked for input already
    try:
        yield
    finally:
        with suppress(OSError):  # terminal gone
            os.tcsetpgrp(terminal, mine)
        signal.signal(signal.SIGTTOU, before)


def _signal(process_group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # ended by itself
        os.killpg(process_group, number)
