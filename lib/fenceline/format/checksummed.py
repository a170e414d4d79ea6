"""Objects whose body has its own checksum beside it: topic objects, those under ``state/``, and files of views.

Rule: the checksum is a member of the user metadata, so every store keeps it, and it travels with a copy. The checksum
is checked when the whole object is read. An object without a checksum is from an earlier version, and is accepted. The
name is stored: never rename.

Not here: segments, whose chain value covers them.
"""

from __future__ import annotations

from collections.abc import Mapping

from fenceline.format.crc32c import crc32c
from fenceline.ports import Damaged, Object, ObjectStore

MEMBER = "body-crc32c"


def with_checksum(body: bytes, metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata with the checksum of ``body``, in eight hexadecimal digits."""
    return {**metadata, MEMBER: _digits(crc32c(body))}


def matches(stored: str, crc: int) -> bool:
    """Return True if a body with this CRC32C may have been stored with that member, where "" is none."""
    return stored in ("", _digits(crc))


def get_checked(objects: ObjectStore, key: str) -> Object:
    """Return the whole object.

    Raises:
        NotFound: No object exists at ``key``.
        Damaged: Its body is not what was stored.
        Unavailable: The store could not be asked.
    """
    found = objects.get(key)
    if not matches(found.metadata.get(MEMBER, ""), crc32c(found.body)):
        raise Damaged(f"the object is not what was stored; restore it from a backup: key={key}")
    return found


def _digits(crc: int) -> str:
    return f"{crc:08x}"
