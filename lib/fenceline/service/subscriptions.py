"""Subscriptions and group offsets by the names of their topics.

Rule: each request looks at its topics, and follows them into a new incarnation. The session or the member that reads,
acknowledges, seeks or commits is judged first, as the group of the subscription's name (protocol, "Reads and commits as
a group", "Groups").

Not here: the moves of cursors (``subscriptions.cursors``); the offsets of a group (``subscriptions.group_offsets``,
``subscriptions.committed_offsets``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fenceline import limits
from fenceline.errors import InvalidRequestError, naming
from fenceline.groups import member_guard
from fenceline.groups.member_guard import Caller
from fenceline.log.context import Context
from fenceline.log.partition import Partition
from fenceline.log.tail import Tail
from fenceline.model.requests import Acknowledgement, MemberRef, ReadRequest
from fenceline.model.results import Page
from fenceline.model.subscription import (
    Acknowledged,
    CommittedOffset,
    Lag,
    LaggingSubscriptions,
    Place,
    SeekPreview,
    ShownSubscription,
    SubscriptionIncarnation,
)
from fenceline.model.topic import Topic, check_topic_id
from fenceline.ports import Check
from fenceline.service.resolver import PartitionResolver, in_incarnations
from fenceline.subscriptions import committed_offsets, cursors, group_offsets, lifecycle
from fenceline.subscriptions import read as subscriptions_read
from fenceline.subscriptions.committed_offsets import Meet, OffsetQuery
from fenceline.subscriptions.cursors import Live, LiveTopic
from fenceline.subscriptions.items import SubscriptionItem
from fenceline.subscriptions.read import SubscriptionRead


class Subscriptions:
    """The subscriptions of all topics, and the offsets of groups. Safe to share between threads.

    Errors are those of the contract, "Subscriptions". After any but `OutcomeUnknownError` no cursor has moved.

    Args:
        meet: Ends the transaction of a producer where that is due, before offsets are reported as unstable.
        held: Ends a due transaction that holds a reader of a partition up; see ``PartitionReader``.
        announce: Sends a cursor's due moves to other regions. It raises nothing.
    """

    def __init__(
        self,
        context: Context,
        resolver: PartitionResolver,
        meet: Meet | None = None,
        held: Callable[[Partition, Tail], bool] | None = None,
        announce: Callable[[SubscriptionItem, int], None] = lambda *_: None,
    ) -> None:
        self._context = context
        self._resolver = resolver
        self._meet = meet
        self._held = held
        self._announce = announce

    def live(self, name: str, *topic_ids: str | None) -> LiveTopic:
        """Return the live topic of that name, from a look that began after the call.

        Raises:
            UnknownTopicIdError: It has not each of ``topic_ids``; ``None`` is any.
        """
        topic = self._resolver.refresh(name).item.topic
        for topic_id in topic_ids:
            check_topic_id(topic, topic_id)
        return LiveTopic(self._context, topic, partial(self._resolver.partition, topic), self._announce)

    def live_with(self, topic_ids: Sequence[tuple[str, str]]) -> Live:
        """Return ``live`` for topics of which some must have these ids: pairs of a name and an id."""
        return lambda name: self.live(name, *(topic_id for topic, topic_id in topic_ids if topic == name))

    def _judge(self, caller: Caller, live: LiveTopic, partition: int) -> Sequence[Check]:
        return member_guard.judge_commit(self._context, caller, [(live.topic, partition)])

    # Subscriptions

    def subscribe(
        self,
        topic: str,
        name: str,
        *,
        is_latest: bool = True,
        replicate_subscription_state: bool | None = None,
        active_region: Sequence[str | None] = (),
    ) -> tuple[ShownSubscription, bool]:
        """Create a subscription, or change its given settings; return it, and whether it was created.

        Args:
            is_latest: Whether a new subscription begins at the last stable offset, and not at the log start.
            active_region: The region where its consumers should read from now on; ``[None]`` ends an earlier advice.

        Raises:
            InvalidRequestError: ``active_region`` is no region of the topic. Nothing was created or changed.
        """

        def use() -> tuple[ShownSubscription, bool]:
            live = self.live(topic)
            made, is_new = lifecycle.ensure(
                live,
                name,
                is_latest=is_latest,
                replicate_subscription_state=replicate_subscription_state,
                active_region=self._advice(live, active_region),
            )
            return cursors.shown(live, made, 0, limits.CURSORS_SHOWN_DEFAULT), is_new

        return in_incarnations(use)

    def _advice(self, live: LiveTopic, wanted: Sequence[str | None]) -> lifecycle.Advice | None:
        for region in wanted:
            if region not in (None, self._context.region, *live.topic.regions):
                raise InvalidRequestError(
                    f"the topic has no such region; name one of its own: regions={','.join(live.topic.regions)}",
                    field="active_region",
                )
            return lifecycle.Advice(region)
        return None

    def list(
        self, topic: str, *, start_after: str = "", limit: int = limits.LIST_MAX
    ) -> tuple[Sequence[SubscriptionIncarnation], bool]:
        """Return subscriptions of a topic in byte order of their names, and whether there are more."""
        return in_incarnations(
            lambda: cursors.list_subscriptions(self.live(topic), start_after=start_after, limit=limit)
        )

    def list_lag(
        self,
        *,
        topic: str | None = None,
        start_after: Place | None = None,
        limit: int = limits.LAG_ENTRIES_MAX,
        principal: str = "",
    ) -> LaggingSubscriptions:
        """Return subscriptions of all topics, or of one, each with its lag; see ``service.lag``.

        Raises:
            UnknownTopicOrPartitionError: There is no such topic.
        """
        from fenceline.service import lag  # Only a request for it pays for loading it.

        def live_of(known: Topic) -> LiveTopic:
            return LiveTopic(self._context, known, partial(self._resolver.partition, known), self._announce)

        def use() -> LaggingSubscriptions:
            only = None if topic is None else self.live(topic).topic
            return lag.page(self._context, live_of, only, start_after, limit, principal)

        return in_incarnations(use)

    def lag_of(self, topic: str, name: str, *, principal: str = "") -> Lag | None:
        """Return the lag of a group on a topic; see ``service.lag.lag_of``."""
        from fenceline.service import lag

        return in_incarnations(lambda: lag.lag_of(self.live(topic), name, principal))

    def get(
        self,
        topic: str,
        name: str,
        *,
        start_partition: int = 0,
        start_offset: int = 0,
        limit: int = limits.CURSORS_SHOWN_DEFAULT,
    ) -> ShownSubscription:
        """Return a subscription with its cursors in ``limit`` partitions from ``start_partition`` on.

        Args:
            start_offset: In the first of them, only acknowledgements from this offset on are shown.
        """

        def use() -> ShownSubscription:
            live = self.live(topic)
            return cursors.shown(live, live.subscription(name), start_partition, limit, start_offset)

        return in_incarnations(use)

    def unsubscribe(self, topic: str, name: str) -> None:
        """Delete a subscription; see ``lifecycle.delete``."""
        in_incarnations(lambda: lifecycle.delete(self.live(topic), name))

    def read(
        self,
        topic: str,
        partition: int,
        name: str,
        request: ReadRequest,
        *,
        require_stable: bool = False,
        principal: str = "",
        topic_id: str | None = None,
    ) -> Page:
        """Return records that are not acknowledged; see ``read_from``."""
        return self.read_from(
            topic, partition, name, request, require_stable=require_stable, principal=principal, topic_id=topic_id
        ).page

    def read_from(
        self,
        topic: str,
        partition: int,
        name: str,
        request: ReadRequest,
        *,
        require_stable: bool = False,
        principal: str = "",
        topic_id: str | None = None,
    ) -> SubscriptionRead:
        """Return records that are not acknowledged, and where they begin; see ``read.read_unacknowledged``.

        Args:
            require_stable: Whether to refuse while an offset is pending there; see ``committed_offsets.check_stable``.
            topic_id: The topic's id, where the caller means one incarnation.
        """
        caller = Caller(name, request.session_id, request.member, principal)

        def use() -> SubscriptionRead:
            live = self.live(topic, topic_id)
            judge = partial(member_guard.judge_read, self._context, caller, (live.topic, partition))
            if require_stable:
                live.partition(partition)
                subscription = live.subscription(name)
                judge()
                committed_offsets.check_stable(live, subscription, partition, self._meet)
            return subscriptions_read.read_unacknowledged(live, partition, name, request, judge, self._held)

        with naming(topic, partition):
            return in_incarnations(use)

    def acknowledge(
        self,
        topic: str,
        partition: int,
        name: str,
        request: Acknowledgement,
        *,
        session_id: str | None = None,
        member: MemberRef | None = None,
        principal: str = "",
        topic_id: str | None = None,
    ) -> int:
        """Acknowledge records, and return the new mark; see ``acknowledged``."""
        found = self.acknowledged(
            topic,
            partition,
            name,
            request,
            session_id=session_id,
            member=member,
            principal=principal,
            topic_id=topic_id,
        )
        return found.mark_delete_offset

    def acknowledged(
        self,
        topic: str,
        partition: int,
        name: str,
        request: Acknowledgement,
        *,
        session_id: str | None = None,
        member: MemberRef | None = None,
        principal: str = "",
        topic_id: str | None = None,
    ) -> Acknowledged:
        """Acknowledge records, and look who else does; see ``cursors.acknowledge``."""
        caller = Caller(name, session_id, member, principal)

        def use() -> Acknowledged:
            live = self.live(topic, topic_id)
            judge = partial(self._judge, caller, live, partition)
            return cursors.acknowledge(live, partition, name, request, judge)

        with naming(topic, partition):
            return in_incarnations(use)

    def seek(
        self,
        topic: str,
        partition: int,
        name: str,
        *,
        offset: int | None = None,
        timestamp: int | None = None,
        member: MemberRef | None = None,
        principal: str = "",
    ) -> int:
        """Set the mark by offset or by time, and return it; see ``cursors.seek``."""
        caller = Caller(name, None, member, principal)

        def use() -> int:
            live = self.live(topic)
            judge = partial(self._judge, caller, live, partition)
            return cursors.seek(live, partition, name, offset=offset, timestamp=timestamp, judge=judge)

        with naming(topic, partition):
            return in_incarnations(use)

    def preview_seek(
        self, topic: str, partition: int, name: str, *, offset: int | None = None, timestamp: int | None = None
    ) -> SeekPreview:
        """Return what a seek would do, and change nothing; see ``cursors.preview``."""

        def use() -> SeekPreview:
            return cursors.preview(self.live(topic), partition, name, offset=offset, timestamp=timestamp)

        with naming(topic, partition):
            return in_incarnations(use)

    # Groups

    def commit(
        self,
        group: str,
        offsets: Sequence[CommittedOffset],
        *,
        session_id: str | None = None,
        member: MemberRef | None = None,
        principal: str = "",
        topic_ids: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Commit a group's offsets, all of them or none; see ``group_offsets.commit``.

        Args:
            topic_ids: Names of topics and the ids that they must have.
        """
        live = self.live_with(topic_ids)
        judge = partial(member_guard.judge_commit, self._context, Caller(group, session_id, member, principal))
        in_incarnations(lambda: group_offsets.commit(self._context, live, group, offsets, judge))

    def committed(
        self,
        group: str,
        *,
        topic: str | None = None,
        partition: int | None = None,
        require_stable: bool = False,
        start_after: tuple[str, int] | None = None,
        limit: int = limits.LIST_MAX,
    ) -> tuple[Sequence[CommittedOffset], bool]:
        """Return a group's committed offsets, and whether there are more; see ``committed_offsets``."""
        asked = OffsetQuery(topic, partition, require_stable, start_after, limit)
        return in_incarnations(lambda: committed_offsets.committed(self._context, self.live, group, asked, self._meet))
