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
from fenceline.transactions import decide, decide_ends, ends, finish
from fenceline.transactions.decide import Decision
from fenceline.transactions.ends import JointCoordinator
from fenceline.transactions.item import TransactionItem
from fenceline.transactions.once import OnceItem
from tests.simulation.harness.stores import Faults
from tests.simulation.log.truth import Violation
from tests.simulation.once.scenario import FailedOnce, OncePlan, draw_plan, run_seed

pytestmark = pytest.mark.slow

SEEDS_MAX = 100
FIRST_SEEDS = {  # from which on seeds are tried; of the others from 0 on
    "leaves_out_what_begins_meanwhile": 24,
    "writes_over_another_version": 26,
}

Patch = pytest.MonkeyPatch


# The write (I26)


def writes_over_another_decision(patch: Patch) -> None:
    """Write the decision over members on whatever versions they have by now."""
    patch.setattr(JointCoordinator, "_write", _loose(JointCoordinator._write, "transactions/"))


def writes_over_another_version(patch: Patch) -> None:
    """Raise the version on whatever version its item has by now."""
    patch.setattr(JointCoordinator, "_write", _loose(JointCoordinator._write, "once/"))


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

    def write(self: JointCoordinator, decision: Any) -> Any:
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


def writes_each_member_by_itself(patch: Patch) -> None:
    """Decide one member after another, and the version last."""
    wrote = JointCoordinator._write

    def write(self: JointCoordinator, decision: Any) -> Any:
        once, members = decision.once, list[Decision]()
        for one in decision.members:
            alone = wrote(self, replace(decision, members=[one], once=None))
            members += alone.members
        return replace(wrote(self, replace(decision, members=[], once=once)), members=members)

    patch.setattr(JointCoordinator, "_write", write)


def leaves_out_what_begins_meanwhile(patch: Patch) -> None:
    """Write without a condition on what is passed over."""

    def loose(items: Any, changes: Any) -> None:
        items.write([one for one in changes if not isinstance(one, Check)])

    patch.setattr(JointCoordinator, "_write", _writing(JointCoordinator._write, loose))


# The decision


def decides_what_it_can(patch: Patch) -> None:
    """Decide the members that can be, though others are refused."""
    judged = decide_ends._judged

    def lenient(seen: Any, request: Any, member: Any, *told: Any) -> Any:
        verdict = judged(seen, request, member, *told)
        item = seen.items.get(member.transactional_id)
        return Decision(item) if isinstance(verdict, FencelineError) and item is not None else verdict

    patch.setattr(decide_ends, "_judged", lenient)


def takes_any_version(patch: Patch) -> None:
    """Raise the version also where it is stored (I27)."""

    def anew(stored: OnceItem | None, wanted: Any, now_ms: int) -> OnceItem:
        return OnceItem(replace(wanted, committed_at=now_ms), None if stored is None else stored.version)

    patch.setattr(decide_ends, "raised", anew)


def forgets_which_end_decided(patch: Patch) -> None:
    """Judge a repeat as if it were another request."""
    patch.setattr(decide_ends, "_is_ended", lambda seen, member: False)


def ends_the_rest_of_what_was_ended(patch: Patch) -> None:
    """Decide what is under way, though another member was ended before."""
    ended = decide_ends._is_ended

    def blind(seen: Any, member: Any) -> bool:
        return ended(seen, member) and not any(item.state == ONGOING for item in seen.items.values())

    patch.setattr(decide_ends, "_is_ended", blind)


def passes_over_what_was_fenced(patch: Patch) -> None:
    """Pass over each member without a transaction under way, whatever became of its pair."""
    patch.setattr(decide_ends, "_is_idle", lambda item, member: item is not None and item.state in decide_ends._IDLE)


def passes_over_every_member(patch: Patch) -> None:
    """Answer where there is nothing to end, though the pairs stay as they are."""
    judged = decide_ends.decide_ends

    def empty(seen: Any, request: Any, now_ms: int, **told: Any) -> Any:
        if request.once is None and all(
            decide_ends._is_idle(seen.items.get(one.transactional_id), one) for one in request.members
        ):
            return decide_ends.EndsDecision([Decision(seen.items[one.transactional_id]) for one in request.members])
        return judged(seen, request, now_ms, **told)

    patch.setattr(ends, "decide_ends", empty)


