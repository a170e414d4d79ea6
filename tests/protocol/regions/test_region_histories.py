"""Random histories of regions: no cursor passes a record that no consumer acknowledged, and all positions arrive."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.model.requests import ReadRequest
from tests.support.region_ticks import SUB, Ticking
from tests.support.service import TOPIC
from tests.support.tries import tries

NAMES = ("a", "b", "c")


class History:
    """A random history of three regions, of which the test knows what consumers have acknowledged."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.regions = Ticking.of(*NAMES)
        self.regions.subscribe("a")
        self.done: set[str] = set()  # acknowledged by a consumer, in any region
        self.count = 0

    def step(self) -> None:
        name = self.chance.choice(NAMES)
        act: Any = self.chance.choice(
            [self.append, self.pull, self.pull, self.pull, self.tick, self.tick, self.acknowledge, self.wait]
        )
        act(name)

    def append(self, name: str) -> None:
        values = [str(self.count + n) for n in range(self.chance.randint(1, 3))]
        self.count += len(values)
        self.regions[name].append(*values)

    def pull(self, name: str) -> None:
        source = self.chance.choice([other for other in NAMES if other != name])
        end = self.regions.state(source).next_offset
        self.regions.pull(name, source, below=self.chance.randint(0, end))

    def tick(self, name: str) -> None:
        self.regions.tick(name)

    def wait(self, _: str) -> None:
        self.regions.world.runtime.advance(self.chance.choice([100, 1_000, 30_000]))

    def acknowledge(self, name: str) -> None:
        if self.regions.subscription(name) is None:
            return
        page = self.regions[name].log.subscriptions.read(TOPIC, 0, SUB, ReadRequest(max_records=1_000))
        if page.records:
            at = self.chance.randrange(len(page.records))
            self.regions.acknowledge(name, page.records[at].offset)
            self.done |= {(record.value or b"").decode() for record in page.records[: at + 1]}

    def check(self) -> None:
        """Check I22: what is not offered any more in any region was acknowledged in one."""
        for name in NAMES:
            if self.regions.subscription(name) is None:
                continue
            unread = set(self.regions.unread(name))
            kept = set(self.regions[name].values())
            assert kept - unread <= self.done, name


@tries(40)
@given(st.integers(0, 10**6))
def test_no_record_is_passed_unseen_and_the_last_position_arrives(seed: int) -> None:
    play(seed)


@pytest.mark.prove
@pytest.mark.slow
def test_no_record_is_passed_unseen_in_many_histories() -> None:
    for seed in range(200):
        play(seed)


def play(seed: int) -> None:
    history = History(seed)
    for _ in range(40):
        history.step()
        history.check()
    history.regions.settle()
    history.check()
    for name in NAMES:
        left = history.regions.unread(name)
        if left:
            last = history.regions[name].log.subscriptions.read(TOPIC, 0, SUB, ReadRequest(max_records=1_000))
            history.regions.acknowledge(name, last.records[-1].offset)
            break
    history.regions.settle()
    assert [history.regions.unread(name) for name in NAMES] == [[], [], []]
