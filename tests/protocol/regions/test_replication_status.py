"""What an operator is shown of a topic in several regions, and what an operator may do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import pytest

from fenceline import errors, limits
from fenceline.append.entries.region_markers import ResponseEntry, SkipEntry
from fenceline.format.region_markers import Skip
from fenceline.log.state import TentativeState
from fenceline.log.tail import verified_tail
from fenceline.regions.apply_source import apply
from fenceline.regions.direct_source import DirectSource
from fenceline.regions.partition_job import append_marker
from tests.support.regions import RegionWorld
from tests.support.service import TOPIC, appender_of


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b", "c")
    made.create(partitions=2)
    yield made
    made.close()


def pull(world: RegionWorld, here: str, source: str, partition: int = 0) -> int:
    """Take all that a source has, as the replicator does; return how many records."""
    log = world[here].log
    appender = appender_of(log, partition)
    appender.partition.open()
    statuses = log.replication._statuses
    peers = statuses.of(appender.partition.topic_id, partition)
    link = DirectSource(appender.partition, world[here].peers[source], peers)
    found, records = link.fetch(), 0
    while found is not None:
        records += apply(found, appender, statuses.gather, lambda: True).records
        found = link.fetch()
    return records


def shown(world: RegionWorld, name: str = "a", **page: Any) -> Any:
    status = world[name].log.replication.status(TOPIC, **page)
    return status, {one.region: one for one in status.regions}


def test_in_silence_all_are_connected_and_nothing_lags(world: RegionWorld) -> None:
    status, regions = shown(world)
    assert (status.region, list(regions)) == ("a", ["b", "c"])
    now = world.runtime.now_ms()
    for one in regions.values():
        assert (one.connected, one.suspended, one.lag_records, one.lag_ms) == (True, False, 0, 0)
        assert (one.last_seen_at, one.answered_at, one.problem) == (now, None, None)
    assert (status.gaps, status.skipped_records, status.snapshots, status.pending) == ([], 0, [], [])
    assert not status.has_more


def test_lag_counts_all_partitions_and_is_as_old_as_the_oldest_record(world: RegionWorld) -> None:
    world["b"].append("1", "2")
    world.runtime.advance(300)
    world["b"].append("3", partition=1)
    world.runtime.advance(200)
    world["c"].append("4")
    _, regions = shown(world)
    assert (regions["b"].lag_records, regions["b"].lag_ms) == (3, 500)
    assert (regions["c"].lag_records, regions["c"].lag_ms) == (1, 0)
    assert pull(world, "a", "b") == 2
    _, regions = shown(world)
    assert (regions["b"].lag_records, regions["b"].lag_ms) == (1, 200)
    assert pull(world, "a", "b", 1) == 1
    _, regions = shown(world)
    assert (regions["b"].lag_records, regions["b"].lag_ms) == (0, 0)


def test_a_partition_that_is_not_here_yet_is_lag(world: RegionWorld) -> None:
    world["b"].log.topics.alter(TOPIC, partitions=4)
    world["b"].append("1", partition=2)
    world.runtime.advance(40)
    world["b"].append("2", "3", partition=3)
    _, regions = shown(world)
    assert (regions["b"].lag_records, regions["b"].lag_ms) == (3, 40)
    assert regions["b"].problem == (
        "b has 4 partitions, this region 2: records in the others wait; raise it with 'fenceline topic alter"
        f" {TOPIC} --partitions 4'"
    )
    assert regions["c"].problem is None
    world["a"].log.topics.alter(TOPIC, partitions=6)
    world.runtime.advance(limits.CONNECTED_MS)
    _, regions = shown(world)
    assert (regions["b"].lag_records, regions["b"].problem) == (3, None)


def test_a_region_whose_tables_have_another_order_is_a_problem(world: RegionWorld) -> None:
    by_timestamp: dict[str, Any] = {"compaction.order": "timestamp", "delete.retention.ms": -1}
    world["a"].log.topics.alter(TOPIC, config=by_timestamp)
    world["b"].log.topics.alter(TOPIC, config=by_timestamp)
    _, regions = shown(world)
    assert regions["b"].problem is None
    assert regions["c"].problem == (
        "c has compaction.order=offset, this region timestamp: their tables differ; alter one of them with 'fenceline "
        f"topic alter {TOPIC} --config compaction.order=…'"
    )
    assert regions["c"].connected, "its records are taken as before"
    world["c"].log.topics.alter(TOPIC, config=by_timestamp)
    world.runtime.advance(limits.CONNECTED_MS)
    _, regions = shown(world)
    assert regions["c"].problem is None


def test_a_peer_that_is_away_is_asked_once_and_the_others_are_shown(world: RegionWorld) -> None:
    world["c"].append("1")
    shown(world)
    peer = world["a"].peers["b"]
    peer.is_down = True
    seen_at = world.runtime.now_ms()
    world.runtime.advance(limits.CONNECTED_MS - 1)
    _, regions = shown(world)
    assert regions["b"].connected  # by its last answer
    world.runtime.advance(1)
    peer.calls.clear()
    _, regions = shown(world)
    assert peer.calls.total() == 1
    region = regions["b"]
    assert (region.connected, region.lag_records, region.lag_ms, region.last_seen_at) == (False, None, None, seen_at)
    assert "is away" in (region.problem or "")
    assert (regions["c"].connected, regions["c"].lag_records) == (True, 1)
    peer.is_down = False
    _, regions = shown(world)
    assert (regions["b"].connected, regions["b"].problem) == (True, None)


def test_a_peer_that_gives_itself_another_name_is_not_connected(world: RegionWorld) -> None:
    world["a"].peers["b"].seen["segments"] = lambda answer: replace(answer, region="c")
    _, regions = shown(world)
    assert (regions["b"].connected, regions["b"].lag_records) == (False, None)
    assert "another region" in (regions["b"].problem or "")


def test_a_peer_whose_topic_does_not_name_this_region_is_not_connected(world: RegionWorld) -> None:
    world["b"].log.topics.alter(TOPIC, regions=["b", "c"])
    world["c"].log.topics.delete(TOPIC)
    _, regions = shown(world)
    assert [one.connected for one in regions.values()] == [False, False]
    assert "does not name this region" in (regions["b"].problem or "")
    assert "no topic of this name" in (regions["c"].problem or "")


def test_a_name_in_an_older_item_that_is_no_peer_has_a_problem(world: RegionWorld) -> None:
    del world["a"].peers["c"]
    _, regions = shown(world)
    region = regions["c"]
    assert (region.connected, region.lag_records, region.last_seen_at) == (False, None, None)
    assert "no peer of this name" in (region.problem or "")


# Gaps


def make_gap(world: RegionWorld) -> None:
    """Let b trim records 2 and 3 of five, before a took more than the first."""
    world["b"].append("1")
    assert pull(world, "a", "b") == 1
    for value in "2345":
        world["b"].append(value)
    world["b"].log.partitions.trim(TOPIC, 0, 3)
    assert pull(world, "a", "b") == 0


def test_a_gap_is_shown_until_it_is_skipped_and_then_the_link_goes_on(world: RegionWorld) -> None:
    make_gap(world)
    status, regions = shown(world)
    (gap,) = status.gaps
    assert (gap.partition, gap.region, gap.from_offset, gap.to_offset, gap.records) == (0, "b", 1, 3, 2)
    assert "no longer keeps" in (regions["b"].problem or "")
    replication = world["a"].log.replication
    for region, to_offset, field in (
        ("b", 2, "to_offset"),
        ("b", 4, "to_offset"),
        ("a", 3, "region"),
        ("x", 3, "region"),
        ("c", 3, "to_offset"),
    ):
        with pytest.raises(errors.InvalidRequestError) as refusal:
            replication.skip(TOPIC, 0, region, to_offset)
        assert refusal.value.field == field
    with pytest.raises(errors.InvalidRequestError):
        replication.skip(TOPIC, 1, "b", 3)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        replication.skip(TOPIC, 2, "b", 3)
    assert world["a"].values() == ["1"]
    assert replication.skip(TOPIC, 0, "b", 3) == 2
    assert pull(world, "a", "b") == 2
    assert world["a"].values() == ["1", "4", "5"]
    status, regions = shown(world)
    assert (status.gaps, status.skipped_records, regions["b"].lag_records, regions["b"].problem) == ([], 2, 0, None)
    with pytest.raises(errors.InvalidRequestError):
        replication.skip(TOPIC, 0, "b", 3)


def test_a_skip_whose_create_is_confirmed_too_late_is_answered_as_written(world: RegionWorld) -> None:
    """The log start has passed the SKIP meanwhile. It is checked a second time, and the link has gone on from it."""
    make_gap(world)
    here = world["a"]

    def late(create: Callable[[], Any]) -> Any:
        create()
        assert here.replicator(here.another()).run(TOPIC, 0).took_records == 2
        here.log.partitions.trim(TOPIC, 0, here.segments()[-1].base_offset)

    here.service.objects.plan("create", late)
    assert here.log.replication.skip(TOPIC, 0, "b", 3) == 2
    assert here.log.replication.status(TOPIC).skipped_records == 2
    assert here.values() == ["4", "5"]


def test_a_skip_that_a_shorter_one_overtook_is_not_answered_as_written(world: RegionWorld) -> None:
    """Both give up the same records. Since the other was asked for, the region has trimmed a record of c, too."""
    here, there = world["a"], world["b"]
    there.append("1")
    pull(world, "a", "b")
    there.append("2")
    there.append("3")
    world["c"].append("c")
    pull(world, "b", "c")
    there.append("4")
    there.log.partitions.trim(TOPIC, 0, 4)
    pull(world, "a", "b")
    (gap,) = here.log.replication.status(TOPIC).gaps
    assert (gap.from_offset, gap.to_offset, gap.records) == (1, 4, 2)
    position = here.origin("b")
    assert position is not None
    shorter = SkipEntry(Skip("b", position.topic_id, 1, 3, 2), position)
    rival = appender_of(here.another())

    def overtaken(create: Callable[[], Any]) -> Any:
        rival.append(shorter, world.runtime.monotonic_ms() + 10_000)
        return create()

    here.service.objects.plan("create", overtaken)
    with pytest.raises(errors.InvalidRequestError, match="there is none"):
        here.log.replication.skip(TOPIC, 0, "b", 4)
    after = here.origin("b")
    assert after is not None
    assert (after.next_offset, after.start) == (3, 3)


def test_a_gap_of_a_region_that_is_away_cannot_be_compared(world: RegionWorld) -> None:
    make_gap(world)
    world["a"].peers["b"].is_down = True
    with pytest.raises(errors.StoreUnavailableError, match="is away"):
        world["a"].log.replication.skip(TOPIC, 0, "b", 3)
    assert world["a"].values() == ["1"]


# Suspended regions


def test_suspending_and_resuming_change_item_and_object_once(world: RegionWorld) -> None:
    log = world["a"].log
    for change, is_suspended in ((log.replication.suspend, True), (log.replication.resume, False)):
        for _ in range(2):
            status = change(TOPIC, "b")
            assert (status.region, status.suspended, status.connected) == ("b", is_suspended, True)
        _, regions = shown(world)
        assert [one.suspended for one in regions.values()] == [is_suspended, False]
    topic_id = world["a"].service.topic_id()
    assert len(world["a"].service.objects.store.list(f"topic/{topic_id}/")) == 3
    _, regions = shown(world, "b")
    assert not any(one.suspended for one in regions.values())  # each region by itself


def test_the_problem_of_a_suspended_region_names_the_peers_that_lack_its_records(world: RegionWorld) -> None:
    """Region b lacks what c has trimmed. A process that only shows this asks b itself."""
    for value in "123":
        world["c"].append(value)
    assert pull(world, "a", "c") == 3
    for value in "456":
        world["c"].append(value)
    world["c"].log.partitions.trim(TOPIC, 0, 4)
    assert pull(world, "b", "c") == 2
    world["a"].peers["c"].is_down = True
    _, regions = shown(world)
    assert "lacks records" not in (regions["c"].problem or "")
    status = world["a"].log.replication.suspend(TOPIC, "c")
    assert "c is away" in (status.problem or "")
    assert "b: the peer lacks records of the suspended region" in (status.problem or "")
    world["a"].peers["c"].is_down = False
    world["c"].append("7")
    assert pull(world, "b", "c") == 1
    _, regions = shown(world)
    assert "lacks records" in (regions["c"].problem or "")
    assert regions["b"].problem is None
    world["a"].log.replication.resume(TOPIC, "c")
    _, regions = shown(world)
    assert "lacks records" not in (regions["c"].problem or "")


def test_peers_of_a_suspended_region_are_asked_once_from_the_replicators_position(
    world: RegionWorld,
) -> None:
    for number in (0, 1):
        world["c"].append("1", partition=number)
        assert pull(world, "b", "c", number) == 1
    world["a"].peers["c"].is_down = True
    world["a"].log.replication.suspend(TOPIC, "c")
    world["a"].replicator(world["a"].another()).run(TOPIC, 0)
    peer, another = world["a"].peers["b"], world["a"].another()
    peer.asked.clear()
    for _ in range(2):
        (_, of_c) = another.replication.status(TOPIC).regions
        assert of_c.problem == "the peer c is away"
    asked = [offset for origin, offset in peer.asked if origin == "c"]
    assert asked == [1, None]  # of each partition, once


@pytest.mark.parametrize(
    ("region", "expected"), [("a", "name another one"), ("x", "no such region"), ("x" * 9_000, "no such")]
)
def test_only_another_region_of_the_topic_can_be_suspended(world: RegionWorld, region: str, expected: str) -> None:
    for change in (world["a"].log.replication.suspend, world["a"].log.replication.resume):
        with pytest.raises(errors.InvalidRequestError, match=expected) as refusal:
            change(TOPIC, region)
        assert (refusal.value.field, len(refusal.value.detail) < 200) == ("region", True)


def test_a_region_that_is_removed_is_suspended_no_longer(world: RegionWorld) -> None:
    log = world["a"].log
    log.replication.suspend(TOPIC, "b")
    log.topics.alter(TOPIC, regions=["a", "c"])
    log.topics.alter(TOPIC, regions=["a", "b", "c"])
    _, regions = shown(world)
    assert not regions["b"].suspended


# Snapshots


def test_a_snapshot_has_one_id_in_every_partition_and_waits_for_active_regions(
    world: RegionWorld,
) -> None:
    log = world["a"].log
    log.replication.suspend(TOPIC, "c")
    snapshot_id = log.replication.snapshot(TOPIC)
    status, _ = shown(world)
    pending = [(one.snapshot_id, one.partition, one.started_at, one.waiting_for) for one in status.pending]
    assert pending == [(snapshot_id, number, world.runtime.now_ms(), ["b"]) for number in (0, 1)]
    log.replication.suspend(TOPIC, "b")
    with pytest.raises(errors.InvalidRequestError) as refusal:
        log.replication.snapshot(TOPIC)
    assert refusal.value.field == "regions"


@dataclass(frozen=True)
class Claim(ResponseEntry):
    """An answer to a REQUEST that claims what it likes."""

    def check(self, tentative: TentativeState, now_ms: int) -> Any:
        regions = tentative.state.regions._replace(unanswered=(self.unanswered,))
        return super().check(TentativeState(tentative.state._replace(regions=regions), {}), now_ms)


def claims(world: RegionWorld, name: str, **origins: tuple[str, int]) -> None:
    """Let a region answer a's REQUEST in partition 0, and a take that answer."""
    pull(world, name, "a")
    log = world[name].log
    known, _ = log._resolver.resolve(TOPIC, 0)
    appender = appender_of(log)
    (asked,) = verified_tail(appender.partition).state.regions.unanswered
    append_marker(appender, Claim(asked._replace(origins=origins), known.item.topic.topic_id), 10_000)
    pull(world, "a", name)


