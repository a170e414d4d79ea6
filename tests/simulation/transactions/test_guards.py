"""Each guard of transactions, switched off: the seeds find what it was there for, and pass with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fenceline import limits
from fenceline.access.ownership import read_guard
from fenceline.append import checks
from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.log.partition import Partition
from fenceline.log.state import PartitionState
from fenceline.ports import Check, Put
from fenceline.read.aborted import Outcomes
from fenceline.recovery.open_transactions import OpenTransactions
from fenceline.service import subscriptions
from fenceline.subscriptions.committed_offsets import OffsetQuery
from fenceline.subscriptions.items import CursorItem
from fenceline.transactions import decide, finish, hanging, item_store, pending_offsets
from fenceline.transactions.item import TransactionItem
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.stores import Faults
from tests.simulation.transactions.scenario import SCENARIO, TransactionPlan, draw_plan

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Plans in which seeds meet what a guard is for


def zombies(seed: int) -> TransactionPlan:
    """Draw producers that take one id from each other, in processes that work."""
    casts = ("producer", "producer", "producer", "follower", "meddler")
    return replace(
        draw_plan(seed), faults=Faults(), breaks=False, casts=casts, ids=1, rounds=6, timeouts_ms=(500, 3_000)
    )


def lost_answers(seed: int) -> TransactionPlan:
    faults = Faults(answer_lost=0.15, slow=0.05, call_lost=0.05)
    return replace(
        draw_plan(seed), faults=faults, casts=("producer", "producer", "processor", "feeder"), ids=2, rounds=6
    )


def unanswered_keepers(seed: int) -> TransactionPlan:
    """Draw producers that keep their ids, alone with each, on stores that lose answers."""
    casts = ("producer", "producer", "producer", "producer")
    return replace(
        draw_plan(seed), faults=Faults(answer_lost=0.15), breaks=False, casts=casts, ids=4, rounds=6, patience_ms=60_000
    )


def processors(seed: int) -> TransactionPlan:
    casts = ("processor", "processor", "processor", "feeder", "feeder")
    faults = Faults(answer_lost=0.05, crash=0.01)
    return replace(draw_plan(seed), faults=faults, casts=casts, rounds=6, patience_ms=3_000)


def owners(seed: int) -> TransactionPlan:
    """Draw processors with ids of their own, which sever each other amid their transactions."""
    return replace(processors(seed), owns=True, timeouts_ms=(3_000,))


def rivals(seed: int) -> TransactionPlan:
    """Draw commits of other kinds beside those of transactions, in processes that work."""
    casts = ("producer", "producer", "producer", "committer", "committer", "aborter", "aborter")
    return replace(draw_plan(seed), faults=Faults(), breaks=False, casts=casts, rounds=6, timeouts_ms=(60_000,))


def rebuilt(seed: int) -> TransactionPlan:
    """Draw producers to many partitions, and rebuilds of many moments: some are between two markers of a commit."""
    plan = replace(
        draw_plan(seed), faults=Faults(), breaks=False, casts=("producer", "producer"), timeouts_ms=(60_000,)
    )
    return replace(plan, partitions=3, rounds=6, ids=2, rebuilds=10)


def contenders(seed: int) -> TransactionPlan:
    """Draw producers that take one id from each other amid what they send to one group."""
    casts = ("producer", "producer", "producer", "producer", "committer")
    return replace(rivals(seed), casts=casts, ids=1, timeouts_ms=(500,))


def stalled(seed: int) -> TransactionPlan:
    """Draw processes that freeze before an append, for longer than a transaction, less long than an admission."""
    casts = ("producer", "producer", "producer", "sweeper", "sweeper", "follower")
    plan = replace(draw_plan(seed), breaks=False, casts=casts, processes=3, rounds=6, ids=2, checkpoint_segments=1)
    faults = Faults(freeze_at_append=0.2, freeze_ms=20_000)
    return replace(plan, faults=faults, timeouts_ms=(500,), expiration_ms=1, patience_ms=200_000, skew_ms=0)


def stalled_for_long(seed: int) -> TransactionPlan:
    """Draw processes that freeze before an append, for longer than an admission holds, beside thorough sweeps."""
    casts = ("producer", "producer", "producer", "feeder", "feeder", "sweeper", "sweeper", "sweeper")
    # An id that no other producer takes: what a partition knows of it goes while its process is frozen.
    plan = replace(stalled(seed), casts=casts, ids=9, lapse_margin_ms=1_000)
    return replace(plan, faults=Faults(freeze_at_append=0.15, freeze_ms=90_000))


# Admission (I12)


@GUARDS.guard(zombies, seed=3)
def admits_without_asking(patch: Patch) -> None:
    """Append a batch to a partition that its transaction does not name."""
    judged = checks._check_transaction

    def hasty(*args: Any) -> Any:
        verdict = judged(*args)
        return None if isinstance(verdict, AskCoordinator) else verdict

    patch.setattr(checks, "_check_transaction", hasty)


@GUARDS.guard(stalled_for_long, seed=2)
def admits_for_ever(patch: Patch) -> None:
    """Let an admission hold however old it is, and whatever was forgotten since."""
    patch.setattr(CoordinatorAnswer, "holds", lambda self, seen: True)


@GUARDS.guard(stalled, seed=1)
def forgets_the_epoch_of_what_lapsed(patch: Patch) -> None:
    """Let a lapse end a producer's epoch, too, to a transactional batch."""
    unlapsed = checks._unlapsed

    def forgetful(state: Any, producer: Any, header: Any, expiration_ms: int, now_ms: int) -> Any:
        if producer is None or header.producer_id in state.open_transactions:
            return producer
        left = unlapsed(state, producer, header, expiration_ms, now_ms)
        return left if now_ms - producer.time <= expiration_ms else None

    patch.setattr(checks, "_unlapsed", forgetful)


