"""Rows of the table in the protocol, "What a crash leaves", about access.

Claims, owners and subscriptions leave these half done.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fenceline.format import keys
from fenceline.format.batch import headers
from fenceline.format.control import ACCESS, parse_marker

if TYPE_CHECKING:
    from tests.simulation.crash.rows import Difference

ITEMS = (
    "sessions/",
    "producers/",
    "tickets/",
    "own#",
    "own/",
    "cursors/",
    "subscriptions/",
    "acknowledged/",
    "unowned/",
)


def markers_of(stored: Mapping[str, Any], topic_id: str, partition: int) -> Iterator[tuple[str, int, str | None]]:
    """Yield (key, epoch, exclusive session) of each ACCESS marker of a partition, in order."""
    prefix = keys.log_prefix(topic_id, partition)
    for key in sorted(key for key in stored if key.startswith(prefix)):
        body = stored[key][0]
        for position, header in headers(body):
            if header.is_control and (marker := parse_marker(body, position, header)).type == ACCESS:
                yield key, header.leader_epoch, marker.value.get("session_id")


def items_of_access(difference: Difference) -> set[str]:
    """Return the changed items of sessions, claims, ownerships and subscriptions."""
    beside = {key for key in difference.changed if key.startswith("partition/") and _is_beside(key.split("#")[1])}
    return {key for key in difference.changed if key.startswith(ITEMS)} | beside


def _is_beside(sort: str) -> bool:
    return sort in ("access", "own") or sort.startswith("own/")


def _new_markers(difference: Difference) -> dict[tuple[str, int], set[str]]:
    """Return the segments made meanwhile that hold ACCESS markers, by partition."""
    found: dict[tuple[str, int], set[str]] = {}
    for key in difference.changed_under("log/") & difference.left.keys():
        topic_id, partition, _ = keys.parse_segment_key(key)
        if any(key == other for other, _, _ in markers_of(difference.left, topic_id, partition)):
            found.setdefault((topic_id, partition), set()).add(key)
    return found


def _pending(difference: Difference) -> set[tuple[str, int]]:
    """Return the partitions of claims that are reserved, and not confirmed."""
    found = set()
    for key, (_, value) in ((k, v) for k, v in difference.left.items() if "#" in k):
        if key.endswith("#access") and key.startswith("partition/") and value["claim"] is not None:
            _, topic_id, partition = key.split("#")[0].split("/")
            found.add((topic_id, int(partition)))
        if key.startswith("producers/") and value["state"] == "reserved":
            topic_id = key.split("#")[0].removeprefix("producers/")
            found |= {(topic_id, partition) for partition in value["partitions"]}
    return found


def _reserved(difference: Difference) -> set[str]:
    pending, marked = _pending(difference), _new_markers(difference)
    return items_of_access(difference) if pending and not pending & marked.keys() else set()


def _some_markers(difference: Difference) -> set[str]:
    pending, marked = _pending(difference), _new_markers(difference)
    found = {key for place in pending & marked.keys() for key in marked[place]}
    return found | items_of_access(difference) if found else set()


def _ended(difference: Difference) -> set[str]:
    """Return the items of sessions whose end was written, but which the log still names."""
    found = set()
    for key in difference.changed & difference.left.keys():
        if key.endswith("#access") and (granted := difference.left[key][1]["granted"]) is not None:
            _, topic_id, partition = key.split("#")[0].split("/")
            markers = [*markers_of(difference.left, topic_id, int(partition))]
            is_named = markers[-1][1:] == (granted[1], granted[0])
            if granted[3] and is_named and not _pending(difference):
                found |= items_of_access(difference)
    return found


def _severed(difference: Difference) -> set[str]:
    fenced = [v for k, (_, v) in difference.left.items() if k.startswith("sessions/") and v["fences"]]
    if not fenced:
        return set()
    return items_of_access(difference) | set().union(*_new_markers(difference).values())


def _unowned(difference: Difference, *, was_there: bool) -> set[str]:
    found = set()
    for key in (key for key in difference.left if key.startswith("unowned/")):
        topic_id = key.split("#")[0].removeprefix("unowned/")
        name = difference.left[key][1]["name"]
        if (f"subscriptions/{topic_id}#{name}" in difference.before) is was_there:
            found |= items_of_access(difference)
    return found


ACCESS_ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "an epoch reserved, before its marker": _reserved,
    "some ACCESS markers of a topic claim": _some_markers,
    "the end of an exclusive session, before the marker back to shared": _ended,
    "a session severed, before all of its fences": _severed,
    "a subscription's cursors, before the subscription": lambda d: _unowned(d, was_there=False),
    "a subscription's end, before that of its cursors": lambda d: _unowned(d, was_there=True),
}


def settled_access(difference: Difference) -> set[str]:
    """Return items that say what is so, and the markers that they depend on: nothing is owed."""
    is_owed = any(find(difference) for find in ACCESS_ROWS.values())
    return set() if is_owed else items_of_access(difference) | set().union(*_new_markers(difference).values())
