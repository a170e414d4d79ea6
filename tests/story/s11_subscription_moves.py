"""A consumer reads in one region, and its region is about to be closed for maintenance. It shall go on in another.

The same records have other offsets there, because each region appends what it pulls to a log of its own. So a position
of one region means nothing in the other one. Both regions keep in their logs what they need to translate it.

Protocol, promise 6: "It goes on close to where it left off, repeating a few records and losing none (PIP-33)."

A reader learns: create the subscription as replicated, and read it by
``fenceline.subscribe_with_failover`` with all regions.
"""

import fenceline
from fenceline import Record


def send(client, *values):
    for value in values:
        client.produce("shop", 0, [Record(value.encode())])


def test_a_subscription_goes_on_in_another_region_and_loses_no_record(regions):
    regions.create_topic("shop")
    regions.eu.create_subscription("shop", "billing", initial_position="earliest", replicate_subscription_state=True)
    send(regions.us, "u0", "u1", "u2")
    regions.replicate("shop")
    send(regions.eu, "e0", "e1", "e2", "e3")
    regions.replicate("shop")

    # In eu the records of us come first; in us they do not all have the same offsets.
    in_eu = [record.value for record in regions.eu.read("shop", 0, offset=0).records]
    assert in_eu == [b"u0", b"u1", b"u2", b"e0", b"e1", b"e2", b"e3"]

    billed = []
    with fenceline.subscribe_with_failover(
        "shop", "billing", regions=[regions.eu, regions.us], follow=False
    ) as subscriber:
        assert subscriber.region == "eu"
        for partition, record in subscriber:
            billed.append(record.value)
            assert subscriber.acknowledge(partition, record)
            if len(billed) == 5:
                break
    regions.replicate("shop")

    regions.lose("eu")
    with fenceline.subscribe_with_failover(
        "shop", "billing", regions=[regions.eu, regions.us], follow=False
    ) as subscriber:
        assert subscriber.region == "us"
        rest = [record.value for _, record in subscriber]

    assert set(billed) | set(rest) == set(in_eu)  # none is lost
    # The regions last compared their logs between u2 and e0. What was acknowledged after that is billed twice.
    assert set(billed) & set(rest) == {b"e0", b"e1"}
