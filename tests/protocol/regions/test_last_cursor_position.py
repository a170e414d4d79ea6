"""The last position of a cursor arrives: in a region that was suspended, and behind records that were aborted (I24)."""

from __future__ import annotations

import pytest

from fenceline import limits
from fenceline.log.topic_suspension import suspend
from fenceline.regions import snapshots
from fenceline.regions.replicator import RunResult
from tests.support.region_ticks import SUB, Ticking
from tests.support.service import TOPIC
from tests.support.transacting import Producer


def test_a_region_that_is_resumed_gets_the_position_though_no_record_has_come() -> None:
    """The last snapshot before was final, and left the suspended region out."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["a"].append("1", "2")
    suspend(regions["a"].log.context, TOPIC, "c", is_suspended=True)
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.state("a").regions.snapshots[-1].is_final
    assert (regions.unread("b"), regions.unread("c")) == ([], ["1", "2"])
    suspend(regions["a"].log.context, TOPIC, "c", is_suspended=False)
    regions.settle()
    assert regions.unread("c") == []
    assert not regions.is_due("a")


def test_a_region_that_is_resumed_and_lacks_records_still_gets_the_position_once_it_has_them() -> None:
    """The last snapshot before was final. The first one that asks c is not: c has no record of b then."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["b"].append("1")
    suspend(regions["a"].log.context, TOPIC, "c", is_suspended=True)

    def turns(count: int, *links: str) -> None:
        for _ in range(count):
            for target, source in links:
                regions.pull(target, source)
            for name in "abc":
                regions.tick(name)
            regions.world.runtime.advance(1_000)

    turns(4, "ab", "ba")
    regions.acknowledge("a", regions.state("a").data_next - 1)
    assert regions.state("a").regions.snapshots[-1].is_final
    suspend(regions["a"].log.context, TOPIC, "c", is_suspended=False)
    turns(4, "ab", "ba", "ac", "ca")
    assert not regions.state("a").regions.snapshots[-1].is_final
    turns(80, "ab", "ba", "ac", "ca", "cb")
    assert regions.state("a").regions.snapshots[-1].is_final
    assert regions.unread("c") == []


def test_once_a_region_that_never_answers_is_suspended_the_others_are_asked_at_once() -> None:
    """c answers its peers, but its replicator is dead. Four REQUESTs wait for it."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    for n in range(6):
        regions.acknowledge("a", regions["a"].append(str(n)))
        turn(regions)
        regions.world.runtime.advance(30_000)
    assert [one.regions for one in regions.state("a").regions.asked] == [("b", "c")] * 4
    suspend(regions["a"].log.context, TOPIC, "c", is_suspended=True)
    for _ in range(4):
        turn(regions)
        regions.world.runtime.advance(1_000)
    assert regions.unread("b") == []


def test_after_a_long_pull_the_peers_that_count_as_away_by_then_are_asked_anew() -> None:
    """The records of b take 11 s. Then c was last asked so long ago that no REQUEST is due before c answers."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["b"].append("1")

    def slowly(operation: str) -> None:
        if operation == "body":
            regions.world.runtime.advance(limits.CONNECTED_MS + 1_000)

    regions["a"].peers["b"].on_call = slowly
    assert regions["a"].pull() == RunResult(1, 0)
    assert not regions.state("a").regions.asked
    regions["a"].pull()
    assert regions.state("a").regions.asked


def turn(regions: Ticking) -> None:
    for target, source in (("a", "b"), ("b", "a")):
        regions.pull(target, source)
        regions.tick(target)


@pytest.mark.parametrize("is_created_anew", [False, True])
def test_one_that_is_switched_on_or_created_anew_gets_the_position_with_the_next_snapshot(
    is_created_anew: bool,
) -> None:
    """It has missed the UPDATE. Without a new record an operator takes that snapshot."""
    regions = Ticking.of("a", "b")
    there = regions["b"].log.subscriptions
    there.subscribe(TOPIC, SUB, is_latest=False, replicate_subscription_state=False)
    regions.subscribe("a")
    regions.acknowledge("a", regions["a"].append("1"))
    regions.settle()
    if is_created_anew:
        there.unsubscribe(TOPIC, SUB)
    there.subscribe(TOPIC, SUB, is_latest=False, replicate_subscription_state=True)
    regions.settle()
    assert regions.unread("b") == ["1"]
    snapshots.start(regions.job("a"))
    regions.settle()
    assert regions.unread("b") == []


def test_updates_that_cross_silence_no_region_of_which_they_pass_no_record() -> None:
    """a and b have acknowledged all, and ask; c answers both, and has one record more, which both acknowledge, too."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["a"].append("1")
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    regions["a"].append("2")
    regions.pull_all()
    for name in "ab":
        regions.acknowledge(name, regions.state(name).data_next - 1)
    regions.world.runtime.advance(2_000)
    for name in "ab":
        regions.tick(name)
        snapshots.start(regions.job(name))  # so that each position lies behind markers that no mark has passed
    regions.pull("c", "a")
    regions.pull("c", "b")
    regions.tick("c")
    regions["c"].append("3")
    for name, other in ("ab", "ba"):
        regions.pull(name, "c")
        regions.acknowledge(name, regions.state(name).data_next - 1)
        regions.pull(name, other)
    for name in "ab":
        regions.tick(name)  # answers
    for name, other in ("ab", "ba"):
        regions.pull(name, other)
    for name in "ab":
        regions.tick(name)  # a snapshot, and an UPDATE
    assert [len(regions.updates(name)) for name in "ab"] == [3, 1]
    assert regions.unread("c") == ["2", "3"]
    regions.settle()
    assert [regions.unread(name) for name in "abc"] == [[], [], []]


def test_records_that_were_aborted_first_of_all_keep_no_position_away_from_their_origin() -> None:
    """What the others have of c begins with its second record. The first one is offered in no region."""
    regions = Ticking.of("a", "b", "c")
    regions["b"].append("of b")
    regions["c"].pull()
    producer = Producer(regions["c"].service, regions["c"].log)
    producer.begin()
    producer.add(0)
    producer.send("1")
    producer.end(is_commit=False)
    regions["c"].append("2")
    regions.subscribe("a")
    replicate(regions)
    taken = regions["a"].origin("c")
    assert taken is not None
    assert (taken.start, taken.count) == (1, 2)
    regions.acknowledge("a", regions.state("a").data_next - 1)
    replicate(regions)
    assert regions.cursor("c").mark > regions.state("c").data_next - 1


def replicate(regions: Ticking) -> None:
    for _ in range(8):
        for name in regions.world.regions:
            regions[name].pull()
        regions.world.runtime.advance(1_000)
