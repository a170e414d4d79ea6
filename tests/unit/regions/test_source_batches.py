"""The batches of one source segment: checked, numbered, taken or left."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from fenceline import limits
from fenceline.format import control
from fenceline.model.results import AbortedTransaction, OriginEntry, SegmentEntry
from fenceline.regions.peer import PeerProblem
from fenceline.regions.source_batches import SourceBatch, looked_at, passed_on
from tests.support.independent_codec import forge, record
from tests.support.service import LogBuilder, Part, data, marker, outcome


def made(
    *parts: Part, own_records: int = 0, aborted: Sequence[AbortedTransaction] = (), count: int | None = None
) -> tuple[SegmentEntry, bytes]:
    segment = LogBuilder().make(*parts)
    records = sum(header.count for _, header in segment.batches if not header.is_control)
    said = OriginEntry(own_records, 1, "h", None if count is None else "t", None, count)
    return SegmentEntry(0, segment.next_offset, len(segment.body), "url", None, records, aborted, said), segment.body


def shown(found: list[SourceBatch]) -> list[tuple[bool, int, int, int]]:
    return [(one.batch is not None, one.records, one.number, one.next_offset) for one in found]


def look(
    entry: SegmentEntry, body: bytes, *, start: int = 0, stable: int = 99, number: int | None = 0
) -> list[SourceBatch]:
    return list(looked_at(entry, body, start=start, stable=stable, count=number or 0, number=number))


def test_each_batch_is_numbered_and_taken_or_left() -> None:
    parts = (
        data("one", "two"),
        data("three", producer=(7, 0, 0), is_transactional=True),
        data("four", producer=(8, 0, 0), is_transactional=True),
        outcome(7, 1, is_commit=False),
        marker(control.SNAPSHOT_REQUEST, {}),
        marker(control.SNAPSHOT, {}),
        data("five"),
    )
    entry, body = made(*parts, own_records=10, aborted=[AbortedTransaction(7, 2, 4)])
    assert shown(look(entry, body, number=10)) == [
        (True, 2, 12, 2),
        (False, 1, 13, 3),
        (True, 1, 14, 4),
        (False, 0, 14, 5),
        (True, 0, 14, 6),
        (False, 0, 14, 7),
        (True, 1, 15, 8),
    ]


def test_batches_below_the_start_and_from_the_last_stable_offset_on_are_not_looked_at() -> None:
    entry, body = made(data("1", "2"), data("3", "4"), data("5"), data("6"))
    assert shown(look(entry, body, start=2, stable=5, number=2)) == [(True, 2, 4, 4), (True, 1, 5, 5)]
    assert shown(look(entry, body, start=3, stable=4, number=2)) == [(True, 2, 4, 4)]  # the start lies within it


def test_a_batch_of_another_transaction_of_the_same_producer_is_taken() -> None:
    parts = [data(value, producer=(7, 0, -1), is_transactional=True) for value in "abc"]
    entry, body = made(*parts, aborted=[AbortedTransaction(7, 1, 2), AbortedTransaction(9, 0, 3)])
    assert [one.batch is not None for one in look(entry, body)] == [True, False, True]


@pytest.mark.parametrize("number", [1, 3])
def test_numbers_must_follow_within_a_segment_too(number: int) -> None:
    entry, body = made(data("1", "2"), data("3"))
    with pytest.raises(PeerProblem):
        look(entry, body, start=2, number=number)
    assert shown(look(entry, body, start=2, number=2)) == [(True, 1, 3, 3)]
    assert shown(look(entry, body, start=2, number=None)) == [(True, 1, 3, 3)]


def test_a_record_that_was_taken_is_refused_where_the_number_is_not_known() -> None:
    entry, body = made(data("1", "2"), data("3"))
    with pytest.raises(PeerProblem):
        list(looked_at(entry, body, start=2, stable=9, count=3, number=None))


# Passed on


def test_batches_after_the_last_record_here_are_passed_on() -> None:
    parts = (data("1", "2"), marker(0x1F0), data("3"), marker(0x1F1), data("4"), marker(0x1F2))
    entry, body = made(*parts, count=14)  # numbers 11 to 14
    for count, batches, records in ((10, 6, 4), (12, 5, 2), (13, 3, 1), (14, 1, 0)):
        found, of = passed_on(entry, body, count=count)
        assert (len(found), of) == (batches, records)


def test_a_segment_that_decodes_to_too_much_is_not_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FORWARDED_DECODED_BYTES_MAX", 2_500)
    entry, body = made(*[data(bytes(1_000), codec="zstd")] * 3, count=3)
    sizes: list[int] = []
    assert passed_on(entry, body, count=1, on_decoded=sizes.append)[1] == 2
    assert sum(sizes) < 2_500
    with pytest.raises(PeerProblem, match="decompressed"):
        passed_on(entry, body, count=0)


def test_a_batch_that_no_producer_may_send_is_not_passed_on_and_said_where_it_lies() -> None:
    turned = forge(record(1) + record(0), base_offset=1, count=2)
    entry, body = made(data("1"), lambda *_: turned, count=3)
    assert passed_on(entry, body, count=3) == ([], 0)
    with pytest.raises(PeerProblem, match="from=1 to=3"):
        passed_on(entry, body, count=1)


def test_an_aborted_batch_is_neither_checked_nor_decoded() -> None:
    turned = forge(record(1) + record(0), count=2, attributes=0x10, producer_id=7, producer_epoch=0, base_sequence=0)
    entry, body = made(lambda *_: turned, data("3"), aborted=[AbortedTransaction(7, 0, 9)])
    assert [(one.batch is None, one.decoded) for one in look(entry, body)] == [(True, 0), (False, 8)]


def test_a_source_that_names_many_transactions_costs_one_look_at_each() -> None:
    """Each of 10,000 small batches could otherwise cost a look at each of 100,000 transactions."""
    looks = 0

    class Counted(list[AbortedTransaction]):
        def __iter__(self) -> Iterator[AbortedTransaction]:
            nonlocal looks
            for one in super().__iter__():
                looks += 1
                yield one

    parts = [data("1", producer=(7, 0, n), is_transactional=True) for n in range(20)]
    aborted = Counted([AbortedTransaction(7, 5, 7), AbortedTransaction(7, 0, 10), *[AbortedTransaction(7, 1, 2)] * 30])
    entry, body = made(*parts, aborted=aborted)
    assert [one.batch is None for one in look(entry, body)] == [True] * 10 + [False] * 10
    assert looks == len(aborted)


def test_a_count_within_a_batch_is_refused() -> None:
    entry, body = made(data("1", "2"), count=2)
    with pytest.raises(PeerProblem):
        passed_on(entry, body, count=1)


def test_more_records_than_numbers_are_refused() -> None:
    entry, body = made(data("1", "2"), count=1)
    with pytest.raises(PeerProblem):
        passed_on(entry, body, count=0)


def test_a_marker_that_does_not_travel_is_not_passed_on() -> None:
    entry, body = made(data("1"), marker(control.SNAPSHOT, {}), count=1)
    with pytest.raises(PeerProblem):
        passed_on(entry, body, count=0)
