"""Another region's batches as one entry of the queue: a segment that also moves the position in that region's log.

Rule: the entry is appended only if the position at exactly its offset is the one from which its batches were fetched.
The create then adds the batches and moves the position at once (I18). So if two sessions fetch the same batches, one
appends them, and the other finds its entry outdated.

Rule: the topic's configuration, its writers and their sequences are not consulted, because the source accepted these
batches. Whether wrong batches of a region would damage this log is checked when an entry is made, in its caller's
thread, so that no other caller of the queue fails because of them.

Not here: which batches are taken, and in which segments; see ``regions``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from fenceline import limits
from fenceline.append.entries.entry import Entry, Marked, Outdated, SegmentOrigin, StoredBatch
from fenceline.append.entries.region_markers import too_many_regions
from fenceline.errors import InvalidRequestError
from fenceline.format import control
from fenceline.format.batch import has_right_crc, parse_header, stamp
from fenceline.format.keys import LEGAL_ID
from fenceline.format.segment import Replicated
from fenceline.log.region_state import Origin
from fenceline.log.state import TentativeState
from fenceline.model.topic import LEGAL_REGION

_CHAIN = re.compile(r"[0-9a-f]{0,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ReplicatedEntry(Entry):
    """The batches of one replicated segment.

    Args:
        region: The region that produced them.
        position: The position from which they were fetched; ``None`` if nothing of that region was replicated before.
        source: The position after them.
        batches: At least one, as ``replicated_batch.stripped`` returns them, in the source's order.

    Raises:
        ValueError: The batches cannot be those between the two positions, or must not be in this log.
    """

    region: str
    position: Origin | None
    source: Replicated
    batches: Sequence[bytes]
    origin: SegmentOrigin | None = field(init=False)
    goes_alone = True  # not urgent: replicated batches come as often as local ones, and take turns with them

    def __post_init__(self) -> None:
        object.__setattr__(self, "origin", SegmentOrigin(self.region, self.source))
        known, source = self.position, self.source
        is_legal = LEGAL_REGION.fullmatch(self.region) and LEGAL_ID.fullmatch(source.topic_id)
        if not is_legal or not _CHAIN.fullmatch(source.chain):
            raise ValueError(f"no region, topic id or chain value: {self.region} {source.topic_id} {source.chain}")
        if known is not None and source.topic_id in known.former:  # model: Snapshot, "no earlier life again"
            raise ValueError(f"an earlier life of the topic, which a later one has followed: {source.topic_id}")
        below = source.count - sum(map(_checked, self.batches))
        is_same = known is not None and known.topic_id == source.topic_id
        count, next_offset = (known.count, known.next_offset) if known is not None and is_same else (0, -1)
        # Numbers are dense, and none is taken twice (I17).
        is_after = count <= below and next_offset < source.next_offset
        if not self.batches or not is_after or max(source.next_offset, source.count) > limits.INT64_MAX:
            raise ValueError(f"batches that do not come after the position: {known} {source} below={below}")

    @property
    def size(self) -> int:
        return sum(map(len, self.batches))

    def check(self, tentative: TentativeState, now_ms: int) -> StoredBatch | Outdated | InvalidRequestError:  # noqa: ARG002
        """Return the batches as they would be stored, or ``Outdated`` if another session was faster."""
        state = tentative.state
        position = state.origins.get(self.region)
        if state.is_sealed or position != self.position:  # I18, I20; model: Snapshot, "only from the position in force"
            return Outdated()
        if position is None and len(state.origins) >= limits.ORIGINS_MAX:
            return too_many_regions(self.region, state)
        parts: list[StoredBatch] = []
        offset, answer = state.next_offset, Marked(state.next_offset)
        for batch in self.batches:
            body = stamp(batch, base_offset=offset, leader_epoch=state.topic_epoch)
            parts.append(StoredBatch(body, parse_header(body), answer))
            offset = parts[-1].header.next_offset
        return parts[0]._replace(more=parts[1:])


def _checked(batch: bytes) -> int:
    """Return how many data records a batch holds.

    Raises:
        ValueError: The batch is damaged, or would do more in this log than to add records.
    """
    header = parse_header(batch)
    is_whole = header.size == len(batch) and header.magic == 2 and 0 < header.count == header.last_offset_delta + 1
    if not is_whole or not has_right_crc(batch, 0, header):
        raise ValueError(f"a damaged batch: {header}")
    if header.is_control:
        if not control.travels(control.type_of(batch, 0, header)):
            raise ValueError(f"a marker that does not travel: {header}")
        return 0
    if header.is_transactional or header.has_producer:
        raise ValueError(f"a batch that names its producer: {header}")
    return header.count
