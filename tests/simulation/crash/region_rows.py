"""Rows of the table in the protocol, "What a crash leaves", about regions.

Pulls, snapshots, UPDATEs and links leave these half done. The log is folded from the stored objects alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from fenceline.format import control, keys
from fenceline.format.control import parse_marker, type_of
from fenceline.format.segment import Segment, parse_segment
from fenceline.log.state import PartitionState, apply
from fenceline.log.topic_item import topic_from_value
from fenceline.ports import Item, ItemKey, Object
from fenceline.regions.link_item import LinkValue, value_of
from fenceline.subscriptions.items import SubscriptionItem, subscription_from_item
from tests.support.service import REGION

if TYPE_CHECKING:
    from tests.simulation.crash.rows import Difference

Marked = tuple[str, int, int, Mapping[str, Any]]  # the segment's key, the marker's offset, type and value


@dataclass(frozen=True)
class Replicated:
    """One partition of a topic that other regions have, too, as it is stored."""

    stored: Mapping[str, Any]
    topic_id: str
    partition: int
    others: frozenset[str]

    @cached_property
    def segments(self) -> dict[str, Segment]:
        """Return the segments by key, in order."""
        prefix = keys.log_prefix(self.topic_id, self.partition)
        found = {}
        for key in sorted(key for key in self.stored if key.startswith(prefix)):
            body, metadata = self.stored[key]
            found[key] = parse_segment(Object(key, body, metadata, len(body), 0))
        return found

    @cached_property
    def state(self) -> PartitionState:
        """Return the state at the end of the log."""
        state = PartitionState()
        for segment in self.segments.values():
            state = apply(state, segment, region=REGION).state
        return state

    @cached_property
    def markers(self) -> list[Marked]:
        """Return each marker of the kinds that regions exchange, in order."""
        found = []
        for key, segment in self.segments.items():
            for at, header in segment.batches:
                if header.is_control and (kind := type_of(segment.body, at, header)) in KINDS:
                    value = parse_marker(segment.body, at, header).value
                    found.append((key, header.base_offset, kind, value))
        return found

    @property
    def link_place(self) -> str:
        return f"{keys.partition_items(self.topic_id, self.partition)}#link"

    @property
    def link(self) -> LinkValue:
        """Return the value of the link item."""
        return link_of(self.stored, self.link_place)

    @property
    def is_applied(self) -> bool:
        """Return True if each UPDATE of another region is known to be applied."""
        return self.link.applied_to >= self.state.regions.update_next

    def is_foreign(self, key: str) -> bool:
        return self.segments[key].metadata.replicated is not None

    def cursors(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield (place, value) of each cursor of a replicated subscription; an absent one has no members."""
        for one in subscriptions_of(self.stored):
            if one.topic_id == self.topic_id:
                key = keys.cursor_item(one.name, self.topic_id, one.subscription_id, self.partition)
                place = f"{key.partition}#{key.sort}"
                yield place, self.stored[place][1] if place in self.stored else {}


KINDS = (
    control.SNAPSHOT_REQUEST,
    control.SNAPSHOT_RESPONSE,
    control.SNAPSHOT,
    control.SUBSCRIPTION_UPDATE,
    control.SKIP,
)


def replicated_in(stored: Mapping[str, Any]) -> list[Replicated]:
    """Return each partition of a topic that other regions have, too."""
    found = []
    for place, value in stored.items():
        if place.startswith(f"{keys.TOPICS}#"):
            topic = topic_from_value(value[1], 0).topic
            others = frozenset(topic.regions) - {REGION}
            if others:
                found += [Replicated(stored, topic.topic_id, number, others) for number in range(topic.partitions)]
    return found


def subscriptions_of(stored: Mapping[str, Any]) -> Iterator[SubscriptionItem]:
    """Yield each replicated subscription."""
    for place, value in stored.items():
        if place.startswith("subscriptions/"):
            partition, sort = place.split("#", 1)
            found = subscription_from_item(Item(ItemKey(partition, sort), *value))
            if found.replicate_subscription_state:
                yield found


def link_of(stored: Mapping[str, Any], place: str) -> LinkValue:
    if place not in stored:
        return LinkValue()
    partition, sort = place.split("#")
    return value_of(Item(ItemKey(partition, sort), *stored[place]))


