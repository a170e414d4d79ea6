"""Classic groups over a store: joins of several processes, answers that are lost, and chunks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.groups.classic import Join, Joined
from fenceline.groups.classic_service import ClassicGroups, MemberIdRequired
from fenceline.runtime import ThreadRuntime
from tests.support import members
from tests.support.patience import PATIENCE_S
from tests.support.service import Service, loses_answer, moves, never_arrives

GROUP = "g"


@pytest.fixture(autouse=True)
def long_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let four joins come into one generation on a slow machine, too."""
    monkeypatch.setattr(limits, "INITIAL_REBALANCE_DELAY_MS", 2_000)


def process(service: Service) -> ClassicGroups:
    """Return a process of its own, on the machine's clocks, because its waits end by time."""
    log = service.another(runtime=ThreadRuntime())
    return ClassicGroups(log.context, log.subscriptions.live)


def asks(member_id: str, metadata: bytes = b"m", **fields: Any) -> Join:
    made = Join(member_id, None, "client", None, "consumer", [("range", metadata)], 45_000, 60_000)
    return made._replace(**fields)


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Make calls side by side, and return what each returned."""
    found: list[Any] = [None] * len(calls)

    def run(at: int) -> None:
        found[at] = calls[at]()

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(calls))]
    for one in threads:
        one.start()
    for one in threads:
        one.join(PATIENCE_S)
        assert not one.is_alive()
    return found


def rounds(service: Service, metadata: bytes = b"m") -> tuple[list[Joined], list[bytes]]:
    """Let four members join and sync in two processes, and return their answers."""
    two = [process(service), process(service)]
    names = ["a", "b", "c", "d"]
    joins = [lambda at=at, name=name: two[at % 2].join(GROUP, asks(name, metadata)) for at, name in enumerate(names)]
    joined = together(*joins)
    given = {name: name.encode() * 3 for name in names}
    syncs = [
        lambda at=at, one=one: two[at % 2].sync(
            GROUP, one.member_id, None, one.generation, given if one.leader == one.member_id else {}
        )
        for at, one in enumerate(joined)
    ]
    return joined, together(*syncs)


def test_members_of_two_processes_come_into_generations_with_one_leader(service: Service) -> None:
    joined, given = rounds(service)
    assert {one.generation for one in joined} == {1}
    assert len({one.leader for one in joined}) == 1
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, moves])
def test_a_write_that_is_lost_or_not_answered_is_decided_again(service: Service, fault: Any) -> None:
    service.items.plan("write", fault)
    joined, given = rounds(service)
    assert {one.generation for one in joined} == {1}
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]


def test_large_metadata_is_in_chunks_and_chunks_that_were_replaced_are_deleted(service: Service) -> None:
    joined, given = rounds(service, b"m" * 200_000)
    leader = next(one for one in joined if one.member_id == one.leader)
    assert set(leader.members.values()) == {b"m" * 200_000}
    assert given == [b"aaa", b"bbb", b"ccc", b"ddd"]
    item = members.stored_group(service, GROUP)
    assert item is not None
    assert item.classic is not None
    name, count = item.classic["chunks"]
    left = service.items.store.query(keys.member_items(GROUP), prefix="chunks/")
    assert [one.key for one in left] == [keys.group_chunk(GROUP, name, number) for number in range(count)]
    assert count == 4


def test_a_join_without_an_id_gets_one_and_stores_nothing(service: Service) -> None:
    assert isinstance(process(service).join(GROUP, asks("")), MemberIdRequired)
    assert members.stored_group(service, GROUP) is None
