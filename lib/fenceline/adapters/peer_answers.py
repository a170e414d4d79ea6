"""A peer's answers as values: each member's type and bounds are checked, and how the members fit together.

Rule: these functions are pure. A member that is not promised is passed over. Anything else that is wrong is refused.

Not here: whether what is promised is true: bodies are compared with their entries in ``regions``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

from fenceline import limits
from fenceline.format.keys import LEGAL_ID
from fenceline.model.results import AbortedTransaction, Bounds, OriginEntry, SegmentEntry, SegmentList
from fenceline.regions.peer import PeerTopic

_CHAIN = re.compile(r"[0-9a-f]{0,64}", re.ASCII)
_TEXT_CHARS_MAX = 256  # of an id, a name or a chain value


class Refused(Exception):
    """A member of an answer is not as promised."""


def topic(answer: Mapping[str, Any]) -> PeerTopic:
    """Return the topic that an answer describes.

    Raises:
        Refused: A member is missing or wrong.
    """
    regions = _list(answer, "regions")
    if len(regions) > limits.REGIONS_MAX:
        _refuse("regions", f"at most {limits.REGIONS_MAX} names")
    for region in regions:
        if type(region) is not str or not 0 < len(region) <= _TEXT_CHARS_MAX:
            _refuse("regions", "names")
    partitions = _number(answer, "partitions")
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        _refuse("partitions", f"from 1 to {limits.PARTITIONS_MAX}")
    config = answer.get("config", {})
    order = config.get("compaction.order", "offset") if type(config) is dict else None
    known = order if order in ("offset", "timestamp") else None  # a newer peer's order is not known here
    return PeerTopic(_topic_id(answer), partitions, tuple(regions), known)


def segments(answer: Mapping[str, Any]) -> SegmentList:
    """Return the segments of one origin that an answer lists, in order.

    Raises:
        Refused: A member is missing or wrong, or two contradict each other.
    """
    bounds = Bounds(*(_number(answer, name) for name in ("log_start_offset", "next_offset", "last_stable_offset")))
    if not bounds.log_start_offset <= bounds.last_stable_offset <= bounds.next_offset:
        _refuse("last_stable_offset", "between log_start_offset and next_offset")
    entries = [_entry(one, f"segments[{at}]") for at, one in enumerate(_list(answer, "segments"))]
    for at, (before, after) in enumerate(pairwise(entries), 1):
        if after.base_offset < before.next_offset:
            _refuse(f"segments[{at}].base_offset", "after the segment before it")
    position = _number(answer, "position")
    if position > bounds.next_offset or (entries and entries[-1].next_offset > position):
        _refuse("position", "after the segments, and not beyond next_offset")
    kept, stable = _number(answer, "log_start_own_records"), _number(answer, "stable_own_records")
    if kept > stable:
        _refuse("stable_own_records", "at least log_start_own_records")
    if kept > bounds.log_start_offset or stable > bounds.last_stable_offset:
        _refuse("log_start_own_records and stable_own_records", "at most the offsets that they are counted below")
    return SegmentList(
        entries,
        _flag(answer, "has_more"),
        _topic_id(answer),
        bounds,
        _text(answer, "region"),
        position,
        kept,
        stable,
        # A source of an older version does not say them.
        _chain(answer, "chain_before"),
        _chain(answer, "chain_after"),
    )


def _entry(answer: Any, path: str) -> SegmentEntry:
    if type(answer) is not dict:
        _refuse(path, "an object")
    base, end = _number(answer, "base_offset", path), _number(answer, "next_offset", path)
    records, size = _number(answer, "records", path), _number(answer, "bytes", path)
    if not base < end or records > end - base:
        _refuse(f"{path}.next_offset", "after base_offset, by at least the number of records")
    if not 0 < size <= 2 * limits.SEGMENT_BYTES_MAX:
        _refuse(f"{path}.bytes", f"from 1 to {2 * limits.SEGMENT_BYTES_MAX}")
    aborted = [_aborted(one, f"{path}.aborted[{at}]") for at, one in enumerate(_list(answer, "aborted", path))]
    url = answer.get("url")
    if type(url) is not str or not 0 < len(url) <= limits.URL_BYTES_MAX:
        _refuse(f"{path}.url", "a URL")
    origin = _text_or_none(answer, "origin", path)
    return SegmentEntry(base, end, size, url, origin, records, aborted, _of_origin(answer, origin, path))


def _of_origin(answer: Mapping[str, Any], origin: str | None, path: str) -> OriginEntry:
    own_records, appended_at = _number(answer, "own_records", path), _number(answer, "appended_at", path)
    chain = _text(answer, "chain", path)
    if origin is None:
        return OriginEntry(own_records, appended_at, chain)
    return OriginEntry(
        own_records,
        appended_at,
        chain,
        _text_or_none(answer, "origin_topic_id", path),
        _number_or_none(answer, "origin_next_offset", path),
        _number_or_none(answer, "origin_count", path),
        _text_or_none(answer, "origin_chain", path),
    )


def _aborted(answer: Any, path: str) -> AbortedTransaction:
    if type(answer) is not dict:
        _refuse(path, "an object")
    first, last = _number(answer, "first_offset", path), _number(answer, "last_offset", path)
    return AbortedTransaction(_number(answer, "producer_id", path), first, last)


def _number(answer: Mapping[str, Any], name: str, path: str = "") -> int:
    value = answer.get(name)
    if type(value) is not int or not 0 <= value <= limits.INT64_MAX:
        _refuse(f"{path}.{name}".lstrip("."), "a number of at most 63 bits")
    return value


def _number_or_none(answer: Mapping[str, Any], name: str, path: str) -> int | None:
    return None if answer.get(name) is None else _number(answer, name, path)


def _text(answer: Mapping[str, Any], name: str, path: str = "") -> str:
    value = answer.get(name)
    if type(value) is not str or len(value) > _TEXT_CHARS_MAX:
        _refuse(f"{path}.{name}".lstrip("."), f"text of at most {_TEXT_CHARS_MAX} characters")
    return value


def _text_or_none(answer: Mapping[str, Any], name: str, path: str) -> str | None:
    return None if answer.get(name) is None else _text(answer, name, path)


def _topic_id(answer: Mapping[str, Any]) -> str:
    """Return a topic's id. It goes into the stores, which do not take every text."""
    value = answer.get("topic_id")
    if type(value) is not str or not LEGAL_ID.fullmatch(value):
        _refuse("topic_id", "a topic's id")
    return value


def _chain(answer: Mapping[str, Any], name: str) -> str:
    """Return a chain value; "" for none."""
    value = answer.get(name)
    if value is None:
        return ""
    if type(value) is not str or not _CHAIN.fullmatch(value):
        _refuse(name, "a chain value")
    return value


def _flag(answer: Mapping[str, Any], name: str) -> bool:
    value = answer.get(name)
    if type(value) is not bool:
        _refuse(name, "true or false")
    return value


def _list(answer: Mapping[str, Any], name: str, path: str = "") -> Sequence[Any]:
    value = answer.get(name)
    if type(value) is not list:
        _refuse(f"{path}.{name}".lstrip("."), "a list")
    return value


def _refuse(member: str, wanted: str) -> NoReturn:
    raise Refused(f"{member} must be {wanted}")
