from __future__ import annotations

from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.format import keys
from fenceline.log.checkpoint import move_log_start
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.log.replay import begin, write_state
from fenceline.model.requests import ReadRequest
from tests.support.service import (
    REGION,
    TOPIC,
    LogBuilder,
    Service,
    append,
    data,
    is_unavailable,
    loses_answer,
    moves,
    never_arrives,
    only_partition_of,
)
from tests.support.sweeping import check_all, states, swept


def head_of(service: Service) -> Head:
    key = keys.head_item(service.topic_id(), 0)
    return Head.from_value(service.items.store.get([key])[key].value)


def test_a_trim_moves_the_log_start_to_exactly_that_offset(service: Service) -> None:
    append(service.log, *"abcd")
    assert service.log.partitions.trim(TOPIC, 0, 3) == 3
    assert service.another().partitions.offsets(TOPIC, 0).bounds.log_start_offset == 3
    assert service.log.partitions.trim(TOPIC, 0, 4) == 4
    assert service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 4


def test_the_checkpoint_is_never_behind_the_log_start(service: Service) -> None:
    append(service.log, *"abcd")
    append(service.log, *"efgh")
    service.log.partitions.trim(TOPIC, 0, 2)
    assert head_of(service).log_start == 2
    assert head_of(service).state.next_offset >= 2


def test_the_producers_and_what_is_open_are_in_the_items_before_the_log_start_moves(service: Service) -> None:
    """Otherwise what the trimmed records said would be lost once they are collected."""
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.trim(TOPIC, 0, 1)
    service.objects.store.delete(keys.segment_key(service.topic_id(), 0, 0))
    cold = service.another()
    assert append(cold, "a", producer=(7, 0, 0)).duplicate
    assert append(cold, "b", producer=(7, 0, 1)).base_offset == 1


@pytest.mark.parametrize("before_offset", [0, 1, 2])
def test_at_or_below_the_log_start_nothing_changes(service: Service, before_offset: int) -> None:
    append(service.log, *"abcd")
    service.log.partitions.trim(TOPIC, 0, 2)
    before = head_of(service)
    assert service.another().partitions.trim(TOPIC, 0, before_offset) == 2
    assert head_of(service) == before


def test_a_trim_beyond_the_end_is_out_of_range_and_changes_nothing(service: Service) -> None:
    append(service.another(), *"abcd")
    with pytest.raises(errors.OffsetOutOfRangeError) as refusal:
        service.log.partitions.trim(TOPIC, 0, 5)
    assert (refusal.value.log_start_offset, refusal.value.next_offset) == (0, 4)
    assert service.log.partitions.trim(TOPIC, 0, 4) == 4, "another process's records count"


def test_an_empty_partition_is_trimmed_to_its_only_offset(service: Service) -> None:
    assert service.log.partitions.trim(TOPIC, 0, 0) == 0
    with pytest.raises(errors.OffsetOutOfRangeError):
        service.log.partitions.trim(TOPIC, 0, 1)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
@pytest.mark.parametrize("nth", [0, 1])
def test_a_trim_survives_one_fault_of_the_item_store(service: Service, fault: Any, nth: int) -> None:
    append(service.log, *"abcd", producer=(7, 0, 0))
    service.items.plan("write", *[lambda call: call()] * nth, fault)
    assert service.log.partitions.trim(TOPIC, 0, 3) == 3
    assert head_of(service).log_start == 3


def test_a_trim_that_no_item_store_takes_is_an_error_and_moves_nothing(service: Service) -> None:
    append(service.log, *"abcd")
    service.items.always("write", is_unavailable)
    with pytest.raises(errors.StoreUnavailableError):
        service.log.partitions.trim(TOPIC, 0, 3)
    service.items.always("write", never_arrives)
    with pytest.raises(errors.OutcomeUnknownError):
        service.log.partitions.trim(TOPIC, 0, 3)
    service.items.always("write", None)
    assert service.log.partitions.offsets(TOPIC, 0).bounds.log_start_offset == 0


