"""Another region's batches as one entry of the queue: a segment that also moves the position in that region's log.

Rule: the entry is let in only if the position at exactly its offset is the one from which its batches were taken. The
create then brings the batches and moves the position at once (I18). So of two sessions that take the same batches, one
appends them and the other finds its entry outdated.

Rule: the topic's configuration, its writers and their sequences are not consulted: the source accepted these batches.

Not here: which batches are taken, and in which segments; see ``regions``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from fenceline import limits
from fenceline.append.entry import Marked, Outdated, SegmentOrigin, Stamped
from fenceline.errors import InvalidRequestError
from fenceline.format.batch import parse_header, stamp
from fenceline.format.segment import Replicated
from fenceline.log.region_state import Origin
from fenceline.log.state import TentativeState


@dataclass(frozen=True, slots=True)
class ReplicatedEntry:
    """The batches of one replicated segment.

    Args:
        region: The region that produced them.
        position: The position from which they were taken; ``None`` if nothing of that region was taken before.
        source: The position after them.
        batches: At least one, as ``replicated_batch.stripped`` returns them, in the source's order.
    """

    region: str
    position: Origin | None
    source: Replicated
    batches: Sequence[bytes]
    producer_id: ClassVar = None
    is_internal: ClassVar = True
    goes_alone: ClassVar = True
    is_urgent: ClassVar = False  # they come as often as local batches, and take turns with those
    is_going_allowed: ClassVar = False

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    @property
    def origin(self) -> SegmentOrigin:
        return SegmentOrigin(self.region, self.source)

    def check(self, tentative: TentativeState, now_ms: int) -> Stamped | Outdated | InvalidRequestError:  # noqa: ARG002
        """Return the batches as they would be stored, or that another session was faster."""
        state = tentative.state
        position = state.origins.get(self.region)
        if state.is_sealed or position != self.position:  # I18, I20
            return Outdated()
        if position is None and len(state.origins) >= limits.ORIGINS_MAX:
            return InvalidRequestError(
                "the partition has taken records of too many regions, and takes none of a further one; create the "
                f"topic anew: region={self.region} regions={len(state.origins)}",
                field="regions",
            )
        parts: list[Stamped] = []
        offset, answer = state.next_offset, Marked(state.next_offset)
        for batch in self.batches:
            body = stamp(batch, base_offset=offset, leader_epoch=state.topic_epoch)
            parts.append(Stamped(body, parse_header(body), answer))
            offset = parts[-1].header.next_offset
        return parts[0]._replace(more=parts[1:])
