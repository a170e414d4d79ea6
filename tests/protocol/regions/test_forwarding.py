"""A suspended region's records, taken from a peer that has them ("Lost and suspended regions", I19)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest

from fenceline import limits
from fenceline.append.entries.region_markers import SkipEntry, UpdateEntry
from fenceline.format import keys
from fenceline.format.region_markers import Skip, Updates
from fenceline.model.results import SegmentList
from fenceline.ports import Put
from fenceline.regions.link_item import ScanNote, value_of
from fenceline.regions.peer_status import PeerStatus
from fenceline.regions.relay_source import ANSWERS_PER_FETCH, ASKS_PER_FETCH, relay_name
from fenceline.regions.resume_point import ANOTHER_HISTORY
from tests.protocol.regions.test_pulling import numbers, transaction
from tests.support.regions import Region, RegionWorld
from tests.support.replicating import together
from tests.support.service import TOPIC, appender_of


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b", "c")
    made.create()
    yield made
    made.close()


def suspend(region: Region, *others: str) -> None:
    """Suspend these regions, and resume all others."""
    items, key = region.service.items.store, keys.topic_item(TOPIC)
    found = items.get([key])[key]
    value = {**found.value, "suspended": list(others)}
    items.write([Put(key, value, found.version + 1, expected=found.version)])


def lose(world: RegionWorld, name: str) -> None:
    for region in world.regions.values():
        if name in region.peers:
            region.peers[name].is_down = True


def back(world: RegionWorld, name: str) -> None:
    for region in world.regions.values():
        if name in region.peers:
            region.peers[name].is_down = False


def of(region: Region, letter: str) -> list[str]:
    return [value for value in region.values() if value.startswith(letter)]


def status(region: Region, of: str, peer: str) -> PeerStatus:
    """Return what a region knows of a peer's records of a suspended region."""
    statuses = region.own_replicator._statuses
    (place,) = statuses._partitions
    return statuses.of(*place).status(relay_name(of, peer))


