"""The end of a program whose producers still have records."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress

import pytest

import fenceline_testing
from fenceline import errors
from fenceline.client import exit as program_exit
from fenceline.client.accumulator import Accumulator, parts_of
from fenceline.client.batch_queue import BatchQueue
from fenceline.client.topic_watch import TopicWatch
from fenceline.model.record import Record
from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S, wait_until
from tests.support.wire import Wire, answers

FOREVER_MS = 3_600_000


@pytest.fixture(autouse=True)
def alone(monkeypatch):
    """Leave the producers of other tests alone."""
    monkeypatch.setattr(program_exit, "_open", set())


def test_records_never_flushed_are_sent_silently_at_exit(capsys):
    services = [Wire(), Wire()]
    producers = [service.client().producer("t", linger_ms=FOREVER_MS) for service in services]
    deliveries = [producer.send(value=b"a") for producer in producers]

    program_exit.flush_all()

    assert [delivery.result(0).offset for delivery in deliveries] == [0, 0]
    assert [service.stored(0) for service in services] == [[b"a"], [b"a"]]
    assert capsys.readouterr().err == ""
    with pytest.raises(RuntimeError, match="closed"):  # it would be lost without a word
        producers[0].send(value=b"late")


def test_one_bound_holds_for_all_producers_and_one_line_counts_what_was_not_acknowledged(capsys, monkeypatch):
    waited = []
    monkeypatch.setattr(program_exit, "wait", lambda outcomes, timeout: waited.append((len(outcomes), timeout)))
    opened = threading.Event()

    def hangs(append):
        assert opened.wait(PATIENCE_S)
        return append()

    services = [Wire(faults={"appendRecords": [hangs]}) for _ in range(3)]
    for service in services:
        producer = service.client().producer("t", linger_ms=FOREVER_MS)
        producer.send(value=b"a")
        producer._queue.seal()
        wait_until(lambda service=service: service.produced)
        producer.send_many([])
        for _ in range(2):
            producer.send(value=b"b")  # behind the one in flight

    program_exit.flush_all()
    opened.set()

    assert waited == [(6, 5.0)]
    printed = capsys.readouterr().err
    assert printed.startswith("fenceline: 9 records could not be sent before the program ended, or no answer came; ")
    assert printed.endswith(": topics=t\n")
    assert printed.count("\n") == 1
    wait_until(lambda: all(service.stored(0) == [b"a"] for service in services))
    program_exit.flush_all()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    "end",
    [
        lambda producer: program_exit._say([producer._at_exit]),
        lambda producer: producer.__exit__(KeyError, None, None),
        lambda producer: producer._queue.drop(),
    ],
)
def test_a_callback_of_a_dropped_record_may_wait_for_a_thread_that_uses_the_producer(end):
    producer = Wire().client().producer("t", linger_ms=FOREVER_MS)
    ended = []

    def ask(_):
        asks = threading.Thread(target=producer._queue.in_flight, daemon=True)
        asks.start()
        asks.join(PATIENCE_S)
        ended.append(not asks.is_alive())

    producer.send(value=b"a").on_done(ask)
    end(producer)
    assert ended == [True]


def test_a_callback_that_ends_the_program_leaves_no_dropped_record_undone():
    producer = Wire().client().producer("t", linger_ms=FOREVER_MS)
    deliveries = []
    for _ in range(2):
        deliveries.append(producer.send(value=b"a"))
        producer._queue.seal()
    deliveries[0].on_done(lambda _: sys.exit(3))
    with pytest.raises(SystemExit):
        producer._queue.drop()
    for one in deliveries:
        with pytest.raises(CancelledError):
            one.result(0)


@pytest.mark.parametrize("splits", [False, True])
def test_the_wait_at_exit_ends_with_what_another_thread_drops(splits, monkeypatch):
    monkeypatch.setattr(program_exit, "FLUSH_S", PATIENCE_S * 10)
    records = Accumulator[int](ThreadRuntime(), linger_ms=0, batch_bytes=1_000, buffer_bytes=1_000)
    batch, _ = records.put(0, [Record(b"a"), Record(b"b")])
    if splits:
        records.queue.take()
    waits = threading.Thread(target=program_exit._wait, args=([batch],), daemon=True)
    waits.start()
    wait_until(lambda: batch.outcome._waiters)
    records.queue.close(drop=True)
    if splits:
        records.queue.split(batch, parts_of(batch, 30))
    waits.join(PATIENCE_S)
    assert not waits.is_alive()


class Interrupt(KeyboardInterrupt):
    """What a program's signal handler raises, in the main thread."""


@pytest.mark.parametrize("of", ["records", "topics", "session"])
def test_an_interrupt_at_any_moment_leaves_no_lock_taken(of):
    """Else the program waits for ever at its end, for the thread that sends."""
    service = Wire()
    with service.client(ThreadRuntime()) as client, client.session() as session:
        watch = TopicWatch(client, service.handle_request, is_paused=True)
        queue = BatchQueue(ThreadRuntime(), bytes_max=1_000)
        work = {"records": queue.seal, "topics": watch.pause, "session": session._held}[of]
        interrupts = []

        def interrupt(number, _frame):
            interrupts.append(number)
            raise Interrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for count in range(100):
                with suppress(Interrupt):
                    signal.setitimer(signal.ITIMER_REAL, 0.0002)
                    while len(interrupts) == count:  # Python swallows one that meets the garbage collector's callbacks
                        work()
        finally:
            signal.signal(signal.SIGALRM, before)
        other = threading.Thread(target=work, daemon=True)
        other.start()
        other.join(PATIENCE_S)
        assert not other.is_alive()


