"""The reader: order, starts, ends, positions."""

import gc
import struct
import threading
from base64 import b64encode
from dataclasses import asdict

import httpx
import pytest

from fenceline import errors
from fenceline.client import following as followers
from fenceline.client import prefetch
from fenceline.client.topic_watch import LOOK_MS
from fenceline.model.record import Record
from fenceline.model.results import Bounds, Page
from tests.support.patience import PATIENCE_S, STALL_S, wait_until
from tests.support.runtime import FakeRuntime
from tests.support.wire import Wire, answers, refused


def filled(partitions=1, batches=4, records=5, open_from=None):
    """Return a service with ``batches`` × ``records`` in each partition, whose values are their offsets.

    From ``open_from`` on they are those of a transaction that stays open.
    """
    service = Wire(partitions=partitions)
    client = service.client()
    for partition in range(partitions):
        for batch in range(batches):
            values = [str(batch * records + n).encode() for n in range(records)]
            if batch * records == open_from:
                service.open_transaction(*values, *(b"open" for _ in range((batches - batch - 1) * records)))
                break
            client.produce("t", partition, [Record(value, headers=[("p", b"%d" % partition)]) for value in values])
    return service, client


def test_a_reader_yields_every_record_of_every_partition_in_order_and_ends():
    _, client = filled(partitions=3)

    with client.reader("t") as reader:
        records = list(reader)

    for partition in range(3):
        mine = [record for number, record in records if number == partition]
        assert [record.offset for record in mine] == list(range(20))
        assert [record.value for record in mine] == [b"%d" % offset for offset in range(20)]
        assert {record.headers[0][1] for record in mine} == {b"%d" % partition}
    assert len(records) == 60
    assert reader.positions == {0: 20, 1: 20, 2: 20}


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", 0), ("latest", 20), (0, 0), (7, 7), (10, 10), (19, 19), (20, 20), ({0: 3}, 3)],
)
def test_a_reader_begins_at_its_start_also_inside_a_batch(start, expected):
    _, client = filled()

    with client.reader("t", start=start) as reader:
        assert [record.offset for _, record in reader] == list(range(expected, 20))


@pytest.mark.parametrize(("isolation", "first"), [("read_uncommitted", 20), ("read_committed", 15)])
def test_the_latest_offset_is_the_end_of_what_the_reader_may_see(isolation, first):
    """Else a reader of what is committed would pass over what commits later."""
    service, client = filled(open_from=15)

    with client.reader("t", start="latest", isolation=isolation) as reader:
        assert reader.positions == {0: first}
        assert list(reader) == []
    asked = [one.value["isolation"] for one in service.sent if "isolation" in one.value]
    assert set(asked) == {isolation}


def test_the_earliest_record_is_the_first_one_kept():
    service, client = filled()
    service.outside.trim("t", 0, 6)

    with client.reader("t") as reader:
        assert next(iter(reader))[1].offset == 6


def view_of(service, *, deletes_to=0, horizon=0):
    """Let the service answer compacted reads by a view of this kind: all records, one on a page."""
    bounds = asdict(service.outside.offsets("t", 0).bounds)
    asked = []

    def read(sent, _):
        offset, since = int(sent.value["offset"]), sent.value.get("compacted_since")
        asked.append(since)
        deletes = deletes_to if len(asked) > 3 else 0
        if since is not None and deletes > max(int(since), offset):
            return refused(errors.ViewMovedError("it moved", compaction_horizon=horizon, deletes_to=deletes))
        rows = [] if offset == 20 else [{"offset": offset, "timestamp": 1, "value": b64encode(b"%d" % offset).decode()}]
        shown = [{**row, "key": None, "headers": [], "topic_epoch": -1} for row in rows]
        view = {"compaction_horizon": max(horizon, deletes), "deletes_to": deletes}
        page = {"records": shown, "encoding": "base64", "position": offset + len(rows), **view}
        return httpx.Response(200, json={**page, **bounds})

    service.scripts["readRecords"] = read
    return asked


