"""Assignors: pure functions from a group's members and topics, and its last target, to its next target.

Rule: the same input gives the same output. A partition of a subscribed topic is at exactly one subscriber. A member of
the last target that left the group keeps nothing.

Not here: when a target is computed (``groups.membership``), how a partition comes to be held (``groups.reconcile``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from fenceline.groups.balance import Balance
from fenceline.groups.group_item import GroupTopic, Subscriber, Target

Assignor = Callable[[Mapping[str, Subscriber], Mapping[str, GroupTopic], Target], Target]


def uniform(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    """Return a sticky target in which each topic's counts differ by at most one over the topic's subscribers.

    Where that leaves a choice, the members' counts over all topics are balanced, too: of two members that subscribe to
    the same topics, one has at most one partition more. No partition moves that need not for these two rules.
    """
    found: dict[str, Sequence[str | None]] = {}
    sets = list(_by_subscribers(members, topics))
    balance = Balance(dict.fromkeys(members, 0))
    for subscribers, named in sets:
        balance.keep(subscribers, [topics[name] for name in named], last)
    for subscribers, named in sets:
        balance.fill(subscribers, [topics[name].topic_id for name in named])
    # A move in one set changes what is best in another one; each move makes the whole more even, so this ends.
    while len([1 for subscribers, named in sets if balance.even_out(subscribers, _ids(topics, named))]) and sets[1:]:
        pass
    for topic in topics.values():
        row = balance.rows.get(topic.topic_id)
        found[topic.topic_id] = (None,) * topic.partitions if row is None else tuple(row)
    return found


def range_(members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic], last: Target) -> Target:
    """Return a target that is co-partitioned: topics with the same subscribers have the same number at the same member.

    The counts of the longest of such topics, and of all that are as long, differ by at most one. A shorter topic has
    the first of the same numbers, so it may be less even. The numbers move as ``uniform`` moves the partitions of one
    topic: none that need not.
    """
    found: dict[str, Sequence[str | None]] = {topic.topic_id: (None,) * topic.partitions for topic in topics.values()}
    for subscribers, named in _by_subscribers(members, topics):
        longest = max((topics[name] for name in named), key=lambda one: (one.partitions, one.topic_id in last))
        balance = Balance(dict.fromkeys(subscribers, 0))
        balance.keep(subscribers, [longest], last)
        balance.fill(subscribers, [longest.topic_id])
        row = balance.rows[longest.topic_id]
        found |= {topics[name].topic_id: tuple(row[: topics[name].partitions]) for name in named}
    return found


def _ids(topics: Mapping[str, GroupTopic], named: Sequence[str]) -> list[str]:
    return [topics[name].topic_id for name in named]


def _by_subscribers(
    members: Mapping[str, Subscriber], topics: Mapping[str, GroupTopic]
) -> Iterator[tuple[list[str], list[str]]]:
    """Yield (member ids, names of topics), both sorted, for each set of members that some topics have as subscribers.

    Members that subscribe to the same are looked at once, because most groups subscribe to one list of topics.
    """
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[str]] = {}
    for member_id, said in sorted(members.items()):
        alike.setdefault((tuple(said.topics), tuple(said.prefixes)), []).append(member_id)
    sets: dict[tuple[int, ...], list[str]] = {}
    asked = [(frozenset(names), prefixes) for names, prefixes in alike]
    for name in sorted(topics):
        which = tuple(
            at
            for at, (names, prefixes) in enumerate(asked)
            if name in names or (prefixes and name.startswith(prefixes))
        )
        if which:
            sets.setdefault(which, []).append(name)
    some = list(alike.values())
    for which, named in sorted(sets.items()):
        yield sorted(member_id for at in which for member_id in some[at]), named


ASSIGNORS: Mapping[str, Assignor] = {"uniform": uniform, "range": range_}
