"""``fenceline produce`` as a process: how a signal ends it, and what it prints while the server is away."""

import ctypes
import operator
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from itertools import starmap
from types import SimpleNamespace

import pytest

from fenceline.client import Client
from fenceline_cli.commands.produce import stop as produce_input
from fenceline_cli.dev_server.process import ServerProcess
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.results import hears_ctrl_c

pytestmark = pytest.mark.slow

COMMAND = ["produce", "t", "--url"]
PROGRAM = """
from fenceline_cli import main
from fenceline_cli.commands.produce import stop as produce_input
produce_input.GRACE_S = {}
main.main()
"""


@pytest.fixture
def server(tmp_path):
    with ServerProcess(tmp_path / "data") as server:
        with Client(server.url) as client:
            client.create_topic("t")
        yield server


@pytest.fixture
def produce(server):
    """``fenceline produce`` as a process that reads from a pipe."""
    with running(server, 2) as process:
        yield process


@pytest.fixture
def patient(server):
    """One that waits for its answers as long as they take, after the first signal."""
    with running(server, 3600) as process:
        yield process


@contextmanager
def running(server, grace_s):
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(grace_s), *COMMAND, server.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=hears_ctrl_c,
        bufsize=0,
    ) as process:
        yield process
        process.kill()


def next_offset(server):
    with Client(server.url) as client:
        return client.offsets("t", 0).bounds.next_offset


def ended(process):
    """Return the exit code and stderr of a process whose input stays open."""
    process.wait(timeout=PATIENCE_S)
    assert process.stdout.read() == b""
    return process.returncode, process.stderr.read().decode()


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_records_read_before_a_signal_are_stored_and_counted(server, patient, number, exit_code):
    patient.stdin.write(b"one\n")
    wait_until(lambda: next_offset(server) == 1)
    patient.stdin.write(b"two\nthree\nno e")
    time.sleep(0.01)  # read, and not yet sent: it lingers
    patient.send_signal(number)

    code, printed = ended(patient)

    count = next_offset(server)
    assert (code, printed) == (exit_code, f"interrupted: {count} records were acknowledged, all that were read\n")
    assert count in (1, 3)


def test_a_signal_in_the_middle_of_a_fast_load_loses_nothing_that_was_read(server, patient):
    line = b"x" * 99 + b"\n"

    def is_stored():
        patient.stdin.write(line * 600)
        return next_offset(server) > 10_000

    wait_until(is_stored)
    patient.send_signal(signal.SIGINT)

    code, printed = ended(patient)

    count = next_offset(server)
    assert (code, printed) == (130, f"interrupted: {count} records were acknowledged, all that were read\n")


def test_a_signal_that_comes_as_the_wait_for_input_begins_ends_it(monkeypatch):
    """Python calls the handler after the wait: between these two calls it looks for no signal."""
    wait, woken = select.select, []

    def select_late(*fds):
        calls = [(ctypes.pythonapi.PyErr_SetInterruptEx, int(signal.SIGINT)), (wait, *fds, PATIENCE_S)]
        woken.append([*starmap(operator.call, calls)][1][0])
        return woken[-1], [], []

    monkeypatch.setattr(select, "select", select_late)
    read_end, write_end = os.pipe()
    source = SimpleNamespace(fd=read_end)
    with produce_input.Stop() as stop, pytest.raises(produce_input.StoppedReading):
        next(stop.blocks(source))
    os.close(read_end)
    os.close(write_end)
    assert (len(woken), len(woken[0]), stop.signal) == (1, 1, signal.SIGINT)


def test_an_unreachable_server_is_reported_once_and_a_signal_ends_the_wait(server, produce):
    produce.stdin.write(b"one\n")
    wait_until(lambda: next_offset(server) == 1)
    server._process.send_signal(signal.SIGSTOP)
    try:
        produce.stdin.write(b"two\nthree\n")
        assert produce.stderr.readline().startswith(b"waiting for the server: it does not answer at http://")
        os.set_blocking(produce.stderr.fileno(), False)
        time.sleep(4)
        assert produce.stderr.read() is None
        os.set_blocking(produce.stderr.fileno(), True)

        produce.send_signal(signal.SIGINT)
        code, printed = ended(produce)
    finally:
        server._process.send_signal(signal.SIGCONT)

    expected = "interrupted: 1 records were acknowledged, of 3 that were read; the others may be stored or not\n"
    assert (code, printed) == (130, expected)


def test_a_second_ctrl_c_does_not_wait_for_the_server(server, patient):
    """The first one alone would wait for an hour here."""
    patient.stdin.write(b"one\n")
    wait_until(lambda: next_offset(server) == 1)
    server._process.send_signal(signal.SIGSTOP)
    try:
        patient.stdin.write(b"two\n")
        while patient.poll() is None:
            patient.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                patient.wait(2)  # signals that it has not heard yet are one
        code, printed = ended(patient)
    finally:
        server._process.send_signal(signal.SIGCONT)

    assert code == 130
    assert printed.splitlines()[-1].startswith("interrupted: 1 records were acknowledged, of ")
