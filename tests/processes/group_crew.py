"""The members of a group as processes: what is done to them, and what they have reported.

Not here: what a member does (``group_member``), and what must hold of what it reported (``group_story``).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tests.processes.group_story import Story
from tests.support.patience import PATIENCE_S, wait_until

TOPIC, GROUP = "orders", "billing"
LONGEST_S = 600  # for each wait, on a slow machine
PAUSE_S = 0.1


class Member:
    """A member's process, and the file that it reports to."""

    def __init__(self, name: str, url: str, directory: Path) -> None:
        self.name = name
        self._path = directory / name
        self._path.touch()
        self._read = 0
        command = [sys.executable, "-m", "tests.processes.group_member", url, TOPIC, GROUP, str(self._path)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)

    def events(self) -> Iterator[dict[str, object]]:
        """Yield what it has reported since the last time."""
        with self._path.open("rb") as file:
            file.seek(self._read)
            whole, end, _ = file.read().rpartition(b"\n")
        self._read += len(whole + end)
        for line in whole.splitlines():
            yield json.loads(line)

    def tell_to_freeze(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("freeze\n")
        self._process.stdin.flush()

    def send(self, sent: signal.Signals) -> None:
        self._process.send_signal(sent)

    def end(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()

    def wait(self) -> int:
        try:
            return self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:  # it has not joined yet
            self._process.kill()
            return self._process.wait()


class Crew:
    """The members, and their story."""

    def __init__(self, urls: list[str], directory: Path, partitions: int) -> None:
        self._urls = urls
        self._directory = directory
        self._partitions = partitions
        self._awake: dict[str, Member] = {}
        self._frozen: dict[str, Member] = {}
        self._started = 0
        self.story = Story()
        self.done: Counter[str] = Counter()

    def start(self) -> None:
        name = f"m{self._started:02}"
        self._awake[name] = Member(name, self._urls[self._started % len(self._urls)], self._directory)
        self._started += 1

    def look(self) -> None:
        """Read what the members have reported since the last look, and a little after it."""
        time.sleep(PAUSE_S)  # here, because a process that waits must leave the processor to the servers
        for name, member in [*self._awake.items(), *self._frozen.items()]:
            for event in member.events():
                if event["event"] == "freezes":
                    self._freeze(name, event["at"])
                self.story.hear(name, event)

    def kill(self, name: str) -> None:
        self.done["killed"] += 1
        at, member = time.monotonic(), self._awake[name]
        member.send(signal.SIGKILL)
        member.end()
        member.wait()
        self.look()
        self.story.silence(name, at)
        del self._awake[name]

    def freeze(self, name: str) -> None:
        """Freeze a member wherever it is."""
        at = time.monotonic()
        self._awake[name].send(signal.SIGSTOP)
        self.look()
        self._freeze(name, at)

    def freeze_before_commit(self, name: str) -> None:
        self._awake[name].tell_to_freeze()
        wait_until(lambda: self._has_frozen(name), patience_s=LONGEST_S)

    def _has_frozen(self, name: str) -> bool:
        self.look()
        return name in self._frozen

    def _freeze(self, name: str, at: object) -> None:
        assert isinstance(at, float)
        self.done["frozen"] += 1
        self.story.silence(name, at)
        self._frozen[name] = self._awake.pop(name)

    def thaw(self) -> None:
        for member in self._frozen.values():
            member.send(signal.SIGCONT)
        self._awake |= self._frozen
        self._frozen = {}

    @property
    def awake(self) -> list[str]:
        return sorted(self._awake)

    def is_whole(self) -> bool:
        """Return True if each partition has a member that is awake, and each such member has one."""
        self.look()
        holders = self.story.holders()
        return len(holders) == self._partitions and {*holders.values()} == self._awake.keys()

    def end(self) -> None:
        self.thaw()
        for member in self._awake.values():
            member.end()
        codes = {name: member.wait() for name, member in self._awake.items()}
        assert not any(codes.values()), codes
