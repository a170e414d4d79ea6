"""ACCESS markers, judged at exactly the offset that they would get (protocol, "Exclusive access (PIP-68)"; I8)."""

from __future__ import annotations

from typing import Any

import pytest

from fenceline.append.entries.access_markers import GrantEntry, ShareEntry
from fenceline.append.entries.entry import Marked, StoredBatch
from fenceline.errors import ProducerFencedError
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
