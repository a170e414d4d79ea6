"""Each guard of the protocol, switched off: the seeds find what it was there for, and pass with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fenceline import limits
from fenceline.append import checks
from fenceline.append.appender import Appender
from fenceline.append.group_commit import Group
from fenceline.compaction import compact as compaction
from fenceline.compaction.copy import Newest, Source, newest_offsets
from fenceline.errors import CorruptLogError
from fenceline.format import control, keys
from fenceline.format.batch import BatchHeader
from fenceline.log import checkpoint
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.log.state import ProducerState
from fenceline.ports import ObjectSummary
from fenceline.sweeper import collect, sweep
from tests.simulation.harness import real
from tests.simulation.harness.stores import Faults
from tests.simulation.log.scenario import PATIENT_MS, Failed, Plan, draw_collections, draw_plan, run_seed
from tests.simulation.log.truth import Violation

pytestmark = pytest.mark.slow

SEEDS_MAX = 200  # each guard is found by one seed of ten, or more

Patch = pytest.MonkeyPatch


def takes_no_object_for_its_own(patch: Patch) -> None:
    """A 412 is taken for a rival's, whatever its write-id."""
    meet = Appender._meet

    def blind(self: Appender, group: Group, key: str, **told: bool) -> None:
        segment = group.segment
        assert segment is not None
        group.segment = segment._replace(metadata=segment.metadata._replace(write_id="another"))
        meet(self, group, key, **told)

    patch.setattr(Appender, "_meet", blind)


def takes_every_object_for_its_own(patch: Patch) -> None:
    """A 412 is taken for the echo of one's own create."""

    def greedy(self: Appender, group: Group, key: str, **told: bool) -> None:
        group.is_created = True
        self._confirm(group)

    patch.setattr(Appender, "_meet", greedy)


def answers_from_memory(patch: Patch) -> None:
    """I4: refusals and the ends of reads come from what is remembered."""
    patch.setattr(Partition, "verified", lambda self: self.state)


def forgets_the_last_batches(patch: Patch) -> None:
    """The duplicate window is empty."""
    sequence = checks._judge_sequence

    def forgetful(producer: ProducerState | None, header: BatchHeader) -> checks.Verdict | None:
        return sequence(None if producer is None else replace(producer, window=()), header)

    patch.setattr(checks, "_judge_sequence", forgetful)


def judges_no_sequence(patch: Patch) -> None:
    """Idempotence is off altogether."""
    patch.setattr(checks, "_judge_sequence", lambda producer, header: None)


def looks_not_after_the_create(patch: Patch) -> None:
    """I7: what was created is acknowledged without another look at the items."""

    def hasty(self: Appender, group: Group) -> None:
        assert group.segment is not None
        self.partition.fold(group.segment)
        self._finish(group)

    patch.setattr(Appender, "_confirm", hasty)


def tries_elsewhere_after_no_answer(patch: Patch) -> None:
    """A create that was not answered does not hold its group at its offset."""
    create = Appender._create

    def restless(self: Appender, group: Group) -> None:
        create(self, group)
        if self._group is group and group.is_unknown:
            self._dissolve(group)

    patch.setattr(Appender, "_create", restless)


def appends_behind_the_end(patch: Patch) -> None:
    """SEAL is folded as if it were nothing."""
    patch.setattr(control, "SEAL", -1)


def checkpoints_without_producers(patch: Patch) -> None:
    """The head is written without the producers that appended below it."""
    nothing = checkpoint._Step(keys.PRODUCER_ID_BLOCK, lambda: None, lambda item: None)
    patch.setattr(checkpoint, "_producer_step", lambda partition, *told: nothing)


def collects_at_once(patch: Patch) -> None:
    """I6: what a log start, or a DELETE, has left behind goes without waiting for ``gc_grace``."""
    now = collect.store_now
    patched = {**vars(collect), "store_now": lambda context: now(context) + limits.GC_GRACE_MS}
    patch.setattr(sweep, "collect", SimpleNamespace(**patched))


