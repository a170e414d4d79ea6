"""The markers between regions as entries of the queue ("Markers between regions").

Rule: a marker is checked at exactly the offset that it would get, by the log below that offset. So each marker is
appended once, however many sessions find it due. Only an UPDATE is always appended, because a second one changes
nothing.

Not here: when a marker is due (``regions``), and what it does to the state (``log.region_state``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline import limits
from fenceline.append.entries.entry import Entry, Marked, Outdated, StoredBatch, stored_marker
from fenceline.errors import InvalidRequestError, ThrottledError
from fenceline.format import control
from fenceline.format.region_markers import Skip, SnapshotMark, SnapshotRequest, SnapshotResponse, Updates
from fenceline.log.region_state import OpenSnapshotRequest, Origin, Unanswered
from fenceline.log.state import PartitionState, TentativeState


class _RegionMarkerEntry(Entry):
    """The base of the markers' entries. Several markers may share a segment."""

    __slots__ = ()

    @property
    def size(self) -> int:
        return limits.REGION_MARKER_BYTES_MAX


@dataclass(frozen=True, slots=True)
class RequestEntry(_RegionMarkerEntry):
    """The REQUEST that begins a snapshot."""

    request: SnapshotRequest

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked | Outdated | ThrottledError:
        """Return the marker as it would be stored, its offset in the log, or the error that too many are under way."""
        state = tentative.state
        if state.is_sealed:
            return Outdated()
        snapshot_id, regions = self.request.snapshot_id, state.regions
        known = {asked.snapshot_id for asked in regions.asked} | {done.snapshot_id for done in regions.snapshots}
        if snapshot_id in known:
            return Marked(state.next_offset)
        under_way = [asked for asked in regions.asked if asked.is_young(now_ms)]
        if len(under_way) >= limits.SNAPSHOTS_UNDER_WAY_MAX:
            return ThrottledError(
                "too many snapshots of the partition wait for answers; ask again once one of them is complete: "
                f"under_way={len(under_way)}"
            )
        return stored_marker(state, control.SNAPSHOT_REQUEST, self.request.to_value(), now_ms)


@dataclass(frozen=True, slots=True)
class ResponseEntry(_RegionMarkerEntry):
    """The RESPONSE to another region's REQUEST: it gives the positions of this log at that REQUEST's offset.

    Args:
        topic_id: This region's.
    """

    unanswered: Unanswered
    topic_id: str

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outdated:
        """Return the marker as it would be stored, or that the REQUEST needs no answer."""
        state, asked = tentative.state, self.unanswered
        if state.is_sealed or asked not in state.regions.unanswered:
            return Outdated()
        # model: Snapshot, "the position of the REQUEST"
        answer = SnapshotResponse(
            asked.snapshot_id, asked.origin, self.topic_id, asked.position, asked.origins, asked.taken
        )
        return stored_marker(state, control.SNAPSHOT_RESPONSE, answer.to_value(), now_ms)


@dataclass(frozen=True, slots=True)
class SnapshotEntry(_RegionMarkerEntry):
    """The SNAPSHOT that completes a REQUEST, once the log has all that the RESPONSEs of the other regions name.

    Args:
        regions: The topic's regions; see ``OpenSnapshotRequest.is_final``.
    """

    snapshot_id: str
    regions: Sequence[str]

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Marked | Outdated:
        """Return the marker as it would be stored, that the log has it, or that it is not due."""
        state, regions = tentative.state, tentative.state.regions
        if state.is_sealed:
            return Outdated()
        if any(done.snapshot_id == self.snapshot_id for done in regions.snapshots):
            return Marked(state.next_offset)
        asked = next((asked for asked in regions.asked if asked.snapshot_id == self.snapshot_id), None)
        if asked is None or asked.local is None:
            return Outdated()
        is_final = asked.is_final(self.regions)
        return stored_marker(state, control.SNAPSHOT, _completed(asked, asked.local, is_final).to_value(), now_ms)


def _completed(asked: OpenSnapshotRequest, local: int, is_final: bool) -> SnapshotMark:
    positions = {region: (answer.topic_id, answer.position) for region, answer in asked.answers.items()}
    return SnapshotMark(asked.snapshot_id, local, positions, asked.starts, is_final)


@dataclass(frozen=True, slots=True)
class UpdateEntry(_RegionMarkerEntry):
    """The subscriptions' moves, as other regions get them."""

    updates: Updates

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outdated:
        """Return the marker as it would be stored."""
        state = tentative.state
        if state.is_sealed:
            return Outdated()
        return stored_marker(state, control.SUBSCRIPTION_UPDATE, self.updates.to_value(), now_ms)


@dataclass(frozen=True, slots=True)
class SkipEntry(_RegionMarkerEntry):
    """The SKIP by which an operator gives up records that a region no longer keeps, or that are refused here.

    Args:
        position: The log's position before the records that are given up.
        begins_life: Whether the SKIP begins a life of the source's topic of which nothing was replicated, so that the
            position is one of another life.
    """

    skip: Skip
    position: Origin | None
    begins_life: bool = False

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outdated | InvalidRequestError:
        """Return the marker as it would be stored, or that the position has moved since."""
        state, skip, position = tentative.state, self.skip, self.position
        if state.is_sealed or not self._begins or state.origins.get(skip.origin) != position:  # I18
            return Outdated()
        if position is None and len(state.origins) >= limits.ORIGINS_MAX:
            return too_many_regions(skip.origin, state)
        count = skip.count + (0 if position is None or self.begins_life else position.count)
        if skip.count < 0 or not max(count, skip.from_offset) <= skip.to_offset <= limits.INT64_MAX:
            return InvalidRequestError(
                "a skip cannot give up more records than the region's log has offsets; repair that region first: "
                f"records={count} to_offset={skip.to_offset}",
                field="to_offset",
            )
        return stored_marker(state, control.SKIP, skip.to_value(), now_ms)

    @property
    def _begins(self) -> bool:
        """Return True if the skip begins at the position."""
        skip, position = self.skip, self.position
        if self.begins_life:
            return position is None or skip.origin_topic not in (position.topic_id, *position.former)  # I20
        return position is not None and (position.topic_id, position.next_offset) == (
            skip.origin_topic,
            skip.from_offset,
        )


def too_many_regions(region: str, state: PartitionState) -> InvalidRequestError:
    """Return the refusal of a region's first record in a log that has records of as many regions as a log can."""
    return InvalidRequestError(
        "the partition has taken records of too many regions, and takes none of a further one; create the "
        f"topic anew: region={region} regions={len(state.origins)}",
        field="regions",
    )
