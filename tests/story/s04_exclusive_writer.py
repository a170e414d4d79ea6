"""A service has a leader and a stand-in. The leader alone writes, and the stand-in takes over when it ends.

Without brokers there is no process that could keep a list of leaders. The log keeps it: a grant is a marker in the log,
and raises the topic's epoch, which every later batch carries.

Protocol, I8: "Topic epochs never decrease along the log; within one epoch there is one exclusive session."

A reader learns: ``Exclusive`` is refused while another one has access; ``WaitForExclusive`` queues for it (PIP-68).
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest

from fenceline import Record, errors


def test_one_producer_writes_and_the_next_one_waits_until_it_ends(fenceline_in_memory):
    client, other = fenceline_in_memory.client, fenceline_in_memory.another_client()
    client.create_topic("decisions")
    leader = client.producer("decisions", access_mode="Exclusive")
    leader.send(value=b"by the leader").result()

    # While it leads, no other program writes: neither another exclusive producer, nor a program that asks for nothing.
    with pytest.raises(errors.ProducerFencedError):
        other.producer("decisions", access_mode="Exclusive")
    with pytest.raises(errors.ProducerBusyError):
        other.produce("decisions", 0, [Record(b"by a stranger")])

    is_queued = Event()
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(
            other.producer, "decisions", access_mode="WaitForExclusive", on_queued=lambda claim: is_queued.set()
        )
        assert is_queued.wait(60)
        assert not waiting.done()
        leader.close()
        stand_in = waiting.result()

    stand_in.send(value=b"by the stand-in").result()
    stand_in.close()
    records = client.read("decisions", 0, offset=0).records
    assert [(record.value, record.topic_epoch) for record in records] == [
        (b"by the leader", 0),
        (b"by the stand-in", 1),
    ]
    other.close()