def drops_views_at_once(patch: Patch) -> None:
    """I6: the files of a view go as soon as a newer one has taken its place."""
    stale_files = compaction.stale_files

    def hasty(*where: Any, gc_grace_ms: int) -> Iterator[ObjectSummary]:
        return stale_files(*where, gc_grace_ms=0)

    patch.setattr(collect, "compaction", SimpleNamespace(stale_files=hasty))


def compacts_away_what_is_newest(patch: Patch) -> None:
    """A key is taken for newest where it was met first."""

    def first(partition: Partition, source: Source, **told: Any) -> Newest:
        newest = newest_offsets(partition, source, **told)
        return replace(newest, offsets=dict.fromkeys(newest.offsets, source.start))

    patch.setattr(compaction, "newest_offsets", first)


def puts_any_view_in_force(patch: Patch) -> None:
    """The pointer moves also to a view that reaches less far."""
    forgotten = SimpleNamespace(from_value=lambda value: replace(Head.from_value(value), view=None))
    patch.setattr(compaction, "Head", forgotten)


def lost_answers(seed: int) -> Plan:
    faults = Faults(answer_lost=0.2, slow=0.1, conflict=0.1)
    return replace(draw_plan(seed), faults=faults, casts=("racer", "appender", "producer", "reader"))


def rivals(seed: int) -> Plan:
    casts = ("racer", "racer", "producer", "reader")
    return replace(draw_plan(seed), faults=Faults(), processes=3, breaks=False, casts=casts)


def retries(seed: int) -> Plan:
    faults = Faults(answer_lost=0.1, crash=0.01)
    return replace(draw_plan(seed), faults=faults, patience_ms=1_000, casts=("producer", "producer", "reader"))


def recreations(seed: int) -> Plan:
    casts = ("appender", "appender", "producer", "recreator")
    return replace(draw_plan(seed), faults=Faults(), processes=2, breaks=False, casts=casts, rounds=9)


def collections(seed: int) -> Plan:
    return draw_collections(Random(seed))


def long_freezes(seed: int) -> Plan:
    """Appenders that freeze for longer than the grace, now and then right before a create, beside trims."""
    casts = ("appender", "appender", "appender", "trimmer", "trimmer")
    brisk = replace(draw_plan(seed), is_brisk=True, pause_ms=5_000, collects=True, compacts=False, breaks=False)
    faults = Faults(freeze=0.02, freeze_ms=90_000)
    plan = replace(brisk, faults=faults, processes=5, partitions=1, casts=casts, rounds=20, checkpoint_segments=1)
    return replace(plan, patience_ms=PATIENT_MS)


def compactions(seed: int) -> Plan:
    casts = ("appender", "appender", "compactor", "compactor", "tabler")
    brisk = replace(draw_plan(seed), is_brisk=True, pause_ms=5_000, collects=True, compacts=True)
    return replace(brisk, faults=Faults(slow=0.02), processes=3, breaks=False, casts=casts, rounds=9)


@pytest.mark.parametrize(
    ("guard", "plan"),
    [
        (takes_no_object_for_its_own, lost_answers),
        (takes_every_object_for_its_own, rivals),
        (answers_from_memory, rivals),
        (forgets_the_last_batches, retries),
        (judges_no_sequence, retries),
        (looks_not_after_the_create, long_freezes),
        (collects_at_once, collections),
        (tries_elsewhere_after_no_answer, lost_answers),
        (appends_behind_the_end, recreations),
        (checkpoints_without_producers, retries),
        (drops_views_at_once, compactions),
        (compacts_away_what_is_newest, compactions),
        (puts_any_view_in_force, compactions),
    ],
)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(
    guard: Callable[[Patch], None], plan: Callable[[int], Plan]
) -> None:
    for seed in range(SEEDS_MAX):
        with pytest.MonkeyPatch.context() as patch:
            guard(patch)
            try:
                run_seed(seed, real.subject(), plan(seed))
            except Failed as failure:
                found: BaseException | None = failure.__cause__
            else:
                continue
        assert isinstance(found, Violation | CorruptLogError), found
        run_seed(seed, real.subject(), plan(seed))
        return
    pytest.fail("no seed found it")
