"""Answers about groups: memberships, and groups with their members (contract, "Groups").

Rule: the fields are the contract's, and a value never changes: it is what was true when the request was answered.
Not here: how groups are decided and stored (``groups``), and what a group committed (``model.subscription``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple, TypeAlias, get_args

from fenceline.answers import INLINE, Titled
from fenceline.model.kinds import ClientName, MemberEpoch, MemberId, PartitionNumber, SubscriptionName, TopicName

InstanceId: TypeAlias = ClientName
_State = Literal["Empty", "Assigning", "Reconciling", "Stable", "PreparingRebalance", "CompletingRebalance"]
GroupState: TypeAlias = Annotated[_State, Titled("GroupState", "What a group is doing.")]
GROUP_STATES: tuple[str, ...] = get_args(_State)


@Titled("HeldPartition", "A partition that a member holds.")
class HeldPartition(NamedTuple):
    """A partition, since which member epoch it is held, and a fencing token that only grows."""

    partition: PartitionNumber
    since: Annotated[MemberEpoch, "The member epoch at which the member took the partition."]
    token: Annotated[int, "A fencing token: for one partition it only grows, whichever member holds it."]


@Titled("HeldTopic", "Partitions of one topic that a member holds.")
class HeldTopic(NamedTuple):
    """A topic, and those of its partitions that a member holds."""

    topic: TopicName
    topic_id: str
    partitions: Sequence[HeldPartition]


@Titled("TopicPartitions", "Some partitions of one topic.")
class NamedPartitions(NamedTuple):
    """A topic, and some of its partitions."""

    topic: TopicName
    topic_id: str
    partitions: Sequence[PartitionNumber]


@Titled("Membership", "What a member holds, and when it is to send its next heartbeat.")
@dataclass(frozen=True, slots=True)
class Membership:
    """The answer to a heartbeat: what the member is to work on from now on."""

    member_id: MemberId
    member_epoch: MemberEpoch
    heartbeat_interval_ms: Annotated[int, "When to send the next heartbeat, from now."]
    expires_at: Annotated[int, "When the member's lease is over, unless a heartbeat renews it."]
    partitions: Sequence[HeldTopic]
    is_settled: Annotated[bool, "False while the member is asked for a partition, or waits for one."]


@Titled("Group", "A consumer group.")
@dataclass(frozen=True, slots=True)
class GroupEntry:
    """A group, as a listing has it."""

    group: SubscriptionName
    type: Literal["native", "classic"]
    state: GroupState
    epoch: int
    assignor: str
    topics: Sequence[TopicName]
    member_count: int
    updated_at: Annotated[int, "Milliseconds since the epoch."]


@Titled("GroupMember", "A member of a group.")
@dataclass(frozen=True, slots=True)
class GroupMember:
    """A member of a group, with what it holds, what it is asked to give up, and what the group's target gives it."""

    member_id: MemberId
    instance_id: InstanceId | None
    client_name: ClientName | None
    client_host: str | None
    member_epoch: MemberEpoch
    expires_at: int
    session_timeout_ms: Annotated[int, "For how long a heartbeat renews the lease. A later end shows a wrong clock."]
    is_away: Annotated[bool, "True for a static member that left, and comes back."]
    partitions: Sequence[HeldTopic]
    asked: Sequence[NamedPartitions]
    target: Sequence[NamedPartitions]


@Titled("GroupPage", "A consumer group, with some of its members.")
class GroupPage(NamedTuple):
    """A group with some of its members, in byte order of their ids."""

    group: Annotated[GroupEntry, INLINE]
    members: Sequence[GroupMember]
    has_more: bool
