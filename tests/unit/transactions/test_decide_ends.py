"""What one end makes of several transactions: all of them or none (I26), and of an application's version (I27)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import AlreadyCommittedError, FencelineError, InvalidRequestError
from fenceline.model.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    OnceMark,
    ProducerPair,
    TransactionMember,
)
from fenceline.transactions.committed_version import OnceItem
from fenceline.transactions.decide import (
    End,
    EndsDecision,
    Extend,
    JointEnd,
    Meet,
    SeenTransactions,
    completed,
    decide,
    decide_ends,
    needing_producer_ids,
)
from fenceline.transactions.item import TopicPartitions, TransactionItem

NOW = 1_000_000
EPOCH = 3
NAMES = ("a", "b", "c")
ONCE = OnceMark("app", 5, "run-1")
CALM = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)


def member(name: str, epoch: int = EPOCH) -> TransactionMember:
    return TransactionMember(name, ProducerPair(ord(name), epoch))


MEMBERS = [member(name) for name in NAMES]


def item(name: str, state: str = ONGOING, **members: Any) -> TransactionItem:
    made = TransactionItem(name, ord(name), EPOCH, state, 60_000, updated_at=NOW - 10, version=4)
    if state == ONGOING:
        made = replace(made, started_at=NOW - 60_000, partitions=(TopicPartitions("id", "orders", (0,)),))
    return replace(made, **members)


def seen(*items: TransactionItem, once: OnceItem | None = None) -> SeenTransactions:
    return SeenTransactions({one.transactional_id: one for one in items}, once)


def ongoing(**more: Any) -> SeenTransactions:
    return seen(*(item(name) for name in NAMES), **more)


def stored(version: int, note: str | None = "run-0") -> OnceItem:
    return OnceItem(OnceMark("app", version, note, NOW - 5), 9)


def commit(once: OnceMark | None = None, **more: Any) -> JointEnd:
    return JointEnd(MEMBERS, True, once, **more)


def after(decision: EndsDecision, before: SeenTransactions, *, is_finished: bool = False) -> SeenTransactions:
    """Return what is stored once the decision is written, and the members are finished."""
    items = [one.item for one in decision.members]
    if is_finished:
        items = [completed(one, NOW).item if one.is_prepared else one for one in items]
    return seen(*items, once=before.once if decision.once is None else replace(decision.once, version=10))


def refusal(found: SeenTransactions, request: JointEnd, **more: Any) -> FencelineError:
    with pytest.raises(FencelineError) as caught:
        decide_ends(found, request, NOW, **more)
    return caught.value


# The decision


@pytest.mark.parametrize("is_commit", [True, False])
def test_each_member_takes_the_end_that_it_would_take_alone(is_commit: bool) -> None:
    found = ongoing()
    decision = decide_ends(found, JointEnd(MEMBERS, is_commit), NOW)
    assert decision.once is None
    for one, (name, pair) in zip(decision.members, MEMBERS, strict=True):
        assert one == decide(found.items[name], End(pair, is_commit), NOW)
        assert one.item.state == (PREPARE_COMMIT if is_commit else PREPARE_ABORT)


def test_the_members_are_answered_in_the_order_of_the_request() -> None:
    decision = decide_ends(ongoing(), JointEnd(MEMBERS[::-1], True), NOW)
    assert [one.item.transactional_id for one in decision.members] == ["c", "b", "a"]


@pytest.mark.parametrize("state", CALM)
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_member_without_a_transaction_is_passed_over_and_keeps_its_pair(state: str, is_commit: bool) -> None:
    calm = item("b", state)
    decision = decide_ends(seen(item("a"), calm, item("c")), JointEnd(MEMBERS, is_commit), NOW)
    assert [one.is_change for one in decision.members] == [True, False, True]
    assert decision.members[1].item == calm


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_of_nothing_is_refused_since_its_late_repeat_would_end_what_begins_next(is_commit: bool) -> None:
    """The pairs of what is passed over stay: a repeat could not be told from an end of the next transactions."""
    idle = seen(*(item(name, EMPTY) for name in NAMES))
    error = refusal(idle, JointEnd(MEMBERS, is_commit))
    assert (error.code, error.extra["transactional_id"]) == ("INVALID_TXN_STATE", "a")
    assert decide_ends(idle, JointEnd(MEMBERS, is_commit, ONCE), NOW).once is not None


def test_an_end_wins_over_its_own_time_out_until_another_process_meets_that() -> None:
    late = seen(*(item(name, started_at=0) for name in NAMES))
    assert all(one.item.is_commit for one in decide_ends(late, commit(), NOW).members)


def test_each_member_at_the_last_epoch_takes_a_producer_id_of_its_own() -> None:
    last = limits.PRODUCER_EPOCH_MAX
    members = [member(name, last) for name in NAMES]
    found = seen(*(item(name, producer_epoch=last) for name in "ab"), item("c", EMPTY, producer_epoch=last))
    request = JointEnd(members, True)
    assert needing_producer_ids(found, request) == ["a", "b"]  # the one that is passed over keeps its pair
    decision = decide_ends(found, request, NOW, spares={"a": 100, "b": 101})
    assert [one.item.next_producer_id for one in decision.members] == [100, 101, None]
    assert after(decision, found, is_finished=True).items["b"].pair == ProducerPair(101, 0)


def test_partitions_of_all_members_have_a_limit_together() -> None:
    """Each alone would have room."""
    places = tuple(TopicPartitions(f"{number:05d}", "t" * 249, (0,)) for number in range(1_100))
    large = [item(name, partitions=places) for name in "abcdefghijk"]
    request = JointEnd([TransactionMember(one.transactional_id, one.pair) for one in large], True)
    refused = refusal(seen(*large), request)
    assert isinstance(refused, InvalidRequestError)
    assert refused.field == "transactions"
    fewer = JointEnd(request.members[:10], True)
    assert decide_ends(seen(*large), fewer, NOW).is_change


# Refusals: nothing changes, and the first member that is to blame is named


@pytest.mark.parametrize(
    ("other", "code"),
    [
        (None, "INVALID_PRODUCER_ID_MAPPING"),
        (item("b", producer_id=1), "INVALID_PRODUCER_ID_MAPPING"),
        (item("b", producer_epoch=EPOCH + 1), "PRODUCER_FENCED"),
        (item("b", producer_epoch=EPOCH - 1), "PRODUCER_FENCED"),
        (item("b", EMPTY, producer_epoch=EPOCH + 1), "PRODUCER_FENCED"),
        (item("b", EMPTY, is_fenced=True), "PRODUCER_FENCED"),
        (item("b", PREPARE_COMMIT), "PRODUCER_FENCED"),
        (decide(item("b", started_at=0), Meet(), NOW).item, "PRODUCER_FENCED"),
        (decide(item("b"), End(member("b").pair, False), NOW).item, "INVALID_TXN_STATE"),
    ],
    ids=["unknown", "mapping", "fenced", "higher", "calm", "fencing", "prepared", "timed-out", "other-result"],
)
def test_one_member_that_is_refused_refuses_all_and_is_named(other: TransactionItem | None, code: str) -> None:
    items = [item("a"), item("c"), *([] if other is None else [other])]
    refused = refusal(seen(*items), commit(ONCE))
    assert (refused.code, refused.transactional_id) == (code, "b")
    assert "transactional_id=b" in refused.detail


def test_a_member_that_was_ended_apart_from_the_others_refuses_them() -> None:
    alone = decide(item("b"), End(member("b").pair, True), NOW).item
    for ended in (alone, completed(alone, NOW).item):
        refused = refusal(seen(item("a"), ended, item("c")), commit())
        assert (refused.code, refused.transactional_id) == ("INVALID_TXN_STATE", "b")


def test_a_member_s_own_error_comes_before_that_of_one_that_was_ended_apart() -> None:
    alone = decide(item("a"), End(member("a").pair, True), NOW).item
    refused = refusal(seen(alone, item("b"), item("c", producer_epoch=EPOCH + 1)), commit())
    assert (refused.code, refused.transactional_id) == ("PRODUCER_FENCED", "c")


# Repeats


@pytest.mark.parametrize("is_finished", [False, True])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_repeat_is_answered_and_changes_nothing(is_finished: bool, is_commit: bool) -> None:
    request = JointEnd(MEMBERS, is_commit, ONCE)
    decided = after(decide_ends(ongoing(), request, NOW), SeenTransactions(), is_finished=is_finished)
    again = decide_ends(decided, request, NOW)
    assert not again.is_change
    assert [one.item for one in again.members] == list(decided.items.values())


def test_a_repeat_is_answered_though_a_higher_version_is_stored_by_now() -> None:
    decided = after(decide_ends(ongoing(), commit(ONCE), NOW), SeenTransactions())
    assert not decide_ends(replace(decided, once=stored(50)), commit(ONCE), NOW).is_change


@pytest.mark.parametrize("found", [None, stored(ONCE.version - 1)])
def test_an_end_without_the_version_has_no_repeat_with_it(found: OnceItem | None) -> None:
    """Else it is answered as committed, though the version is not stored: another run commits it again."""
    ended = after(decide_ends(ongoing(), commit(), NOW), ongoing(), is_finished=True)
    error = refusal(replace(ended, once=found), commit(ONCE))
    assert (error.code, error.extra["transactional_id"]) == ("INVALID_TXN_STATE", "a")


def test_a_repeat_of_an_end_that_passed_a_member_over_passes_it_over_again() -> None:
    found = seen(item("a"), item("b", COMPLETE_COMMIT), item("c"))
    decided = after(decide_ends(found, commit(), NOW), found)
    again = decide_ends(decided, commit(), NOW)
    assert not again.is_change
    assert again.members[1].item.pair == member("b").pair


def test_a_repeat_is_none_once_a_member_that_was_passed_over_has_begun_a_transaction() -> None:
    """The first end did not decide over it, so the answer of a repeat would not be true of it."""
    found = seen(item("a"), item("b", EMPTY))
    request = JointEnd(MEMBERS[:2], True)
    decided = after(decide_ends(found, request, NOW), found)
    refused = refusal(seen(decided.items["a"], item("b")), request)
    assert (refused.code, refused.transactional_id) == ("INVALID_TXN_STATE", "a")


def test_a_repeat_with_the_other_result_is_refused() -> None:
    decided = after(decide_ends(ongoing(), commit(), NOW), SeenTransactions())
    refused = refusal(decided, JointEnd(MEMBERS, False))
    assert (refused.code, refused.transactional_id) == ("INVALID_TXN_STATE", "a")


def test_a_member_that_was_fenced_since_refuses_the_repeat_but_once_says_what_became_of_it() -> None:
    decided = after(decide_ends(ongoing(), commit(ONCE), NOW), SeenTransactions())
    fenced = SeenTransactions({**decided.items, "b": item("b", EMPTY, producer_epoch=EPOCH + 2)}, decided.once)
    assert refusal(fenced, commit()).code == "PRODUCER_FENCED"
    refused = refusal(fenced, commit(ONCE))
    assert isinstance(refused, AlreadyCommittedError)
    assert (refused.version, refused.note) == (5, "run-1")


# Once


@pytest.mark.parametrize("before", [None, stored(0), stored(4)])
def test_a_higher_version_is_raised_with_the_decision(before: OnceItem | None) -> None:
    decision = decide_ends(ongoing(once=before), commit(ONCE), NOW)
    assert decision.once == OnceItem(OnceMark("app", 5, "run-1", NOW), None if before is None else 9)


@pytest.mark.parametrize("version", [5, 6, limits.INT64_MAX])
def test_a_version_that_is_not_above_the_stored_one_refuses_before_any_member_does(version: int) -> None:
    found = seen(item("a", producer_epoch=EPOCH + 1), once=stored(version))
    refused = refusal(found, commit(ONCE))
    assert isinstance(refused, AlreadyCommittedError)
    assert (refused.version, refused.note, refused.next_step) == (version, "run-0", "fix")


def test_no_member_at_all_raises_the_version_alone() -> None:
    decision = decide_ends(SeenTransactions(), JointEnd([], True, ONCE), NOW)
    assert decision.members == []
    assert decision.once is not None


def test_the_version_is_raised_for_members_that_are_all_passed_over() -> None:
    decision = decide_ends(seen(*(item(name, EMPTY) for name in NAMES)), commit(ONCE), NOW)
    assert decision.once is not None
    assert not any(one.is_change for one in decision.members)


def test_the_same_version_of_another_run_with_the_same_note_commits_no_transaction() -> None:
    """After a lost write, too: that version and note are stored is no evidence that these members were decided."""
    found = ongoing(once=stored(5, "run-1"))
    for is_resumed in (False, True):
        assert refusal(found, commit(ONCE), is_resumed=is_resumed).code == "ALREADY_COMMITTED"


@pytest.mark.parametrize("members", [[], MEMBERS])
def test_a_lost_write_that_only_raises_the_version_is_recognised_by_version_and_note(
    members: list[TransactionMember],
) -> None:
    calm = [item(name, EMPTY) for name in NAMES]
    request = JointEnd(members, True, ONCE)
    raised = seen(*calm, once=stored(5, "run-1"))
    assert not decide_ends(raised, request, NOW, is_resumed=True).is_change
    assert refusal(raised, request).code == "ALREADY_COMMITTED"  # another request
    for other in (stored(5, "run-2"), stored(5, None), stored(6, "run-1")):
        assert refusal(seen(*calm, once=other), request, is_resumed=True).code == "ALREADY_COMMITTED"


# One transaction with once


def test_one_transaction_by_itself_is_judged_as_alone() -> None:
    """Only several at once pass over what has none under way."""
    alone = JointEnd([member("a")], True, ONCE, is_passing_over=False)
    assert refusal(seen(item("a", EMPTY)), alone).code == "INVALID_TXN_STATE"
    aborted = decide_ends(seen(item("a", EMPTY)), replace(alone, is_commit=False), NOW)
    assert aborted.members[0] == decide(item("a", EMPTY), End(member("a").pair, False), NOW)
    assert aborted.once is not None
    last = limits.PRODUCER_EPOCH_MAX
    request = JointEnd([member("a", last)], False, ONCE, is_passing_over=False)
    found = seen(item("a", EMPTY, producer_epoch=last))
    assert needing_producer_ids(found, request) == ["a"]
    assert decide_ends(found, request, NOW, spares={"a": 99}).members[0].given == 99


# Extensions


def extended(found: TransactionItem, timeout_ms: int, now_ms: int = NOW) -> TransactionItem:
    return decide(found, Extend(ProducerPair(found.producer_id, EPOCH), timeout_ms), now_ms).item


def test_no_time_out_is_due_before_an_extension_is_over() -> None:
    later = extended(item("a"), 100_000)
    assert later.expires_at == NOW + 100_000
    assert decide(later, Meet(), NOW + 100_000).item == later
    assert decide(later, Meet(), NOW + 100_001).item.state == PREPARE_ABORT


def test_an_extension_only_moves_a_time_out_later() -> None:
    """I28: neither a shorter one, nor a clock that is behind."""
    later = extended(item("a"), 100_000)
    for timeout_ms, now_ms in ((99_999, NOW), (100_000, NOW - 1), (100_000, NOW)):
        again = decide(later, Extend(later.pair, timeout_ms), now_ms)
        assert (again.item, again.is_change) == (later, False)
    shorter = extended(item("a", started_at=NOW), 1)
    assert not shorter.is_out_of_time(NOW + 60_000)  # its own time-out is later


def test_an_extension_ends_with_its_transaction() -> None:
    later = extended(item("a"), 100_000)
    for is_commit in (True, False):
        prepared = decide(later, End(later.pair, is_commit), NOW).item
        assert completed(prepared, NOW).item.expires_at is None


@pytest.mark.parametrize("state", CALM)
def test_an_id_without_an_ongoing_transaction_is_not_extended(state: str) -> None:
    with pytest.raises(FencelineError) as caught:
        extended(item("a", state), 1_000)
    assert caught.value.code == "INVALID_TXN_STATE"


def test_an_extension_is_judged_as_offsets_are() -> None:
    pair = ProducerPair(ord("a"), EPOCH)
    for found, code in (
        (None, "INVALID_PRODUCER_ID_MAPPING"),
        (item("a", producer_id=1), "INVALID_PRODUCER_ID_MAPPING"),
        (item("a", producer_epoch=EPOCH + 1), "PRODUCER_FENCED"),
        (item("a", is_fenced=True), "PRODUCER_FENCED"),
    ):
        with pytest.raises(FencelineError) as caught:
            decide(found, Extend(pair, 1_000), NOW)
        assert caught.value.code == code
    overdue = decide(item("a", started_at=0), Extend(pair, 1_000), NOW)
    assert (overdue.item.state, overdue.item.is_fenced, overdue.is_answer) == (PREPARE_ABORT, True, False)
    prepared = item("a", PREPARE_COMMIT)
    assert decide(prepared, Extend(pair, 1_000), NOW).is_answer is False  # it is finished first
