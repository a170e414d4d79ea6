"""Records with their identities: the region, its topic id and its own number, the same wherever they are read."""

from __future__ import annotations

import pytest

from fenceline.format import control
from fenceline.format.segment import Replicated
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ReadRecord
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Service,
    access,
    append,
    data,
    marker,
    outcome,
)


@pytest.fixture
def log(service: Service) -> LogBuilder:
    """Own records, another region's, and markers of both; some of them in one segment."""
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("1", "2"), access("s", 0), data("3"))
    log.add(data("us 4", "us 5"), marker(control.SNAPSHOT_REQUEST), data("us 6"), origin="us", replicated=source(6))
    log.add(data("4", producer=(7, 0, 0), is_transactional=True), data("5", "6"))
    log.add(data("us 9"), origin="us", replicated=source(9))  # 7 and 8 were aborted there
    log.add(outcome(7, 1, is_commit=False), data("7"))
    log.add(data("us' 1", "us' 2"), origin="us", replicated=source(2, "another"))
    log.store(service.objects)
    return log


def source(count: int, topic_id: str = "us-topic") -> Replicated:
    return Replicated(topic_id, 2 * count, count)


def read(service: Service, offset: int = 0, **options: bool) -> list[ReadRecord]:
    request = ReadRequest(offset=offset, is_identified=True, **options)  # type: ignore[arg-type]
    return [*service.log.partitions.read(TOPIC, 0, request).records]


def test_each_record_has_its_origins_number(service: Service, log: LogBuilder) -> None:
    lives = {"us": "us-topic", "us'": "another", REGION: log.topic_id}
    found = read(service)
    assert len(found) == 13
    for record in found:
        text = (record.value or b"").decode()
        region, _, number = text.rpartition(" ")
        assert (record.origin, record.origin_topic_id, record.number) == (
            region.removesuffix("'") or REGION,
            lives[region or REGION],
            int(number),
        )


def test_the_identity_is_the_same_wherever_the_page_begins(service: Service, log: LogBuilder) -> None:
    every = {record.offset: record for record in read(service)}
    for offset in range(log.state.next_offset):
        assert read(service, offset) == [record for at, record in every.items() if at >= offset]
    committed = read(service, is_read_committed=True)
    assert [(record.value, record.number) for record in committed if record.origin == REGION] == [
        (str(number).encode(), number) for number in (1, 2, 3, 5, 6, 7)
    ]


def test_in_segments_from_before_regions_numbers_count_all_records(service: Service) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("1", "2"), marker(0x80), data("3"), knows_regions=False)
    log.add(data("4"), knows_regions=False)
    log.store(service.objects)
    append(service.log, "5")
    assert [record.number for record in read(service)] == [1, 2, 3, 4, 5]


def test_without_being_asked_for_a_record_has_no_identity(service: Service, log: LogBuilder) -> None:
    page = service.log.partitions.read(TOPIC, 0, ReadRequest(offset=0))
    assert {record.number for record in page.records} == {record.origin_topic_id for record in page.records} == {None}
    assert {record.origin for record in page.records} == {None, "us"}
