"""CRC32C, which Kafka's batches and S3's checksums have in common.

Rule: the sum is computed by the processor's own instruction, and the function is bound, not wrapped. It takes ``bytes``
alone, so a caller copies a part of a larger buffer first. Even with that copy it takes an eighth of the time that a sum
without the instruction takes.
"""

from __future__ import annotations

from collections.abc import Callable

import google_crc32c

# Returns the CRC32C of all of its argument, as an unsigned 32-bit number.
crc32c: Callable[[bytes], int] = google_crc32c.value

# Returns the CRC32C of bytes with a given CRC32C, followed by its second argument.
extended: Callable[[int, bytes], int] = google_crc32c.extend
