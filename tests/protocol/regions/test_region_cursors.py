"""Cursors in several regions: acknowledged in one, moved in the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.append.entries.region_markers import UpdateEntry
from fenceline.format import keys
from fenceline.format.region_markers import Update, Updates
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import Context
from fenceline.model.requests import Acknowledgement
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Put
from fenceline.recovery.verify import verify_partition
from fenceline.regions import snapshots
from fenceline.subscriptions import backlog, cursor_store, cursors, lifecycle
from fenceline.subscriptions.cursor_store import change_of
from fenceline.subscriptions.items import SubscriptionItem
from fenceline.subscriptions.snapshot_cache import NOTHING
from fenceline.sweeper import subscription_expiry
from fenceline.sweeper.sweep import sweep
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
    before = len(regions.updates("a"))
    regions.acknowledge("a", last(regions, "a"))
    (update,) = regions.updates("a")[-1].updates
    assert (len(regions.updates("a")), update.subscription, list(update.positions)) == (before + 1, SUB, ["b"])
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
    regions["a"].log.subscriptions.commit(SUB, [CommittedOffset(TOPIC, 0, offset, "m")])


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


def test_individual_acknowledgements_arrive_once_the_earlier_ones_are_there() -> None:
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


@pytest.mark.parametrize("is_deleted", [False, True])
def test_an_announced_subscription_keeps_concurrent_changes(*, is_deleted: bool) -> None:
    """The UPDATE is in the log. Which regions it was for is noted only in the item that it was made from."""
    regions = Ticking.of("a", "b")
    regions.subscribe("a")
    subscriptions = regions["a"].log.subscriptions

    def then_changed(create: Callable[[], Any]) -> Any:
        create()
        if is_deleted:
            subscriptions.unsubscribe(TOPIC, SUB)
        else:
            subscriptions.subscribe(TOPIC, SUB, replicate_subscription_state=False)

    regions["a"].service.objects.plan("create", then_changed)
    regions.tick("a")
    assert len(regions.updates("a")) == 1
    found = regions.subscription("a")
    assert (found is None) == is_deleted
    assert found is None or (found.replicate_subscription_state, found.told) == (False, ())


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
    regions.job("a").append(UpdateEntry(Updates([Update(SUB, "s", position)])))
    regions.pull("b", "a")
    regions["b"].append("b3", "b4", "b5")
    snapshots.start(regions.job("a"))
    regions.pull("b", "a")
    snapshots.answer(regions.job("b"), regions.state("b").regions)
    before = regions.unread("b")
    regions.tick("b")
    assert regions.unread("b") == before
    assert {"b3", "b4", "b5"} <= {*before}


# What a peer may claim


@dataclass(frozen=True)
class Raw(Updates):
    """An UPDATE as a hostile region stores it."""

    updates: Any

    def to_value(self) -> dict[str, Any]:
        return {"updates": self.updates}


def say(regions: Ticking, name: str, *updates: Any) -> None:
    """Let a region send one UPDATE marker."""
    made = [one.to_value() if isinstance(one, Update) else one for one in updates]
    regions.job(name).append(UpdateEntry(Raw(made)))


def claim(regions: Ticking, position: int, subscription: str = SUB) -> Update:
    return Update(subscription, "s", {"b": (regions.partition("b").topic_id, position)})


@pytest.mark.parametrize("is_fresh", [True, False])
def test_a_position_counts_only_up_to_what_a_response_gave_that_region(*, is_fresh: bool) -> None:
    """Region a acknowledged nothing, and makes a position up; c has an answer that gave it one."""
    regions = Ticking.of("a", "b", "c")
    regions.subscribe("a")
    regions["b"].append(*(f"b{n}" for n in range(4)))
    regions.settle()
    given = regions.state("b").regions.given
    assert given.keys() == {"a"}
    regions["b"].append("b4", "b5")
    for name, position in (("a", given["a"] + 1), ("a", regions.state("b").next_offset), ("c", given["a"])):
        say(regions, name, claim(regions, position))
        regions.pull("b", name)
        if is_fresh:
            regions.world.replace_log("b")
        regions.tick("b")
        assert regions.cursor("b").mark == 0
    say(regions, "a", claim(regions, given["a"]))
    regions.pull("b", "a")
    regions.tick("b")
    assert regions.unread("b") == ["b4", "b5"]


def test_positions_that_an_older_version_gave_still_count() -> None:
    """Its heads do not say which they were."""
    regions = both()
    state = regions.state("b")
    value = Head(state, 0).to_value()
    value["regions"] = json.dumps({k: v for k, v in json.loads(value["regions"]).items() if k != "given"}).encode()
    old = Head.from_value(value).state.regions
    assert (old.given, old.given_from) == ({}, state.next_offset)
    for position in range(state.next_offset):
        assert old.has_given("a", position)
    assert not old.has_given("a", state.next_offset)
    assert Head.from_value(Head(state, 0).to_value()).state == state
    put_head(regions, value)
    regions.world.replace_log("b")
    regions["b"].append("more")
    put_head(regions, Head(regions.state("b"), 0).to_value())
    assert regions.state("b").regions.given_from > 0
    topic = regions.item("b").topic
    assert not verify_partition(regions["b"].log.context, topic, 0).problem


def put_head(regions: Ticking, value: Any) -> None:
    items, key = regions["b"].service.items, keys.head_item(regions.partition("b").topic_id, 0)
    known = items.get([key]).get(key)
    items.write([Put(key, value, 1_000 + value["next_offset"], None if known is None else known.version)])


BAD_MEMBERS: dict[str, dict[str, Any]] = {
    "subscription": {"subscription": "a/b"},
    "no subscription": {"subscription": None},
    "positions": {"positions": {"b": ["x", -1]}},
    "origins that were never there": {"from": {"b": "all"}},
    "id": {"id": "\x1b"},
    "region": {"active_region": "B\u202e"},
    "number": {"active_n": 2**63},
    "negative": {"active_n": -1},
}


@pytest.mark.parametrize("bad", [*BAD_MEMBERS.values(), *([None], 7, "x")], ids=str)
def test_a_bad_member_drops_itself_and_not_the_marker(bad: Any) -> None:
    regions = both()
    good = claim(regions, regions.state("b").regions.given["a"])
    member = {**good.to_value(), "subscription": "other", **bad} if isinstance(bad, dict) else bad
    say(regions, "a", Update("one"), member, good)
    regions.pull("b", "a")
    regions.tick("b")
    assert regions.unread("b") == []
    assert regions.subscription("b", "one") is not None
    if isinstance(bad, dict) and "subscription" not in bad:
        other = regions.subscription("b", "other")
        assert other is not None, "that it exists can be read"
        is_advice = bad.keys() <= {"active_region", "active_n"}
        assert (len(regions.unread("b", "other")) == 0) == is_advice, "without what was never there nothing is passed"
        assert (other.active_region, other.active_n) == (None, 0)


DAY_MS = 24 * 3_600_000


def names(regions: Ticking, name: str) -> list[str]:
    return [one.name for one in regions[name].log.subscriptions.list(TOPIC)[0]]


def thorough(regions: Ticking, name: str) -> None:
    report = sweep(regions[name].log, duration_ms=60_000, is_thorough=True)
    assert report is not None
    assert not report.problems


@pytest.mark.parametrize("is_one_segment", [True, False])
def test_updates_that_take_long_are_applied_in_several_ticks(
    monkeypatch: pytest.MonkeyPatch, *, is_one_segment: bool
) -> None:
    """A hostile region sends any number, and each costs reads. Answers, and what others send, wait meanwhile."""
    regions = Ticking.of("a", "b")
    for n in range(5):
        say(regions, "a", Update(f"s{n}"), Update(f"t{n}"))
        if not is_one_segment:
            regions.pull("b", "a")
    regions.pull("b", "a")
    find, asked = cursor_store.find, list[str]()

    def slow(context: Context, topic_id: str, name: str) -> SubscriptionItem | None:
        asked.append(name)
        regions.world.runtime.advance(limits.UPDATES_TICK_MS // 3)
        return find(context, topic_id, name)

    monkeypatch.setattr(cursor_store, "find", slow)
    for count in (2, 4):
        assert regions.tick("b") == 0, "what is left is due at once"
        assert names(regions, "b") == sorted([f"{letter}{n}" for n in range(count) for letter in "st"])
    regions.tick("b")
    assert names(regions, "b") == sorted([f"{letter}{n}" for n in range(5) for letter in "st"])
    assert len(asked) == 10, "each is applied once"


def test_a_marker_whose_updates_take_minutes_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each update's scan takes 10 s. What the tick saw at its start lets nothing be read for longer than a minute."""
    regions = both()
    given, many = regions.state("b").regions.given["a"], [f"s{n}" for n in range(20)]
    for _ in range(2):
        say(regions, "a", *(claim(regions, given, name) for name in many))
        regions.pull("b", "a")
    scan = backlog.slid_far

    def slow(*given: Any) -> int:
        regions.world.runtime.advance(10_000)
        return scan(*given)

    monkeypatch.setattr(backlog, "slid_far", slow)
    assert regions.tick("b") == 0, "the second marker is left, and due at once"
    assert [regions.cursor("b", subscription=name).mark for name in many] == [given] * len(many)
    regions.tick("b")
    assert regions.job("b").link.applied_to >= regions.state("b").regions.update_next