def test_an_older_process_never_moves_the_log_start_back(service: Service) -> None:
    """Its checkpoint keeps what the item says."""
    for value in "abcd":
        append(service.log, value)
    other = service.another()
    append(other, "e")
    service.log.partitions.trim(TOPIC, 0, 3)
    append(other, "f")
    other.partitions.checkpoint(TOPIC, 0)
    assert other.partitions.trim(TOPIC, 0, 2) == 3
    head = head_of(service)
    assert (head.log_start, head.state.next_offset) == (3, 6)


def test_a_log_start_that_another_has_moved_further_meanwhile_stays_there(service: Service) -> None:
    append(service.log, *"abcd")
    partition = only_partition_of(service.log)
    service.another().partitions.trim(TOPIC, 0, 3)
    assert move_log_start(partition, 2) == 3
    assert head_of(service).log_start == 3


def test_a_trim_ends_no_producers_state(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.trim(TOPIC, 0, 1)
    with pytest.raises(errors.OutOfOrderSequenceNumberError):
        append(service.log, "b", producer=(7, 0, 5))


def test_appends_and_reads_go_on_behind_a_trim_to_the_end(service: Service) -> None:
    append(service.log, *"ab")
    service.log.partitions.trim(TOPIC, 0, 2)
    for log in (service.log, service.another()):
        page = log.partitions.read(
            TOPIC, 0, ReadRequest(offset=log.partitions.offsets(TOPIC, 0).bounds.log_start_offset)
        )
        assert page.position == page.bounds.log_start_offset == page.bounds.next_offset == 2
    assert append(service.log, "c").base_offset == 2


def test_a_trim_of_a_long_log_takes_seconds_and_the_sweeper_does_the_rest(service: Service) -> None:
    """The object under ``state/`` takes one read for each segment: as many as fit into the time of one request."""
    builder = LogBuilder(topic_id=service.topic_id())
    for n in range(120):
        builder.add(data(f"v{n}"))
    builder.store(service.objects.store)
    service.log.partitions.checkpoint(TOPIC, 0)
    service.objects.on_call = lambda operation, key: service.runtime.advance(100 * (operation == "get"))
    before = service.runtime.monotonic_ms()
    assert service.another().partitions.trim(TOPIC, 0, 120) == 120
    assert service.runtime.monotonic_ms() - before <= limits.STATE_REQUEST_MS + 100 * limits.FETCH_SEGMENTS
    service.objects.on_call = None
    (reached,) = states(service, service.topic_id())
    assert 0 < reached < 120
    check_all(service)
    service.runtime.advance(limits.STATE_MS)
    swept(service)
    assert states(service, service.topic_id()) == [reached, 120]
    check_all(service)


def test_a_process_that_was_frozen_stores_no_fold_over_a_newer_one(service: Service) -> None:
    """What it folds from then on may be a late create, at a key that was collected after the newer state object."""
    context = Context(service.objects, service.items, service.runtime, REGION)
    log = LogBuilder(topic_id="life")
    log.add(data("a"))
    late = LogBuilder(topic_id="life")
    late.state = log.state
    late.add(data("lost", "lost", producer=(7, 0, 0)))
    log.add(data("b"))
    log.add(data("c"))
    whole = log.state
    log.add(data("d", "e"))
    log.store(service.objects)
    assert write_state(context, "life", 0, 1, segments_max=99) == 1

    def others_go_on(call: Any) -> Any:
        assert write_state(context, "life", 0, 3, segments_max=99) == 3
        for base_offset in (0, 1, 2):
            service.objects.store.delete(keys.segment_key("life", 0, base_offset))
        late.store(service.objects)
        return call()

    looks = [lambda call: call()] * 2  # for the newest, to the listing's end
    service.objects.plan("list", *looks, others_go_on)
    assert write_state(context, "life", 0, 4, segments_max=99) == 1
    rebuilt = begin(context, "life", 0)
    assert (rebuilt.state, rebuilt.producers) == (whole, {})
