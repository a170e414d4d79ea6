"""A subscriber of several regions: where it goes and when, what it shows again, and what it drops."""

import dataclasses
import threading
from itertools import pairwise

import httpx
import pytest

from fenceline import errors, subscribe_with_failover
from fenceline.client import failover, region_reader
from fenceline.client.topic_watch import LOOK_MS
from tests.support.patience import wait_until
from tests.support.wire import answers, loses_the_answer, refuses_the_connection
from tests.unit.client.failover_regions import regions


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(region_reader, "LOOK_MS", 1)


@pytest.fixture
def world():
    with regions(*"abc") as made:
        yield made


def subscriber_of(*regions, **options):
    return subscribe_with_failover("t", "s", regions=[region.connect() for region in regions], **options)


def take(each, count):
    """Return the identities of the next records."""
    return [next(each)[1].value.decode() for _ in range(count)]


def until(each, region):
    """Return the records before the first one of ``region``, and that one."""
    before = []
    for _, record in each:
        if record.region == region:
            return before, record
        before.append(record)
    raise AssertionError(region)


unavailable = answers(errors.StoreUnavailableError("the store does not answer"))


def another_server(carry_out):
    return httpx.Response(404, text="<html>")


def test_it_reads_in_the_first_region_and_creates_a_replicated_subscription_at_earliest(world):
    a, b, _ = world
    a.write("a1:1", "b1:1", "-", "a1:2")

    with subscriber_of(a, b, follow=False) as subscriber:
        found = [(partition, one.value, one.region, one.offset) for partition, one in subscriber]

    assert found == [(0, b"a1:1", "a", 0), (0, b"b1:1", "a", 1), (0, b"a1:2", "a", 3)]
    assert a.values("putSubscription") == [{"initial_position": "earliest", "replicate_subscription_state": True}]
    assert b.sent == []
    assert (subscriber.region, subscriber.moves, subscriber.repeated, subscriber.dropped) == ("a", 0, 0, 0)


def hangs(region):
    return region.hang


@pytest.mark.parametrize(
    "fault", [hangs, lambda region: refuses_the_connection, lambda region: unavailable, lambda region: another_server]
)
def test_it_goes_to_the_next_region_after_10_s_of_silence_and_drops_acknowledged_records(world, fault):
    a, b, _ = world
    a.write("a1:1", "a1:2", "b1:1")
    b.write("b1:1", "a1:1", "a1:2", "b1:2")
    with subscriber_of(a, b, max_records=3) as subscriber:
        each = iter(subscriber)
        first = [next(each)[1] for _ in range(2)]
        assert subscriber.acknowledge(0, first[1])
        began = a.runtime.monotonic_ms()
        a.fault = fault(a)
        assert take(each, 3) == ["b1:1", "b1:1", "b1:2"]  # the first one in a, whose page it already had

        assert a.runtime.monotonic_ms() - began >= failover.SILENT_MS
        assert (subscriber.region, subscriber.moves) == ("b", 1)
        assert (subscriber.dropped, subscriber.repeated) == (2, 1)
    # What it dropped is acknowledged in b, too.
    assert b.values("acknowledgeRecords") == [{"partition": 0, "individual": [1, 2]}]
    assert b.outside.subscription("t", "s").replicate_subscription_state


def test_a_region_that_was_silent_for_less_is_not_left(world):
    a, b, _ = world
    a.write("a1:1")
    clock = a.runtime
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        take(each, 1)
        silent_until = clock.monotonic_ms() + failover.SILENT_MS - 2_500

        def silence(carry_out):
            if clock.monotonic_ms() < silent_until:
                raise httpx.ConnectError("x")
            a.fault = None
            a.write("a1:2")
            return carry_out()

        a.fault = silence
        assert take(each, 1) == ["a1:2"]
    assert (subscriber.region, b.sent) == ("a", [])


@pytest.mark.parametrize("error", [errors.UnknownSubscriptionError, errors.NotAuthorizedError, errors.CorruptLogError])
def test_an_error_that_is_answered_is_raised_and_is_no_silence(world, error):
    a, b, _ = world
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        a.fail("readSubscription", answers(error("so it is")))
        for _ in range(2):
            with pytest.raises(error):
                next(each)
            each = iter(subscriber)
        a.scripts.clear()
        a.write("a1:1")
        assert take(each, 1) == ["a1:1"]
    assert b.sent == []