def test_a_reader_of_a_view_that_may_miss_a_delete_begins_anew_and_reports_it(caplog):
    service, client = filled()
    asked = view_of(service, deletes_to=9)
    restarts = []

    with client.reader("t", compacted=True, on_restart=restarts.append) as reader:
        offsets = [record.offset for _, record in reader]

    assert offsets == [0, 1, 2, *range(20)]
    assert restarts == [0]
    assert asked[:6] == [None, "0", "0", "0", None, "9"]
    assert "the reader of t/0 begins anew: it moved" in caplog.text


BY_TIMESTAMP = {"compaction.order": "timestamp", "delete.retention.ms": -1}


def test_a_reader_of_a_table_by_timestamp_leaves_out_what_loses():
    """It loses against a record of the view, which lies before it: by time, then by region, then by offset."""
    service = Wire(config=BY_TIMESTAMP)
    service.fill(*[b"x"] * 7)
    rows = [("k", 5, "b"), ("l", 1, "b"), ("k", 4, "z"), ("k", 5, "a"), ("l", 1, "b"), ("k", 5, "c"), (None, 0, "a")]
    shown = [
        {"offset": n, "timestamp": at, "value": None, "key": key and b64encode(key.encode()).decode(), "origin": region}
        for n, (key, at, region) in enumerate(rows)
    ]
    records = [{**row, "headers": [], "topic_epoch": -1} for row in shown]
    bounds = {"log_start_offset": 0, "next_offset": 7, "last_stable_offset": 7}
    view = {"compaction_horizon": 2, "deletes_to": 0}
    page = {"records": records, "encoding": "base64", "position": 7, **bounds, **view}
    service.scripts["readRecords"] = lambda *_: httpx.Response(200, json=page)
    with service.client().reader("t", compacted=True) as reader:
        assert [record.offset for _, record in reader] == [0, 1, 4, 5, 6]
    assert [one.get("identity") for one in service.values("readRecords") if "compacted" in one] == ["true"]


@pytest.mark.parametrize("orders", [({}, BY_TIMESTAMP), (BY_TIMESTAMP, {})])
def test_a_reader_that_begins_anew_takes_the_order_that_the_topic_has_then(orders):
    """Also if the topic could not be asked at first, and the caller goes on."""
    service = Wire(config=orders[0], faults={"getTopic": [None, answers(errors.NotAuthorizedError("no"))]})
    service.fill(b"x", b"x")
    bounds = {"log_start_offset": 0, "next_offset": 2, "last_stable_offset": 2}
    rows = [{"offset": n, "timestamp": 9 - n, "value": None, "key": "aw==", "origin": "a"} for n in range(2)]
    moved = [errors.ViewMovedError("it moved", compaction_horizon=2, deletes_to=0)] * 2
    asked = []

    def read(sent, _):
        at = int(sent.value["offset"])
        asked.append(sent.value["compaction_order"])
        if at and moved:
            service.outside.alter_topic("t", config={"compaction.order": None, **orders[1]})
            return refused(moved.pop())
        shown = [{**row, "headers": [], "topic_epoch": -1} for row in rows[at : at + 1]]
        view = {"compaction_horizon": 2, "deletes_to": 0}
        return httpx.Response(200, json={"records": shown, "encoding": "base64", "position": at + 1, **bounds, **view})

    service.scripts["readRecords"] = read
    with service.client().reader("t", [0], compacted=True) as reader:
        assert next(iter(reader))[1].offset == 0
        with pytest.raises(errors.NotAuthorizedError):
            next(iter(reader))
        assert [record.offset for _, record in reader] == ([0] if orders[1] else [0, 1])
    assert (asked[0], asked[-1]) == tuple(one.get("compaction.order", "offset") for one in orders)


