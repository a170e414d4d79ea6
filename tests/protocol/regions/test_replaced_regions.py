"""A region that is lost and replaced: another one, which never saw its records, completes snapshots and passes none."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fenceline import limits
from fenceline.model.requests import Acknowledgement, ReadRequest
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC

SUB = "s"


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    """Yield regions a and c, of which c has one record, and is then lost. d has no topic yet."""
    made = RegionWorld("a", "c", "d")
    made.create(regions=["a", "c"])
    made["c"].append("of c")
    run(made, "a", "c")
    for name in "ad":
        made[name].peers["c"].is_down = True
    made["a"].log.replication.suspend(TOPIC, "c")
    yield made
    made.close()


def run(world: RegionWorld, *names: str, seconds: int = 8) -> None:
    for _ in range(seconds):
        for name in names:
            world[name].pull()
        world.runtime.advance(1_000)


def replace(world: RegionWorld) -> None:
    """Remove c, and add d in its place."""
    world["a"].log.topics.alter(TOPIC, regions=["a", "d"])
    world["d"].log.topics.create(TOPIC, regions=["a", "d"])


def subscribe(region: Region) -> None:
    region.log.subscriptions.subscribe(TOPIC, SUB, is_latest=False, replicate_subscription_state=True)


def acknowledge(region: Region, offset: int) -> None:
    region.log.subscriptions.acknowledge(TOPIC, 0, SUB, Acknowledgement(offset))


def unread(region: Region) -> list[str]:
    page = region.log.subscriptions.read(TOPIC, 0, SUB, ReadRequest(max_records=1_000))
    return [(record.value or b"").decode() for record in page.records]


def creates(world: RegionWorld) -> int:
    return sum(region.service.count()["objects.create"] for region in world.regions.values())


def test_snapshots_are_complete_and_final_in_both_directions(world: RegionWorld) -> None:
    replace(world)
    subscribe(world["a"])
    acknowledge(world["a"], world["a"].append("of a"))
    run(world, "a", "d")
    assert world["a"].log.replication.status(TOPIC).snapshots[-1].final
    assert unread(world["d"]) == []
    acknowledge(world["d"], world["d"].append("of d"))
    run(world, "a", "d")
    status = world["d"].log.replication.status(TOPIC)
    assert status.snapshots[-1].final
    assert status.pending == []
    assert unread(world["a"]) == []
    before = creates(world)
    run(world, "a", "d", seconds=200)
    assert creates(world) == before


def test_no_update_passes_a_record_that_its_sender_never_had(world: RegionWorld) -> None:
    replace(world)
    subscribe(world["d"])
    run(world, "a", "d")
    world["a"].append("of a")
    run(world, "a", "d")
    acknowledge(world["d"], world["d"].append("of d"))
    run(world, "a", "d")
    assert unread(world["d"]) == []
    assert unread(world["a"]) == ["of c", "of a", "of d"]
    acknowledge(world["a"], 0)
    acknowledge(world["d"], world["d"].append("later"))
    run(world, "a", "d")
    assert unread(world["a"]) == []


def test_records_that_are_handed_on_later_are_passed_once_they_were_read(world: RegionWorld) -> None:
    """c is not removed, so d gets its record from a: no snapshot is final before that."""
    lender = world["d"].peers["a"]
    world["a"].log.topics.alter(TOPIC, regions=["a", "c", "d"])
    world["d"].log.topics.create(TOPIC, regions=["a", "c", "d"])
    world["d"].log.replication.suspend(TOPIC, "c")
    segments, handed_on = type(lender).segments, [False]

    def without_c(topic: str, partition: int, *, origin: str, offset: int | None, limit: int) -> object:
        if origin == "c" and not handed_on[0]:
            return None
        return segments(lender, topic, partition, origin=origin, offset=offset, limit=limit)

    lender.segments = without_c  # type: ignore[method-assign,assignment]
    subscribe(world["a"])
    acknowledge(world["a"], world["a"].append("of a"))
    run(world, "a", "d")
    assert not world["a"].log.replication.status(TOPIC).snapshots[-1].final
    assert (world["d"].values(), unread(world["d"])) == (["of a"], [])
    handed_on[0] = True
    run(world, "a", "d", seconds=70)
    assert world["d"].values() == ["of a", "of c"]
    assert unread(world["d"]) == []
    assert world["a"].log.replication.status(TOPIC).snapshots[-1].final


def test_the_region_that_was_removed_comes_back(world: RegionWorld) -> None:
    replace(world)
    subscribe(world["d"])
    acknowledge(world["d"], world["d"].append("of d"))
    run(world, "a", "d")
    for name in "ad":
        world[name].peers["c"].is_down = False
        world[name].log.topics.alter(TOPIC, regions=["a", "c", "d"])
    world["c"].log.topics.alter(TOPIC, regions=["a", "c", "d"])
    world["a"].log.replication.resume(TOPIC, "c")
    run(world, "a", "c", "d")
    assert unread(world["d"]) == ["of c"]
    acknowledge(world["d"], world["d"].append("later"))
    run(world, "a", "c", "d", seconds=70)
    assert [unread(world[name]) for name in "acd"] == [[], [], []]


def test_in_a_long_log_a_cursor_is_moved_in_several_ticks(world: RegionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of c's records comes any more. So nothing short of the whole stretch says that d had all of it."""
    replace(world)
    subscribe(world["a"])
    acknowledge(world["a"], 0)
    run(world, "a", "d")
    monkeypatch.setattr(limits, "UPDATE_SEGMENTS_LOOKED_AT", 4)
    for n in range(20):
        world["a"].append(str(n))
    run(world, "a", "d")
    assert len(unread(world["a"])) == 20
    acknowledge(world["d"], world["d"].log.partitions.offsets(TOPIC, 0).next_offset - 1)
    left = []
    for _ in range(30):
        run(world, "a", "d", seconds=1)
        left.append(len(unread(world["a"])))
    assert left[-1] == 0
    assert any(0 < count < 20 for count in left)
