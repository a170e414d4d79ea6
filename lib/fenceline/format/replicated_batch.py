"""A batch as another region appends it ("Pulling").

Rule: a source's producers, their sequences and transactions are removed from the batch's header, because they count in
the source's log alone. The records' bytes stay as their producer encoded them.

Not here: the base offset and the epoch in the target's log, which are stamped at each attempt; see
``append.entries.replicated``.
"""

from __future__ import annotations

from fenceline.format.batch import HEADER_BYTES, TRANSACTIONAL, BatchHeader, assemble


def stripped(body: bytes, at: int, header: BatchHeader) -> bytes:
    """Return the batch at ``at`` without its producer and its transaction, with a CRC that fits. It is never decoded.

    A marker is returned as it is.

    Args:
        header: The batch's header, already parsed.
    """
    if header.is_control or not (header.is_transactional or header.has_producer or header.base_sequence >= 0):
        return body[at : at + header.size]
    plain = header._replace(
        attributes=header.attributes & ~TRANSACTIONAL, producer_id=-1, producer_epoch=-1, base_sequence=-1
    )
    return assemble(plain, memoryview(body)[at + HEADER_BYTES : at + header.size])
