"""Each guard of regions, switched off: the seeds find what it was there for, and pass with it.

Not here, because seeds do not reach them:

- The first answer counts. A later one differs only if the answering topic was created again. It must come after the
  local offset was found, and before the SNAPSHOT that the same run appends.

- A count of 0 needs no record. It matters only for an origin of which one region took markers, in a life that ended
  before another region took anything.

- What is due is cleared after its UPDATE, and `applied_to` is stored after UPDATEs were applied. A death must hit the
  very last one. ``protocol.regions.test_region_cursors`` lets a process die at each step.

- `again`: replicators are called over and over here, so no wake-up is missed. See
  ``protocol.regions.test_pulling_races``.

- Another history: no region is restored from older objects here. See ``protocol.regions.test_pulling_faults``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from fenceline.append.entries.region_markers import ResponseEntry
from fenceline.append.entries.replicated import ReplicatedEntry
from fenceline.log import region_state
from fenceline.log.region_state import OpenSnapshotRequest
from fenceline.model.results import SegmentList
from fenceline.regions import (
    announce_subscriptions,
    apply_updates,
    direct_source,
    due_work,
    resume_point,
    source_batches,
)
from fenceline.regions.direct_source import DirectSource
from fenceline.regions.relay_source import RelaySource
from fenceline.regions.replicator import OpenPartition, Replicator
from fenceline.regions.source_batches import Packer
from fenceline.subscriptions import backlog, cursors
from fenceline.subscriptions.items import CursorItem
from fenceline.subscriptions.snapshot_cache import SnapshotCache
from tests.simulation.harness.guards import Guard, Guards, Patch
from tests.simulation.regions import plans
from tests.simulation.regions.scenario import SCENARIO

pytestmark = pytest.mark.slow


GUARDS = Guards(SCENARIO)


# Pulling (I17, I18, I20)


@GUARDS.guard(plans.races, seed=3)
def appends_whatever_the_position_is(patch: Patch) -> None:
    """Let replicated batches in though the position has moved since they were taken (I18)."""
    judged = ReplicatedEntry.check

    def blind(self: ReplicatedEntry, tentative: Any, now_ms: int) -> Any:
        object.__setattr__(self, "position", tentative.state.origins.get(self.region))
        return judged(self, tentative, now_ms)

    patch.setattr(ReplicatedEntry, "check", blind)


@GUARDS.guard(plans.lives, seed=11)
def goes_on_in_another_life(patch: Patch) -> None:
    """Go on in another life of the source's topic from the position of the earlier one (I20)."""
    patch.setattr(direct_source, "_in_life", lambda position, topic_id: position)


@GUARDS.guard(plans.old_answers, seed=19)
def takes_an_earlier_life_again(patch: Patch) -> None:
    """Forget which lives of the source's topic came before (I20)."""
    moved = region_state.moved
    patch.setattr(region_state, "moved", lambda *args: replace(moved(*args), former=()))


@GUARDS.guard(plans.transactions, seed=0)
def takes_what_is_not_decided(patch: Patch) -> None:
    """Take a source's batches up to its end, not up to its last stable offset."""
    asked = DirectSource._segments

    def hasty(self: DirectSource, offset: int | None, limit: int) -> SegmentList | None:
        answer = asked(self, offset, limit)
        return None if answer is None else _to_its_end(answer)

    patch.setattr(DirectSource, "_segments", hasty)


def _to_its_end(answer: SegmentList) -> SegmentList:
    return replace(answer, bounds=replace(answer.bounds, last_stable_offset=answer.next_offset))


@GUARDS.guard(plans.transactions, seed=7)
def packs_numbers_that_are_not_dense(patch: Patch) -> None:
    """Pack records into one segment between which aborted ones lie."""
    add = Packer.add

    def loose(self: Packer, batches: Any, *, records: int, number: int) -> None:
        if records and self._records:
            self._count = number - records
        add(self, batches, records=records, number=number)

    patch.setattr(Packer, "add", loose)


