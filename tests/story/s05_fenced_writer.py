"""A leader's process is stopped in the middle of a write: a long garbage collection, or a machine that was suspended.

Another process takes over and writes. Then the first one goes on. It does not know that time has passed, and its
request, which was already on its way, arrives now. This late write is what a lock with a lease alone cannot prevent.

Protocol, promise 3: "Once a producer has lost exclusive access, nothing it sends ever enters the log."

A reader learns: ``ExclusiveWithFencing`` takes over at once, and the log itself refuses the one that was replaced.
"""

import pytest

from fenceline import errors


def test_a_writer_that_was_paused_and_replaced_wakes_up_and_nothing_that_it_sends_lands(fenceline_in_memory, network):
    client = fenceline_in_memory.client
    client.create_topic("decisions")
    paused = network.client.producer("decisions", access_mode="Exclusive", linger_ms=0)
    paused.send(value=b"go left").result()

    network.freeze()
    late = paused.send(value=b"go left again")

    with client.producer("decisions", access_mode="ExclusiveWithFencing") as successor:
        successor.send(value=b"go right").result()

        network.thaw()
        with pytest.raises(errors.ProducerFencedError):
            late.result()
        with pytest.raises(errors.ProducerFencedError):
            paused.send(value=b"am I still there?").result()

        successor.send(value=b"and on").result()

    records = client.read("decisions", 0, offset=0).records
    assert [record.value for record in records] == [b"go left", b"go right", b"and on"]
