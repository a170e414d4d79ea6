"""How often the stores are asked: one create for a warm append, and the same cost however long the log is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fenceline import errors
from fenceline.format.batch import encode, parse_header, stamp
from fenceline.format.segment import Segment, SegmentMetadata
from fenceline.limits import CHECKPOINT_SEGMENTS
from fenceline.log.partition import Partition
from fenceline.log.state import apply
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.service.log import Log
from fenceline.sweeper.retention import Now, Retention, StoredSegments, retained_from
from tests.support.runtime import START_MS
from tests.support.service import REGION, TOPIC, LogBuilder, Service, append, serve

APPENDS = 160


def calls_of(service: Service, action: Callable[[], object]) -> Counter[str]:
    before = service.count()
    action()
    return service.count() - before


@pytest.mark.parametrize(("item_age_ms", "item_gets"), [(60_000, 0), (0, APPENDS)])
def test_a_warm_append_is_one_create_and_hardly_an_item(service: Service, item_age_ms: int, item_gets: int) -> None:
    log = service.another(item_age_ms=item_age_ms)
    append(log, "warm", producer=(7, 0, 0))
    log.partitions.checkpoint(TOPIC, 0)

    def work() -> None:
        for sequence in range(1, APPENDS + 1):
            append(log, "x" * 1_024, producer=(7, 0, sequence))

    counted = calls_of(service, work)
    assert counted["objects.create"] == APPENDS
    assert counted["items.write"] <= 0.2 * APPENDS
    assert counted["items.write"] == APPENDS // CHECKPOINT_SEGMENTS
    assert counted["items.get"] == item_gets
    assert set(counted) <= {"objects.create", "items.write", "items.get"}


def test_a_slow_trickle_writes_a_checkpoint_once_in_ten_seconds(service: Service) -> None:
    append(service.log, "warm", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)

    def work() -> None:
        for sequence in range(1, 11):
            service.runtime.advance(2_500)
            append(service.log, "x", producer=(7, 0, sequence))

    counted = calls_of(service, work)
    assert counted["items.write"] == 2
    assert counted["objects.create"] == 10


def test_a_refusal_and_a_duplicate_cost_one_look_for_the_next_key(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    assert calls_of(service, lambda: append(service.log, "a", producer=(7, 0, 0))) == {"objects.get": 1}

    def refused() -> None:
        with pytest.raises(errors.OffsetMismatchError):
            append(service.log, "b", expected=9)

    assert calls_of(service, refused)["objects.get"] == 1


def test_a_producer_that_is_new_to_the_process_costs_one_item(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    counted = calls_of(service, lambda: append(service.log, "b", producer=(8, 0, 0)))
    assert counted == {"objects.create": 1, "items.get": 1}


# However long the log is


def long_log(service: Service, count: int) -> LogBuilder:
    """Make a log of ``count`` segments of one record each, whose head is at 7 segments before the end."""
    log = LogBuilder(topic_id=service.topic_id())
    body = encode([Record(b"x")], now_ms=START_MS).body
    for offset in range(count):
        stamped = stamp(body, base_offset=offset, leader_epoch=-1)
        state = log.state
        metadata = SegmentMetadata(
            f"w{offset}", START_MS, REGION, state.records, state.bytes, state.max_timestamp
        ).chained(state.chain, stamped)
        segment = Segment(offset, offset + 1, stamped, metadata, ((0, parse_header(stamped)),))
        log.segments.append(segment)
        log.state = apply(state, segment, region=REGION).state
        if offset == count - 8:
            log.store_head(service.items)
    store = service.objects.store
    log.store(store)
    return log


def costs(count: int) -> dict[str, Counter[str]]:
    service = serve()
    service.log.topics.create(TOPIC)
    long_log(service, count)
    found: dict[str, Counter[str]] = {}
    cold = service.another()
    found["cold append"] = calls_of(service, lambda: append(cold, "a", producer=(7, 0, 0)))
    found["warm append"] = calls_of(service, lambda: append(cold, "b", producer=(7, 0, 1)))
    reader = service.another()
    last = ReadRequest(offset=count - 1)
    found["cold offsets"] = calls_of(service, lambda: reader.partitions.offsets(TOPIC, 0))
    found["read at the end"] = calls_of(service, lambda: reader.partitions.read(TOPIC, 0, last))
    found["warm read at the end"] = calls_of(service, lambda: reader.partitions.read(TOPIC, 0, last))
    service.close()
    return found


@pytest.fixture(scope="module")
def ten() -> dict[str, Counter[str]]:
    return costs(10)


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_the_cost_of_an_append_and_of_a_cold_open_is_the_same_however_long_the_log_is(
    ten: dict[str, Counter[str]], count: int
) -> None:
    assert costs(count) == ten


def test_a_cold_open_and_a_warm_append_cost_these_calls(ten: dict[str, Counter[str]]) -> None:
    assert ten["warm append"] == {"objects.create": 1}
    # Topic; topic and head; the producer. The 7 segments after the head, by one listing.
    assert ten["cold append"] == {"items.get": 3, "objects.list": 1, "objects.get": 7, "objects.create": 1}


def test_retention_reads_one_segment_where_nothing_is_due_else_each_that_goes(service: Service) -> None:
    for age_ms, count in ((60_000, 5), (0, 400)):
        for _ in range(count):
            append(service.log, "v")
        service.runtime.advance(age_ms)
    service.log.partitions.checkpoint(TOPIC, 0)
    now = Now(service.runtime.now_ms(), service.runtime.now_ms())

    def cost(ms: int) -> tuple[int, Counter[str]]:
        partition = Partition(service.another().context, TOPIC, service.topic_id(), 0)
        partition.refresh()
        before, head = service.count(), partition.head
        assert head is not None
        return retained_from(StoredSegments(partition), head, Retention(ms, -1), now=now), service.count() - before

    # One listing finds the segment at the log start; another shows how old the rest is by the store's clock.
    assert cost(60_000) == (0, {"objects.list": 1, "objects.get": 1})
    assert cost(59_999) == (5, {"objects.list": 2, "objects.get": 5})


def test_a_far_offset_is_found_by_few_listings() -> None:
    service = serve()
    service.log.topics.create(TOPIC)
    long_log(service, 3_000)
    log: Log = service.another()
    log.partitions.offsets(TOPIC, 0)
    for offset in (1, 999, 1_000, 1_500, 2_700):
        counted = calls_of(
            service, lambda offset=offset: log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, max_records=1))
        )
        assert counted["objects.list"] <= 2, offset
        again = calls_of(
            service, lambda offset=offset: log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, max_records=1))
        )
        assert again["objects.list"] <= 1, offset
    service.close()
