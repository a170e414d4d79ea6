"""Transactions of one id by several processes, which sleep, die and lose answers at any of their calls (I10 to I13).

While one process sleeps at a call, others make whole requests. A seed picks who acts, and what fails.

Not here: interleavings of single steps of several processes (``tests/simulation``).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest

from fenceline.errors import FencelineError
from fenceline.format import control, keys
from fenceline.log.trim import trim
from fenceline.model.transaction import ProducerPair
from fenceline.ports import Delete, NoAnswer, StoreFact, Unavailable
from tests.support.service import TOPIC, Service, partition_of, serve
from tests.support.transacting import TIMEOUT_MS, Producer, committed, meetings_of, opened, tail_of

PARTITIONS = (0, 1)
PROCESSES, STEPS, DEPTH_MAX = 4, 60, 3
SEEDS = 40


class Died(BaseException):
    """The end of a process, in the middle of a call."""


class History:
    """The requests of one seed, and what was answered."""

    def __init__(self, seed: int, service: Service) -> None:
        self.chance = random.Random(seed)
        self.service = service
        self.producers = [Producer(service, service.another()) for _ in range(PROCESSES)]
        self.acting: list[Producer] = []
        self.trouble = self.chance.choice([0.0, 0.02, 0.1])
        self.values = 0
        self.given: dict[ProducerPair, object] = {}  # to which request
        self.asked: set[tuple[ProducerPair, bool]] = set()  # outcomes that were asked for
        self.ended: dict[ProducerPair, bool] = {}  # outcomes that were answered
        self.stored: dict[ProducerPair, list[tuple[int, int, str]]] = defaultdict(list)  # records that were answered
        for store in (service.items, service.objects):
            store.observer = self.meddled(store.observer)

    def meddled(self, observer: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def observe(call: Any) -> Any:
            if not self.acting:
                return observer(call)
            if self.chance.random() < 0.03:
                self.act()
            fate = self.chance.random() / self.trouble if self.trouble else 1
            is_write = call.method in ("write", "create")
            if fate < 0.25:
                raise Unavailable("away")
            if fate < 0.5 and is_write:
                raise NoAnswer("lost on its way")
            if fate < 0.6:
                raise Died
            answer = observer(call)
            if fate < 0.9 and is_write:
                raise NoAnswer("made, and the answer was lost")
            if fate < 1 and is_write:
                raise Died
            if self.chance.random() < 0.02:
                self.act()
            return answer

        return observe

    def act(self) -> None:
        """Let a process that sleeps nowhere make one request."""
        idle = [producer for producer in self.producers if producer not in self.acting]
        if len(self.acting) >= DEPTH_MAX or not idle:
            return
        producer = self.chance.choice(idle)
        if self.chance.random() < 0.7:  # it takes over what the newest instance has, as after a restart
            other = max(self.producers, key=lambda one: one.pair)
            producer.pair, producer.sequences = other.pair, dict(other.sequences)
        self.acting.append(producer)
        try:
            self.request(producer)
        except (FencelineError, StoreFact):
            pass
        except Died:
            producer.log = self.service.another()
        finally:
            self.acting.remove(producer)

    def request(self, producer: Producer) -> None:
        kind = self.chance.choices(
            ["begin", "keep", "send", "commit", "abort", "read", "get", "time", "forget", "trim"],
            [1, 1, 14, 8, 3, 4, 1, 1, 3, 1],
        )[0]
        if producer.pair.producer_id < 0:
            kind = "begin"
        number = self.chance.choice(PARTITIONS)
        if kind in ("begin", "keep"):
            before = producer.pair
            pair = producer.begin(keeps=kind == "keep")
            self.gives(pair, ("keep", before) if kind == "keep" else object())
        elif kind == "send":
            self.values += 1
            value, pair = f"{self.values}", producer.pair
            appended = producer.send(value, number)
            if not appended.duplicate:  # of what another instance sent with the same sequence
                self.stored[pair].append((number, appended.base_offset, value))
        elif kind in ("commit", "abort"):
            ended, is_commit = producer.pair, kind == "commit"
            self.asked.add((ended, is_commit))
            pair = producer.end(is_commit=is_commit)
            self.gives(pair, ("end", ended))
            assert self.ended.setdefault(ended, is_commit) == is_commit
        elif kind == "read":
            log = producer.log
            meetings_of(log).held(partition_of(log, number), tail_of(self.service, log, number))
        elif kind == "get":
            producer.get()
        elif kind == "time":
            self.service.runtime.advance(self.chance.choice([1_000, TIMEOUT_MS, 61_000]))
        elif kind == "forget":
            self.forget(producer, number)
        elif kind == "trim":
            tail = tail_of(self.service, producer.log, number)
            until = self.chance.choice([tail.bounds.last_stable_offset, tail.bounds.next_offset])
            trim(partition_of(producer.log, number), until)

    def gives(self, pair: ProducerPair, to: object) -> None:
        assert self.given.setdefault(pair, to) == to  # I13

    def forget(self, producer: Producer, number: int) -> None:
        """Let a partition's items forget a producer that has nothing open there, as after its expiration."""
        producer.log.partitions.checkpoint(TOPIC, number)
        tail = tail_of(self.service, producer.log, number)
        items = self.service.items.store
        prefix = keys.PRODUCER_SORT
        for item in items.query(keys.partition_items(self.service.topic_id(), number), prefix=prefix):
            if keys.parse_producer_item(item.key) not in tail.state.open_transactions:
                items.write([Delete(item.key, item.version)])

    def run(self) -> None:
        for _ in range(STEPS):
            self.act()
        self.trouble = 0.0
        Producer(self.service, self.service.another()).begin()

    def check(self) -> None:
        outcomes: dict[ProducerPair, set[bool]] = defaultdict(set)  # by the pair whose transaction was ended
        for partition in PARTITIONS:
            log_start = tail_of(self.service, self.service.another(), partition).bounds.log_start_offset
            shown = set(committed(self.service, partition, offset=log_start))
            assert opened(self.service, partition) == []
            ended_here = self.check_log(partition, outcomes)
            for pair, records in self.stored.items():
                for where, offset, value in records:
                    if where == partition and offset >= log_start:
                        assert (value in shown) == ended_here[pair]
        assert all(len(found) == 1 for found in outcomes.values())
        for pair, found in outcomes.items():
            assert found == {False} or (pair, True) in self.asked
            assert pair not in self.ended or found == {self.ended[pair]}

    def check_log(self, partition: int, outcomes: dict[ProducerPair, set[bool]]) -> dict[ProducerPair, bool]:
        """Check that the end of each transaction here is the one right after it, and return those outcomes (I12)."""
        last: dict[int, int] = {}  # the epoch of each producer's last marker
        begun: dict[int, int] = {}  # the epoch of what is open
        ended: dict[ProducerPair, bool] = {}
        for segment in self.service.segments(partition=partition):
            for position, header in segment.batches:
                producer_id, epoch = header.producer_id, header.producer_epoch
                if not header.is_control:
                    assert epoch >= last.get(producer_id, 0)
                    assert begun.setdefault(producer_id, epoch) == epoch
                    continue
                # A marker comes again only where the partition forgot its producer while the item was still prepared.
                assert epoch >= last.get(producer_id, -1)
                last[producer_id] = epoch
                is_commit = control.parse_marker(segment.body, position, header).type == control.COMMIT
                outcomes[ProducerPair(producer_id, epoch - 1)].add(is_commit)
                if producer_id in begun:
                    assert begun.pop(producer_id) == epoch - 1
                    ended[ProducerPair(producer_id, epoch - 1)] = is_commit
        assert begun == {}
        return ended


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_history_has_one_outcome_for_each_transaction(seed: int) -> None:
    with closing(serve()) as service:
        service.log.topics.create(TOPIC, partitions=len(PARTITIONS))
        history = History(seed, service)
        history.run()
        history.check()
