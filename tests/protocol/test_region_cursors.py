"""Cursors in several regions: acknowledged in one, moved in the others."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.append.region_markers import UpdateEntry
from fenceline.format.region_markers import Update, Updates
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import GroupOffset
from fenceline.regions import snapshots
from fenceline.subscriptions import cursors
from fenceline.subscriptions.snapshot_cache import NOTHING
from tests.support.region_ticks import SUB, Ticking
from tests.support.service import TOPIC, is_unavailable
from tests.support.sweeping import Died


def both(*, records: int = 3) -> Ticking:
    """Return two regions with records of both, a replicated subscription in each, and a snapshot in a."""
    made = Ticking.of("a", "b")
    made.subscribe("a")
    made["a"].append(*(f"a{n}" for n in range(records)))
    made["b"].append(*(f"b{n}" for n in range(records)))
    made.settle()
    return made


def last(regions: Ticking, name: str) -> int:
    """Return the offset of a region's last record."""
    return regions.state(name).data_next - 1


def test_an_acknowledgement_moves_the_cursor_elsewhere() -> None:
    regions = both()
    regions.acknowledge("a", last(regions, "a"))
    regions.settle()
    assert regions.unread("a") == regions.unread("b") == []
    regions["b"].append("later")
    regions.settle()
    assert regions.unread("a") == regions.unread("b") == ["later"]


def test_the_acknowledgement_itself_sends_the_update() -> None:
    regions = both()
    told = len(regions.updates("a"))
    regions.acknowledge("a", last(regions, "a"))
    (update,) = regions.updates("a")[-1].updates
    assert (len(regions.updates("a")), update.subscription, list(update.positions)) == (told + 1, SUB, ["b"])
    assert regions.cursor("a").cache.due is None
    regions.pull("b", "a")
    regions.tick("b")
    assert regions.unread("b") == []
    assert regions.cursor("b").cache.is_active is False


def test_within_a_second_the_tick_sends_the_second_update() -> None:
    regions = both()
    first = last(regions, "a")
    regions["a"].append("more")
    regions.settle()
    regions.acknowledge("a", first)
    sent = len(regions.updates("a"))
    regions.acknowledge("a", last(regions, "a"))
    assert (len(regions.updates("a")), regions.cursor("a").cache.due is None) == (sent, False)
    regions.tick("a")
    assert (len(regions.updates("a")), regions.cursor("a").cache.due) == (sent + 1, None)
    regions.settle()
    assert regions.unread("b") == []


def test_an_update_that_is_not_appended_does_not_fail_the_acknowledgement() -> None:
    regions = both()
    regions["a"].service.objects.always("create", is_unavailable)
    regions.acknowledge("a", last(regions, "a"))
    regions["a"].service.objects.always("create", None)
    assert regions.cursor("a").cache.due is not None
    regions.settle()
    assert regions.unread("b") == []


def commit(regions: Ticking, offset: int) -> None:
    regions["a"].log.subscriptions.commit(SUB, [GroupOffset(TOPIC, 0, offset, "m")])


def seek(regions: Ticking, offset: int) -> None:
    regions["a"].log.subscriptions.seek(TOPIC, 0, SUB, offset=offset)


@pytest.mark.parametrize("move", [commit, seek])
def test_commits_and_seeks_move_the_cursor_elsewhere(move: Any) -> None:
    regions = both()
    move(regions, last(regions, "a") + 1)
    assert regions.cursor("a").cache.due is None  # sent by the request itself
    regions.settle()
    assert regions.unread("b") == []
    move(regions, 0)
    regions.settle()
    assert (len(regions.unread("a")), regions.unread("b")) == (6, [])  # backwards moves no other region


def test_what_is_acknowledged_out_of_order_arrives_once_the_rest_is() -> None:
    regions = both()
    end = last(regions, "a")
    individual = Acknowledgement(None, [end])
    regions["a"].log.subscriptions.acknowledge(TOPIC, 0, SUB, individual)
    regions.settle()
    assert len(regions.unread("b")) == 6
    regions.acknowledge("a", end - 1)
    regions.settle()
    assert regions.unread("b") == []


def test_one_that_lags_arrives_at_a_snapshot_in_between() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    for n in range(40):
        regions["a"].append(f"{n}")
        regions.settle()
    assert 0 < len(regions.cursor("a").cache.snapshots) <= 30
    offset = regions.state("a").next_offset // 2
    regions.acknowledge("a", offset)
    regions.settle()
    ahead = set(regions.unread("b")) - set(regions.unread("a"))
    assert len(ahead) <= 4
    assert set(regions.unread("a")) <= set(regions.unread("b"))


# Subscriptions


def test_a_subscription_exists_elsewhere_before_anything_is_acknowledged() -> None:
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    assert regions.is_due("a")
    regions.settle()
    for name in ("b", "c"):
        found = regions.subscription(name)
        assert found is not None
        assert (found.replicate_subscription_state, found.is_active, sorted(found.told)) == (
            True, False, sorted({"a", "b", "c"} - {name})
        )  # fmt: skip
    assert [len(regions.updates(name)) for name in "abc"] == [1, 0, 0]


def test_a_subscription_at_latest_is_done_with_what_lies_before_everywhere() -> None:
    regions = Ticking.of("a", "b")
    regions["a"].append("1")
    regions["b"].append("2")
    regions.pull_all()
    regions.subscribe("a", is_latest=True)
    regions.settle()
    assert regions.unread("b") == []


