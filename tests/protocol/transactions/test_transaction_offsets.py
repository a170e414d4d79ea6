"""Offsets sent in a transaction are settled before it is complete (protocol, "Offsets in a transaction").

Not here: the order of commits to one cursor, and its limits (``test_settled_offsets``).
"""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import ThrottledError
from fenceline.format import keys
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import COMPLETE_COMMIT, PREPARE_COMMIT
from fenceline.ports import Put
from fenceline.transactions import pending_offsets
from tests.support.claiming import code_of
from tests.support.service import TOPIC, Service, append, is_unavailable, loses_answer, never_arrives, slept_before
from tests.support.transacting import ID, TIMEOUT_MS, Producer, committed, twin

GROUP = "counters"


@pytest.fixture
def producer(wide: Service) -> Producer:
    """Return a producer that has read 3 records, sent what it made of them, and added its group."""
    append(wide.log, "a", "b", "c")
    made = Producer(wide, wide.another())
    made.begin()
    made.send("made", 1)
    made.coordinator.add_group(ID, made.pair, GROUP, made.until_ms)
    return made


def send(producer: Producer, offset: int, partition: int = 0) -> None:
    pending_offsets.send(
        producer.log.context,
        producer.log.subscriptions.live,
        GROUP,
        [CommittedOffset(TOPIC, partition, offset)],
        lambda *_: (),
        lambda: producer.coordinator.ongoing(ID, producer.pair, GROUP, producer.until_ms),
    )


def offsets(service: Service) -> list[int]:
    """Return what the group has committed, by partition."""
    return [one.offset for one in service.another().subscriptions.committed(GROUP, topic=TOPIC)[0]]


@pytest.mark.parametrize(("is_commit", "expected"), [(True, [3]), (False, [])])
def test_an_outcome_settles_what_was_sent(
    wide: Service, producer: Producer, is_commit: bool, expected: list[int]
) -> None:
    send(producer, 3)
    assert offsets(wide) == []
    producer.end(is_commit=is_commit)
    assert offsets(wide) == expected
    assert producer.stored().cursors == ()


def test_offsets_are_settled_before_the_transaction_is_complete(wide: Service, producer: Producer) -> None:
    send(producer, 3)
    wide.items.always("write", is_unavailable, wide.topic_id() + "/")
    assert code_of(producer.outcome) == "CONCURRENT_TRANSACTIONS"
    assert (producer.stored().state, committed(wide, 1)) == (PREPARE_COMMIT, ["made"])
    wide.items.always("write", None)
    producer.end()
    assert (producer.stored().state, offsets(wide)) == (COMPLETE_COMMIT, [3])


def test_an_end_beside_a_send_has_it_or_refuses_it(wide: Service, producer: Producer) -> None:
    """I14: what is sent late meets another version of the item."""
    other = twin(producer)
    send(producer, 1)
    wide.items.plan("write", slept_before(other.outcome))
    assert code_of(lambda: send(producer, 3)) == "PRODUCER_FENCED"
    assert offsets(wide) == [1]
    producer.takes(other.outcome())
    producer.coordinator.add_group(ID, producer.pair, GROUP, producer.until_ms)
    other = twin(producer)
    wide.items.plan("write", slept_before(lambda: send(other, 3, 0)))
    producer.end()
    assert offsets(wide) == [3]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
@pytest.mark.parametrize("number", range(3))
def test_a_write_of_an_end_that_was_not_answered_settles_once(
    wide: Service, producer: Producer, fault: Any, number: int
) -> None:
    send(producer, 3)
    wide.items.plan("write", *[lambda call: call()] * number, fault)
    producer.end()
    assert (producer.stored().state, offsets(wide)) == (COMPLETE_COMMIT, [3])


def test_a_group_alone_is_a_transaction(wide: Service) -> None:
    append(wide.log, "a", "b", "c")
    producer = Producer(wide, wide.log)
    producer.begin()
    producer.coordinator.add_group(ID, producer.pair, GROUP, producer.until_ms)
    send(producer, 2)
    wide.runtime.advance(TIMEOUT_MS + 1)
    producer.end()
    assert offsets(wide) == [2]


def test_a_subscription_that_was_deleted_is_done(wide: Service, producer: Producer) -> None:
    send(producer, 3)
    wide.another().subscriptions.unsubscribe(TOPIC, GROUP)
    producer.end()
    assert producer.stored().state == COMPLETE_COMMIT
    assert offsets(wide) == []


@pytest.mark.parametrize(("others", "sent_at_once"), [(21, 32), (22, 16)])
def test_one_request_writes_fewer_pending_offsets_than_a_store_takes(
    service: Service, others: int, sent_at_once: int
) -> None:
    """32 cursors, in each of which other transactions have offsets with the longest metadata. A request that would
    write more than 3 MiB is refused, and says what to do; nothing is sent."""
    service.log.topics.alter(TOPIC, partitions=32)
    everywhere = [CommittedOffset(TOPIC, number, 0, "m" * limits.METADATA_BYTES_MAX) for number in range(32)]
    service.log.subscriptions.commit(GROUP, everywhere)
    pending = {str(100 + n): [0, n + 2, 0, "m" * limits.METADATA_BYTES_MAX] for n in range(others)}
    for item in service.items.store.query(keys.cursor_items(GROUP)):
        value = {**item.value, "sent": others + 1, "pending": pending}
        service.items.store.write([Put(item.key, value, item.version + 1, item.version)])
    producer = Producer(service, service.another())
    producer.begin()
    producer.coordinator.add_group(ID, producer.pair, GROUP, producer.until_ms)
    sends = producer.log.transactions.send_offsets
    if sent_at_once < len(everywhere):
        with pytest.raises(ThrottledError, match=f"fewer at a time: .* bytes_max={limits.SENT_OFFSETS_BYTES_MAX}"):
            sends(ID, producer.pair, GROUP, everywhere)
        assert producer.stored().cursors == ()
    sends(ID, producer.pair, GROUP, everywhere[:sent_at_once])
    assert [len(one.partitions) for one in producer.stored().cursors] == [sent_at_once]