def test_the_updates_of_a_region_make_a_bounded_number_of_subscriptions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEARD_SUBSCRIPTIONS_MAX", 3)
    regions = Ticking.of("a", "b", "c")
    for _ in range(2):
        say(regions, "a", *(Update(f"of-a-{n}") for n in range(5)))
        regions.pull("b", "a")
        regions.tick("b")
    say(regions, "c", Update("of-c"))
    regions.pull("b", "c")
    regions.tick("b")
    assert names(regions, "b") == ["of-a-0", "of-a-1", "of-a-2", "of-c"]
    regions.subscribe("b", subscription="of-a-1")  # a caller takes it over
    say(regions, "a", Update("of-a-4"), Update("of-a-3"))
    regions.pull("b", "a")
    regions.tick("b")
    assert names(regions, "b") == ["of-a-0", "of-a-1", "of-a-2", "of-a-4", "of-c"]


def test_an_update_whose_write_must_be_sent_again_takes_the_room_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HEARD_SUBSCRIPTIONS_MAX", 2)
    regions = Ticking.of("a", "b")
    say(regions, "a", Update("one"), Update("two"), Update("three"))
    regions.pull("b", "a")
    regions["b"].service.items.plan("write", is_unavailable, is_unavailable)
    regions.tick("b")
    assert names(regions, "b") == ["one", "two"]


