"""Kafka's placement: the partition of a key, and the coordinator shard of a group or transactional id.

Rule: the partition is ``(murmur2(key) & 0x7fffffff) mod partitions``, over the key's bytes as they are sent. The shard
is ``(hash & 0x7fffffff) mod 50``, where the hash is Java's, over the UTF-16 units of the text.

Not here: records without a key; the client picks their partition.
"""

from __future__ import annotations

import struct

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF
# Shifting one integer is fastest for keys up to this length. Beyond it, the cost would grow with the length's square.
_SHORT_BYTES = 64


def murmur2(data: bytes) -> int:
    """Return Kafka's 32-bit murmur2 of ``data``, signed as in Java (``common.utils.Utils.murmur2``)."""
    left = len(data)
    h = _SEED ^ left
    if left > _SHORT_BYTES:
        left &= 3
        whole = len(data) - left
        for (word,) in struct.iter_unpack("<I", memoryview(data)[:whole]):
            k = word * _M & _MASK
            h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
        data = data[whole:]
    rest = int.from_bytes(data, "little")
    while left >= 4:
        k = (rest & _MASK) * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
        rest >>= 32
        left -= 4
    if left:
        h = (h ^ rest) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & 0x80000000 else h


def partition_of(key: bytes, partitions: int) -> int:
    """Return the partition of ``key`` among ``partitions``."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


COORDINATOR_SHARDS = 50  # as many as Kafka's topics of offsets and transactions have partitions; stored: never change


def coordinator_shard(text: str) -> int:
    """Return the shard that coordinates a group or a transactional id (FIND_COORDINATOR)."""
    h = 0
    for (unit,) in struct.iter_unpack("<H", text.encode("utf-16-le")):
        h = (31 * h + unit) & _MASK
    return (h & 0x7FFFFFFF) % COORDINATOR_SHARDS
