"""Positions: where a group begins in a topic that is new to it (contract, "Groups").

Rule: the subscription is made before the group's item names the topic. In a topic that came after members had joined it
is made at the log start, so that no record is passed over.

Not here: how a subscription is made (``subscriptions.lifecycle``).
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.format import keys
from fenceline.groups.group_item import GroupItem, GroupTopic, Subscriber
from fenceline.log.context import Context
from fenceline.subscriptions import lifecycle
from fenceline.subscriptions.cursors import Live


def ensure(
    context: Context, live: Live, before: GroupItem, group: GroupItem, new: Subscriber | None, *, is_latest: bool
) -> None:
    """Make the group's subscription on each topic that is new to the group, or that this request subscribes to.

    Args:
        before: The group as it was read.
        group: The group as it will be.
        new: What this request subscribes to; ``None`` for nothing new.
        is_latest: Whether a subscription that this request makes begins at the last stable offset.

    Raises:
        ContendedError, StoreUnavailableError, OutcomeUnknownError: Some of the subscriptions may have been made.
    """
    known = {topic.topic_id for topic in before.topics.values()}
    wanted = {
        keys.subscription_item(topic.topic_id, group.group): (name, topic)
        for name, topic in group.topics.items()
        if topic.topic_id not in known or (new is not None and new.subscribes_to(name))
    }
    found = context.read_items([*wanted])
    others = [*before.members.values()]

    def make(name: str, topic: GroupTopic) -> None:
        is_ours = new is not None and new.subscribes_to(name) and not any(one.subscribes_to(name) for one in others)
        with suppress(UnknownTopicOrPartitionError):  # deleted meanwhile: the next look takes it out of the group
            there = live(name)
            if there.topic.topic_id == topic.topic_id:
                lifecycle.ensure(there, group.group, is_latest=is_latest and is_ours, replicate_subscription_state=None)

    context.runtime.gather([partial(make, *one) for key, one in wanted.items() if key not in found])