def test_subscriptions_made_by_updates_expire_unless_announced_again_or_used() -> None:
    regions = Ticking.of("a", "b")
    regions.subscribe("a", subscription="honest")
    regions.settle()
    regions["a"].append("1", "2")
    say(regions, "a", *(Update(name) for name in ("junk", "used", "taken")))
    regions.settle()
    assert names(regions, "b") == ["honest", "junk", "taken", "used"]
    regions.acknowledge("b", 0, subscription="used")
    regions["b"].log.subscriptions.subscribe(TOPIC, "taken")
    for day in range(0, 40, 5):
        regions.settle()
        thorough(regions, "b")
        assert ("junk" in names(regions, "b")) == (day < 30)
        assert {"honest", "used", "taken"} <= {*names(regions, "b")}
        regions.world.runtime.advance(5 * DAY_MS)
    announced = [one.subscription for page in regions.updates("a") for one in page.updates]
    assert announced.count("honest") == 4, "when it was made, and at the first look after each week"
    regions["a"].log.subscriptions.unsubscribe(TOPIC, "honest")
    regions.world.runtime.advance(limits.HEARD_MS + DAY_MS)
    regions.settle()
    thorough(regions, "b")
    assert names(regions, "b") == ["taken", "used"]
    assert regions.subscription("b", "junk") is None


def acknowledge_here(regions: Ticking) -> None:
    regions.acknowledge("b", 0)


def commit_here(regions: Ticking) -> None:
    regions["b"].log.subscriptions.commit(SUB, [CommittedOffset(TOPIC, 0, 1, "m")])


def send_here(regions: Ticking) -> None:
    transactions = regions["b"].log.transactions
    pair = transactions.init("t", 60_000)
    transactions.add_group("t", pair, SUB)
    transactions.send_offsets("t", pair, SUB, [CommittedOffset(TOPIC, 0, 1, "m")])
    transactions.end("t", pair, is_commit=True)


