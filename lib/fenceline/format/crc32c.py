"""CRC32C, which Kafka's batches and S3's checksums have in common."""

from __future__ import annotations

import google_crc32c


def crc32c(data: bytes | memoryview) -> int:
    """Return the CRC32C of all of ``data``, as an unsigned 32-bit number.

    A view is copied first. Even so it takes an eighth of the time that it takes without the processor's instruction.
    """
    checksum: int = google_crc32c.value(bytes(data))
    return checksum
