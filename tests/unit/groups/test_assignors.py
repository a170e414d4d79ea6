"""Assignors: each partition at one subscriber, balanced, and moved only where it must."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.groups.assignors import ASSIGNORS, Assignor, range_, uniform
from fenceline.groups.group_item import GroupTopic, Subscriber, Target

NAMES = ["a", "b", "c", "logs-1", "logs-2"]


def member(*topics: str, prefixes: tuple[str, ...] = ()) -> Subscriber:
    return Subscriber(None, None, None, topics, prefixes, None, 1000)


some_members = st.dictionaries(
    st.sampled_from([f"m{n}" for n in range(8)]),
    st.builds(
        lambda names, has_prefix: member(*sorted(names), prefixes=("logs-",) if has_prefix else ()),
        st.sets(st.sampled_from(NAMES)),
        st.booleans(),
    ),
)
some_topics = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 20)).map(
    lambda found: {name: GroupTopic(f"id-{name}", count) for name, count in found.items()}
)
some_last = st.dictionaries(
    st.sampled_from([f"id-{name}" for name in NAMES]),
    st.lists(st.sampled_from([None, "gone", *(f"m{n}" for n in range(8))]), max_size=25).map(tuple),
)
same_members = st.integers(1, 12).map(lambda count: {f"m{n:02d}": member(*NAMES) for n in range(count)})
assignors = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)


def moved(before: Target, after: Target) -> list[tuple[str | None, str | None]]:
    """Return (from, to) of each partition that is at another member."""
    return [
        (one, other)
        for topic_id in after
        for one, other in zip(before[topic_id], after[topic_id], strict=True)
        if one != other
    ]


def totals(members: Mapping[str, Subscriber], target: Target) -> list[int]:
    counted = Counter(one for row in target.values() for one in row)
    return [counted[one] for one in members]


@assignors
@given(members=some_members, topics=some_topics, last=some_last)
def test_each_partition_of_a_subscribed_topic_is_at_one_subscriber(
    assignor: Assignor, members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    target = assignor(members, topics, last)
    assert target.keys() == {topic.topic_id for topic in topics.values()}
    for name, topic in topics.items():
        subscribers = {one for one, said in members.items() if said.subscribes_to(name)}
        assert len(target[topic.topic_id]) == topic.partitions
        assert set(target[topic.topic_id]) <= (subscribers or {None})


@given(members=some_members, topics=some_topics, last=some_last)
def test_the_counts_of_each_topic_differ_by_at_most_one(
    members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    target = uniform(members, topics, last)
    for name, topic in topics.items():
        counted = Counter(target[topic.topic_id])
        counts = [counted[one] for one, said in members.items() if said.subscribes_to(name)]
        assert not counts or max(counts) - min(counts) <= 1


@given(members=same_members, topics=some_topics, last=some_last)
def test_members_of_the_same_topics_differ_by_at_most_one_over_all_topics(
    members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    counts = totals(members, uniform(members, topics, last))
    assert max(counts) - min(counts) <= 1


@assignors
@given(members=some_members, topics=some_topics, last=some_last)
def test_the_same_input_gives_the_same_output_and_a_settled_target_stays(
    assignor: Assignor, members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    target = assignor(members, topics, last)
    reversed_ = dict(reversed(members.items())), dict(reversed(topics.items())), dict(reversed(last.items()))
    assert assignor(*reversed_) == target
    assert assignor(members, topics, target) == target


@assignors
@given(members=some_members, topics=some_topics, last=some_last)
def test_a_member_of_the_last_target_that_is_gone_is_as_nobody(
    assignor: Assignor, members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    nobody = {topic_id: tuple(one if one in members else None for one in row) for topic_id, row in last.items()}
    assert assignor(members, topics, last) == assignor(members, topics, nobody)


@given(members=same_members, partitions=st.integers(1, 60), data=st.data())
@assignors
def test_a_member_that_leaves_one_topic_moves_only_its_own(
    assignor: Assignor, members: dict[str, Subscriber], partitions: int, data: st.DataObject
) -> None:
    topics = {"a": GroupTopic("id-a", partitions)}
    before = assignor(members, topics, {})
    leaves = data.draw(st.sampled_from(sorted(members)))
    left = {one: said for one, said in members.items() if one != leaves}
    assert all(was == leaves for was, _ in moved(before, assignor(left, topics, before)))


@given(members=same_members, topics=some_topics, data=st.data())
def test_a_member_that_leaves_several_topics_moves_only_its_own(
    members: dict[str, Subscriber], topics: dict[str, GroupTopic], data: st.DataObject
) -> None:
    before = uniform(members, topics, {})
    leaves = data.draw(st.sampled_from(sorted(members)))
    left = {one: said for one, said in members.items() if one != leaves}
    others = [one for one in moved(before, uniform(left, topics, before)) if one[0] != leaves]
    # Each topic's balance decides who takes what; at most one more per topic evens the whole out again.
    assert len(others) <= len(topics)


@given(members=same_members, topics=some_topics)
def test_a_join_moves_no_more_than_the_share_of_one(
    members: dict[str, Subscriber], topics: dict[str, GroupTopic]
) -> None:
    before = uniform(members, topics, {})
    joined = {**members, "new": member(*NAMES)}
    after = moved(before, uniform(joined, topics, before))
    assert len(after) <= ceil(sum(one.partitions for one in topics.values()) / len(joined)) + 1


@given(members=some_members, topics=some_topics, last=some_last)
def test_range_has_the_same_numbers_of_topics_with_the_same_subscribers_at_the_same_member(
    members: dict[str, Subscriber], topics: dict[str, GroupTopic], last: Target
) -> None:
    target = range_(members, topics, last)
    at: dict[tuple[frozenset[str], int], str | None] = {}
    for name, topic in topics.items():
        subscribers = frozenset(one for one, said in members.items() if said.subscribes_to(name))
        for partition, one in enumerate(target[topic.topic_id]):
            assert at.setdefault((subscribers, partition), one) == one


def test_topics_of_one_partition_are_shared_out() -> None:
    topics = {f"t{n}": GroupTopic(f"id-{n}", 1) for n in range(10)}
    names = tuple(topics)
    alone = uniform({"a": member(*names)}, topics, {})
    both = {"a": member(*names), "b": member(*names)}
    assert totals(both, uniform(both, topics, {})) == [5, 5]
    assert len(moved(alone, uniform(both, topics, alone))) == 5


@assignors
@pytest.mark.parametrize(("count", "partitions"), [(1, 20_000), (20, 1_000), (2_000, 10), (20_000, 1)])
def test_the_largest_group_is_assigned_in_little_time(assignor: Assignor, count: int, partitions: int) -> None:
    """A second is a bound for slow machines: 1,000 members and 20,000 partitions take less than a tenth of it."""
    topics = {f"logs-{n}": GroupTopic(f"id-{n}", partitions) for n in range(count)}
    members = {f"m{n:04d}": member(prefixes=("logs-",)) for n in range(999)}
    before = assignor(members, topics, {})
    begun = time.process_time()
    after = assignor({**members, "new": member(prefixes=("logs-",))}, topics, before)
    assert time.process_time() - begun < 1
    assert len(moved(before, after)) <= 21 or assignor is range_
