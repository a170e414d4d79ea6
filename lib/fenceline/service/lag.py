"""The walk over topics and their subscriptions, each with its lag (contract, "Lag").

Rule: a page looks at no more than 50 topics, 50 subscriptions and 1,000 partitions, and then says after which place to
go on. A topic of more partitions than that shows its subscriptions without their lag.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fenceline import limits
from fenceline.access.ownership.group_owner import group_owner
from fenceline.log import topics
from fenceline.log.context import Context
from fenceline.model.subscription import Lag, LaggingSubscription, LaggingSubscriptions, Place
from fenceline.model.topic import Topic
from fenceline.subscriptions import cursors, lag
from fenceline.subscriptions.cursors import LiveTopic
from fenceline.subscriptions.items import SubscriptionItem


def lag_of(live: LiveTopic, name: str, principal: str = "") -> Lag | None:
    """Return the lag of a group on a topic; ``None`` if the topic has too many partitions to look at all.

    Raises:
        UnknownSubscriptionError: The group has no offsets there.
    """
    (entry,) = _with_lag(live, [live.subscription(name)], principal)
    return entry.lag


def page(
    context: Context,
    live_of: Callable[[Topic], LiveTopic],
    only: Topic | None,
    after: Place | None,
    limit: int,
    principal: str,
) -> LaggingSubscriptions:
    """Return subscriptions by topic and name, from the first after a place on.

    Args:
        only: The only topic to list.
    """
    listed, has_more_topics = _topics(context, only, after)
    entries: list[LaggingSubscription] = []
    looks = limits.LAG_PARTITIONS_MAX
    at = after
    for number, topic in enumerate(listed):
        live = live_of(topic)
        start = (after.name or "") if after is not None and after.topic == topic.name else ""
        found, has_more = cursors.list_subscriptions(live, start_after=start, limit=limit - len(entries))
        if topic.partitions <= limits.LAG_PARTITIONS_MAX:
            fit = looks // topic.partitions
            found, has_more = found[:fit], has_more or len(found) > fit
            looks -= len(found) * topic.partitions
        entries += _with_lag(live, found, principal)
        if has_more:
            return LaggingSubscriptions(entries, Place(topic.name, found[-1].name) if found else at)
        at = Place(topic.name)
        if len(entries) == limit and (has_more_topics or number + 1 < len(listed)):
            return LaggingSubscriptions(entries, at)
    return LaggingSubscriptions(entries, at if has_more_topics else None)


def _topics(context: Context, only: Topic | None, after: Place | None) -> tuple[Sequence[Topic], bool]:
    """Return the topics to look at, and whether others follow them."""
    if only is not None:
        is_passed = after is not None and (after.topic > only.name or after == Place(only.name))
        return ([] if is_passed else [only]), False
    begun: list[Topic] = []
    if after is not None and after.name is not None:
        item = topics.find(context, after.topic)
        begun = [] if item is None or item.is_going else [item.topic]
    start = "" if after is None else after.topic
    found, has_more = topics.list_topics(context, prefix="", start_after=start, limit=limits.LAG_ENTRIES_MAX)
    return [*begun, *found], has_more


def _with_lag(live: LiveTopic, found: Sequence[SubscriptionItem], principal: str) -> list[LaggingSubscription]:
    if live.topic.partitions > limits.LAG_PARTITIONS_MAX:
        return [LaggingSubscription(one.entry) for one in found]
    return [
        LaggingSubscription(one.entry, Lag(*behind, group_owner(live.context, live.topic, one.name, principal)))
        for one, behind in zip(found, lag.behind(live, found), strict=True)
    ]
