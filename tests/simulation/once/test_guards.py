"""Each guard of `once`, of ends together and of extensions, switched off: the seeds find it, and pass with it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from fenceline.errors import FencelineError
from fenceline.model.transaction import ONGOING
from fenceline.ports import Check, Put
from fenceline.transactions import decide, finish, joint_end
from fenceline.transactions.committed_version import OnceItem
from fenceline.transactions.decide import Decision
from fenceline.transactions.item import TransactionItem
from fenceline.transactions.joint_end import EndCoordinator
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.stores import Faults
from tests.simulation.once.scenario import SCENARIO, OncePlan, draw_plan

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Plans in which seeds meet what a guard is for


def drivers(seed: int) -> OncePlan:
    """Draw drivers that race for each version, in processes that work: only the version is between them."""
    casts = ("driver", "driver", "driver", "onlooker")
    plan = replace(draw_plan(seed), faults=Faults(), breaks=False, casts=casts, rounds=3, timeouts_ms=(60_000,))
    return replace(plan, shares_ids=False, death=0)


def fenced(seed: int) -> OncePlan:
    """Draw the same, with ids that they take from each other."""
    return replace(drivers(seed), shares_ids=True)


def torn_reads(seed: int) -> OncePlan:
    """Draw the same, on a store whose reads of several items are not of one moment."""
    return replace(joiners(seed), faults=Faults(torn_read=0.8))


def lost_answers(seed: int) -> OncePlan:
    faults = Faults(answer_lost=0.1, slow=0.05, call_lost=0.03)
    return replace(draw_plan(seed), faults=faults, casts=("driver", "driver", "joiner", "joiner"), rounds=4)


def joiners(seed: int) -> OncePlan:
    """Draw producers that share ids and end several together, in processes that work."""
    casts = ("joiner", "joiner", "joiner", "onlooker")
    return replace(draw_plan(seed), faults=Faults(), breaks=False, casts=casts, rounds=6)


def dying(seed: int) -> OncePlan:
    """Draw processes that die and freeze amid ends."""
    faults = Faults(crash=0.01, freeze=0.01, freeze_ms=5_000)
    casts = ("driver", "driver", "joiner", "onlooker", "follower", "sweeper")
    return replace(draw_plan(seed), faults=faults, casts=casts, patience_ms=3_000)


def slow_tasks(seed: int) -> OncePlan:
    """Draw tasks that take longer than their time-outs, and ask for more."""
    casts = ("driver", "joiner", "onlooker", "follower", "sweeper")
    plan = replace(draw_plan(seed), faults=Faults(), breaks=False, casts=casts, rounds=4, patience_ms=60_000)
    return replace(plan, timeouts_ms=(500,), commit_timeout_ms=30_000, skew_ms=0)


# The write (I26)


@GUARDS.guard(joiners, seed=9)
def writes_over_another_decision(patch: Patch) -> None:
    """Write the decision over members on whatever versions they have by now."""
    patch.setattr(EndCoordinator, "_write", _loose(EndCoordinator._write, "transactions/"))


@GUARDS.guard(drivers, seed=53)
def writes_over_another_version(patch: Patch) -> None:
    """Raise the version on whatever version its item has by now."""
    patch.setattr(EndCoordinator, "_write", _loose(EndCoordinator._write, "once/"))


def _loose(wrote: Any, place: str) -> Any:
    """Return the write without its conditions on the items of one place."""

    def blind(items: Any, changes: Any) -> None:
        found = items.get([one.key for one in changes if one.key.partition.startswith(place)])
        items.write([_anew(one, found) if one.key.partition.startswith(place) else one for one in changes])

    return _writing(wrote, blind)


def _writing(wrote: Any, write_to: Callable[[Any, Any], None]) -> Any:
    """Return the write of a coordinator whose item store is written as ``write_to`` says."""

    class Items:
        def __init__(self, items: Any) -> None:
            self._items = items

        def __getattr__(self, name: str) -> Any:
            return getattr(self._items, name)

        def write(self, changes: Any) -> None:
            write_to(self._items, changes)

    def write(self: EndCoordinator, decision: Any) -> Any:
        other = copy(self)
        other._context = copy(self._context)
        object.__setattr__(other._context, "items", Items(self._context.items))
        return wrote(other, decision)

    return write


def _anew(change: Any, found: Any) -> Any:
    """Return the change on whatever version the item has by now."""
    if change.key not in found:
        return replace(change, expected=None) if isinstance(change, Put) else change
    version = found[change.key].version
    return replace(change, expected=version, **({"version": version + 1} if isinstance(change, Put) else {}))


@GUARDS.guard(drivers, seed=2)
def writes_each_member_by_itself(patch: Patch) -> None:
    """Decide one member after another, and the version last."""
    wrote = EndCoordinator._write

    def write(self: EndCoordinator, decision: Any) -> Any:
        alone = [wrote(self, replace(decision, members=[one], once=None)) for one in decision.members]
        last = decision if decision.once is None else wrote(self, replace(decision, members=[]))
        return replace(last, members=[member for one in alone for member in one.members])

    patch.setattr(EndCoordinator, "_write", write)


@GUARDS.guard(joiners, seed=14)
def leaves_out_what_begins_meanwhile(patch: Patch) -> None:
    """Write without a condition on what is passed over."""

    def loose(items: Any, changes: Any) -> None:
        items.write([one for one in changes if not isinstance(one, Check)])

    patch.setattr(EndCoordinator, "_write", _writing(EndCoordinator._write, loose))


# The decision


@GUARDS.guard(drivers, seed=5)
def decides_what_it_can(patch: Patch) -> None:
    """Decide the members that can be, though others are refused."""
    judged = decide._judged

    def lenient(seen: Any, request: Any, member: Any, *args: Any) -> Any:
        verdict = judged(seen, request, member, *args)
        item = seen.items.get(member.transactional_id)
        return Decision(item) if isinstance(verdict, FencelineError) and item is not None else verdict

    patch.setattr(decide, "_judged", lenient)


@GUARDS.guard(drivers, seed=2)
def takes_any_version(patch: Patch) -> None:
    """Raise the version also where it is stored (I27)."""

    def anew(stored: OnceItem | None, wanted: Any, now_ms: int) -> OnceItem:
        return OnceItem(replace(wanted, committed_at=now_ms), None if stored is None else stored.version)

    patch.setattr(decide, "raised", anew)


@GUARDS.guard(lost_answers, seed=4)
def forgets_which_end_decided(patch: Patch) -> None:
    """Judge a repeat as if it were another request."""
    patch.setattr(decide, "_is_ended", lambda seen, member: False)


@GUARDS.guard(joiners, seed=3)
def ends_the_rest_of_what_was_ended(patch: Patch) -> None:
    """Decide what is under way, though another member was ended before."""
    ended = decide._is_ended

    def blind(seen: Any, member: Any) -> bool:
        return ended(seen, member) and not any(item.state == ONGOING for item in seen.items.values())

    patch.setattr(decide, "_is_ended", blind)


@GUARDS.guard(fenced, seed=32)
def passes_over_what_was_fenced(patch: Patch) -> None:
    """Pass over each member without a transaction under way, whatever became of its pair."""
    patch.setattr(decide, "_is_idle", lambda item, member: item is not None and item.state in decide._IDLE)


@GUARDS.guard(joiners, seed=7)
def passes_over_every_member(patch: Patch) -> None:
    """Answer where there is nothing to end, though the pairs stay as they are."""
    judged = decide.decide_ends

    def empty(seen: Any, request: Any, now_ms: int, **kwargs: Any) -> Any:
        if request.once is None and all(
            decide._is_idle(seen.items.get(one.transactional_id), one) for one in request.members
        ):
            return decide.EndsDecision([Decision(seen.items[one.transactional_id]) for one in request.members])
        return judged(seen, request, now_ms, **kwargs)

    patch.setattr(joint_end, "decide_ends", empty)


@GUARDS.guard(joiners, seed=15)
def takes_an_end_without_the_version_for_a_repeat(patch: Patch) -> None:
    """Answer with 200 where the members were ended, though the version is not stored."""
    patch.setattr(decide, "_is_committed", lambda seen, request: True)


@GUARDS.guard(drivers, seed=3)
def judges_members_before_the_version(patch: Patch) -> None:
    """Refuse a member where the version is committed."""
    judged = decide.decide_ends

    def hasty(seen: Any, request: Any, now_ms: int, **kwargs: Any) -> Any:
        if not request.members:
            return judged(seen, request, now_ms, **kwargs)
        try:
            return judged(seen, replace(request, once=None), now_ms, **kwargs) and judged(
                seen, request, now_ms, **kwargs
            )
        except FencelineError as error:
            if "nothing to end" in error.detail:
                return judged(seen, request, now_ms, **kwargs)
            raise

    patch.setattr(joint_end, "decide_ends", hasty)


@GUARDS.guard(torn_reads, seed=47)
def answers_from_one_read(patch: Patch) -> None:
    """Answer from items that were read at different moments."""
    patch.setattr(EndCoordinator, "_check_moment", lambda *args: None)


# The ending


@GUARDS.guard(joiners, seed=2)
def answers_before_the_markers(patch: Patch) -> None:
    """Answer once all is decided, before any of it is finished."""
    patch.setattr(joint_end, "finish_all", lambda partitions, items, until_ms: [_finished(item) for item in items])


def _finished(item: TransactionItem) -> TransactionItem:
    return decide.completed(item, 0).item if item.is_prepared else item


@GUARDS.guard(joiners, seed=5)
def finishes_what_is_under_way(patch: Patch) -> None:
    """Complete the members whose markers are missing, where those of another are there."""
    made = finish._make

    def early(context: Any, kinds: Any, until_ms: int) -> None:
        made(context, [kinds[0][:1], kinds[1]], until_ms)

    patch.setattr(finish, "_make", early)


# Extensions (I28)


@GUARDS.guard(slow_tasks, seed=3)
def forgets_the_extension(patch: Patch) -> None:
    """Take the time-out alone for what is due."""
    late = TransactionItem.is_out_of_time
    patch.setattr(TransactionItem, "is_out_of_time", lambda self, now_ms: late(replace(self, expires_at=None), now_ms))


@GUARDS.guard(slow_tasks, seed=2)
def keeps_the_extension_for_the_next_transaction(patch: Patch) -> None:
    """Let an extension outlive its transaction."""
    emptied = decide._emptied
    patch.setattr(decide, "_emptied", lambda item, *args: replace(emptied(item, *args), expires_at=item.expires_at))


@GUARDS.guard(slow_tasks, seed=3)
def shortens_an_extension(patch: Patch) -> None:
    """Let the request that comes last decide, whatever was promised before."""
    extended = decide._extend
    patch.setattr(decide, "_extend", lambda item, *args: extended(replace(item, expires_at=None), *args))


@GUARDS.guard(slow_tasks, seed=1)
def extends_what_is_past(patch: Patch) -> None:
    """Answer an extension where nothing is under way, and note it for what comes."""

    extended = decide._extend

    def extend(item: TransactionItem, request: Any, now_ms: int) -> Decision:
        if item.state == ONGOING:
            return extended(item, request, now_ms)
        return Decision(replace(item, expires_at=now_ms + request.timeout_ms), is_change=True)

    patch.setattr(decide, "_extend", extend)


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
