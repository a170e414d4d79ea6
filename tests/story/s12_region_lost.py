"""A region is lost: it answers neither clients nor the other region, perhaps for hours.

What it had acknowledged is safe on its own object storage. But what the other region has not pulled yet is there alone,
until it comes back. Meanwhile the other region must neither wait for it nor fail because of it.

Protocol, I25: "No produce, read, claim or acknowledgement waits for another region, or fails because of one."

A reader learns: replication is asynchronous. The other region has all up to some record, and catches up later.
"""

import pytest

from fenceline import Record, errors


def send(client, *values):
    for value in values:
        client.produce("shop", 0, [Record(value)])


def values_in(client):
    return [record.value for record in client.read("shop", 0, offset=0).records]


def test_a_lost_region_takes_along_only_what_was_not_pulled_and_brings_it_back(regions):
    regions.create_topic("shop")
    send(regions.eu, b"e0", b"e1")
    regions.replicate("shop")
    send(regions.eu, b"e2")  # acknowledged in eu, and not pulled by us yet
    regions.lose("eu")

    with pytest.raises(errors.StoreUnavailableError):
        regions.eu.read("shop", 0, offset=0)

    # In us all goes on: what it had pulled is there in order, and it takes records, claims and acknowledgements.
    assert values_in(regions.us) == [b"e0", b"e1"]
    with regions.us.producer("shop", access_mode="Exclusive") as producer:
        producer.send(value=b"u0").result()
    regions.us.create_subscription("shop", "billing", initial_position="earliest")
    regions.us.acknowledge("shop", "billing", 0, cumulative=1)
    regions.replicate("shop")
    [eu] = regions.us.replication("shop").regions
    assert (eu.region, eu.connected) == ("eu", False)
    assert values_in(regions.us) == [b"e0", b"e1", b"u0"]

    # It comes back with all that it had acknowledged. Each region then has each record once, in its origin's order.
    regions.bring_back("eu")
    regions.replicate("shop")
    assert values_in(regions.eu) == [b"e0", b"e1", b"e2", b"u0"]
    assert values_in(regions.us) == [b"e0", b"e1", b"u0", b"e2"]