def test_records_that_failed_without_the_callers_knowledge_are_counted_too(capsys):
    service = Wire(faults={"appendRecords": [answers(errors.InvalidTimestampError("no"))]})
    client = service.client()
    producer = client.producer("t", linger_ms=FOREVER_MS)
    for _ in range(3):
        producer.send(value=b"a")
    program_exit.flush_all()
    assert "fenceline: 3 records could not be sent" in (said := capsys.readouterr().err)
    assert said.endswith("topics=t reason=INVALID_TIMESTAMP\n")

    service.faults["appendRecords"] = [answers(errors.InvalidTimestampError("no"))]
    producer = client.producer("t", linger_ms=0)
    with pytest.raises(errors.InvalidTimestampError):
        producer.send(value=b"a").result(60_000)
    program_exit.flush_all()
    assert capsys.readouterr().err == ""  # told by the delivery


def test_nothing_is_sent_of_a_block_that_an_exception_left_nor_of_a_closed_producer(capsys):
    service = Wire()
    with suppress(KeyError), service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        producer.send(value=b"a")
        raise KeyError
    with service.client().producer("t", linger_ms=FOREVER_MS) as producer:
        producer.send(value=b"b")

    assert program_exit._open == set()
    program_exit.flush_all()
    assert service.stored(0) == [b"b"]
    assert capsys.readouterr().err == ""


def test_nothing_of_a_transaction_is_sent_or_ended():
    service = Wire()
    with service.client().transactional_producer("id", linger_ms=FOREVER_MS) as producer:
        txn = producer.transaction()
        txn.__enter__()
        txn.send("t", value=b"a")
        program_exit.flush_all()
        assert service.produced == []
        assert [one.operation for one in service.sent] == ["createProducerId", "getTopic"]
        assert txn.outcome == "open"


def test_another_processs_producers_are_left_alone(monkeypatch):
    service = Wire()
    producer = service.client().producer("t", linger_ms=FOREVER_MS)
    producer.send(value=b"a")
    for watched in program_exit._open:
        watched.made_in = -1
    program_exit.flush_all()
    assert service.produced == []
    producer.flush()


def test_ctrl_c_ends_the_wait_and_the_count_is_printed_all_the_same(capsys, monkeypatch):
    def interrupted(outcomes, timeout):
        raise KeyboardInterrupt

    monkeypatch.setattr(program_exit, "wait", interrupted)
    opened = threading.Event()
    service = Wire(faults={"appendRecords": [lambda append: opened.wait(PATIENCE_S) and append()]})
    service.client().producer("t", linger_ms=FOREVER_MS).send(value=b"a")
    with pytest.raises(KeyboardInterrupt):
        program_exit.flush_all()
    opened.set()
    assert "fenceline: 1 record could not be sent" in capsys.readouterr().err


PROGRAM = """
import sys, fenceline
client = fenceline.Client(sys.argv[1])
producer = client.producer("t", linger_ms=3_600_000)
"""
PROGRAMS = {
    "its end": PROGRAM + "for _ in range(3): producer.send(value=b'x')",
    "an exception": PROGRAM + "for _ in range(3): producer.send(value=b'x')\nraise SystemExit(3)",
    "threads that are no daemons": PROGRAM
    + """
import threading, time
def later():
    threading.main_thread().join()
    for _ in range(3): producer.send(value=b'x')
threading.Thread(target=later).start()
""",
    "a child of multiprocessing": """
import multiprocessing, sys, fenceline, fenceline.client.producer
def work(url):
    producer = fenceline.Client(url).producer("t", linger_ms=3_600_000)
    for _ in range(3): producer.send(value=b'x')
if __name__ == "__main__":
    child = multiprocessing.get_context("fork").Process(target=work, args=sys.argv[1:])
    child.start()
    child.join()
    sys.exit(child.exitcode)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", PROGRAMS)
def test_a_program_that_ends_sends_what_it_never_flushed(how):
    with fenceline_testing.serving() as server:
        server.client.create_topic("t")
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAMS[how], server.url], capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert (ended.returncode, ended.stderr) == (3 if how == "an exception" else 0, "")
        assert len(server.client.read("t", 0, offset=0).records) == 3


@pytest.mark.slow
def test_a_program_whose_service_is_gone_says_how_many_records_could_not_be_sent():
    program = PROGRAM + "for _ in range(3): producer.send(value=b'x')\nclient.close()"
    with fenceline_testing.serving() as server:
        server.client.create_topic("t")
        ended = subprocess.run(
            [sys.executable, "-c", program, server.url], capture_output=True, text=True, timeout=PATIENCE_S
        )
    assert ended.returncode == 0
    assert ended.stderr.startswith("fenceline: 3 records could not be sent before the program ended")
    assert ended.stderr.endswith("topics=t reason=STORE_UNAVAILABLE\n")
    assert ended.stderr.count("\n") == 1
