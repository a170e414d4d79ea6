"""Regions: what an attack on the protocol found, each as it went wrong."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline.append.entries.region_markers import UpdateEntry
from fenceline.format.region_markers import Update, Updates
from fenceline.model.requests import Acknowledgement, ReadRequest
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, appender_of
from tests.support.transacting import Producer


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def subscribe(region: Region, name: str = "s") -> None:
    region.log.subscriptions.subscribe(TOPIC, name, is_latest=False, replicate_subscription_state=True)


def test_updates_that_another_process_has_applied_cost_this_one_no_lease(world: RegionWorld) -> None:
    other = world["b"].replicator(world["b"].another())
    world["b"].pull()
    other.run(TOPIC, 0)
    subscribe(world["a"])
    world["a"].pull()  # an UPDATE: the subscription exists
    other.run(TOPIC, 0)
    world["b"].log.partitions.offsets(TOPIC, 0)  # so that this process knows the log, and not the item
    before = world["b"].service.count()["items.write"]
    world["b"].pull()
    assert world["b"].service.count()["items.write"] == before


def until_silent(world: RegionWorld, *, partition: int = 0) -> None:
    """Let every region work until none creates an object for 100 s."""
    quiet = 0
    for _ in range(100):
        before = creates(world)
        for region in world.regions.values():
            region.pull(partition=partition)
        quiet = quiet + 1 if creates(world) == before else 0
        if quiet == 4:
            return
        world.runtime.advance(25_000 if quiet else 1_000)
    raise AssertionError("the regions never fall silent")


def creates(world: RegionWorld) -> int:
    return sum(region.service.count()["objects.create"] for region in world.regions.values())


def unread(region: Region, *, partition: int = 0) -> list[str]:
    page = region.log.subscriptions.read(TOPIC, partition, "s", ReadRequest(max_records=1_000))
    return [(record.value or b"").decode() for record in page.records]


def acknowledge(region: Region, offset: int, *, partition: int = 0) -> None:
    region.log.subscriptions.acknowledge(TOPIC, partition, "s", Acknowledgement(offset))


def read_all(world: RegionWorld, name: str) -> None:
    """Let a consumer read all records in a region, and its position arrive in the others."""
    subscribe(world[name])
    world[name].append("1", "2")
    until_silent(world)
    acknowledge(world[name], 1)
    until_silent(world)


def test_the_last_position_arrives_in_a_topic_that_is_created_anew(world: RegionWorld) -> None:
    """Nothing comes in a any longer, so no new data makes it ask for a snapshot."""
    read_all(world, "a")
    assert unread(world["b"]) == []
    world["b"].log.topics.delete(TOPIC)
    world["b"].log.topics.create(TOPIC, regions=["a", "b"])
    until_silent(world)
    assert world["b"].values() == ["1", "2"]
    assert unread(world["b"]) == []


def test_the_last_position_arrives_in_a_region_that_is_added() -> None:
    world = RegionWorld("a", "b", "c")
    world.create(regions=["a", "b"])
    read_all(world, "a")
    for name in "ab":
        world[name].log.topics.alter(TOPIC, regions=["a", "b", "c"])
    world["c"].log.topics.create(TOPIC, regions=["a", "b", "c"])
    until_silent(world)
    assert world["c"].values() == ["1", "2"]
    assert [unread(world[name]) for name in "abc"] == [[], [], []]
    world.close()


def test_a_partition_that_one_region_lacks_keeps_no_position_from_the_others() -> None:
    world = RegionWorld("a", "b", "c")
    world.create(regions=["a", "b", "c"], partitions=1)
    for name in "ab":
        world[name].log.topics.alter(TOPIC, partitions=2)
    subscribe(world["a"])
    world["a"].append("1", "2", partition=1)
    until_silent(world)
    until_silent(world, partition=1)
    acknowledge(world["a"], 1, partition=1)
    until_silent(world, partition=1)
    assert unread(world["b"], partition=1) == []
    world["c"].log.topics.alter(TOPIC, partitions=2)
    until_silent(world, partition=1)
    assert world["c"].values(partition=1) == ["1", "2"]
    assert unread(world["c"], partition=1) == []
    world.close()


def test_an_aborted_first_record_keeps_no_update_from_the_region_that_has_it(world: RegionWorld) -> None:
    """Region a has b's records from the second on. The first one was aborted, and lies only in b, behind one of a."""
    world["a"].append("0")
    world["b"].pull()
    producer = Producer(world["b"].service, world["b"].log)
    producer.begin()
    producer.add(0)
    producer.send("aborted")
    producer.end(is_commit=False)
    world["b"].append("1")
    subscribe(world["a"])
    until_silent(world)
    acknowledge(world["a"], offset_of(world["a"], "1"))
    until_silent(world)
    assert unread(world["b"]) == []


def offset_of(region: Region, value: str) -> int:
    records = region.log.partitions.read(TOPIC, 0, ReadRequest(offset=0, max_records=1_000)).records
    return next(record.offset for record in records if record.value == value.encode())


@pytest.mark.parametrize("name", ["..", "a/b", "a b", "\x00", "ü", "n" * 250])
def test_an_update_that_names_what_is_no_subscription_creates_nothing(world: RegionWorld, name: str) -> None:
    """No request could read or delete it, and a name that no key can have would stop all that is due."""
    a = world["a"]
    appender = appender_of(a.log)
    appender.partition.open()
    appender.append(UpdateEntry(Updates([Update(name)])), world.runtime.monotonic_ms() + 10_000)
    subscribe(a, "n" * 249)
    until_silent(world)
    (created,), _ = world["b"].log.subscriptions.list(TOPIC)
    assert created.name == "n" * 249
    assert Updates.from_value({"updates": [{**Update("s").to_value(), "subscription": "\ud800"}]}) is None


def test_a_region_that_was_removed_hears_again_of_subscriptions_once_it_is_added() -> None:
    world = RegionWorld("a", "b", "c")
    world.create()
    a, c = world["a"], world["c"]
    subscribe(a)
    until_silent(world)
    c.log.topics.delete(TOPIC)
    a.log.topics.alter(TOPIC, regions=["a", "b"])
    a.pull()
    a.append("1")
    a.log.partitions.trim(TOPIC, 0, a.log.partitions.offsets(TOPIC, 0).bounds.next_offset)
    a.append("2")
    a.log.topics.alter(TOPIC, regions=["a", "b", "c"])
    c.log.topics.create(TOPIC, regions=["a", "b", "c"])
    until_silent(world)
    assert [one.name for one in c.log.subscriptions.list(TOPIC)[0]] == ["s"]
    world.close()
