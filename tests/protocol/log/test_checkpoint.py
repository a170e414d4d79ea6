"""Checkpoints: when, in which order, and never backwards (protocol, "The checkpoint"; I5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.format import keys
from fenceline.log import checkpoint
from fenceline.log.checkpoint_items import Head, producer_from_value
from fenceline.log.state import FOLD_VERSION
from fenceline.ports import Change, Check, Delete, Put, Unavailable
from tests.support.service import (
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
    outcome,
)
from tests.support.sweeping import swept


def head_of(service: Service) -> Head | None:
    key = keys.head_item(service.topic_id(), 0)
    item = service.items.store.get([key]).get(key)
    return None if item is None else Head.from_value(item.value)


def folded_to(service: Service, producer_id: int) -> int:
    key = keys.producer_item(service.topic_id(), 0, producer_id)
    return producer_from_value(service.items.store.get([key])[key].value)[1]


def writes(service: Service) -> list[Sequence[Change]]:
    """Return, as they come, the item writes from now on."""
    made: list[Sequence[Change]] = []
    store = service.items.store
    write = store.write

    def watched(changes: Sequence[Change]) -> None:
        write(changes)
        made.append(changes)

    store.write = watched  # type: ignore[method-assign]
    return made


def kinds(changes: Sequence[Change]) -> list[str]:
    return [change.key.sort.split("/")[0] for change in changes if not isinstance(change, Check)]


def test_a_checkpoint_is_written_with_every_sixteenth_segment(service: Service) -> None:
    for count in range(1, 40):
        append(service.log, "x")
        head = head_of(service)
        stands_at = 0 if head is None else head.state.next_offset
        assert stands_at == count // limits.CHECKPOINT_SEGMENTS * limits.CHECKPOINT_SEGMENTS


def test_a_checkpoint_is_written_ten_seconds_after_the_last(service: Service) -> None:
    append(service.log, "a")
    service.runtime.advance(limits.CHECKPOINT_MS - 1)
    append(service.log, "b")
    assert head_of(service) is None
    service.runtime.advance(1)
    append(service.log, "c")
    head = head_of(service)
    assert head is not None
    assert head.state.next_offset == 3


def test_aborted_transactions_come_first_then_producers_and_the_head_last(service: Service) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    for producer_id in range(120):
        log.add(data("x", producer=(producer_id, 0, 0), is_transactional=True))
        log.add(outcome(producer_id, 1, is_commit=producer_id % 2 == 0))
    log.store(service.objects)
    made = writes(service)
    assert service.another().partitions.checkpoint(TOPIC, 0) == 240
    order = [kind for changes in made for kind in kinds(changes)]
    assert order == ["aborted"] * 60 + ["producer"] * 120 + ["head"]
    assert all(len(changes) <= limits.TRANSACTION_ITEMS_MAX for changes in made)
    assert head_of(service) == Head(log.state, 0, long_aborted_from=0)


@pytest.mark.parametrize("failing", [0, 1])
def test_a_checkpoint_that_stops_half_way_is_true_as_far_as_it_came(service: Service, failing: int) -> None:
    """The producers' items are ahead of the head then: a cold process folds none of their batches twice."""
    log = LogBuilder(topic_id=service.topic_id())
    for producer_id in range(150):
        log.add(data("x", "y", producer=(producer_id, 0, 0)))
    log.store(service.objects)
    service.items.plan("write", *[lambda call: call()] * failing)
    service.items.always("write", is_unavailable)
    with pytest.raises(Exception, match="store"):
        service.another().partitions.checkpoint(TOPIC, 0)
    service.items.always("write", None)
    assert head_of(service) is None
    cold = service.another()
    for producer_id in (0, 80, 149):
        assert append(cold, "x", "y", producer=(producer_id, 0, 0)).base_offset == 2 * producer_id
        assert not append(cold, "z", producer=(producer_id, 0, 2)).duplicate


def collected(service: Service, topic_id: str) -> None:
    """Take the items of an incarnation away, as the sweeper does two graces after its end."""
    items = service.items.store
    while found := items.query(keys.partition_items(topic_id, 0)):
        items.write([Delete(item.key, item.version) for item in found])


