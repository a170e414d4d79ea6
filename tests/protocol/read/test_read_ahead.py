"""What a page begins with is fetched beside the look at the tail, and nothing is answered from there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from fenceline import limits
from fenceline.format import keys
from fenceline.model.requests import ReadRequest
from fenceline.ports import ObjectSummary, Unavailable
from fenceline.service.log import Log
from tests.support.service import TOPIC, Service, append, data, partition_of
from tests.support.sweeping import swept

SEGMENTS = 40
LARGE = "x" * 1000  # a page takes one of these
PAGE_BYTES = 1000


def read(log: Log, offset: int, max_bytes: int = PAGE_BYTES) -> list[int]:
    page = log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, max_bytes=max_bytes))
    return [record.offset for record in page.records]


def thaws_with_a_ghost(service: Service) -> Log:
    """Return a process that was frozen, and has folded a late create [2, 10) below the log start, 7, as a poll does."""
    append(service.log, "a")
    frozen = service.another()
    append(frozen, "b")
    late = service.builder()
    late.add(data(*[f"ghost {n}" for n in range(8)], producer=(7, 0, 0)))
    append(service.log, *"cdefg")
    append(service.log, *"hijkl")
    service.log.partitions.trim(TOPIC, 0, 7)
    service.runtime.advance(limits.GC_GRACE_MS)
    swept(service)
    late.store(service.objects, start=2)
    assert partition_of(frozen).fold_at(2)
    return frozen


@pytest.fixture
def reader(service: Service) -> Log:
    """Return a process that has read the first page of a log, and beside it only what no checkpoint holds."""
    for _ in range(SEGMENTS):
        append(service.log, LARGE)
    log = service.another()
    assert read(log, 0) == [0]
    return log


def rounds_of(service: Service, act: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> list[Counter[str]]:
    """Return the store calls that ``act`` makes: first those made alone, then each set of calls made side by side."""
    rounds: list[Counter[str]] = []

    def gather(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        with monkeypatch.context() as inner:
            inner.setattr(service.runtime, "gather", lambda calls: [call() for call in calls])
            before = service.count()
            results = [call() for call in calls]
            rounds.append(service.count() - before)
        return results

    monkeypatch.setattr(service.runtime, "gather", gather)
    before = service.count()
    act()
    alone = service.count() - before - sum(rounds, Counter())
    return [calls for calls in (alone, *rounds) if calls]


def test_a_page_after_another_is_fetched_beside_the_look_and_lists_nothing(
    service: Service, reader: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offset in range(1, SEGMENTS - limits.CHECKPOINT_SEGMENTS):
        rounds = rounds_of(service, partial(read, reader, offset), monkeypatch)
        # The items, the next key after the tail, and the segment.
        assert rounds == [{"items.get": 1, "objects.get": 2}]


def test_the_segments_of_a_page_are_all_fetched_beside_the_look(
    service: Service, reader: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = rounds_of(service, lambda: read(reader, 5, 3 * PAGE_BYTES), monkeypatch)
    assert rounds == [{"items.get": 1, "objects.get": 1 + 3}]


def test_a_page_at_the_tail_is_asked_for_no_segment_more(
    service: Service, reader: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = rounds_of(service, lambda: read(reader, SEGMENTS), monkeypatch)
    assert rounds == [{"items.get": 1, "objects.get": 1}]


def test_a_listing_made_while_others_append_is_not_used(
    service: Service, reader: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing of a growing log may show a key and lack the one before it."""
    shown = service.objects.store.list

    def listed(prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        monkeypatch.setattr(service.objects.store, "list", shown)
        append(service.log, "lacking")
        append(service.log, "shown")
        lacking = keys.segment_key(service.topic_id(), 0, SEGMENTS)
        return [line for line in shown(prefix, start_after, limit) if line.key != lacking]

    def gather(calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return [call() for call in reversed(calls)][::-1]

    monkeypatch.setattr(service.objects.store, "list", listed)
    monkeypatch.setattr(service.runtime, "gather", gather)
    assert read(reader, SEGMENTS - 2, 1 << 20) == [*range(SEGMENTS - 2, SEGMENTS + 2)]


@pytest.mark.parametrize("max_records", [1, 500])
def test_of_an_old_look_nothing_is_fetched_ahead(service: Service, max_records: int) -> None:
    """What this process takes for the log may be a late create."""
    log = thaws_with_a_ghost(service)
    page = log.partitions.read(TOPIC, 0, ReadRequest(offset=7, max_records=max_records))
    assert page.records[0].value == b"h"


def test_a_segment_that_cannot_be_fetched_ahead_is_read_by_the_page(service: Service, reader: Log) -> None:
    failed: list[bool] = []

    def once(call: Callable[[], Any]) -> Any:
        if not failed:
            failed.append(True)
            raise Unavailable("not sent")
        return call()

    service.objects.always("get", once, keys.segment_key(service.topic_id(), 0, 7))
    assert read(reader, 7) == [7]
    assert failed
