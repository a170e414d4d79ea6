"""The changes that a dead process left, by the rows of the table in the protocol, "What a crash leaves".

Rule: every change in the stores is either accounted for by a row, or settled, which means that a client may have wanted
just that. A row is named by its first column. The test fails unless both tables have the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from fenceline.format import keys
from fenceline.format.batch import headers
from fenceline.format.control import SEAL, parse_marker
from fenceline.log.checkpoint_items import Head
from fenceline.log.topic_item import TopicItem, topic_from_value
from tests.simulation.crash.access_rows import ACCESS_ROWS, settled_access
from tests.simulation.crash.combining_rows import COMBINING_ROWS, settled_combining
from tests.simulation.crash.group_rows import GROUP_ROWS, settled_groups
from tests.simulation.crash.region_rows import REGION_ROWS, Replicated, replicated_in, settled_regions, taken
from tests.simulation.crash.transaction_rows import TRANSACTION_ROWS, settled_transactions
from tests.support.law import PROTOCOL

Stored = Mapping[str, Any]

NOT_SERVED = "*(not served yet)*"


@dataclass(frozen=True)
class Difference:
    """The stores before an operation, and as its process left them."""

    before: Stored
    left: Stored
    is_all_written: bool  # nothing but reads and the answer was missing

    @cached_property
    def changed(self) -> frozenset[str]:
        every = self.before.keys() | self.left.keys()
        return frozenset(key for key in every if self.before.get(key) != self.left.get(key))

    def changed_under(self, prefix: str) -> set[str]:
        return {key for key in self.changed if key.startswith(prefix)}

    @cached_property
    def topics(self) -> dict[str, TopicItem]:
        """Return the topics whose item changed, by the item's place."""
        found = self.changed_under(f"{keys.TOPICS}#") & self.left.keys()
        return {key: topic_from_value(self.left[key][1], 0) for key in found}

    @cached_property
    def heads(self) -> dict[str, tuple[Head | None, Head]]:
        """Return the heads that changed, as (was, is), by the partition's items' name."""
        found = {key for key in self.changed & self.left.keys() if key.endswith("#head")}
        return {
            key.removesuffix("#head"): (_head(self.before, key), Head.from_value(self.left[key][1])) for key in found
        }

    @cached_property
    def replicated(self) -> list[Replicated]:
        """Return the partitions of topics in several regions, as they were left."""
        return replicated_in(self.left)

    def is_seal(self, key: str) -> bool:
        body = self.left[key][0]
        return any(header.is_control and parse_marker(body, at, header).type == SEAL for at, header in headers(body))

    def has_data(self, key: str) -> bool:
        return any(not header.is_control for _, header in headers(self.left[key][0]))


def _head(stored: Stored, key: str) -> Head | None:
    return Head.from_value(stored[key][1]) if key in stored else None


def _log_start(head: Head | None) -> int:
    return 0 if head is None else head.log_start


def _data_segments(difference: Difference) -> set[str]:
    """Return the new segments with records of this region's own clients."""
    new = difference.changed_under("log/") & difference.left.keys()
    return {key for key in new if difference.has_data(key) and "origin-topic" not in difference.left[key][1]}


def _segments_behind_the_head(difference: Difference) -> set[str]:
    behind = set()
    for key in _data_segments(difference):
        topic_id, partition, base_offset = keys.parse_segment_key(key)
        head = _head(difference.left, f"{keys.partition_items(topic_id, partition)}#head")
        if head is None or head.next_offset <= base_offset:
            behind.add(key)
    return behind


def _items_ahead_of_the_head(difference: Difference) -> set[str]:
    if not _has_topic_items(difference):
        return set()
    ahead = set()
    for key in difference.changed_under("partition/") & difference.left.keys():
        items, sort = key.split("#")
        head = _head(difference.left, f"{items}#head")
        if sort.startswith(keys.PRODUCER_SORT) and (
            head is None or difference.left[key][1]["folded_to"] > head.next_offset
        ):
            ahead.add(key)
    return ahead


