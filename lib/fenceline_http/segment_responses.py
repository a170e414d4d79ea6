"""Lists of segments as responses.

Rule: the names of members are those of API.md, and nothing is decided here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fenceline_http import responses

if TYPE_CHECKING:
    from fenceline.model.results import SegmentEntry, SegmentList


def segments(shown: SegmentList, base_url: str) -> str:
    """Show segments, as JSON; ``base_url`` is this server's, for URLs that are paths on it."""
    rows, is_cut = responses.fitting_with_json(_segment(entry, base_url) for entry in shown.segments)
    more = {
        "has_more": shown.has_more or is_cut,
        "topic_id": shown.topic_id,
        "region": shown.region,
        "position": shown.position,
        "log_start_own_records": shown.log_start_own_records,
        "stable_own_records": shown.stable_own_records,
        **responses.bounds(shown.bounds),
        **({"chain_before": shown.chain_before} if shown.chain_before else {}),
        **({"chain_after": shown.chain_after} if shown.chain_after else {}),
    }
    # The rows are JSON already: they were measured so.
    return f'{{"segments":[{",".join([row for _, row in rows])}],{responses.to_json(more)[1:]}'


def _segment(entry: SegmentEntry, base_url: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "base_offset": entry.base_offset,
        "next_offset": entry.next_offset,
        "bytes": entry.bytes,
        "url": base_url + entry.url if entry.url.startswith("/") else entry.url,
        "origin": entry.origin,
        "records": entry.records,
        "aborted": [
            {"producer_id": one.producer_id, "first_offset": one.first_offset, "last_offset": one.last_offset}
            for one in entry.aborted
        ],
    }
    of_origin = entry.of_origin
    if of_origin is not None:
        row |= {
            "own_records": of_origin.own_records,
            "appended_at": of_origin.appended_at,
            "chain": of_origin.chain,
            "origin_topic_id": of_origin.topic_id,
            "origin_next_offset": of_origin.next_offset,
            "origin_count": of_origin.count,
            "origin_chain": of_origin.chain_there,
        }
    return row
