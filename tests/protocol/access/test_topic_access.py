"""The access to a topic's partitions in one look: holders, waiters, owners (contract, "Access and its history")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fenceline import limits
from fenceline.model.access import AccessState
from fenceline.model.requests import OwnTarget
from fenceline.service.log import Log
from tests.support.claiming import EXCLUSIVE, FENCING, LAPSE_MS, SHARED, WAIT, claim
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, Service, append, partition_of


def access(log: Log, **options: Any) -> Sequence[AccessState]:
    return log.access.topic_access(TOPIC, **options).partitions


def only(log: Log, **options: Any) -> AccessState:
    (found,) = access(log, **options)
    return found


def own(log: Log, session_id: str, *resources: str, group: str | None = None, generation: int | None = None) -> None:
    log.access.own(session_id, [OwnTarget(one, generation) for one in resources], group=group)


def session(log: Log, client_name: str | None = None, **options: Any) -> str:
    return log.access.create_session(client_name=client_name, **options).session_id


def test_a_partition_that_was_never_claimed_is_anyones(service: Service) -> None:
    expected = AccessState(0, -1, "Shared", None, 0, None, [])
    assert only(service.log) == expected
    append(service.log, "1")
    claim(service.log, SHARED)
    assert only(service.another()) == expected


def test_the_holder_is_shown_with_its_lease_and_since_when(service: Service) -> None:
    held = claim(service.log, EXCLUSIVE, producer_name="loader", client_name="web-1:9")
    service.runtime.advance(1_000)
    found = only(service.another())
    assert (found.topic_epoch, found.access_mode, found.owner) == (0, "Exclusive", None)
    assert found.holder is not None
    assert found.holder.session_id == held.session_id
    assert (found.holder.producer_name, found.holder.client_name) == ("loader", "web-1:9")
    assert (found.holder.since, found.holder.expires_at) == (START_MS, START_MS + 30_000)


def test_a_holder_that_lapsed_closed_or_was_fenced_is_none(service: Service) -> None:
    """The partition stays exclusive meanwhile, and has no holder."""
    held = claim(service.log, EXCLUSIVE)
    service.log.access.close_producer(TOPIC, held.producer_name, held.session_id)
    assert (only(service.log).access_mode, only(service.log).holder) == ("Exclusive", None)
    claim(service.log, FENCING, producer_name="a")
    claim(service.log, FENCING, producer_name="b")
    holder = only(service.log).holder
    assert holder is not None
    assert holder.producer_name == "b"
    service.runtime.advance(LAPSE_MS)
    assert only(service.log).holder is None
    append(service.log, "1")
    assert (only(service.log).access_mode, only(service.log).holder) == ("Shared", None)


def test_those_that_wait_are_counted_while_they_live(service: Service) -> None:
    """A waiter counts on each partition for which it waits, and as long as it is in line for all of them."""
    service.log.topics.alter(TOPIC, partitions=2)
    claim(service.log, EXCLUSIVE, partitions=[0], lease_ms=300_000)
    for name, partitions in (("a", [0]), ("b", [0, 1]), ("c", [0])):
        claim(service.log, WAIT, producer_name=name, partitions=partitions)
    assert [one.waiting for one in access(service.another())] == [3, 1]
    assert [one.waiting for one in access(service.another(), limit=1)] == [3]
    waiting = service.log.access.producers(TOPIC).waiting
    service.log.access.close_producer(TOPIC, "a", waiting[0].session_id)
    assert [one.waiting for one in access(service.another())] == [2, 1]
    claim(service.log, FENCING, partitions=[1], lease_ms=300_000)  # fails b, which is in the line of 0, too
    assert [one.waiting for one in access(service.another())] == [1, 0]
    assert [one.waiting for one in access(service.another(), limit=1)] == [1]
    service.runtime.advance(LAPSE_MS)
    assert [one.waiting for one in access(service.another())] == [0, 0]


def test_owners_are_shown_for_writing_and_for_each_group(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=2)
    writer, reader, idle = (session(service.log, name) for name in ("w:1", "r:1", "i:1"))
    own(service.log, writer, "orders/0", generation=7)
    own(service.log, reader, "orders/0", "orders/1", group="billing", generation=9)
    own(service.log, reader, "orders/0", group="audit")
    own(service.log, idle, "orders/1", group="gone")
    service.log.access.release(idle, ["orders/1"], group="gone")
    own(service.log, idle, "orders/2", "a lock", group="billing")  # guard nothing
    first, second = access(service.another())
    assert first.owner is not None
    assert (first.owner.session_id, first.owner.client_name, first.owner.generation) == (writer, "w:1", 7)
    assert (first.owner.since, first.owner.until) == (START_MS, START_MS + 30_000)
    assert first.holder is not None
    assert (first.holder.producer_name, first.holder.session_id, first.holder.since) == (None, writer, START_MS)
    groups = [(one.group, one.owner.session_id, one.owner.generation) for one in first.group_owners]
    assert groups == [("audit", reader, 1), ("billing", reader, 9)]
    assert (second.holder, second.owner) == (None, None)
    assert [(one.group, one.owner.client_name) for one in second.group_owners] == [("billing", "r:1")]
    service.log.access.close_session(reader)
    assert [one.group_owners for one in access(service.another())] == [[], []]
    own(service.log, session(service.log), "orders/0", generation=8)  # severs the writer
    shown = only(service.another(), limit=1).owner
    assert shown is not None
    assert (shown.client_name, shown.generation) == (None, 8)


def test_a_producer_that_takes_a_partition_from_its_owner_leaves_it_without_one(service: Service) -> None:
    own(service.log, session(service.log), "orders/0")
    claim(service.log, FENCING, producer_name="p")
    found = only(service.another())
    assert found.owner is None
    assert found.holder is not None
    assert found.holder.producer_name == "p"


def test_another_principal_is_shown_the_beginning_of_ids(service: Service) -> None:
    held = claim(service.log, EXCLUSIVE, principal="ann")
    reader = session(service.log, principal="ann")
    service.log.access.own(reader, [OwnTarget("orders/0")], group="g", principal="ann")
    for principal, shown in (("ann", slice(None)), ("bob", slice(8))):
        found = only(service.log, principal=principal)
        assert found.holder is not None
        assert found.holder.session_id == held.session_id[shown]
        assert found.group_owners[0].owner.session_id == reader[shown]


def test_a_topic_is_shown_in_parts(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=5)
    page = service.log.access.topic_access(TOPIC, start_partition=1, limit=3)
    assert ([one.partition for one in page.partitions], page.has_more) == ([1, 2, 3], True)
    page = service.log.access.topic_access(TOPIC, start_partition=3)
    assert ([one.partition for one in page.partitions], page.has_more) == ([3, 4], False)
    assert service.log.access.topic_access(TOPIC, start_partition=5) == ([], False)
    assert service.log.access.topic_access(TOPIC, start_partition=limits.INT64_MAX) == ([], False)


def test_a_look_writes_nothing_and_costs_one_query_and_one_read_a_partition(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=20)
    for number in range(20):
        claim(service.log, EXCLUSIVE, partitions=[number], producer_name=f"p{number}")
    log = service.another()
    access(log)
    before = service.count()
    assert all(one.holder is not None for one in access(log))
    spent = service.count() - before
    # The items: the topic, the heads and the topic again, the access, what they name. The keys after the logs' ends.
    assert spent == {"items.get": 4, "items.query": 20, "objects.get": 20}
    assert partition_of(log).topic_id == service.topic_id()


def test_a_look_reads_nothing_of_those_that_share_access(service: Service) -> None:
    """They are not shown, and a partition may have a hundred of them."""
    for number in range(60):
        claim(service.log, SHARED, producer_name=f"p{number}")
    log = service.another()
    access(log)
    before = service.count()
    assert only(log) == AccessState(0, -1, "Shared", None, 0, None, [])
    assert service.count() - before == {"items.get": 3, "items.query": 1, "objects.get": 1}
