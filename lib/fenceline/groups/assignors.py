"""Assignors: pure functions from a group's members and topics, and its last target, to its next target.

Rule: the same input gives the same output. A partition of a subscribed topic is at exactly one subscriber.

Not here: when a target is computed (``groups.membership``), how a partition comes to be held (``groups.reconcile``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fenceline.groups.group_item import GroupTopic, Subscriber, Target

Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, GroupTopic], Target], Target]


def uniform(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    """Return a sticky target in which each topic's counts differ by at most one."""
    return {topic.topic_id: _row(name, topic, members, last) for name, topic in topics.items()}


def _row(name: str, topic: GroupTopic, members: Mapping[str, Subscriber], last: Target) -> tuple[str | None, ...]:
    subscribers = sorted(one for one, said in members.items() if said.subscribes_to(name))
    if not subscribers:
        return (None,) * topic.partitions
    least, spare = divmod(topic.partitions, len(subscribers))
    counts = dict.fromkeys(subscribers, 0)
    row: list[str | None] = []
    for was in [*last.get(topic.topic_id, ()), *([None] * topic.partitions)][: topic.partitions]:
        kept = None
        if was in counts and (counts[was] < least or (counts[was] == least and spare)):
            spare -= counts[was] == least
            counts[was] += 1
            kept = was
        row.append(kept)
    for partition, one in enumerate(row):
        if one is None:
            taker = min(subscribers, key=lambda member_id: (counts[member_id], member_id))
            counts[taker] += 1
            row[partition] = taker
    return tuple(row)


def range_(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    raise NotImplementedError


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}
