"""How long a peer has not answered, which an alarm is about, and which one process alone may not live to see."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.regions.link_item import LinkValue, value_of
from tests.support.regions import RegionWorld
from tests.support.service import TOPIC

HOUR_MS = 3_600_000


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def lag_ms(world: RegionWorld, *, is_fresh: bool = False) -> int:
    """Let region b look at the partition, by a fresh process or the one before, and return what it measures."""
    log = world["b"].another() if is_fresh else world["b"].log
    assert log.replication.run(TOPIC, 0).took_records == 0
    return log.replication.alarm_figures(TOPIC, 0).lag_ms


def item(world: RegionWorld) -> LinkValue:
    key = keys.link_item(world["b"].service.topic_id(), 0)
    return value_of(world["b"].service.items.store.get([key]).get(key))


def test_a_peer_that_this_process_never_saw_is_behind_since_the_first_failure(world: RegionWorld) -> None:
    world["b"].peers["a"].is_down = True
    assert lag_ms(world) == 0
    world.runtime.advance(HOUR_MS)
    assert lag_ms(world) == HOUR_MS


def test_an_alarm_goes_on_though_each_process_lives_for_one_look(world: RegionWorld) -> None:
    world["b"].peers["a"].is_down = True
    for minutes in range(5):
        assert lag_ms(world, is_fresh=True) == minutes * 60_000
        world.runtime.advance(60_000)
    world["b"].peers["a"].is_down = False
    assert lag_ms(world, is_fresh=True) == 0
    world["b"].peers["a"].is_down = True
    world.runtime.advance(HOUR_MS)
    assert lag_ms(world, is_fresh=True) == 0


def test_a_fresh_process_counts_from_the_last_answer_that_the_one_before_had(world: RegionWorld) -> None:
    assert lag_ms(world) == 0
    world.runtime.advance(60_000)
    world["b"].peers["a"].is_down = True
    assert lag_ms(world) == lag_ms(world, is_fresh=True) == 60_000


def test_a_last_contact_of_days_ago_is_no_alarm_at_the_first_failure(world: RegionWorld) -> None:
    """A quiet partition takes no lease, so what is stored of its peers may be old."""
    world["a"].append("a1")
    assert world["b"].pull().took_records == 1
    assert item(world).seen["a"].problem is None
    world.runtime.advance(72 * HOUR_MS)
    world["b"].peers["a"].is_down = True
    assert lag_ms(world, is_fresh=True) == 0


def test_the_link_item_is_written_when_a_peer_fails_first_and_when_it_answers_again(world: RegionWorld) -> None:
    writes: list[str] = []
    world["b"].service.items.on_call = lambda operation, key: writes.append(key) if operation == "write" else None
    lag_ms(world)
    assert writes == []
    world["b"].peers["a"].is_down = True
    for _ in range(4):
        lag_ms(world)
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    assert writes == ["link", "link"]  # the lease is taken, and left
    assert item(world).seen["a"].problem == "the peer a is away"
    world["b"].peers["a"].is_down = False
    for _ in range(4):
        lag_ms(world)
        world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    assert writes == ["link"] * 4
    assert item(world).seen["a"].problem is None


def test_a_peer_without_the_topic_is_not_silent(world: RegionWorld) -> None:
    """While a region is added, its topic is created last."""
    world["a"].log.topics.delete(TOPIC)
    lag_ms(world)
    world.runtime.advance(HOUR_MS)
    assert lag_ms(world) == lag_ms(world, is_fresh=True) == 0
    expected = "the peer a has no topic of this name; create it there, too"
    assert world["b"].log.replication.problems(TOPIC, 0)["a"] == expected


def test_a_peer_whose_topic_does_not_name_this_region_is_named(world: RegionWorld) -> None:
    world["a"].log.topics.delete(TOPIC)
    world["a"].log.topics.create(TOPIC)
    lag_ms(world)
    problem = world["b"].log.replication.problems(TOPIC, 0)["a"]
    assert problem.startswith("the topic of the peer a does not name this region; alter it there: regions=")