@GUARDS.guard(zombies, seed=6)
def takes_plain_batches_amid_a_transaction(patch: Patch) -> None:
    """Append a plain batch of a producer that is open here, of any epoch (I11)."""
    judged = checks._check_transaction

    def blind(state: Any, header: Any, *args: Any) -> Any:
        return judged(state, header, *args) if header.is_transactional else None

    patch.setattr(checks, "_check_transaction", blind)


# The end


@GUARDS.guard(zombies, seed=3)
def completes_before_the_markers(patch: Patch) -> None:
    """Complete a transaction whose markers are still to come (I12)."""
    made = finish._make

    def early(context: Any, kinds: Any, until_ms: int) -> Any:
        made(context, [kinds[0][:1], kinds[1]], until_ms)
        return []

    patch.setattr(finish, "_make", early)


@GUARDS.guard(processors, seed=3)
def completes_before_the_cursors(patch: Patch) -> None:
    """Complete a transaction whose offsets are still pending (I14)."""
    made = finish._make
    patch.setattr(finish, "_make", lambda context, kinds, until_ms: made(context, [kinds[0], []], until_ms))


@GUARDS.guard(stalled_for_long, seed=15)
def appends_a_marker_without_a_read(patch: Patch) -> None:
    """Append the marker of a producer that is not open, or unknown, without a read of its item (I12)."""
    judged = EndEntry.check

    def hasty(self: EndEntry, tentative: Any, now_ms: int) -> Any:
        verdict = judged(self, tentative, now_ms)
        return self._stamped(tentative, now_ms) if isinstance(verdict, AskCoordinator) else verdict

    patch.setattr(EndEntry, "check", hasty)


@GUARDS.guard(lost_answers, seed=6)
def appends_a_marker_again(patch: Patch) -> None:
    """Append a marker also where the log has reached its epoch (I11, I12)."""
    patch.setattr(EndEntry, "check", lambda self, tentative, now_ms: self._stamped(tentative, now_ms))


@GUARDS.guard(zombies, seed=3)
def writes_over_another_decision(patch: Patch) -> None:
    """Write a decision on whatever version the item has by now (I10)."""
    wrote = item_store.write_all

    def latest(context: Any, decision: Any) -> Any:
        item = item_store.read(context, decision.item.transactional_id)
        return replace(decision, item=replace(decision.item, version=None if item is None else item.version))

    def blind(context: Any, decisions: Any, others: Any = ()) -> Any:
        return wrote(context, [latest(context, one) for one in decisions], others)

    patch.setattr(item_store, "write_all", blind)


# Pairs (I13)


@GUARDS.guard(zombies, seed=14)
def gives_a_fenced_epoch(patch: Patch) -> None:
    """Take a request with the epoch that only the markers have."""
    patch.setattr(decide, "_check_epoch", _epoch_alone(decide._check_epoch))


def _epoch_alone(judged: Callable[..., None]) -> Callable[..., None]:
    return lambda item, pair: judged(replace(item, is_fenced=False), pair)


