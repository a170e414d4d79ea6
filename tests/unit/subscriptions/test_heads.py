"""Many partitions at once: their ends are those of verified tails, for few calls where little is stored."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.service.log import Log
from fenceline.subscriptions import heads
from fenceline.subscriptions.cursors import LiveTopic
from tests.support.service import TOPIC, LogBuilder, Service, data, outcome, request, serve

CALLS_AT_ONCE = 32
LAMBDA_MS = 25_000  # with time left for the answer
CALL_MS = 20


@pytest.fixture
def service() -> Iterator[Service]:
    made = serve()
    yield made
    made.close()


def send(log: Log, partition: int, count: int = 1) -> None:
    for n in range(count):
        log.append(TOPIC, partition, request(f"v{n}"))


def live(log: Log) -> LiveTopic:
    return log.subscriptions.live(TOPIC)


def test_a_subscription_at_latest_on_many_empty_partitions_is_made_within_a_function_s_time(service: Service) -> None:
    """Asking each partition took 30,000 calls: 24 s beside the stores, and more than its time-out in a function."""
    service.log.topics.create(TOPIC, partitions=limits.PARTITIONS_MAX)
    log = service.another()
    before = service.count()
    shown, is_new = log.subscriptions.subscribe(TOPIC, "s")
    calls = service.count() - before
    assert is_new
    assert [cursor.mark_delete_offset for cursor in shown.cursors] == [0] * limits.CURSORS_SHOWN_DEFAULT
    beside = 2 * limits.CURSORS_SHOWN_DEFAULT + 10  # for the first partitions, which are shown
    assert calls["items.get"] <= limits.PARTITIONS_MAX / limits.TRANSACTION_ITEMS_MAX + beside
    assert calls["objects.list"] + calls["objects.get"] <= 1 + beside
    assert calls["items.write"] == 1
    assert calls.total() * CALL_MS / CALLS_AT_ONCE < LAMBDA_MS / 10


def test_each_partition_s_end_is_found_wherever_its_checkpoint_is(service: Service) -> None:
    service.log.topics.create(TOPIC, partitions=12)
    old = service.another()
    send(old, 1)  # no checkpoint yet
    send(old, 2, 3)
    old.partitions.checkpoint(TOPIC, 2)
    send(old, 3, 2)
    old.partitions.checkpoint(TOPIC, 3)
    send(old, 3, 2)  # and some after the checkpoint
    send(old, 4, 4)
    old.partitions.trim(TOPIC, 4, 4)
    send(old, 11)
    assert heads.stable_ends(live(service.another())) == [0, 1, 3, 4, 4, 0, 0, 0, 0, 0, 0, 1]


def test_a_subscription_at_latest_is_shown_nothing_that_was_there(service: Service) -> None:
    service.log.topics.create(TOPIC, partitions=4)
    send(service.log, 2, 3)
    shown, _ = service.another().subscriptions.subscribe(TOPIC, "s")
    assert [cursor.mark_delete_offset for cursor in shown.cursors] == [0, 0, 3, 0]
    assert [cursor.backlog for cursor in shown.cursors] == [0] * 4


@pytest.mark.parametrize("has_head", [True, False])
def test_a_subscription_at_latest_begins_at_what_is_not_decided_yet(service: Service, has_head: bool) -> None:
    """What is committed after its creation is not lost, also where nothing follows the head."""
    service.log.topics.create(TOPIC, partitions=2)
    log = LogBuilder(topic_id=service.topic_id())
    log.add(data("0"))
    log.add(data("1", producer=(7, 0, 0), is_transactional=True))
    log.add(data("2"))
    log.store(service.objects)
    if has_head:
        log.store_head(service.items)
    shown, _ = service.another().subscriptions.subscribe(TOPIC, "s")
    assert [(cursor.mark_delete_offset, cursor.backlog) for cursor in shown.cursors] == [(1, 2), (0, 0)]
    log.add(outcome(7, 1, is_commit=True))
    log.store(service.objects, 3)
    shown, _ = service.another().subscriptions.subscribe(TOPIC, "late")
    assert [cursor.mark_delete_offset for cursor in shown.cursors] == [4, 0]


def test_records_acknowledged_before_the_call_are_below_the_end(service: Service) -> None:
    """Between the heads and the listing other processes append: what came before the call is never after the cursor."""
    service.log.topics.create(TOPIC, partitions=3)
    rival = service.another()
    reader = live(service.another())
    is_done = []

    def meanwhile(operation: str, key: str) -> None:
        if operation == "list" and not is_done:
            is_done.append(key)
            send(rival, 1)

    service.objects.on_call = meanwhile
    assert heads.stable_ends(reader) == [0, 1, 0]


def test_a_process_frozen_behind_the_heads_asks_each_partition_anew(service: Service) -> None:
    """An absent key proves nothing once it may have been collected (I4)."""
    service.log.topics.create(TOPIC, partitions=2)
    rival = service.another()
    reader = live(service.another())
    is_done = []

    def meanwhile(operation: str, key: str) -> None:
        if operation == "list" and not is_done:
            is_done.append(key)
            send(rival, 0, 3)
            rival.partitions.trim(TOPIC, 0, 3)
            for line in service.objects.store.list(keys.log_prefix(service.topic_id(), 0)):
                service.objects.store.delete(line.key)
            service.runtime.advance(3 * limits.GC_GRACE_MS, monotonic_ms=0)

    service.objects.on_call = meanwhile
    assert heads.stable_ends(reader) == [3, 0]


def test_a_topic_that_is_going_has_no_ends(service: Service) -> None:
    service.log.topics.create(TOPIC, partitions=2)
    found = live(service.another())
    service.log.topics.delete(TOPIC)
    with pytest.raises(heads.StaleTopicId):
        heads.stable_ends(found)


def test_partitions_with_segments_cost_a_listing_each_and_the_others_one_together(service: Service) -> None:
    service.log.topics.create(TOPIC, partitions=1_000)
    topic_id = service.topic_id()
    for partition in (0, 7, 8, 999):
        send(service.log, partition)
    before = service.count()
    found = heads.with_segments(service.log.context, topic_id, dict.fromkeys(range(1_000), 0))
    assert found == {0, 7, 8, 999}
    assert (service.count() - before)["objects.list"] <= 5
    assert heads.with_segments(service.log.context, topic_id, {7: 1, 8: 0, 9: 0, 999: 1}) == {8}