@pytest.mark.parametrize("is_other_life", [True, False])
def test_a_claim_above_what_the_third_region_itself_shows_is_the_claimers_problem(
    world: RegionWorld, *, is_other_life: bool
) -> None:
    world["c"].append("1", "2")
    life = world["c"].service.topic_id()
    snapshot_id = world["a"].log.replication.snapshot(TOPIC)
    claims(world, "b", c=("made-up" if is_other_life else life, 3))
    claims(world, "c")
    status, regions = shown(world)
    assert [one.waiting_for for one in status.pending if one.partition == 0] == [["c"]]
    assert status.pending[0].snapshot_id == snapshot_id
    assert "it claims records of c that c does not show" in regions["b"].problem
    assert "partition=0 claimed=3 shown=2" in regions["b"].problem
    assert regions["c"].problem is None
    world.runtime.advance(500)  # b had seen it later than a's last look at c
    world["c"].append("3")
    if not is_other_life:
        assert shown(world)[1]["b"].problem is None
        pull(world, "a", "c")
        assert [one.waiting_for for one in shown(world)[0].pending if one.partition == 0] == [[]]


def test_records_of_a_third_region_that_are_not_here_yet_are_no_problem(world: RegionWorld) -> None:
    world["a"].log.replication.snapshot(TOPIC)
    claims(world, "c")
    world["c"].append("1", "2")
    claims(world, "b", c=(world["c"].service.topic_id(), 2))
    status, regions = shown(world)
    assert [one.waiting_for for one in status.pending if one.partition == 0] == [["c"]]
    assert {one.problem for one in regions.values()} == {None}
    world["a"].peers["c"].is_down = True
    world.runtime.advance(60_000)
    assert shown(world)[1]["b"].problem is None, "what c has is not known"


