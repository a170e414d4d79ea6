"""Offers and rounds as they are stored, and what is decided about them (I16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.append.checks import Terms
from fenceline.append.combining.offers import (
    LOST,
    Offer,
    Round,
    free_offers,
    is_young,
    leave,
    new_ids,
    offer_from_item,
    offer_to_value,
    without_absent,
)
from fenceline.append.entries.batch import BatchEntry, is_small_batch
from fenceline.format import keys
from fenceline.format.batch import encode
from fenceline.format.item_size import size_of
from fenceline.model.record import Record
from fenceline.ports import Item

NOW_MS = 1_700_000_000_000
IDS = st.from_regex(r"[\w-]{11}", fullmatch=True)


def entry(value: bytes = b"v", **terms: Any) -> BatchEntry:
    checked = encode([Record(value)], now_ms=NOW_MS, producer_id=7, producer_epoch=1, base_sequence=5)
    given_terms = {"expected_offset": None, "checks_expected_offsets": True, "producer_expiration_ms": 1_000, **terms}
    return BatchEntry(checked, Terms(**given_terms), is_log_append_time=False)


def item(offered: BatchEntry, offer_id: str = "abcdefghijk", **changes: Any) -> Item:
    value = {**offer_to_value(offered, NOW_MS), **changes}
    return Item(keys.offer_item("t", 3, NOW_MS, offer_id), 11, value)


def offer(offer_id: str) -> Offer:
    found = offer_from_item(item(entry(), offer_id))
    assert found is not None
    return found


@pytest.mark.parametrize("expected", [None, -1, 9, (9,), (-1,)])
def test_an_offer_is_read_back_with_its_terms(expected: Any) -> None:
    made = entry(expected_offset=expected)
    found = offer_from_item(item(made))
    assert found is not None
    assert (found.id, found.version, found.offered_at) == ("abcdefghijk", 11, NOW_MS)
    assert (found.entry.terms, found.entry.batch.body) == (made.terms, made.batch.body)
    assert found.entry.batch.header == made.batch.header


@pytest.mark.parametrize("is_checked", [True, False])
@pytest.mark.parametrize("is_log_append_time", [True, False])
def test_an_offer_says_whether_expectations_are_checked_and_whose_time_it_takes(
    is_checked: bool, is_log_append_time: bool
) -> None:
    made = replace(entry(checks_expected_offsets=is_checked), is_log_append_time=is_log_append_time)
    found = offer_from_item(item(made))
    assert found is not None
    assert found.entry.terms.checks_expected_offsets is is_checked
    assert found.entry.is_log_append_time is is_log_append_time


def test_an_unknown_or_damaged_item_is_no_offer() -> None:
    """A newer version's offer may have terms that would be passed over; a damaged one is not committed."""
    body = entry().batch.body
    assert offer_from_item(item(entry(), session="s")) is None
    assert offer_from_item(item(entry(), batch=body[:-1] + b"?")) is None
    assert offer_from_item(item(entry(), batch=body[:20])) is None


def test_ids_ascend_in_the_order_of_the_queue_and_fit_a_list_in_metadata() -> None:
    ids = new_ids([bytes([n] * 8) for n in (200, 3, 77)])
    assert ids == sorted(ids)
    assert {len(one) for one in ids} == {11}
    listed = ",".join(["x" * 11] * limits.OFFERS_BOUND_MAX)
    assert len(listed) < 1_024, "of the 2 KB that S3 takes of metadata"


def test_only_small_plain_batches_are_offered() -> None:
    plain = entry()
    assert is_small_batch(plain)
    assert not is_small_batch(entry(b"x" * limits.OFFER_BYTES_MAX))
    for terms in ({"session": object()}, {"ended": ("s", 1)}, {"transactional_id": "t"}):
        assert not is_small_batch(replace(plain, terms=plain.terms._replace(**terms)))  # type: ignore[arg-type]
    assert not is_small_batch(object())


def test_a_small_batch_with_many_expected_offsets_is_not_offered() -> None:
    """The offer's item holds them, too: 20,000 of them count 280 KB, and 25 offers of one write 7 MB."""
    plain = entry()
    wide = replace(plain, terms=plain.terms._replace(expected_offset=tuple(range(10**12, 10**12 + 20_000))))
    assert size_of(item(wide).key, offer_to_value(wide, 1)) > 10 * limits.OFFER_BYTES_MAX
    assert wide.size == plain.size
    assert not is_small_batch(wide)
    assert is_small_batch(replace(plain, terms=plain.terms._replace(expected_offset=tuple(range(100)))))


@given(st.integers(0, 2**60), st.lists(IDS, unique=True), st.dictionaries(IDS, st.integers(-1, 2**60)))
def test_a_round_is_read_back_as_it_was_stored(offset: int, bound: list[str], done: dict[str, int]) -> None:
    made = Round(offset, tuple(bound), done)
    assert Round.from_value(made.to_value()) == made


def test_a_round_that_moves_on_remembers_what_was_listed_and_frees_the_rest() -> None:
    known = Round(5, ("a", "b", "c"), {"z": 1})
    assert leave(known, 9, ("c", "a", "other")) == Round(9, (), {"z": 1, "a": 5, "c": 5})


def test_below_the_log_start_nothing_that_was_bound_is_free_again() -> None:
    assert leave(Round(5, ("a", "b"), {}), 9, None) == Round(9, (), {"a": LOST, "b": LOST})


def test_done_and_bound_offers_are_not_free() -> None:
    offers = [offer("done-------"), offer("bound------"), offer("free-------"), offer("lost-------")]
    known = Round(5, ("bound------",), {"done-------": 2, "lost-------": LOST})
    assert [one.id for one in free_offers(known, offers)] == ["free-------"]


def test_only_ids_whose_offer_is_gone_are_forgotten() -> None:
    known = Round(5, ("b",), {"here-------": 2, "gone-------": 3})
    assert without_absent(known, [item(entry(), "here-------")]) == Round(5, ("b",), {"here-------": 2})


def test_an_offer_is_bound_for_twenty_seconds() -> None:
    one = offer("abcdefghijk")
    assert is_young(one, NOW_MS + limits.OFFER_MS)
    assert not is_young(one, NOW_MS + limits.OFFER_MS + 1)
    assert is_young(one, NOW_MS - 3_600_000), "by a clock that is behind"
