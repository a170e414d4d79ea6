"""Snapshots between regions, step by step: what they wait for, when one is repeated, and what no UPDATE may pass."""

from __future__ import annotations

import itertools

import pytest

from fenceline.errors import InvalidRequestError, ThrottledError
from fenceline.log.topic_suspension import suspend as suspended
from fenceline.model.requests import ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.regions import snapshots
from fenceline.service.log import Log
from fenceline.transactions.item import SubscriptionCursors
from fenceline.transactions.pending_offsets import settle
from tests.support.region_ticks import SUB, Ticking
from tests.support.sending import Sender
from tests.support.service import TOPIC
from tests.support.transacting import Producer


def test_a_snapshot_waits_for_a_record_that_another_region_had() -> None:
    """The example of PIP-33: a record of b is in c, and not in a, while c answers a."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["a"].append("1")
    regions.tick("a")  # REQUEST, and that the subscription exists
    assert [asked.regions for asked in regions.state("a").regions.asked] == [("b", "c")]
    regions.pull("b", "a")
    regions.tick("b")  # answers: it had no record of c
    regions["b"].append("of b")
    regions.pull("c", "b")
    regions.pull("c", "a")
    regions.tick("c")  # answers: it had the record of b
    b_answers = regions.state("b").next_offset - 1
    regions.pull("a", "b", below=b_answers)
    regions.pull("a", "c")
    (asked,) = regions.state("a").regions.asked
    assert (set(asked.answers), asked.local) == ({"b", "c"}, None)
    assert asked.answers["c"].origins["b"][1] == 1
    regions.tick("a")
    assert not regions.state("a").regions.snapshots
    regions.pull("a", "b")
    (asked,) = regions.state("a").regions.asked
    assert asked.local == regions.state("a").next_offset
    assert regions["a"].values()[-1] == "of b"
    regions.tick("a")
    (done,) = regions.state("a").regions.snapshots
    assert done.local == asked.local
    assert set(done.positions) == {"b", "c"}
    # What a acknowledges now passes the record of b in c.
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.pull("c", "a")
    regions.tick("c")
    assert regions.unread("c") == []


def test_a_suspended_region_is_not_asked() -> None:
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["a"].append("1")
    regions.away.add(("a", "c"))
    regions.tick("a")
    assert not regions.state("a").regions.asked  # c may have what a lacks
    suspend(regions["a"].log, "c")
    regions.tick("a")
    assert [asked.regions for asked in regions.state("a").regions.asked] == [("b",)]
    suspend(regions["a"].log, "b")
    with pytest.raises(InvalidRequestError):
        snapshots.start(regions.job("a"))


def suspend(log: Log, region: str) -> None:
    suspended(log.context, TOPIC, region, is_suspended=True)


def test_an_operator_takes_a_snapshot_without_subscriptions_or_data() -> None:
    regions = Ticking.of("a", "b")
    assert snapshots.start(regions.job("a"), snapshot_id="mine") == "mine"
    assert snapshots.start(regions.job("a"), snapshot_id="mine") == "mine"
    regions.settle()
    assert [done.snapshot_id for done in regions.state("a").regions.snapshots] == ["mine"]
    for _ in range(8):
        snapshots.start(regions.job("a"))
    with pytest.raises(ThrottledError):
        snapshots.start(regions.job("a"))


def test_a_snapshot_that_is_not_final_is_requested_ever_more_slowly() -> None:
    """A record of b reaches a, and not c; then silence."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["b"].append("1")
    regions.pull("a", "b")
    requests = []

    def without_b_to_c() -> None:
        for target, source in (("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a")):
            regions.pull(target, source)

    for _ in range(100):
        without_b_to_c()
        for name in "abc":
            regions.tick(name)
        requests.append(regions.state("a").regions.requested_at)
        regions.world.runtime.advance(5_000)
    state = regions.state("a").regions
    assert state.covered == 0
    assert state.repeats > 8
    assert not any(done.is_final for done in state.snapshots)
    times = sorted(set(requests) - {0})
    pauses = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert pauses[-1] >= 60_000
    assert len(times) < 20
    for _ in range(3):
        regions.settle()
        regions.world.runtime.advance(60_000)
    assert regions.state("a").regions.snapshots[-1].is_final
    assert regions.state("a").regions.repeats == 0


