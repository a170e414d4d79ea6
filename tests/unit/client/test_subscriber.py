"""Subscriptions from the client's side: what is shown, and what is acknowledged by which subscriber."""

import threading

import httpx
import pytest

from fenceline import errors
from fenceline.client.topic_watch import LOOK_MS
from fenceline.client.types import CommittedOffset, Cursor
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from tests.support.patience import wait_until
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire, refused


def filled(partitions=1, records=10):
    """Return a service with a subscription ``s`` at the earliest record, and a client."""
    service = Wire(partitions=partitions)
    client = service.client(ThreadRuntime(), retry_ms=0)
    for partition in range(partitions):
        service.fill(*(b"%d" % n for n in range(records)), partition=partition)
    service.outside.create_subscription("t", "s", initial_position="earliest")
    return service, client


def test_a_subscriber_yields_what_is_not_acknowledged_in_order_and_ends():
    service, client = filled(partitions=3)
    service.outside.acknowledge("t", "s", 0, cumulative=3)
    service.outside.acknowledge("t", "s", 1, cumulative=9)

    with client.subscribe("t", "s", initial_position="earliest", follow=False, max_records=3) as subscriber:
        records = list(subscriber)

    by_partition = {n: [record.offset for number, record in records if number == n] for n in range(3)}
    assert by_partition == {0: [4, 5, 6, 7, 8, 9], 1: [], 2: list(range(10))}
    assert service.values("putSubscription") == [{"initial_position": "earliest"}]
    assert subscriber.positions == {0: 10, 2: 10}


@pytest.mark.parametrize("page_size", [1, 2, 100])
def test_a_subscription_has_all_its_partitions_however_its_pages_are_cut(page_size):
    service, client = filled(partitions=5, records=1)

    def pages(sent, carry_out):
        """Answer as a service whose pages have ``page_size`` partitions."""
        answer = carry_out().json()
        first = int(sent.value.get("start_partition", 0))
        shown = [one for one in answer["partitions"] if first <= one["partition"] < first + page_size]
        return httpx.Response(200, json={**answer, "partitions": shown, "has_more": shown[-1]["partition"] < 4})

    service.scripts["getSubscription"] = pages
    assert [one.partition for one in client.subscription("t", "s").partitions] == [0, 1, 2, 3, 4]


def test_pages_go_on_where_iterating_was_left():
    _, client = filled()
    with client.subscribe("t", "s", follow=False, max_records=4) as subscriber:
        assert next(iter(subscriber))[1].offset == 0
        assert [[one.offset for one in records] for _, records in subscriber.pages()] == [
            [1, 2, 3],
            [4, 5, 6, 7],
            [8, 9],
        ]


def test_a_subscriber_that_follows_sees_what_comes_later():
    _, client = filled(records=1)
    with client.subscribe("t", "s") as subscriber:
        each = iter(subscriber)
        assert next(each)[1].value == b"0"
        client.produce("t", 0, [Record(b"later")])
        assert next(each)[1].value == b"later"


def test_acknowledgements_name_the_session_that_owns_the_partitions():
    service, client = filled()
    with client.session() as session, client.subscribe("t", "s", session=session) as subscriber:
        service.outside.take(session.session_id, {"t/0": None}, group="s")
        assert subscriber.acknowledge(0, 4) == 5
        assert subscriber.acknowledge_individually(0, [7, 9]) == 5
        next(iter(subscriber))

    assert service.values("acknowledgeRecords") == [
        {"partition": 0, "cumulative": 4, "session_id": session.session_id},
        {"partition": 0, "individual": [7, 9], "session_id": session.session_id},
    ]
    assert service.values("pollRecords")[0]["session_id"] == session.session_id


def test_a_subscriber_that_takes_over_begins_at_a_stable_mark_and_then_goes_on():
    """Later its own transactions have offsets pending: a look at them would hold it up."""
    service, client = filled()
    with client.subscribe(
        "t", "s", follow=False, isolation="read_committed", require_stable=True, max_records=4
    ) as subscriber:
        assert len(list(subscriber)) == 10

    asked = [
        (one.get("offset"), one["isolation"], one.get("require_stable")) for one in service.values("readSubscription")
    ]
    assert asked == [(None, "read_committed", "true"), ("4", "read_committed", None), ("8", "read_committed", None)]


@pytest.mark.parametrize("error", [errors.OwnerFencedError, errors.SessionSeveredError])
def test_a_severed_reader_gets_an_error_and_no_more_records(error):
    service, client = filled()
    service.scripts["readSubscription"] = lambda *_: refused(error("somebody came"))

    with client.subscribe("t", "s", follow=False) as subscriber:
        for _ in range(2):  # never taken for the end
            with pytest.raises(error):
                next(iter(subscriber))


