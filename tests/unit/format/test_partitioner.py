import pytest

from fenceline.format.partitioner import murmur2, partition_of


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(key, expected):
    """The vectors are those of Kafka's own UtilsTest."""
    assert murmur2(key) == expected


def test_murmur2_agrees_with_another_implementation_for_keys_of_every_length():
    from aiokafka.partitioner import murmur2 as theirs

    for length in range(70):
        for first in (0, 1, 127, 128, 255):
            key = bytes((first + 37 * at) % 256 for at in range(length))
            assert murmur2(key) & 0xFFFFFFFF == theirs(key) & 0xFFFFFFFF, key


def test_a_partition_is_the_hash_without_its_sign_bit_modulo_the_partitions():
    assert partition_of(b"21", 8) == (-973932308 & 0x7FFFFFFF) % 8
    assert {partition_of(str(key).encode(), 3) for key in range(100)} == {0, 1, 2}