def _checkpoint_without_log_start(difference: Difference) -> set[str]:
    if difference.is_all_written or not _has_topic_items(difference):
        return set()
    moved = {items for items, (was, head) in difference.heads.items() if head.log_start == _log_start(was)}
    # A checkpoint in the midst of a pull is no trim's.
    moved -= {keys.partition_items(*keys.parse_segment_key(key)[:2]) for key in taken(difference)}
    return {key for key in difference.changed_under("partition/") if key.split("#")[0] in moved}


def _log_start_without_state(difference: Difference) -> set[str]:
    owed = set()
    for items, (was, head) in difference.heads.items():
        _, topic_id, partition = items.split("/")
        is_moved = head.log_start > _log_start(was)
        if is_moved and keys.state_key(topic_id, int(partition), head.log_start) not in difference.left:
            owed |= {key for key in difference.changed_under("partition/") if key.split("#")[0] == items}
    return owed


def _topic_without_object(difference: Difference) -> set[str]:
    return {
        place
        for place, item in difference.topics.items()
        if keys.topic_key(item.topic.topic_id, item.n) not in difference.left
    }


def _object_not_noted(difference: Difference) -> set[str]:
    found = set()
    for key in difference.changed_under(keys.TOPIC_PREFIX):
        topic_id, n = keys.parse_topic_key(key)
        for place, (_, value) in ((p, v) for p, v in difference.left.items() if p.startswith(f"{keys.TOPICS}#")):
            item = topic_from_value(value, 0)
            if (item.topic.topic_id, item.n) == (topic_id, n) and item.object_n < n:
                found |= {key, place}
    return found


def _going(difference: Difference, *, is_sealed: bool) -> set[str]:
    found = set()
    for place, value in difference.left.items():
        if not place.startswith(f"{keys.TOPICS}#"):
            continue
        item = topic_from_value(value[1], 0)
        topic_id = item.topic.topic_id
        prefixes = [keys.log_prefix(topic_id, p) for p in range(item.topic.partitions)]
        sealed = [prefix for prefix in prefixes if _has_seal(difference, prefix)]
        if item.is_going and (len(sealed) == len(prefixes)) is is_sealed:
            found |= difference.changed_under(keys.topic_prefix(topic_id)) | {place}
            found |= {key for prefix in prefixes for key in difference.changed_under(prefix)}
            found |= difference.changed_under(f"partition/{topic_id}/")
    return found & difference.changed


def _has_seal(difference: Difference, prefix: str) -> bool:
    last = max((key for key in difference.left if key.startswith(prefix)), default=None)
    return last is not None and difference.is_seal(last)


def _some_of_a_rebuild(difference: Difference) -> set[str]:
    return set(difference.changed) - difference.before.keys() if _is_rebuilding(difference) else set()


def _is_rebuilding(difference: Difference) -> bool:
    return any(place.startswith(f"{keys.REBUILDING.partition}#") for place in difference.left)


def _has_topic_items(difference: Difference) -> bool:
    return any(place.startswith((f"{keys.TOPICS}#", f"{keys.GONE}#")) for place in difference.left)


def _steps_of_a_sweep(difference: Difference) -> set[str]:
    """Return the changes that one step leaves to the next: the store's time, the round's place, a wait that began."""
    steps = difference.changed_under(keys.CLOCK_PREFIX) | difference.changed_under(f"{keys.SWEEP_CURSOR.partition}#")
    waits = {place for place in difference.changed_under(f"{keys.GONE}#") if place in difference.before}
    return steps | (waits & difference.left.keys())


def _deleted(difference: Difference) -> set[str]:
    collected = ("log/", "state/", "topic/", "compacted/", "partition/", f"{keys.GONE}#")
    return {key for key in difference.changed - difference.left.keys() if key.startswith(collected)}


def _files_of_no_view(difference: Difference) -> set[str]:
    made = difference.changed_under("compacted/") & difference.left.keys()
    return {key for key in made if not _is_in_force(difference.left, key)}