@GUARDS.guard(lost_answers, seed=3)
def forgets_which_end_decided(patch: Patch) -> None:
    """Judge a repeated END_TXN as if it were another one."""
    ended = decide._end
    patch.setattr(decide, "_end", lambda item, *args: ended(None if item is None else replace(item, ended=None), *args))


@GUARDS.guard(unanswered_keepers, seed=28)
def forgets_the_pair_that_was_kept(patch: Patch) -> None:
    """Judge a repeated request to keep the id as if it were another one."""
    begun = decide._init
    patch.setattr(decide, "_init", lambda item, *args: begun(None if item is None else replace(item, kept=None), *args))


@GUARDS.guard(zombies, seed=3)
def gives_the_last_epoch(patch: Patch) -> None:
    """Give a producer the epoch that is only ever a marker's."""

    class Limits:
        def __getattr__(self, name: str) -> Any:
            return getattr(limits, name) + 1 if name == "PRODUCER_EPOCH_MAX" else getattr(limits, name)

    patch.setattr(decide, "limits", Limits())


# Offsets (I14, I15)


@GUARDS.guard(contenders, seed=8)
def sends_offsets_beside_the_item(patch: Patch) -> None:
    """Send offsets on whatever version the transaction has by now."""
    condition = pending_offsets._condition

    def loose(context: Any, item: TransactionItem, named: TransactionItem) -> Any:
        found = item_store.read(context, item.transactional_id)
        version = None if found is None else found.version
        change = condition(context, item, named)
        return replace(change, expected=version) if isinstance(change, Put) else Check(change.key, version)

    patch.setattr(pending_offsets, "_condition", loose)


@GUARDS.guard(rivals, seed=2)
def settles_in_the_order_of_the_ends(patch: Patch) -> None:
    """Let the transaction that ends last win, not the commit that was sent last."""
    ended = CursorItem.ended

    def late(self: CursorItem, *args: Any, **more: Any) -> CursorItem:
        return ended(replace(self, settled=-1), *args, **more) if self.pending else ended(self, *args, **more)

    patch.setattr(CursorItem, "ended", late)


@GUARDS.guard(owners, seed=3)
def begins_where_offsets_are_pending(patch: Patch) -> None:
    """Answer a request for stable offsets with those in force (KIP-447)."""
    patch.setattr(subscriptions, "OffsetQuery", _unstable)


def _unstable(topic: Any, partition: Any, require_stable: bool, *args: Any) -> OffsetQuery:
    return OffsetQuery(topic, partition, False, *args)


# Readers


@GUARDS.guard(zombies, seed=2)
def shows_what_was_aborted(patch: Patch) -> None:
    """Leave out no aborted batch."""
    patch.setattr(Outcomes, "is_aborted", lambda self, header: False)


@GUARDS.guard(zombies, seed=3)
def reads_on_past_open_transactions(patch: Patch) -> None:
    """Take the log's end for the last stable offset."""
    patch.setattr(PartitionState, "last_stable_offset", lambda self, log_start: max(self.next_offset, log_start))


@GUARDS.guard(zombies, seed=6)
def answers_from_memory(patch: Patch) -> None:
    """Take refusals, and what is done without a marker, from what is remembered (I4)."""
    patch.setattr(Partition, "verified", lambda self: self.state)


# Beside transactions


@GUARDS.guard(owners, seed=3)
def takes_offsets_of_a_severed_owner(patch: Patch) -> None:
    """Take what a session sends that another has severed (KIP-447)."""
    patch.setattr(read_guard, "guard_group", lambda *args: ())


@GUARDS.guard(rivals, seed=0)
def lets_a_commit_at_once_take_no_number(patch: Patch) -> None:
    """Let an offset that was sent before a plain commit take effect after it (I15)."""
    patch.setattr(CursorItem, "numbered", lambda self: replace(self, is_set=True))


@GUARDS.guard(rivals, seed=2)
def aborts_by_hand_what_lives(patch: Patch) -> None:
    """Take each transaction for one that hangs."""
    patch.setattr(hanging, "is_hanging", lambda *args: True)


@GUARDS.guard(rebuilt, seed=6)
def forgets_the_commits_in_a_rebuild(patch: Patch) -> None:
    """Abort in a rebuild what a partition has shown."""
    patch.setattr(OpenTransactions, "note_commits", lambda *args: None)


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
