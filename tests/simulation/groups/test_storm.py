"""What joins, an idle group and a join into a settled group cost, counted (protocol, "Groups")."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from fenceline import limits
from fenceline.model.requests import MemberRef
from fenceline.model.subscription import CommittedOffset
from tests.simulation.groups.storm import storm
from tests.support.grouping import GROUP, beat, group_item, join, settle
from tests.support.service import TOPIC, Service, append


@pytest.mark.parametrize("seed", [1, 2])
def test_a_hundred_members_that_join_at_once_are_settled_in_five_seconds_by_five_writes_each(seed: int) -> None:
    found = storm(100, 200, processes=4, seed=seed)
    assert len(found.known) == 100
    assert found.settled_ms <= 5_000
    assert 100 <= found.writes <= 500, (found.writes, found.lost)
    assert found.lost < found.writes


@pytest.mark.parametrize("processes", [1, 3])
def test_joins_that_one_process_serves_lose_few_writes_and_share_their_reads(processes: int) -> None:
    found = storm(100, 200, processes=processes)
    assert len(found.known) == 100
    assert 200 <= found.writes <= 300  # each joins, and takes what it is given
    assert found.lost <= 10 * processes
    assert 100 <= found.calls["get"] + found.calls["query"] <= 700


@pytest.mark.parametrize("partitions", [25, 60])
def test_a_join_into_a_settled_group_of_ten_moves_little(partitions: int) -> None:
    found = storm(1, partitions, settled=10)
    assert len(found.known) == 11
    assert 1 <= found.moves <= -(-partitions // 11) + 1


def test_an_idle_group_costs_a_write_of_each_member_in_a_third_of_the_session_time_out(service: Service) -> None:
    service.log.topics.alter(TOPIC, partitions=8)
    now = settle(service, *[join(service.log, f"m{number}") for number in range(5)])
    third_ms = limits.SESSION_TIMEOUT_MS_DEFAULT // 3
    service.runtime.advance(third_ms + 1)
    now = [beat(service.log, one) for one in now]
    version, before = group_item(service).version, service.count()
    for _ in range(6):  # two thirds: each lease is renewed once in each
        service.runtime.advance(5_001)
        now = [beat(service.log, one) for one in now]
    spent = service.count() - before
    assert spent["items.write"] == 2 * 5
    assert group_item(service).version == version
    assert not [name for name in spent if name.startswith("objects.")]


def test_an_idle_heartbeat_is_two_reads(service: Service) -> None:
    now = settle(service, join(service.log, "a"), join(service.log, "b"))
    service.runtime.advance(5_000)
    before = service.count()
    beat(service.log, now[0])
    assert service.count() - before == {"items.get": 2}


def _spent(service: Service, act: Callable[[], object]) -> Counter[str]:
    before = service.count()
    act()
    return service.count() - before


def test_a_commit_as_a_member_reads_the_members_item_in_place_of_the_groups(service: Service) -> None:
    append(service.log, "1", "2")
    service.log.subscriptions.commit(GROUP, [CommittedOffset(TOPIC, 0, 0)])  # the subscription is known from here on
    offsets = [CommittedOffset(TOPIC, 0, 1)]
    plain = _spent(service, lambda: service.log.subscriptions.commit(GROUP, offsets))
    a = join(service.log, "a", is_latest=False)
    member = MemberRef("a", a.member_epoch)
    offsets = [CommittedOffset(TOPIC, 0, 2)]
    named = _spent(service, lambda: service.log.subscriptions.commit(GROUP, offsets, member=member))
    assert named["items.write"] == plain["items.write"] == 1
    assert named["items.get"] <= plain["items.get"]
    assert named.keys() <= plain.keys()
