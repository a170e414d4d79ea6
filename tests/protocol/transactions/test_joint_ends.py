"""Several transactions that end by one decision, and ``once``, on real stores with faults and rivals (I26, I27, I28).

Protocol, "Several transactions".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.errors import AlreadyCommittedError, FencelineError
from fenceline.format import keys
from fenceline.model.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_COMMIT,
    OnceMark,
    ProducerPair,
    TransactionMember,
)
from fenceline.ports import Put
from fenceline.service.log import Log
from fenceline.transactions import item_store
from tests.support.claiming import code_of
from tests.support.service import (
    Fault,
    Service,
    is_unavailable,
    loses_answer,
    lost_behind,
    moves,
    never_arrives,
    slept_before,
)
from tests.support.sweeping import swept
from tests.support.transacting import Producer, committed, opened, outcomes, tail_of

NAMES = ("m0", "m1", "m2")
ONCE = OnceMark("app", 5, "run-1")


@pytest.fixture
def members(wide: Service) -> list[Producer]:
    """Three producers with an ongoing transaction each: all have a record in partition 0 and one of their own."""
    return [ongoing(wide, name, number) for number, name in enumerate(NAMES, 1)]


def ongoing(service: Service, name: str, partition: int) -> Producer:
    made = Producer(service, service.log, name)
    made.begin()
    for one in (0, partition):
        made.send(name, one)
    return made


def asked(members: Sequence[Producer]) -> list[TransactionMember]:
    return [TransactionMember(one.transactional_id, one.pair) for one in members]


def end(
    members: Sequence[Producer], *, is_commit: bool = True, once: OnceMark | None = None, log: Log | None = None
) -> Sequence[TransactionMember]:
    """End them; the producers keep their pairs, as those do that hear no answer."""
    used = log or (members[0].log if members else None)
    assert used is not None
    return used.transactions.end_all(asked(members), is_commit, once)


def next_ones(members: Sequence[Producer]) -> list[TransactionMember]:
    return [
        TransactionMember(one.transactional_id, one.pair._replace(producer_epoch=one.pair.producer_epoch + 1))
        for one in members
    ]


def states(members: Sequence[Producer]) -> list[str]:
    return [one.stored().state for one in members]


def check_all(members: Sequence[Producer], outcome: str) -> None:
    """Check that every transaction has this one outcome, in every partition, once."""
    service = members[0].service
    assert states(members) == [COMPLETE_COMMIT if outcome == "commit" else COMPLETE_ABORT] * len(members)
    assert [one for one, _ in outcomes(service)] == [outcome] * len(members)
    for partition in range(len(members) + 1):
        assert opened(service, partition) == []
    assert committed(service) == (list(NAMES) if outcome == "commit" else [])


def raise_once(log: Log, version: int, note: str | None = "rival") -> None:
    log.transactions.end_all([], True, OnceMark("app", version, note))


# The decision


@pytest.mark.parametrize("is_commit", [True, False])
def test_all_end_by_one_write_and_are_answered_with_their_next_pairs(
    wide: Service, members: list[Producer], is_commit: bool
) -> None:
    before = wide.count()
    assert end(members, is_commit=is_commit, once=ONCE) == next_ones(members)
    calls = wide.count() - before
    assert calls["items.write"] == 1 + len(members)  # I26: one decides all; then one completes each
    assert calls["items.get"] == 1
    check_all(members, "commit" if is_commit else "abort")
    assert wide.log.transactions.once("app") == replace(ONCE, committed_at=wide.runtime.now_ms())


def test_until_the_decision_no_member_is_ended_and_after_it_each_process_ends_all(
    wide: Service, members: list[Producer]
) -> None:
    """The process dies behind the write that decides. Readers and the sweeper finish one after the other."""
    wide.objects.always("create", is_unavailable)
    assert code_of(lambda: end(members)) == "CONCURRENT_TRANSACTIONS"
    assert states(members) == [PREPARE_COMMIT] * 3
    wide.objects.always("create", None)
    swept(wide)
    check_all(members, "commit")


def test_an_end_that_was_not_finished_goes_on_by_the_same_request(wide: Service, members: list[Producer]) -> None:
    wide.objects.always("create", is_unavailable, keys.log_prefix(wide.topic_id(), 3))
    assert code_of(lambda: end(members, once=ONCE)) == "CONCURRENT_TRANSACTIONS"
    assert states(members) == [COMPLETE_COMMIT, COMPLETE_COMMIT, PREPARE_COMMIT]
    wide.objects.always("create", None)
    assert end(members, once=ONCE, log=wide.another()) == next_ones(members)
    check_all(members, "commit")


def test_a_damaged_partition_keeps_its_own_member_prepared_and_no_other(wide: Service, members: list[Producer]) -> None:
    key = keys.segment_key(wide.topic_id(), 1, 0)
    found = wide.objects.store.get(key)
    wide.objects.store.delete(key)
    wide.objects.store.create(key, found.body[:-1] + b"?", found.metadata)
    assert code_of(lambda: end(members, log=wide.another())) == "CORRUPT_LOG"
    assert states(members) == [PREPARE_COMMIT, COMPLETE_COMMIT, COMPLETE_COMMIT]


def test_the_most_members_that_one_decision_takes_fit_one_write(wide: Service) -> None:
    """96 and the version; half of them are passed over, and their items are conditions."""
    made = [Producer(wide, wide.log, f"m{number:02d}") for number in range(limits.TRANSACTIONS_PER_END_MAX)]
    for number, one in enumerate(made):
        one.begin()
        if number % 2:
            one.add(number % 3)
    ended = end(made, once=ONCE)
    assert [pair.producer_epoch for _, pair in ended] == [number % 2 for number in range(96)]
    assert {one.stored().state for one in made[::2]} == {EMPTY}
    assert {one.stored().state for one in made[1::2]} == {COMPLETE_COMMIT}


def test_the_markers_of_one_partition_follow_each_other_so_that_they_may_share_segments(
    wide: Service, members: list[Producer]
) -> None:
    """Side by side, those that wait for one partition go into one create."""
    created: list[int] = []

    def note(operation: str, key: str) -> None:
        if operation == "create":
            created.append(keys.parse_segment_key(key)[1])

    wide.objects.on_call = note
    end(members)
    assert len(created) == 6
    assert created == sorted(created)


def test_each_member_at_its_last_epoch_goes_on_with_a_producer_id_of_its_own(
    wide: Service, members: list[Producer]
) -> None:
    last = limits.PRODUCER_EPOCH_MAX
    for one in members[:2]:
        stored = one.stored()
        wide.items.store.write([replace(stored, producer_epoch=last).put(wide.runtime)])
        one.pair = ProducerPair(stored.producer_id, last)
    ended = end(members)
    given = {pair.producer_id for _, pair in ended[:2]}
    assert len(given) == 2
    assert not given & {one.pair.producer_id for one in members}
    assert [pair.producer_epoch for _, pair in ended] == [0, 0, 1]
    for (name, pair), one in zip(ended[:2], members, strict=False):
        found = item_store.read_by_producer(wide.log.context, pair.producer_id)
        assert found is not None
        assert found.transactional_id == name == one.transactional_id
    assert end(members) == ended


# A refusal changes nothing


def test_a_member_that_is_refused_leaves_every_other_one_ongoing(wide: Service, members: list[Producer]) -> None:
    other = Producer(wide, wide.another(), NAMES[1])
    other.begin()
    with pytest.raises(FencelineError) as caught:
        end(members, once=ONCE)
    assert (caught.value.code, caught.value.transactional_id) == ("PRODUCER_FENCED", "m1")
    assert states(members) == [ONGOING, EMPTY, ONGOING]
    assert wide.log.transactions.once("app").version == -1
    assert [one for one, _ in outcomes(wide)] == ["abort"]


def test_a_time_out_that_is_met_first_wins_and_leaves_the_others(wide: Service, members: list[Producer]) -> None:
    """It is met between the read and the write: one write decides (I10), and the end reads what became of it."""
    members[1].timeout_ms = 10
    members[1].begin()
    members[1].send("late", 0)
    wide.runtime.advance(1_000)
    wide.items.plan("write", slept_before(lambda: wide.another().transactions.get("m1")))
    with pytest.raises(FencelineError) as caught:
        end(members, once=ONCE)
    assert (caught.value.code, caught.value.transactional_id) == ("PRODUCER_FENCED", "m1")
    assert states(members) == [ONGOING, COMPLETE_ABORT, ONGOING]


def test_a_member_that_begins_a_transaction_meanwhile_is_not_left_out(wide: Service, members: list[Producer]) -> None:
    """It was passed over by what was read; the write is conditional on that, too."""
    calm = Producer(wide, wide.log, "calm")
    calm.begin()
    wide.items.plan("write", slept_before(lambda: calm.send("just now", 0)))
    ended = end([*members, calm])
    assert ended[-1].pair.producer_epoch == 1
    assert "just now" in committed(wide)


# Lost answers


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decision_that_was_not_answered_is_found_and_made_once(
    wide: Service, members: list[Producer], fault: Fault, is_commit: bool
) -> None:
    wide.items.plan("write", fault)
    assert end(members, is_commit=is_commit, once=ONCE) == next_ones(members)
    check_all(members, "commit" if is_commit else "abort")


def test_the_same_request_again_is_answered_the_same_until_a_member_begins_anew(
    wide: Service, members: list[Producer]
) -> None:
    first = end(members, once=ONCE)
    assert end(members, once=ONCE, log=wide.another()) == first
    raise_once(wide.log, 9)
    assert end(members, once=ONCE) == first  # a repeat does not look at the version
    again = Producer(wide, wide.log, NAMES[2], pair=first[2].pair)
    again.send("next", 0)
    assert code_of(lambda: end(members)) == "PRODUCER_FENCED"
    assert again.stored().state == ONGOING


def test_a_rival_that_raised_the_version_meanwhile_refuses_though_a_write_was_not_answered(
    wide: Service, members: list[Producer]
) -> None:
    """The members are ongoing as before, so the lost write was not carried out; it never will be (I27)."""

    def lost_before_a_rival(call: Callable[[], Any]) -> Any:
        raise_once(wide.another(), 5)
        return never_arrives(call)

    wide.items.plan("write", lost_before_a_rival)
    with pytest.raises(AlreadyCommittedError) as caught:
        end(members, once=ONCE)
    assert (caught.value.version, caught.value.note) == (5, "rival")
    assert states(members) == [ONGOING] * 3


def test_a_lost_decision_of_members_fenced_since_is_shown_by_the_version(
    wide: Service, members: list[Producer]
) -> None:
    """Without ``once`` the outcome is unknown: what was decided is forgotten with the pair."""

    def fence() -> None:
        for name in NAMES:
            Producer(wide, wide.another(), name).begin()

    wide.items.plan("write", lost_behind(fence))
    with pytest.raises(AlreadyCommittedError) as caught:
        end(members, once=ONCE)
    assert (caught.value.version, caught.value.note) == (5, "run-1")
    assert committed(wide) == list(NAMES)

    more = [ongoing(wide, name, number) for number, name in enumerate(NAMES, 1)]
    wide.items.plan("write", lost_behind(fence))
    assert code_of(lambda: end(more)) == "OUTCOME_UNKNOWN"


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_a_version_that_is_raised_alone_is_raised_once_though_the_answer_is_lost(wide: Service, fault: Fault) -> None:
    wide.items.plan("write", fault)
    assert end([], once=ONCE, log=wide.log) == []
    assert wide.log.transactions.once("app").version == 5
    assert code_of(lambda: end([], once=ONCE, log=wide.log)) == "ALREADY_COMMITTED"


# Reads that are of no single moment


def torn(act: Callable[[], object], *names: str) -> Fault:
    """Return a read between whose items another process acts: those of ``names`` were read before it."""

    def fault(call: Callable[[], Any]) -> Any:
        before: Mapping[Any, Any] = call()
        act()
        return {**call(), **{key: item for key, item in before.items() if key.sort in names}}

    return fault


@pytest.mark.parametrize("stale", [("m1",), ("m0", "m2"), NAMES])
def test_a_read_amid_the_decision_is_taken_for_no_mixture(
    wide: Service, members: list[Producer], stale: Sequence[str]
) -> None:
    """The same request is served twice at once. Each answers as the request, whatever its read has seen halfway."""
    wide.items.plan("get", torn(lambda: end(members, once=ONCE, log=wide.another()), *stale))
    assert end(members, once=ONCE) == next_ones(members)
    check_all(members, "commit")


def test_a_version_that_is_read_after_the_own_decision_refuses_no_repeat(
    wide: Service, members: list[Producer]
) -> None:
    def halfway(call: Callable[[], Any]) -> Any:
        before = dict(call())
        end(members, once=ONCE, log=wide.another())
        return {**before, **{key: item for key, item in call().items() if key.sort == "app"}}

    wide.items.plan("get", halfway)
    assert end(members, once=ONCE) == next_ones(members)


# Once


def test_of_two_runs_of_one_version_one_commits_and_the_other_changes_nothing(
    wide: Service, members: list[Producer]
) -> None:
    rivals = [ongoing(wide, f"rival-{number}", number) for number in (1, 2)]
    wide.items.plan("write", slept_before(lambda: end(rivals, once=replace(ONCE, note="run-2"), log=wide.another())))
    with pytest.raises(AlreadyCommittedError) as caught:
        end(members, once=ONCE)
    assert (caught.value.version, caught.value.note) == (5, "run-2")
    assert states(members) == [ONGOING] * 3
    assert states(rivals) == [COMPLETE_COMMIT] * 2
    end(members, is_commit=False)
    assert committed(wide) == ["rival-1", "rival-2"]


def test_one_transaction_raises_the_version_with_its_end(wide: Service, members: list[Producer]) -> None:
    one, other, _ = members
    transactions = wide.log.transactions
    assert transactions.end(one.transactional_id, one.pair, True, ONCE).producer_epoch == 1
    assert transactions.end(one.transactional_id, one.pair, True, ONCE).producer_epoch == 1
    refused = code_of(lambda: transactions.end(other.transactional_id, other.pair, True, ONCE))
    assert refused == "ALREADY_COMMITTED"
    assert states(members) == [COMPLETE_COMMIT, ONGOING, ONGOING]
    assert code_of(lambda: transactions.end("m0", ProducerPair(0, 1), True, replace(ONCE, version=6)))
    assert transactions.once("app").version == 5


def test_applications_have_versions_of_their_own(wide: Service) -> None:
    for app_id in ("app", "appendix", "ünïcode app"):
        wide.log.transactions.end_all([], True, OnceMark(app_id, 0))
        assert wide.log.transactions.once(app_id).version == 0
    assert wide.log.transactions.once("none") == OnceMark("none", -1)


@pytest.mark.parametrize("fault", [loses_answer, never_arrives, is_unavailable, moves])
def test_a_version_that_is_forgotten_may_be_committed_again(wide: Service, fault: Fault) -> None:
    transactions = wide.log.transactions
    raise_once(wide.log, 5)
    wide.items.plan("write", fault)
    transactions.forget_once("app")
    transactions.forget_once("app")
    assert transactions.once("app").version == -1
    raise_once(wide.log, 0)
    assert transactions.once("app").version == 0


def test_to_forget_leaves_what_another_principal_has_committed_meanwhile(wide: Service) -> None:
    transactions = wide.log.transactions
    transactions.end_all([], True, ONCE, principal="alice")

    def read_before(call: Callable[[], Any]) -> Any:
        found = call()
        transactions.forget_once("app", principal="alice")
        transactions.end_all([], True, replace(ONCE, version=1), principal="bob")
        return found

    wide.items.plan("get", read_before)
    assert code_of(lambda: transactions.forget_once("app", principal="alice")) == "NOT_AUTHORIZED"
    assert transactions.once("app", principal="bob").version == 1


def test_a_version_never_expires(wide: Service) -> None:
    raise_once(wide.log, 5)
    wide.runtime.advance(20 * limits.TRANSACTIONAL_ID_MS)
    swept(wide)
    assert wide.log.transactions.once("app").version == 5


# Extensions


def test_no_process_ends_an_extended_transaction_before_its_extension_is_over(
    wide: Service, members: list[Producer]
) -> None:
    """I28: neither a reader, nor the sweeper, nor a look at it; afterwards each does."""
    one = members[0]
    extended = wide.log.transactions.extend("m0", one.pair, 600_000)
    assert extended == wide.runtime.now_ms() + 600_000
    wide.runtime.advance(599_000)
    swept(wide)
    assert committed(wide) == []
    shown = wide.another().transactions.get("m0")
    assert (shown.state, shown.expires_at) == (ONGOING, extended)
    wide.runtime.advance(2_000)
    assert wide.another().transactions.get("m0").state == COMPLETE_ABORT
    assert tail_of(wide, wide.log).state.open_transactions == {}


def test_a_shorter_extension_and_a_clock_that_is_behind_move_nothing(wide: Service, members: list[Producer]) -> None:
    transactions, pair = wide.log.transactions, members[0].pair
    first = transactions.extend("m0", pair, 600_000)
    before = wide.count()
    assert transactions.extend("m0", pair, 1_000) == first
    wide.runtime.advance(-500_000)
    assert transactions.extend("m0", pair, 600_000) == first
    assert (wide.count() - before)["items.write"] == 0


@pytest.mark.parametrize("fault", [loses_answer, never_arrives])
def test_an_extension_that_was_not_answered_is_made(wide: Service, members: list[Producer], fault: Fault) -> None:
    wide.items.plan("write", fault)
    extended = wide.log.transactions.extend("m0", members[0].pair, 600_000)
    assert extended == members[0].stored().expires_at


def test_a_transaction_past_its_time_is_not_extended_but_aborted(wide: Service, members: list[Producer]) -> None:
    wide.runtime.advance(61_000)
    assert code_of(lambda: wide.log.transactions.extend("m0", members[0].pair, 600_000)) == "PRODUCER_FENCED"
    assert members[0].stored().state == COMPLETE_ABORT


def test_a_decided_joint_end_is_finished_and_not_extended(wide: Service, members: list[Producer]) -> None:
    wide.objects.always("create", is_unavailable)
    assert code_of(lambda: end(members)) == "CONCURRENT_TRANSACTIONS"
    wide.objects.always("create", None)
    pair = members[0].stored().pair
    assert code_of(lambda: wide.log.transactions.extend("m0", pair, 1_000)) == "INVALID_TXN_STATE"
    assert members[0].stored().state == COMPLETE_COMMIT


def test_an_item_older_than_extensions_is_read_and_written_as_it_was(wide: Service, members: list[Producer]) -> None:
    key = keys.transaction_item("m0")
    stored = wide.items.store.get([key])[key]
    assert "expires_at" not in stored.value
    wide.items.store.write([Put(key, stored.value, stored.version + 1, stored.version)])
    assert members[0].stored().expires_at is None
