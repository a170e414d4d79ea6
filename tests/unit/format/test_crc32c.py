"""CRC32C, by the examples of RFC 3720, B.4, and against aiokafka's."""

from __future__ import annotations

import google_crc32c
import pytest
from aiokafka.record.util import calc_crc32c

from fenceline.format.crc32c import crc32c


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0),
        (b"123456789", 0xE3069283),
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
    ],
)
def test_the_examples_of_the_rfc(data: bytes, expected: int) -> None:
    assert crc32c(data) == crc32c(bytes(memoryview(bytearray(data)))) == expected


def test_a_part_of_a_batch_is_summed_as_aiokafka_sums_it() -> None:
    body = memoryview(bytes(range(256)) * 300)
    for start in (0, 1, 21, 70_000):
        assert crc32c(bytes(body[start:])) == calc_crc32c(body[start:])


def test_a_mutable_buffer_is_refused() -> None:
    for data in (memoryview(b"1"), bytearray(b"1")):
        with pytest.raises(TypeError):
            crc32c(data)


def test_the_processor_computes_it() -> None:
    assert google_crc32c.implementation == "c"
