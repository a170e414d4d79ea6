"""Requests about groups and their members (contract, "Groups").

Rule: each method is a single request, and keeps nothing alive.

Not here: what a group has committed (``requests.subscriptions``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fenceline.answers import parse
from fenceline.client.calls import public
from fenceline.client.requests.base import Answer, Requests, given, part
from fenceline.client.requests.subscriptions import InitialPosition
from fenceline.model.group import GroupEntry, GroupMember, GroupPage, GroupState, Membership, NamedPartitions


@public
class GroupRequests(Requests):
    """The part of ``Client`` that is about groups and their members."""

    def group_heartbeat(
        self,
        group: str,
        member_id: str,
        member_epoch: int,
        *,
        topics: Iterable[str] | None = None,
        topic_prefixes: Iterable[str] | None = None,
        owned: Iterable[NamedPartitions] | None = None,
        instance_id: str | None = None,
        client_name: str | None = None,
        assignor: str | None = None,
        session_timeout_ms: int | None = None,
        rebalance_timeout_ms: int | None = None,
        initial_position: InitialPosition | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Membership:
        """Join a group, or stay in it, and return what the member is to work on (KIP-848).

        Send it again after ``heartbeat_interval_ms`` of the answer. A heartbeat whose answer was lost may be sent
        again as it was.

        Args:
            member_id: The member's own id: 1 to 128 of A-Z a-z 0-9 . _ -. Take a fresh one for each start.
            member_epoch: That of the last answer; 0 joins.
            topics, topic_prefixes: What the member reads, 1 to 100 together. With epoch 0 one of them is needed. Later
                leave out both unless they change: what is given replaces both.
            owned: All that the member works on. Give it while the last answer is not settled, because what was asked
                for and is not named here is given up.
            client_name: The name that the member shows to people; left out, the client's.
            instance_id: The member is static: it keeps its partitions over a restart (KIP-345).
            initial_position: Where a subscription begins that the join makes; ``latest`` if left out.

        Raises:
            UnknownMemberIdError, FencedMemberEpochError: Stop all work, and join with epoch 0. What the member held is
                another's by now.
            UnreleasedInstanceIdError: A live member has the instance id. Join again once its lease is over.
            NotAuthorizedError: The member is another principal's.
            StoreUnavailableError: No answer came. The heartbeat may have been taken: send the same one again.
        """
        body = given(
            member_epoch=member_epoch,
            topics=None if topics is None else list(topics),
            topic_prefixes=None if topic_prefixes is None else list(topic_prefixes),
            owned=None if owned is None else [_owned(one) for one in owned],
            instance_id=instance_id,
            client_name=client_name or self.client_name,
            assignor=assignor,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            initial_position=initial_position,
        )
        # A refusal is true of the member, also after a lost answer; and a repeat is answered as the request was.
        answer = self._call(
            "POST", _member_path(group, member_id), "none", body=body, retry_ms=retry_ms, timeout_ms=timeout_ms
        )
        return parse(Membership, answer)

    def leave_group(
        self,
        group: str,
        member_id: str,
        *,
        is_coming_back: bool = False,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """End a membership, so that others get its partitions at once. A member that is gone is no error.

        Args:
            is_coming_back: A static member keeps its partitions until its lease is over, for the next start of its
                instance.
        """
        self._transport.request(
            "DELETE",
            _member_path(group, member_id),
            effect="repeatable",
            params={"is_coming_back": True if is_coming_back else None},
            retry_ms=retry_ms,
            timeout_ms=timeout_ms,
        )

    def groups(self, *, prefix: str | None = None, state: GroupState | None = None) -> Sequence[GroupEntry]:
        """Return the groups whose names begin with ``prefix`` and that are in ``state``, by name in byte order."""
        pages = self._pages(
            "/v1/groups", lambda page: str(page["groups"][-1]["group"]), given(prefix=prefix, state=state)
        )
        return [parse(GroupEntry, one) for page in pages for one in page["groups"]]

    def group(self, group: str) -> GroupPage:
        """Return a group with all its members, by their ids in byte order.

        Raises:
            GroupIdNotFoundError: No group has this name.
        """

        def last_id(page: Answer) -> str:
            return str(page["members"][-1]["member_id"])

        first: Answer | None = None
        members: list[GroupMember] = []
        for page in self._pages(_path(group), last_id):
            first = first or page
            members += [parse(GroupMember, one) for one in page["members"]]
        return GroupPage(parse(GroupEntry, first or {}), members, has_more=False)

    def delete_group(self, group: str) -> None:
        """Delete a group without members, with its offsets on every topic.

        Raises:
            GroupIdNotFoundError: No group has this name.
            NonEmptyGroupError: It has members. Nothing was deleted.
            OutcomeUnknownError: The answer was lost. The client does not send the request again, because the group may
                have been made and used again in between.
        """
        self._transport.request("DELETE", _path(group), effect="once")


def _owned(one: NamedPartitions) -> dict[str, Any]:
    return given(topic=one.topic, topic_id=one.topic_id or None, partitions=list(one.partitions))


def _path(group: str) -> str:
    return f"/v1/groups/{part(group)}"


def _member_path(group: str, member_id: str) -> str:
    return f"{_path(group)}/members/{part(member_id)}"