@GUARDS.guard(plans.transactions, seed=3)
def counts_what_was_aborted(patch: Patch) -> None:
    """Count up to the last record looked at, not up to the last one taken."""
    looked_at, passed_by = source_batches.looked_at, Packer.pass_by
    numbers: list[int] = []

    def noting(*args: Any, **more: Any) -> Any:
        for one in looked_at(*args, **more):
            numbers.append(one.number)
            yield one

    def counting(self: Packer, next_offset: int, chain: str) -> None:
        passed_by(self, next_offset, chain)
        if self._records and numbers:
            self._count = max(self._count, numbers[-1])

    patch.setattr(direct_source, "looked_at", noting)
    patch.setattr(Packer, "pass_by", counting)


@GUARDS.guard(plans.transactions, seed=1)
def notes_a_scan_of_what_is_not_decided(patch: Patch) -> None:
    """Note that a source was looked at to its end, not to its last stable offset."""
    stood = resume_point.resume_point

    def hasty(partition: int, region: str, position: Any, note: Any, answer: SegmentList) -> Any:
        found = stood(partition, region, position, note, answer)
        return found._replace(end=max(found.end, answer.position), number=answer.stable_own_records)

    patch.setattr(direct_source, "resume_point", hasty)


# Snapshots (I21)


@GUARDS.guard(plans.apart, seed=25)
def completes_without_a_comparison(patch: Patch) -> None:
    """Complete a snapshot as soon as each region has answered, whatever they had of each other."""
    patch.setattr(
        region_state, "_is_matched", lambda asked, here: all(region in asked.answers for region in asked.regions)
    )


@GUARDS.guard(plans.never_met, seed=3)
def takes_what_never_came_for_here(patch: Patch) -> None:
    """Complete a snapshot without the records of a region that never came, and let UPDATEs pass them (I22)."""
    forwards_for_nobody(patch)
    never_here, is_matched = region_state.never_here, region_state._is_matched

    def careless(asked: OpenSnapshotRequest, here: Any) -> Any:
        return {origin: (life, 0) for origin, (life, _) in never_here(asked, here).items()}

    patch.setattr(region_state, "never_here", careless)
    patch.setattr(
        region_state, "_is_matched", lambda asked, known: is_matched(asked, {**known, **never_here(asked, known)})
    )


@GUARDS.guard(plans.apart, seed=4)
def answers_with_its_end(patch: Patch) -> None:
    """Answer with the RESPONSE's offset, not with that of the REQUEST."""
    judged = ResponseEntry.check

    def late(self: ResponseEntry, tentative: Any, now_ms: int) -> Any:
        verdict = judged(self, tentative, now_ms)
        asked = self.unanswered._replace(position=tentative.state.next_offset)
        return _response(self, asked, tentative, now_ms) if hasattr(verdict, "body") else verdict

    patch.setattr(ResponseEntry, "check", late)


@GUARDS.guard(plans.the_last_reader, seed=27)
def answers_with_what_came_since(patch: Patch) -> None:
    """Answer with the counts at the RESPONSE, not with those at the REQUEST."""
    judged = ResponseEntry.check

    def late(self: ResponseEntry, tentative: Any, now_ms: int) -> Any:
        verdict = judged(self, tentative, now_ms)
        asked = self.unanswered._replace(origins=region_state.counts(tentative.state.origins))
        return _response(self, asked, tentative, now_ms) if hasattr(verdict, "body") else verdict

    patch.setattr(ResponseEntry, "check", late)


def _response(entry: ResponseEntry, asked: Any, tentative: Any, now_ms: int) -> Any:
    """Return the marker of another answer than the one that the log's state says."""
    regions = tentative.state.regions
    state = tentative.state._replace(regions=regions._replace(unanswered=(asked,)))
    patched = ResponseEntry(asked, entry.topic_id)
    return _checked(patched, replace(tentative, state=state), now_ms)


_checked = ResponseEntry.check


@GUARDS.guard(plans.the_last_reader, seed=19)
def takes_each_snapshot_for_final(patch: Patch) -> None:
    """Ask for no further snapshot, though a region lacked what was here."""
    patch.setattr(OpenSnapshotRequest, "is_final", lambda *_: True)


# Cursors (I22, I23)


@GUARDS.guard(plans.lives_to_the_end, seed=6)
def passes_earlier_lives(patch: Patch) -> None:
    """Let an UPDATE pass what an earlier life of an origin has left."""
    patch.setattr(region_state, "ends_life", lambda known, topic_id: False)


@GUARDS.guard(plans.trims, seed=7)
def passes_what_the_sender_never_had(patch: Patch) -> None:
    """Let an UPDATE pass numbers that the sender's region skipped, or came too late for."""
    patch.setattr(apply_updates, "_had_below", lambda partition, tail, mark, position, starts: position)