@pytest.mark.parametrize("producers", [1, 150])
@pytest.mark.parametrize("is_recreated", [False, True])
def test_a_process_frozen_in_its_first_checkpoint_leaves_nothing_in_a_deleted_life(
    service: Service, producers: int, is_recreated: bool
) -> None:
    """No process would ever delete what it left: the sweeper no longer knows that incarnation."""
    topic_id = service.topic_id()
    log = LogBuilder(topic_id=topic_id)
    for producer_id in range(producers):
        log.add(data("x", producer=(producer_id, 0, 0)))
    log.store(service.objects)
    frozen = service.another()

    def meanwhile(call: Any) -> None:
        service.log.topics.delete(TOPIC)
        if is_recreated:
            service.log.topics.create(TOPIC)
        collected(service, topic_id)
        call()

    service.items.plan("write", meanwhile)
    if is_recreated:
        assert frozen.partitions.checkpoint(TOPIC, 0) == 0
    else:
        with pytest.raises(UnknownTopicOrPartitionError):
            frozen.partitions.checkpoint(TOPIC, 0)
    assert not service.items.store.query(keys.partition_items(topic_id, 0))


def test_a_first_checkpoint_beside_a_change_of_the_topic_is_written(service: Service) -> None:
    """The condition is that the name leads to this incarnation, not that nothing of it changes."""
    append(service.log, "a", producer=(7, 0, 0))

    def meanwhile(call: Any) -> None:
        service.another().topics.alter(TOPIC, config={"retention.ms": 1_000_000})
        call()

    service.items.plan("write", meanwhile)
    assert service.log.partitions.checkpoint(TOPIC, 0) == 1
    assert head_of(service) is not None


def test_an_acknowledgement_is_not_masked_by_a_life_that_ended_after_it(service: Service) -> None:
    log = service.another()
    for _ in range(limits.CHECKPOINT_SEGMENTS - 1):
        append(log, "x")

    def meanwhile(call: Any) -> None:
        topic_id = service.topic_id()
        service.log.topics.delete(TOPIC)
        collected(service, topic_id)
        call()

    service.items.plan("write", meanwhile)
    assert append(log, "last").base_offset == limits.CHECKPOINT_SEGMENTS - 1


def test_only_the_first_checkpoint_asks_for_the_topic(service: Service) -> None:
    made = writes(service)
    for n in range(2):
        append(service.log, "a", producer=(7, 0, n))
        service.log.partitions.checkpoint(TOPIC, 0)
    assert [any(isinstance(change, Check) for change in changes) for changes in made] == [True, False]