def test_a_caller_that_was_away_does_not_take_its_region_for_silent(world):
    """A program that was stopped for an hour finds requests that began an hour ago."""
    a, clock = world[0], world[0].runtime
    a.fail("readSubscription", a.hang)
    wanted = region_reader.Wanted("t", "s", None, True, "read_uncommitted", 10, failover.SILENT_MS)
    reading = region_reader.enter(a.connect(), wanted, failover.SILENT_MS)
    wait_until(lambda: a.count("readSubscription") and clock.step_ms)
    clock.step_ms = 0
    assert reading.next_page() is None
    clock.pass_ms(3_600_000)
    for _ in range(10):
        assert reading.next_page() is None
        clock.pass_ms(1_000)
    with pytest.raises(errors.StoreUnavailableError, match="region=a"):
        reading.next_page()
    reading.close()


def test_where_no_region_answers_that_is_raised_and_the_next_call_tries_again(world):
    a, b, _ = world
    a.write("a1:1", "a1:2")
    b.write("a1:1", "a1:2")
    with subscriber_of(a, b, max_records=1) as subscriber:
        each = iter(subscriber)
        _, first = next(each)
        assert subscriber.acknowledge(0, first)
        take(each, 1)
        a.refuse_connections()
        b.refuse_connections()
        with pytest.raises(errors.StoreUnavailableError):
            next(each)
        assert subscriber.region is None
        assert not subscriber.acknowledge_individually(0, [dataclasses.replace(first, offset=1, number=2)])
        b.fault = None
        assert take(iter(subscriber), 1) == ["a1:2"]
    assert (subscriber.region, subscriber.dropped, subscriber.repeated) == ("b", 1, 1)


def test_a_subscriber_without_a_region_that_answers_is_not_made(world):
    a, b, _ = world
    a.refuse_connections()
    b.outside.delete_topic("t")
    with pytest.raises(errors.UnknownTopicOrPartitionError):
        subscriber_of(a, b)
    b.refuse_connections()
    with pytest.raises(errors.StoreUnavailableError):
        subscriber_of(a, b)
    with pytest.raises(ValueError, match="no region"):
        subscriber_of()
    with pytest.raises(ValueError, match="silent_ms"):
        subscriber_of(a, silent_ms=0)


def test_it_begins_in_the_next_region_where_the_first_is_silent_and_does_not_go_back_by_itself(world):
    a, b, _ = world
    a.refuse_connections()
    b.write("b1:1", "b1:2")
    with subscriber_of(a, b, max_records=1) as subscriber:
        each = iter(subscriber)
        assert take(each, 1) == ["b1:1"]
        a.fault = None
        assert take(each, 1) == ["b1:2"]
    assert (subscriber.region, subscriber.moves) == ("b", 0)


def test_it_goes_at_once_where_active_region_says_and_back_by_it(world):
    a, b, c = world
    a.write("a1:1", "a1:2")
    c.write("a1:1", "a1:2", "c1:1")
    with subscriber_of(a, b, c, max_records=1) as subscriber:
        each = iter(subscriber)
        _, first = next(each)
        assert subscriber.acknowledge(0, first)
        for region in (a, c):
            region.advise("c")
        began = a.runtime.monotonic_ms()
        late_in_a, in_c = until(each, "c")  # a page of a may have been fetched before it said so
        assert (in_c.value, subscriber.region, subscriber.dropped) == (b"a1:2", "c", 1)
        assert subscriber.repeated == len(late_in_a)
        assert a.runtime.monotonic_ms() - began < failover.SILENT_MS

        assert subscriber.acknowledge(0, in_c)
        a.write("c1:1")
        for region in (a, c):
            region.advise("a")
        late_in_c, in_a = until(each, "a")
        repeated = len(late_in_a) + len(late_in_c)
        assert (in_a.value, subscriber.moves, subscriber.repeated) == (b"c1:1", 2, repeated)
    assert b.count("putSubscription") == 0