@GUARDS.guard(plans.cuts, seed=3)
def moves_backwards(patch: Patch) -> None:
    """Let an UPDATE set a mark that is already further."""

    def moved(partition: Any, tail: Any, cursor: CursorItem, found: Any) -> CursorItem | None:
        topic_id, position = found.update.positions.get(partition.context.region, ("", 0))
        if topic_id != partition.topic_id or not position < cursor.mark:
            return judged(partition, tail, cursor, found)
        return cursor.moved_elsewhere(position)

    judged = apply_updates.moved
    patch.setattr(apply_updates, "moved", moved)


@GUARDS.guard(plans.lives, seed=0)
def moves_in_another_life(patch: Patch) -> None:
    """Take a position for one in the present life of the topic here (I20)."""
    judged = apply_updates.moved

    def moved(partition: Any, tail: Any, cursor: CursorItem, found: Any) -> CursorItem | None:
        here = partition.context.region
        positions = dict(found.update.positions)
        if here in positions:
            positions[here] = partition.topic_id, positions[here][1]
        return judged(partition, tail, cursor, found._replace(update=replace(found.update, positions=positions)))

    patch.setattr(apply_updates, "moved", moved)


@GUARDS.guard(plans.trims, seed=25)
def sends_what_retention_passed(patch: Patch) -> None:
    """Send on a mark that only the log start has moved."""

    def noted(partition: Any, tail: Any, cursor: CursorItem) -> CursorItem:
        mark = backlog.slid_far(partition, tail, cursor.mark, cursor.acknowledged)
        return replace(cursor, cache=cursor.cache.noted(tail.state.regions.snapshots, mark))

    patch.setattr(cursors, "noted", noted)
    patch.setattr(due_work, "noted", noted)


@GUARDS.guard(plans.cuts, seed=1)
def tells_no_region(patch: Patch) -> None:
    """Leave it to its first position to say that a subscription exists."""
    patch.setattr(announce_subscriptions, "unannounced", lambda job, subscriptions: ())


@GUARDS.guard(plans.the_last_reader, seed=5)
def keeps_in_memory_what_is_due(patch: Patch) -> None:
    """Store nothing of what is due to be sent."""
    passed = SnapshotCache._passed
    patch.setattr(SnapshotCache, "_passed", lambda self, mark: replace(passed(self, mark), due=None))


@GUARDS.guard(plans.the_last_reader, seed=3)
def looks_at_no_cursor_later(patch: Patch) -> None:
    """Leave it to the next acknowledgement to consider the snapshots that came since."""
    patch.setattr(due_work, "_moves", lambda *args: [])


# Forwarding (I19)


def _with_sources(patch: Patch, changed: Callable[[Replicator, OpenPartition], Any]) -> None:
    opened = Replicator._open

    def other(self: Replicator, name: str, partition: int) -> OpenPartition | None:
        here = opened(self, name, partition)
        return None if here is None else here._replace(sources=changed(self, here))

    patch.setattr(Replicator, "_open", other)


@GUARDS.guard(plans.cuts, seed=3)
def forwards_for_everybody(patch: Patch) -> None:
    """Take a region's records from third ones, though it is not suspended."""

    def more(self: Replicator, here: OpenPartition) -> Any:
        others = [
            RelaySource(here.job.partition, self._peers[lender], region, here.peers)
            for region in here.job.others
            for lender in here.job.others
            if region != lender
        ]
        return [*here.sources, *others]

    _with_sources(patch, more)


@GUARDS.guard(plans.losses, seed=11)
def forwards_for_nobody(patch: Patch) -> None:
    """Leave a suspended region's records where they are."""
    _with_sources(patch, lambda self, here: [one for one in here.sources if isinstance(one, DirectSource)])


@GUARDS.guard(plans.skips, seed=64)
def forwards_beyond_a_skip(patch: Patch) -> None:
    """Take from a peer what comes after records that an operator gave up there."""
    patch.setattr(RelaySource, "has_skip", lambda self, *of: False)


@pytest.mark.parametrize("guard", GUARDS.all, ids=str)
def test_without_a_guard_a_seed_finds_what_it_was_there_for(guard: Guard) -> None:
    guard.check()
