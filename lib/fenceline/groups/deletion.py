"""Deletion of a group, with its offsets on every topic (contract, "Groups").

Rule: first one write marks a group without members as going. A request that meets the mark finishes the deletion before
it goes on, so that a process which dies in between leaves nothing that a new member would find.

Not here: the deletion of one subscription (``subscriptions.lifecycle``).
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from fenceline import limits
from fenceline.errors import (
    GroupIdNotFoundError,
    NonEmptyGroupError,
    UnknownSubscriptionError,
    UnknownTopicOrPartitionError,
)
from fenceline.format import keys
from fenceline.groups import reads, removal
from fenceline.groups.group_item import NATIVE, GroupItem
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.ports import Check, Delete
from fenceline.subscriptions import lifecycle
from fenceline.subscriptions.cursors import Live


def not_found(group: str) -> GroupIdNotFoundError:
    """Return the error for a name that no group has."""
    what = "there is no such group; a group exists once a member has joined it"
    return GroupIdNotFoundError(f"{what}: group={group[: limits.SUBSCRIPTION_NAME_CHARS_MAX]}")


def delete(context: Context, live: Live, group: str) -> None:
    """Delete a group and its offsets. Members whose lease is over are removed first.

    Raises:
        GroupIdNotFoundError: There is no such group.
        NonEmptyGroupError: It has members. Nothing was deleted.
        ContendedError, StoreUnavailableError: Some of its offsets may be deleted; delete it again.
        OutcomeUnknownError: It may be deleted, all or in part; delete it again.
    """
    begun: list[GroupItem] = []

    def attempt() -> None:
        known = reads.only_group(context, group)
        if begun and (known is None or not known.is_going or known.version != begun[-1].version):
            return  # finished by an attempt that was not answered, or by another request; what is there came later
        if known is None or known.is_gone:
            raise not_found(group)
        if not known.is_going:
            known = _marked(context, known)
        begun.append(known)
        finish(context, live, known)

    Attempts(context.runtime, "the group").until_done(attempt)


def _marked(context: Context, group: GroupItem) -> GroupItem:
    """Mark the group as going, after its lapsed members are removed, and return it.

    Raises:
        NonEmptyGroupError: A member is live.
    """
    group = removal.without_dead(context, group)
    if group.members:
        raise NonEmptyGroupError(
            "the group has members; stop them, or wait until their leases are over: "
            f"group={group.group} members={len(group.members)}"
        )
    marked = replace(group, is_going=True)
    put = marked.put(context.runtime)
    context.items.write([put])
    return marked.written(put)


def finish(context: Context, live: Live, group: GroupItem) -> None:
    """Delete the offsets and the items of the group's own, and at last let a group that is going be gone.

    Each write has the group's mark as its condition, so that a process which was frozen deletes nothing of a group that
    has come again under the name.

    Raises:
        VersionMoved: Another request finished it.
        Unavailable, NoAnswer: It may not be finished.
        FencelineError: A store failed while the offsets were deleted.
    """
    mark = Check(group.key, group.version)
    for topic in _subscribed(context, group.group):
        with suppress(UnknownTopicOrPartitionError, UnknownSubscriptionError):
            lifecycle.delete(live(topic), group.group, mark)
    for item in context.query_items(keys.member_items(group.group)):  # also the chunks of a classic group
        context.items.write([Delete(item.key, item.version), mark])
    # The epoch stays: tokens and member epochs of a group that comes again must not begin anew.
    gone = GroupItem(
        group.group, NATIVE, group.epoch, group.assignor, is_gone=True, updated_at=context.runtime.now_ms()
    )
    context.items.write([replace(gone, version=group.version).put(context.runtime)])


def _subscribed(context: Context, group: str) -> list[str]:
    """Return the names of all topics that have a subscription of the group's name, also one without a cursor."""
    topics = context.query_items(keys.TOPICS)
    wanted = {keys.subscription_item(str(item.value["topic_id"]), group): item.key.sort for item in topics}
    return [wanted[key] for key in context.read_items([*wanted])]
