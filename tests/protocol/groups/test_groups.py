"""Leaving, listing and deleting groups, and what the sweeper does of them (protocol, "Groups")."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.errors import (
    GroupIdNotFoundError,
    InvalidRequestError,
    NonEmptyGroupError,
    OutcomeUnknownError,
    UnknownMemberIdError,
    UnknownSubscriptionError,
)
from fenceline.format import keys
from fenceline.model.subscription import CommittedOffset
from fenceline.ports import Delete, Put
from fenceline.recovery.group_findings import group_findings
from tests.support.grouping import GROUP, beat, group_item, held, items, join, member_item, settle
from tests.support.service import TOPIC, Fault, Service, append, loses_answer, never_arrives, slept_before
from tests.support.sweeping import swept

DAY = 24 * 3_600_000


@pytest.fixture
def service(service: Service) -> Service:
    """Return the service; its topic has four partitions."""
    service.log.topics.alter(TOPIC, partitions=4)
    return service


def committed(service: Service, group: str = GROUP) -> list[tuple[str, int, int]]:
    found, _ = service.log.subscriptions.committed(group)
    return [(one.topic, one.partition, one.offset) for one in found]


# Leaving


def test_a_member_that_leaves_is_gone_at_once_and_leaving_twice_is_no_error(service: Service) -> None:
    a, b = settle(service, join(service.log, "a"), join(service.log, "b"))
    epoch = group_item(service).epoch
    for _ in range(2):
        service.log.groups.leave(GROUP, "b")
    service.log.groups.leave(GROUP, "never")
    service.log.groups.leave("no-such-group", "a")
    assert group_item(service).epoch > max(epoch, b.member_epoch)
    assert items(service).keys() == {"a"}
    service.runtime.advance(limits.ASSIGNMENT_MS)
    (a,) = settle(service, a)
    assert held(a) == [0, 1, 2, 3]


def test_a_late_join_of_the_same_id_never_comes_to_an_epoch_of_the_life_before(service: Service) -> None:
    """Else a late commit of that life would be accepted (G2)."""
    a = join(service.log, "a")
    for _ in range(5):
        a = join(service.log, "a")
    assert a.member_epoch == 6
    assert group_item(service).epoch < a.member_epoch
    service.log.groups.leave(GROUP, "a")
    again = join(service.log, "a")
    assert again.member_epoch > a.member_epoch
    assert all(one.since > a.member_epoch for one in again.partitions[0].partitions)


def test_coming_back_needs_an_instance_id(service: Service) -> None:
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a", is_coming_back=True)
    assert not items(service)


# Listing


def test_groups_are_listed_in_byte_order_in_pages_with_their_states(service: Service) -> None:
    for name in ("b", "a", "Z", "a-1"):
        join(service.log, "m", group=name)
    service.log.groups.leave("a", "m")
    join(service.log, "n", group="b")
    listed, has_more = service.log.groups.list()
    assert [(one.group, one.state) for one in listed] == [
        ("Z", "Stable"),
        ("a", "Empty"),
        ("a-1", "Stable"),
        ("b", "Assigning"),
    ]
    assert not has_more
    page, has_more = service.log.groups.list(limit=2)
    assert ([one.group for one in page], has_more) == (["Z", "a"], True)
    page, has_more = service.log.groups.list(start_after="a", limit=2)
    assert ([one.group for one in page], has_more) == (["a-1", "b"], False)
    assert [one.group for one in service.log.groups.list(prefix="a")[0]] == ["a", "a-1"]
    assert [one.group for one in service.log.groups.list(state="Stable")[0]] == ["Z", "a-1"]
    service.runtime.advance(limits.ASSIGNMENT_MS)
    service.log.groups.leave("b", "n")
    join(service.log, "n", group="b")
    service.runtime.advance(limits.ASSIGNMENT_MS)
    join(service.log, "o", group="b")
    assert service.log.groups.list(prefix="b")[0][0].state == "Reconciling"
    with pytest.raises(InvalidRequestError):
        service.log.groups.list(state="Dead")


def test_a_group_shows_its_members_with_what_they_hold_and_should_hold(service: Service) -> None:
    join(service.log, "a", client_name="worker-1", client_host="10.0.0.1", instance_id="one")
    b = join(service.log, "b")
    service.runtime.advance(limits.ASSIGNMENT_MS)
    beat(service.log, b)
    beat(service.log, join(service.log, "a", instance_id="one"))
    page = service.log.groups.get(GROUP, limit=1)
    (a,) = page.members
    assert page.has_more
    assert (a.member_id, a.instance_id, a.client_name, a.client_host, a.is_away) == (
        "a",
        "one",
        "worker-1",
        "10.0.0.1",
        False,
    )
    assert [one.partition for one in a.partitions[0].partitions] == [0, 1, 2, 3]
    assert [(one.topic, one.partitions) for one in a.asked] == [(TOPIC, [2, 3])]
    assert [(one.topic, one.partitions) for one in a.target] == [(TOPIC, [0, 1])]
    page = service.log.groups.get(GROUP, start_after="a")
    assert [one.member_id for one in page.members] == ["b"]
    assert not page.has_more
    assert page.group.topics == [TOPIC]
    with pytest.raises(GroupIdNotFoundError):
        service.log.groups.get("no-such-group")


# Deletion


def test_a_group_is_deleted_with_its_offsets_on_every_topic_once_it_has_no_members(service: Service) -> None:
    service.log.topics.create("clicks", partitions=1)
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset("clicks", 0, 0), CommittedOffset(TOPIC, 0, 1)])
    a = join(service.log, "a")
    with pytest.raises(NonEmptyGroupError):
        service.log.groups.delete(GROUP)
    assert committed(service) == [("clicks", 0, 0), (TOPIC, 0, 1)]
    service.runtime.advance(45_000 + limits.MEMBER_GRACE_MS + 1)
    assert a.expires_at < service.runtime.now_ms()
    service.log.groups.delete(GROUP)
    assert committed(service) == []
    for topic in (TOPIC, "clicks"):
        with pytest.raises(UnknownSubscriptionError):
            service.log.subscriptions.get(topic, GROUP)
    assert not items(service)
    with pytest.raises(GroupIdNotFoundError):
        service.log.groups.delete(GROUP)
    again = join(service.log, "a")
    assert again.member_epoch > a.member_epoch
    assert all(one.token > 1 for one in again.partitions[0].partitions), "tokens of a group that comes again go on"


@pytest.mark.parametrize("at", range(4))
@pytest.mark.parametrize("fate", [loses_answer, never_arrives])
def test_a_deletion_whose_write_is_not_answered_is_done_or_begun(service: Service, at: int, fate: Fault) -> None:
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    service.items.plan("write", *[lambda call: call()] * at, fate)
    service.log.groups.delete(GROUP)
    assert committed(service) == []
    with pytest.raises(GroupIdNotFoundError):
        service.log.groups.delete(GROUP)


def test_a_member_that_joins_while_a_deletion_is_under_way_finishes_it_first(service: Service) -> None:
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    dead = service.another()
    service.items.plan("write", lambda call: call())
    service.items.plan("write", *[never_arrives] * 40)
    with pytest.raises(OutcomeUnknownError):
        dead.groups.delete(GROUP)
    service.items._planned.clear()
    assert group_item(service).is_going
    with pytest.raises(GroupIdNotFoundError):
        service.log.groups.get(GROUP)
    assert service.log.groups.list() == ([], False)
    b = join(service.log, "b", is_latest=False)
    assert b.member_epoch == group_item(service).epoch == 3, "epochs go on, and so do tokens"
    assert committed(service) == []
    assert service.log.subscriptions.get(TOPIC, GROUP).cursors[0].mark_delete_offset == 0


def test_a_join_before_the_mark_saves_the_group(service: Service) -> None:
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 1)])
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    other = service.another()
    service.items.plan("write", slept_before(lambda: join(other, "b")))
    with pytest.raises(NonEmptyGroupError):
        service.log.groups.delete(GROUP)
    assert committed(service) == [(TOPIC, 0, 1)]


# The sweeper


def test_the_sweeper_removes_members_where_nobody_is_left_to_do_it(service: Service) -> None:
    join(service.log, "a")
    swept(service, is_thorough=True)
    assert items(service).keys() == {"a"}
    service.runtime.advance(46_001)
    swept(service, is_thorough=True)
    assert not items(service)
    assert service.log.groups.get(GROUP).group.state == "Empty"


def test_a_group_without_members_and_offsets_is_deleted_after_seven_days(service: Service) -> None:
    append(service.log, "1")
    for name in ("kept", "unused"):
        join(service.log, "a", group=name)
        service.log.groups.leave(name, "a")
    service.log.subscriptions.unsubscribe(TOPIC, "unused")
    service.runtime.advance(7 * DAY - 1)
    swept(service, is_thorough=True)
    assert [one.group for one in service.log.groups.list()[0]] == ["kept", "unused"]
    service.runtime.advance(1)
    swept(service, is_thorough=True)
    assert [one.group for one in service.log.groups.list()[0]] == ["kept"]


def test_the_sweeper_finishes_a_deletion(service: Service) -> None:
    join(service.log, "a")
    service.log.groups.leave(GROUP, "a")
    service.items.store.write([replace(group_item(service), is_going=True).put(service.runtime)])
    swept(service, is_thorough=True)
    assert group_item(service).is_gone
    with pytest.raises(GroupIdNotFoundError):
        service.log.groups.get(GROUP)
    service.runtime.advance(7 * DAY)
    swept(service, is_thorough=True)
    assert keys.group_item(GROUP) not in service.items.store.get([keys.group_item(GROUP)])
    with pytest.raises(UnknownSubscriptionError):
        service.log.subscriptions.get(TOPIC, GROUP)


def test_a_member_that_waited_in_vain_is_deleted_an_hour_after_its_lease(service: Service) -> None:
    join(service.log, "a")
    found = member_item(service, "a")
    assert found is not None
    waits = replace(found, member_id="w", holds={}, waiting={"subscriber": [], "assignor": None}, version=None)
    service.items.store.write([waits.put(service.runtime)])
    service.runtime.advance(45_000 + limits.MEMBER_LEFT_MS - 1)
    swept(service, is_thorough=True)
    assert items(service).keys() == {"w"}
    service.runtime.advance(limits.SWEEP_THOROUGH_MS)
    swept(service, is_thorough=True)
    assert not items(service)


# Lost items


def test_an_item_of_no_group_is_found_and_holds_nothing_for_good(service: Service) -> None:
    join(service.log, "a")
    assert group_findings(service.log.context) == {}
    lost = group_item(service)
    service.items.store.write([Delete(lost.key, lost.version or 0)])
    found = group_findings(service.log.context)
    topic_id = service.log.topics.get(TOPIC).topic_id
    assert found.keys() == {(topic_id, partition) for partition in range(4)}
    assert all("group=billing member_id=a" in line for (line,) in found.values())
    b = join(service.log, "b")
    assert held(b) == []
    for _ in range(2):
        service.runtime.advance(23_001)
        b = beat(service.log, b)
    assert held(b) == [0, 1, 2, 3]
    assert items(service).keys() == {"b"}
    assert group_findings(service.log.context) == {}


def test_a_member_whose_item_was_lost_is_removed(service: Service) -> None:
    a, b = settle(service, join(service.log, "a"), join(service.log, "b"))
    found = member_item(service, "a")
    assert found is not None
    service.items.store.write([Delete(found.key, found.version or 0)])
    service.runtime.advance(limits.ASSIGNMENT_MS)
    (b,) = settle(service, b)
    assert held(b) == [0, 1, 2, 3]
    a = join(service.log, "a")
    assert a.member_epoch > 3
    assert isinstance(found.put(service.runtime), Put)


def test_a_commit_without_a_member_loses_to_a_member_that_renews_its_lease_meanwhile(service: Service) -> None:
    """The members looked dead, and the one that would remove them finds a live one."""
    a = join(service.log, "a")
    service.runtime.advance(46_001)
    other = service.another()
    service.items.plan("query", lambda call: call(), slept_before(lambda: beat(other, a)))
    with pytest.raises(UnknownMemberIdError):
        service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 0)])
    assert items(service).keys() == {"a"}