def test_a_reader_of_a_view_whose_deletes_lie_behind_it_goes_on():
    service, client = filled()
    view_of(service, deletes_to=3)

    with client.reader("t", compacted=True) as reader:
        assert [record.offset for _, record in reader] == [*range(20)]


def test_a_reader_of_a_view_reads_to_the_end_of_the_view():
    """The newest record of a key may lie beyond where the log ended at first; what it replaced is gone."""
    service, client = filled(open_from=5)
    view_of(service, horizon=18)

    with client.reader("t", compacted=True, isolation="read_committed") as reader:
        assert [record.offset for _, record in reader] == [*range(18)]


def test_pages_are_the_same_records_in_lists():
    _, client = filled(partitions=2)

    with client.reader("t", max_bytes=1) as reader:
        pages = list(reader.pages())

    assert all(len(records) == 5 for _, records in pages)
    assert sorted((partition, record.offset) for partition, records in pages for record in records) == [
        (partition, offset) for partition in range(2) for offset in range(20)
    ]


def test_positions_say_where_to_go_on_and_another_reader_does():
    _, client = filled()
    with client.reader("t") as reader:
        for _, record in reader:
            if record.offset == 7:
                break
        assert reader.positions == {0: 8}

    with client.reader("t", start=reader.positions) as another:
        assert [record.offset for _, record in another] == list(range(8, 20))


def test_a_reader_that_was_left_in_the_middle_of_a_page_goes_on_there():
    _, client = filled()
    with client.reader("t") as reader:
        first = [record.offset for (_, record), _ in zip(reader, range(3), strict=False)]
        taken = reader.positions[0]
        rest = [record.offset for _, record in reader]

    assert first == [0, 1, 2]
    assert rest == list(range(taken, 20))


def test_pages_go_on_where_iterating_was_left():
    _, client = filled()
    with client.reader("t", max_bytes=1) as reader:
        next(iter(reader))
        rest = [record.offset for _, records in reader.pages() for record in records]

    assert rest == list(range(1, 20))


def test_a_reader_that_does_not_follow_ends_where_the_log_ended_when_it_began():
    service, client = filled()
    with client.reader("t") as reader:
        for _, record in reader:
            if record.offset < 100:
                # One is appended for each that is read: reading to the present end would never finish.
                client.produce("t", 0, [Record(b"later")])

    assert record.offset < 21
    assert len(service.stored(0)) > 30


def test_a_follower_sees_what_comes_later(monkeypatch):
    monkeypatch.setattr(prefetch, "_PAUSE_MS", 1)
    _, client = filled()
    with client.reader("t", start="latest", follow=True) as reader:
        client.produce("t", 0, [Record(b"later")])
        assert next(iter(reader))[1].value == b"later"
        client.produce("t", 0, [Record(b"and later")])
        assert next(iter(reader))[1].value == b"and later"


def test_a_follower_of_an_older_service_holds_long_reads_and_short_ones_where_partitions_share_a_thread(monkeypatch):
    monkeypatch.setattr(prefetch, "THREADS_MAX", 2)
    waits = {}
    for partitions in (1, 2, 3):
        service, client = filled(partitions=partitions, batches=1)
        service.scripts["pollRecords"] = lambda _, __: refused(errors.NotFoundError("no such route"))
        with client.reader("t", follow=True) as reader:
            next(iter(reader))
        waits[partitions] = {int(one["wait_ms"]) for one in service.values("readRecords")}

    assert waits == {1: {10_000}, 2: {10_000}, 3: {500}}


