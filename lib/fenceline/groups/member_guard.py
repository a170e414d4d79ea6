"""The guard of a group's reads and commits: only the member that holds a partition passes (protocol, "Groups").

Rule: ownership by a session stands above a group's members (``access.ownership.read_guard``). A request without a
session is then judged by its member, for all of its partitions at once: the member's item must hold each of them.

Rule: a commit carries the member's item as a condition of its write, so that a removed member's commit never lands, and
no commit contends for the group's item. Without a member a commit passes only while the group has none, and carries the
group's item as its condition. A read has no condition, because it is judged again after it.

Not here: how a member comes to hold a partition (``groups.reconcile``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias, TypeVar

from fenceline import limits
from fenceline.access.ownership import read_guard
from fenceline.access.ownership.read_guard import Incarnation
from fenceline.errors import (
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from fenceline.format import keys
from fenceline.groups import reads
from fenceline.groups.group_item import GroupItem
from fenceline.groups.member_item import MemberItem
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.model import principal as principals
from fenceline.model.requests import MemberRef
from fenceline.ports import Check

T = TypeVar("T")

Place: TypeAlias = tuple[Incarnation, int]
"""A partition: its topic, and its number."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a read or a commit as a group: a session, a member of the group, or neither of them.

    Attributes:
        member: It is not looked at beside a session.
    """

    group: str
    session_id: str | None = None
    member: MemberRef | None = None
    principal: str = ""


def judge_commit(context: Context, caller: Caller, places: Sequence[Place]) -> Sequence[Check]:
    """Judge a commit to these partitions, and return the conditions of its write.

    Raises:
        FencelineError: As ``guard_group``, for each partition, before what follows.
        UnknownMemberIdError: The group has no such member. Or it has members, and the commit names none.
        NotAuthorizedError: The member is another principal's.
        StaleMemberEpochError: The member does not hold a partition, or took it after the epoch that is named.
        RebalanceInProgressError: The group is classic, and between two generations.
        StoreUnavailableError: A store failed. At most a session's lease was changed.
    """
    judges: list[Callable[[], Sequence[Check]]] = [partial(_judge_owner, context, caller, places)]
    if caller.session_id is None:
        judges.append(partial(_judge_member, context, caller, places))
    # Side by side, so that a commit without a session waits no longer for it; the first of them refuses first.
    return [check for checks in context.runtime.gather(judges) for check in checks]


def judge_read(context: Context, caller: Caller, place: Place) -> None:
    """Judge a read of one partition now; without a member and a session, no member is asked for.

    Raises:
        FencelineError: As ``judge_commit``.
    """
    judges: list[Callable[[], Sequence[Check]]] = [partial(_judge_owner, context, caller, [place])]
    if caller.session_id is None and caller.member is not None:
        judges.append(partial(_judge_member, context, caller, [place]))
    context.runtime.gather(judges)


class GuardedRead(Protocol):
    """A request to read, with its group, and its session or member, if it has any."""

    @property
    def group(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def member(self) -> MemberRef | None: ...


def guarded(partition: Partition, request: GuardedRead, principal: str, read: Callable[[], T]) -> T:
    """Return the result of ``read``, if the request may read before it, and still may after it.

    Raises:
        FencelineError: As ``judge_commit``. Nothing is shown.
    """

    def judge() -> None:
        if request.group is not None:
            caller = Caller(request.group, request.session_id, request.member, principal)
            judge_read(partition.context, caller, (partition, partition.partition))
        elif request.session_id is not None:
            read_guard.guard_session(partition.context, request.session_id, principal)

    judge()
    found = read()
    judge()
    return found


def _judge_owner(context: Context, caller: Caller, places: Sequence[Place]) -> Sequence[Check]:
    group, session_id, principal = caller.group, caller.session_id, caller.principal
    return [
        check
        for topic, partition in places
        for check in read_guard.guard_group(context, topic, partition, group, session_id, principal)
    ]


def _judge_member(context: Context, caller: Caller, places: Sequence[Place]) -> Sequence[Check]:
    # A refusal is final, because it refuses a read or a commit, and nothing of either is written here.
    attempts = Attempts(context.runtime, "the group's member", is_refusal_final=True)
    if caller.member is None:
        return attempts.until_done(partial(_judge_memberless, context, caller.group))
    return attempts.until_done(partial(_judge_named, context, caller, caller.member, places))


def _judge_named(context: Context, caller: Caller, member: MemberRef, places: Sequence[Place]) -> Sequence[Check]:
    """Judge a member by its own item, so that a large group's item is not read with each commit.

    Only a classic member has none, and is judged by the group's item.
    """
    is_short = len(member.member_id) <= limits.MEMBER_ID_CHARS_MAX  # longer than any; and keys have bounds
    found = reads.only_member(context, caller.group, member.member_id) if is_short else None
    if found is None:
        return _judge_classic(context, caller.group, member, places[0])
    principals.judge(found.principal, principals.lasting(caller.principal), "the member")
    for topic, partition in places:
        _judge_held(found, member.member_epoch, topic, partition)
    return [Check(found.key, found.version)]  # model: Groups, "a commit on the member's version"


def _judge_classic(context: Context, group: str, member: MemberRef, place: Place) -> Sequence[Check]:
    """Judge a member of a classic group, whose member epoch is the generation, and which says itself what it has."""
    found = reads.only_group(context, group)
    if found is None or found.classic is None or member.member_id not in found.members:
        raise UnknownMemberIdError(
            "the group has no such member; stop all work, and join with a heartbeat of member_epoch 0: "
            f"group={group} member_id={member.member_id[: limits.MEMBER_ID_CHARS_MAX]}"
        )
    named = f"group={group} generation={found.epoch} member_epoch={member.member_epoch}"
    if member.member_epoch != found.epoch:
        why = "the group is in another generation; stop all work, and join again"
        raise StaleMemberEpochError(f"{why}: {named}", topic=place[0].name, partition=place[1])
    if found.classic["state"] == "CompletingRebalance":
        why = "the group's leader has not sent the assignment; send the request again"
        raise RebalanceInProgressError(f"{why}: {named}")
    return [Check(found.key, found.version)]


def _judge_held(member: MemberItem, epoch: int, topic: Incarnation, partition: int) -> None:
    """Judge one partition by the rule of KIP-1251: it was taken no later than at the epoch that the request names."""
    held = member.holds.get((topic.topic_id, partition))
    # model: Groups, "a commit no earlier than since"
    if held is not None and held.since <= epoch <= member.epoch:
        return
    if held is None:
        why = "the member does not hold the partition"
    elif epoch < held.since:
        why = "the member took the partition after that epoch"
    else:
        why = "the member has not come to that epoch"
    raise StaleMemberEpochError(
        f"{why}; send a heartbeat, and go on with what its answer shows: topic={topic.name} partition={partition} "
        f"member_id={member.member_id} member_epoch={epoch}",
        topic=topic.name,
        partition=partition,
    )


def _judge_memberless(context: Context, group: str) -> Sequence[Check]:
    """Judge a commit without a member, which passes only while the group has none (Kafka: offsets are reset so)."""
    found = reads.only_group(context, group)
    if found is not None and found.members:
        found = _without_dead(context, found)
        if found.members:  # one of them has renewed its lease since it was looked at
            raise _of_others(found)
    return [Check(keys.group_item(group), None if found is None else found.version)]


def _without_dead(context: Context, group: GroupItem) -> GroupItem:
    """Return the group once its members are removed, if the leases of all are over.

    No member may be left that would remove them, and the group's offsets must not be locked by the dead for good. The
    first member is looked at alone, so that refusals by a live group cost one small read.

    Raises:
        UnknownMemberIdError: A member is live. Nothing was changed.
        VersionMoved, Unavailable, NoAnswer: As ``removal.without_dead``.
    """
    # Only here: what removes members loads the assignors, which no read needs.
    from fenceline.groups import classic_removal, reconcile, removal

    if group.classic is not None:
        if classic_removal.dead(group, context.runtime.now_ms()) < group.members.keys():
            raise _of_others(group)
        return removal.without_dead(context, group)
    now_ms, first = context.runtime.now_ms(), next(iter(group.members))
    one = reads.only_member(context, group.group, first)
    if one is None or reconcile.is_dead(one, group, now_ms):
        known = reads.members(context, group.group)
        if all(reconcile.is_dead(known[name], group, now_ms) for name in group.members if name in known):
            return removal.without_dead(context, group)
    raise _of_others(group)


def _of_others(group: GroupItem) -> UnknownMemberIdError:
    return UnknownMemberIdError(
        "the group has members, so only these commit there: give member_id and member_epoch, or end the members "
        f"first: group={group.group} members={len(group.members)}"
    )
