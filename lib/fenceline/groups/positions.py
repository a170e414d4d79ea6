"""Positions: where a group begins in a topic that is new to it (contract, "Groups").

Rule: the subscription is made before the group's item names the topic. In a topic that came after members had joined it
is made at the log start, so that no record is passed over.

Not here: how a subscription is made (``subscriptions.lifecycle``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.format import keys
from fenceline.groups.group_item import GroupItem, GroupTopic, Subscriber
from fenceline.log.context import Context
from fenceline.subscriptions import lifecycle
from fenceline.subscriptions.cursors import Live


def ensure(
    context: Context, live: Live, before: GroupItem, group: GroupItem, new: Sequence[tuple[Subscriber, bool]]
) -> None:
    """Make the group's subscription on each topic that is new to the group, or to which a new member subscribes.

    Args:
        before: The group as it was read.
        group: The group as it will be.
        new: The members that are new, or subscribe to something new, and whether each of them wants a subscription
            that is missing to begin at the last stable offset.

    Raises:
        ContendedError, StoreUnavailableError, OutcomeUnknownError: Some of the subscriptions may have been made.
    """
    known = {topic.topic_id for topic in before.topics.values()}
    wanted = {
        keys.subscription_item(topic.topic_id, group.group): (name, topic)
        for name, topic in group.topics.items()
        if topic.topic_id not in known or any(one.subscribes_to(name) for one, _ in new)
    }
    found = context.read_items([*wanted])
    others = [*before.members.values()]

    def make(name: str, topic: GroupTopic) -> None:
        wishes = [is_latest for one, is_latest in new if one.subscribes_to(name)]
        is_first = bool(wishes) and not any(one.subscribes_to(name) for one in others)
        with suppress(UnknownTopicOrPartitionError):  # deleted meanwhile: the next look takes it out of the group
            there = live(name)
            if there.topic.topic_id == topic.topic_id:
                lifecycle.ensure(
                    there, group.group, is_latest=is_first and all(wishes), replicate_subscription_state=None
                )

    context.runtime.gather([partial(make, *one) for key, one in wanted.items() if key not in found])
