"""Reads of a group: its item, its members' items, and the topics to which it subscribes.

Rule: the members' items are read after the group's item. They need be of no single moment, because under one version
of the group's item the other members only give up what its target gives to this one (protocol, "Groups").

Not here: what follows from them (``groups.membership``, ``groups.reconcile``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fenceline.format import keys
from fenceline.groups.group_item import GroupItem, GroupTopic, Subscriber
from fenceline.groups.member_item import MemberItem
from fenceline.log import topic_item
from fenceline.log.context import Context
from fenceline.ports import Item, ItemKey


def group_and_member(context: Context, group: str, member_id: str) -> tuple[GroupItem | None, MemberItem | None]:
    """Return a group and one of its members, read in one call; ``None`` where there is no item.

    Raises:
        Unavailable: The item store could not be asked.
    """
    group_key, member_key = keys.group_item(group), keys.member_item(group, member_id)

    def look(member_keys: Sequence[ItemKey]) -> tuple[GroupItem | None, Mapping[ItemKey, Item]]:
        found = context.read_items([group_key, *dict.fromkeys(member_keys)])
        item = found.pop(group_key, None)
        return None if item is None else GroupItem.from_item(item), found

    known, members = context.looks.take(f"{group}: the group", member_key, look)
    return known, MemberItem.from_item(members[member_key]) if member_key in members else None


def only_group(context: Context, group: str) -> GroupItem | None:
    """Return a group; ``None`` if it has no item."""
    return next((GroupItem.from_item(item) for item in context.items.get([keys.group_item(group)]).values()), None)


def only_member(context: Context, group: str, member_id: str) -> MemberItem | None:
    """Return a member; ``None`` if it has no item."""
    found = context.items.get([keys.member_item(group, member_id)])
    return next((MemberItem.from_item(item) for item in found.values()), None)


def members(context: Context, group: str) -> Mapping[str, MemberItem]:
    """Return the members' items by their ids, also of those that wait to be admitted.

    Members that this process serves at the same time share the look.
    """

    def look(_: object) -> Mapping[str, MemberItem]:
        found = context.query_items(keys.member_items(group), keys.MEMBER_SORT)
        return {one.member_id: one for one in map(MemberItem.from_item, found)}

    return context.looks.take(f"{group}: the members", None, look)


def topics(context: Context, subscribers: Iterable[Subscriber]) -> dict[str, GroupTopic]:
    """Return the topics that exist among those to which members subscribe, by name, in byte order.

    Raises:
        Unavailable: The item store could not be asked.
    """
    names: set[str] = set()
    prefixes: set[str] = set()
    for one in subscribers:
        names.update(one.topics)
        prefixes.update(one.prefixes)
    found: dict[str, Item] = {}
    for prefix in sorted(prefixes):
        found |= {item.key.sort: item for item in context.query_items(keys.TOPICS, prefix)}
    left = [keys.topic_item(name) for name in sorted(names) if name not in found]
    what = " ".join(["topics", *(key.sort for key in left)])
    named = context.looks.take(what, None, lambda _: context.read_items(left))
    return _by_name(found | {key.sort: item for key, item in named.items()})


def gone_topics(context: Context, group: GroupItem, member: MemberItem) -> frozenset[str]:
    """Return the ids of the topics that no longer exist, of what the member is asked for."""
    known = {topic.topic_id for topic in group.topics.values()}
    unknown = {topic_id: member.names[topic_id] for topic_id, _ in member.asked if topic_id not in known}
    found = context.read_items([keys.topic_item(name) for name in dict.fromkeys(unknown.values())])
    alive = {item.value["topic_id"] for item in found.values() if not item.value["is_going"]}
    return frozenset(unknown.keys() - alive)


def _by_name(found: Mapping[str, Item]) -> dict[str, GroupTopic]:
    items = {name: topic_item.topic_from_item(item) for name, item in sorted(found.items())}
    return {
        name: GroupTopic(one.topic.topic_id, one.topic.partitions) for name, one in items.items() if not one.is_going
    }