def test_advice_to_a_silent_region_is_tried_ever_more_rarely_and_delays_nothing(world):
    a, b, _ = world
    a.write(*(f"a1:{n}" for n in range(1, 500)))
    a.advise("b")
    tries = []

    def refuse(carry_out):
        tries.append(clock.monotonic_ms())
        raise httpx.ConnectError("connection refused")

    clock, b.fault = a.runtime, refuse
    with subscriber_of(a, b, max_records=1) as subscriber:
        each = iter(subscriber)
        for number in range(1, 100):
            assert take(each, 1) == [f"a1:{number}"]
            clock.pass_ms(4_000)
        pauses = [later - one for one, later in pairwise(tries) if later - one > 5_000]
        assert pauses == sorted(pauses)
        assert 5 <= len(pauses) <= 8
        b.fault = None
        b.write("b1:1")
        while subscriber.region == "a":
            clock.pass_ms(4_000)
            take(each, 1)


def test_regions_that_advise_each_other_do_not_toss_it_about(world):
    a, b, _ = world
    a.write(*(f"a1:{n}" for n in range(1, 50)))
    b.write(*(f"a1:{n}" for n in range(1, 50)))
    a.advise("b")
    b.advise("a")
    with subscriber_of(a, b, max_records=1) as subscriber:
        take(iter(subscriber), 20)
        assert (subscriber.region, subscriber.moves) == ("b", 1)


def test_a_region_that_was_left_as_silent_and_is_still_advised_is_gone_to_once_it_answers(world):
    a, b, _ = world
    a.write("a1:1")
    b.write(*(f"a1:{n}" for n in range(1, 50)))
    for region in (a, b):
        region.advise("a")
    with subscriber_of(a, b, max_records=1) as subscriber:
        each = iter(subscriber)
        take(each, 1)
        a.refuse_connections()
        take(each, 5)
        assert (subscriber.region, subscriber.moves) == ("b", 1)
        a.fault = None
        a.write("a1:2")
        while subscriber.region == "b":
            a.runtime.pass_ms(1_000)
            take(each, 1)
        assert subscriber.moves == 2


def test_it_goes_where_the_caller_says_and_earlier_advice_does_not_take_it_back(world):
    a, b, _ = world
    a.write("a1:1", "a1:2", "a1:3")
    b.write("a1:1", "b1:1", "a1:2", "b1:2")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        _, first = next(each)
        subscriber.acknowledge(0, first)
        b.advise("a")
        subscriber.move_to("b")
        assert take(each, 3) == ["b1:1", "a1:2", "b1:2"]  # the rest of a's page is left to b
        assert (subscriber.region, subscriber.moves, subscriber.repeated) == ("b", 1, 0)
        with pytest.raises(ValueError, match="region=nowhere"):
            subscriber.move_to("nowhere")


def subscriber_moved_to_b(a, b, c):
    """Return one that was in a while all regions advised c, as seen in a."""
    for region in (a, b, c):
        region.write(*(f"a1:{n}" for n in range(1, 50)))
    a.advise("c")
    c.refuse_connections()
    subscriber = subscriber_of(a, b, c, max_records=1)
    take(iter(subscriber), 3)
    c.fault = None
    subscriber.move_to("b")
    return subscriber


@pytest.mark.parametrize("seen_in_b", [("c",), ("a", "c")])  # b may learn later that c is advised
def test_earlier_advice_for_a_third_region_does_not_overrule_the_caller(world, seen_in_b):
    a, b, c = world
    with subscriber_moved_to_b(a, b, c) as subscriber:
        for region in seen_in_b:
            b.advise(region)
            take(iter(subscriber), 5)
            assert (subscriber.region, subscriber.moves) == ("b", 1)


@pytest.mark.parametrize("seen_in_b", [("c", "a"), ("c", None, "c"), (None, "a"), (None, "c")])
def test_advice_that_changes_after_the_caller_spoke_is_followed(world, seen_in_b):
    a, b, c = world
    with subscriber_moved_to_b(a, b, c) as subscriber:
        *before, last = seen_in_b
        for region in before:
            b.advise(region)
            take(iter(subscriber), 3)
            assert subscriber.region == "b"
        for region in (a, b, c):
            region.advise(last)
        until(iter(subscriber), last)


