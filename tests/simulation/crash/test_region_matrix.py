"""The crash matrix of regions can fail: each of these breaks one thing that it must find.

Rule: what is due is written down before it is done, and taken back only after that (I23).

Protocol, "What a crash leaves".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from fenceline.errors import FencelineError
from fenceline.regions import announce_subscriptions, apply_updates, direct_source, source_batches
from fenceline.regions.link_item import Link
from fenceline.regions.partition_job import PartitionJob
from fenceline.subscriptions.cursor_store import StoredCursor
from tests.simulation.crash.matrix import Strike, deaths_behind_writes, run_writes
from tests.simulation.crash.region_operations import REGION_OPERATIONS

pytestmark = pytest.mark.slow

BY_NAME = {operation.name: operation for operation in REGION_OPERATIONS}


def run_of(name: str) -> list[Strike]:
    return list(run_writes(BY_NAME[name]))


def test_each_half_of_a_row_with_two_is_seen() -> None:
    lefts = [
        (strike.call, row) for strike in deaths_behind_writes(BY_NAME["SNAPSHOT and UPDATE"]) for row in strike.left
    ]
    due = [call for call, row in lefts if row.startswith("`due`")]
    assert due == ["write item cursors", "create segment"]
    asked = [strike.call for strike in deaths_behind_writes(BY_NAME["REQUEST"]) if "REQUEST" in "".join(strike.left)]
    assert "create segment" in asked
    assert [call for call, row in lefts if row.startswith("a REQUEST")] == ["create segment", "create segment"]


def test_a_wake_up_that_the_holder_of_the_lease_passes_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(self: Link) -> bool:
        self._write(self.read()._replace(holder="", until=0))
        return True

    monkeypatch.setattr(Link, "leave", leave)
    with pytest.raises(AssertionError, match="a wake-up was lost"):
        run_of("lease, and woken meanwhile")


def test_a_lease_that_never_lapses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Link, "_is_taken", lambda self, found: bool(found.holder))
    with pytest.raises(AssertionError):
        run_of("pull: a known link")


def test_a_record_that_is_passed_over_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = source_batches.looked_at

    def forgetful(*args: Any, **more: Any) -> Any:
        return [one for one in looked_at(*args, **more) if one.number != 2]

    monkeypatch.setattr(direct_source, "looked_at", forgetful)
    with pytest.raises((AssertionError, FencelineError), match="I17"):
        run_of("pull: a known link")


def test_an_aborted_record_that_is_taken_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    ask = direct_source.DirectSource._segments

    def credulous(self: direct_source.DirectSource, *args: Any) -> Any:
        answer = ask(self, *args)
        return answer and replace(answer, segments=[replace(one, aborted=[]) for one in answer.segments])

    monkeypatch.setattr(direct_source.DirectSource, "_segments", credulous)
    with pytest.raises(AssertionError):
        run_of("pull: several segments")


def test_an_update_that_is_cleared_before_it_is_sent_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    send = announce_subscriptions.send

    def hasty(context: Any, appender: Any, cursors: list[StoredCursor], wait_ms: int) -> None:
        for stored in cursors:
            if stored.cursor.cache.due is not None:
                announce_subscriptions._clear(context, stored)
        send(context, appender, cursors, wait_ms)

    monkeypatch.setattr(announce_subscriptions, "send", hasty)
    with pytest.raises(AssertionError, match="I24"):
        run_of("acknowledgement and UPDATE")


def test_a_subscription_noted_before_its_announcement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    announce = announce_subscriptions.announce

    def hasty(job: PartitionJob, subscriptions: Any) -> None:
        for one in subscriptions:
            announce_subscriptions._note(job, one)
        announce(job, subscriptions)

    monkeypatch.setattr(announce_subscriptions, "announce", hasty)
    with pytest.raises(AssertionError, match="never heard of a subscription"):
        run_of("announcing")


@dataclass
class Lost:
    """A link that remembers nothing."""

    applied_to: int = 0

    def applied(self, offset: int) -> None:
        pass


def test_an_update_that_is_remembered_before_it_is_applied_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    apply_all = apply_updates.apply_all

    def hasty(job: PartitionJob, tail: Any) -> bool:
        assert isinstance(job.link, Link)
        job.link.applied(tail.state.regions.update_next)
        job.link._write(job.link.value)
        return apply_all(replace(job, link=Lost()), tail)

    monkeypatch.setattr(apply_updates, "apply_all", hasty)
    with pytest.raises(AssertionError, match="I24"):
        run_of("UPDATE applied: cursor moved")


def test_an_update_that_passes_what_was_not_offered_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def boundless(partition: Any, tail: Any, cursor: Any, found: Any) -> Any:
        return cursor.moved_elsewhere(found.offset)

    monkeypatch.setattr(apply_updates, "moved", boundless)
    with pytest.raises(AssertionError, match="I22"):
        run_of("RESPONSE")
