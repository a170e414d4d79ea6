"""The README's commands, as a stranger types them, against a server of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.readme import COMMANDS, commands_of

BIN = Path(sys.executable).parent
FENCELINE = ".venv/bin/fenceline"


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in taken]


class Stranger:
    """A stranger who types the README's commands in an empty folder, and chooses only the port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (self._port,) = free_ports(1)
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(BIN)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCELINE")}
        return {**kept, "FENCELINE_URL": f"http://127.0.0.1:{self._port}"}

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start a server, on the port that it names or on one that is free, and return it when it is ready."""
        asked = command.partition("&")[0]
        port = re.search(r"--port (\d+)", asked)
        dev = subprocess.Popen(
            ["bash", "-c", f"exec {asked}" if port else f"exec {asked} --port {self._port}"],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert dev.stdout is not None
        assert any(f"127.0.0.1:{port[1] if port else self._port}" in line for line in dev.stdout)
        # Its further output must not block it.
        threading.Thread(target=dev.stdout.read, daemon=True).start()
        return dev

    def end(self, dev: subprocess.Popen[str]) -> None:
        dev.terminate()
        dev.wait(PATIENCE_S)
        assert dev.stdout is not None
        dev.stdout.close()

    def run(self, command: str) -> str:
        asked = command.replace("localhost:8080", f"127.0.0.1:{self._port}")
        ended = subprocess.run(
            ["bash", "-o", "pipefail", "-c", asked],
            cwd=self._folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[Stranger]:
    typing = Stranger(tmp_path)
    (tmp_path / "report.sh").write_text("#!/bin/sh\necho reported\n")
    (tmp_path / "report.sh").chmod(0o755)
    dev = typing.start(commands_of(COMMANDS[1])[0])
    yield typing
    typing.end(dev)


@pytest.mark.slow
def test_the_readmes_commands_do_what_they_say(stranger: Stranger) -> None:
    by_hand, over_http, copying, one_writer, exactly_once = (commands_of(COMMANDS[at]) for at in (1, 2, 3, 4, 5))

    create, produce, consume, verify = map(stranger.run, by_hand[1:])
    assert "created orders partitions=4" in create
    assert "1" in produce
    assert consume == "ann\t1 book\n"
    assert "orders" in verify

    append, read = map(stranger.run, over_http)
    assert re.findall(r'"count":\s*(\d)', append) == ["1"]
    assert '"error"' not in append
    assert '"position"' in read

    created, _ = map(stranger.run, copying)
    assert "created copy partitions=4" in created
    shown = stranger.run(f"{FENCELINE} consume copy --until end --format '%t %p %o %k %s\n'")
    lines = [line.split(" ", 3) for line in shown.splitlines() if line]  # topic, partition, offset, key and value
    assert sorted((topic, rest) for topic, _, _, rest in lines) == [
        ("copy", "ann 1 book"),
        ("copy", "ann 2 books"),
    ]

    assert stranger.run(one_writer[3]) == "reported\n"

    for command in exactly_once[:2]:
        stranger.run(command)
    shouted = stranger.run(f"{FENCELINE} consume shouted --until end --isolation read_committed")
    assert sorted(shouted.split()) == ["1", "2", "BOOK", "BOOKS"]


@pytest.mark.slow
def test_the_readmes_two_regions_fail_over(tmp_path: Path) -> None:
    typing = Stranger(tmp_path)
    block = "\n".join(commands_of(COMMANDS[6]))
    for shown, port in zip(("8081", "8082"), free_ports(2), strict=True):
        block = block.replace(shown, str(port))
    first, second, *others, example = block.splitlines()
    assert "examples/failover.py" in example  # test_failover_example.py
    with ExitStack() as stack:
        for dev in (first, second):
            stack.callback(typing.end, typing.start(dev))
        printed = typing.run("set -e\n" + "\n".join(others))
    assert printed.count("created shop partitions=1") == 2
    assert "equal" in printed