def _is_in_force(stored: Stored, key: str) -> bool:
    topic_id, partition, _, attempt, _ = keys.parse_compacted_key(key)
    head = _head(stored, f"{keys.partition_items(topic_id, partition)}#head")
    return head is not None and head.view is not None and head.view.attempt == attempt


def _producer_ids(difference: Difference) -> set[str]:
    """Return the counter, unless a rebuild has written it."""
    is_rebuilt = bool(difference.topics) or _is_rebuilding(difference)
    return set() if is_rebuilt else difference.changed_under(f"{keys.PRODUCER_ID_BLOCK.partition}#")


ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "a create, before the acknowledgement": _data_segments,
    "a create, before the checkpoint": _segments_behind_the_head,
    "some items of a checkpoint, before its head": _items_ahead_of_the_head,
    "the checkpoint that goes before a trim or a compaction": _checkpoint_without_log_start,
    "a log start, before its `state/` object": _log_start_without_state,
    "a topic's item, before its object": _topic_without_object,
    "a topic's object, before its item notes it": _object_not_noted,
    "DELETE, before some SEALs": lambda difference: _going(difference, is_sealed=False),
    "the last SEAL, before the name is given up": lambda difference: _going(difference, is_sealed=True),
    "a block of producer ids, before one is answered": _producer_ids,
    "some items of a rebuild": _some_of_a_rebuild,
    "half a compaction": _files_of_no_view,
    "a step of the sweeper, before the next": _steps_of_a_sweep,
    "some deletions of a collection, before the others": _deleted,
    **COMBINING_ROWS,
    **ACCESS_ROWS,
    **TRANSACTION_ROWS,
    **REGION_ROWS,
    **GROUP_ROWS,
}
"""By its first column: the changed keys that a row accounts for. Rows of further operations go here."""

LAST_WRITE = "the last write of anything else, before its answer"


def _settled(difference: Difference) -> set[str]:
    """Return the settled changes: topics that item, object and note agree on, checkpoints, state objects, views in
    force.

    Nothing is owed for any of it.
    """
    settled = {key for items in difference.heads for key in difference.changed_under(f"{items}#")}
    settled -= _items_ahead_of_the_head(difference)
    settled |= settled_combining(difference)
    settled |= settled_access(difference)
    settled |= settled_transactions(difference)
    settled |= settled_regions(difference)
    settled |= settled_groups(difference)
    settled |= {key for key in difference.changed_under("compacted/") if _is_in_force(difference.left, key)}
    settled |= {
        key for key in difference.changed_under("state/") & difference.left.keys() if _is_reached(difference, key)
    }
    for place, item in difference.topics.items():
        if not item.is_going and item.object_n == item.n:
            settled |= {place, *difference.changed_under(keys.topic_prefix(item.topic.topic_id))}
    return settled


def _is_reached(difference: Difference, state: str) -> bool:
    topic_id, partition, log_start = keys.parse_state_key(state)
    return log_start <= _log_start(_head(difference.left, f"{keys.partition_items(topic_id, partition)}#head"))


def explain(before: Stored, left: Stored, *, is_all_written: bool) -> tuple[set[str], set[str]]:
    """Return the rows that account for what was left behind, and the changed keys that none accounts for."""
    difference = Difference(before, left, is_all_written)
    by_row = {row: found for row, find in ROWS.items() if (found := find(difference))}
    rows = set(by_row)
    if is_all_written and difference.changed and not rows:
        return {LAST_WRITE}, set()
    unexplained = difference.changed - _settled(difference) - set().union(*by_row.values())
    return rows, set(unexplained)


def rows_of_design() -> dict[str, tuple[str, str]]:
    """Return the protocol's table: (left behind, mended by) by the first column, with what is not served marked."""
    lines = [line for line in PROTOCOL["crashes"].splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["after", "left behind", "mended by"]
    return {after: (left, mended) for after, left, mended in cells[2:]}
