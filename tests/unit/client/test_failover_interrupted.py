"""A subscriber of several regions whose call fails, or is ended by a signal: no record is acknowledged unshown."""

import inspect
import sys
import threading
from collections import Counter
from contextlib import suppress
from itertools import chain

import httpx
import pytest

from fenceline import errors, subscribe_with_failover
from fenceline.client import failover, prefetch, region_reader
from tests.support.patience import wait_until
from tests.unit.client.failover_regions import regions


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(region_reader, "LOOK_MS", 1)


@pytest.fixture
def world():
    with regions(*"ab") as made:
        yield made


def subscriber_of(*regions, **options):
    return subscribe_with_failover("t", "s", regions=[region.connect() for region in regions], max_records=2, **options)


def read_to_the_end(subscriber):
    """Iterate again after each interruption, acknowledge each record, and return the values that were shown."""
    shown = []
    while True:
        try:
            for partition, record in subscriber:
                shown.append(record.value.decode())
                subscriber.acknowledge(partition, record)
            return shown
        except KeyboardInterrupt:
            continue


def test_advice_to_another_server_is_advice_to_a_region_that_does_not_answer(world):
    a, b = world
    a.write(*(f"a1:{n}" for n in range(1, 9)))
    a.advise("b")
    b.fail("getHealth", lambda carry_out: httpx.Response(200, json={"status": "ok"}))
    with subscriber_of(a, b, follow=False) as subscriber:
        assert read_to_the_end(subscriber) == [f"a1:{n}" for n in range(1, 9)]
    with pytest.raises(errors.NotFoundError, match="no fenceline service"):
        b.connect().region()


def test_a_page_is_read_again_if_the_look_for_the_advised_region_was_interrupted(world):
    a, b = world
    a.write(*(f"a1:{n}" for n in range(1, 9)))
    a.advise("b")
    probes = []

    def interrupt(carry_out):
        probes.append(carry_out)
        raise KeyboardInterrupt if len(probes) < 3 else httpx.ConnectError("connection refused")

    b.fault = interrupt
    with subscriber_of(a, b, follow=False) as subscriber:
        assert read_to_the_end(subscriber) == [f"a1:{n}" for n in range(1, 9)]
        assert (subscriber.region, subscriber.moves) == ("a", 0)
    assert len(probes) > 2


@pytest.mark.parametrize("what", ["__iter__", "pages"])
def test_records_are_read_again_if_the_iteration_was_interrupted_before_it_yielded_them(world, what, monkeypatch):
    a, b = world
    a.write(*(f"a1:{n}" for n in range(1, 9)))
    noted = []

    def interrupt(subscriber, partition, record):
        noted.append(record)
        if len(noted) in (2, 6):
            raise KeyboardInterrupt

    monkeypatch.setattr(failover.FailoverSubscriber, "_note_given", interrupt)
    shown = []
    with subscriber_of(a, b, follow=False) as subscriber:
        while len(noted) < 10:
            with suppress(KeyboardInterrupt):
                for partition, given in getattr(subscriber, what)():
                    records = [given] if what == "__iter__" else given
                    shown += [record.value.decode() for record in records]
                    subscriber.acknowledge(partition, records[-1])
        assert (subscriber.region, subscriber.moves) == ("a", 0)
    assert shown == [f"a1:{n}" for n in range(1, 9)]


@pytest.mark.parametrize("by", ["move_to", "advice"])
def test_a_subscriber_that_is_closed_while_it_moves_reads_in_no_region(world, by):
    a, b = world
    a.write("a1:1", "a1:2")
    before = set(threading.enumerate())
    subscriber = subscriber_of(a, b)

    def close(carry_out):
        subscriber.close()  # as another thread does
        b.scripts.clear()
        return carry_out()

    each = iter(subscriber)
    next(each)
    b.fail("getTopic", close)
    if by == "move_to":
        subscriber.move_to("b")
    else:
        a.advise("b")
        a.write(*(f"a1:{n}" for n in range(3, 9)))
    for _ in each:
        pass
    assert not b.scripts
    wait_until(lambda: set(threading.enumerate()) <= before)


def yields_of(module):
    return {n for n, line in enumerate(inspect.getsource(module).splitlines(), 1) if " yield " in line}


RUNS = (2, 5)


class Interrupter:
    """Raises in this thread at these runs of each statement that a page comes through."""

    def __init__(self):
        self._runs = Counter()
        # Between the line before a yield and the yield there is no call, so Python handles no signal there.
        self._yields = {module.__file__: yields_of(module) for module in (failover, region_reader, prefetch)}
        self._left = 200_000  # lines, until it counts as stuck

    def interrupted(self):
        return {code.co_name for code, _ in self._runs}

    def resume(self):
        sys.settrace(self._trace)

    def _trace(self, frame, event, _):
        code, line = frame.f_code, frame.f_lineno
        yields = self._yields.get(code.co_filename)
        if yields is None:
            return None
        self._left -= 1
        assert self._left, "the subscriber waits for a page for which it did not ask"
        if event == "line" and line not in yields:
            self._runs[code, line] += 1
            if self._runs[code, line] in RUNS:
                raise KeyboardInterrupt
        return self._trace


@pytest.mark.slow
def test_an_interruption_at_any_statement_hides_no_record(world):
    a, b = world
    numbers = range(1, 40)
    a.write(*chain.from_iterable((f"a1:{n}", f"b1:{n}") for n in numbers))
    b.write(*chain.from_iterable((f"b1:{n}", f"a1:{n}") for n in numbers))
    interrupter = Interrupter()
    shown = set()
    given = None
    with subscriber_of(a, b, follow=False) as subscriber:
        while True:
            try:
                if given is not None:
                    subscriber.acknowledge(*given)
                interrupter.resume()
                for given in subscriber:  # acknowledged again after an interruption
                    partition, record = given
                    shown.add(record.value.decode())
                    for region in world:
                        assert region.acknowledged() <= shown
                    direct(subscriber, world, record.number)
                    if record.number % 3:
                        subscriber.acknowledge(partition, record)
                    else:
                        subscriber.acknowledge_individually(partition, [record])
            except KeyboardInterrupt:
                continue
            finally:
                sys.settrace(None)
            break
        assert subscriber.moves > 5
    assert shown == set(a.logs[0])
    assert interrupter.interrupted() >= {"_next_page", "_new_of", "_page", "_arrive", "_follows", "_move", "__iter__"}


def direct(subscriber, regions, number):
    """Now and then let it be advised to go to a region, or tell it to."""
    if number % 5 == 0:
        for region in regions:
            region.advise("ab"[number // 5 % 2])
    if number % 7 == 0:
        subscriber.move_to("ab"[number // 7 % 2])
