"""How many own records lie below the log start and the stable offset (protocol, "Own numbers and positions")."""

from __future__ import annotations

import pytest

from tests.support.origins import add_theirs, asked, log_of
from tests.support.service import TOPIC, Service, data, marker, outcome


def test_own_records_below_a_stable_offset_inside_a_segment_are_counted_by_batches(service: Service) -> None:
    """The open transaction begins behind two batches and a marker of the same segment."""
    log = log_of(service)
    log.add(data("a"))
    add_theirs(log, data("x", "y"))
    log.add(
        data("b", "c"),
        marker(0x80),
        data("d"),
        data("open", producer=(7, 0, 0), is_transactional=True),
        data("e", "f"),
    )
    log.store(service.objects)
    page = asked(service.log)
    assert page.bounds.last_stable_offset == 7
    assert page.stable_own_records == 4
    assert asked(service.another()).stable_own_records == 4
    log.add(outcome(7, 1, is_commit=False))
    log.store(service.objects, start=3)
    assert asked(service.log).stable_own_records == 7, "aborted records have own numbers, too"


@pytest.mark.parametrize(
    ("log_start", "below"), [(0, 0), (2, 2), (3, 2), (4, 2), (5, 5), (6, 5), (7, 5), (8, 5), (9, 6)]
)
def test_the_log_start_may_lie_anywhere(service: Service, log_start: int, below: int) -> None:
    """The batch that holds the log start is kept whole, so its records count as kept."""
    log = log_of(service)
    log.add(data("a", "b"), data("c", "d", "e"))  # 0 to 1, 2 to 4
    add_theirs(log, data("x", "y"))  # 5 to 6
    log.add(marker(0x80), data("f"))  # 7, 8
    log.store(service.objects)
    service.log.partitions.trim(TOPIC, 0, log_start)
    for process in (service.log, service.another()):
        for origin in (None, "own"):
            page = process.partitions.segments(TOPIC, 0, origin=origin)
            assert (page.log_start_own_records, page.stable_own_records) == (below, 6)


def test_a_log_start_beyond_the_stable_offset_counts_whole_batches(service: Service) -> None:
    log = log_of(service)
    log.add(data("a"), data("b", "c", "d", producer=(7, 0, 0), is_transactional=True))
    log.store(service.objects)
    service.log.partitions.trim(TOPIC, 0, 3)
    page = asked(service.another())
    assert (page.bounds.last_stable_offset, page.log_start_own_records, page.stable_own_records) == (3, 1, 1)


def test_in_segments_from_before_regions_every_record_is_the_regions_own(service: Service) -> None:
    log = log_of(service)
    for value in "abc":
        log.add(data(value, value), knows_regions=False)
    add_theirs(log)
    log.add(data("d"))
    log.store(service.objects)
    service.log.partitions.trim(TOPIC, 0, 3)
    page = asked(service.another(), 2)
    assert [entry.of_origin.own_records for entry in page.segments if entry.of_origin] == [2, 4, 6]
    assert (page.log_start_own_records, page.stable_own_records) == (2, 7)