def switch_here(regions: Ticking) -> None:
    regions["b"].log.subscriptions.subscribe(TOPIC, SUB)


USES = [acknowledge_here, commit_here, send_here, switch_here]


@pytest.mark.parametrize("use", USES)
def test_one_that_was_used_never_expires_though_an_update_moved_it_later(use: Callable[[Ticking], None]) -> None:
    regions = both()
    use(regions)
    assert regions.subscription("b") is not None
    regions.acknowledge("a", last(regions, "a"))
    regions.settle()
    assert regions.cursor("b").cache.is_active is False
    regions.world.runtime.advance(limits.HEARD_MS + DAY_MS)
    thorough(regions, "b")
    assert regions.subscription("b") is not None


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("has_moved", [False, True], ids=["absent cursor", "cursor that an UPDATE moved"])
def test_a_use_while_the_sweeper_deletes_is_never_lost(
    monkeypatch: pytest.MonkeyPatch, use: Callable[[Ticking], None], has_moved: bool
) -> None:
    regions = both()
    if has_moved:
        regions.acknowledge("a", 2)
        regions.settle()
    found = regions.subscription("b")
    ended: list[str] = []

    def used_first(context: Context, item: SubscriptionItem) -> None:
        use(regions)
        ended.append(item.name)
        lifecycle.end(context, item)

    monkeypatch.setattr(subscription_expiry, "end", used_first)
    regions.world.runtime.advance(limits.HEARD_MS + DAY_MS)
    thorough(regions, "b")
    kept = regions.subscription("b")
    assert ended == [SUB]
    assert found is not None
    assert kept is not None
    assert (kept.subscription_id, kept.heard) == (found.subscription_id, None)
    assert use is switch_here or regions.cursor("b").is_set


def test_a_first_use_may_need_several_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CURSOR_CHUNK_RANGES", 2)
    regions = both(records=250)
    odd = Acknowledgement(None, list(range(1, last(regions, "b"), 2)))
    regions["b"].log.subscriptions.acknowledge(TOPIC, 0, SUB, odd)
    assert len(regions.cursor("b").acknowledged) > limits.TRANSACTION_ITEMS_MAX * 2
    found = regions.subscription("b")
    assert found is not None
    assert found.heard is None


def test_they_expire_also_once_no_other_region_is_left() -> None:
    regions = both()
    regions["b"].log.topics.alter(TOPIC, regions=["b"])
    thorough(regions, "b")
    assert regions.subscription("b") is not None
    regions.world.runtime.advance(limits.HEARD_MS + DAY_MS)
    thorough(regions, "b")
    assert regions.subscription("b") is None


def test_subscriptions_of_an_older_version_do_not_expire() -> None:
    regions = both()
    known = regions.subscription("b")
    assert known is not None
    assert known.heard is not None
    regions["b"].service.items.write([change_of(known, replace(known, heard=None))])
    regions.world.runtime.advance(limits.HEARD_MS + DAY_MS)
    thorough(regions, "b")
    assert regions.subscription("b") is not None


def test_the_number_of_an_advice_never_leaves_the_numbers_that_the_others_read() -> None:
    regions = both()
    most = limits.INT64_MAX
    for _ in range(2):
        say(
            regions, "a", Update(SUB, active_region="a", active_n=most), Update("new", active_region="a", active_n=most)
        )
        regions.pull("b", "a")
        regions.tick("b")
        for name in (SUB, "new"):
            found = regions.subscription("b", name)
            assert found is not None
            assert (found.active_region, found.active_n) == ("a", limits.ACTIVE_N_STEP_MAX)
    for advice in ("b", None, "b"):
        regions["b"].log.subscriptions.subscribe(TOPIC, SUB, active_region=[advice])
        found = regions.subscription("b")
        assert found is not None
        assert found.active_region == advice
    assert found is not None
    known = replace(found, active_n=most)
    regions["b"].service.items.write([change_of(found, known)])
    regions["b"].log.subscriptions.subscribe(TOPIC, SUB, active_region=["a"])
    found = regions.subscription("b")
    assert found is not None
    assert (found.active_region, found.active_n) == ("a", most)
    regions.tick("b")
    assert regions.updates("b")[-1].updates[-1].active_n == most


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
