"""Snapshots: the REQUEST, the RESPONSEs and the SNAPSHOT that are due in a partition (PIP-33; protocol, "Snapshots").

Rule: the log alone says which marker is due (I23). A clock says only how often REQUESTs come. No snapshot is complete
before its SNAPSHOT is in the log, and none completes without an answer of each region that it asked (I21).

Rule: when nothing is appended and no cursor moves, snapshots stop (I24). No REQUEST is due without new data, or a
consumer that moved a cursor here. A snapshot that is not final is repeated, ever more slowly.

Not here: the fold of answers (``log.region_state``), and the use of snapshots by cursors (``subscriptions``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from fenceline import limits
from fenceline.append.entries.entry import Outdated
from fenceline.append.entries.region_markers import RequestEntry, ResponseEntry, SnapshotEntry
from fenceline.errors import InvalidRequestError
from fenceline.format.region_markers import Positions, SnapshotRequest
from fenceline.log.context import StaleTopicId
from fenceline.log.region_state import OpenSnapshotRequest, RegionState
from fenceline.log.state import PartitionState
from fenceline.model.topic import Topic
from fenceline.regions.partition_job import PartitionJob

NONE: Mapping[str, str | None] = MappingProxyType({})


def request_in(state: PartitionState, now_ms: int, asked: Mapping[str, str | None] = NONE) -> int | None:
    """Return in how many ms a REQUEST is due by the log; ``None`` if none is, because the last final one covers all.

    Args:
        asked: The regions that the REQUEST would ask, each with its topic id, if that is known.
    """
    regions = state.regions
    is_due = state.records > regions.covered or (
        # A REQUEST that asked more regions than the last final one need not be final, even if no record has come.
        state.records > 0 and (regions.repeats > 0 or not set(asked) <= _positions(regions).keys())
    )
    if not is_due and not (state.records and _has_other_lives(regions, asked)):
        return None
    waiting = _waiting(regions, now_ms, asked)
    if len(waiting) >= limits.SNAPSHOTS_UNANSWERED_MAX:
        return min(asked.time for asked in waiting) + limits.SNAPSHOT_REQUEST_MS - now_ms
    since_ms = now_ms - regions.requested_at
    if since_ms < 0:  # a clock was wrong, then or now: this REQUEST is early, and later ones are in time
        return 0
    # Bounded, so that a peer that shows an old life of its topic for a while costs few snapshots.
    pause_ms = _pause_ms(state, has_waiting=bool(waiting)) if is_due else limits.SNAPSHOT_REPEAT_MS_MAX
    return max(pause_ms - since_ms, 0)


def _positions(regions: RegionState) -> Positions:
    """Return the positions of the newest snapshot.

    They lack a region that was added or resumed since, in which no cursor could move without another snapshot.
    """
    return regions.snapshots[-1].positions if regions.snapshots else {}


def _has_other_lives(regions: RegionState, asked: Mapping[str, str | None]) -> bool:
    """Return True if some region has created its topic anew since the newest snapshot."""
    lives = {region: topic_id for region, (topic_id, _) in _positions(regions).items()}
    return any(region in lives and life not in (None, lives[region]) for region, life in asked.items())


def _waiting(regions: RegionState, now_ms: int, asked: Collection[str]) -> Sequence[OpenSnapshotRequest]:
    """Return the own REQUESTs, not given up, for which answers are missing, or records that the answers name.

    A REQUEST to a region that was suspended or removed since does not count, because it may wait for ever, and a new
    one does not ask that region.
    """
    waiting = [one for one in regions.asked if one.local is None and one.is_young(now_ms)]
    return [one for one in waiting if set(one.regions) <= set(asked)]


def _pause_ms(state: PartitionState, *, has_waiting: bool) -> int:
    regions = state.regions
    if has_waiting:
        return limits.SNAPSHOT_UNANSWERED_MS
    if state.records <= regions.requested_records and regions.repeats:
        # Nothing has come since the last REQUEST, so another one is due only because that one was not final.
        doubled = limits.SNAPSHOT_MS << min(regions.repeats - 1, 16)
        return min(doubled, limits.SNAPSHOT_REPEAT_MS_MAX)
    return limits.SNAPSHOT_MS


def completed(regions: RegionState) -> str | None:
    """Return the newest REQUEST whose SNAPSHOT is due. It replaces all older ones, so that local offsets only grow."""
    return next((asked.snapshot_id for asked in reversed(regions.asked) if asked.local is not None), None)


def answer(job: PartitionJob, regions: RegionState) -> None:
    """Append each RESPONSE, and the SNAPSHOT, that are due; they may share a segment.

    Raises:
        FencelineError: As ``PartitionJob.append``.
        StaleTopicId: The log is sealed, or the name leads elsewhere.
    """
    done, topic_id = completed(regions), job.topic.topic.topic_id
    entries: list[ResponseEntry | SnapshotEntry] = [ResponseEntry(one, topic_id) for one in regions.unanswered]
    if done is not None:
        entries.append(SnapshotEntry(done, job.topic.topic.regions))
    job.context.runtime.gather([partial(job.append, entry) for entry in entries])


def start(job: PartitionJob, *, snapshot_id: str | None = None) -> str:
    """Append a REQUEST to the regions that ``PartitionJob.asked`` names, due or not, and return its id.

    Args:
        snapshot_id: The id that several partitions share; ``None`` for a fresh one.

    Raises:
        InvalidRequestError: There is no region to ask.
        ThrottledError: Too many REQUESTs wait for answers.
        FencelineError: As ``PartitionJob.append``.
        StaleTopicId: The log is sealed, or the name leads elsewhere.
    """
    asked = tuple(job.asked)
    if not asked:
        raise none_to_ask(job.topic.topic)
    snapshot_id = snapshot_id or job.context.runtime.fresh_id()
    outcome = job.append(RequestEntry(SnapshotRequest(snapshot_id, job.topic.topic.topic_id, asked)))
    if isinstance(outcome, Outdated):
        raise StaleTopicId
    return snapshot_id


def none_to_ask(topic: Topic) -> InvalidRequestError:
    """Return the refusal of a snapshot for which there is no region to ask."""
    return InvalidRequestError(
        f"the topic has no other region to ask, or all are suspended; add a region, or resume one: topic={topic.name}",
        field="regions",
    )
