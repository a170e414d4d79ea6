"""The CPU time of a tree of processes, as Linux reports it in ``/proc``.

Rule: a process that has ended counts by its parent, which has waited for it. If the parent ended first, the process is
lost with the time that it used since the last look, and the time that it had used before stays counted.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

PROC = Path("/proc")
MIB = 1024 * 1024
_PARENT, _OWN, _ENDED = 1, slice(11, 13), slice(13, 15)  # within the fields after the name

Times = Mapping[int, tuple[int, int]]  # by process: ticks of its own, and those of children that it has waited for


def is_known() -> bool:
    """Return True if this machine reports what each process has used."""
    return (PROC / "self" / "stat").exists()


def children_of(pid: int) -> set[int]:
    """Return the processes that ``pid`` started and that live."""
    return {child for child, (parent, _) in _processes().items() if parent == pid}


def tree(root: int, *, without: Collection[int] = ()) -> set[int]:
    """Return a process with all that it started; ``without`` leaves out processes and all that they started."""
    return _tree(_processes(), root, without)


def times(root: int, *, without: Collection[int] = ()) -> Times:
    """Return the CPU time, of user and of system, of each process of a tree."""
    processes = _processes()
    return {pid: processes[pid][1] for pid in _tree(processes, root, without)}


def seconds_between(before: Times, after: Times) -> float:
    """Return the CPU time that a tree of processes used between two looks at it."""
    own = ended = 0
    for pid, (its_own, its_ended) in after.items():
        own_before, ended_before = before.get(pid, (0, 0))
        own += its_own - own_before
        ended += its_ended - ended_before
    known = sum(sum(ticks) for pid, ticks in before.items() if pid not in after)
    return (own + max(ended - known, 0)) / os.sysconf("SC_CLK_TCK")


def resident_mib(pid: int) -> float:
    """Return how much memory a process holds; 0 if it has ended."""
    return _status_kib(pid, "VmRSS:") / 1024


def command_of(pid: int) -> str:
    """Return a process's command; empty if it has ended."""
    try:
        return (PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


def _tree(processes: Mapping[int, tuple[int, tuple[int, int]]], root: int, without: Collection[int]) -> set[int]:
    children = defaultdict(list)
    for pid, (parent, _) in processes.items():
        children[parent].append(pid)
    found, left = set(), [root]
    while left:
        pid = left.pop()
        if pid in processes and pid not in without:
            found.add(pid)
            left += children[pid]
    return found


def _processes() -> dict[int, tuple[int, tuple[int, int]]]:
    """Return the parent and the CPU ticks of each process."""
    found = {}
    for path in PROC.glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rsplit(")", 1)[1].split()
        except (FileNotFoundError, ProcessLookupError):  # it has just ended
            continue
        found[int(path.parent.name)] = (
            int(fields[_PARENT]),
            (sum(map(int, fields[_OWN])), sum(map(int, fields[_ENDED]))),
        )
    return found


def _status_kib(pid: int, name: str) -> int:
    try:
        lines = (PROC / str(pid) / "status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)
