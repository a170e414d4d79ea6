"""Requests about subscriptions, and the same cursors as Kafka's consumer groups see them (contract, "Subscriptions").

Rule: each method is a single request, and keeps no position.

Not here: ``Client.subscribe``, which keeps positions and sends these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from fenceline import limits
from fenceline.answers import parse
from fenceline.client import types
from fenceline.client.calls import public
from fenceline.client.requests.base import Requests, given, part, topic_path
from fenceline.client.types import CommittedOffset, Subscription
from fenceline.model.kinds import Isolation
from fenceline.model.results import Page
from fenceline.model.subscription import Acknowledged, LaggingSubscription, SeekPreview

InitialPosition = Literal["latest", "earliest"]


@public
class SubscriptionRequests(Requests):
    """The part of ``Client`` that is about cursors."""

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        initial_position: InitialPosition = "latest",
        replicate_subscription_state: bool | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Subscription:
        """Create a subscription, or return the existing one, unmoved.

        Args:
            replicate_subscription_state: Move the subscription in the topic's other regions, too, after what is
                acknowledged here (PIP-33). ``None`` leaves it as it is; a new one is then not replicated.
        """
        body = given(initial_position=initial_position, replicate_subscription_state=replicate_subscription_state)
        path = _path(topic, name)
        answer = self._call("PUT", path, "repeatable", body=body, retry_ms=retry_ms, timeout_ms=timeout_ms)
        return parse(Subscription, answer)

    def set_active_region(self, topic: str, name: str, region: str | None) -> Subscription:
        """Set the region in which the subscribers of a replicated subscription should read; ``None`` ends that.

        The active region is advice: a subscriber of several regions moves there at its next page, and any other
        subscriber ignores it. The setting is replicated to the other regions. A missing subscription is created at
        earliest.
        """
        body = {"initial_position": "earliest", "active_region": region}
        answer = self._call("PUT", _path(topic, name), "repeatable", body=body)
        return parse(Subscription, answer)

    def subscriptions(self, topic: str) -> Sequence[Subscription]:
        """Return the subscriptions of a topic, without their partitions."""
        pages = self._pages(topic_path(topic) + "/subscriptions", lambda page: page["subscriptions"][-1]["name"])
        return [parse(Subscription, one) for page in pages for one in page["subscriptions"]]

    def lag(self, topic: str | None = None) -> Iterator[LaggingSubscription]:
        """Yield the subscriptions of a topic, or of all topics, by topic and name, each with its lag.

        The lag of a subscription is ``None`` where the topic has more than 1,000 partitions: ask ``subscription``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        for page in self._pages("/v1/subscriptions", lambda page: page["go_on_after"], {"topic": topic}):
            yield from map(partial(parse, LaggingSubscription), page["subscriptions"])

    def subscription(self, topic: str, name: str) -> Subscription:
        """Return a subscription with all its partitions, or raise ``UnknownSubscriptionError``."""
        found: list[Any] = []
        ranges: list[Any] = []  # what was received so far of the next partition's ranges
        start_offset: int | None = None
        while True:
            params = {"start_partition": len(found), "start_offset": start_offset}
            answer = self._call("GET", _path(topic, name), "none", params=params)
            start_offset = None
            for cursor in answer["partitions"]:
                ranges += cursor["individually_acknowledged"]
                if cursor.get("has_more"):
                    start_offset = ranges[-1][1]
                    break
                found.append({**cursor, "individually_acknowledged": ranges})
                ranges = []
            if not answer["has_more"]:
                return parse(Subscription, {**answer, "partitions": found})

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription.

        Raises:
            OutcomeUnknownError: The answer was lost. The client does not send the request again, because another client
                may have created a new subscription of this name in between.
        """
        self._transport.request("DELETE", _path(topic, name), effect="once")

    def read_subscription(
        self,
        topic: str,
        name: str,
        partition: int,
        *,
        offset: int | None = None,
        max_records: int = limits.RECORDS_DEFAULT,
        max_bytes: int = limits.BYTES_DEFAULT,
        wait_ms: int = 0,
        isolation: Isolation = "read_uncommitted",
        require_stable: bool = False,
        identity: bool = False,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Page:
        """Return records that are not acknowledged, from the mark or from ``offset`` on.

        Args:
            require_stable: Wait while an open transaction has sent an offset for this partition (KIP-447).
            identity: Give each record its ``origin``, ``origin_topic_id`` and ``number``, which are the same in every
                region.
            member_id, member_epoch: Read as this member of the group, which holds the partition.

        Raises:
            OwnerFencedError: Another session owns this partition for this group.
            StaleMemberEpochError, UnknownMemberIdError: The member does not hold the partition.
            UnstableOffsetCommitError: That transaction is still open; only with ``require_stable``.
        """
        params = {
            "partition": partition,
            "offset": offset,
            "max_records": max_records,
            "max_bytes": max_bytes,
            "wait_ms": wait_ms,
            "isolation": isolation,
            "require_stable": True if require_stable else None,
            "identity": True if identity else None,
            "encoding": "base64",  # exact for any bytes
            "session_id": session_id,
            "member_id": member_id,
            "member_epoch": member_epoch,
        }
        return types.page_of(
            self._call(
                "GET",
                _path(topic, name) + "/records",
                "none",
                params=params,
                hold_ms=wait_ms,
                retry_ms=retry_ms,
                timeout_ms=timeout_ms,
            )
        )

    def acknowledge(
        self,
        topic: str,
        name: str,
        partition: int,
        *,
        cumulative: int | None = None,
        individual: Iterable[int] | None = None,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> int:
        """Acknowledge all up to and including ``cumulative``, or the ``individual`` offsets; return the mark after it.

        Args:
            member_id, member_epoch: Acknowledge as this member of the group, which holds the partition.

        Raises:
            OffsetOutOfRangeError: An offset is not in the log yet; nothing was acknowledged.
            OwnerFencedError: Another session owns this partition for this group; nothing was acknowledged.
            StaleMemberEpochError, UnknownMemberIdError: The member does not hold the partition, or the group has
                members and none was named; nothing was acknowledged.
        """
        return self.acknowledged(
            topic,
            name,
            partition,
            cumulative=cumulative,
            individual=individual,
            session_id=session_id,
            member_id=member_id,
            member_epoch=member_epoch,
            retry_ms=retry_ms,
            timeout_ms=timeout_ms,
        ).mark_delete_offset

    def acknowledged(
        self,
        topic: str,
        name: str,
        partition: int,
        *,
        cumulative: int | None = None,
        individual: Iterable[int] | None = None,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
        reader_id: str | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> Acknowledged:
        """Acknowledge as ``acknowledge`` does; return the mark, and the other reader that acknowledges here, if any.

        Args:
            reader_id: The caller's own id, fresh for each reader: 1 to 128 of ``[A-Za-z0-9._-]``. The answer names
                another reader that acknowledged in this partition within a minute. The answer to that reader gives
                this client's ``client_name``.
        """
        body = given(
            partition=partition,
            cumulative=cumulative,
            individual=None if individual is None else list(individual),
            session_id=session_id,
            member_id=member_id,
            member_epoch=member_epoch,
            reader_id=reader_id,
            client_name=None if reader_id is None else self.client_name,
        )
        path = _path(topic, name) + "/acknowledgements"
        answer = self._call("POST", path, "repeatable", body=body, retry_ms=retry_ms, timeout_ms=timeout_ms)
        return parse(Acknowledged, answer)

    def seek(
        self,
        topic: str,
        name: str,
        partition: int,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> int:
        """Set the mark to an offset, or to the first record at or after a time; return the mark after it.

        Args:
            member_id, member_epoch: Seek as this member of the group, which holds the partition.

        Raises:
            StaleMemberEpochError, UnknownMemberIdError: The member does not hold the partition, or the group has
                members and none was named; the mark has not moved.
        """
        body = given(
            partition=partition, offset=offset, timestamp=timestamp, member_id=member_id, member_epoch=member_epoch
        )
        answer = self._call("POST", _path(topic, name) + "/seek", "repeatable", body=body)
        return int(answer["mark_delete_offset"])

    def preview_seek(
        self, topic: str, name: str, partition: int, *, offset: int | None = None, timestamp: int | None = None
    ) -> SeekPreview:
        """Return what ``seek`` would do: the mark after it, and how many records it would skip and repeat.

        Nothing is changed, and no owner or member of the group is asked for.

        Raises:
            OffsetOutOfRangeError: The offset is not in the partition's log.
        """
        params = {"partition": partition, "offset": offset, "timestamp": timestamp}
        return parse(SeekPreview, self._call("GET", _path(topic, name) + "/seek", "none", params=params))

    def committed_offsets(
        self, group: str, *, topic: str | None = None, partition: int | None = None, require_stable: bool = False
    ) -> Sequence[CommittedOffset]:
        """Return the offsets that a group has committed: everywhere, on a topic, or in one partition of it.

        An offset that a transaction sent shows once that transaction is committed, and never before.

        Args:
            require_stable: Wait until no transaction that sent an offset for these partitions is open. A reader sets it
                that takes partitions over, because it would otherwise repeat what is about to be committed (KIP-447).

        Raises:
            UnstableOffsetCommitError: Such a transaction is still open; only with ``require_stable``.
        """
        params = {"topic": topic, "partition": partition, "require_stable": True if require_stable else None}

        def place(page: Mapping[str, Any]) -> str:
            last = page["offsets"][-1]
            return f"{last['topic']}/{last['partition']}"

        pages = self._pages(f"/v1/groups/{part(group)}/offsets", place, params)
        return [parse(CommittedOffset, one) for page in pages for one in page["offsets"]]

    def commit_offsets(
        self,
        group: str,
        offsets: Iterable[CommittedOffset],
        *,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
        retry_ms: int | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Commit the next offsets that ``group`` will read, all of them or none.

        Args:
            member_id, member_epoch: Commit as this member of the group, which holds the partitions.

        Raises:
            OwnerFencedError: Another session owns one of the partitions for this group; nothing was committed.
            StaleMemberEpochError: The member does not hold ``topic``'s ``partition``, or took it after that epoch;
                nothing was committed. Send a heartbeat, and commit what is still shown.
            UnknownMemberIdError: The group has no such member, or it has members and none was named; nothing was
                committed.
        """
        body = given(
            offsets=offset_entries(offsets), session_id=session_id, member_id=member_id, member_epoch=member_epoch
        )
        path = f"/v1/groups/{part(group)}/offsets"
        self._transport.request("POST", path, effect="repeatable", body=body, retry_ms=retry_ms, timeout_ms=timeout_ms)


def offset_entries(offsets: Iterable[CommittedOffset]) -> list[dict[str, Any]]:
    """Return ``offsets`` as a body lists them."""
    return [
        {"topic": one.topic, "partition": one.partition, "offset": one.offset, "metadata": one.metadata}
        for one in offsets
    ]


def _path(topic: str, name: str) -> str:
    return f"{topic_path(topic)}/subscriptions/{part(name)}"
