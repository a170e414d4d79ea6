"""Each guard of exclusive access, switched off: the seeds find what it was there for, and pass with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from fenceline.access import fence_markers, rules, session_item
from fenceline.access.claims import claim
from fenceline.access.ownership import decision as ownership_decision
from fenceline.access.ownership import own, read_guard
from fenceline.access.resources import OwnershipItem
from fenceline.append import checks
from fenceline.append.checks import AdmitFirst
from fenceline.append.entries import access_markers
from fenceline.append.entries.access_markers import GrantEntry
from fenceline.append.entries.entry import Marked, StoredBatch
from fenceline.errors import ProducerBusyError
from fenceline.format.control import EXCLUSIVE
from fenceline.log.retry import Attempts
from fenceline.log.state import TentativeState
from fenceline.service import produce
from tests.simulation.access.scenario import SCENARIO, AccessPlan, draw_plan
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.stores import Faults

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Plans in which seeds meet what a guard is for


def _of(seed: int, *casts: str, **more: Any) -> AccessPlan:
    return replace(draw_plan(seed), casts=casts, **{"partitions": 1, "rounds": 5, "processes": 3, **more})


def rivals(seed: int) -> AccessPlan:
    faults = Faults(slow=0.03, answer_lost=0.03, freeze=0.01, freeze_ms=6_000)
    return _of(seed, "claimer", "claimer", "claimer", "writer", "ghost", faults=faults, leases_ms=(1_000, 3_000))


def rivals_for_several(seed: int) -> AccessPlan:
    return replace(rivals(seed), partitions=3, casts=["claimer"] * 5, faults=Faults(slow=0.1, unavailable=0.1))


def busy(seed: int) -> AccessPlan:
    casts = [*["claimer"] * 2, *["owner"] * 3, *["writer"] * 3]
    return _of(seed, *casts, faults=Faults(), leases_ms=(30_000,), partitions=3)


def lost_answers(seed: int) -> AccessPlan:
    faults = Faults(answer_lost=0.2)
    return _of(seed, *["claimer"] * 3, faults=faults, leases_ms=(1_000,), patience_ms=60_000, rounds=10)


def frozen(seed: int) -> AccessPlan:
    faults = Faults(freeze=0.03, freeze_ms=3_000)
    return _of(seed, *["claimer"] * 4, "ghost", faults=faults, leases_ms=(1_000,), skew_ms=10_000)


def lines(seed: int) -> AccessPlan:
    return _of(seed, *["claimer"] * 5, faults=Faults(), leases_ms=(60_000,), breaks=False, rounds=10)


def owners(seed: int) -> AccessPlan:
    faults = Faults(slow=0.02, freeze=0.01, freeze_ms=6_000)
    return _of(seed, "owner", "owner", "owner", "ghost", "reader", faults=faults, leases_ms=(30_000,))


def sharers(seed: int) -> AccessPlan:
    """Draw sessions that share a partition and sever each other, and a ghost.

    The ghost appends under every grant that there ever was.
    """
    return replace(owners(seed), casts=[*["sharer"] * 3, "ghost"])


def returners(seed: int) -> AccessPlan:
    """Draw sessions that lapse and come back, and others whose requests take long or die in the middle."""
    faults = Faults(slow=0.2, crash=0.02, time_out_ms=300)
    return _of(seed, *["returner"] * 2, *["writer"] * 4, "claimer", faults=faults, leases_ms=(1_000,), rounds=10)


def readers(seed: int) -> AccessPlan:
    return _of(seed, "owner", "owner", "owner", "writer", "writer", faults=Faults(), leases_ms=(30_000,), breaks=False)


@GUARDS.guard(rivals, seed=5)
def judges_no_session(patch: Patch) -> None:
    """Compare nothing that is sent under a session with the log (promise 3)."""
    judged = checks._check_access

    def blind(state: Any, terms: Any) -> Any:
        return judged(state, terms) if terms.session is None else None

    patch.setattr(checks, "_check_access", blind)


@GUARDS.guard(rivals, seed=4)
def judges_by_the_epoch_alone(patch: Patch) -> None:
    """Forget the mode of a grant: in one epoch an exclusive session comes before shared ones."""
    judged = checks._check_access

    def forgetful(state: Any, terms: Any) -> Any:
        session = terms.session
        if session is not None and session.mode is not None and session.topic_epoch == state.topic_epoch:
            return None
        return judged(state, terms)

    patch.setattr(checks, "_check_access", forgetful)


@GUARDS.guard(rivals, seed=15)
def appends_any_marker(patch: Patch) -> None:
    """Append a marker of a claim whatever epoch the log has (I8)."""

    def blind(self: GrantEntry, trial: TentativeState, now_ms: int) -> StoredBatch | Marked:
        state = trial.state
        if (state.session_id, state.topic_epoch) == (self.session_id, self.epoch):
            return Marked(state.access_offset)
        return access_markers.exclusive_marker(state, self, now_ms)

    patch.setattr(GrantEntry, "check", blind)


@GUARDS.guard(rivals, seed=0)
def acts_upon_an_end_that_is_not_written(patch: Patch) -> None:
    """Let an append without a session pass over a session that looks dead, and that may come back."""

    def hasty(partitions: Any, partition: Any, asked: AdmitFirst) -> tuple[str, int]:
        context = partitions.context
        session = fence_markers.read_sessions(context, [asked.session_id]).get(asked.session_id)
        if session is not None and session.is_live(context.runtime.now_ms()):
            raise ProducerBusyError(f"session_id={asked.session_id}")
        return asked.session_id, asked.topic_epoch

    patch.setattr(produce, "admit", hasty)


@GUARDS.guard(rivals, seed=2)
def admits_whoever_comes_then(patch: Patch) -> None:
    """Let an admission hold also where the log names another session than the one that had ended."""
    judged = checks._check_access

    def loose(state: Any, terms: Any) -> Any:
        return None if terms.ended is not None else judged(state, terms)

    patch.setattr(checks, "_check_access", loose)


@GUARDS.guard(rivals, seed=5)
def appends_no_marker_back(patch: Patch) -> None:
    """Bring no marker back to shared with a record after an exclusive session that has ended."""
    judged = checks.check_append

    def silent(*args: Any, **more: Any) -> Any:
        verdict = judged(*args, **more)
        return verdict._replace(goes_back_to_shared=False) if isinstance(verdict, checks.Accepted) else verdict

    patch.setattr("fenceline.append.entries.batch.check_append", silent)


@GUARDS.guard(frozen, seed=3)
def confirms_what_is_lost(patch: Patch) -> None:
    """Confirm a claim also where another has reserved the partition since."""

    def greedy(item: Any, holder: Any) -> Any:
        return replace(item, claim=None, granted=holder, shared=())

    patch.setattr(rules, "confirmed", greedy)


@GUARDS.guard(returners, seed=32)
def resumes_what_has_ended(patch: Patch) -> None:
    """Let a reconnection look at the log, and not at whether its end was written."""
    patch.setattr(
        rules.PartitionAccess, "is_in_force", lambda self, h: self.names(h) or h.epoch > self.state.topic_epoch
    )


@GUARDS.guard(lines, seed=56)
def passes_waiters_over(patch: Patch) -> None:
    """Let a later claimer pass a waiter over."""
    column_of = rules.column_of

    def rude(view: Any, claimant: Any, lives: Any) -> Any:
        return column_of(replace(view, item=replace(view.item, waiting=())), claimant, lives)

    patch.setattr(rules, "column_of", rude)


@GUARDS.guard(rivals_for_several, seed=22)
def keeps_what_it_reserved(patch: Patch) -> None:
    """Leave the reservation of a claim that is refused in the end."""
    patch.setattr(claim.Claiming, "_give_up", lambda self, pending, **kwargs: None)


@GUARDS.guard(sharers, seed=1)
def answers_before_its_fences(patch: Patch) -> None:
    """Answer the owner before the session that it severed is fenced."""
    patch.setattr(own.OwnAttempt, "finish_fences", lambda self: None)


@GUARDS.guard(sharers, seed=2)
def fences_nothing_shared(patch: Patch) -> None:
    """Fence of a severed session only what is exclusive."""
    due_epoch = fence_markers.due_epoch

    def partly(state: Any, fence: Any, session_id: str) -> int | None:
        return due_epoch(state, fence, session_id) if fence.mode == EXCLUSIVE else None

    patch.setattr(fence_markers, "due_epoch", partly)


@GUARDS.guard(sharers, seed=5)
def severs_without_a_list(patch: Patch) -> None:
    """Leave out of the severing write what must be fenced."""
    severed = session_item.severed
    patch.setattr(session_item, "severed", lambda session, now_ms: replace(severed(session, now_ms), fences=()))


@GUARDS.guard(owners, seed=5)
def gives_a_token_again(patch: Patch) -> None:
    """Leave a resource's token what it was when its owner changes."""
    owned_by = ownership_decision.owned_by

    def same(item: OwnershipItem, *args: Any, token: int | None = None, **more: Any) -> OwnershipItem:
        return owned_by(item, *args, token=item.fencing_token if token is None else token, **more)

    patch.setattr(ownership_decision, "owned_by", same)


@GUARDS.guard(readers, seed=2)
def looks_only_before_it_reads(patch: Patch) -> None:
    """Judge a group's reader at the start alone."""

    def once(partition: Any, request: Any, principal: str, read: Callable[[], Any]) -> Any:
        read_guard.guard_group(
            partition.context, partition, partition.partition, request.group, request.session_id, principal
        )
        return read()

    patch.setattr("fenceline.groups.member_guard.guarded", once)


@GUARDS.guard(busy, seed=28)
def is_busy_by_its_memory(patch: Patch) -> None:
    """Judge from a remembered log which session is in the way of an append without a session (I4)."""
    patch.setattr(produce, "verified_tail", lambda partition: SimpleNamespace(state=partition.state))


@GUARDS.guard(lost_answers, seed=10)
def refuses_what_it_may_have_reserved(patch: Patch) -> None:
    """Forget a reservation that was not answered, if the next attempt is refused."""
    patch.setattr(claim, "Attempts", partial(Attempts, is_refusal_final=True))


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
