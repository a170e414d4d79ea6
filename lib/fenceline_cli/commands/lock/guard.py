"""The process that runs a locked command, and ends it when ``fenceline lock`` cannot.

``fenceline lock`` writes lines to a pipe, each with the number of ms for which the lease goes on.

Rule: the guard ends its process group when that time is over without another line, because ``fenceline lock`` then
hangs or is stopped. It does the same when the pipe is closed, because ``fenceline lock`` was then killed. The group is
the command, all that it started, and the guard. The guard is the command's parent, so the command never runs without
it.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time

EXIT_CANNOT_RUN = 127  # as in a shell
_GRACE_S = 2.0  # between SIGTERM and SIGKILL, while the lease goes on
_FOR_THE_COMMAND = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(pipe: int, command: list[str]) -> int:
    """Run ``command``, and return its exit code as a shell does."""
    early: list[int] = []
    # The whole group gets these signals. A handler, unlike SIG_IGN, is not inherited by the command.
    for number in _FOR_THE_COMMAND:
        signal.signal(number, lambda number, _: early.append(number))
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        print(f"error: the command {command[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return EXIT_CANNOT_RUN
    threading.Thread(target=_watch, args=(pipe,), daemon=True).start()
    for missed in early[:]:  # signals from before the command's start
        process.send_signal(missed)
    exit_code = process.wait()
    return exit_code if exit_code >= 0 else 128 - exit_code


def _watch(pipe: int) -> None:
    """End the group when the lease is over, or the process that renews it is gone."""
    deadline: float | None = None
    rest = b""
    while True:
        left_s = None if deadline is None else max(deadline - time.monotonic(), 0)
        readable, _, _ = select.select([pipe], [], [], left_s)
        if not readable:
            os.killpg(0, signal.SIGKILL)
        read = os.read(pipe, 4096)
        if not read:
            os.killpg(0, signal.SIGTERM)
            time.sleep(_GRACE_S if left_s is None else min(left_s, _GRACE_S))
            os.killpg(0, signal.SIGKILL)
        *lines, rest = (rest + read).split(b"\n")
        if lines:
            deadline = time.monotonic() + int(lines[-1]) / 1000


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