def test_earlier_advice_holds_if_the_region_of_the_caller_is_silent(world):
    a, b, c = world
    with subscriber_moved_to_b(a, b, c) as subscriber:
        b.refuse_connections()
        c.advise("c")
        passed = []
        while subscriber.region != "c" and len(passed) < 20:
            a.runtime.pass_ms(5_000)
            passed += take(iter(subscriber), 1)
        assert subscriber.region == "c"


def test_where_the_region_that_the_caller_says_is_silent_it_goes_on_where_it_was(world):
    a, b, c = world
    a.write("a1:1", "a1:2")
    with subscriber_of(a, b, c, max_records=1) as subscriber:
        each = iter(subscriber)
        take(each, 1)
        subscriber.move_to("b")
        b.refuse_connections()
        assert take(each, 1) == ["a1:1"]
        assert subscriber.region == "a"
    assert c.sent == []


def test_an_acknowledgement_without_an_answer_goes_nowhere_else_and_its_record_comes_again(world):
    a, b, _ = world
    a.write("a1:1", "a1:2")
    b.write("a1:1", "a1:2")
    with subscriber_of(a, b, max_records=1) as subscriber:
        each = iter(subscriber)
        _, first = next(each)
        a.fail("acknowledgeRecords", loses_the_answer)
        assert not subscriber.acknowledge(0, first)
        tries = a.count("acknowledgeRecords")
        assert not subscriber.acknowledge_individually(0, [first])  # without another try: the region is silent
        assert a.count("acknowledgeRecords") == tries
        _, again = next(each)
        assert (again.value, again.region, subscriber.repeated, subscriber.dropped) == (b"a1:1", "b", 1, 0)
        assert not subscriber.acknowledge(0, first)  # of the region that it left
        assert b.count("acknowledgeRecords") == 0
        assert subscriber.acknowledge(0, again)
        assert subscriber.acknowledge(0, first)  # the same record, which is acknowledged now
    assert b.values("acknowledgeRecords") == [{"partition": 0, "cumulative": 0}]
    assert a.acknowledged() == {"a1:1"}  # carried out: the answer was lost


def test_a_refused_acknowledgement_is_raised_and_acknowledges_nothing(world):
    a, b, _ = world
    a.write("a1:1")
    b.write("a1:1")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        _, first = next(each)
        a.fail("acknowledgeRecords", answers(errors.UnknownSubscriptionError("deleted")))
        with pytest.raises(errors.UnknownSubscriptionError):
            subscriber.acknowledge(0, first)
        subscriber.move_to("b")
        assert take(each, 1) == ["a1:1"]


def test_a_refused_acknowledgement_of_what_was_dropped_hides_no_record(world):
    """A page that was fetched and not shown would be passed by the next cumulative acknowledgement."""
    a, b, _ = world
    a.write("a1:1")
    b.write("a1:1", "a1:2", "a1:3")
    with subscriber_of(a, b, max_records=2) as subscriber:
        each = iter(subscriber)
        subscriber.acknowledge(*next(each))
        b.fail("acknowledgeRecords", answers(errors.OwnerFencedError("owned by another")))
        subscriber.move_to("b")
        assert take(each, 1) == ["a1:2"]
        with pytest.raises(errors.OwnerFencedError):
            next(each)
        b.scripts.clear()
        assert take(iter(subscriber), 1) == ["a1:3"]
    assert b.acknowledged() == {"a1:1"}


def test_records_dropped_in_an_abandoned_region_are_not_acknowledged_in_another(world):
    a, b, _ = world
    a.write("a1:1", "a1:2")
    b.write("b1:1", "a1:1", "a1:2")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        subscriber.acknowledge(*next(each))
        subscriber.move_to("b")
        take(each, 1)
        subscriber.move_to("a")
        assert take(each, 1) == ["a1:2"]
    assert (a.acknowledged(), b.acknowledged()) == ({"a1:1"}, set())


