"""A payment is sent, the log has it, and the answer is lost on its way back.

The sender cannot tell this from a request that never arrived. If it sends the payment again, the payment may be in the
log twice. If it does not, the payment may be missing.

Protocol, promise 4: "A retried batch is stored once (idempotent producer)."

A reader learns: a batch with a producer id and a sequence can be sent again safely, and the client does so by itself.
"""

import pytest

from fenceline import ProducerRef, Record, errors


def payments_in(client):
    return [record.value for record in client.read("payments", 0, offset=0).records]


def test_a_batch_with_a_sequence_is_sent_again_after_a_lost_answer_and_stored_once(network):
    client = network.client
    client.create_topic("payments")
    producer = client.producer_id()
    first = ProducerRef(producer.producer_id, producer.producer_epoch, sequence=0)

    network.lose_next_answer()
    sent = client.produce("payments", 0, [Record(b"10 euros")], producer=first)

    # The client has sent it twice. The second answer names the place that the first one had.
    assert (sent.base_offset, sent.duplicate) == (0, True)
    assert payments_in(client) == [b"10 euros"]

    # `Client.producer` numbers its batches by itself.
    with client.producer("payments") as sender:
        network.lose_next_answer()
        assert sender.send(value=b"20 euros").result().offset == 1
    assert payments_in(client) == [b"10 euros", b"20 euros"]


def test_a_batch_without_a_sequence_is_never_retried_and_its_outcome_is_unknown(network):
    client = network.client
    client.create_topic("payments")

    network.lose_next_answer()
    with pytest.raises(errors.OutcomeUnknownError):
        client.produce("payments", 0, [Record(b"10 euros")])

    assert payments_in(client) == [b"10 euros"]  # it was written; had the request been lost, it would not be
