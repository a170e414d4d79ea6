"""Several processes that pull one partition: leases, wake-ups, and what is left to the log alone ("Triggers", I18)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline.format import keys
from fenceline.ports import Delete, Item, ItemKey, NoAnswer, Unavailable
from fenceline.regions.link_item import Link, LinkValue, PeerSeen, ScanNote, value_of
from fenceline.regions.replicator import RunResult
from tests.support.patience import PATIENCE_S
from tests.support.regions import Region, RegionWorld
from tests.support.service import TOPIC, Gate, append, is_unavailable, loses_answer, moves


@pytest.fixture
def world() -> Iterator[RegionWorld]:
    made = RegionWorld("a", "b")
    made.create()
    yield made
    made.close()


def link_of(region: Region) -> Any:
    key = keys.link_item(region.service.topic_id(), 0)
    return value_of(region.service.items.store.get([key]).get(key))


def link(region: Region) -> Link:
    return Link(region.another().context, region.service.topic_id(), 0)


def without_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each process believe that it has the lease: correctness must not depend on it."""
    monkeypatch.setattr(Link, "enter", lambda self, *, is_alone=False: True)
    monkeypatch.setattr(Link, "keep", lambda self: True)
    monkeypatch.setattr(Link, "leave", lambda self: True)


def test_two_pullers_at_once_append_each_record_once(world: RegionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    without_leases(monkeypatch)
    for n in range(10):
        world["a"].append(f"a{n}")
    first, second = world["b"].replicator(world["b"].another()), world["b"].replicator(world["b"].another())
    gate = Gate()
    world["b"].service.objects.plan("create", gate)
    took: list[RunResult] = []
    thread = threading.Thread(target=lambda: took.append(first.run(TOPIC, 0)))
    thread.start()
    assert gate.reached.wait(PATIENCE_S)
    assert second.run(TOPIC, 0).took_records == 10  # it has not seen the other's create
    world["a"].append("a10")
    gate.opened.set()
    thread.join(PATIENCE_S)
    assert took == [RunResult(1, None)]  # what it had prepared is outdated: it begins anew
    assert world["b"].values() == [f"a{n}" for n in range(11)]


def test_a_puller_that_was_overtaken_in_another_life_appends_nothing_of_the_old_one(
    world: RegionWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_leases(monkeypatch)
    world["a"].append("old1")
    first, second = world["b"].replicator(world["b"].another()), world["b"].replicator(world["b"].another())
    gate = Gate()
    world["b"].service.objects.plan("create", gate)
    thread = threading.Thread(target=lambda: first.run(TOPIC, 0))
    thread.start()
    assert gate.reached.wait(PATIENCE_S)
    world["a"].log.topics.delete(TOPIC)
    world["a"].log.topics.create(TOPIC, regions=["a", "b"])
    world["a"].append("new1")
    world["a"].append("new2")
    second.run(TOPIC, 0)
    gate.opened.set()
    thread.join(PATIENCE_S)
    world.runtime.advance(60_000)
    world.settle()
    assert world["b"].values() == ["new1", "new2"]


def test_two_runs_of_one_process_see_one_history(world: RegionWorld) -> None:
    """The second run moves the position, and with it the scan note, while the first one's question is under way."""
    b, peer = world["b"], world["b"].peers["a"]
    world["a"].append("a1")
    assert b.pull().took_records == 1
    world["a"].append("a2")
    took: list[RunResult] = []

    def overtaken(answer: Any) -> Any:
        peer.seen.clear()
        took.append(b.pull())
        return answer

    peer.seen["segments"] = overtaken
    took.append(b.pull())
    assert sum(run.took_records for run in took) == 1
    (known,) = b.own_replicator._statuses._partitions.values()
    assert known.status("a").problem is None
    assert b.values() == ["a1", "a2"]


def test_local_writers_that_win_the_offset_shift_the_batches_and_lose_nothing(world: RegionWorld) -> None:
    world["a"].append("a1")
    local = world["b"].another()

    def write_first(call: Any) -> Any:
        append(local, "local")
        return call()

    world["b"].service.objects.plan("create", write_first)
    assert world["b"].pull().took_records == 1
    assert world["b"].values() == ["local", "a1"]


# The lease


def test_a_process_that_finds_the_lease_taken_wakes_the_holder(world: RegionWorld) -> None:
    holder = link(world["b"])
    assert holder.enter()
    world["a"].append("a1")
    assert world["b"].pull() == RunResult(0, None)
    assert world["b"].values() == []
    assert link_of(world["b"]).again == 1
    assert not holder.leave()  # it was woken: it goes round once more
    assert holder.leave()
    assert world["b"].pull().took_records == 1


def test_a_process_that_replicates_alone_waits_for_no_lease(world: RegionWorld) -> None:
    assert link(world["b"]).enter()  # by a process that was killed
    world["a"].append("a1")
    assert world["b"].replicator().run(TOPIC, 0, is_alone=True).took_records == 1
    assert link_of(world["b"]).holder == ""


def test_a_wake_up_between_the_last_look_and_the_leaving_is_not_lost(world: RegionWorld) -> None:
    world["a"].append("a1")
    peer = world["b"].peers["a"]
    other = world["b"].replicator(world["b"].another())
    woken: list[RunResult] = []

    def wake_late(operation: str, key: str) -> None:
        # The holder leaves by its second write of the link item: between its look and that, records come.
        if operation == "write" and key == "link" and peer.calls["body"] and not woken:
            woken.append(RunResult(-1, None))
            world["a"].append("a2")
            woken[0] = other.run(TOPIC, 0)

    world["b"].service.items.on_call = wake_late
    assert world["b"].pull().took_records == 2
    assert woken == [RunResult(0, None)]
    assert world["b"].values() == ["a1", "a2"]
    assert link_of(world["b"]).holder == ""


def test_a_lease_lapses_and_the_next_process_goes_on(world: RegionWorld) -> None:
    assert link(world["b"]).enter()
    world["a"].append("a1")
    assert world["b"].pull().took_records == 0
    world.runtime.advance(limits.LINK_LEASE_MS)
    assert world["b"].pull().took_records == 1


def test_a_lease_of_a_clock_that_is_hours_ahead_is_ignored(world: RegionWorld) -> None:
    world.runtime.wall_ms += 7_200_000
    assert link(world["b"]).enter()
    world.runtime.wall_ms -= 7_200_000
    world["a"].append("a1")
    assert world["b"].pull().took_records == 1


def test_a_holder_that_lost_its_lease_stops_and_leaves_the_others_alone(world: RegionWorld) -> None:
    first, second = link(world["b"]), link(world["b"])
    assert first.enter()
    world.runtime.advance(limits.LINK_LEASE_MS)
    assert second.enter()
    assert not first.keep()
    assert first.leave()
    assert link_of(world["b"]).holder != ""
    assert not second.leave()  # what woke the first one may be newer than its look
    assert second.leave()


def test_a_wake_up_before_an_unanswered_attempt_to_take_the_lease_is_repeated_is_not_lost(world: RegionWorld) -> None:
    world["a"].append("a1")
    other = world["b"].replicator(world["b"].another())

    def lose_answer(call: Any) -> Any:
        call()
        world["a"].append("a2")  # after the look of the process that takes the lease
        assert other.run(TOPIC, 0) == RunResult(0, None)
        raise NoAnswer("the answer was lost")

    world["b"].service.items.plan("write", lose_answer)
    assert world["b"].pull().took_records == 2
    assert link_of(world["b"]).holder == ""


def test_a_wake_up_of_a_holder_that_died_is_not_lost(world: RegionWorld) -> None:
    world["b"].pull()
    assert link(world["b"]).enter()  # by a process that was killed
    world["a"].append("a1")
    others = [world["b"].replicator(world["b"].another()) for _ in range(2)]
    writes: list[str] = []

    def wake_first(operation: str, key: str) -> None:
        if operation == "write" and not writes:
            writes.append(key)
            world["a"].append("a2")
            assert others[1].run(TOPIC, 0) == RunResult(0, None)
            world.runtime.advance(limits.LINK_LEASE_MS)

    world["b"].service.items.on_call = wake_first
    # This process has looked, finds the lease taken, and tries again once it has lapsed.
    others[0].run(TOPIC, 0)
    world["b"].service.items.on_call = None
    assert world["b"].values() == ["a1", "a2"]


def test_a_run_that_fails_gives_up_a_lease_for_which_one_more_round_is_due(world: RegionWorld) -> None:
    assert link(world["b"]).enter()  # by a process that was killed
    world.runtime.advance(limits.LINK_LEASE_MS)
    world["a"].append("a1")
    world["b"].service.objects.always("create", is_unavailable)
    with pytest.raises(FencelineError):
        world["b"].pull()
    assert link_of(world["b"]).holder == ""


@pytest.mark.parametrize("fault", [loses_answer, moves, is_unavailable])
@pytest.mark.parametrize("at", [0, 1])
def test_a_lease_survives_lost_answers(world: RegionWorld, fault: Any, at: int) -> None:
    world["a"].append("a1")
    skipped = iter(range(at))

    def faulty(call: Any) -> Any:
        if next(skipped, None) is not None:
            world["b"].service.items.plan("write", faulty)
            return call()
        return fault(call)

    world["b"].service.items.plan("write", faulty)
    assert world["b"].pull().took_records == 1
    assert link_of(world["b"]).holder == ""


def test_a_long_run_renews_its_lease_and_ends_after_its_time(world: RegionWorld) -> None:
    for n in range(250):
        world["a"].append(f"a{n}")
    world["b"].peers["a"].on_call = lambda operation: world.runtime.advance(400)
    until: list[int] = []
    world["b"].service.objects.on_call = lambda operation, key: until.append(link_of(world["b"]).until)
    run = world["b"].pull()
    assert 0 < run.took_records < 250
    assert run.next_ms == 0
    assert len(set(until)) > 2
    assert link_of(world["b"]).holder == ""
    while world["b"].pull().took_records:
        pass
    assert world["b"].values() == [f"a{n}" for n in range(250)]


def test_a_run_that_fails_gives_its_lease_up(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].service.objects.always("create", is_unavailable)
    with pytest.raises((FencelineError, Unavailable)):
        world["b"].pull()
    world["b"].service.objects.always("create", None)
    assert link_of(world["b"]).holder == ""
    assert world["b"].pull().took_records == 1


# What the item holds


def test_a_fresh_process_goes_on_from_the_scan_note_of_another(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].append("b1")
    world["a"].pull()
    world["b"].pull()
    peer = world["b"].peers["a"]
    peer.asked.clear()
    world["b"].replicator(world["b"].another()).run(TOPIC, 0)
    assert peer.asked == [("own", 0), ("own", 2)]  # whether it is the same history, and from the note on


def test_a_lost_link_item_costs_nothing_but_looks(world: RegionWorld) -> None:
    world["a"].append("a1")
    world["b"].pull()
    key = keys.link_item(world["b"].service.topic_id(), 0)
    found = world["b"].service.items.store.get([key])[key]
    world["b"].service.items.store.write([Delete(key, found.version)])
    world["a"].append("a2")
    world["b"].replicator(world["b"].another()).run(TOPIC, 0)
    assert world["b"].values() == ["a1", "a2"]


def test_an_item_is_read_as_it_was_written() -> None:
    value = LinkValue(
        "me", 7, 3, 11, {("a", "a"): ScanNote("t", 4, 9, 3)}, {"a": PeerSeen(5, None), "c": PeerSeen(6, "away")}
    )
    assert value_of(Item(ItemKey("p", "link"), 1, value.to_value())) == value
    assert value_of(None) == LinkValue()


def test_a_long_quiet_stretch_is_noted_for_other_processes(world: RegionWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SOURCE_SEGMENTS_LOOKED_AT", 2)
    world["b"].append("b0")
    world["a"].append("a0")
    world.settle()
    for n in range(40):
        world["b"].append("b" + "x" * n)
        world["a"].pull()
    world["a"].append("a1")
    before = link_of(world["b"]).notes["a", "a"].to
    first = world["b"].replicator(world["b"].another())
    runs = [first.run(TOPIC, 0) for _ in range(2)]
    assert sum(run.took_records for run in runs) == 1
    assert link_of(world["b"]).notes["a", "a"].to > before + 30
    assert world["b"].values().count("a1") == 1


def test_the_only_replicator_of_a_directory_takes_over_the_lease_of_one_that_died(world: RegionWorld) -> None:
    world["a"].append("a1")
    assert link(world["b"]).enter()
    log = world["b"].another()
    assert log.replication.run(TOPIC, 0).took_records == 0
    assert log.replication.run(TOPIC, 0, is_alone=True).took_records == 1
