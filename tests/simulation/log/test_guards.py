"""Each guard of the protocol, switched off: the seeds find what it was there for, and pass with it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from fenceline import limits
from fenceline.append import checks, commit
from fenceline.append.appender import Appender
from fenceline.append.group import Group
from fenceline.compaction import compact as compaction
from fenceline.compaction.copy import CompactionSource, Newest, newest_offsets
from fenceline.format import control, keys
from fenceline.format.batch import BatchHeader
from fenceline.log import checkpoint
from fenceline.log.checkpoint_items import Head
from fenceline.log.partition import Partition
from fenceline.log.state import ProducerState
from fenceline.ports import ObjectSummary
from fenceline.sweeper import collect, sweep
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.harness.scenario import PATIENT_MS, Plan
from tests.simulation.harness.stores import Faults
from tests.simulation.log.scenario import SCENARIO, draw_collections, draw_plan

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Plans in which seeds meet what a guard is for


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
    """Draw appenders that freeze for longer than the grace, now and then right before a create, beside trims."""
    casts = ("appender", "appender", "appender", "trimmer", "trimmer")
    brisk = replace(draw_plan(seed), is_brisk=True, pause_ms=5_000, collects=True, compacts=False, breaks=False)
    faults = Faults(freeze=0.02, freeze_ms=90_000)
    plan = replace(brisk, faults=faults, processes=5, partitions=1, casts=casts, rounds=20, checkpoint_segments=1)
    return replace(plan, patience_ms=PATIENT_MS)


def compactions(seed: int) -> Plan:
    casts = ("appender", "appender", "compactor", "compactor", "tabler")
    brisk = replace(draw_plan(seed), is_brisk=True, pause_ms=5_000, collects=True, compacts=True)
    return replace(brisk, faults=Faults(slow=0.02), processes=3, breaks=False, casts=casts, rounds=9)


@GUARDS.guard(lost_answers, seed=7)
def takes_no_object_for_its_own(patch: Patch) -> None:
    """Take a 412 for a rival's, whatever its write-id."""
    resolve = commit.resolve_existing_segment

    def blind(partition: Partition, group: Group, **kwargs: bool) -> commit.Committed | commit.Lost | commit.Gone:
        segment = group.segment
        assert segment is not None
        group.segment = segment._replace(metadata=segment.metadata._replace(write_id="another"))
        return resolve(partition, group, **kwargs)

    patch.setattr(commit, "resolve_existing_segment", blind)


@GUARDS.guard(rivals, seed=7)
def takes_every_object_for_its_own(patch: Patch) -> None:
    """Take a 412 for the echo of one's own create."""
    patch.setattr(
        commit, "resolve_existing_segment", lambda partition, group, **kwargs: commit.confirm(partition, group)
    )


@GUARDS.guard(rivals, seed=3)
def answers_from_memory(patch: Patch) -> None:
    """Take refusals and the ends of reads from what is remembered (I4)."""
    patch.setattr(Partition, "verified", lambda self: self.state)


@GUARDS.guard(retries, seed=3)
def forgets_the_last_batches(patch: Patch) -> None:
    """Empty the duplicate window."""
    sequence = checks._check_sequence

    def forgetful(producer: ProducerState | None, header: BatchHeader) -> checks.Verdict | None:
        return sequence(None if producer is None else replace(producer, window=()), header)

    patch.setattr(checks, "_check_sequence", forgetful)


@GUARDS.guard(retries, seed=5)
def judges_no_sequence(patch: Patch) -> None:
    """Switch idempotence off altogether."""
    patch.setattr(checks, "_check_sequence", lambda producer, header: None)


@GUARDS.guard(long_freezes, seed=20)
def looks_not_after_the_create(patch: Patch) -> None:
    """Acknowledge what was created without another look at the items (I7)."""

    def hasty(partition: Partition, group: Group) -> commit.Committed:
        assert group.segment is not None
        partition.fold(group.segment)
        return commit.Committed()

    patch.setattr(commit, "confirm", hasty)


@GUARDS.guard(lost_answers, seed=7)
def tries_elsewhere_after_no_answer(patch: Patch) -> None:
    """Do not hold a group at its offset after a create that was not answered."""
    create = Appender._create

    def restless(self: Appender, group: Group) -> None:
        create(self, group)
        if self.queue.group is group and group.is_unknown:
            self.queue.dissolve(group)

    patch.setattr(Appender, "_create", restless)


@GUARDS.guard(recreations, seed=0)
def appends_behind_the_end(patch: Patch) -> None:
    """Fold SEAL as if it were nothing."""
    patch.setattr(control, "SEAL", -1)


@GUARDS.guard(retries, seed=5)
def checkpoints_without_producers(patch: Patch) -> None:
    """Write the head without the producers that appended below it."""
    nothing = checkpoint._Step(keys.PRODUCER_ID_BLOCK, lambda: None, lambda item: None)
    patch.setattr(checkpoint, "_producer_step", lambda partition, *args: nothing)


@GUARDS.guard(collections, seed=7)
def collects_at_once(patch: Patch) -> None:
    """Delete what a log start, or a DELETE, has left behind without waiting for ``gc_grace`` (I6)."""
    now = collect.store_now
    patched = {**vars(collect), "store_now": lambda context: now(context) + limits.GC_GRACE_MS}
    patch.setattr(sweep, "collect", SimpleNamespace(**patched))


@GUARDS.guard(compactions, seed=2)
def drops_views_at_once(patch: Patch) -> None:
    """Delete the files of a view as soon as a newer one has taken its place (I6)."""
    stale_files = compaction.stale_files

    def hasty(*where: Any, gc_grace_ms: int) -> Iterator[ObjectSummary]:
        return stale_files(*where, gc_grace_ms=0)

    patch.setattr(collect, "compaction", SimpleNamespace(stale_files=hasty))


@GUARDS.guard(compactions, seed=2)
def compacts_away_what_is_newest(patch: Patch) -> None:
    """Take a key for newest where it was met first."""

    def first(partition: Partition, source: CompactionSource, **kwargs: Any) -> Newest:
        newest = newest_offsets(partition, source, **kwargs)
        return replace(newest, offsets=dict.fromkeys(newest.offsets, source.start))

    patch.setattr(compaction, "newest_offsets", first)


@GUARDS.guard(compactions, seed=1)
def puts_any_view_in_force(patch: Patch) -> None:
    """Move the pointer also to a view that reaches less far."""
    forgotten = SimpleNamespace(from_value=lambda value: replace(Head.from_value(value), view=None))
    patch.setattr(compaction, "Head", forgotten)


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
