"""The offsets of a topic's partitions, many at once: each as true as its own, for a few looks at the items."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.format import keys
from fenceline.service.log import Log
from tests.support.service import TOPIC, LogBuilder, Service, access, data, request


@pytest.fixture
def wide(service: Service) -> Service:
    """Return the service; its topic has 150 partitions, with records in every tenth."""
    service.log.topics.alter(TOPIC, partitions=150)
    for partition in range(0, 150, 10):
        service.log.append(TOPIC, partition, request("a", "b"))
    return service


def singly(log: Log, partitions: range) -> list[tuple[int, Any]]:
    return [(partition, log.partitions.offsets(TOPIC, partition)) for partition in partitions]


def test_the_answer_is_that_of_each_partition_itself(wide: Service) -> None:
    log = LogBuilder(topic_id=wide.topic_id(), partition=3)
    log.add(data("a"))
    log.add(access("s", 3))
    log.add(data("b", producer=(7, 0, 0), is_transactional=True))
    log.store(wide.objects)
    wide.log.partitions.trim(TOPIC, 10, 1)
    for reader in (wide.log, wide.another()):
        page = reader.partitions.list_offsets(TOPIC, limit=100)
        assert (page.topic_id, page.has_more) == (wide.topic_id(), True)
        assert page.partitions == singly(wide.another(), range(100))


@pytest.mark.parametrize(
    ("start", "limit", "expected", "has_more"),
    [
        (0, 1, range(1), True),
        (49, 100, range(49, 149), True),
        (50, 100, range(50, 150), False),
        (149, 100, range(149, 150), False),
        (150, 100, range(0), False),
        (2**63 - 1, 100, range(0), False),
    ],
)
def test_a_page_begins_at_the_given_partition_and_has_more_if_others_follow(
    wide: Service, start: int, limit: int, expected: range, has_more: bool
) -> None:
    for timestamp in (None, 0):
        if timestamp is None:
            page: Any = wide.log.partitions.list_offsets(TOPIC, start_partition=start, limit=limit)
        else:
            page = wide.log.partitions.list_offsets_at(TOPIC, timestamp, start_partition=start, limit=limit)
        assert [number for number, _ in page.partitions] == list(expected)
        assert (page.has_more, page.topic_id) == (has_more, wide.topic_id())


def test_the_first_record_at_a_time_is_found_for_each_partition(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=4)
    for partition in (1, 2):
        log = LogBuilder(topic_id=service.topic_id(), partition=partition)
        log.add(data("a", "b", timestamps=[10, 20 * partition]))
        log.store(service.objects)
    for reader in (service.another(), service.log):
        page = reader.partitions.list_offsets_at(TOPIC, 21, limit=100)
        assert page.partitions == [(0, None), (1, None), (2, (1, 40)), (3, None)]


def test_items_are_read_together_and_each_end_is_seen_once(wide: Service) -> None:
    reader = wide.another()
    before = wide.count()
    reader.partitions.list_offsets(TOPIC, limit=100)
    cold = wide.count() - before
    assert cold["items.get"] == 3  # the topic; the topic and its heads, 101 items
    assert cold["objects.list"] == 100
    before = wide.count()
    reader.partitions.list_offsets(TOPIC, limit=100)
    assert wide.count() - before == {"items.get": 3, "objects.get": 100}


def test_earlier_changes_of_other_processes_are_in_the_answer(wide: Service) -> None:
    """What a warm process remembers answers nothing (I4)."""
    reader, other = wide.another(), wide.another()
    reader.partitions.list_offsets(TOPIC, limit=100)
    other.append(TOPIC, 7, request("x"))
    other.append(TOPIC, 10, request("x"))
    other.partitions.trim(TOPIC, 20, 2)
    other.topics.alter(TOPIC, partitions=151)
    page = reader.partitions.list_offsets(TOPIC, limit=100)
    found = dict(page.partitions)
    assert [found[number].bounds.next_offset for number in (7, 10, 20)] == [1, 3, 2]
    assert found[20].bounds.log_start_offset == 2
    assert reader.partitions.list_offsets(TOPIC, start_partition=150, limit=100).partitions == singly(
        other, range(150, 151)
    )


def test_an_end_that_was_seen_before_a_process_froze_is_seen_again(wide: Service) -> None:
    """Beside the look at the items, what was seen of the log may be from before the log start moved (I4)."""
    reader, other = wide.another(), wide.another()
    reader.partitions.list_offsets(TOPIC, limit=20)
    key = keys.segment_key(wide.topic_id(), 10, 2)
    frozen: list[str] = []

    def freeze(operation: str, at: str) -> None:
        if operation == "get" and at == key and not frozen:
            frozen.append(at)
            for _ in range(3):
                other.append(TOPIC, 10, request("x"))
            other.partitions.trim(TOPIC, 10, 5)
            wide.objects.store.delete(key)
            wide.runtime.advance(limits.GC_GRACE_MS)

    wide.objects.on_call = freeze
    page = dict(reader.partitions.list_offsets(TOPIC, limit=20).partitions)
    assert frozen
    assert (page[10].bounds.log_start_offset, page[10].bounds.next_offset) == (5, 5)


def test_a_topic_that_was_created_again_is_answered_as_the_new_one(wide: Service) -> None:
    reader = wide.another()
    reader.partitions.list_offsets(TOPIC, limit=100)
    wide.log.topics.delete(TOPIC)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        reader.partitions.list_offsets(TOPIC, limit=100)
    made = wide.log.topics.create(TOPIC, partitions=2)
    page = reader.partitions.list_offsets(TOPIC, limit=100)
    assert (page.topic_id, page.has_more, len(page.partitions)) == (made.topic_id, False, 2)
    assert {offsets.bounds.next_offset for _, offsets in page.partitions} == {0}


def test_a_topic_replaced_between_two_reads_is_answered_as_the_new_one(wide: Service) -> None:
    reader = wide.another()
    made = []

    def replace(operation: str, at: str) -> None:
        if operation == "get" and "," in at and not made:  # the heads, after the look at the name
            made.append(None)
            wide.log.topics.delete(TOPIC)
            made.append(wide.log.topics.create(TOPIC, partitions=3))

    wide.items.on_call = replace
    page = reader.partitions.list_offsets(TOPIC, limit=100)
    assert (page.topic_id, len(page.partitions)) == (made[1].topic_id, 3)
