"""Numbers of which no record came to a region: it came late, or gave them up. They keep no snapshot away for good."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tail
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, partition_of
from tests.support.transacting import Producer


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b", "c")
    made.create()
    yield made
    made.close()


def subscribe(region: Region) -> None:
    """Create a subscription of the region's own, which is active there."""
    region.log.subscriptions.subscribe(TOPIC, region.name, is_latest=False, replicate_subscription_state=True)


def abort(region: Region, *values: str) -> None:
    """Append these in a transaction, and abort it."""
    producer = Producer(region.service, region.log)
    producer.begin()
    producer.add(0)
    for value in values:
        producer.send(value)
    producer.end(is_commit=False)


def state(region: Region) -> PartitionState:
    partition = partition_of(region.log)
    if not partition.is_fresh:
        partition.open()
    return verified_tail(partition).state


def until_silent(world: RegionWorld) -> None:
    """Let every region work until none writes a segment for 100 s."""
    quiet = 0
    for _ in range(100):
        before = [state(region).next_offset for region in world.regions.values()]
        for region in world.regions.values():
            region.pull()
        quiet = quiet + 1 if before == [state(region).next_offset for region in world.regions.values()] else 0
        if quiet == 4:
            return
        world.runtime.advance(25_000 if quiet else 1_000)
    raise AssertionError("the regions never fall silent")


def trim_all(region: Region) -> int:
    end = state(region).next_offset
    region.log.partitions.trim(TOPIC, 0, end)
    return end


def test_an_aborted_head_that_was_passed_is_not_counted_as_taken(world: RegionWorld) -> None:
    abort(world["c"], "1", "2")
    world["a"].pull()  # a scan note, and no position
    world["c"].log.replication.snapshot(TOPIC)
    world["a"].pull()
    taken = world["a"].origin("c")
    assert taken is not None
    assert (taken.count, taken.start) == (0, 0)
    world["c"].append("3")
    world["a"].pull()
    taken = world["a"].origin("c")
    assert taken is not None
    assert (taken.count, taken.start) == (3, 0)


def test_aborted_numbers_that_one_region_begins_behind_keep_no_snapshot_away(world: RegionWorld) -> None:
    """b comes when c has trimmed its aborted tail: its count of c is one that a never reaches."""
    subscribe(world["a"])
    world["c"].append("1")
    world["a"].pull()
    abort(world["c"], "2")
    world["a"].pull()
    trim_all(world["c"])
    until_silent(world)
    assert [state(world[name]).origins["c"].count for name in "ab"] == [1, 2]
    assert state(world["a"]).regions.snapshots[-1].is_final
    subscribe(world["b"])
    world["b"].append("of b")
    until_silent(world)
    assert state(world["b"]).regions.snapshots[-1].is_final


def test_a_skip_over_an_aborted_tail_keeps_no_snapshot_away_and_hides_no_record(world: RegionWorld) -> None:
    """b had 1, and skips 2 and the aborted 3. A region without 1 still has it below each of its snapshots."""
    world["c"].append("1")
    world["b"].pull()
    world["c"].append("2")
    world["a"].pull()
    abort(world["c"], "3")
    world["a"].pull()
    end = trim_all(world["c"])
    assert world["b"].log.replication.skip(TOPIC, 0, "c", end) == 2
    subscribe(world["a"])
    until_silent(world)
    assert [state(world[name]).origins["c"].count for name in "ab"] == [2, 3]
    assert (state(world["b"]).origins["c"].taken, state(world["b"]).origins["c"].start) == (1, 3)
    assert state(world["a"]).regions.snapshots[-1].is_final
    subscribe(world["b"])
    until_silent(world)
    assert state(world["b"]).regions.snapshots[-1].is_final
