"""Objects with a checksum of their own in their metadata."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from fenceline.adapters.sqlite.objects import SqliteObjectStore
from fenceline.format.checksummed import MEMBER, get_checked, matches, with_checksum
from fenceline.format.crc32c import crc32c, extended
from fenceline.ports import Damaged, NotFound

BODY = b"123456789"


@pytest.fixture
def objects() -> Iterator[SqliteObjectStore]:
    with closing(SqliteObjectStore(":memory:", now_ms=lambda: 0)) as store:
        yield store


def test_the_member_is_stored_under_this_name_in_eight_digits() -> None:
    """Stored: never change."""
    assert with_checksum(BODY, {"write-id": "1"}) == {"write-id": "1", "body-crc32c": "e3069283"}
    assert with_checksum(b"", {}) == {"body-crc32c": "00000000"}


def test_an_object_with_its_checksum_is_returned_and_so_is_one_of_before(objects: SqliteObjectStore) -> None:
    objects.create("new", BODY, with_checksum(BODY, {}))
    objects.create("old", BODY, {"write-id": "1"})
    assert [get_checked(objects, key).body for key in ("new", "old")] == [BODY, BODY]


@pytest.mark.parametrize("expected", ["e3069282", "E3069283", "00000000", "nonsense"])
def test_an_object_whose_checksum_is_another_is_damaged(objects: SqliteObjectStore, expected: str) -> None:
    objects.create("k", BODY, {MEMBER: expected})
    with pytest.raises(Damaged, match="restore it from a backup: key=k"):
        get_checked(objects, "k")
    with pytest.raises(NotFound):
        get_checked(objects, "absent")


def test_a_body_that_is_read_in_parts_has_the_same_checksum() -> None:
    assert extended(extended(0, BODY[:4]), BODY[4:]) == crc32c(BODY)
    assert matches("e3069283", extended(extended(0, BODY[:4]), BODY[4:]))
    assert matches("", 1)