def test_a_topic_in_one_region_has_no_snapshots(world: RegionWorld) -> None:
    log = world["a"].log
    log.topics.create("alone")
    with pytest.raises(errors.InvalidRequestError) as refusal:
        log.replication.snapshot("alone")
    assert refusal.value.field == "regions"
    status = log.replication.status("alone")
    assert (status.regions, status.pending) == ([], [])


def asked_in(world: RegionWorld, snapshot_id: str) -> dict[int, list[str]]:
    """Return which regions a snapshot waits for, by partition."""
    status, _ = shown(world)
    return {one.partition: list(one.waiting_for) for one in status.pending if one.snapshot_id == snapshot_id}


def test_a_snapshot_asks_each_region_in_the_partitions_that_it_has(world: RegionWorld) -> None:
    log = world["a"].log
    log.topics.alter(TOPIC, partitions=4)
    world["c"].log.topics.alter(TOPIC, partitions=3)
    snapshot_id = log.replication.snapshot(TOPIC)
    assert [peer.calls["topic"] for peer in world["a"].peers.values()] == [1, 1]
    assert asked_in(world, snapshot_id) == {0: ["b", "c"], 1: ["b", "c"], 2: ["c"]}
    assert [len(world["a"].segments(partition=number)) for number in range(4)] == [1, 1, 1, 0]
    world["b"].log.topics.alter(TOPIC, partitions=4)
    snapshot_id = log.replication.snapshot(TOPIC)
    assert asked_in(world, snapshot_id) == {0: ["b", "c"], 1: ["b", "c"], 2: ["b", "c"], 3: ["b"]}