def test_a_mark_that_moved_past_the_position_is_gone_on_from():
    service, client = filled()
    with client.subscribe("t", "s", follow=False, max_records=2) as subscriber:
        each = iter(subscriber)
        first = next(each)[1].offset
        service.outside.acknowledge("t", "s", 0, cumulative=7)  # by another subscriber, which was faster
        rest = [record.offset for _, record in each]

    assert first == 0
    assert rest[-2:] == [8, 9]
    assert len(rest) < 9


def test_a_subscription_is_described_with_all_its_partitions():
    service, client = filled(partitions=230, records=1)
    service.fill(*[b"x"] * 9, partition=229)
    service.outside.acknowledge("t", "s", 229, cumulative=3)
    service.outside.acknowledge("t", "s", 229, individual=[8])
    service.outside.create_subscription("t", "another", initial_position="latest")

    found = client.subscription("t", "s")

    assert [cursor.partition for cursor in found.partitions] == list(range(230))
    last = found.partitions[229]
    assert last == Cursor(229, 4, [(8, 9)], 5, last.oldest_unread_at)
    assert last.oldest_unread_at is not None
    assert [one.name for one in client.subscriptions("t")] == ["another", "s"]


def test_a_subscription_is_moved_by_offset_and_by_time_and_deleted():
    service, client = filled()

    assert client.seek("t", "s", 0, offset=6) == 6
    assert client.seek("t", "s", 0, timestamp=99) == 0
    client.delete_subscription("t", "s")

    assert service.values("seekSubscription") == [{"partition": 0, "offset": 6}, {"partition": 0, "timestamp": 99}]
    assert service.count("deleteSubscription") == 1


def test_a_group_commits_and_fetches_its_offsets():
    service, client = filled()

    session_id = service.outside.create_session().session_id
    service.outside.take(session_id, {"t/0": None}, group="g")
    client.commit_offsets("g", [CommittedOffset("t", 0, 7, "m")], session_id=session_id)
    assert client.committed_offsets("g", topic="t", partition=0, require_stable=True) == [
        CommittedOffset("t", 0, 7, "m")
    ]

    offsets = [{"topic": "t", "partition": 0, "offset": 7, "metadata": "m"}]
    assert service.values("commitGroupOffsets") == [{"offsets": offsets, "session_id": session_id}]
    assert service.values("getGroupOffsets") == [{"topic": "t", "partition": "0", "require_stable": "true"}]


def test_a_read_may_be_one_of_a_group_that_owns_the_partition():
    service, client = filled()

    session_id = service.outside.create_session().session_id
    service.outside.take(session_id, {"t/0": None}, group="g")
    with client.reader("t", group="g", session_id=session_id) as reader:
        assert len(list(reader)) == 10

    reads = [value for value in service.values("readRecords") if "group" in value]
    assert {(value["group"], value["session_id"]) for value in reads} == {("g", session_id)}


@pytest.mark.parametrize("what", ["__iter__", "pages"])
def test_a_subscriber_left_by_break_leaves_no_threads_and_can_be_iterated_again(what):
    before = set(threading.enumerate())
    _, client = filled(partitions=2)
    subscriber = client.subscribe("t", "s", initial_position="earliest", max_records=2)
    shown = []
    for _ in range(3):
        for partition, given in getattr(subscriber, what)():
            records = [given] if what == "__iter__" else given
            shown += [(partition, record.offset) for record in records]
            break
        wait_until(lambda: set(threading.enumerate()) <= before)
    assert len(set(shown)) == len(shown) == (3 if what == "__iter__" else 6)


@pytest.mark.parametrize("is_owner", [False, True])
def test_a_following_subscriber_reads_added_partitions_or_under_a_session_owned_ones(is_owner):
    service, clock = Wire(partitions=1), FakeRuntime()
    session_id = service.outside.create_session().session_id if is_owner else None
    if is_owner:
        service.outside.take(session_id, {"t/0": None}, group="s")
    with service.client(clock).subscribe("t", "s", session_id=session_id) as subscriber:
        service.grow(3)
        if is_owner:
            service.outside.take(session_id, {"t/2": None}, group="s")
        for partition in (1, 2):
            service.fill(b"%d" % partition, partition=partition)
        clock.pass_ms(LOOK_MS)
        each = iter(subscriber)
        found = {next(each)[0] for _ in range(1 if is_owner else 2)}
        assert found == ({2} if is_owner else {1, 2})
        assert subscriber.acknowledge(2, 0) == 1
    assert service.looks == 2
    with service.client(clock).subscribe("t", "s", [0]) as subscriber:
        assert subscriber._new is None


def test_a_second_reader_of_a_partition_is_warned_of_by_the_name_that_it_gave(caplog):
    service, client = filled(records=6)
    service.outside.client_name = "host-b"
    with client.subscribe("t", "s", follow=False) as subscriber:
        for n, (partition, record) in enumerate(subscriber):
            subscriber.acknowledge(partition, record.offset)
            assert len(caplog.messages) == (n > 1)
            if n == 1:
                service.outside.acknowledged("t", "s", 0, cumulative=2, reader_id="b")
    assert "other=host-b" in caplog.messages[0]
