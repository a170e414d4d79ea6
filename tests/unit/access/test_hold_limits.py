"""What a session may forget of its write access; nothing of what it forgot ever enters the log.

Protocol, "The list of what is to be fenced".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.access import session_item
from fenceline.access.rules import AccessItem, Holder
from fenceline.access.session_item import CLOSED, ENDED, LIVE, RESERVED, WriteHold
from fenceline.errors import ThrottledError
from fenceline.format import keys
from tests.support.claiming import (
    EXCLUSIVE,
    FENCING,
    LAPSE_MS,
    SHARED,
    again,
    claim,
    code_of,
    refused,
    send,
    send_as,
    session_of,
    texts,
)
from tests.support.owning import died, ok_or_code, own, sent
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, Service
from tests.support.sweeping import Died

NOBODYS = session_item.created("0" * 31 + "1", principal="", lease_ms=30_000, now_ms=START_MS)
ME = NOBODYS.session_id
HOLD = WriteHold(TOPIC, "t", 0, 3, EXCLUSIVE, "p")


@pytest.mark.parametrize(
    ("why", "hold", "item", "is_over"),
    [
        ("it is granted", HOLD, AccessItem(3, Holder(ME, 3, "p"), version=1), False),
        ("it was closed", replace(HOLD, state=CLOSED), AccessItem(3, Holder(ME, 3, "p"), version=1), False),
        ("its end was written", replace(HOLD, state=ENDED), AccessItem(3, Holder(ME, 3, "p"), version=1), False),
        ("another has reserved it", HOLD, AccessItem(4, Holder(ME, 3, "p"), Holder("s", 4, "q"), version=1), False),
        ("it came after a grant", HOLD, AccessItem(3, Holder("s", 2, "q"), version=1), False),
        ("it is shared", replace(HOLD, mode=SHARED), AccessItem(3, shared=(Holder(ME, 3, "p"),), version=1), False),
        ("the sharer was pruned", replace(HOLD, mode=SHARED), AccessItem(3, version=1), False),
        ("another was granted it", HOLD, AccessItem(4, Holder("s", 4, "q"), version=1), True),
        ("it was granted it anew itself", HOLD, AccessItem(4, Holder(ME, 4, "p"), version=1), True),
        ("its topic's incarnation is collected", HOLD, AccessItem(), True),
        ("nothing is known of it", HOLD, None, False),
        (
            "it has reserved it",
            replace(HOLD, state=RESERVED),
            AccessItem(3, None, Holder(ME, 3, "p"), version=1),
            False,
        ),
        ("its reservation is gone", replace(HOLD, state=RESERVED), AccessItem(3, version=1), True),
        ("it is another's", replace(HOLD, state=RESERVED), AccessItem(4, None, Holder("s", 4, "p"), version=1), True),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_a_hold_is_over_once_nothing_can_be_written_under_it(
    why: str, hold: WriteHold, item: AccessItem | None, is_over: bool
) -> None:
    assert session_item.is_over(ME, hold, item) is is_over


def test_a_new_hold_is_kept_despite_older_items(monkeypatch: pytest.MonkeyPatch) -> None:
    """The items were read before the new hold was reserved."""
    monkeypatch.setattr(limits, "HOLDS_MAX", 1)
    before = replace(NOBODYS, holds=(HOLD,))
    after = session_item.with_hold(before, replace(HOLD, partition=1, epoch=0, state=RESERVED))
    over = AccessItem(4, Holder("s", 4, "q"), version=1)
    assert session_item.bounded(before, after, {("t", 0): over}).holds == after.holds[1:]


def test_more_partitions_than_one_session_writes_to_and_more_than_it_remembers_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limits, "HOLDS_MAX", 2)
    monkeypatch.setattr(limits, "HOLDS_KEPT_MAX", 3)
    items = {("t", p): AccessItem(3, Holder(ME, 3, "p"), version=1) for p in range(4)}

    def bounded(*states: str) -> int:
        held = tuple(replace(HOLD, partition=p, state=state) for p, state in enumerate(states))
        before = replace(NOBODYS, holds=held[:-1])
        return len(session_item.bounded(before, replace(before, holds=held), items).holds)

    assert bounded(LIVE, RESERVED) == 2
    assert bounded(CLOSED, LIVE, RESERVED) == bounded(ENDED, LIVE, LIVE) == 3
    for states, why in (
        ((LIVE, LIVE, RESERVED), "writes to at most 2"),
        ((CLOSED, ENDED, CLOSED, LIVE), "remembers at most 3 partitions"),
    ):
        with pytest.raises(ThrottledError, match=why):
            bounded(*states)


def test_a_claim_forgets_nothing_that_a_severed_session_must_be_fenced_for(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Promise 3: the session's end on partition 0 was written, but the process that wrote it died before its marker."""
    monkeypatch.setattr(limits, "HOLDS_MAX", 2)
    log, warm = wide.log, wide.another()
    severed = claim(log, partitions=[0, 1])
    send(warm, severed, "before", 0)
    wide.runtime.advance(LAPSE_MS)
    wide.objects.plan("create", died)
    with pytest.raises(Died):
        claim(wide.another(), partitions=[0])
    send(warm, severed, "back", 1)
    claim(log, partitions=[2], session_id=severed.session_id)
    assert [(h.partition, h.state) for h in session_of(wide, severed.session_id).holds] == [
        (0, ENDED),
        (1, LIVE),
        (2, LIVE),
    ]
    own(log, severed.session_id, "lock")
    own(log, log.access.create_session().session_id, ("lock", 5))
    assert code_of(lambda: send(warm, severed, "late", 0)) == "SESSION_SEVERED"
    assert texts(wide.values()) == ["before"]