def test_offsets_of_an_earlier_stay_are_not_acknowledged_even_in_the_same_region(world):
    """The region may have been restored since, and have other records there."""
    a, b, _ = world
    a.write("a1:1", "a1:2")
    b.write("b1:1")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        _, early = next(each)
        subscriber.move_to("b")
        take(each, 1)
        a.restore()
        a.write("b1:2", "a2:1")
        subscriber.move_to("a")
        assert take(each, 1) == ["b1:2"]
        assert not subscriber.acknowledge(0, early)
        assert not subscriber.acknowledge_individually(0, [early])
    assert a.acknowledged() == set()


def test_only_the_records_that_were_named_are_known_as_acknowledged(world):
    """Another life has the same numbers; another partition, too."""
    a, b, _ = world
    for region in (a, b):
        region.grow(2)
    a.write("a1:1", "a1:2", "c1:1", "a1:3")
    b.write("c0:1", "a0:1", "a1:1", "a1:2", "a1:3", "c1:1")
    b.write("a1:1", partition=1)
    with subscriber_of(a, b, max_records=4) as subscriber:
        each = iter(subscriber)
        given = [next(each)[1] for _ in range(4)]
        assert subscriber.acknowledge_individually(0, [given[0], given[3]])
        subscriber.move_to("b")
        found = sorted((partition, one.value) for partition, one in (next(each) for _ in range(5)))
    assert found == [(0, b"a0:1"), (0, b"a1:2"), (0, b"c0:1"), (0, b"c1:1"), (1, b"a1:1")]
    assert (subscriber.dropped, subscriber.repeated) == (2, 2)


def test_pages_go_on_where_iterating_was_left_and_are_left_to_the_next_region_by_a_move(world):
    a, b, _ = world
    a.write(*(f"a1:{n}" for n in range(1, 7)))
    b.write(*(f"a1:{n}" for n in range(1, 7)))
    with subscriber_of(a, b, follow=False, max_records=4) as subscriber:
        each, pages = iter(subscriber), subscriber.pages()
        take(each, 2)
        partition, records = next(pages)
        assert [one.value for one in records] == [b"a1:3", b"a1:4"]
        assert subscriber.acknowledge(partition, records[-1])
        take(each, 1)
        subscriber.move_to("b")
        assert [[one.value for one in records] for _, records in pages] == [[b"a1:5", b"a1:6"]]
    assert (subscriber.repeated, subscriber.dropped) == (1, 4)


def test_a_closed_subscriber_ends_its_iteration(world):
    a, b, _ = world
    a.write("a1:1", "a1:2")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        take(each, 1)
        subscriber.close()
        assert list(each) == []


def test_a_mark_that_moved_past_the_position_is_gone_on_from(world):
    a, b, _ = world
    a.write(*(f"a1:{n}" for n in range(1, 9)))
    with subscriber_of(a, b, follow=False, max_records=2) as subscriber:
        each = iter(subscriber)
        take(each, 1)
        a.outside.acknowledge("t", "s", 0, cumulative=5)  # as an UPDATE moves it
        rest = [one.value for _, one in each]
    assert rest[-2:] == [b"a1:7", b"a1:8"]
    assert len(rest) < 7


def test_a_subscriber_left_by_break_leaves_no_threads_and_can_be_iterated_again(world):
    a, b, _ = world
    a.write(*(f"a1:{n}" for n in range(1, 9)))
    before = set(threading.enumerate())
    subscriber = subscriber_of(a, b)
    shown = []
    for _ in range(3):
        for _, record in subscriber:
            shown.append(record.number)
            break
        wait_until(lambda: set(threading.enumerate()) <= before)
    assert shown == [1, 2, 3]


def test_it_reads_partitions_that_are_added_where_it_is_and_acknowledges_them(world):
    a, b, _ = world
    a.write("a1:1")
    with subscriber_of(a, b) as subscriber:
        each = iter(subscriber)
        assert take(each, 1) == ["a1:1"]
        a.grow(2)
        a.write("a1:1", partition=1)
        a.runtime.pass_ms(LOOK_MS)
        watch = subscriber._reader._new._watch
        with watch._changed:
            watch._changed.notify_all()
        partition, record = next(each)
        assert (partition, record.value) == (1, b"a1:1")
        assert subscriber.acknowledge(partition, record)
    assert a.acknowledged(1) == {"a1:1"}
