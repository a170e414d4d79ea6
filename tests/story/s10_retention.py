"""A log is not kept for ever. Old records go by a trim, or because they are older than the topic allows.

A reader that was away for too long must learn that records are missing. It must not go on at a later record, as if
nothing had been before it. And no later record may get an offset that another one had.

Protocol, I4: "the end of a read and a 416 are answered only from a *verified tail*."

A reader learns: ``earliest`` begins at the log start; an offset below it is refused, with the bounds that hold now.
"""

import pytest

from fenceline import Record, errors

DAY_MS = 24 * 60 * 60 * 1000


def offsets_from_the_start(client):
    return [record.offset for _, record in client.reader("events", start="earliest")]


def test_trimmed_records_are_gone_and_their_reader_gets_the_bounds(fenceline_in_memory):
    client = fenceline_in_memory.client
    client.create_topic("events")
    for day in range(5):
        client.produce("events", 0, [Record(b"day %d" % day)])

    assert client.trim("events", 0, before_offset=3) == 3

    assert offsets_from_the_start(client) == [3, 4]
    with pytest.raises(errors.OffsetOutOfRangeError) as refused:
        client.read("events", 0, offset=1)
    assert (refused.value.extra["log_start_offset"], refused.value.extra["next_offset"]) == (3, 5)
    assert client.produce("events", 0, [Record(b"day 5")]).base_offset == 5

    # Also a log of which nothing is left goes on where it was.
    client.trim("events", 0, before_offset=6)
    assert offsets_from_the_start(client) == []
    assert client.produce("events", 0, [Record(b"day 6")]).base_offset == 6


def test_records_older_than_the_retention_are_deleted(calendar):
    client = calendar.client
    client.create_topic("events", config={"retention.ms": 7 * DAY_MS})
    client.produce("events", 0, [Record(b"monday")])
    calendar.pass_days(5)
    client.produce("events", 0, [Record(b"saturday")])
    assert offsets_from_the_start(client) == [0, 1]
    calendar.pass_days(3)
    assert offsets_from_the_start(client) == [1]