@pytest.mark.parametrize("refusal", [errors.NotFoundError("no such route"), errors.NotAuthorizedError("no")])
def test_a_follower_without_polls_goes_on_by_plain_reads_and_says_so_once(refusal, caplog):
    service, client = filled(partitions=2, batches=1)
    service.scripts["pollRecords"] = lambda _, __: refused(refusal)
    with client.reader("t", follow=True) as reader:
        each = iter(reader)
        found = [next(each)[1].value for _ in range(10)]
        give(service, 1, b"later")
        assert next(each)[1].value == b"later"
    assert sorted(found) == sorted([b"%d" % n for n in range(5)] * 2)
    assert len(service.values("pollRecords")) == 1
    [said] = [one for one in caplog.records if "no poll of many partitions" in one.getMessage()]
    assert refusal.code in said.getMessage()


def test_a_follower_asks_for_all_partitions_by_one_request_and_a_reader_that_ends_by_plain_reads():
    service, client = filled(partitions=3, batches=1)
    with client.reader("t", follow=True) as reader:
        each = iter(reader)
        for _ in range(15):
            next(each)
    topic_id = service.outside.topic("t").topic_id
    assert not service.values("readRecords")
    first = service.values("pollRecords")[0]
    assert first["positions"] == [
        {"topic": "t", "partition": number, "offset": 0, "topic_id": topic_id} for number in range(3)
    ]
    asked = len(service.values("pollRecords"))
    with client.reader("t") as reader:
        assert len(list(reader)) == 15
    assert len(service.values("pollRecords")) == asked


@pytest.mark.parametrize("partitions", [None, [0]])
def test_a_follower_never_reads_on_in_a_topic_that_was_created_again(partitions):
    """Also where its first answer told it the topic's id, and where the program asks again."""
    service, client = filled(batches=1)
    with client.reader("t", partitions, follow=True) as reader:
        each = iter(reader)
        for _ in range(5):
            next(each)
        service.outside.delete_topic("t")
        service.outside.create_topic("t")
        service.outside.produce("t", 0, [Record(b"of another life") for _ in range(9)])
        with pytest.raises((errors.UnknownTopicIdError, errors.UnknownTopicOrPartitionError)):
            list(reader)  # its poll may have come when there was no topic of the name
        for _ in range(2):
            with pytest.raises(errors.UnknownTopicIdError):
                list(reader)


@pytest.mark.parametrize(
    ("is_following", "took_s", "position", "pauses"),
    [
        (True, 0.0, 5, [1.0]),
        (True, 4.9, 5, [1.0]),
        (True, 5.0, 5, []),  # held by the service for long enough
        (True, 0.0, 6, []),  # not empty, or something was passed over
        (False, 0.0, 5, []),
    ],
)
def test_a_poll_that_the_service_did_not_hold_is_not_followed_by_another_at_once(
    monkeypatch, is_following, took_s, position, pauses
):
    clock, waited = [0.0], []

    def fetch(partition, offset, wait_ms):
        clock[0] += took_s
        return Page([], position, Bounds(0, 6, 6))

    made = prefetch.Fetching(fetch, 1, is_following=is_following)
    monkeypatch.setattr(prefetch, "monotonic", lambda: clock[0])
    monkeypatch.setattr(made._closed, "wait", waited.append)
    made.start([(0, 5)])

    assert made.next()[2].position == position
    made.close()
    made.threads[0].join(PATIENCE_S)
    assert waited == pauses


def test_records_that_were_trimmed_under_a_reader_are_an_error_not_a_gap():
    service, client = filled()
    with client.reader("t", start=2) as reader:
        service.outside.trim("t", 0, 10)
        with pytest.raises(errors.OffsetOutOfRangeError) as caught:
            list(reader.pages())
        with pytest.raises(errors.OffsetOutOfRangeError):  # never taken for the end
            list(reader.pages())

    assert caught.value.log_start_offset == 10


def test_a_page_that_is_no_batches_is_a_corrupt_log():
    service, client = filled()

    def corrupts(sent, carry_out):
        answer = carry_out()
        if sent.value["offset"] != "5":
            return answer
        torn = answer.content[:8] + struct.pack(">i", 2**30) + answer.content[12:]  # a length that does not fit
        return httpx.Response(200, content=torn, headers=answer.headers)

    service.scripts["readRecords"] = corrupts
    with client.reader("t", max_bytes=1) as reader, pytest.raises(errors.CorruptLogError, match="start=5"):
        list(reader.pages())


