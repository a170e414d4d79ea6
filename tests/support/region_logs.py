"""Logs with other regions' batches and markers, made segment by segment without a peer.

Rule: each log is one that a replicator would have appended: numbers are dense, and a position only moves forward.

Not here: regions that pull from each other (``regions``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fenceline import limits
from fenceline.format import control
from fenceline.format.region_markers import SnapshotMark, SnapshotRequest, SnapshotResponse, Update, Updates
from fenceline.format.segment import Replicated
from fenceline.log.region_state import MarkerPosition, OpenSnapshotRequest, Origin, RegionState, fold
from fenceline.log.region_state_items import packed
from fenceline.log.state import Folded
from tests.support.service import LogBuilder, Part, data, marker

OWN = "a"
UPDATE = marker(control.SUBSCRIPTION_UPDATE, Updates([Update("billing")]).to_value())


def life(region: str, number: int = 1) -> str:
    """Return the id of a region's topic in one of its lives. Of a long name the end is enough."""
    return f"{region[-20:]}-life-{number}"


class RegionLog(LogBuilder):
    """The log of region ``a``."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"region": OWN, "topic_id": life(OWN), **options})

    @property
    def regions(self) -> RegionState:
        return self.state.regions

    def takes(
        self,
        region: str,
        *values: str,
        markers: Sequence[Part] = (),
        number: int = 1,
        aborted: int = 0,
        start: int = 0,
        chain: str = "",
    ) -> Folded:
        """Take records and markers of another region.

        Args:
            number: Which life of its topic.
            aborted: How many of its records before these were aborted.
            start: Where this life's numbers begin, if it begins here.
        """
        known = self.state.origins.get(region)
        is_same = known is not None and known.topic_id == life(region, number)
        count, next_offset = (known.count, known.next_offset) if known is not None and is_same else (start, 10 * start)
        if values:
            count += aborted + len(values)
        parts = [data(*values), *markers] if values else [*markers]
        next_offset += len(values) + aborted + len(markers) + 1
        replicated = Replicated(life(region, number), next_offset, count, chain)
        return self.add(*parts, origin=region, replicated=replicated)

    def asks(self, snapshot_id: str, *regions: str, after_ms: int = 1) -> Folded:
        """Append an own REQUEST."""
        return self.add(request(snapshot_id, OWN, *regions), after_ms=after_ms)

    def is_asked(self, region: str, snapshot_id: str, *regions: str, number: int = 1) -> Folded:
        """Take another region's REQUEST."""
        part = request(snapshot_id, region, *(regions or (OWN,)), number=number)
        return self.takes(region, markers=[part], number=number)

    def is_answered(self, region: str, snapshot_id: str, position: int = 7, number: int = 1, **had: Any) -> Folded:
        """Take another region's RESPONSE. Of others it had what ``had`` says: counts in their first lives, or pairs."""
        part = response(snapshot_id, region, position, number=number, **had)
        return self.takes(region, markers=[part], number=number)

    def answers(self) -> Folded:
        """Append the RESPONSE to the oldest REQUEST of another region."""
        asked = self.regions.unanswered[0]
        answer = SnapshotResponse(asked.snapshot_id, asked.origin, life(OWN), asked.position, asked.origins)
        return self.add(marker(control.SNAPSHOT_RESPONSE, answer.to_value()))

    def completes(self, snapshot_id: str) -> Folded:
        """Append the SNAPSHOT of an own REQUEST, as it is due."""
        asked = next(asked for asked in self.regions.asked if asked.snapshot_id == snapshot_id)
        return self.add(snapshot_of(asked))


def request(snapshot_id: str, region: str, *regions: str, number: int = 1) -> Part:
    return marker(control.SNAPSHOT_REQUEST, SnapshotRequest(snapshot_id, life(region, number), regions).to_value())


def response(snapshot_id: str, region: str, position: int = 7, *, number: int = 1, to: str = OWN, **had: Any) -> Part:
    origins: Mapping[str, tuple[str, int]] = {
        name: (life(name), one) if isinstance(one, int) else one for name, one in had.items()
    }
    value = SnapshotResponse(snapshot_id, to, life(region, number), position, origins).to_value()
    return marker(control.SNAPSHOT_RESPONSE, value)


def snapshot_of(asked: OpenSnapshotRequest) -> Part:
    assert asked.local is not None
    positions = {region: (answer.topic_id, answer.position) for region, answer in asked.answers.items()}
    mark = SnapshotMark(asked.snapshot_id, asked.local, positions, asked.starts, asked.is_final("abcd"))
    return marker(control.SNAPSHOT, mark.to_value())


def skip(region: str, from_offset: int, to_offset: int, count: int, number: int = 1) -> Part:
    value = {"origin": region, "origin_topic": life(region, number), "from": from_offset, "to": to_offset}
    return marker(control.SKIP, {**value, "count": count})


def full_regions() -> RegionState:
    """Return the most that a fold keeps of seven regions that claim as much as a marker takes."""
    most, full_id = limits.INT64_MAX, "f" * 32
    names = [f"{n}".rjust(63, "r") for n in range(limits.ORIGINS_MAX)]
    had = dict.fromkeys(names, (full_id, most))
    own = dict.fromkeys(names, Origin(full_id, most, most))
    state = RegionState((), (), (), most, most, most, most, most, most)
    there = MarkerPosition(most, most, most, own, "here", None, None)
    for _ in range(limits.SNAPSHOTS_KEPT_MAX):
        done = SnapshotMark(full_id, most, dict.fromkeys(names[:7], (full_id, most)), had, False)
        state = fold(state, control.SNAPSHOT, done.to_value(), there)
    for n in range(limits.SNAPSHOTS_UNDER_WAY_MAX):
        snapshot_id = f"{n}".rjust(32, "s")
        state = fold(
            state, control.SNAPSHOT_REQUEST, SnapshotRequest(snapshot_id, full_id, tuple(names[:7])).to_value(), there
        )
        for name in names[:7]:
            theirs = there._replace(origin=name, origin_topic_id=full_id)
            state = fold(
                state, control.SNAPSHOT_REQUEST, SnapshotRequest(snapshot_id, full_id, ("here",)).to_value(), theirs
            )
            answer = SnapshotResponse(snapshot_id, "here", full_id, most, had).to_value()
            state = fold(state, control.SNAPSHOT_RESPONSE, answer, theirs)
            assert len(packed(state, {})) <= limits.REGION_STATE_BYTES_MAX
    assert len(packed(state, {})) > 0.9 * limits.REGION_STATE_BYTES_MAX
    return state