def taken(difference: Difference) -> set[str]:
    """Return the new segments of other regions' records and markers."""
    new = difference.changed_under("log/") & difference.left.keys()
    return {key for one in difference.replicated for key in new & one.segments.keys() if one.is_foreign(key)}


def _unapplied(difference: Difference) -> set[str]:
    found = set()
    for one in difference.replicated:
        if not one.is_applied:
            applied_to = one.link.applied_to
            updates = {
                key
                for key, offset, kind, _ in one.markers
                if kind == control.SUBSCRIPTION_UPDATE and offset >= applied_to and one.is_foreign(key)
            }
            found |= updates & difference.changed
    return found


def _unanswered(difference: Difference) -> set[str]:
    """Return the new REQUESTs that lack an answer, and the new answers to REQUESTs whose SNAPSHOT is missing."""
    found = set()
    for one in difference.replicated:
        regions = one.state.regions
        open_ = {asked.snapshot_id for asked in regions.asked} | {other.snapshot_id for other in regions.unanswered}
        questions = (control.SNAPSHOT_REQUEST, control.SNAPSHOT_RESPONSE)
        found |= {key for key, _, kind, value in one.markers if kind in questions and value["id"] in open_}
    return found & difference.changed


def _not_looked_at(difference: Difference) -> set[str]:
    """Return the new SNAPSHOTs that some cursor was not compared with."""
    found = set()
    for one in difference.replicated:
        seen = [value.get("seen", 0) for _, value in one.cursors()]
        for key, _, kind, value in one.markers:
            if kind == control.SNAPSHOT and key in difference.changed and any(at < value["local"] for at in seen):
                found.add(key)
    return found


def _due(difference: Difference) -> set[str]:
    """Return the cursors of which an UPDATE is due, and the new UPDATEs that they were not cleared of."""
    found = set()
    for one in difference.replicated:
        due = {place: value["due"][0] for place, value in one.cursors() if value.get("due")}
        found |= due.keys() & difference.changed
        for key, _, kind, value in one.markers:
            if kind == control.SUBSCRIPTION_UPDATE and not one.is_foreign(key) and key in difference.changed:
                found |= {key} if {update["id"] for update in value["updates"]} & set(due.values()) else set()
    return found


def _unannounced(difference: Difference) -> set[str]:
    """Return the subscriptions of which some region may not know, and the new UPDATEs that were not noted."""
    found = set()
    for one in difference.replicated:
        unannounced = {sub.name: sub for sub in subscriptions_of(difference.left) if not one.others <= set(sub.told)}
        found |= {f"{keys.subscription_items(one.topic_id)}#{name}" for name in unannounced} & difference.changed
        for key, _, kind, value in one.markers:
            if kind == control.SUBSCRIPTION_UPDATE and not one.is_foreign(key) and key in difference.changed:
                found |= (
                    {key} if {update["subscription"] for update in value["updates"]} & unannounced.keys() else set()
                )
    return found


def _applied(difference: Difference) -> set[str]:
    """Return the changes of UPDATEs that are not known to be applied."""
    if all(one.is_applied for one in difference.replicated):
        return set()
    return difference.changed_under("subscriptions/") | difference.changed_under("cursors/")


def _leases(difference: Difference) -> set[str]:
    found = set()
    for one in difference.replicated:
        was = link_of(difference.before, one.link_place)
        if one.link_place in difference.changed and (one.link.holder or one.link.again > was.again):
            found.add(one.link_place)
    return found


REGION_ROWS: Mapping[str, Callable[[Difference], set[str]]] = {
    "a replicated segment's create, before anything else": taken,
    "the same, before UPDATEs in it were applied": _unapplied,
    "a REQUEST, before its RESPONSE; the last RESPONSE, before SNAPSHOT": _unanswered,
    "SNAPSHOT, before cursors were looked at": _not_looked_at,
    "`due`, before UPDATE; UPDATE, before `due` is cleared": _due,
    "a subscription, before its UPDATE to the other regions": _unannounced,
    "an UPDATE's subscription and cursor, before `applied_to`": _applied,
    "a lease, `again`, a message": _leases,
}


def settled_regions(difference: Difference) -> set[str]:
    """Return the markers and links that no row is about: nothing is owed for any of them."""
    owed = set().union(*(find(difference) for find in REGION_ROWS.values()))
    found = set()
    for one in difference.replicated:
        found |= {one.link_place} | {key for key, *_ in one.markers if not difference.has_data(key)}
    return (found & difference.changed) - owed
