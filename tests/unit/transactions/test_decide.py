"""Both tables of "The state machine", cell by cell: what each request makes of a transaction in each state."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fenceline import limits
from fenceline.errors import FencelineError, InvalidRequestError, NotAuthorizedError
from fenceline.format import keys
from fenceline.format.item_size import size_of
from fenceline.model.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    ProducerPair,
    TransactionMember,
)
from fenceline.transactions.decide import (
    Add,
    Decision,
    End,
    Extend,
    Fence,
    Init,
    JointEnd,
    Meet,
    Request,
    SeenTransactions,
    Send,
    check_limits,
    completed,
    decide,
    needing_producer_ids,
    needs_producer_id,
)
from fenceline.transactions.item import SubscriptionCursors, TopicPartitions, TransactionItem

NOW = 1_000_000
P, E = 7, 3
PAIR = ProducerPair(P, E)
BEFORE = ProducerPair(P, E - 1)
SPARE = 99
PLACE = TopicPartitions("id", "orders", (0,))

CALM = (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
PREPARED = (PREPARE_COMMIT, PREPARE_ABORT)


def item(state: str, **members: object) -> TransactionItem:
    """Return an item at (p, E), with what each state has."""
    made = TransactionItem("t", P, E, state, 60_000, updated_at=NOW - 10, version=4)
    if state == ONGOING or state in PREPARED:
        made = replace(made, started_at=NOW - 60_000, partitions=(PLACE,), groups=("g",))
    if state in PREPARED:
        made = replace(made, decided_at=NOW - 10)
    return replace(made, **members)  # type: ignore[arg-type]


def refused(found: TransactionItem | None, request: Request, now_ms: int = NOW) -> str:
    """Return the code of a refusal."""
    with pytest.raises(FencelineError) as caught:
        decide(found, request, now_ms, spare=SPARE)
    return str(caught.value.code)


def init(pair: ProducerPair | None = None) -> Init:
    return Init("t", 5_000, pair)


def next_epoch(found: TransactionItem, *, kept: ProducerPair | None = None) -> Decision:
    """Return the decision that gives the next epoch of an item to a request for an id."""
    changed = TransactionItem("t", P, E + 1, EMPTY, 5_000, updated_at=NOW, kept=kept, version=found.version)
    return Decision(changed, is_change=True)


def fencing_abort(found: TransactionItem, *, kept: ProducerPair | None = None) -> Decision:
    aborted = replace(
        found,
        state=PREPARE_ABORT,
        producer_epoch=E + 1,
        decided_at=NOW,
        updated_at=NOW,
        is_fenced=True,
        kept=kept,
        ended=None,
    )
    return Decision(aborted, is_change=True, is_answer=False)


# INIT


def test_an_unknown_id_gets_a_new_producer_id_even_with_a_pair() -> None:
    for pair in (None, PAIR):
        made = TransactionItem("t", SPARE, 0, EMPTY, 5_000, updated_at=NOW, kept=pair)
        assert decide(None, init(pair), NOW, spare=SPARE) == Decision(made, is_change=True, given=SPARE)


@pytest.mark.parametrize("state", CALM)
@pytest.mark.parametrize("ended", [None, BEFORE])
def test_an_id_request_without_a_pair_gets_the_next_epoch(state: str, ended: ProducerPair | None) -> None:
    for is_fenced in (False, True):
        found = item(state, ended=ended, kept=BEFORE, is_fenced=is_fenced)
        assert decide(found, init(), NOW) == next_epoch(found)


@pytest.mark.parametrize("state", CALM)
def test_an_id_request_with_the_pair_in_force_gets_the_next_epoch(state: str) -> None:
    found = item(state, ended=BEFORE)
    assert decide(found, init(PAIR), NOW) == next_epoch(found, kept=PAIR)


def test_an_id_request_aborts_what_is_ongoing_and_is_judged_again() -> None:
    found = item(ONGOING)
    assert decide(found, init(), NOW) == fencing_abort(found)
    assert decide(found, init(PAIR), NOW) == fencing_abort(found, kept=PAIR)


@pytest.mark.parametrize("state", PREPARED)
def test_an_id_request_finishes_what_is_prepared_and_is_judged_again(state: str) -> None:
    found = item(state, ended=BEFORE)
    assert decide(found, init(), NOW) == Decision(found, is_answer=False)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("is_fenced", [False, True])
def test_the_pair_of_a_prepared_transaction_was_given_to_no_producer(state: str, is_fenced: bool) -> None:
    assert refused(item(state, is_fenced=is_fenced), init(PAIR)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("state", CALM)
def test_the_epoch_of_a_fencing_abort_keeps_no_id(state: str) -> None:
    assert refused(item(state, is_fenced=True), init(PAIR)) == "PRODUCER_FENCED"


def test_the_repeat_of_a_keep_id_request_gets_the_same_pair_again_without_a_write() -> None:
    found = item(EMPTY, kept=BEFORE)
    assert decide(found, init(BEFORE), NOW) == Decision(found)


def test_a_keep_id_request_goes_on_after_its_own_fencing_abort() -> None:
    aborting = item(PREPARE_ABORT, kept=BEFORE, is_fenced=True)
    assert decide(aborting, init(BEFORE), NOW) == Decision(aborting, is_answer=False)
    aborted = item(COMPLETE_ABORT, kept=BEFORE, is_fenced=True)
    assert decide(aborted, init(BEFORE), NOW) == next_epoch(aborted, kept=BEFORE)


@pytest.mark.parametrize("state", [*CALM, ONGOING, *PREPARED])
@pytest.mark.parametrize("pair", [BEFORE, ProducerPair(P, E + 1), ProducerPair(P + 1, E)])
def test_any_other_pair_is_fenced_and_nothing_is_aborted(state: str, pair: ProducerPair) -> None:
    assert refused(item(state), init(pair)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("pair", [None, PAIR, BEFORE])
def test_a_time_out_that_is_due_comes_before_the_pair_of_an_id_request(pair: ProducerPair | None) -> None:
    found = item(ONGOING)
    late = decide(found, init(pair), NOW + 1)
    assert late == Decision(replace(fencing_abort(found).item, decided_at=NOW + 1, updated_at=NOW + 1), True, False)
    if pair is not None:
        assert refused(late.item, init(pair)) == "PRODUCER_FENCED"


# The other requests, in the order of judgement

ADD, ADD_GROUP, SEND = Add(PAIR, (PLACE,)), Add(PAIR, groups=("g",)), Send(PAIR, "g")
COMMIT, ABORT = End(PAIR, is_commit=True), End(PAIR, is_commit=False)
OTHERS: list[Request] = [ADD, ADD_GROUP, SEND, COMMIT, ABORT]


def of(request: Request, pair: ProducerPair) -> Request:
    assert isinstance(request, Add | Send | End)
    return replace(request, pair=pair)


@pytest.mark.parametrize("request_", OTHERS)
def test_a_producer_id_of_another_transactional_id_is_refused(request_: Request) -> None:
    assert refused(None, request_) == "INVALID_PRODUCER_ID_MAPPING"
    for state in (*CALM, ONGOING, *PREPARED):
        assert refused(item(state), of(request_, ProducerPair(P + 1, E))) == "INVALID_PRODUCER_ID_MAPPING"
    assert refused(item(ONGOING), of(request_, ProducerPair(P + 1, E)), NOW + 1) == "INVALID_PRODUCER_ID_MAPPING"


@pytest.mark.parametrize("request_", OTHERS)
@pytest.mark.parametrize("state", [*CALM, ONGOING, *PREPARED])
def test_a_lower_or_higher_epoch_is_fenced(request_: Request, state: str) -> None:
    for epoch in (E - 1, E + 1):
        assert refused(item(state), of(request_, ProducerPair(P, epoch))) == "PRODUCER_FENCED"
    if state != ONGOING:
        assert refused(item(state, is_fenced=True), request_) == "PRODUCER_FENCED"


@pytest.mark.parametrize("request_", [ADD, ADD_GROUP, SEND])
def test_a_time_out_that_is_due_aborts_and_fences_the_request_that_meets_it(request_: Request) -> None:
    for pair in (PAIR, BEFORE):
        late = decide(item(ONGOING), of(request_, pair), NOW + 1)
        assert late.item.state == PREPARE_ABORT
        assert late.item.is_fenced
        assert (late.is_change, late.is_answer) == (True, False)
        assert refused(late.item, of(request_, pair)) == "PRODUCER_FENCED"
        assert refused(completed(late.item, NOW).item, of(request_, pair)) == "PRODUCER_FENCED"


@pytest.mark.parametrize("request_", [COMMIT, ABORT])
def test_the_own_end_of_a_transaction_wins_over_a_time_out_that_no_other_request_has_met(request_: Request) -> None:
    assert decide(item(ONGOING), request_, NOW + 1_000_000).item.ended == PAIR


@pytest.mark.parametrize("state", CALM)
def test_an_addition_begins_a_transaction(state: str) -> None:
    found = item(state, ended=BEFORE, kept=BEFORE)
    begun = replace(found, state=ONGOING, started_at=NOW, updated_at=NOW, ended=None, kept=None)
    assert decide(found, ADD, NOW) == Decision(replace(begun, partitions=(PLACE,)), is_change=True)
    assert decide(found, ADD_GROUP, NOW) == Decision(replace(begun, groups=("g",)), is_change=True)


def test_an_addition_to_a_transaction_leaves_its_beginning() -> None:
    found = item(ONGOING)
    more = [TopicPartitions("id", "orders", (2, 0, 1)), TopicPartitions("id2", "orders", (5,))]
    added = decide(found, Add(PAIR, more), NOW)
    assert added.item.partitions == (TopicPartitions("id", "orders", (0, 1, 2)), TopicPartitions("id2", "orders", (5,)))
    assert (added.item.started_at, added.item.updated_at) == (found.started_at, NOW)
    assert decide(found, Add(PAIR, groups=("h", "g")), NOW).item.groups == ("g", "h")


def test_the_addition_of_what_is_in_is_no_write() -> None:
    found = item(ONGOING)
    assert decide(found, ADD, NOW) == Decision(found)
    assert decide(found, ADD_GROUP, NOW) == Decision(found)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("request_", [ADD, ADD_GROUP, SEND])
def test_a_prepared_transaction_is_finished_before_the_pair_is_judged_again(state: str, request_: Request) -> None:
    found = item(state, ended=BEFORE)
    assert decide(found, request_, NOW) == Decision(found, is_answer=False)


def test_offsets_are_sent_to_a_group_that_was_added() -> None:
    found = item(ONGOING)
    assert decide(found, SEND, NOW) == Decision(found)
    assert refused(found, Send(PAIR, "h")) == "INVALID_TXN_STATE"
    for state in CALM:
        assert refused(item(state), SEND) == "INVALID_TXN_STATE"


# END_TXN


@pytest.mark.parametrize("is_commit", [True, False])
def test_an_end_decides_the_ongoing_transaction(is_commit: bool) -> None:
    found = item(ONGOING)
    decided = replace(
        found,
        state=PREPARE_COMMIT if is_commit else PREPARE_ABORT,
        producer_epoch=E + 1,
        decided_at=NOW,
        updated_at=NOW,
        ended=PAIR,
    )
    assert decide(found, End(PAIR, is_commit), NOW) == Decision(decided, is_change=True)


@pytest.mark.parametrize("state", CALM)
def test_there_is_nothing_to_commit_in_an_empty_transaction(state: str) -> None:
    assert refused(item(state), COMMIT) == "INVALID_TXN_STATE"


@pytest.mark.parametrize("state", CALM)
def test_an_empty_abort_takes_the_next_epoch_at_once(state: str) -> None:
    found = item(state, ended=BEFORE, kept=BEFORE)
    aborted = replace(found, state=COMPLETE_ABORT, producer_epoch=E + 1, updated_at=NOW, ended=PAIR, kept=None)
    assert decide(found, ABORT, NOW) == Decision(aborted, is_change=True)


@pytest.mark.parametrize("state", PREPARED)
@pytest.mark.parametrize("request_", [COMMIT, ABORT])
def test_an_end_at_the_epoch_of_the_markers_is_fenced(state: str, request_: Request) -> None:
    assert refused(item(state, ended=BEFORE), request_) == "PRODUCER_FENCED"


@pytest.mark.parametrize(
    ("state", "is_commit"),
    [(PREPARE_COMMIT, True), (COMPLETE_COMMIT, True), (PREPARE_ABORT, False), (COMPLETE_ABORT, False)],
)
def test_the_repeat_of_an_end_gets_its_answer_and_no_other_result(state: str, is_commit: bool) -> None:
    found = item(state, ended=BEFORE)
    assert decide(found, End(BEFORE, is_commit), NOW) == Decision(found)
    assert refused(found, End(BEFORE, not is_commit)) == "INVALID_TXN_STATE"


@pytest.mark.parametrize("state", [EMPTY, ONGOING])
def test_a_beginning_and_an_id_request_forget_whose_end_decided(state: str) -> None:
    found = item(COMPLETE_COMMIT, ended=BEFORE)
    later = decide(found, init() if state == EMPTY else ADD, NOW).item
    assert (later.state, later.ended) == (state, None)
    assert refused(later, End(BEFORE, is_commit=True)) == "PRODUCER_FENCED"


# Complete*, and the last epoch


@pytest.mark.parametrize(("before", "after"), [(PREPARE_COMMIT, COMPLETE_COMMIT), (PREPARE_ABORT, COMPLETE_ABORT)])
def test_a_finished_transaction_keeps_its_pair_and_names_nothing(before: str, after: str) -> None:
    found = item(before, ended=BEFORE, cursors=(SubscriptionCursors("g", "id", "s", (1,)),))
    done = replace(
        found, state=after, started_at=None, decided_at=None, updated_at=NOW, partitions=(), groups=(), cursors=()
    )
    assert completed(found, NOW) == Decision(done, is_change=True)


def test_the_end_at_the_last_epoch_leads_to_a_new_producer_id() -> None:
    last = ProducerPair(P, limits.PRODUCER_EPOCH_MAX)
    found = item(ONGOING, producer_epoch=last.producer_epoch)
    assert needing_producer_ids(SeenTransactions({"t": found}), JointEnd([TransactionMember("t", last)], True)) == ["t"]
    decided = decide(found, End(last, is_commit=True), NOW, spare=SPARE)
    assert decided.item.pair == (P, limits.MARKER_EPOCH_MAX)
    assert (decided.item.next_producer_id, decided.given) == (SPARE, None)
    done = completed(decided.item, NOW)
    assert done.item.pair == (SPARE, 0)
    assert (done.given, done.item.next_producer_id) == (SPARE, None)
    assert decide(done.item, End(last, is_commit=True), NOW, spare=SPARE + 1) == Decision(done.item)


def test_an_empty_abort_at_the_last_epoch_gives_a_new_producer_id_at_once() -> None:
    last = ProducerPair(P, limits.PRODUCER_EPOCH_MAX)
    found = item(COMPLETE_COMMIT, producer_epoch=last.producer_epoch)
    aborted = decide(found, End(last, is_commit=False), NOW, spare=SPARE)
    assert (aborted.item.pair, aborted.given, aborted.item.ended) == ((SPARE, 0), SPARE, last)


def test_an_id_request_beyond_the_last_epoch_gives_a_new_producer_id() -> None:
    for epoch, is_fenced in ((limits.PRODUCER_EPOCH_MAX, False), (limits.MARKER_EPOCH_MAX, True)):
        found = item(COMPLETE_ABORT, producer_epoch=epoch, is_fenced=is_fenced)
        assert needs_producer_id(found, init())
        given = decide(found, init(), NOW, spare=SPARE)
        assert (given.item.pair, given.given) == ((SPARE, 0), SPARE)
    below = item(EMPTY, producer_epoch=limits.PRODUCER_EPOCH_MAX - 1)
    assert not needs_producer_id(below, init())
    assert decide(below, init(), NOW).item.pair == (P, limits.PRODUCER_EPOCH_MAX)


def test_a_fencing_abort_at_the_last_epoch_takes_no_producer_id() -> None:
    """No pair is given by it, so the process that meets a time-out needs none."""
    found = item(ONGOING, producer_epoch=limits.PRODUCER_EPOCH_MAX)
    aborted = decide(found, Meet(), NOW + 1)
    done = completed(aborted.item, NOW).item
    assert done.pair == (P, limits.MARKER_EPOCH_MAX)
    assert done.is_fenced
    assert refused(done, init(done.pair)) == "PRODUCER_FENCED"


# Meeting, and limits


def test_a_look_ends_what_is_due_and_nothing_else() -> None:
    with pytest.raises(FencelineError, match="no transaction has this"):
        decide(None, Meet(), NOW)
    for state in (*CALM, ONGOING, *PREPARED):
        assert decide(item(state), Meet(), NOW) == Decision(item(state))
    due = decide(item(ONGOING), Meet(), NOW + 1)
    assert (due.item.state, due.item.is_fenced, due.item.kept, due.is_answer) == (PREPARE_ABORT, True, None, True)


def test_a_transaction_names_500_partitions_and_100_groups() -> None:
    full = Add(PAIR, [TopicPartitions("id", "orders", tuple(range(limits.TRANSACTION_PARTITIONS_MAX)))])
    found = decide(item(EMPTY), full, NOW).item
    one_more = TopicPartitions("id2", "orders", (0,))
    with pytest.raises(InvalidRequestError):
        decide(found, Add(PAIR, [one_more]), NOW)
    assert decide(found, ADD, NOW) == Decision(found)
    with pytest.raises(InvalidRequestError):
        decide(item(EMPTY), Add(PAIR, [*full.places, one_more]), NOW)
    groups = [f"g{number}" for number in range(limits.TRANSACTION_GROUPS_MAX)]
    found = decide(item(EMPTY), Add(PAIR, groups=groups), NOW).item
    with pytest.raises(InvalidRequestError):
        decide(found, Add(PAIR, groups=["another"]), NOW)


def test_a_transaction_s_item_has_300_kib_and_500_cursors() -> None:
    topics = [TopicPartitions(f"{number:032x}", "n" * 249, (0,)) for number in range(500)]
    groups = [f"{number:0249d}" for number in range(100)]
    found = decide(item(EMPTY), Add(PAIR, topics, groups), NOW).item
    cursors = tuple(SubscriptionCursors(groups[0], "id", "s", (number,)) for number in range(500))
    assert check_limits(replace(item(ONGOING), cursors=cursors)).cursors == cursors
    with pytest.raises(InvalidRequestError):
        check_limits(replace(item(ONGOING), cursors=(*cursors, SubscriptionCursors("g", "id", "s2", (0,)))))
    long = tuple(SubscriptionCursors("g" * 249, "i" * 32, "s" * 32, (number,)) for number in range(500))
    with pytest.raises(InvalidRequestError, match="bytes"):
        check_limits(replace(found, cursors=long))


def test_the_end_of_a_full_transaction_fits_its_item() -> None:
    """ "Room in items": the outcome, and the fence, of the largest item that may be ongoing."""
    topics = tuple(TopicPartitions(f"{number:032x}", "n" * 249, (number,)) for number in range(500))
    groups = tuple(f"{number:0249d}" for number in range(100))
    cursors = tuple(SubscriptionCursors(one, f"{n:032x}", "s" * 32, (0,)) for n in range(4) for one in groups)
    full = item(ONGOING, producer_epoch=limits.PRODUCER_EPOCH_MAX, partitions=topics, groups=groups, cursors=cursors)
    assert size_of(keys.transaction_item("t"), check_limits(full).to_value()) > 280 * 1024
    ended = decide(full, End(full.pair, is_commit=True), NOW, spare=limits.INT64_MAX).item
    for found in (ended, decide(full, Meet(), NOW + 1).item):
        assert size_of(keys.transaction_item("t"), found.to_value()) < limits.ITEM_BYTES_MAX - 64 * 1024


# Principals, and an operator's fence


ANY_REQUEST = (
    Init("t", 5),
    Init("t", 5, PAIR),
    Add(PAIR, (PLACE,)),
    Send(PAIR, "g"),
    Extend(PAIR, 5),
    End(PAIR, is_commit=True),
    End(BEFORE, is_commit=True),
    Meet(),
)


@pytest.mark.parametrize("request_", ANY_REQUEST, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("state", [ONGOING, *CALM, *PREPARED])
def test_another_principal_is_refused_before_anything_else_is_judged(state: str, request_: Request) -> None:
    """Also past the time-out, and where the request is a repeat."""
    found = item(state, principal="alice", ended=BEFORE, started_at=0)
    with pytest.raises(NotAuthorizedError) as caught:
        decide(found, request_, NOW, principal="bob", spare=SPARE)
    assert "alice" not in caught.value.detail


@pytest.mark.parametrize("request_", ANY_REQUEST, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("state", [ONGOING, *CALM, *PREPARED])
@pytest.mark.parametrize(("kept", "principal"), [("alice", "alice"), ("alice", ""), ("", "bob"), ("", "")])
def test_its_own_principal_and_none_are_judged_as_ever(
    state: str, request_: Request, kept: str, principal: str
) -> None:
    def result_of(found: TransactionItem, principal: str) -> object:
        try:
            decision = decide(found, request_, NOW, principal=principal, spare=SPARE)
        except FencelineError as error:
            return error.code
        return replace(decision, item=replace(decision.item, principal=""))

    found = item(state)
    assert result_of(replace(found, principal=kept), principal) == result_of(found, "")


def test_an_id_takes_the_principal_of_the_next_request_for_it_and_of_no_other() -> None:
    made = decide(None, Init("t", 5), NOW, principal="alice", spare=SPARE).item
    assert made.principal == "alice"
    free = item(EMPTY, kept=BEFORE)
    for request in (Init("t", 5), Init("t", 5, PAIR), Init("t", 5, BEFORE)):
        taken = decide(free, request, NOW, principal="bob")
        assert (taken.item.principal, taken.is_change, taken.is_answer) == ("bob", True, True)
        if request.pair is not None:  # a repeat of it writes nothing
            assert decide(taken.item, request, NOW, principal="bob") == Decision(taken.item)
    for other in (Add(PAIR, (PLACE,)), End(PAIR, is_commit=False), Meet()):
        assert decide(free, other, NOW, principal="bob").item.principal == ""
    kept = decide(item(EMPTY, principal="alice"), Init("t", 5), NOW)
    assert kept.item.principal == "alice"


@pytest.mark.parametrize("state", CALM)
def test_a_fence_leaves_an_id_at_rest_with_an_epoch_of_no_producer_and_no_principal(state: str) -> None:
    found = item(state, principal="alice", ended=BEFORE, kept=BEFORE)
    fenced = decide(found, Fence(), NOW)
    expected = replace(
        found,
        producer_epoch=E + 1,
        state=COMPLETE_ABORT,
        updated_at=NOW,
        ended=None,
        kept=None,
        is_fenced=True,
        principal="",
    )
    assert fenced == Decision(expected, is_change=True)
    assert refused(fenced.item, Add(PAIR, (PLACE,))) == "PRODUCER_FENCED"
    assert refused(fenced.item, Add(fenced.item.pair, (PLACE,))) == "PRODUCER_FENCED"
    assert decide(fenced.item, Fence(), NOW) == Decision(fenced.item)
    assert decide(fenced.item, Init("t", 5), NOW, principal="bob").item.pair == ProducerPair(P, E + 2)


def test_a_fence_aborts_what_is_ongoing_and_finishes_what_is_decided() -> None:
    fenced = decide(item(ONGOING, principal="alice"), Fence(), NOW)
    assert (fenced.item.state, fenced.item.pair, fenced.is_answer) == (PREPARE_ABORT, ProducerPair(P, E + 1), True)
    assert (fenced.item.is_fenced, fenced.item.principal) == (True, "")
    assert fenced.item.partitions == (PLACE,)
    for state in PREPARED:
        assert decide(item(state), Fence(), NOW) == Decision(item(state), is_answer=False)
    timed_out = item(COMPLETE_ABORT, is_fenced=True, principal="alice")
    freed = replace(timed_out, principal="", updated_at=NOW)
    assert decide(timed_out, Fence(), NOW) == Decision(freed, is_change=True)
    assert refused(None, Fence()) == "TRANSACTIONAL_ID_NOT_FOUND"
