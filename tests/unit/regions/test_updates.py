"""UPDATEs: how many share a marker, and what they say."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.format.region_markers import Update, Updates
from fenceline.regions.announce_subscriptions import pages


@given(st.lists(st.integers(0, 64), max_size=300))
def test_every_update_is_sent_once_in_markers_that_fit(regions: list[int]) -> None:
    updates = [
        Update("é" * 100 + str(at), "id", {f"r{n}".ljust(64, "x"): ("f" * 32, 2**63 - 1) for n in range(count)})
        for at, count in enumerate(regions)
    ]
    made = list(pages(updates))
    assert [one for page in made for one in page.updates] == updates
    for page in made:
        assert 1 <= len(page.updates) <= limits.UPDATES_PER_MARKER_MAX
        text = json.dumps({**page.to_value(), "version": 1}, ensure_ascii=False, separators=(",", ":"))
        assert len(text.encode()) <= limits.REGION_MARKER_BYTES_MAX


def test_an_update_without_a_number_is_of_an_older_version() -> None:
    value = Update("s", active_region="b", active_n=3).to_value()
    assert Updates.from_value({"updates": [value]}) == Updates([Update("s", active_region="b", active_n=3)])
    del value["active_n"]
    assert Updates.from_value({"updates": [value]}) == Updates([Update("s", active_region="b")])
