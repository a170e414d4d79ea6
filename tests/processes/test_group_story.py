"""The comparison of what a group's members reported: a true story passes, and each lie is found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.processes.group_story import LEASE_S, TARGET_S, Look, Story, bound, compare

Told = list[tuple[str, dict[str, Any]]]
KILLED_AT = 4.0
ENDS = {0: 4}
LOOKS: list[Look] = [(1.0, {}), (3.5, {0: 2}), (20.0, {0: 4})]


def told() -> Told:
    """Return what two members reported: the first is killed before the answer to its last commit, which was made."""
    return [
        ("a", {"event": "assigned", "tokens": {"0": 5}, "at": 1.0}),
        ("a", {"event": "beat", "sent": 1.0, "at": 1.1}),
        ("a", {"event": "did", "partition": 0, "offsets": [0, 1], "at": 2.0}),
        ("a", {"event": "sends", "partition": 0, "offset": 2, "at": 2.1}),
        ("a", {"event": "committed", "at": 2.2}),
        ("a", {"event": "did", "partition": 0, "offsets": [2], "at": 3.0}),
        ("a", {"event": "sends", "partition": 0, "offset": 3, "at": 3.9}),
        ("b", {"event": "beat", "sent": 3.0, "at": 3.1}),
        ("b", {"event": "beat", "sent": 5.0, "at": 5.1}),
        ("b", {"event": "beat", "sent": 7.0, "at": 7.1}),
        ("b", {"event": "assigned", "tokens": {"0": 7}, "at": 12.0}),
        ("b", {"event": "did", "partition": 0, "offsets": [3], "at": 12.1}),
        ("b", {"event": "sends", "partition": 0, "offset": 4, "at": 12.2}),
        ("b", {"event": "committed", "at": 12.3}),
    ]


def story_of(events: Told) -> Story:
    story = Story()
    for worker, event in events:
        if worker == "b" and not story.silent_at["a"]:
            story.silence("a", KILLED_AT)
        story.hear(worker, event)
    return story


def test_a_true_story_is_believed() -> None:
    compare(story_of(told()), ENDS, LOOKS)


def _lose_a_record(events: Told) -> None:
    events[11][1]["offsets"] = []


def _skip_within(events: Told) -> None:
    events[2][1]["offsets"] = [1, 0]


def _begin_before_the_commit(events: Told) -> None:
    events[11][1]["offsets"] = [1, 2, 3]


def _commit_twice(events: Told) -> None:
    events[12][1]["offset"] = 3


def _commit_after_another_began(events: Told) -> None:
    events[6][1]["at"] = 12.1
    events.insert(7, ("a", {"event": "committed", "at": 12.2}))


def _share_a_token(events: Told) -> None:
    events[10][1]["tokens"] = {"0": 5}


def _leave_it_for_long(events: Told) -> None:
    events[10][1]["at"] = KILLED_AT + LEASE_S + TARGET_S + 2 * 2.2


@pytest.mark.parametrize(
    ("lie", "why"),
    [
        (_lose_a_record, "not handled"),
        (_skip_within, "out of order"),
        (_begin_before_the_commit, "began at 1, but 2 was committed"),
        (_commit_twice, "committed 3 after 3"),
        (_commit_after_another_began, "a removed member's commit took effect"),
        (_share_a_token, "two members under one token"),
        (_leave_it_for_long, "no member had it"),
    ],
)
def test_a_lie_is_found(lie: Callable[[Told], None], why: str) -> None:
    events = told()
    lie(events)
    with pytest.raises(AssertionError, match=why):
        compare(story_of(events), ENDS, LOOKS)


@pytest.mark.parametrize(
    ("looks", "why"),
    [
        ([(2.1, {0: 3}), *LOOKS[1:]], "went back"),
        ([(3.0, {0: 1}), *LOOKS[2:]], "does not show"),
        ([(20.0, {0: 5})], "not all is committed"),
    ],
)
def test_a_look_that_disagrees_is_found(looks: list[Look], why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        compare(story_of(told()), ENDS, looks)


def test_a_partition_without_a_member_at_the_end_is_found() -> None:
    story = story_of(told())
    story.silence("b", 13.0)
    with pytest.raises(AssertionError, match="no member has it"):
        compare(story, ENDS, LOOKS)


def test_the_bound_counts_by_heartbeats_of_its_time_that_no_freeze_delayed() -> None:
    story = story_of(told())
    assert bound(story, 4.0, 12.0) == pytest.approx(LEASE_S + TARGET_S + 2 * 2.1)
    story.hear("b", {"event": "beat", "sent": 20.0, "at": 20.1})
    assert bound(story, 4.0, 12.0) == pytest.approx(LEASE_S + TARGET_S + 2 * 13.1)
    story.silence("b", 13.0)
    assert bound(story, 4.0, 12.0) == pytest.approx(LEASE_S + TARGET_S + 2 * 2.1)