def test_a_fault_of_the_client_itself_reaches_the_iteration_instead_of_hanging_it(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    service, client = filled()

    def breaks(*_):
        raise ZeroDivisionError

    service.scripts["readRecords"] = breaks
    with client.reader("t") as reader, pytest.raises(ZeroDivisionError):
        next(iter(reader))
    reader._fetching.threads[0].join(PATIENCE_S)


@pytest.mark.parametrize(
    ("partitions", "asked"),
    [
        (None, [(0, 100), (100, 100), (200, 100)]),
        ([5], [(5, 1)]),
        ([7, 5], [(5, 3)]),
        ([0, 249, 3], [(0, 100), (249, 1)]),
        ([], []),
    ],
)
def test_a_topics_offsets_are_asked_for_a_hundred_at_once(partitions, asked):
    service = Wire(partitions=250)

    found = service.client().topic_offsets("t", partitions)

    assert list(found) == (list(range(250)) if partitions is None else sorted(partitions))
    spans = [(one["start_partition"], one["limit"]) for one in service.values("listOffsets")]
    assert [(int(start), int(limit)) for start, limit in spans] == asked


@pytest.mark.parametrize("partitions", [[3], [0, 7], [-1], [2, 500]])
def test_the_offsets_of_a_partition_that_is_not_there_are_an_error(partitions):
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        Wire(partitions=3).client().topic_offsets("t", partitions)


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_reader_of_many_partitions_finds_its_start_by_few_requests(start):
    service = Wire(partitions=120)
    with service.client().reader("t", start=start) as reader:
        assert reader.positions == dict.fromkeys(range(120), 0)
        assert service.count("listOffsets") == 2


@pytest.mark.parametrize("what", ["__iter__", "pages"])
@pytest.mark.parametrize("is_kept", [True, False])
def test_a_follower_left_by_break_leaves_no_threads_and_can_be_iterated_again(what, is_kept):
    before = set(threading.enumerate())
    _, client = filled(partitions=2)
    reader = client.reader("t", follow=True, max_bytes=1) if is_kept else None

    shown = []
    for _ in range(3):
        for partition, record in getattr(reader or client.reader("t", follow=True, max_bytes=1), what)():
            shown.append((partition, record.offset if what == "__iter__" else record[0].offset))
            break
        wait_until(lambda: set(threading.enumerate()) <= before)

    if is_kept:
        assert len(set(shown)) == 3  # each once
    reader = client.reader("t", follow=True, max_bytes=1)
    del reader
    assert set(threading.enumerate()) <= before


def test_a_closed_reader_raises_instead_of_waiting_for_ever():
    _, client = filled()
    with client.reader("t", follow=True) as reader:
        next(iter(reader))
    for _ in reader.pages():  # what was fetched before
        break
    with pytest.raises(RuntimeError, match="closed"):
        list(reader.pages())


def give(service, partition, value):
    service.client().produce("t", partition, [Record(value)])


def following(partitions=2, **options):
    """Return a service, its clock, which the test moves, and a reader that follows the topic."""
    service, clock = Wire(partitions=partitions), FakeRuntime()
    for partition in range(partitions):
        give(service, partition, b"before")
    return service, clock, service.client(clock).reader("t", follow=True, max_delay_ms=100, **options)


@pytest.fixture
def quick_polls(monkeypatch):
    """Let polls that the service does not hold follow each other soon."""
    monkeypatch.setattr(prefetch, "_PAUSE_MS", 1)
    monkeypatch.setattr(followers, "_UNHELD_PAUSE_MS", 0)


@pytest.mark.parametrize("start", ["latest", 1, {0: 1, 1: 1}])
@pytest.mark.usefixtures("quick_polls")
def test_a_follower_with_any_start_reads_added_partitions_from_their_beginning(start):
    service, clock, reader = following(start=start)
    with reader:
        service.grow(20)  # more than there are threads
        for partition in range(2, 20):
            give(service, partition, b"%d" % partition)
        clock.pass_ms(LOOK_MS)
        each = iter(reader)
        found = [next(each) for _ in range(18)]
        assert sorted((n, record.offset, record.value) for n, record in found) == [
            (n, 0, b"%d" % n) for n in range(2, 20)
        ]
        give(service, 0, b"and the others, too")
        assert next(each)[0] == 0
        assert reader.positions[19] == 1
        assert len(reader._fetching.threads) == 1
    assert service.looks == 2


@pytest.mark.usefixtures("quick_polls")
def test_a_follower_reads_an_added_partition_from_its_log_start():
    service, clock, reader = following(start="latest")
    with reader:
        service.grow(3)
        give(service, 2, b"trimmed")
        give(service, 2, b"kept")
        service.outside.trim("t", 2, 1)
        clock.pass_ms(LOOK_MS)
        assert next(iter(reader))[1].value == b"kept"


@pytest.mark.usefixtures("quick_polls")
@pytest.mark.parametrize("refusal", [errors.StoreUnavailableError("away"), errors.NotAuthorizedError("no")])
def test_a_look_whose_start_was_not_answered_is_made_again(refusal):
    service, clock, reader = following(start="latest")
    service.faults["listOffsets"] = [answers(refusal)]
    with reader:
        service.grow(3)
        give(service, 2, b"x")
        reader._fetching.go_on()
        clock.pass_ms(LOOK_MS)
        wait_until(lambda: not service.faults["listOffsets"])
        clock.pass_ms(LOOK_MS)
        assert next(iter(reader))[1].value == b"x"


def test_a_reader_of_partitions_by_name_and_one_that_ends_read_no_others():
    client = Wire(partitions=2).client()
    for options in ({"partitions": [0], "follow": True}, {"follow": False}):
        with client.reader("t", **options) as reader:
            assert reader._new is None


@pytest.mark.usefixtures("quick_polls")
def test_a_reader_that_is_closed_or_dropped_looks_no_more():
    for end in (lambda reader: reader.close(), lambda reader: None):
        service, _, reader = following()
        reader._fetching.go_on()
        thread = reader._new._watch._thread
        end(reader)
        reader._fetching.close()
        for one in reader._fetching.threads:
            one.join(PATIENCE_S)
        del reader
        gc.collect()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert service.looks == 1


def starts_by(monkeypatch, before):
    """Call ``before`` in the place of each start of a thread of ours, with the thread and what starts it."""
    start = threading.Thread.start
    is_ours = "fenceline-".startswith
    monkeypatch.setattr(
        threading.Thread,
        "start",
        lambda thread: before(thread, lambda: start(thread)) if is_ours(thread.name[:10]) else start(thread),
    )


def test_a_partition_that_is_added_while_threads_end_and_begin_costs_none_of_them(monkeypatch):
    """One that began for threads that were ended does not count among the new ones."""
    service = Wire(partitions=2)
    client = service.client()
    fetching = prefetch.Fetching(lambda p, at, wait_ms: client.read_batches("t", p, at), 1, is_following=True)
    fetching.go_on()
    adding, met = threading.Event(), threading.Event()

    def before(_, start):
        if threading.current_thread() is adds:
            adding.set()
            met.wait(STALL_S)
        elif not met.is_set():  # the first of the new threads
            met.set()
            adds.join(PATIENCE_S)
        start()

    adds = threading.Thread(target=fetching.add, args=(1, 0))
    starts_by(monkeypatch, before)
    adds.start()
    assert adding.wait(PATIENCE_S)
    fetching.pause()
    fetching.go_on()
    adds.join()
    mine = [one for one in fetching.threads if one._args == (fetching._closed,) and one.is_alive()]
    assert len(mine) == 2
    fetching.close()


def test_a_reader_whose_thread_cannot_start_can_be_closed(monkeypatch):
    _, client = filled()
    reader = client.reader("t")

    def refuses(thread, start):
        raise RuntimeError("can't start new thread")

    starts_by(monkeypatch, refuses)
    with pytest.raises(RuntimeError, match="can't start"):
        next(reader.pages())
    reader.close()


def test_positions_older_than_an_added_partition_are_a_start():
    service = Wire(partitions=3)
    for partition in range(3):
        give(service, partition, b"%d" % partition)
    with service.client().reader("t", start={0: 1, 1: 0}) as reader:
        assert sorted(record.value for _, record in reader) == [b"1", b"2"]


@pytest.mark.usefixtures("quick_polls")
def test_a_reader_under_a_session_reads_an_added_partition_once_the_session_owns_it():
    service, clock = Wire(partitions=1), FakeRuntime()
    another, session_id = (service.outside.create_session().session_id for _ in range(2))
    with service.client(clock).reader("t", follow=True, group="g", session_id=session_id) as reader:
        service.grow(3)
        service.outside.take(session_id, {"t/0": None, "t/2": None}, group="g")
        service.outside.take(another, {"t/1": None}, group="g")
        give(service, 1, b"of another")
        give(service, 2, b"own")
        clock.pass_ms(LOOK_MS)
        each = iter(reader)
        assert next(each)[1].value == b"own"
        service.outside.take(session_id, {"t/1": 1}, group="g")
        clock.pass_ms(LOOK_MS)
        assert next(each)[1].value == b"of another"


def added_table(config, answer):
    """Return a reader that follows a table, whose partition 1 was added and is answered by ``answer``."""
    service, clock = Wire(partitions=1, config=config), FakeRuntime()
    reader = service.client(clock).reader("t", follow=True, compacted=True)
    rest = {"headers": [], "topic_epoch": -1, "value": None, "encoding": "base64"}
    view = {"encoding": "base64", "compaction_horizon": 0, "deletes_to": 0}
    bounds = {"log_start_offset": 0, "next_offset": 0, "last_stable_offset": 0}

    def read(sent, _):
        rows = answer(sent.value) if sent.partition == 1 else []
        if isinstance(rows, errors.FencelineError):
            return refused(rows)
        records = [{**rest, **row, "key": b64encode(b"k").decode()} for row in rows]
        offset = int(sent.value["offset"])
        position = records[-1]["offset"] + 1 if records else offset
        return httpx.Response(200, json={"records": records, "position": position, **view, **bounds})

    service.scripts["readRecords"] = read
    service.grow(2)
    clock.pass_ms(LOOK_MS)
    return reader


@pytest.mark.usefixtures("quick_polls")
def test_a_follower_of_a_table_by_timestamp_leaves_out_what_loses_in_added_partitions_too():
    def answer(params):
        at = int(params["offset"])
        rows = [{"offset": n, "timestamp": 9 - n, "origin": "a"} for n in range(2)] if at == 0 else []
        return rows or [{"offset": at, "timestamp": 10, "origin": "a"}]

    with added_table(BY_TIMESTAMP, answer) as reader:
        each = iter(reader)
        assert [next(each)[1].offset for _ in range(2)] == [0, 2]


@pytest.mark.usefixtures("quick_polls")
def test_a_follower_of_a_table_begins_an_added_partition_anew_at_its_beginning():
    def answer(params):
        if params["offset"] == "1":
            return errors.ViewMovedError("it moved", compaction_horizon=1, deletes_to=2)
        return [{"offset": 0, "timestamp": 1}]

    with added_table({}, answer) as reader:
        each = iter(reader)
        assert [next(each)[1].offset for _ in range(2)] == [0, 0]
