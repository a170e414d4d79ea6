"""A job writes its results into one partition, and an orchestrator starts it again with every release.

Each start gets a higher number, its generation. The start before it may still run, because its machine could not be
asked to stop it. It may even come back later, when a machine that was thought lost is plugged in again.

Protocol, I9: "Clocks decide when to *try* (leases, time-outs). The log decides who *wins*."

A reader learns: a higher generation takes a resource at once, without waiting for a lease. A lower one is refused.
"""

import pytest

from fenceline import errors


def values_in(client):
    return [record.value for record in client.read("results", 0, offset=0).records]


def test_the_later_start_of_a_job_owns_its_partition_and_the_earlier_one_never_writes_again(fenceline_in_memory):
    client, other = fenceline_in_memory.client, fenceline_in_memory.another_client()
    client.create_topic("results")

    earlier = client.own("results/0", generation=1)
    earlier_producer = client.producer("results", owner=earlier)
    earlier_producer.send(value=b"by start 1").result()

    with other.own("results/0", generation=2) as later, other.producer("results", owner=later) as later_producer:
        # Start 1 still runs, its lease is not over, and no message has reached it.
        with pytest.raises(errors.SessionSeveredError):
            earlier_producer.send(value=b"late, by start 1").result()
        later_producer.send(value=b"by start 2").result()

        # The token of each owner is higher than the last one's: a store elsewhere can refuse lower ones, too.
        assert later.owned["results/0"].fencing_token > earlier.owned["results/0"].fencing_token

        with pytest.raises(errors.StaleGenerationError):
            client.own("results/0", generation=1)
    assert values_in(client) == [b"by start 1", b"by start 2"]

    # Start 2 has ended and given the partition back. Start 1 does not get it even so.
    with pytest.raises(errors.StaleGenerationError):
        client.own("results/0", generation=1)
    other.close()
