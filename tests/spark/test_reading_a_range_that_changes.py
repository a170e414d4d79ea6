"""What a task does where segments cannot be fetched, and where the log is no longer what the driver planned for."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable

import pytest

from fenceline import limits
from fenceline.client import Client
from fenceline.errors import CorruptLogError, OffsetOutOfRangeError, StoreUnavailableError
from fenceline.format.batch import encode, stamp
from fenceline.model.results import AbortedTransaction, Bounds, SegmentEntry, SegmentList
from fenceline_spark.source.data_loss import DataLossError
from fenceline_spark.source.reading import ReadRange
from fenceline_spark.source.segments import NotFetched, fetched
from tests.spark.ranges import named, reader, rows, whole
from tests.support.runtime import AheadRuntime

Fetch = Callable[[SegmentEntry], bytes]


def filled(client: Client, topic: str, segments: int) -> ReadRange:
    """Give partition 0 so many segments of two records, and return the range of all."""
    for number in range(segments):
        client.produce(topic, 0, named(f"{2 * number}", f"{2 * number + 1}"))
    return whole(client, topic)


def all_of(part: ReadRange) -> list[tuple[int, bytes]]:
    return [(offset, str(offset).encode()) for offset in range(part.start, part.end)]


def failing(times: int, base_offset: int, error: NotFetched | None = None) -> tuple[Fetch, list[int]]:
    """Return a fetch that fails so often at one segment, and the base offsets that it was asked for."""
    asked: list[int] = []

    def fetch(entry: SegmentEntry) -> bytes:
        asked.append(entry.base_offset)
        if entry.base_offset == base_offset and asked.count(base_offset) <= times:
            raise error or NotFetched("status=403")
        return fetched(entry)

    return fetch, asked


def test_a_segment_whose_url_is_refused_is_listed_anew_and_no_row_comes_twice(client: Client, topic: str) -> None:
    part = filled(client, topic, 6)
    fetch, asked = failing(2, 4)
    assert rows(reader(client, part, fetch=fetch).rows()) == all_of(part)
    assert asked.count(4) == 3
    assert asked.count(0) == asked.count(2) == 1  # those before are never fetched again


def test_three_failures_without_progress_fail_the_task_with_what_to_do(client: Client, topic: str) -> None:
    part = filled(client, topic, 6)
    fetch, asked = failing(99, 4)
    seen: list[tuple[int, bytes]] = []
    runtime = AheadRuntime()
    with pytest.raises(StoreUnavailableError, match=rf"3 times; .*topic={topic} partition=0 offset=4 status=403"):
        seen.extend(rows([batch]) for batch in reader(client, part, fetch=fetch, runtime=runtime).rows())  # type: ignore[misc]
    assert asked.count(4) == 3
    first_ms, second_ms = runtime.slept_ms
    assert first_ms <= 500
    assert second_ms <= 1_000


def test_failures_with_progress_between_them_do_not_add_up(client: Client, topic: str) -> None:
    part = filled(client, topic, 6)
    failed: list[int] = []

    def fetch(entry: SegmentEntry) -> bytes:
        if failed.count(entry.base_offset) < 2:
            failed.append(entry.base_offset)
            raise NotFetched("status=410")
        return fetched(entry)

    assert rows(reader(client, part, fetch=fetch).rows()) == all_of(part)
    assert len(failed) == 12


def test_a_body_of_another_size_or_with_other_offsets_is_never_rows(client: Client, topic: str) -> None:
    part = filled(client, topic, 3)
    bodies = {entry.base_offset: fetched(entry) for entry in client.segments(topic, 0).segments}

    def swapped(entry: SegmentEntry) -> bytes:
        return bodies[2 - entry.base_offset if entry.base_offset < 4 else 4]

    with pytest.raises(CorruptLogError, match=f"topic={topic} partition=0 offset=0$"):
        rows(reader(client, part, fetch=swapped).rows())
    with pytest.raises(CorruptLogError, match=f"its segment ends too early.* topic={topic} partition=0 offset=0$"):
        rows(reader(client, part, fetch=lambda _: b"").rows())


def test_a_trim_while_a_task_reads_is_a_loss_that_names_both_ranges(client: Client, topic: str) -> None:
    part = filled(client, topic, 6)

    def fetch(entry: SegmentEntry) -> bytes:
        if entry.base_offset == 4:
            client.trim(topic, 0, 7)
            raise NotFetched("status=404")
        return fetched(entry)

    with pytest.raises(DataLossError, match=rf"topic={topic} partition=0 asked=\[4, 12\) kept=\[7, 12\)"):
        rows(reader(client, part, fetch=fetch).rows())


def test_without_fail_on_data_loss_what_is_kept_is_read_and_the_rest_is_warned_of(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    part = filled(client, topic, 6)

    def fetch(entry: SegmentEntry) -> bytes:
        if entry.base_offset == 4:
            client.trim(topic, 0, 7)  # within the segment from 6 on
            raise NotFetched("status=404")
        return fetched(entry)

    with caplog.at_level(logging.WARNING, "fenceline_spark"):
        found = rows(reader(client, part, fetch=fetch, fails_on_loss=False).rows())
    assert [offset for offset, _ in found] == [0, 1, 2, 3, 7, 8, 9, 10, 11]
    assert [record.getMessage() for record in caplog.records if "offsets=3" in record.getMessage()]
    assert len(caplog.records) == 1


def test_a_range_below_the_log_start_or_beyond_the_log_is_a_loss(client: Client, topic: str) -> None:
    part = filled(client, topic, 3)
    client.trim(topic, 0, 3)
    beyond = dataclasses.replace(part, end=9)
    with pytest.raises(DataLossError, match=r"asked=\[0, 6\) kept=\[3, 6\)"):
        rows(reader(client, part).rows())
    with pytest.raises(DataLossError, match=r"asked=\[4, 9\) kept=\[3, 6\)"):
        rows(reader(client, dataclasses.replace(beyond, start=4)).rows())
    with pytest.raises(DataLossError, match=r"asked=\[7, 9\) kept=\[3, 6\)"):
        rows(reader(client, dataclasses.replace(beyond, start=7)).rows())
    found = rows(reader(client, beyond, fails_on_loss=False).rows())
    assert [offset for offset, _ in found] == [3, 4, 5]
    for nothing in (dataclasses.replace(beyond, start=7), dataclasses.replace(part, end=2)):
        assert rows(reader(client, nothing, fails_on_loss=False).rows()) == []


def again(client: Client, topic: str, values: int) -> None:
    """Delete a topic, and create one of its name with other records."""
    client.delete_topic(topic)
    client.create_topic(topic, partitions=1)
    for number in range(values):
        client.produce(topic, 0, named(f"new {number}"))


@pytest.mark.parametrize("values", [0, 3, 20])
def test_rows_of_a_topic_created_anew_under_the_name_are_never_given(client: Client, topic: str, values: int) -> None:
    part = filled(client, topic, 6)
    again(client, topic, values)
    with pytest.raises(DataLossError, match=r"created anew.*asked=\[0, 12\) kept=none"):
        rows(reader(client, part).rows())
    assert rows(reader(client, part, fails_on_loss=False).rows()) == []


@pytest.mark.parametrize("values", [0, 3, 20])
def test_rows_of_a_topic_created_anew_while_a_task_reads_are_never_given(
    client: Client, topic: str, values: int
) -> None:
    part = filled(client, topic, 6)
    gone: list[int] = []

    def fetch(entry: SegmentEntry) -> bytes:
        if entry.base_offset >= 4:
            if not gone:
                gone.append(entry.base_offset)
                again(client, topic, values)
            raise NotFetched("status=404")
        return fetched(entry)

    found = rows(reader(client, part, fetch=fetch, fails_on_loss=False).rows())
    assert found == all_of(part)[:4]


def test_a_topic_or_partition_that_does_not_exist_is_a_loss(client: Client, topic: str) -> None:
    part = filled(client, topic, 1)
    client.delete_topic(topic)
    with pytest.raises(DataLossError, match=r"asked=\[0, 2\) kept=none"):
        rows(reader(client, part).rows())


class Listing:
    """A client that knows only these pages of segments, by the offset that is asked for."""

    url = "http://nowhere.test"

    def __init__(self, part: ReadRange, pages: dict[int, tuple[list[SegmentEntry], int]]) -> None:
        self.part, self.pages, self.asked = part, pages, []  # type: ignore[var-annotated]

    def segments(self, topic: str, partition: int, *, offset: int, limit: int, origin: str | None) -> SegmentList:
        self.asked.append((offset, limit, origin))
        entries, position = self.pages[offset]
        bounds = Bounds(0, self.part.end, self.part.end)
        has_more = position < self.part.end
        return SegmentList(entries, has_more, self.part.topic_id, bounds, position=position)


def entry(client: Client, topic: str, number: int) -> SegmentEntry:
    return client.segments(topic, 0).segments[number]


def test_with_one_origin_a_listing_goes_on_at_its_position_also_after_an_empty_page(client: Client, topic: str) -> None:
    part = filled(client, topic, 5)
    first, third = entry(client, topic, 0), entry(client, topic, 2)
    listing = Listing(part, {0: ([first], 3), 3: ([], 4), 4: ([third], 7), 7: ([], 10)})
    found = rows(reader(listing, part, origin="own").rows())  # type: ignore[arg-type]
    assert [offset for offset, _ in found] == [0, 1, 4, 5]
    assert listing.asked == [(offset, limits.SEGMENTS_MAX, "own") for offset in (0, 3, 4, 7)]


def test_with_one_origin_a_failed_fetch_goes_on_behind_the_last_segment_read(client: Client, topic: str) -> None:
    part = filled(client, topic, 5)
    first, third = entry(client, topic, 0), entry(client, topic, 2)
    listing = Listing(part, {0: ([first, third], 10), 2: ([third], 10)})
    fetch, _ = failing(1, 4)
    found = rows(reader(listing, part, origin="own", fetch=fetch).rows())  # type: ignore[arg-type]
    assert [offset for offset, _ in found] == [0, 1, 4, 5]


def test_a_listing_that_never_gets_further_fails_the_task(client: Client, topic: str) -> None:
    part = filled(client, topic, 1)
    listing = Listing(part, {0: ([], 0)})
    listing.segments = lambda *_, **__: SegmentList([], False, part.topic_id, Bounds(0, 2, 2), position=0)  # type: ignore[method-assign,misc,assignment]
    with pytest.raises(StoreUnavailableError, match="the listing is empty"):
        rows(reader(listing, part).rows())  # type: ignore[arg-type]


def test_a_listing_that_is_refused_though_the_range_is_kept_fails_the_task(client: Client, topic: str) -> None:
    part = filled(client, topic, 1)
    listing = Listing(part, {})

    def segments(*_: object, offset: int | None, **__: object) -> SegmentList:
        if offset is None:
            return SegmentList([], False, part.topic_id, Bounds(0, 2, 2))
        raise OffsetOutOfRangeError("there is no such offset")

    listing.segments = segments  # type: ignore[method-assign,assignment]
    with pytest.raises(StoreUnavailableError, match="the listing is refused"):
        rows(reader(listing, part).rows())  # type: ignore[arg-type]


def test_a_further_page_of_a_listing_that_is_another_topics_ends_the_rows(client: Client, topic: str) -> None:
    part = filled(client, topic, 3)
    bounds = Bounds(0, 6, 6)
    listing = Listing(part, {})

    def segments(*_: object, offset: int | None, **__: object) -> SegmentList:
        if offset == 0:
            return SegmentList([entry(client, topic, 0)], True, part.topic_id, bounds, position=2)
        return SegmentList([entry(client, topic, 1)], False, "another", bounds, position=6)

    listing.segments = segments  # type: ignore[method-assign,assignment]
    assert rows(reader(listing, part, fails_on_loss=False).rows()) == all_of(part)[:2]  # type: ignore[arg-type]
    with pytest.raises(DataLossError, match=r"asked=\[2, 6\) kept=none"):
        rows(reader(listing, part).rows())  # type: ignore[arg-type]


def test_nothing_beyond_the_end_of_a_range_is_fetched_or_decoded(client: Client, topic: str) -> None:
    part = dataclasses.replace(filled(client, topic, 6), end=4)
    fetch, asked = failing(0, 0)
    assert rows(reader(client, part, fetch=fetch).rows()) == all_of(part)
    assert sorted(asked) == [0, 2]
    batch = encode(named("a", "b"), now_ms=5).body
    body = stamp(batch, base_offset=0, leader_epoch=0) + stamp(batch[:-1] + b"x", base_offset=2, leader_epoch=0)
    segment = SegmentEntry(0, 4, len(body), "", None, 4, ())
    for end, expected in ((2, [0, 1]), (1, [0])):
        part = ReadRange("orders", "id", 0, 0, end)
        listing = Listing(part, {0: ([segment], 4)})
        found = rows(reader(listing, part, fetch=lambda _: body).rows())  # type: ignore[arg-type]
        assert [offset for offset, _ in found] == expected


def test_each_row_names_the_origin_of_its_segment(client: Client, topic: str) -> None:
    part = filled(client, topic, 4)
    origins = [None, "eu", "eu", "us"]
    entries = [dataclasses.replace(entry(client, topic, n), origin=origin) for n, origin in enumerate(origins)]
    listing = Listing(part, {0: (entries, 8)})
    found = rows(reader(listing, part, ["offset", "origin"]).rows())  # type: ignore[arg-type]
    assert found == [(offset, origins[offset // 2]) for offset in range(8)]
    inner = dataclasses.replace(part, start=3, end=5)
    listing.pages = {3: (entries[1:], 8)}
    found = rows(reader(listing, inner, ["origin"]).rows())  # type: ignore[arg-type]
    assert found == [("eu",), ("eu",)]


def test_a_batch_outside_a_transaction_is_shown_even_if_its_producer_aborted(client: Client, topic: str) -> None:
    part = filled(client, topic, 1)
    aborted = [AbortedTransaction(-1, 0, 9)]
    listing = Listing(part, {0: ([dataclasses.replace(entry(client, topic, 0), aborted=aborted)], 2)})
    assert rows(reader(listing, part).rows()) == all_of(part)  # type: ignore[arg-type]


def test_of_a_producer_that_also_committed_only_the_batches_of_aborted_transactions_are_left_out() -> None:
    batch = encode(named("a", "b"), now_ms=5, producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    body = b"".join(stamp(batch.body, base_offset=offset, leader_epoch=0) for offset in range(0, 10, 2))
    aborted = [AbortedTransaction(7, 2, 3), AbortedTransaction(7, 6, 7), AbortedTransaction(8, 0, 9)]
    part = ReadRange("orders", "id", 0, 0, 10)
    listing = Listing(part, {0: ([SegmentEntry(0, 10, len(body), "", None, 10, aborted)], 10)})
    found = rows(reader(listing, part, fetch=lambda _: body).rows())  # type: ignore[arg-type]
    assert [offset for offset, _ in found] == [0, 1, 4, 5, 8, 9]
    everything = rows(reader(listing, part, fetch=lambda _: body, is_committed=False).rows())  # type: ignore[arg-type]
    assert [offset for offset, _ in everything] == list(range(10))
