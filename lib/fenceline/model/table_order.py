"""The order in which records of one key replace each other in a table (``compaction.order``, KIP-280).

Rule: by ``offset`` the later record wins. By ``timestamp`` the record with the greatest time wins, then that of the
greatest name of a region, then the later record. A record without a time, -1, is the lowest. Within one region's
records the offsets here follow the offsets there, so all regions that have the same records come to the same table,
in whichever order the records arrived.

Not here: which view has which order; see ``compaction``.
"""

from __future__ import annotations

import struct

from fenceline.model.results import ReadRecord

_NUMBER = struct.Struct(">Q")


def rank(timestamp: int, region: str, offset: int) -> bytes:
    """Return the rank of a record by ``timestamp``: of two of one key the greater one wins, as bytes compare.

    Args:
        region: The region that produced the record.
    """
    return b"%b%b\0%b" % (_NUMBER.pack(max(timestamp, -1) + 1), region.encode(), _NUMBER.pack(offset))


class Winners:
    """The ranks of the records that a reader of a table by ``timestamp`` has kept, by key.

    The reader needs them because a record behind a view's horizon may lose against one that was read before it. They
    take about a hundred bytes a key, beside the key.
    """

    def __init__(self) -> None:
        self._ranks: dict[bytes, bytes] = {}

    def is_kept(self, record: ReadRecord) -> bool:
        """Return True if this record replaces what was kept of its key; it is kept then. One without a key always is.

        Args:
            record: One with its origin, as ``identity`` gives it.
        """
        if record.key is None:
            return True
        mine = rank(record.timestamp, record.origin or "", record.offset)
        if mine < self._ranks.get(record.key, b""):
            return False
        self._ranks[record.key] = mine
        return True
