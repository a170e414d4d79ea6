"""Leaving: the end of a membership by the member's own request (protocol, "Groups").

Rule: leaving is a removal: one write, of the group without the member and of the deletion of its item (``removal``). A
static member that will come back is only marked: its lease goes on, and its target is kept.

Not here: the removal of members whose lease is over (``groups.heartbeat``).
"""

from __future__ import annotations

from dataclasses import replace

from fenceline.groups import membership, reads, removal
from fenceline.groups.member_item import MemberItem
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.model import principal as principals
from fenceline.ports import Delete


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
        if known is None or member_id not in known.members:
            if member is not None:  # it waited to be admitted
                context.items.write([Delete(member.key, member.version or 0)])
        elif member is not None and is_coming_back and known.members[member_id].instance_id is not None:
            _mark_away(context, member)
        else:
            removal.without(context, known, {member_id: member})

    Attempts(context.runtime, "the group").until_done(attempt)


def _mark_away(context: Context, member: MemberItem) -> None:
    if member.is_away:
        return
    # Neither the epoch nor the one before it is the client's, so that a late heartbeat does not call it back.
    epoch = member.epoch + 1
    context.items.write([replace(member, is_away=True, epoch=epoch, previous=epoch).put(context.runtime)])
