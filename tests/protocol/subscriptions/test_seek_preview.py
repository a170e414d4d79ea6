"""The preview of a seek: it says what the seek then does, and changes nothing."""

from __future__ import annotations

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fenceline.errors import OffsetOutOfRangeError, UnknownSubscriptionError, UnknownTopicOrPartitionError
from fenceline.model.requests import Acknowledgement, OwnTarget, ReadRequest
from fenceline.model.subscription import SeekPreview
from fenceline.service.log import Log
from tests.support.runtime import START_MS
from tests.support.service import TOPIC, LogBuilder, Service, append, data, marker, outcome, serve
from tests.support.tries import tries

NAME = "s"
PARTS = st.lists(
    st.tuples(st.sampled_from(["data", "marker", "aborted", "committed"]), st.integers(1, 4)), min_size=1, max_size=8
)


def delivered(log: Log) -> set[int]:
    """Return the offsets of all records that the subscription still delivers."""
    return {one.offset for one in log.subscriptions.read(TOPIC, 0, NAME, ReadRequest()).records}


def built(service: Service, parts: list[tuple[str, int]]) -> LogBuilder:
    log, epoch = LogBuilder(topic_id=service.topic_id()), 0
    for kind, count in parts:
        values = ["v"] * count
        if kind == "data":
            log.add(data(*values))
        elif kind == "marker":
            log.add(marker(200))
        else:
            log.add(data(*values, producer=(7, epoch, 0), is_transactional=True))
            epoch += 1
            log.add(outcome(7, epoch, is_commit=kind == "committed"))
    log.store(service.objects)
    return log


@tries(40)
@given(PARTS, st.lists(st.integers(0, 40), max_size=8), st.integers(0, 40), st.integers(0, 40))
def test_the_preview_of_a_seek_equals_what_the_seek_then_does(
    parts: list[tuple[str, int]], individual: list[int], below: int, offset: int
) -> None:
    """Property: the marks are those before and after; what is skipped is not delivered after, and what is repeated is.

    Markers and aborted records among them count for nothing, nor is a record skipped that was acknowledged.
    """
    with closing(serve()) as service:
        service.log.topics.create(TOPIC)
        end = built(service, parts).state.next_offset
        consumers = service.log.subscriptions
        consumers.subscribe(TOPIC, NAME, is_latest=False)
        if below and below < end:
            consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(below - 1))
        if some := [one for one in individual if one < end]:
            consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(individual=some))
        offset = min(offset, end)

        before, stored = delivered(service.log), consumers.get(TOPIC, NAME)
        preview = consumers.preview_seek(TOPIC, 0, NAME, offset=offset)
        assert (consumers.get(TOPIC, NAME), delivered(service.log)) == (stored, before)

        new = consumers.seek(TOPIC, 0, NAME, offset=offset)
        after = delivered(service.log)
        mark = stored.cursors[0].mark_delete_offset
        assert preview == SeekPreview(0, mark, new, len(before - after), len(after - before))


def test_a_preview_goes_by_time_and_within_the_log_as_a_seek_does(service: Service) -> None:
    for n in range(6):
        append(service.log, str(n), timestamp=START_MS + n)
    consumers = service.log.subscriptions
    consumers.subscribe(TOPIC, NAME, is_latest=False)
    consumers.acknowledge(TOPIC, 0, NAME, Acknowledgement(2))
    assert consumers.preview_seek(TOPIC, 0, NAME, timestamp=START_MS + 5) == SeekPreview(0, 3, 5, 2, 0)
    assert consumers.preview_seek(TOPIC, 0, NAME, timestamp=START_MS + 9) == SeekPreview(0, 3, 6, 3, 0)
    service.log.partitions.trim(TOPIC, 0, 2)
    assert consumers.preview_seek(TOPIC, 0, NAME, timestamp=START_MS) == SeekPreview(0, 3, 2, 0, 1)
    for offset in (1, 7):
        with pytest.raises(OffsetOutOfRangeError, match=f"offset={offset}"):
            consumers.preview_seek(TOPIC, 0, NAME, offset=offset)
    with pytest.raises(UnknownSubscriptionError):
        consumers.preview_seek(TOPIC, 0, "nothing", offset=2)
    with pytest.raises(UnknownTopicOrPartitionError):
        consumers.preview_seek(TOPIC, 9, NAME, offset=2)


def test_a_preview_is_shown_also_while_the_group_has_an_owner(service: Service) -> None:
    append(service.log, "0", "1")
    consumers, access = service.log.subscriptions, service.log.access
    consumers.subscribe(TOPIC, NAME, is_latest=False)
    session = access.create_session(client_name=None, lease_ms=None)
    access.own(session.session_id, [OwnTarget(f"{TOPIC}/0")], group=NAME)
    assert consumers.preview_seek(TOPIC, 0, NAME, offset=1) == SeekPreview(0, 0, 1, 1, 0)


def test_a_preview_writes_nothing(service: Service) -> None:
    append(service.log, "0", "1")
    service.log.subscriptions.subscribe(TOPIC, NAME, is_latest=False)
    before = service.count()
    service.log.subscriptions.preview_seek(TOPIC, 0, NAME, offset=1)
    after = service.count()
    assert after["items.write"] == before["items.write"]
    assert after["objects.create"] == before["objects.create"]