def test_an_item_says_to_where_it_was_folded(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    append(service.log, "b", producer=(8, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    append(service.log, "c", producer=(8, 0, 1))
    service.log.partitions.checkpoint(TOPIC, 0)
    assert (folded_to(service, 7), folded_to(service, 8)) == (2, 3)


def test_only_producers_that_appended_since_are_written(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    append(service.log, "b", producer=(8, 0, 0))
    made = writes(service)
    service.log.partitions.checkpoint(TOPIC, 0)
    (changes,) = made
    assert [change.key for change in changes] == [
        keys.producer_item(service.topic_id(), 0, 8),
        keys.head_item(service.topic_id(), 0),
    ]


def test_a_head_that_is_further_is_left_alone_and_so_are_its_producers(service: Service) -> None:
    """Two processes checkpoint the same log; the slower one's writes are refused or left out, never backwards."""
    append(service.log, "a", producer=(7, 0, 0))
    slow = service.another()
    append(slow, "b", producer=(7, 0, 1))
    append(service.log, "c", producer=(7, 0, 2))
    service.log.partitions.checkpoint(TOPIC, 0)
    head, item = head_of(service), folded_to(service, 7)
    partition = only_partition_of(slow)
    assert partition.state.next_offset == 2
    checkpoint.save(partition)
    assert (head_of(service), folded_to(service, 7)) == (head, item)


def test_many_processes_that_checkpoint_in_turns_only_move_forward(service: Service) -> None:
    logs = [service.another() for _ in range(3)]
    stands_at: dict[Any, int] = {}
    made = writes(service)
    for n in range(120):
        append(logs[n % 3], "x", producer=(n % 4, 0, n // 4))
        if n % 7 == 0:
            logs[(n + 1) % 3].partitions.checkpoint(TOPIC, 0)
    puts = [change for changes in made for change in changes if isinstance(change, Put)]
    for change in [put for put in puts if put.key.sort.startswith(("head", keys.PRODUCER_SORT))]:
        value = change.value
        at = value.get("next_offset", value.get("folded_to"))
        assert isinstance(at, int)
        assert at > stands_at.get(change.key, 0)
        stands_at[change.key] = at
    versions = [change.version for changes in made for change in changes if change.key.sort == "head"]  # type: ignore[union-attr]
    assert versions == [versions[0] + n for n in range(len(versions))], "a version is never used twice"


@pytest.mark.parametrize("fault", [is_unavailable, never_arrives, loses_answer, moves])
def test_after_a_checkpoint_that_failed_the_next_is_tried_ten_seconds_later(service: Service, fault: Any) -> None:
    service.items.plan("write", *[fault] * 8)
    for _ in range(limits.CHECKPOINT_SEGMENTS):
        append(service.log, "x", producer=None)
    tried = service.items.calls["write"]
    append(service.log, "x")
    append(service.log, "x")
    assert service.items.calls["write"] == tried, "not at each append while the store is away"
    service.items._planned.clear()
    service.runtime.advance(limits.CHECKPOINT_MS)
    append(service.log, "x")
    head = head_of(service)
    assert head is not None
    assert head.state.next_offset == 19


def test_a_fold_never_writes_over_a_head_of_a_newer_fold_and_appends_without_checkpoints(service: Service) -> None:
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    key = keys.head_item(service.topic_id(), 0)
    item = service.items.store.get([key])[key]
    newer = Put(key, {**item.value, "fold_version": FOLD_VERSION + 1}, item.version + 1, item.version)
    service.items.store.write([newer])
    old = service.another()
    for sequence in range(1, 40):
        append(old, "b", producer=(7, 0, sequence))
    head = head_of(service)
    assert head is not None
    assert (head.fold_version, head.state.next_offset) == (FOLD_VERSION + 1, 1)
    assert len(service.values()) == 40


def test_a_head_that_a_newer_fold_took_over_amid_a_checkpoint_is_left_alone(service: Service) -> None:
    """The write loses to the newer head; the next try is judged by the head as it is then."""
    append(service.log, "a", producer=(7, 0, 0))
    service.log.partitions.checkpoint(TOPIC, 0)
    append(service.log, "b", producer=(7, 0, 1))
    key = keys.head_item(service.topic_id(), 0)

    def meanwhile(call: Any) -> None:
        item = service.items.store.get([key])[key]
        newer = {**item.value, "fold_version": FOLD_VERSION + 1}
        service.items.store.write([Put(key, newer, item.version + 1, item.version)])
        call()

    service.items.plan("write", meanwhile)
    service.log.partitions.checkpoint(TOPIC, 0)
    head = head_of(service)
    assert head is not None
    assert (head.fold_version, head.state.next_offset) == (FOLD_VERSION + 1, 1)


def test_a_process_that_was_frozen_writes_no_checkpoint_of_what_it_folded_since(service: Service) -> None:
    """A long poll of the process may have folded a late create, at a key that the log start has passed."""
    append(service.log, "a")
    frozen = service.another()
    append(frozen, "b")
    late = service.builder()
    late.add(data("lost", producer=(7, 0, 0)))
    append(service.log, *"cdefg")
    service.log.partitions.trim(TOPIC, 0, 7)
    service.runtime.advance(limits.GC_GRACE_MS)
    swept(service)
    assert service.objects.store.list(keys.log_prefix(service.topic_id(), 0)) == []
    late.store(service.objects, start=2)
    partition = only_partition_of(frozen)
    assert partition.fold_at(2)
    with pytest.raises(Unavailable, match="too old"):
        checkpoint.save(partition)
    retried = append(service.another(), "lost", producer=(7, 0, 0))
    assert (retried.duplicate, retried.base_offset) == (False, 7), "it is nowhere in the log: it is stored now"


def test_a_cold_process_reads_only_the_head_and_later_segments(service: Service) -> None:
    for _ in range(50):
        append(service.log, "x")
    service.log.partitions.checkpoint(TOPIC, 0)
    append(service.log, "y")
    service.objects.calls.clear()
    assert service.another().partitions.offsets(TOPIC, 0).bounds.next_offset == 51
    # The one after the head, and the looks for the next key.
    assert service.objects.calls["get"] <= 3


def test_a_process_forgets_producers_that_the_items_hold(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_CACHED_MAX", 5)
    for producer_id in range(40):
        append(service.log, "x", producer=(producer_id, 0, 0))
    assert len(only_partition_of(service.log)._producers) <= 5 + limits.CHECKPOINT_SEGMENTS
    for producer_id in range(40):
        assert append(service.log, "x", producer=(producer_id, 0, 0)).base_offset == producer_id
        assert append(service.log, "y", producer=(producer_id, 0, 1)).base_offset == 40 + producer_id
