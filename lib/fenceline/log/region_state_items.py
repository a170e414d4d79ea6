"""The stored form of the region state, in a head and in an object under state/.

Rule: stored names and layouts are never renamed. A head of an older version has no region state.

Not here: what the members mean; see ``region_state``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from fenceline.log.region_state import (
    NOTHING,
    CompletedSnapshot,
    Counts,
    OpenSnapshotRequest,
    Origin,
    RegionState,
    SnapshotAnswer,
    Unanswered,
)


def packed(state: RegionState, origins: Mapping[str, Origin]) -> bytes:
    """Return the bytes of a head's region state, without the members of ``origins`` that older versions read."""
    more = {
        region: [origin.chain, origin.start, origin.passed, *origin.former]
        for region, origin in origins.items()
        if origin.chain or origin.start or origin.former or origin.passed
    }
    if state == NOTHING and not more:
        return b""
    value = {
        "origins": more,
        "asked": [
            {
                **one._asdict(),
                "origins": _lists(one.origins),
                "starts": _lists(one.starts),
                "answers": {
                    region: [answer.topic_id, answer.position, _lists(answer.origins), _lists(answer.taken)]
                    for region, answer in one.answers.items()
                },
            }
            for one in state.asked
        ],
        "unanswered": [
            {**one._asdict(), "origins": _lists(one.origins), "taken": _lists(one.taken)} for one in state.unanswered
        ],
        "snapshots": [
            {**one._asdict(), "positions": _lists(one.positions), "starts": _lists(one.starts)}
            for one in state.snapshots
        ],
        **{name: getattr(state, name) for name in _NUMBERS},
        "given": [state.given_from, dict(state.given)],
    }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode()


_NUMBERS = ("requested_at", "requested_records", "covered", "repeats", "update_next", "skipped")


def unpacked(data: bytes, next_offset: int = 0) -> RegionState:
    """Return the state that ``packed`` stored; an empty one for an older head.

    Args:
        next_offset: The head's. Below it, a version that does not know ``given`` has folded, and noted no position.
    """
    if not data:
        return NOTHING
    value = json.loads(data)
    given_from, given = value.get("given", (next_offset, {}))
    return RegionState(
        asked=tuple(
            OpenSnapshotRequest(
                **{
                    **one,
                    "origins": _counts(one["origins"]),
                    "regions": tuple(one["regions"]),
                    "starts": _counts(one["starts"]),
                    "answers": {
                        region: SnapshotAnswer(topic_id, position, _counts(origins), _counts(taken))
                        for region, (topic_id, position, origins, taken) in one["answers"].items()
                    },
                }
            )
            for one in value["asked"]
        ),
        unanswered=tuple(
            Unanswered(**{**one, "origins": _counts(one["origins"]), "taken": _counts(one["taken"])})
            for one in value["unanswered"]
        ),
        snapshots=tuple(
            CompletedSnapshot(**{**one, "positions": _counts(one["positions"]), "starts": _counts(one["starts"])})
            for one in value["snapshots"]
        ),
        **{name: value[name] for name in _NUMBERS},
        given=given,
        given_from=given_from,
    )


def with_more(origins: Iterable[tuple[str, Origin]], data: bytes) -> dict[str, Origin]:
    """Return the origins that older versions also read, with their further members."""
    more: dict[str, list[Any]] = json.loads(data)["origins"] if data else {}
    known = {region: (chain, start, tuple(former), passed) for region, (chain, start, passed, *former) in more.items()}
    return {
        region: Origin(origin.topic_id, origin.next_offset, origin.count, *known.get(region, ()))
        for region, origin in origins
    }


def _lists(pairs: Counts) -> dict[str, list[str | int]]:
    return {region: list(pair) for region, pair in pairs.items()}


def _counts(value: Mapping[str, list[Any]]) -> dict[str, tuple[str, int]]:
    return {region: (topic_id, number) for region, (topic_id, number) in value.items()}
