"""Findings about groups: items of members of no group that hold something (protocol, "Groups", G4).

Rule: such an item is left only where items were lost. It is found by the names of groups, which are those of all
groups' items and of all subscriptions, because a group has a subscription on each topic of which its members hold
partitions.

Not here: the sweeper, which removes such an item once its lease is over (``sweeper.group_expiry``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.groups import reads
from fenceline.groups.member_item import Place
from fenceline.log.context import Context


def group_findings(context: Context) -> Mapping[Place, Sequence[str]]:
    """Return a line for each item of a member of no group, by each (topic id, partition) that it holds.

    Raises:
        Unavailable: The item store could not be asked.
    """
    found: dict[Place, list[str]] = {}
    for name in sorted(_names(context)):
        for place, line in _findings(context, name):
            found.setdefault(place, []).append(line)
    return found


def _findings(context: Context, name: str) -> Iterator[tuple[Place, str]]:
    members = reads.members(context, name)
    if not any(one.holds for one in members.values()):
        return
    group = reads.only_group(context, name)  # after the members, so that one that has just joined is found in it
    known = {} if group is None else group.members
    for one in members.values():
        if one.holds and one.member_id not in known and reads.only_member(context, name, one.member_id) == one:
            line = (
                "a member of no group holds the partition; it is removed once its lease is over: "
                f"group={name} member_id={one.member_id} expires_at={one.expires_at}"
            )
            yield from ((place, line) for place in one.holds)


def _names(context: Context) -> set[str]:
    found: set[str] = set()
    for shard in range(COORDINATOR_SHARDS):
        found |= {item.key.sort for item in context.query_items(keys.groups_of(shard))}
    for topic in context.query_items(keys.TOPICS):
        found |= {item.key.sort for item in context.query_items(keys.subscription_items(str(topic.value["topic_id"])))}
    return found
