"""Compiled modules without their symbols, which are a third of their size, and which no loader reads.

Rule: the bytes that a process maps into its memory stay as they are. Only the section headers go, and what is after the
last mapped byte. This works for every machine's modules, which the ``strip`` of this machine does not.
"""

from __future__ import annotations

import struct
from pathlib import Path

_MAGIC = b"\x7fELF\x02\x01"  # 64 bits, the least significant byte first
# Places in the file header.
_PROGRAM_HEADERS, _PROGRAM_HEADER_SIZE, _SECTION_HEADERS, _SECTION_COUNT = 32, 54, 40, 60
# Places in a program header.
_OFFSET, _SIZE = 8, 32


def stripped(module: bytes) -> bytes:
    """Return a module without symbols; what is no ELF file, as it is."""
    if not module.startswith(_MAGIC):
        return module
    (first,) = struct.unpack_from("<Q", module, _PROGRAM_HEADERS)
    size, count = struct.unpack_from("<HH", module, _PROGRAM_HEADER_SIZE)
    mapped = bytearray(module[: max(_end(module, first + at * size) for at in range(count))])
    struct.pack_into("<Q", mapped, _SECTION_HEADERS, 0)
    struct.pack_into("<HH", mapped, _SECTION_COUNT, 0, 0)  # and the index of their names
    return bytes(mapped)


def _end(module: bytes, header: int) -> int:
    (offset,) = struct.unpack_from("<Q", module, header + _OFFSET)
    (size,) = struct.unpack_from("<Q", module, header + _SIZE)
    return int(offset + size)


def strip(directory: Path) -> None:
    """Strip every compiled module below ``directory``."""
    for path in directory.rglob("*.so*"):
        module = path.read_bytes()
        if len(lean := stripped(module)) < len(module):
            path.write_bytes(lean)
