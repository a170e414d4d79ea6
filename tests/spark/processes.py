"""Processes that a test starts to kill or to stop them, with all that they start in their turn.

Rule: only processes of a session that was begun here are signalled, each by its id.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.spark.gates import Hold
from tests.support.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
PATIENCE_OF_SPARK_S = 10 * PATIENCE_S  # it takes ten seconds to start where nothing else runs


class Session:
    """A process, and all that it starts.

    Args:
        log: Where all of them write.
    """

    def __init__(self, command: Sequence[str], environ: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("w") as written:
            # A session of its own, so that all of its processes can be found, those too that leave its group.
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, **environ},
                stdin=subprocess.DEVNULL,
                stdout=written,
                stderr=written,
                start_new_session=True,
            )

    def wait(self) -> int:
        """Return the exit code, once the first process has ended by itself."""
        return self._process.wait(PATIENCE_OF_SPARK_S)

    def meets(self, hold: Hold) -> None:
        """Return once a process has made the request that ``hold`` waits for."""
        deadline = time.monotonic() + PATIENCE_OF_SPARK_S
        while not hold.reached.wait(0.1):
            assert self._process.poll() is None, f"ended before {hold.request}: {self.output()}"
            assert time.monotonic() < deadline, f"never asked for {hold.request}: {self.output()}"

    def output(self) -> str:
        return self._log.read_text()

    def kill(self) -> None:
        """End every process at once, as ``kill -9`` does."""
        while self._signalled(signal.SIGKILL):
            time.sleep(0.01)
        self._process.wait()

    def stop(self) -> None:
        """Let no process go on, until ``go_on``."""
        self._signalled(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signalled(signal.SIGCONT)

    def processes(self) -> Iterator[int]:
        """Yield the processes that are alive."""
        for path in Path("/proc").iterdir():
            if path.name.isdigit():
                with suppress(ProcessLookupError, FileNotFoundError):
                    # After the command's name, which may have spaces: state, parent, group, session (proc(5)).
                    state, _, _, session = (path / "stat").read_text().rpartition(")")[2].split()[:4]
                    if int(session) == self._process.pid and state not in "ZX":
                        yield int(path.name)

    def _signalled(self, sent: signal.Signals) -> list[int]:
        found = list(self.processes())
        for pid in found:
            with suppress(ProcessLookupError):  # it ended by itself
                os.kill(pid, sent)
        return found


@contextmanager
def session(command: Sequence[str], environ: Mapping[str, str], log: Path) -> Iterator[Session]:
    """Lend a session, of which nothing is left at the end."""
    lent = Session(command, environ, log)
    try:
        yield lent
    finally:
        lent.kill()


def kill_the_sender(port: int, *sessions: Session) -> None:
    """Kill the one process whose end of a connection is ``port``."""
    (sender,) = (pid for each in sessions for pid in each.processes() if port in _ports_of(pid))
    os.kill(sender, signal.SIGKILL)


def _ports_of(pid: int) -> set[int]:
    """Return the local ports of a process's TCP connections."""
    mine = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            mine.add(os.readlink(link))
    lines = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]
    ]
    return {int(line[1].rpartition(":")[2], 16) for line in lines if f"socket:[{line[9]}]" in mine}
