"""What one process remembers of partitions, sessions and segments is bounded, and forgetting it changes no outcome."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from fenceline import errors, limits
from fenceline.access import session_item
from fenceline.access.session_cache import SessionCache
from fenceline.access.session_item import OwnedHold
from fenceline.append.entries.batch import BatchEntry
from fenceline.format import keys
from fenceline.log.context import SegmentCache
from fenceline.model.requests import ReadRequest
from fenceline.service.log import Log
from tests.support.service import (
    TOPIC,
    LogBuilder,
    Service,
    append,
    appender_of,
    data,
    never_arrives,
    partition_of,
    partitions_of,
    request,
    serve,
)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """Return a service whose process remembers two partitions at most."""
    monkeypatch.setattr(limits, "PARTITIONS_CACHED_MAX", 2, raising=False)
    made = serve()
    made.log.topics.create(TOPIC, partitions=12)
    yield made
    made.close()


def remembered(log: Log) -> list[int]:
    return [partition.partition for partition in partitions_of(log).kept()]


def touch(log: Log, *partitions: int) -> None:
    for partition in partitions:
        log.partitions.read(TOPIC, partition, ReadRequest(offset=0))


def test_partitions_that_were_only_looked_at_are_forgotten(service: Service) -> None:
    touch(service.log, *range(12))
    assert remembered(service.log) == [10, 11]


def test_the_partition_that_was_used_least_lately_is_forgotten_first(service: Service) -> None:
    touch(service.log, 0, 1, 0, 2)
    assert remembered(service.log) == [0, 2]


def test_a_forgotten_partition_is_known_anew(service: Service) -> None:
    first = service.log.append(TOPIC, 0, request("a", producer=(7, 0, 0)))
    touch(service.log, *range(1, 12))
    assert first is not None
    assert service.log.append(TOPIC, 0, request("a", producer=(7, 0, 0))) == replace(first, duplicate=True)
    second = service.log.append(TOPIC, 0, request("b", producer=(7, 0, 1)))
    assert second is not None
    assert (second.base_offset, second.duplicate) == (1, False)


def test_a_group_whose_create_was_not_answered_is_not_forgotten(service: Service) -> None:
    """The process starts no second create at that offset before the first one's outcome is known."""
    append(service.log, "a")
    service.objects.always("create", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        append(service.log, "b")
    service.objects.always("create", None)
    touch(service.log, *range(1, 12))
    assert 0 in remembered(service.log)
    assert len(remembered(service.log)) == 2
    append(service.log, "c")
    assert service.values() == [b"a", b"b", b"c"]


def test_a_request_that_is_under_way_has_the_only_appender_of_its_partition(service: Service) -> None:
    """The appender was forgotten while the request had it; the next request gets the same one."""
    append(service.log, "a")
    service.objects.always("create", never_arrives)
    mine = appender_of(service.log)
    touch(service.log, *range(1, 12))
    assert 0 not in remembered(service.log)
    assert appender_of(service.log) is mine
    touch(service.log, *range(1, 12))
    with pytest.raises(errors.OutcomeUnknownError):
        mine.append(_entry(service, "b"), service.runtime.monotonic_ms() + 100)
    assert 0 in remembered(service.log)  # frozen group of the request that left


def _entry(service: Service, value: str) -> BatchEntry:
    known, _ = service.log._resolver.resolve(TOPIC, 0)
    return service.log.producing.prepared(partition_of(service.log), known.item.topic, request(value), is_new=True)


def test_sessions_that_hold_and_own_much_are_remembered_by_what_they_weigh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SESSION_ENTRIES_CACHED_MAX", 100, raising=False)
    service = serve()
    sessions = SessionCache(partitions_of(service.log))
    owns = tuple(OwnedHold(None, f"lock-{n}", "") for n in range(40))
    for n in range(1, 7):
        made = session_item.created(f"{n:032x}", principal="", lease_ms=1_000, now_ms=0)
        for version in (1, 2):  # the newer one in place of the older
            sessions.remember(replace(made, owns=owns, version=version))
    assert [session_id[-1] for session_id in sessions._known] == ["5", "6"]
    huge = session_item.created(f"{7:032x}", principal="", lease_ms=1_000, now_ms=0)
    sessions.remember(replace(huge, owns=owns * 4, version=1))
    assert [session_id[-1] for session_id in sessions._known] == ["7"]


def test_small_segments_count_with_what_is_kept_beside_their_bodies() -> None:
    """Counted by their bodies alone, a third of a million of them would be kept."""
    service, builder = serve(), LogBuilder()
    for _ in range(20):
        builder.add(data("v"))
    cache = SegmentCache(service.runtime, bytes_max=40_960)
    for segment in builder.segments:
        cache.put(keys.segment_key("t", 0, segment.base_offset), segment)
    kept = [s.base_offset for s in builder.segments if cache.get(keys.segment_key("t", 0, s.base_offset))]
    assert kept == list(range(20 - len(kept), 20))
    assert 5 <= len(kept) <= 10
