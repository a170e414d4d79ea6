"""Lists of unsigned integers as bytes: seven bits in each byte, the lowest first, and a set high bit before more.

Not here: the signed varints of Kafka's records (``format.batch``).
"""

from __future__ import annotations

from collections.abc import Sequence

_BYTE = 0x80
_SMALL = [bytes((number,)) for number in range(_BYTE)]


def pack(numbers: Sequence[int]) -> bytes:
    """Return the numbers, each 0 or more, as bytes."""
    return b"".join([_SMALL[number] if number < _BYTE else _varint(number) for number in numbers])


def _varint(number: int) -> bytes:
    packed = bytearray()
    while number >= _BYTE:
        packed.append(number & 0x7F | _BYTE)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def unpack(packed: bytes) -> list[int]:
    """Return the numbers that ``pack`` made into these bytes."""
    numbers: list[int] = []
    number = shift = at = 0
    while at < len(packed):
        byte = packed[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < _BYTE:
            numbers.append(number)
            number = shift = 0
            # Most often only the first number is large, so that all others are one byte each.
            if len(numbers) == 1 and packed[at:].isascii():
                numbers += packed[at:]
                break
    return numbers