def test_snapshots_of_a_topic_with_a_partition_that_the_others_lack_are_complete(world: RegionWorld) -> None:
    log = world["a"].log
    log.topics.alter(TOPIC, partitions=3)
    for _ in range(limits.SNAPSHOTS_UNDER_WAY_MAX + 1):
        snapshot_id = log.replication.snapshot(TOPIC)
        for name, partition in product("bca", range(3)):  # b and c answer, and a takes the answers
            world[name].pull(partition=partition)
        assert asked_in(world, snapshot_id) == {}
    status, _ = shown(world)
    assert {one.partition for one in status.snapshots} == {0, 1}


def test_a_silent_region_is_asked_in_the_partitions_that_it_was_known_to_have(
    world: RegionWorld,
) -> None:
    log = world["a"].log
    log.topics.alter(TOPIC, partitions=3)
    world["c"].log.topics.alter(TOPIC, partitions=3)
    peer = world["a"].peers["b"]
    peer.is_down = True
    everywhere = {number: ["b", "c"] for number in range(3)}
    assert asked_in(world, log.replication.snapshot(TOPIC)) == everywhere
    peer.is_down = False
    assert asked_in(world, log.replication.snapshot(TOPIC)) == {**everywhere, 2: ["c"]}
    peer.is_down = True
    assert asked_in(world, log.replication.snapshot(TOPIC)) == {**everywhere, 2: ["c"]}


