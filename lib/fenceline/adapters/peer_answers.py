"""A peer's answers as values, once each member's type and bounds were checked, and that the members fit together.

Rule: these functions are pure. A member that is not promised is ignored. Anything else that is wrong is refused.

Not here: the members and their types (``answers.judged``); the truth of an answer, for which ``regions`` compares
bodies with their entries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.answers import Promises, judged, refuse
from fenceline.format.keys import LEGAL_ID
from fenceline.model.results import SegmentEntry, SegmentList
from fenceline.regions.peer import PeerTopic

_CHAIN = re.compile(r"[0-9a-f]{0,64}", re.ASCII)
_NAME_CHARS_MAX = 256
_SIZE_MAX = 2 * limits.SEGMENT_BYTES_MAX

_A_CHAIN = ("a chain value", lambda text: _CHAIN.fullmatch(text) is not None)
_PROMISES: Promises = {
    # Checked, because the name goes into the stores, which do not take every text.
    "topic_id": ("a topic's id", lambda text: LEGAL_ID.fullmatch(text) is not None),
    "chain_before": _A_CHAIN,
    "chain_after": _A_CHAIN,
    "url": ("a URL", lambda text: 0 < len(text) <= limits.URL_BYTES_MAX),
}
# The members that are ignored in a segment of the peer's own records.
_OF_REPLICATED = frozenset({"origin_topic_id", "origin_next_offset", "origin_count", "origin_chain"})


class _Topic(NamedTuple):
    """The promised members of a topic, without its regions."""

    partitions: int
    topic_id: str


def topic(answer: Mapping[str, Any]) -> PeerTopic:
    """Return the topic that an answer describes.

    Raises:
        Refused: A member is missing or wrong.
    """
    regions = answer.get("regions")
    if type(regions) is not list:
        refuse("regions", "a list")
    if len(regions) > limits.REGIONS_MAX:
        refuse("regions", f"at most {limits.REGIONS_MAX} names")
    if not all(type(region) is str and 0 < len(region) <= _NAME_CHARS_MAX for region in regions):
        refuse("regions", "names")
    partitions, topic_id = judged(_Topic, answer, _PROMISES)
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        refuse("partitions", f"from 1 to {limits.PARTITIONS_MAX}")
    config = answer.get("config", {})
    order = config.get("compaction.order", "offset") if type(config) is dict else None
    known = order if order in ("offset", "timestamp") else None  # a newer peer's order is not known here
    return PeerTopic(topic_id, partitions, tuple(regions), known)


def segments(answer: Mapping[str, Any]) -> SegmentList:
    """Return the segments of one origin that an answer lists, in order.

    Raises:
        Refused: A member is missing or wrong, or two contradict each other.
    """
    entries = answer.get("segments")
    if type(entries) is list:
        answer = {**answer, "segments": [_without_vain_members(one) for one in entries]}
    found = judged(SegmentList, answer, _PROMISES)
    if not found.log_start_offset <= found.last_stable_offset <= found.next_offset:
        refuse("last_stable_offset", "between log_start_offset and next_offset")
    for at, one in enumerate(found.segments):
        _check_entry(one, f"segments[{at}]")
    for at, (before, after) in enumerate(pairwise(found.segments), 1):
        if after.base_offset < before.next_offset:
            refuse(f"segments[{at}].base_offset", "after the segment before it")
    if found.position > found.next_offset or (found.segments and found.segments[-1].next_offset > found.position):
        refuse("position", "after the segments, and not beyond next_offset")
    kept, stable = found.log_start_own_records, found.stable_own_records
    if kept > stable:
        refuse("stable_own_records", "at least log_start_own_records")
    if kept > found.log_start_offset or stable > found.last_stable_offset:
        refuse("log_start_own_records and stable_own_records", "at most the offsets that they are counted below")
    return found


def _without_vain_members(entry: Any) -> Any:
    if type(entry) is dict and entry.get("origin") is None:
        return {name: value for name, value in entry.items() if name not in _OF_REPLICATED}
    return entry


def _check_entry(entry: SegmentEntry, path: str) -> None:
    if not entry.base_offset < entry.next_offset or entry.records > entry.next_offset - entry.base_offset:
        refuse(f"{path}.next_offset", "after base_offset, by at least the number of records")
    if not 0 < entry.bytes <= _SIZE_MAX:
        refuse(f"{path}.bytes", f"from 1 to {_SIZE_MAX}")
