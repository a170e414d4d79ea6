"""Leaving: the end of a membership by the member's own request (protocol, "Groups").

Rule: leaving is a removal: one write, of the group without the member and of the deletion of its item. A static member
that will come back is only marked: its lease goes on, and its target is kept.

Not here: the removal of members whose lease is over (``groups.heartbeat``).
"""

from __future__ import annotations

from dataclasses import replace

from fenceline.format import keys
from fenceline.groups import membership, reads
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import MemberItem
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.model import principal as principals
from fenceline.ports import Change, Check, Delete


def leave(context: Context, group: str, member_id: str, *, is_coming_back: bool, principal: str) -> None:
    """End a membership; one that does not exist stays so.

    Args:
        is_coming_back: Whether a static member keeps its place until its lease is over; without an instance id it has
            no effect.
        principal: The caller's (``principal.lasting``).

    Raises:
        NotAuthorizedError: The member is another principal's.
        InconsistentGroupProtocolError: The group has classic members.
        ContendedError, StoreUnavailableError: Nothing was changed.
        OutcomeUnknownError: The membership may have ended; send the request again.
    """

    def attempt() -> None:
        known, member = reads.group_and_member(context, group, member_id)
        if member is not None:
            principals.judge(member.principal, principal, "the member")
        if known is not None:
            membership.judge_native(known)
        changes = _changes(context, known, member, member_id, is_coming_back=is_coming_back)
        if changes:
            context.items.write(changes)

    Attempts(context.runtime, "the group").until_done(attempt)


def _changes(
    context: Context, group: GroupItem | None, member: MemberItem | None, member_id: str, *, is_coming_back: bool
) -> list[Change]:
    if group is None or member_id not in group.members:
        return [] if member is None else [Delete(member.key, member.version or 0)]  # it waited to be admitted
    if member is not None and is_coming_back and group.members[member_id].instance_id is not None:
        if member.is_away:
            return []
        # Neither the epoch nor the one before it is the client's, so that a late heartbeat does not call it back.
        epoch = member.epoch + 1
        return [replace(member, is_away=True, epoch=epoch, previous=epoch).put(context.runtime)]
    left = {other: one for other, one in group.members.items() if other != member_id}
    ended = [] if member is None else [member]
    # The last topics of an empty group stay, so that people see what it read.
    topics = {
        name: one
        for name, one in group.topics.items()
        if not left or any(other.subscribes_to(name) for other in left.values())
    }
    changed = membership.changed(group, context.runtime.now_ms(), members=left, topics=topics, ended=ended)
    gone: Change = (
        Check(keys.member_item(group.group, member_id), None)
        if member is None
        else Delete(member.key, member.version or 0)
    )
    return [changed.put(context.runtime), gone]