def test_nothing_is_taken_from_a_third_region_unless_its_origin_is_suspended(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["b"].pull()
    lose(world, "c")
    world["a"].pull()
    assert world["a"].values() == []
    assert {origin for origin, _ in world["a"].peers["b"].asked} == {"own"}
    suspend(world["a"], "c")
    world.runtime.advance(60_000)
    assert world["a"].pull().took_records == 1
    assert world["a"].values() == ["c1"]
    assert numbers(world["a"], "c") == [("c1", 1)]


def test_nothing_is_taken_that_a_suspended_region_which_answers_does_not_show(world: RegionWorld) -> None:
    """Its own link would find another history from then on."""
    suspend(world["a"], "c")
    world["c"].append("c1")
    world["a"].pull()
    world["b"].pull()
    world["c"].append("c2")
    world["b"].pull()
    region = world["a"].peers["c"]
    now = region.segments(TOPIC, 0, origin="own", offset=0, limit=100)
    assert now is not None
    stale = replace(now, segments=now.segments[:1], stable_own_records=1, position=1)
    region.seen["segments"] = lambda _: stale
    world["a"].pull()
    assert "claims records of c that c does not show: claimed=2 shown=1" in (status(world["a"], "c", "b").problem or "")
    assert of(world["a"], "c") == ["c1"]
    region.seen.clear()
    world.runtime.advance(60_000)
    world["a"].pull()
    assert of(world["a"], "c") == ["c1", "c2"]


def test_the_records_of_a_suspended_region_go_on_while_it_answers(world: RegionWorld) -> None:
    suspend(world["a"], "c")
    world["c"].append("c1")
    assert world["a"].pull().took_records == 1
    assert numbers(world["a"], "c") == [("c1", 1)]


def test_the_direct_source_goes_on_where_the_relay_ended(world: RegionWorld) -> None:
    world["c"].append("c1", "c2")
    world["a"].pull()
    for n in range(3, 6):
        world["c"].append(f"c{n}")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    assert world["a"].pull().took_records == 3
    assert world["a"].origin("c") is not None
    there, here = world["b"].origin("c"), world["a"].origin("c")
    assert there is not None
    assert here is not None
    assert (here.next_offset, here.count, here.chain) == (there.next_offset, there.count, there.chain)
    suspend(world["a"])
    back(world, "c")
    world["c"].append("c6")
    world.runtime.advance(60_000)
    world["a"].pull()
    assert of(world["a"], "c") == [f"c{n}" for n in range(1, 7)]
    assert numbers(world["a"], "c") == [(f"c{n}", n) for n in range(1, 7)]


def test_only_the_batches_after_the_last_one_here_are_taken_of_a_segment(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["c"].append("c2")
    world["a"].pull()
    world["c"].append("c3")
    world["b"].pull()  # one segment with all three
    lose(world, "c")
    suspend(world["a"], "c")
    assert world["a"].pull().took_records == 1
    assert of(world["a"], "c") == ["c1", "c2", "c3"]


def test_nothing_is_taken_from_a_region_that_came_late_or_has_trimmed(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["a"].pull()
    world["c"].append("c2")
    world["c"].append("c3")
    world["c"].log.partitions.trim(TOPIC, 0, 2)
    world["b"].pull()  # it has c3 alone
    lose(world, "c")
    suspend(world["a"], "c")
    assert world["a"].pull().took_records == 0
    assert status(world["a"], "c", "b").problem is not None
    statuses = world["a"].own_replicator._statuses
    (place,) = statuses._partitions
    assert statuses.of(*place).status("b").problem is None
    world["b"].append("b1")
    assert world["a"].pull().took_records == 1  # its own records come all the same
    assert world["a"].values() == ["c1", "b1"]


def test_aborted_records_between_are_no_obstacle_and_a_skip_is(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["a"].pull()
    world["b"].pull()
    transaction(world["c"], "x2", is_commit=False)
    world["c"].append("c3")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    assert world["a"].pull().took_records == 1
    assert numbers(world["a"], "c") == [("c1", 1), ("c3", 3)]
    # Now b skips a record that a lacks: a must not pass over it.
    suspend(world["a"])
    back(world, "c")
    for n in (4, 5, 6):
        world["c"].append(f"c{n}")
    start = world["c"].log.partitions.offsets(TOPIC, 0).next_offset - 2
    world["c"].log.partitions.trim(TOPIC, 0, start)
    position = world["b"].origin("c")
    assert position is not None
    skip = Skip("c", position.topic_id, position.next_offset, start, 1)
    appender = appender_of(world["b"].log)
    appender.append(SkipEntry(skip, position), world.runtime.monotonic_ms() + 10_000)
    world["b"].pull()
    assert numbers(world["b"], "c")[-2:] == [("c5", 5), ("c6", 6)]
    lose(world, "c")
    suspend(world["a"], "c")
    world.runtime.advance(60_000)
    assert world["a"].pull().took_records == 0
    assert of(world["a"], "c") == ["c1", "c3"]


def skip_of_c2(world: RegionWorld) -> None:
    """Let b have c1 and c3, with a SKIP of c2 between, and a have c1 alone."""
    world["c"].append("c1")
    world["b"].pull()
    world["a"].pull()
    for n in (2, 3):
        world["c"].append(f"c{n}")
    world["c"].log.partitions.trim(TOPIC, 0, 2)
    position = world["b"].origin("c")
    assert position is not None
    skip = Skip("c", position.topic_id, position.next_offset, 2, 1)
    appender = appender_of(world["b"].log)
    appender.append(SkipEntry(skip, position), world.runtime.monotonic_ms() + 10_000)
    world["b"].pull()
    assert numbers(world["b"], "c") == [("c1", 1), ("c3", 3)]


def trim_to_c3(world: RegionWorld) -> None:
    world["b"].log.partitions.trim(TOPIC, 0, world["b"].segments()[-1].base_offset)


def test_a_skip_trimmed_during_the_search_is_not_taken_for_absent(world: RegionWorld) -> None:
    """The log start moves between the answer for c's segments and the one for b's own markers."""
    skip_of_c2(world)
    lose(world, "c")
    suspend(world["a"], "c")
    peer = world["a"].peers["b"]

    def trims(answer: SegmentList) -> SegmentList:
        if peer.asked[-1][0] == "c":
            trim_to_c3(world)
        return answer

    peer.seen["segments"] = trims
    assert world["a"].pull().took_records == 0
    assert peer.asked[-1][0] == "own", "it was looked for"
    assert of(world["a"], "c") == ["c1"]
    assert "lacks records" in (status(world["a"], "c", "b").problem or "")


def test_nothing_is_looked_for_where_the_peer_has_trimmed_what_was_passed(world: RegionWorld) -> None:
    """Another segment of c may have been there. So no question is asked whose answer could not count."""
    skip_of_c2(world)
    trim_to_c3(world)
    lose(world, "c")
    suspend(world["a"], "c")
    link = world["a"].own_replicator
    (place,) = link._statuses._partitions
    position = world["a"].origin("c")
    assert position is not None
    life = f"{world['b'].service.topic_id()}/{position.topic_id}"
    link._statuses.of(*place).keep_note(
        ("c", "b"), ScanNote(life, position.next_offset, 1, 1)
    )  # as a look before noted it
    peer = world["a"].peers["b"]
    peer.asked.clear()
    assert world["a"].pull().took_records == 0
    assert [origin for origin, _ in peer.asked].count("own") == 1, "b's own records are asked for, and no markers"
    assert of(world["a"], "c") == ["c1"]
    assert "lacks records" in (status(world["a"], "c", "b").problem or "")


def test_a_skip_that_shares_a_segment_with_another_regions_is_seen(world: RegionWorld) -> None:
    """Region b gives up a record of d and one of c at once: one segment holds both markers."""
    world.close()
    made = RegionWorld("a", "b", "c", "d")
    made.create()
    for name in "cd":
        made[name].append(f"{name}1")
    made.settle()
    skips = []
    for name in "dc":
        made[name].append(f"{name}2")
        made[name].append(f"{name}3")
        made[name].log.partitions.trim(TOPIC, 0, made[name].segments()[-1].base_offset)
        position = made["b"].origin(name)
        assert position is not None
        to_offset = made[name].segments()[-1].base_offset
        skips.append(SkipEntry(Skip(name, position.topic_id, position.next_offset, to_offset, 1), position))
    together(made["b"].service, *skips)
    assert len(made["b"].segments()[-1].batches) == 2
    made["b"].pull()
    assert of(made["b"], "c") == ["c1", "c3"]
    lose(made, "c")
    suspend(made["a"], "c")
    for _ in range(3):
        made["a"].pull()
        made.runtime.advance(60_000)
    assert of(made["a"], "c") == ["c1"]
    assert "lacks records" in (status(made["a"], "c", "b").problem or "")
    made.close()


def test_a_search_for_skips_goes_on_where_the_last_look_ended(world: RegionWorld) -> None:
    """The peer's own markers lie where a number is missing. Each is looked at once, also by another process."""
    world["c"].append("c1")
    world["b"].pull()
    world["a"].pull()
    world["a"].peers["c"].is_down = True
    transaction(world["c"], "x2", is_commit=False)
    world["c"].append("c3")
    appender = appender_of(world["b"].log)
    for _ in range(ASKS_PER_FETCH + 3):
        appender.append(UpdateEntry(Updates([])), world.runtime.monotonic_ms() + 10_000)
    world["a"].pull()
    world["b"].pull()
    suspend(world["a"], "c")
    peer = world["a"].peers["b"]
    peer.calls.clear()
    peer.on_call = lambda _: world.runtime.advance(1_000)  # a run that never comes further ends by its time
    run = world["a"].own_replicator.run(TOPIC, 0, until_ms=world.runtime.monotonic_ms())
    assert (run.took_records, run.next_ms) == (0, 0)
    assert peer.calls["body"] == ASKS_PER_FETCH - 1  # one was the question for the peer's own segments
    assert world["a"].replicator(world["a"].another()).run(TOPIC, 0).took_records == 1
    assert of(world["a"], "c") == ["c1", "c3"]
    assert peer.calls["body"] == ASKS_PER_FETCH + 4  # the markers, and the record


def test_another_life_is_not_forwarded(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["a"].pull()
    world["c"].log.topics.delete(TOPIC)
    world["c"].log.topics.create(TOPIC, regions=["a", "b", "c"])
    for n in range(3):
        world["c"].append(f"d{n}")
    world.runtime.advance(60_000)
    assert world["b"].pull().took_records == 3
    lose(world, "c")
    suspend(world["a"], "c")
    world["a"].pull()
    assert world["a"].values() == ["c1"]


def test_a_region_that_took_nothing_yet_takes_all_of_it_from_its_first_record(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["c"].append("c2")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    assert world["a"].pull().took_records == 2
    assert world["a"].pull().took_records == 0
    back(world, "c")
    suspend(world["a"])
    world["c"].append("c3")
    world.runtime.advance(60_000)
    world["a"].pull()
    assert of(world["a"], "c") == ["c1", "c2", "c3"]


def test_the_peer_that_has_most_gives_the_rest(world: RegionWorld) -> None:
    world.close()
    made = RegionWorld("a", "b", "c", "d")
    made.create()
    made["c"].append("c1")
    made["b"].pull()
    made["c"].append("c2")
    made["d"].pull()
    lose(made, "c")
    suspend(made["a"], "c")
    made["a"].pull()
    made["a"].pull()
    assert numbers(made["a"], "c") == [("c1", 1), ("c2", 2)]
    made.close()


def test_nothing_is_taken_from_a_peer_that_shows_another_history(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["b"].pull()
    world["a"].pull()
    world["c"].append("c2")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    statuses = world["a"].own_replicator._statuses
    (place,) = statuses._partitions
    statuses.of(*place).fail("b", f"{ANOTHER_HISTORY}: its log ends before", None)
    world["a"].pull()
    assert of(world["a"], "c") == ["c1"]
    assert "another history" in (status(world["a"], "c", "b").problem or "")
    world.runtime.advance(limits.PEER_PAUSE_MS_MAX)
    world["a"].pull()  # now its own link answers as before
    world["a"].pull()
    assert of(world["a"], "c") == ["c1", "c2"]


def test_a_quiet_look_at_a_suspended_region_goes_on_from_its_note(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    world["a"].pull()
    world["b"].append("b1")
    world["a"].pull()
    before = world["a"].service.count()
    peer = world["a"].peers["b"]
    peer.asked.clear()
    world["a"].pull()
    world["a"].pull()
    assert ("c", 0) not in peer.asked
    assert ("c", None) not in peer.asked
    assert world["a"].service.count()["items.write"] == before["items.write"]


def test_a_region_that_took_nothing_yet_finds_its_first_record_far_behind_a_peers_log_start(world: RegionWorld) -> None:
    """One look ends before that record. The next one goes on from there."""
    world["a"].peers["c"].is_down = True
    for n in range(2 * ANSWERS_PER_FETCH + 1):
        world["b"].append(f"b{n}")
    world["c"].append("c1")
    world["b"].pull()
    suspend(world["a"], "c")
    peer = world["a"].peers["b"]
    peer.on_call = lambda _: world.runtime.advance(1_000)
    with mock.patch.object(limits, "SOURCE_SEGMENTS_LOOKED_AT", 1):
        world["a"].pull()
        assert of(world["a"], "c") == ["c1"]
        assert numbers(world["a"], "c") == [("c1", 1)]
    assert [offset for origin, offset in peer.asked if origin == "c"].count(None) == 1


def test_a_peers_lack_is_no_news_for_the_link_item(world: RegionWorld) -> None:
    """It holds what is known of peers. That some of a suspended region's records are missing there is none of it."""
    a, b = world["a"], world["b"]
    world["c"].append("c1")
    for region in (b, a):
        region.pull()
    suspend(a, "c")
    a.pull()
    a.peers["c"].is_down = True
    for value in ("c2", "c3"):
        world["c"].append(value)
        b.pull()
    b.log.partitions.trim(TOPIC, 0, b.segments()[-1].base_offset)
    a.pull()
    assert "lacks records" in (status(a, "c", "b").problem or "")
    key = keys.link_item(a.service.topic_id(), 0)
    assert value_of(a.service.items.store.get([key]).get(key)).seen.keys() == {"b", "c"}


def test_a_peer_that_lies_about_numbers_gives_nothing(world: RegionWorld) -> None:
    world["c"].append("c1")
    world["a"].pull()
    world["c"].append("c2", "c3")
    world["b"].pull()
    lose(world, "c")
    suspend(world["a"], "c")
    peer = world["a"].peers["b"]

    def with_count(count: int) -> None:
        peer.seen["segments"] = lambda answer: replace(
            answer,
            segments=[
                entry
                if entry.of_origin is None or entry.of_origin.count is None
                else replace(entry, of_origin=replace(entry.of_origin, count=count))
                for entry in answer.segments
            ],
        )

    # The numbers lie within a batch. They leave some out, and b has no segment before them. No log has so many offsets.
    for count in (2, 9, limits.INT64_MAX, limits.INT64_MAX + 1):
        with_count(count)
        world.runtime.advance(60_000)
        assert world["a"].pull().took_records == 0
    assert of(world["a"], "c") == ["c1"]
