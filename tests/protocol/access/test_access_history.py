"""The history of access: ACCESS markers, each of which says where the one before it is (protocol, "Markers")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline import limits
from fenceline.errors import UnknownTopicOrPartitionError
from fenceline.format import control
from fenceline.model.access import AccessHistory, AccessMarker
from fenceline.model.requests import OwnTarget
from fenceline.ports import Delete
from fenceline.service.log import Log
from tests.support.claiming import EXCLUSIVE, FENCING, LAPSE_MS, claim, send, stored_access
from tests.support.service import (
    TOPIC,
    LogBuilder,
    Part,
    Service,
    append,
    data,
    marker,
    outcome,
    partition_of,
    serve,
)


def history(log: Log, **options: Any) -> AccessHistory:
    return log.access.history(TOPIC, 0, **options)


def pages(log: Log, before_offset: int | None = None, **options: Any) -> tuple[list[AccessMarker], list[int]]:
    """Return all markers below an offset, from as many answers as it takes, and how many each of them has."""
    found: list[AccessMarker] = []
    counts = []
    while True:
        page = history(log, before_offset=before_offset, **options)
        found += page.markers
        counts.append(len(page.markers))
        if not page.has_more:
            assert page.go_on_before is None
            return found, counts
        assert page.go_on_before is not None
        assert before_offset is None or page.go_on_before < before_offset
        before_offset = page.go_on_before


def takeovers(service: Service, count: int, records: int = 0) -> None:
    """Let one producer after the other take the partition, and append records."""
    for number in range(count):
        producer = claim(service.log, FENCING, producer_name=f"p{number}", client_name=f"web-{number}")
        for value in range(records):
            send(service.log, producer, str(value))


def test_each_access_marker_says_where_the_one_before_it_is(service: Service) -> None:
    """Claims, the end that rides with an append, an owner and the fence of a severed session make one chain."""
    a = claim(service.log, producer_name="a", client_name="web-1:1")
    send(service.log, a, "1")
    claim(service.another(), FENCING, producer_name="b")  # no client name
    service.runtime.advance(LAPSE_MS)
    append(service.another(), "2")  # goes back to shared
    owner, rival = (service.log.access.create_session(client_name=name).session_id for name in ("own:1", "own:2"))
    service.log.access.own(owner, [OwnTarget(f"{TOPIC}/0")])
    service.another().access.own(rival, [OwnTarget(f"{TOPIC}/0", limits.GENERATION_MAX)])  # severs, and claims
    service.log.access.own(rival, [OwnTarget("lock")])
    service.another().access.own(service.log.access.create_session().session_id, [OwnTarget("lock", 7)])  # severs

    found = stored_access(service)
    named = [(value["mode"], value.get("producer_name"), value.get("client_name")) for _, value in found]
    assert named == [
        ("Exclusive", "a", "web-1:1"),
        ("Exclusive", "b", None),
        ("Shared", None, None),
        ("Exclusive", None, "own:1"),
        ("Exclusive", None, "own:2"),
        ("Shared", None, None),
    ]
    offsets = [header.base_offset for header, _ in found]
    assert [value["previous"] for _, value in found] == [-1, *offsets[:-1]]


def test_a_process_that_begins_at_a_checkpoint_knows_the_marker_before(service: Service) -> None:
    claim(service.log, FENCING)
    append_at = claim(service.log, FENCING).next_offsets[0] - 1
    service.another().partitions.checkpoint(TOPIC, 0)
    claim(service.another(), FENCING)
    assert stored_access(service)[-1][1]["previous"] == append_at


def test_the_history_is_newest_first_with_the_records_between(service: Service) -> None:
    append(service.log, "before", "any")
    takeovers(service, 3, records=2)
    found = history(service.another())
    assert [(one.offset, one.topic_epoch, one.records) for one in found.markers] == [(8, 2, 2), (5, 1, 2), (2, 0, 2)]
    assert [(one.producer_name, one.client_name) for one in found.markers] == [
        (f"p{number}", f"web-{number}") for number in (2, 1, 0)
    ]
    assert {one.access_mode for one in found.markers} == {EXCLUSIVE}
    assert all(one.timestamp == service.runtime.now_ms() for one in found.markers)
    assert (found.has_more, found.go_on_before) == (False, None)


def test_a_partition_without_markers_has_no_history(service: Service) -> None:
    assert history(service.log) == ([], False, None)
    append(service.log, "1")
    assert history(service.log) == history(service.log, before_offset=0) == ([], False, None)
    with pytest.raises(UnknownTopicOrPartitionError):
        service.log.access.history("none", 0)
    with pytest.raises(UnknownTopicOrPartitionError):
        service.log.access.history(TOPIC, 9)


def test_a_marker_costs_one_read(service: Service) -> None:
    """Also of a process that knows nothing of the log, and on a page that goes on. A warm one reads nothing again."""
    takeovers(service, 6, records=30)
    service.another().partitions.checkpoint(TOPIC, 0)

    def reads(log: Log, **options: Any) -> tuple[AccessHistory, int]:
        log.partitions.offsets(TOPIC, 0)  # follows the log
        before = service.count()
        found = history(log, **options)
        spent = service.count() - before
        assert spent["objects.list"] == 0
        return found, spent["objects.get"] - 1  # without the look at the end of the log

    first, spent = reads(service.another(), limit=4)
    assert (len(first.markers), first.go_on_before, spent) == (4, first.markers[-1].offset, 4)
    second, spent = reads(service.another(), before_offset=first.go_on_before, limit=4)
    assert (len(second.markers), second.has_more, spent) == (2, False, 3)  # the one at which it goes on, too
    warm = service.another()
    assert reads(warm)[1] == 6
    assert reads(warm)[1] == 0


def test_a_history_that_older_versions_wrote_is_found_by_looks(service: Service) -> None:
    """The markers do not say where the one before them is. Segments with nothing but records are not read whole."""
    log = LogBuilder(topic_id=service.topic_id())
    for number in range(4):
        log.add(marker(control.ACCESS, {"mode": "Exclusive", "session_id": f"{number}"}, epoch=number))
        for _ in range(20):
            log.add(data("a", "b"))
    log.store(service.objects)
    log.store_head(service.items)
    before = service.count()
    found = history(service.another())
    spent = service.count() - before
    assert [(one.session_id, one.records, one.producer_name) for one in found.markers] == [
        (str(number), 40, None) for number in (3, 2, 1, 0)
    ]
    assert not found.has_more
    # Each segment's metadata once, each marker, and both ends.
    assert spent["objects.get"] <= 4 * 21 + 4 + 4


def test_looks_end_after_100_segments_and_say_where_to_go_on(service: Service) -> None:
    log = LogBuilder(topic_id=service.topic_id())
    log.add(marker(control.ACCESS, {"mode": "Shared"}, epoch=0))
    for _ in range(250):
        log.add(data("a"))
    log.add(marker(control.ACCESS, {"mode": "Exclusive", "session_id": "s"}, epoch=1))
    log.store(service.objects)
    log.store_head(service.items)
    first = history(service.another())
    assert [one.session_id for one in first.markers] == ["s"]
    assert (first.has_more, first.go_on_before) == (True, 251 - 100)
    assert history(service.another(), before_offset=151) == ([], True, 51)
    found, counts = pages(service.another())
    assert ([one.offset for one in found], counts) == ([251, 0], [1, 0, 1])


def test_the_history_ends_at_the_log_start(service: Service) -> None:
    """A marker may point below it, where nothing is read. Neither is a marker of a segment that is kept in part."""
    takeovers(service, 4, records=3)
    offsets = [one.offset for one in history(service.log).markers]
    for log_start in (offsets[2], offsets[2] + 1, offsets[1]):
        service.log.partitions.trim(TOPIC, 0, log_start)
        kept = [offset for offset in offsets if offset >= log_start]
        assert [one.offset for one in history(service.another()).markers] == kept
        assert not history(service.another()).has_more
        assert not history(service.another(), limit=len(kept)).has_more
        assert history(service.another(), before_offset=log_start) == ([], False, None)
        assert history(service.another(), before_offset=0) == ([], False, None)


def test_the_history_of_a_trimmed_log_reads_nothing_that_was_collected(service: Service) -> None:
    takeovers(service, 3, records=3)
    start = history(service.log).markers[1].offset
    service.log.partitions.trim(TOPIC, 0, start)
    for segment in service.segments():
        if segment.next_offset <= start:
            service.objects.store.delete(f"log/{service.topic_id()}/00000/{segment.base_offset:020d}.log")
    assert [one.producer_name for one in history(service.another()).markers] == ["p2", "p1"]


def test_a_marker_that_rides_with_an_append_is_found(service: Service) -> None:
    """The marker back to shared access lies after records, in their segment."""
    for _ in range(2):
        claim(service.log, FENCING)
        service.runtime.advance(LAPSE_MS)
        append(service.log, "1", "2", "3")
    found = history(service.another()).markers
    assert [(one.access_mode, one.offset, one.records) for one in found] == [
        ("Shared", 9, 0),
        ("Exclusive", 5, 3),
        ("Shared", 4, 0),
        ("Exclusive", 0, 3),
    ]
    assert [one.session_id is None for one in found] == [True, False, True, False]


def test_another_principal_is_shown_the_beginning_of_an_id(service: Service) -> None:
    """An id whose session is not known any more is cut, too, because nothing says whose it was."""
    own = claim(service.log, FENCING, principal="ann")
    claim(service.log, FENCING, principal="bob")
    shown = [one.session_id for one in history(service.log, principal="ann").markers]
    assert shown[1] == own.session_id
    assert [len(one or "") for one in shown] == [8, 32]
    assert [len(one.session_id or "") for one in history(service.log).markers] == [32, 32]
    forget_sessions(service)
    assert [len(one.session_id or "") for one in history(service.log, principal="ann").markers] == [8, 8]


# Any log

# No version writes another value than the right one, but older versions wrote none. A place that is no marker's is not
# believed.
_PREVIOUS = st.sampled_from(["right", "right", "absent", "near", "itself", -5, 10**6, 2**80, None, True, "0", [], 1.0])
_PARTS = st.one_of(
    st.integers(1, 3).map(lambda count: ("data", count)),
    _PREVIOUS.map(lambda previous: ("access", previous)),
    st.just(("other", 0)),
)
_LOGS = st.lists(st.lists(_PARTS, min_size=1, max_size=3), min_size=1, max_size=12)


def built(topic_id: str, segments: Sequence[Sequence[tuple[str, Any]]]) -> tuple[LogBuilder, list[tuple[int, int]]]:
    """Return a log, and (offset, records below) of each of its ACCESS markers."""
    log, places, records = LogBuilder(topic_id=topic_id), list[tuple[int, int]](), 0
    for parts in segments:
        made: list[Part] = []
        offset = log.state.next_offset
        for kind, what in parts:
            if kind == "data":
                made.append(data(*"abc"[:what]))
                offset, records = offset + what, records + what
                continue
            if kind == "access":
                right = places[-1][0] if places else -1
                said = {"right": right, "near": min(right + 1, offset), "itself": offset}
                previous = said.get(what, what) if isinstance(what, str) else what
                value = {"mode": "Shared"} | ({} if what == "absent" else {"previous": previous})
                made.append(marker(control.ACCESS, value))
                places.append((offset, records))
            else:
                made.append(outcome(7, 1, is_commit=True))
            offset += 1
        log.add(*made)
    return log, places


@given(_LOGS, st.integers(0, 1_000), st.integers(1, 4))
def test_the_history_is_that_of_the_log_whatever_markers_lack_and_whatever_is_asked_for(
    segments: Sequence[Sequence[tuple[str, Any]]], start: int, limit: int
) -> None:
    """In pages of any size, below any offset, from any log start on; a place that is no marker's hides no marker."""
    service = serve()
    try:
        service.log.topics.create(TOPIC)
        log, places = built(service.topic_id(), segments)
        end, total = log.state.next_offset, log.state.records
        log_start = start % (end + 1)
        log.store(service.objects)
        log.store_head(service.items, log_start)
        reader = service.another()
        for before in (None, *range(end + 2)):
            below = end if before is None else min(before, end)
            found, _ = pages(reader, before, limit=limit)
            kept = [place for place in places if log_start <= place[0] < below]
            assert [one.offset for one in found] == [offset for offset, _ in reversed(kept)]
            counts = [one.records for one in reversed(found)]
            above = [*(records for _, records in kept[1:]), total if below == end else records_below(log, below)]
            assert counts == [after - at for (_, at), after in zip(kept, above, strict=False)]
        assert partition_of(reader).log_start == log_start
    finally:
        service.close()


def records_below(log: LogBuilder, offset: int) -> int:
    """Return how many data records of a log lie below an offset."""
    headers = [header for segment in log.segments for _, header in segment.batches if not header.is_control]
    return sum(max(min(offset, header.next_offset) - header.base_offset, 0) for header in headers)


def forget_sessions(service: Service) -> None:
    """Delete every session's item, as the sweeper does a day after its end."""
    for shard in "0123456789abcdef":
        for item in service.items.store.query(f"sessions/{shard}", limit=limits.LIST_MAX):
            service.items.store.write([Delete(item.key, item.version)])
