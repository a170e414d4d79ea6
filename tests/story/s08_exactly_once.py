r"""A worker reads numbers, and writes the square of each. It dies between the square and the note of its position.

The next worker begins where the noted position is. It reads the same number again, and writes the square again. Had the
first worker noted its position first, then the square would be missing instead.

Protocol, I10: "One write decides a transaction (Ongoing → Prepare\*)."

A reader learns: send the output and the input's offset in one transaction; then every input has exactly one effect.
"""

from contextlib import ExitStack

from fenceline import CommittedOffset, Record


def squares_in(client):
    return [record.value for record in client.read("squares", 0, offset=0, isolation="read_committed").records]


def position_in(client):
    done = client.committed_offsets("squaring", topic="numbers", partition=0, require_stable=True)
    return done[0].offset if done else 0


def square(client, txn, record):
    """Write the square of one input, and move the group past the input."""
    txn.send("squares", value=b"%d" % int(record.value) ** 2)
    txn.send_offsets("squaring", [CommittedOffset("numbers", 0, record.offset + 1)])


def test_a_worker_that_dies_between_its_output_and_its_offset_repeats_and_loses_nothing(fenceline_in_memory, network):
    client = fenceline_in_memory.client
    client.create_topic("numbers")
    client.create_topic("squares")
    client.produce("numbers", 0, [Record(b"%d" % number) for number in range(1, 5)])
    first, second, *rest = client.read("numbers", 0, offset=0).records

    mortal = network.client.transactional_producer("squaring-0")
    with mortal.transaction() as txn:
        square(network.client, txn, first)
    dying = ExitStack().enter_context(mortal.transaction())
    dying.send("squares", value=b"%d" % int(second.value) ** 2)
    dying.flush()
    network.cut()  # killed: the output is in the log, the offset was never sent, and the transaction is still open

    with client.transactional_producer("squaring-0") as producer:  # ends what the dead worker left open
        position = position_in(client)
        assert position == second.offset
        for record in client.read("numbers", 0, offset=position).records:
            with producer.transaction() as txn:
                square(client, txn, record)

    assert squares_in(client) == [b"1", b"4", b"9", b"16"]
    assert position_in(client) == 1 + rest[-1].offset