def test_holds_lost_to_others_and_closed_holds_make_room(wide: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDS_MAX", 2)
    monkeypatch.setattr(limits, "HOLDS_KEPT_MAX", 3)
    log = wide.log
    session_id = log.access.create_session(lease_ms=300_000).session_id

    def take(partition: int) -> str:
        return claim(log, partitions=[partition], session_id=session_id, producer_name=f"p{partition}").state

    def close(partition: int) -> None:
        log.access.close_producer(TOPIC, f"p{partition}", session_id)

    assert [take(0), take(1)] == ["granted"] * 2
    refusal = refused(lambda: take(2))
    assert (refusal.code, "writes to at most 2" in refusal.detail) == ("THROTTLED", True)
    close(0)
    assert take(2) == "granted"
    close(1)
    refusal = refused(lambda: take(3))
    assert (refusal.code, "use another session" in refusal.detail) == ("THROTTLED", True)
    # After its marker nothing of the first producer's can land.
    claim(log, FENCING, partitions=[1])
    assert take(3) == "granted"
    assert [h.partition for h in session_of(wide, session_id).holds] == [0, 2, 3]


def test_a_reconnection_has_the_limit_of_a_claim(wide: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "HOLDS_MAX", 2)
    log = wide.log
    session_id = log.access.create_session(lease_ms=300_000).session_id
    closed = []
    for name, partitions in (("a", (0, 1)), ("b", (2, 3))):
        closed.append(claim(log, partitions=partitions, session_id=session_id, producer_name=name))
        log.access.close_producer(TOPIC, name, session_id)
    assert again(log, closed[0], partitions=(0, 1), producer_name="a").topic_epochs == {0: 0, 1: 0}
    refusal = refused(lambda: again(log, closed[1], partitions=(2, 3), producer_name="b"))
    assert (refusal.code, "writes to at most 2" in refusal.detail) == ("THROTTLED", True)
    log.access.close_producer(TOPIC, "a", session_id)
    assert again(log, closed[1], partitions=(2, 3), producer_name="b").topic_epochs == {2: 0, 3: 0}


def test_partitions_are_read_after_the_session_that_holds_them(wide: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise what its other claim reserves between the two reads looks as if it were given up, and is forgotten."""
    monkeypatch.setattr(limits, "HOLDS_MAX", 3)
    log, other = wide.log, wide.another()
    session_id = log.access.create_session(lease_ms=300_000).session_id
    claim(log, partitions=[0, 1], session_id=session_id, producer_name="a")
    key = keys.access_item(wide.topic_id(), 0)
    before = wide.items.store.get([key])
    fencer = claim(log, FENCING, partitions=[1])
    log.access.close_producer(TOPIC, fencer.producer_name, fencer.session_id)

    def stale(call: Callable[[], Any]) -> Any:
        wide.items.always("get", None)
        return {**call(), **before}

    def claim_beside(operation: str, _: str) -> None:
        if operation == "create":
            wide.objects.on_call = None
            wide.items.always("get", stale, f"{TOPIC},next,access")
            claim(other, partitions=[0, 1], session_id=session_id, producer_name="a")

    wide.objects.on_call = claim_beside
    claim(log, FENCING, partitions=[0], session_id=session_id, producer_name="b")
    held = {(h.partition, h.epoch, h.producer_name) for h in session_of(wide, session_id).holds}
    assert {(0, 1, "b"), (1, 2, "a")} <= held
    own(log, session_id, "lock")
    own(log, log.access.create_session().session_id, ("lock", 5))
    assert code_of(lambda: send_as(other, session_id, 1, "late", 0)) == "SESSION_SEVERED"


def test_an_owner_that_takes_and_releases_remembers_a_bounded_number_and_is_fenced_for_all_of_it(
    wide: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "HOLDS_MAX", 2)
    monkeypatch.setattr(limits, "HOLDS_KEPT_MAX", 4)
    log, warm = wide.log, wide.another()
    a, b = (
        log.access.create_session(lease_ms=300_000).session_id,
        log.access.create_session(lease_ms=300_000).session_id,
    )
    own(log, a, "lock")
    taken: dict[int, str] = {}
    for partition in range(8):
        name = f"{TOPIC}/{partition}"
        taken[partition] = ok_or_code(lambda name=name: own(log, a, name))  # type: ignore[misc]
        if taken[partition] == "ok":
            send_as(warm, a, 0, "owned", partition)
            log.access.release(a, [name])
    assert taken == {**dict.fromkeys(range(4), "ok"), **dict.fromkeys(range(4, 8), "THROTTLED")}
    own(log, b, f"{TOPIC}/0")
    assert ok_or_code(lambda: own(log, a, f"{TOPIC}/4")) == "ok"
    assert [hold.partition for hold in session_of(wide, a).holds] == [1, 2, 3, 4]
    own(log, b, ("lock", 5))
    assert [sent(warm, a, 0, "late", partition) for partition in range(5)] == ["SESSION_SEVERED"] * 5
    assert [texts(wide.values(partition=p)) for p in range(5)] == [["owned"]] * 4 + [[]]