def test_one_that_exists_at_earliest_elsewhere_is_done_with_it_too() -> None:
    regions = Ticking.of("a", "b")
    regions["a"].append("1", "2")
    regions.pull_all()
    regions.subscribe("a")
    regions.subscribe("b", is_latest=True)  # before it hears of the one in a
    assert regions.unread("a") == ["1", "2"]
    regions.settle()
    assert regions.unread("a") == regions.unread("b") == []


def test_a_plain_subscription_is_left_alone() -> None:
    regions = both()
    regions["b"].log.subscriptions.subscribe(TOPIC, SUB, replicate_subscription_state=False)
    regions.acknowledge("a", last(regions, "a"))
    regions.settle()
    assert len(regions.unread("b")) == 6
    regions["b"].log.subscriptions.subscribe(TOPIC, SUB, replicate_subscription_state=True)
    regions["a"].append("more")
    regions.settle()
    regions.acknowledge("a", last(regions, "a"))
    regions.settle()
    assert regions.unread("b") == []


def test_a_region_that_is_added_hears_of_each_subscription() -> None:
    regions = Ticking.of("a", "b", "c")
    for name in "ab":
        regions[name].log.topics.alter(TOPIC, regions=["a", "b"])
    regions.subscribe("a")
    regions.pull("b", "a")
    regions.tick("a")
    found = regions.subscription("a")
    assert found is not None
    assert found.told == ("b",)
    for name in "ab":
        regions[name].log.topics.alter(TOPIC, regions=["a", "b", "c"])
    regions.settle()
    assert regions.subscription("c") is not None


def test_the_region_in_which_to_read_travels() -> None:
    regions = both()

    def advise(name: str, region: str | None) -> None:
        regions[name].log.subscriptions.subscribe(TOPIC, SUB, active_region=[region])

    def advice(name: str) -> str | None:
        found = regions.subscription(name)
        assert found is not None
        return found.active_region

    advise("a", "b")
    regions.settle()
    assert (advice("a"), advice("b")) == ("b", "b")
    advise("b", "a")
    regions.settle()
    assert (advice("a"), advice("b")) == ("a", "a")
    advise("a", None)
    regions.settle()
    assert (advice("a"), advice("b")) == (None, None)


def test_an_update_moves_no_cursor_beyond_its_own_offset() -> None:
    """Its sender cannot have known of what lies there, whatever it heard later."""
    regions = both()
    here = regions.state("b").next_offset
    position = {"b": (regions.partition("b").topic_id, here + 3)}
    regions.work("a").append(UpdateEntry(Updates([Update(SUB, "s", position)])))
    regions.pull("b", "a")
    regions["b"].append("b3", "b4", "b5")
    snapshots.start(regions.work("a"))
    regions.pull("b", "a")
    snapshots.answer(regions.work("b"), regions.state("b").regions)
    before = regions.unread("b")
    regions.tick("b")
    assert regions.unread("b") == before
    assert {"b3", "b4", "b5"} <= {*before}


# Costs


def test_with_nothing_due_nothing_is_written() -> None:
    regions = both()
    regions.acknowledge("a", last(regions, "a"))
    regions.settle()
    for name in "ab":
        service = regions[name].service
        before = (service.objects.calls["create"], service.items.calls["write"])
        for _ in range(50):
            regions.world.runtime.advance(60_000)
            assert regions.tick(name) is None
        assert (service.objects.calls["create"], service.items.calls["write"]) == before


def test_a_subscription_that_is_not_replicated_costs_no_call_more(monkeypatch: pytest.MonkeyPatch) -> None:
    regions = both()
    service, counted = regions["a"].service, []
    service.log.subscriptions.subscribe(TOPIC, "plain", is_latest=False)
    for is_noted in (True, True, False):
        if not is_noted:
            monkeypatch.setattr(cursors, "moved_here", lambda *given: given[-1])
        regions["a"].append("1", "2")
        end = regions.state("a").next_offset
        before = service.objects.calls + service.items.calls
        regions.acknowledge("a", end - 2, subscription="plain")
        counted.append((service.objects.calls + service.items.calls) - before)
    assert counted[1] == counted[2]
    regions.acknowledge("a", regions.state("a").next_offset - 1, subscription="plain")
    assert regions.cursor("a", subscription="plain").cache == NOTHING


# Crashes


@pytest.mark.parametrize(("name", "at"), [*(("a", at) for at in range(4)), *(("b", at) for at in range(3))])
def test_after_a_death_anywhere_the_position_arrives(name: str, at: int) -> None:
    """From the first REQUEST to the last UPDATE, a process dies before one of its writes; another one goes on."""
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    regions["a"].append("1", "2")
    regions["b"].append("3")
    writes = 0

    def die_once(operation: str, _: str) -> None:
        nonlocal writes
        writes += operation in ("create", "write")
        if operation in ("create", "write") and writes == at + 1:
            raise Died

    service = regions[name].service
    for turn in range(10):
        regions.pull_all()
        regions.tick("a" if name == "b" else "b")
        service.objects.on_call = service.items.on_call = die_once
        try:
            regions.tick(name)
        except Died:
            regions.world.replace_log(name)
        service.objects.on_call = service.items.on_call = None
        if turn == 5:
            regions.acknowledge("a", last(regions, "a"))
        regions.world.runtime.advance(31_000)
    assert writes > at
    regions.settle()
    assert regions.unread("a") == regions.unread("b") == []