def takes_an_end_without_the_version_for_a_repeat(patch: Patch) -> None:
    """Answer with 200 where the members were ended, though the version is not stored."""
    patch.setattr(decide_ends, "_is_committed", lambda seen, request: True)


def judges_members_before_the_version(patch: Patch) -> None:
    """Refuse a member where the version is committed."""
    judged = decide_ends.decide_ends

    def hasty(seen: Any, request: Any, now_ms: int, **told: Any) -> Any:
        if not request.members:
            return judged(seen, request, now_ms, **told)
        try:
            return judged(seen, replace(request, once=None), now_ms, **told) and judged(seen, request, now_ms, **told)
        except FencelineError as error:
            if "nothing to end" in error.detail:
                return judged(seen, request, now_ms, **told)
            raise

    patch.setattr(ends, "decide_ends", hasty)


def answers_from_one_read(patch: Patch) -> None:
    """Answer from items that were read at different moments."""
    patch.setattr(JointCoordinator, "_check_moment", lambda *told: None)


# The ending


def answers_before_the_markers(patch: Patch) -> None:
    """Answer once all is decided, before any of it is finished."""
    patch.setattr(ends, "finish_all", lambda partitions, items, until_ms: [_finished(item) for item in items])


def _finished(item: TransactionItem) -> TransactionItem:
    return decide.completed(item, 0).item if item.is_prepared else item


def finishes_what_is_under_way(patch: Patch) -> None:
    """Complete the members whose markers are missing, where those of another are there."""
    made = finish._make

    def early(context: Any, kinds: Any, until_ms: int) -> None:
        made(context, [kinds[0][:1], kinds[1]], until_ms)

    patch.setattr(finish, "_make", early)


# Extensions (I28)


def forgets_the_extension(patch: Patch) -> None:
    """Take the time-out alone for what is due."""
    late = TransactionItem.is_out_of_time
    patch.setattr(TransactionItem, "is_out_of_time", lambda self, now_ms: late(replace(self, expires_at=None), now_ms))


def keeps_the_extension_for_the_next_transaction(patch: Patch) -> None:
    emptied = decide._emptied
    patch.setattr(decide, "_emptied", lambda item, *told: replace(emptied(item, *told), expires_at=item.expires_at))


def shortens_an_extension(patch: Patch) -> None:
    """Let the request that comes last decide, whatever was promised before."""
    extended = decide._extend
    patch.setattr(decide, "_extend", lambda item, *told: extended(replace(item, expires_at=None), *told))


def extends_what_is_past(patch: Patch) -> None:
    """Answer an extension where nothing is under way, and note it for what comes."""

    extended = decide._extend

    def extend(item: TransactionItem, request: Any, now_ms: int) -> Decision:
        if item.state == ONGOING:
            return extended(item, request, now_ms)
        return Decision(replace(item, expires_at=now_ms + request.timeout_ms), is_change=True)

    patch.setattr(decide, "_extend", extend)


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


@pytest.mark.parametrize(
    ("guard", "plan"),
    [
        (writes_over_another_decision, joiners),
        (writes_over_another_version, drivers),
        (writes_each_member_by_itself, drivers),
        (leaves_out_what_begins_meanwhile, joiners),
        (decides_what_it_can, drivers),
        (takes_any_version, drivers),
        (forgets_which_end_decided, lost_answers),
        (ends_the_rest_of_what_was_ended, joiners),
        (passes_over_what_was_fenced, fenced),
        (passes_over_every_member, joiners),
        (takes_an_end_without_the_version_for_a_repeat, joiners),
        (judges_members_before_the_version, drivers),
        (answers_from_one_read, torn_reads),
        (answers_before_the_markers, joiners),
        (finishes_what_is_under_way, joiners),
        (forgets_the_extension, slow_tasks),
        (keeps_the_extension_for_the_next_transaction, slow_tasks),
        (shortens_an_extension, slow_tasks),
        (extends_what_is_past, slow_tasks),
    ],
)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(
    guard: Callable[[Patch], None], plan: Callable[[int], OncePlan]
) -> None:
    for seed in range(FIRST_SEEDS.get(guard.__name__, 0), SEEDS_MAX):
        with pytest.MonkeyPatch.context() as patch:
            guard(patch)
            try:
                run_seed(seed, plan(seed))
            except FailedOnce as failure:
                found: BaseException | None = failure.__cause__
            else:
                continue
        assert isinstance(found, Violation | AssertionError), found
        run_seed(seed, plan(seed))
        return
    pytest.fail("no seed found it")
