"""An order is two records: one for the shop, one for the warehouse. One without the other is a mistake.

A program may fail between the two. And a reader may look just when the first one is there and the second is not.

Protocol, promise 4: "A `read_committed` reader that is shown one record of a transaction will be shown all of them"

A reader learns: write both in one transaction, and read with ``isolation="read_committed"`` (KIP-98).
"""

import pytest

TOPICS = ["orders", "parcels"]


def committed(client):
    pages = [client.read(topic, 0, offset=0, isolation="read_committed") for topic in TOPICS]
    return [record.value for page in pages for record in page.records]


def written(client):
    pages = [client.read(topic, 0, offset=0) for topic in TOPICS]
    return [record.value for page in pages for record in page.records]


@pytest.fixture
def client(fenceline_in_memory):
    for topic in TOPICS:
        fenceline_in_memory.client.create_topic(topic)
    return fenceline_in_memory.client


def test_the_records_of_a_transaction_show_together_once_it_is_committed(client):
    with client.transactional_producer("shop") as producer:
        with producer.transaction() as txn:
            txn.send("orders", value=b"a book")
            txn.send("parcels", value=b"one parcel")
            txn.flush()
            assert written(client) == [b"a book", b"one parcel"]  # in the log already
            assert committed(client) == []
        assert committed(client) == [b"a book", b"one parcel"]


def fail_between_two_records(producer):
    with producer.transaction() as txn:
        txn.send("orders", value=b"a book")
        txn.flush()
        raise OSError("the label printer is out of paper")


def test_a_program_that_fails_between_two_records_has_written_neither(client):
    with client.transactional_producer("shop") as producer:
        with pytest.raises(OSError, match="out of paper"):
            fail_between_two_records(producer)
        assert written(client)[0] == b"a book"
        assert committed(client) == []

        with producer.transaction() as txn:  # the producer goes on
            txn.send("orders", value=b"a pen")
        assert committed(client) == [b"a pen"]
