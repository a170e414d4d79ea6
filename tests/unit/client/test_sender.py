"""The sender of batches and its queue, without a service: what each of its owners relies on."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from fenceline import errors
from fenceline.client.batch_queue import BatchQueue
from fenceline.client.delivery import PendingBatch
from fenceline.client.sender import BatchSender, next_sequence
from fenceline.model.results import Appended
from fenceline.runtime import ThreadRuntime
from tests.support.patience import PATIENCE_S, wait_until

STORED = Appended(0, 1, 1, False, 0, False, 0)
TOO_LARGE = errors.MessageTooLargeError("too large", bytes_max=1)


class Owner:
    """Batches of text, each sent by an entry in ``sent``; a batch longer than ``length_max`` is refused."""

    def __init__(self, *, threads_max=0, bytes_max=1_000, length_max=1_000, fault=None):
        self.sent, self.failures, self.threads = [], [], set()
        self.length_max, self.fault = length_max, fault
        self.opened = threading.Event()
        self.opened.set()
        self.queue = BatchQueue(ThreadRuntime(), bytes_max=bytes_max)
        self.sender = BatchSender(
            self.queue,
            name="test-sender",
            threads_max=threads_max,
            deliver=self.deliver,
            refused=self.refused,
            failed=lambda batch, error: self.failures.append((batch.records, error)),
        )

    def put(self, place, text):
        batch = PendingBatch(place, text, bytes=len(text), is_sealed=True)
        self.queue.put(batch)
        self.sender.start(8)
        return batch

    def deliver(self, batch):
        self.sent.append((batch.place, batch.records))
        self.threads.add(threading.current_thread())
        assert self.opened.wait(PATIENCE_S)
        if batch.records == "fault":
            raise self.fault
        if len(batch.records) > self.length_max:
            raise TOO_LARGE
        return STORED

    def refused(self, batch, error):
        half = len(batch.records) // 2
        if error is not TOO_LARGE or not half:
            return ()
        texts = batch.records[:half], batch.records[half:]
        return [PendingBatch(batch.place, text, bytes=len(text), is_sealed=True) for text in texts]

    def close(self):
        self.opened.set()
        self.queue.close()
        self.sender.join()


def test_without_threads_each_batch_is_sent_by_the_thread_that_gives_it():
    owner = Owner()
    for place, text in ((0, "a"), (1, "b"), (0, "c")):
        assert owner.put(place, text).outcome.done()
    assert owner.sent == [(0, "a"), (1, "b"), (0, "c")]
    assert owner.threads == {threading.current_thread()}


def test_a_batch_waits_for_the_one_before_in_its_place_and_for_no_other_place():
    owner = Owner(threads_max=4)
    owner.opened.clear()
    for place, text in ((0, "a"), (0, "b"), (1, "c"), (0, "d"), (2, "e")):
        owner.put(place, text)
    wait_until(lambda: len(owner.sent) == 3)
    assert sorted(owner.sent) == [(0, "a"), (1, "c"), (2, "e")]
    assert owner.queue.in_flight() == 3
    owner.opened.set()
    assert owner.sender.flush()
    assert [text for place, text in owner.sent if place == 0] == ["a", "b", "d"]
    owner.close()


def test_the_parts_of_a_batch_are_sent_in_order_before_what_waits_for_its_place():
    owner = Owner(threads_max=1, length_max=2)
    owner.opened.clear()
    batches = [owner.put(0, text) for text in ("abcdefg", "hi")]
    owner.opened.set()
    assert owner.sender.flush()
    stored = [text for _, text in owner.sent if len(text) <= 2]
    assert stored == ["a", "bc", "de", "fg", "hi"]
    assert batches[0].outcome.result() is None
    assert owner.queue.bytes == 0, "each byte was given back once"
    owner.close()


def test_a_batch_that_fails_is_settled_and_the_next_of_its_place_is_sent():
    owner = Owner(length_max=0)
    failed, empty = owner.put(0, "a"), owner.put(0, "")
    assert failed.outcome.exception() is TOO_LARGE
    assert owner.failures == [("a", TOO_LARGE)]
    assert empty.outcome.exception() is None


def test_a_fault_is_its_batchs_outcome_and_the_thread_goes_on_with_the_next(monkeypatch):
    reported = []
    monkeypatch.setattr(threading, "excepthook", lambda fault: reported.append((fault.exc_value, fault.thread)))
    fault = ZeroDivisionError()
    owner = Owner(threads_max=1, fault=fault)
    first, second = owner.put(0, "fault"), owner.put(0, "b")
    assert first.outcome.exception(PATIENCE_S) is fault
    assert second.outcome.exception(PATIENCE_S) is None
    assert reported == [(fault, *owner.threads)]
    owner.close()


def test_a_fault_without_threads_is_raised_where_the_batch_was_given():
    owner = Owner(fault=KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        owner.put(0, "fault")
    assert owner.queue.bytes == 0
    assert [text for text, _ in owner.failures] == ["fault"]


def test_a_batch_waits_for_room_and_one_that_is_larger_than_all_room_goes_alone():
    owner = Owner(threads_max=2, bytes_max=10)
    owner.opened.clear()
    owner.put(0, "x" * 20)
    waits = threading.Thread(target=owner.put, args=(1, "y"), daemon=True)
    waits.start()
    waits.join(0.05)
    assert (waits.is_alive(), owner.queue.bytes) == (True, 20)
    owner.opened.set()
    waits.join(PATIENCE_S)
    owner.close()
    assert owner.sent == [(0, "x" * 20), (1, "y")]


def test_a_flush_tells_that_a_batch_was_cancelled_before_it_was_sent():
    owner = Owner(threads_max=1)
    owner.opened.clear()
    sent, cancelled = owner.put(0, "a"), owner.put(1, "b")
    wait_until(lambda: owner.sent)

    def drops(_place):  # once the flush has found both
        owner.queue.drop()
        owner.opened.set()
        return True

    assert not owner.sender.flush(only=drops)
    assert sent.outcome.result(0) is STORED
    with pytest.raises(CancelledError):
        cancelled.outcome.result(0)
    assert owner.sender.flush()
    owner.close()


def test_a_flush_of_some_places_waits_for_no_other():
    owner = Owner(threads_max=2)
    sent = owner.put(0, "a")
    assert owner.sender.flush(only=lambda place: place == 0)
    assert sent.outcome.done()
    owner.opened.clear()
    held = owner.put(1, "b")
    assert owner.sender.flush(only=lambda place: place == 0)
    assert not held.outcome.done()
    owner.close()


def test_sequences_wrap_behind_the_highest():
    assert next_sequence(0, 5) == 5
    assert next_sequence(2**31 - 2, 1) == 2**31 - 1
    assert next_sequence(2**31 - 1, 1) == 0
    assert next_sequence(2**31 - 3, 5) == 2
