"""The README's commands, as a stranger types them, against a server of their own."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import PATIENCE_S
from tests.support.readme import COMMANDS, commands_of

BIN = Path(sys.executable).parent


class Stranger:
    """A stranger who types the README's commands in an empty folder, and chooses only the port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.create_server(("127.0.0.1", 0)) as taken:
            self._port = taken.getsockname()[1]
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(BIN)

    def _environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FENCELINE")}
        return {**kept, "FENCELINE_URL": f"http://127.0.0.1:{self._port}"}

    def start(self, command: str) -> subprocess.Popen[str]:
        """Start the server, and return it when it is ready."""
        asked = command.partition("&")[0]
        dev = subprocess.Popen(
            ["bash", "-c", f"exec {asked} --port {self._port}"],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            text=True,
        )
        assert dev.stdout is not None
        assert any(f"127.0.0.1:{self._port}" in line for line in dev.stdout)
        # Its further output must not block it.
        threading.Thread(target=dev.stdout.read, daemon=True).start()
        return dev

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
    dev.terminate()
    dev.wait(PATIENCE_S)
    assert dev.stdout is not None
    dev.stdout.close()


@pytest.mark.slow
def test_the_readmes_commands_do_what_they_say(stranger: Stranger) -> None:
    by_hand, over_http, copying, one_writer, exactly_once = (commands_of(COMMANDS[at]) for at in (1, 2, 3, 4, 5))

    create, produce, consume, verify = map(stranger.run, by_hand[1:])
    assert "created orders partitions=4" in create
    assert "1" in produce
    assert consume == "ann\t1 book\n"
    assert "orders" in verify

    append, read = map(stranger.run, over_http)
    assert re.findall(r'"count":\s*(\d)', append) == ["1", "1"]
    assert '"error"' not in append
    assert '"position"' in read

    created, _, shown = map(stranger.run, copying)
    assert "created copy partitions=4" in created
    lines = [line.split(" ", 3) for line in shown.splitlines() if line]  # topic, partition, offset, key and value
    assert sorted((topic, rest) for topic, _, _, rest in lines) == [
        ("copy", "ann 1 book"),
        ("copy", "ann 2 books"),
        ("copy", "zoe 1 book"),
    ]

    assert stranger.run(one_writer[2]) == "reported\n"

    *_, shouted = map(stranger.run, exactly_once[:3])
    assert sorted(shouted.split()) == ["1", "1", "2", "BOOK", "BOOK", "BOOKS"]