def test_a_link_in_one_direction_costs_four_requests() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    for n in range(60):
        regions["a"].append(str(n))
        regions.pull("b", "a")
        regions.tick("a")
        regions.tick("b")
        regions.world.runtime.advance(15_000)
    assert len(regions.state("a").regions.asked) == 4
    regions.settle()
    assert regions.state("a").regions.snapshots


def test_an_aborted_tail_keeps_no_snapshot_away() -> None:
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["c"].append("1")
    producer = Producer(regions["c"].service, regions["c"].log)
    producer.begin()
    producer.add(0)
    producer.send("2")
    producer.end(is_commit=False)
    regions.settle()
    (done,) = regions.state("a").regions.snapshots[-1:]
    assert done.is_final
    assert not regions.is_due("a")


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_offset_in_a_transaction_travels_once_it_is_decided(is_commit: bool) -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    regions["a"].append("1", "2")
    regions.settle()
    service, log = regions["a"].service, regions["a"].log
    sender = Sender(service, 7, 4).begin(SUB)
    sender.send(CommittedOffset(TOPIC, 0, 2, ""), group=SUB)
    regions.settle()
    assert regions.unread("b") == ["1", "2"]
    found = regions.subscription("a")
    assert found is not None
    settle(log.context, SubscriptionCursors(SUB, found.topic_id, found.subscription_id, (0,)), 0, 7, 5, is_commit)
    assert regions.is_due("a") == is_commit
    regions.settle()
    assert regions.unread("b") == ([] if is_commit else ["1", "2"])


# What no UPDATE may pass


def test_records_of_an_earlier_life_wait_for_a_consumer() -> None:
    """b keeps unread records of a's earlier topic, of which the new a knows nothing."""
    regions = Ticking.of("a", "b")
    regions.subscribe("b")
    regions["a"].append("old")
    regions.pull("b", "a")
    regions.recreate("a")
    regions.subscribe("a")
    regions["a"].append("new")
    regions["b"].append("of b")
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("a") == []
    assert "old" in regions.unread("b")
    read = regions["b"].log.subscriptions.read(TOPIC, 0, SUB, ReadRequest(max_records=2))
    assert [(record.value or b"").decode() for record in read.records] == ["old", "of b"]
    regions.acknowledge("b", read.records[1].offset)  # from here on UPDATEs are followed again
    regions["a"].append("newer")
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("b") == []


def test_records_that_the_sender_never_had_wait_for_a_consumer() -> None:
    """c trimmed its first records before a was there; b keeps them unread."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("b")
    regions["c"].append("1", "2")
    regions.pull("b", "c")
    end = regions.state("c").next_offset
    regions["c"].append("3")
    regions["c"].log.partitions.trim(TOPIC, 0, end)
    regions.settle()
    assert regions["a"].values() == ["3"]
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("b") == ["1", "2", "3"]
    regions.acknowledge("b", 1)
    regions["a"].append("4")
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("b") == []


def test_a_mark_that_retention_has_overtaken_moves_no_other_region() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    regions["a"].append("1", "2")
    regions.pull("b", "a")
    regions["a"].log.partitions.trim(TOPIC, 0, 2)
    regions.settle()
    assert (regions.unread("a"), regions.unread("b")) == ([], ["1", "2"])
    regions["a"].append("3")
    regions.settle()
    assert regions.unread("b") == ["1", "2", "3"]
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("b") == []  # the consumer in a goes by the retention of a


def test_a_position_of_another_life_moves_nothing() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    regions["a"].append("1")
    regions.settle()
    regions.acknowledge("a", 0)
    regions.recreate("b")
    regions["b"].append("2")
    regions.pull("b", "a")
    regions.tick("b")
    assert set(regions.unread("b")) == {"1", "2"}


def test_a_cursor_that_an_update_moved_sends_none_in_turn() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    regions["a"].append("1")
    regions.settle()
    regions.acknowledge("a", regions.state("a").data_next - 1)
    regions.settle()
    assert regions.unread("b") == []
    snapshots.start(regions.job("b"))
    regions.settle()
    assert regions.state("b").regions.snapshots
    assert regions.updates("b") == []
