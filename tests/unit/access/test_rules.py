"""The table of access modes, cell by cell; the line; reconnections; what each change leaves.

All of it is pure. Protocol, "Exclusive access (PIP-68)".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.access import rules
from fenceline.access.rules import (
    AccessItem,
    Claimant,
    Column,
    Holder,
    Liveness,
    PartitionAccess,
    Reconnection,
    Verdict,
    Waiter,
    column_of,
    reconnection_of,
    verdict_of,
)
from fenceline.log.state import PartitionState
from fenceline.model.kinds import ACCESS_MODES
from tests.support.claiming import EXCLUSIVE, FENCING, MODES, SHARED, WAIT

ME = Claimant("me", "mine")
FREE, HELD, SHARING, WAITERS = Column.FREE, Column.EXCLUSIVE, Column.SHARED, Column.WAITERS
GRANTED, QUEUED, TAKES = Verdict.GRANTED, Verdict.QUEUED, Verdict.TAKES_OVER
BUSY, FENCED = Verdict.BUSY, Verdict.FENCED


def lives(*alive: str, gone: Sequence[str] = (), is_in_line: bool = True) -> Liveness:
    return Liveness(lambda one: one in alive, lambda one: one in gone, lambda _: is_in_line)


def shared_log(epoch: int = 3) -> PartitionState:
    return PartitionState(next_offset=50, topic_epoch=epoch)


def exclusive_log(session_id: str = "s", epoch: int = 3) -> PartitionState:
    return PartitionState(
        next_offset=50, topic_epoch=epoch, access_mode="Exclusive", session_id=session_id, access_offset=40
    )


def view(state: PartitionState | None = None, **item: Any) -> PartitionAccess:
    return PartitionAccess(0, AccessItem(**{"epoch": 3, **item}), state or shared_log())


HOLDER = Holder("s", 3, "p")
HELD_VIEW = view(exclusive_log(), granted=HOLDER)
WAITER = Waiter(1, "w", "p2", (0,))


# The table


@pytest.mark.parametrize(
    ("mode", "column", "verdict"),
    [
        # Row "Shared" of the table
        (SHARED, FREE, GRANTED),
        (SHARED, HELD, BUSY),
        (SHARED, SHARING, GRANTED),
        (SHARED, WAITERS, BUSY),
        # Row "Exclusive"
        (EXCLUSIVE, FREE, GRANTED),
        (EXCLUSIVE, HELD, FENCED),
        (EXCLUSIVE, SHARING, FENCED),
        (EXCLUSIVE, WAITERS, FENCED),
        # Row "WaitForExclusive"
        (WAIT, FREE, GRANTED),
        (WAIT, HELD, QUEUED),
        (WAIT, SHARING, QUEUED),
        (WAIT, WAITERS, QUEUED),
        # Row "ExclusiveWithFencing"
        (FENCING, FREE, GRANTED),
        (FENCING, HELD, TAKES),
        (FENCING, SHARING, TAKES),
        (FENCING, WAITERS, TAKES),
    ],
)
def test_each_cell_of_the_table(mode: str, column: Column, verdict: Verdict) -> None:
    assert verdict_of(mode, [column]) is verdict


def test_the_table_has_no_other_cell() -> None:
    assert ACCESS_MODES == MODES
    assert set(rules.TABLE) == {(mode, column) for mode in MODES for column in Column}


@given(st.sampled_from(MODES), st.lists(st.sampled_from(list(Column)), min_size=1, max_size=32))
def test_a_claim_takes_all_its_partitions_or_none(mode: str, columns: list[Column]) -> None:
    """A claim is granted only where each partition by itself would be, and refused where any one would be."""
    alone = [verdict_of(mode, [column]) for column in columns]
    verdict = verdict_of(mode, columns)
    assert (verdict in (GRANTED, TAKES)) == all(one in (GRANTED, TAKES) for one in alone)
    assert (verdict in (BUSY, FENCED)) == any(one in (BUSY, FENCED) for one in alone)
    assert (verdict is TAKES) == (mode == FENCING and any(column is not FREE for column in columns))


# Columns


@pytest.mark.parametrize(
    ("why", "seen", "alive", "column"),
    [
        ("a new partition has no holder", PartitionAccess(0, AccessItem(), PartitionState()), "", FREE),
        ("its holder is live", HELD_VIEW, "s", HELD),
        ("its holder is dead", HELD_VIEW, "", FREE),
        ("its holder has closed", view(exclusive_log(), granted=replace(HOLDER, is_closed=True)), "s", FREE),
        ("its holder was ended", view(exclusive_log(), granted=replace(HOLDER, is_ended=True)), "s", FREE),
        ("it is shared again in the same epoch", view(shared_log(), granted=HOLDER), "s", FREE),
        ("a higher epoch is in the log", view(exclusive_log("t", 4), granted=HOLDER), "s", FREE),
        ("the log is behind the grant", view(shared_log(2), granted=HOLDER), "s", HELD),
        ("a claim is pending", view(claim=Holder("t", 4, "q")), "t", HELD),
        ("its claimer is dead", view(claim=Holder("t", 4, "q")), "s", FREE),
        (
            "its marker is in the log already",
            view(exclusive_log("t", 4), granted=HOLDER, claim=Holder("t", 4, "q")),
            "t",
            HELD,
        ),
        ("a claim was beaten", view(exclusive_log("u", 5), claim=Holder("t", 4, "q")), "t", FREE),
        ("the log names a non-holder", view(exclusive_log("u", 4), granted=HOLDER), "su", FREE),
        ("the claim is one's own", view(claim=Holder("me", 4, "mine")), "me", FREE),
        ("it is another producer's of the same session", view(claim=Holder("me", 4, "other")), "me", HELD),
        ("one holds it oneself", view(exclusive_log("me"), granted=Holder("me", 3, "other")), "me", HELD),
        ("it is shared", view(shared=(HOLDER,)), "s", SHARING),
        ("its sharer is dead", view(shared=(HOLDER,)), "", FREE),
        ("its sharer has closed", view(shared=(replace(HOLDER, is_closed=True),)), "s", FREE),
        ("it was shared in an earlier epoch", view(shared=(Holder("s", 2, "p"),)), "s", FREE),
        ("one shares it oneself", view(shared=(Holder("me", 3, "mine"),)), "me", FREE),
        ("another waits", view(waiting=(WAITER,)), "w", WAITERS),
        ("its waiter is dead", view(waiting=(WAITER,)), "", FREE),
        ("one waits oneself", view(waiting=(Waiter(1, "me", "mine", (0,)),)), "me", FREE),
        ("waiters are right of sharers", view(shared=(HOLDER,), waiting=(WAITER,)), "sw", WAITERS),
        ("waiters are right of holders", view(exclusive_log(), granted=HOLDER, waiting=(WAITER,)), "sw", WAITERS),
        ("sharers are right of holders", view(shared=(HOLDER,), claim=Holder("t", 4, "q")), "st", SHARING),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_the_column_is_the_one_farthest_to_the_right_that_applies(
    why: str, seen: PartitionAccess, alive: str, column: Column
) -> None:
    sessions = ["me"] if alive == "me" else list(alive)
    assert column_of(seen, ME, lives(*sessions)) is column


def test_a_waiter_is_stopped_only_by_those_before_it() -> None:
    seen = view(waiting=(WAITER, Waiter(2, "me", "mine", (0,)), Waiter(3, "x", "y", (0,))))
    assert column_of(seen, replace(ME, ticket=2), lives("w", "me", "x")) is WAITERS
    assert column_of(seen, replace(ME, ticket=2), lives("me", "x")) is FREE


def test_a_waiters_own_grant_does_not_block_it_from_the_rest() -> None:
    seen = view(exclusive_log("me"), granted=Holder("me", 3, "mine"), waiting=(Waiter(2, "me", "mine", (0, 1)),))
    assert column_of(seen, replace(ME, ticket=2), lives("me")) is FREE
    assert column_of(seen, ME, lives("me")) is HELD
    others = replace(seen, item=replace(seen.item, granted=Holder("me", 3, "other")))
    assert column_of(others, replace(ME, ticket=2), lives("me")) is HELD


def test_a_waiter_failed_by_a_fencer_elsewhere_blocks_no_claim() -> None:
    assert column_of(view(waiting=(WAITER,)), ME, lives("w", is_in_line=False)) is FREE


# Reconnection


@pytest.mark.parametrize(
    ("why", "seen", "epoch", "mode", "verdict"),
    [
        ("equal, and its own", HELD_VIEW, 3, EXCLUSIVE, "resumes"),
        (
            "also when it was closed",
            view(exclusive_log(), granted=replace(HOLDER, is_closed=True)),
            3,
            EXCLUSIVE,
            "resumes",
        ),
        ("also when another has reserved", view(exclusive_log(), granted=HOLDER, epoch=4), 3, EXCLUSIVE, "resumes"),
        ("its end was written", view(exclusive_log(), granted=replace(HOLDER, is_ended=True)), 3, EXCLUSIVE, "fenced"),
        ("it is shared again", view(shared_log(), granted=HOLDER), 3, EXCLUSIVE, "fenced"),
        ("lower", HELD_VIEW, 2, EXCLUSIVE, "fenced"),
        ("lower than the log's", view(exclusive_log("t", 4), granted=HOLDER), 3, EXCLUSIVE, "fenced"),
        ("lower than the grant's", view(shared_log(2), granted=HOLDER), 2, EXCLUSIVE, "fenced"),
        ("higher than ever granted", HELD_VIEW, 4, EXCLUSIVE, "fenced"),
        (
            "higher, as one that was only reserved",
            view(exclusive_log(), granted=HOLDER, epoch=4),
            4,
            EXCLUSIVE,
            "fenced",
        ),
        ("equal, but another's", view(exclusive_log("t"), granted=Holder("t", 3, "q")), 3, EXCLUSIVE, "new"),
        ("equal, but nobody's", view(shared_log()), 3, EXCLUSIVE, "new"),
        ("never granted", PartitionAccess(0, AccessItem(), PartitionState()), -1, EXCLUSIVE, "new"),
        ("shared, and its own", view(shared=(HOLDER,)), 3, SHARED, "resumes"),
        ("shared, but another's", view(shared=(Holder("t", 3, "q"),)), 3, SHARED, "new"),
        ("shared, in an earlier epoch", view(shared_log(4), shared=(HOLDER,)), 3, SHARED, "fenced"),
        ("exclusive, but the claim is for shared", HELD_VIEW, 3, SHARED, "new"),
        ("the marker back to shared is to come", view(exclusive_log("t"), shared=(HOLDER,)), 3, SHARED, "new"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " in value else "",
)
def test_each_case_of_reconnection(why: str, seen: PartitionAccess, epoch: int, mode: str, verdict: str) -> None:
    assert reconnection_of(seen, epoch, "s", mode) is Reconnection(verdict)


# What changes leave


def test_a_reservation_raises_the_epoch_and_leaves_the_holder_who_is_live() -> None:
    item = rules.reserved(HELD_VIEW, ME, lives("s", "me"), fails_waiters=True)
    assert (item.epoch, item.claim, item.granted) == (4, Holder("me", 4, "mine"), HOLDER)


def test_a_reservation_goes_above_the_higher_of_the_item_and_the_log() -> None:
    assert rules.reserved(view(shared_log(7)), ME, lives(), fails_waiters=False).epoch == 8
    assert rules.reserved(view(epoch=9), ME, lives(), fails_waiters=False).epoch == 10


def test_the_end_of_a_dead_holder_is_part_of_the_reservation() -> None:
    item = rules.reserved(HELD_VIEW, ME, lives("me"), fails_waiters=False)
    assert item.granted == replace(HOLDER, is_ended=True)
    assert rules.over(HELD_VIEW, rules.holders(HELD_VIEW, lives("me"))) == [HOLDER]


def test_a_fencer_fails_all_waiters_and_another_claim_only_drops_those_who_are_gone() -> None:
    """A waiter that only lapsed may come back to its place."""
    seen = view(waiting=(WAITER, Waiter(2, "x", "y", (0,))))
    assert rules.reserved(seen, ME, lives("w"), fails_waiters=True).waiting == ()
    assert rules.reserved(seen, ME, lives(), fails_waiters=False).waiting == seen.item.waiting
    assert rules.reserved(seen, ME, lives(gone=["x"]), fails_waiters=False).waiting == (WAITER,)
    assert rules.reserved(seen, ME, lives(is_in_line=False), fails_waiters=False).waiting == ()


def test_the_lapsed_keep_their_place_as_long_as_there_is_room() -> None:
    seen, new = view(waiting=(WAITER, Waiter(2, "x", "y", (0,)))), Waiter(3, "z", "z", (0,))

    def line(alive: str, waiters_max: int) -> list[int] | None:
        item = rules.queued(seen, new, lives(*alive), waiters_max=waiters_max)
        return None if item is None else [waiter.ticket for waiter in item.waiting]

    assert line("", 3) == [1, 2, 3]
    assert line("w", 2) == [1, 3]
    assert line("wx", 2) is None


def test_a_promoted_waiter_leaves_the_line() -> None:
    mine = Waiter(2, "me", "mine", (0,))
    seen = view(waiting=(mine, Waiter(3, "x", "y", (0,))))
    item = rules.reserved(seen, replace(ME, ticket=2), lives("me", "x"), fails_waiters=False)
    assert [waiter.ticket for waiter in item.waiting] == [3]


def test_a_confirmed_claim_is_granted_and_ends_shared_access() -> None:
    reserved = rules.reserved(view(shared=(HOLDER,)), ME, lives("s"), fails_waiters=True)
    assert reserved.claim is not None
    item = rules.confirmed(reserved, reserved.claim)
    assert item is not None
    assert (item.granted, item.claim, item.shared) == (Holder("me", 4, "mine"), None, ())


def test_a_claim_reserved_by_another_since_is_not_confirmed() -> None:
    first = rules.reserved(view(), ME, lives(), fails_waiters=False)
    assert first.claim is not None
    second = rules.reserved(replace(view(), item=first), Claimant("x", "y"), lives("x"), fails_waiters=True)
    assert rules.confirmed(second, first.claim) is None
    assert rules.given_up(second, first.claim) == second


def test_shared_access_is_in_the_epoch_in_force_and_raises_nothing() -> None:
    item = rules.shared(view(exclusive_log(), granted=HOLDER, epoch=5), ME, lives("me"))
    assert (item.epoch, item.shared) == (5, (Holder("me", 3, "mine"),))
    assert item.granted == replace(HOLDER, is_ended=True)


def test_shared_access_keeps_who_lapsed_and_drops_who_is_gone_for_good() -> None:
    """A lapsed session comes back by an append of its own: then it must still be seen to share."""
    seen = view(shared=(HOLDER, Holder("gone", 3, "q")))
    item = rules.shared(seen, ME, lives("me", gone=["gone"]))
    assert [holder.session_id for holder in item.shared] == ["s", "me"]


def test_closing_ends_what_a_producer_has_and_nothing_else() -> None:
    name = ("s", "p")
    other = Holder("s", 3, "other")
    item = AccessItem(3, HOLDER, Holder("s", 4, "p"), (HOLDER, other), (Waiter(1, "s", "p", (0,)), WAITER))
    closed = rules.closed(item, name)
    assert closed.granted == replace(HOLDER, is_closed=True)
    assert (closed.claim, closed.shared) == (None, (replace(HOLDER, is_closed=True), other))
    assert closed.waiting == (WAITER,)
    assert rules.resumed(closed, name).granted == HOLDER


def test_a_resumed_producer_leaves_the_queue_and_the_others_stay() -> None:
    item = AccessItem(3, HOLDER, waiting=(Waiter(1, "s", "p", (0, 1)), WAITER))
    assert rules.resumed(item, ("s", "p")) == replace(item, waiting=(WAITER,))


def test_an_end_concerns_one_session_with_one_epoch() -> None:
    item = AccessItem(4, HOLDER, Holder("t", 4, "q"))
    assert rules.ended(item, "s", 2) == item
    assert rules.ended(item, "s", 3).granted == replace(HOLDER, is_ended=True)
    assert rules.ended(item, "t", 4).claim is None


# Items

NAMES = st.text(max_size=8)
HOLDERS = st.builds(Holder, NAMES, st.integers(-1, 2**31 - 1), NAMES, st.booleans(), st.booleans())
WAITING = st.builds(Waiter, st.integers(0), NAMES, NAMES, st.lists(st.integers(0, 9), max_size=3).map(tuple))
ITEMS = st.builds(
    AccessItem,
    st.integers(-1, 2**31 - 1),
    st.none() | HOLDERS,
    st.none() | HOLDERS,
    st.lists(HOLDERS, max_size=3).map(tuple),
    st.lists(WAITING, max_size=3).map(tuple),
    st.just(7),
)


@given(ITEMS)
def test_an_item_comes_back_as_it_went(item: AccessItem) -> None:
    assert AccessItem.from_value(item.to_value(), 7) == item


# Whatever happens


SESSIONS = "abcd"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["claim", "marker", "confirm", "share", "die", "revive", "back", "end", "close"]),
            st.sampled_from(SESSIONS),
        ),
        max_size=40,
    )
)
def test_epochs_only_grow_and_each_is_one_sessions(steps: list[tuple[str, str]]) -> None:
    """I8, for whatever order of reservations, markers, confirmations, deaths and ends: the item against its log."""
    item, state = AccessItem(), PartitionState()
    alive = set(SESSIONS)
    owners: dict[int, str] = {}
    reserved: dict[str, Holder] = {}
    for step, one in steps:
        seen, alive_now = PartitionAccess(0, item, state), lives(*alive)
        before, epoch_before = item.epoch, state.topic_epoch
        if step == "claim":
            item = rules.reserved(seen, Claimant(one, one), alive_now, fails_waiters=True)
            assert item.claim is not None
            reserved[one] = item.claim
            assert item.claim.epoch not in owners
            owners[item.claim.epoch] = one
        elif step == "marker" and one in reserved and state.topic_epoch < reserved[one].epoch:
            state = state._replace(
                topic_epoch=reserved[one].epoch, access_mode="Exclusive", session_id=one, next_offset=9
            )
        elif step == "confirm" and one in reserved and seen.names(reserved[one]):
            item = rules.confirmed(item, reserved[one]) or item
        elif step == "share" and column_of(seen, Claimant(one, one), alive_now) in (FREE, SHARING):
            item = rules.shared(seen, Claimant(one, one), alive_now)
        elif step == "die":
            alive.discard(one)
        elif step == "revive":
            alive.add(one)
        elif step == "back" and state.session_id is not None:
            state = state._replace(access_mode="Shared", session_id=None)
        elif step == "end" and state.session_id is not None:
            item = rules.ended(item, state.session_id, state.topic_epoch)
        elif step == "close":
            item = rules.closed(item, (one, one))
        assert item.epoch >= before
        assert state.topic_epoch >= epoch_before
        holding = [h for h in rules.holders(PartitionAccess(0, item, state), lives(*alive)) if h == item.granted]
        assert len(holding) <= 1
        assert all(owners[h.epoch] == h.session_id for h in holding)
        if state.session_id is not None:
            assert owners[state.topic_epoch] == state.session_id
