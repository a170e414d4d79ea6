"""What ports.py promises of an object store, for every adapter."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from fenceline.ports import AlreadyExists, NotFound
from tests.contract.stores import OpenObjects, now_ms
from tests.support.tries import tries

MIB = 1024 * 1024
ODD_KEYS = ["a", "a b", "a%20b", "a+b", "a/", "a/b", "a=b&c", "aé", "a\ue000", "a😀", "Z", "~"]


def fill(objects: OpenObjects, keys: list[str]) -> None:
    for key in keys:
        objects.create(key, key.encode(), {})


def keys_of(objects: OpenObjects, prefix: str, start_after: str = "", limit: int = 1000) -> list[str]:
    return [summary.key for summary in objects.list(prefix, start_after, limit)]


@pytest.mark.parametrize("body", [b"", b"x", bytes(range(256)), os.urandom(MIB), os.urandom(4 * MIB + 1)], ids=len)
def test_an_object_comes_back_as_it_was_created(objects: OpenObjects, body: bytes) -> None:
    metadata = {"write-id": "0123abcd", "chain": "ff" * 32, "empty": "", "spaced": "a, b;c=d"}
    objects.create("log/x/00000/1.log", body, metadata)
    found = objects.get("log/x/00000/1.log")
    assert (found.key, found.body, found.size) == ("log/x/00000/1.log", body, len(body))
    assert found.metadata == metadata


def test_metadata_names_come_back_in_lower_case(objects: OpenObjects) -> None:
    objects.create("k", b"", {"Write-Id": "AbC"})
    assert objects.get("k").metadata == {"write-id": "AbC"}


def test_a_second_create_is_refused_and_changes_nothing(objects: OpenObjects) -> None:
    objects.create("k", b"first", {"n": "1"})
    with pytest.raises(AlreadyExists):
        objects.create("k", b"second", {"n": "2"})
    found = objects.get("k")
    assert (found.body, found.metadata) == (b"first", {"n": "1"})
    assert [summary.size for summary in objects.list("")] == [5]


def test_an_absent_object_is_not_found_and_can_then_be_created(objects: OpenObjects) -> None:
    objects.create("k/1", b"", {})
    for absent in ("k", "k/", "k/2", "K/1"):
        with pytest.raises(NotFound):
            objects.get(absent)
        with pytest.raises(NotFound):
            objects.get(absent, 0, 10)
        objects.create(absent, b"", {})


@pytest.mark.parametrize("size", [100, 3 * MIB])
def test_a_range_is_the_slice_of_the_body(objects: OpenObjects, size: int) -> None:
    body = os.urandom(size)
    objects.create("k", body, {"n": "1"})
    for start, end in [(0, 1), (0, size), (7, 61), (size // 2, size // 2 + 40), (size - 1, size), (5, 5), (1, None)]:
        found = objects.get("k", start, end)
        assert found.body == body[start:end], (start, end)
        assert (found.size, found.metadata) == (size, {"n": "1"})


def test_a_range_beyond_the_end_is_cut_there(objects: OpenObjects) -> None:
    objects.create("k", b"0123456789", {})
    objects.create("empty", b"", {})
    assert objects.get("k", 8, 1000).body == b"89"
    assert objects.get("k", 10, 20).body == b""
    assert objects.get("k", 500, None).body == b""
    assert objects.get("empty", 0, 10).body == b""


def test_a_listing_is_in_the_order_of_utf_8_bytes(objects: OpenObjects) -> None:
    fill(objects, list(reversed(ODD_KEYS)))
    assert keys_of(objects, "") == sorted(ODD_KEYS, key=str.encode)


def test_a_listing_has_sizes_and_modification_times(objects: OpenObjects) -> None:
    before = now_ms()
    objects.create("a", b"123", {"n": "1"})
    objects.create("b", b"", {})
    first, second = objects.list("")
    assert (first.size, second.size) == (3, 0)
    # The store's clock may be another machine's, and may count in seconds.
    for summary in (first, second):
        assert abs(summary.modified_at - before) < 60_000
        assert abs(objects.get(summary.key).modified_at - summary.modified_at) < 1_000
        assert objects.get(summary.key, 0, 1).modified_at == objects.get(summary.key).modified_at


def test_a_listing_goes_on_behind_the_last_key(objects: OpenObjects) -> None:
    keys = [f"p/{n:03d}" for n in range(10)]
    fill(objects, [*keys, "o", "p+", "p0", "q"])
    assert keys_of(objects, "p/", limit=4) == keys[:4]
    assert keys_of(objects, "p/", keys[3], limit=4) == keys[4:8]
    assert keys_of(objects, "p/", keys[7], limit=4) == keys[8:]
    assert keys_of(objects, "p/", keys[9], limit=4) == []


def test_a_listing_may_start_between_before_and_behind_the_prefix(objects: OpenObjects) -> None:
    fill(objects, ["p/1", "p/3", "q"])
    assert keys_of(objects, "p/", "p/2") == ["p/3"]
    assert keys_of(objects, "p/", "a") == ["p/1", "p/3"]
    assert keys_of(objects, "p/", "p/") == ["p/1", "p/3"]
    assert keys_of(objects, "p/", "p/1") == ["p/3"]
    assert keys_of(objects, "p/", "q") == []


@pytest.mark.parametrize("prefix", ["a", "a/", "a\ud7ff", "a😀", "a%", "A", "\U0010ffff"])
def test_a_prefix_takes_what_begins_with_it_and_nothing_else(objects: OpenObjects, prefix: str) -> None:
    keys = [*ODD_KEYS, "a\ud7ff", "a\ud7ff\U0010ffff", "a😀b", "\U0010ffff\U0010ffff"]
    fill(objects, keys)
    assert keys_of(objects, prefix) == sorted((key for key in keys if key.startswith(prefix)), key=str.encode)


def test_fewer_than_the_limit_means_that_there_are_no_more(objects: OpenObjects) -> None:
    # S3 lists a thousand keys at a time.
    keys = [f"{n:05d}" for n in range(1_020)]
    fill(objects, keys)
    assert keys_of(objects, "", limit=1_010) == keys[:1_010]
    assert keys_of(objects, "", limit=2_000) == keys


def test_a_deleted_object_is_gone_and_its_key_free(objects: OpenObjects) -> None:
    objects.create("k", b"old", {"n": "1"})
    objects.create("l", b"other", {})
    objects.delete("k")
    with pytest.raises(NotFound):
        objects.get("k")
    assert keys_of(objects, "") == ["l"]
    objects.create("k", b"new", {"n": "2"})
    assert (objects.get("k").body, objects.get("k").metadata) == (b"new", {"n": "2"})
    assert objects.get("l").body == b"other"


def test_deleting_what_is_absent_does_nothing(objects: OpenObjects) -> None:
    objects.create("k", b"", {})
    objects.delete("k/1")
    assert keys_of(objects, "") == ["k"]


TEXT = st.text(st.sampled_from("ab/é😀\U0010ffff"), min_size=1, max_size=5)


@tries(40, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(
    st.sets(TEXT, max_size=12),
    st.text("ab/é😀\U0010ffff", max_size=2),
    st.text("ab/é😀", max_size=3),
    st.integers(1, 5),
)
def test_any_listing_is_the_sorted_slice_of_the_keys(
    objects: OpenObjects, keys: set[str], prefix: str, start_after: str, limit: int
) -> None:
    for summary in objects.list(""):
        objects.delete(summary.key)
    fill(objects, list(keys))
    ordered = sorted(keys, key=str.encode)
    expected = [key for key in ordered if key.startswith(prefix) and key.encode() > start_after.encode()]
    assert keys_of(objects, prefix, start_after, limit) == expected[:limit]
