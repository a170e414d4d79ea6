"""The listing of groups, by name in byte order over all coordinator shards, and one group with its members.

Rule: a listing only looks. It removes no member whose lease is over.

Not here: what a group committed (``subscriptions.committed_offsets``).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import get_args

from fenceline import limits
from fenceline.errors import InvalidRequestError
from fenceline.format import keys
from fenceline.format.partitioner import COORDINATOR_SHARDS
from fenceline.groups import reads, shown
from fenceline.groups.deletion import not_found
from fenceline.groups.group_item import NATIVE, GroupItem
from fenceline.log.context import Context
from fenceline.model.group import GroupEntry, GroupPage, GroupState
from fenceline.ports import Item

_PAGE_GROUPS = 16  # read at once of each shard, and looked at together

STATES: Sequence[str] = get_args(get_args(GroupState)[0])


def list_groups(
    context: Context, *, prefix: str, state: str | None, start_after: str, limit: int
) -> tuple[list[GroupEntry], bool]:
    """Return up to ``limit`` groups whose name begins with ``prefix``, and whether there are more.

    Args:
        state: Only groups that are in it; ``None``: all.

    Raises:
        InvalidRequestError: The state is unknown.
        Unavailable: The item store could not be asked.
    """
    if state is not None and state not in STATES:
        raise InvalidRequestError(f"a state is one of {', '.join(STATES)}: state={state}", field="state")
    found: list[GroupEntry] = []
    for entry in _entries(context, prefix, start_after[: limits.SUBSCRIPTION_NAME_CHARS_MAX + 1]):
        if state is None or entry.state == state:
            if len(found) == limit:
                return found, True
            found.append(entry)
    return found, False


def _entries(context: Context, prefix: str, start_after: str) -> Iterator[GroupEntry]:
    def first(shard: int) -> Sequence[Item]:
        return context.items.query(keys.groups_of(shard), start_after=start_after, prefix=prefix, limit=_PAGE_GROUPS)

    pages = context.runtime.gather([partial(first, shard) for shard in range(COORDINATOR_SHARDS)])
    shards = [_shard(context, shard, prefix, page) for shard, page in enumerate(pages)]
    groups = heapq.merge(*shards, key=lambda one: one.group.encode())
    while some := [*islice(groups, _PAGE_GROUPS)]:
        yield from context.runtime.gather([partial(_entry, context, one) for one in some])


def _shard(context: Context, shard: int, prefix: str, page: Sequence[Item]) -> Iterator[GroupItem]:
    """Yield the groups of a shard, of which the first page is given."""
    while page:
        yield from (group for group in map(GroupItem.from_item, page) if not group.is_hidden)
        if len(page) < _PAGE_GROUPS:
            return
        after = page[-1].key.sort
        page = context.items.query(keys.groups_of(shard), start_after=after, prefix=prefix, limit=_PAGE_GROUPS)


def _entry(context: Context, group: GroupItem) -> GroupEntry:
    has_to_look = bool(group.members) and group.type == NATIVE and not group.is_behind
    members = reads.members(context, group.group) if has_to_look else {}
    return shown.entry_of(group, shown.state_of(group, members))


def get(context: Context, group: str, *, start_after: str, limit: int) -> GroupPage:
    """Return a group with up to ``limit`` members, by id, after the id ``start_after``.

    Raises:
        GroupIdNotFoundError: There is no such group.
        Unavailable: The item store could not be asked.
    """
    known = reads.only_group(context, group)
    if known is None or known.is_hidden:
        raise not_found(group)
    found = reads.members(context, group) if known.members and known.type == NATIVE else {}
    ids = [member_id for member_id in sorted(known.members) if member_id > start_after]
    entry = shown.entry_of(known, shown.state_of(known, found))
    members = [shown.member_of(known, member_id, found.get(member_id)) for member_id in ids[:limit]]
    return GroupPage(entry, members, len(ids) > limit)