def test_peers_are_not_asked_about_a_topic_with_one_partition_nor_where_they_are_suspended(world: RegionWorld) -> None:
    log = world["a"].log
    world.create("single")
    log.replication.snapshot("single")
    assert [peer.calls.total() for peer in world["a"].peers.values()] == [0, 0]
    log.replication.suspend(TOPIC, "b")
    for peer in world["a"].peers.values():
        peer.calls.clear()
    log.replication.snapshot(TOPIC)
    assert [peer.calls["topic"] for peer in world["a"].peers.values()] == [0, 1]


def test_the_ninth_snapshot_is_throttled_before_any_partition_has_it(world: RegionWorld) -> None:
    log = world["a"].log
    for _ in range(limits.SNAPSHOTS_UNDER_WAY_MAX):
        log.replication.snapshot(TOPIC)
    with pytest.raises(errors.ThrottledError):
        log.replication.snapshot(TOPIC)
    status, _ = shown(world)
    assert len(status.pending) == 2 * limits.SNAPSHOTS_UNDER_WAY_MAX


def test_pages_are_of_partitions(world: RegionWorld) -> None:
    world["a"].log.replication.snapshot(TOPIC)
    for start, limit, partitions, has_more in (
        (0, 1, [0], True),
        (1, 1, [1], False),
        (0, 2, [0, 1], False),
        (2, 1, [], False),
        (9, 5, [], False),
    ):
        status, regions = shown(world, start_partition=start, limit=limit)
        assert ([one.partition for one in status.pending], status.has_more) == (partitions, has_more)
        assert len(regions) == 2


def test_a_status_follows_the_name_into_a_new_incarnation(world: RegionWorld) -> None:
    shown(world)
    world["a"].log.topics.delete(TOPIC)
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        shown(world)
    world["a"].log.topics.create(TOPIC, regions=["a", "b"])
    _, regions = shown(world)
    assert list(regions) == ["b"]
