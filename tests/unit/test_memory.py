"""What is freed stays with the process: a second use of as much memory takes no new pages."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from fenceline import memory

PAGES = """
import resource, threading
from fenceline.memory import keep_freed
{}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def use():
    for size in (1, 3, 2):
        blocks = [b"x" * (size << 20) for _ in range(4)]
def turns():
    use()
    before = faults()
    for _ in range(10):
        use()
    print(faults() - before)
thread = threading.Thread(target=turns)
thread.start()
thread.join()
"""


def new_pages(first: str) -> int:
    command = [sys.executable, "-c", PAGES.format(first)]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has mallopt")
def test_memory_that_was_freed_is_used_again() -> None:
    assert new_pages("assert keep_freed()") * 10 < new_pages("")


def test_a_c_library_without_mallopt_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: object())
    assert not memory.keep_freed.__wrapped__()
