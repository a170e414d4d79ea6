"""ACCESS markers, judged at exactly the offset that they would get (protocol, "Exclusive access (PIP-68)"; I8)."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.access.fence_markers import FenceEntry
from fenceline.access.session_item import PendingFence
from fenceline.append.entries.access_markers import GrantEntry, ShareEntry
from fenceline.append.entries.entry import Marked, StoredBatch
from fenceline.errors import ProducerFencedError
from fenceline.format import control
from fenceline.log.state import PartitionState, TentativeState
from tests.support.runtime import START_MS

SHARED_3 = PartitionState(next_offset=50, topic_epoch=3, access_offset=40)
HELD_3 = PartitionState(next_offset=50, topic_epoch=3, access_mode="Exclusive", session_id="s", access_offset=40)


@pytest.mark.parametrize(
    ("entry", "state", "expected"),
    [
        (GrantEntry("s", 0), PartitionState(), "appended"),
        (GrantEntry("s", 4), SHARED_3, "appended"),
        (GrantEntry("t", 4), HELD_3, "appended"),
        (GrantEntry("s", 3), HELD_3, "stands"),
        (GrantEntry("t", 3), HELD_3, "lost"),
        (GrantEntry("s", 3), SHARED_3, "lost"),
        (GrantEntry("s", 2), HELD_3, "lost"),
        (ShareEntry(3, "s"), HELD_3, "appended"),
        (ShareEntry(3, "s"), SHARED_3, "stands"),
        (ShareEntry(3, "t"), HELD_3, "lost"),
        (ShareEntry(2, "s"), HELD_3, "lost"),
        (ShareEntry(2, "s"), SHARED_3, "lost"),
    ],
)
def test_a_marker_is_appended_or_there_already_or_lost(entry: Any, state: PartitionState, expected: str) -> None:
    verdict = entry.check(TentativeState(state, {}), START_MS)
    if expected == "appended":
        assert isinstance(verdict, StoredBatch)
        assert verdict.header.leader_epoch == entry.epoch
        assert verdict.answer == Marked(state.next_offset)
    elif expected == "stands":
        assert verdict == Marked(40)
    else:
        assert isinstance(verdict, ProducerFencedError)
        assert verdict.topic_epoch == 3


@pytest.mark.parametrize(
    ("entry", "state", "value"),
    [
        (
            GrantEntry("t", 4, "loader", "web-3:4711"),
            HELD_3,
            {"mode": "Exclusive", "session_id": "t", "producer_name": "loader", "client_name": "web-3:4711"},
        ),
        (GrantEntry("t", 4), HELD_3, {"mode": "Exclusive", "session_id": "t"}),
        (ShareEntry(3, "s"), HELD_3, {"mode": "Shared", "session_id": None}),
        (FenceEntry(PendingFence("a", "a-id", 0, 3, "Shared"), "s"), SHARED_3, {"mode": "Shared", "session_id": None}),
    ],
)
def test_a_marker_names_the_one_before_it_and_its_holder(entry: Any, state: PartitionState, value: Any) -> None:
    """The members that older versions do not know are passed over by them."""
    verdict = entry.check(TentativeState(state, {}), START_MS)
    marker = control.parse_marker(verdict.body, 0, verdict.header)
    assert marker.value == {**value, "previous": 40, "version": 1}


def test_the_first_marker_of_a_partition_has_none_before_it() -> None:
    verdict: Any = GrantEntry("s", 0).check(TentativeState(PartitionState(), {}), START_MS)
    assert control.parse_marker(verdict.body, 0, verdict.header).value["previous"] == -1
