"""The treatment of freed memory by the C library of a process.

Source: mallopt(3). Not here: bounds of memory; each is where the memory is taken.
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

    A process that moves segments frees a MiB and allocates one again, hundreds of times a second. If each went back to
    the kernel, the kernel would zero its pages each time, which measured as half of the CPU time of serving a segment.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # not glibc: macOS, musl, Windows
        return False
    is_set = [mallopt(option, value) for option, value in _KEPT.items()]
    return all(is_set)
