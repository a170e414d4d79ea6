"""How the C library of a process treats memory that was freed.

Source: mallopt(3). Not here: how much memory anything takes; that is bounded where it is taken.
"""

from __future__ import annotations

import ctypes
from functools import cache

_MIB = 1024 * 1024
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3  # glibc's numbers
_KEPT = {_TRIM_THRESHOLD: 32 * _MIB, _TOP_PAD: 16 * _MIB, _MMAP_THRESHOLD: 8 * _MIB}


@cache
def keep_freed() -> bool:
    """Let this process keep what it frees, up to 32 MiB at the end of a heap; return whether its C library can.

    A process that moves segments frees a MiB and takes one again, hundreds of times a second. The kernel would take
    each back and hand out zeroed pages: half of the CPU time of serving a segment, as measured.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, musl, Windows
        return False
    is_set = [mallopt(option, value) for option, value in _KEPT.items()]
    return all(is_set)
