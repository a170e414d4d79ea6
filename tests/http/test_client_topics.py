"""Topics that change under the client's producers and readers, against the service itself.

Rule: what a look shows is what the service then takes: claims of new partitions, smaller batches, marks of new ones.
"""

from __future__ import annotations

from typing import Any

import pytest

from fenceline import Client, Record, errors
from fenceline.client.topic_watch import LOOK_MS
from fenceline.model.topic import Topic
from fenceline_testing.service import Fenceline, in_memory
from tests.support.patience import wait_until
from tests.support.runtime import FakeRuntime


class World:
    """A service, a client whose time the test moves, and what its producers say of growth."""

    def __init__(self, lent: Fenceline) -> None:
        self.clock = FakeRuntime()
        self.other = lent.client
        self.client = Client("http://here", http=lent.client._transport._http._transport, runtime=self.clock)
        self.growths: list[tuple[int, errors.FencelineError | None]] = []

    def note(self, topic: Topic, error: errors.FencelineError | None) -> None:
        self.growths.append((topic.partitions, error))

    def look(self) -> tuple[int, errors.FencelineError | None]:
        """Let a minute pass, and return what the producer says then."""
        before = len(self.growths)
        self.clock.pass_ms(LOOK_MS)
        wait_until(lambda: len(self.growths) > before)
        return self.growths[-1]


@pytest.mark.parametrize("access_mode", ["Exclusive", "ExclusiveWithFencing", "WaitForExclusive"])
def test_an_exclusive_producer_of_a_whole_topic_keeps_strangers_out_of_what_is_new(access_mode: Any) -> None:
    with in_memory() as lent:
        world = World(lent)
        world.other.create_topic("t", partitions=2)
        options: dict[str, Any] = {"access_mode": access_mode, "lease_ms": 300_000, "on_growth": world.note}
        with world.client.producer("t", linger_ms=3_600_000, **options) as producer:
            world.other.alter_topic("t", partitions=40)
            assert world.look() == (40, None)
            producer.send(value=b"x", partition=39)
            producer.flush()
            for partition in (2, 39):
                with pytest.raises(errors.ProducerBusyError):
                    world.other.produce("t", partition, [Record(b"of a stranger")])
        assert [len(world.other.read("t", n, offset=0).records) for n in (2, 39)] == [0, 1]


def test_an_exclusive_producer_waits_for_a_stranger_who_has_what_is_new_and_128_are_the_most() -> None:
    with in_memory() as lent:
        world = World(lent)
        world.other.create_topic("t", partitions=2)
        options: dict[str, Any] = {"access_mode": "Exclusive", "lease_ms": 300_000, "on_growth": world.note}
        with world.client.producer("t", **options) as producer:
            world.other.alter_topic("t", partitions=4)
            with world.other.producer("t", access_mode="Exclusive", partitions=[3]):
                partitions, error = world.look()
                assert (partitions, type(error)) == (4, errors.ProducerFencedError)
            assert world.look() == (4, None)
            world.other.alter_topic("t", partitions=130)
            partitions, error = world.look()
            assert (partitions, type(error)) == (130, errors.ThrottledError)
            with pytest.raises(errors.UnknownTopicOrPartitionError, match="partition=4 partitions=4"):
                producer.send(value=b"x", partition=4)


@pytest.mark.parametrize("access_mode", ["ExclusiveWithFencing", "WaitForExclusive"])
def test_a_producer_that_was_fenced_and_does_not_know_it_takes_nothing_from_its_successor(access_mode: Any) -> None:
    with in_memory() as lent:
        world = World(lent)
        world.other.create_topic("t", partitions=2)
        options: dict[str, Any] = {"access_mode": access_mode, "lease_ms": 300_000, "on_growth": world.note}
        idle = world.client.producer("t", **options)
        world.other.alter_topic("t", partitions=4)
        with world.other.producer("t", access_mode="ExclusiveWithFencing", lease_ms=300_000) as successor:
            partitions, error = world.look()
            assert (partitions, type(error)) == (4, errors.ProducerFencedError)
            assert world.other.producers("t").waiting == []
            for partition in range(4):
                successor.send(value=b"x", partition=partition)
            successor.flush()
        idle.__exit__(KeyError, None, None)


def test_a_lowered_limit_splits_a_batch_and_a_subscription_reads_new_partitions_whole() -> None:
    with in_memory() as lent:
        world = World(lent)
        world.other.create_topic("t")
        world.other.create_subscription("t", "s")
        with world.client.producer("t", linger_ms=3_600_000, compression="none", on_growth=world.note) as producer:
            sent = [producer.send(value=b"x" * 500) for _ in range(40)]
            world.other.alter_topic("t", partitions=3, config={"max.message.bytes": 4_000})
            producer.flush()
            assert [delivery.result().offset for delivery in sent] == list(range(40))
            wait_until(lambda: world.growths == [(3, None)])
            producer.send(value=b"new", partition=2)
        with world.client.subscribe("t", "s", follow=False) as subscriber:
            found = [(partition, record.value) for partition, record in subscriber]
        assert (len(found), found.count((2, b"new"))) == (41, 1)
