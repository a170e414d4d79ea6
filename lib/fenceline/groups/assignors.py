"""Assignors: pure functions from a group's members and topics, and its last target, to its next target.

Rule: the same input gives the same output. A partition of a subscribed topic is at exactly one subscriber.

Not here: when a target is computed (``groups.membership``), how a partition comes to be held (``groups.reconcile``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fenceline.groups.group_item import GroupTopic, Subscriber, Target

Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, GroupTopic], Target], Target]


def uniform(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    raise NotImplementedError


def range_(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    raise NotImplementedError


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}
