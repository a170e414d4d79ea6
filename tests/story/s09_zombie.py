"""A worker is thought dead, and its work is given to a new one under the same name. But it was only slow.

Such a zombie has a transaction open, and all that it needs to commit it. If it could, the work would be done twice:
once by the zombie, and once by the worker that took its place.

Protocol, I11: "Where the state has a producer at e, no transaction of it below e is open."

A reader learns: a transactional id names a share of the work. Each start of it fences every start before (KIP-890).
"""

import pytest

from fenceline import errors


def committed(client):
    return [record.value for record in client.read("results", 0, offset=0, isolation="read_committed").records]


def work(producer, value, before_the_commit=lambda: None):
    with producer.transaction() as txn:
        txn.send("results", value=value)
        txn.flush()  # in the log, and not committed
        before_the_commit()


def test_once_a_transactional_id_begins_anew_its_earlier_instance_commits_nothing(fenceline_in_memory, network):
    client = fenceline_in_memory.client
    client.create_topic("results")
    zombie = network.client.transactional_producer("worker-0")
    work(zombie, b"by the first worker")

    def its_successor_works():
        with client.transactional_producer("worker-0") as successor:
            work(successor, b"by its successor")

    with pytest.raises(errors.ProducerFencedError):
        work(zombie, b"by the zombie", before_the_commit=its_successor_works)
    with pytest.raises(errors.ProducerFencedError):
        work(zombie, b"by the zombie, once more")

    assert committed(client) == [b"by the first worker", b"by its successor"]
    everything = [record.value for record in client.read("results", 0, offset=0).records]
    assert everything == [b"by the first worker", b"by the zombie", b"by its successor"]
