"""Compaction, retention and listings of segments beside transactions ("Transactions beside the rest")."""

from __future__ import annotations

import pytest

from fenceline import limits
from fenceline.format import batch, keys
from fenceline.log.checkpoint_items import Head
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import AbortedTransaction
from fenceline.service.log import Log
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Part, Service, data
from tests.support.sweeping import swept
from tests.support.transactional_logs import abort, commit, in_, made, store

DAY = 86_400_000


def head_of(service: Service) -> Head:
    key = keys.head_item(service.topic_id(), 0)
    return Head.from_value(service.items.store.get([key])[key].value)


def table_of(log: Log) -> dict[bytes | None, bytes | None]:
    request = ReadRequest(offset=0, is_compacted=True, is_read_committed=True, max_records=10_000)
    return {record.key: record.value for record in log.partitions.read(TOPIC, 0, request).records}


def keyed(producer: int, key: str, value: str, epoch: int = 0, sequence: int = 0) -> Part:
    def part(offset: int, leader_epoch: int, now_ms: int) -> bytes:
        body = batch.encode(
            [Record(value.encode(), key.encode())],
            now_ms=now_ms,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        ).body
        return batch.stamp(body, base_offset=offset, leader_epoch=leader_epoch)

    return part


def test_a_compaction_stops_at_the_stable_offset_and_keeps_nothing_that_was_aborted(service: Service) -> None:
    """Segment by segment, so that a batch and its marker are read in different chunks."""
    service.log.topics.alter(TOPIC, config={"cleanup.policy": "compact"})
    log = made(
        service,
        [keyed(7, "a", "1")],
        *([data("filler")] for _ in range(limits.FETCH_SEGMENTS)),
        [commit(7)],
        [keyed(7, "a", "aborted", epoch=1)],
        *([data("filler")] for _ in range(limits.FETCH_SEGMENTS)),
        [abort(7, 2)],
        [keyed(8, "b", "open"), keyed(9, "c", "aborted above")],
        [abort(9)],
    )
    stable = log.state.last_stable_offset(0)
    service.another().partitions.compact(TOPIC, 0)
    assert head_of(service).compaction_horizon == stable == log.state.next_offset - 3
    assert table_of(service.another()) == {b"a": b"1", None: b"filler"}
    service.another().partitions.compact(TOPIC, 0)
    assert head_of(service).compaction_horizon == stable
    store(service, log, commit(8))
    service.another().partitions.compact(TOPIC, 0)
    assert head_of(service).compaction_horizon == log.state.next_offset
    assert table_of(service.another()) == {b"a": b"1", b"b": b"open", None: b"filler"}


def test_a_compaction_where_a_trim_passed_an_open_transaction_stops_at_the_log_start(service: Service) -> None:
    service.log.topics.alter(TOPIC, config={"cleanup.policy": "compact"})
    log = made(service, [data("p")], [in_(7, "a", "b")], [data("q")])
    service.log.partitions.trim(TOPIC, 0, 2)
    service.another().partitions.compact(TOPIC, 0)
    assert head_of(service).compaction_horizon == 2
    store(service, log, abort(7))
    service.another().partitions.compact(TOPIC, 0)
    assert head_of(service).compaction_horizon == 5
    assert table_of(service.another()) == {None: b"q"}


def test_retention_takes_what_was_aborted_and_stays_below_what_is_open(service: Service) -> None:
    log = made(service, [in_(6, "a")], [abort(6)], [data("p")], [in_(7, "t"), data("q")], [data("r")])
    service.log.topics.alter(TOPIC, config={"retention.ms": 1_000})
    service.runtime.advance(DAY)
    swept(service)
    assert head_of(service).log_start == 3
    assert service.log.partitions.offsets(TOPIC, 0).bounds.last_stable_offset == 3
    log.now_ms = START_MS
    store(service, log, abort(7))
    service.runtime.advance(DAY)
    swept(service)
    assert head_of(service).log_start == 7


def test_the_listing_of_segments_has_all_that_a_direct_reader_needs(service: Service) -> None:
    """`aborted`, and nothing at or above `last_stable_offset`, leaves what a committed read shows."""
    log = made(service, [in_(6, "a"), in_(7, "b"), data("c")], [abort(6), in_(8, "e")], [commit(7), in_(9, "g")])
    store(service, log, abort(9), data("i"))
    listed = service.another().partitions.segments(TOPIC, 0)
    stable = listed.last_stable_offset
    assert stable == 4
    shown = []
    for entry, segment in zip(listed.segments, log.segments, strict=True):
        for _, header in segment.batches:
            is_left_out = header.is_transactional and any(
                t.producer_id == header.producer_id and t.first_offset <= header.base_offset <= t.last_offset
                for t in entry.aborted
            )
            if not header.is_control and not is_left_out and header.base_offset < stable:
                shown.append(header.base_offset)
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(offset=0, is_read_committed=True))
    assert shown == [record.offset for record in page.records] == [1, 2]
    assert [list(entry.aborted) for entry in listed.segments] == [
        [AbortedTransaction(6, 0, 3)],
        [AbortedTransaction(6, 0, 3)],
        [AbortedTransaction(9, 6, 7)],
        [AbortedTransaction(9, 6, 7)],
    ]


def test_a_listing_ends_early_where_its_segments_overlap_very_many_aborted_transactions(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    log.add(*(in_(n, "t") for n in range(10)))
    for _ in range(6):
        log.add(data("p"))
    log.add(*(abort(n) for n in range(10)))
    log.store(service.objects)
    bases = [segment.base_offset for segment in log.segments]
    for most, at_once in ((25, 2), (30, 3), (5, 1)):
        monkeypatch.setattr(limits, "SEGMENTS_ABORTED_MAX", most)
        found, offset = [], 0
        while True:
            page = service.log.partitions.segments(TOPIC, 0, offset=offset, limit=5)
            found += [entry.base_offset for entry in page.segments]
            assert {len(entry.aborted) for entry in page.segments} == {10}
            if not page.has_more:
                break
            assert len(page.segments) == at_once
            offset = page.segments[-1].next_offset
        assert found == bases
