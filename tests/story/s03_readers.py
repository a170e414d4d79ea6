"""Readers follow a log to which several writers append at once, each as fast as it can.

A reader must not see a record that is gone the next time, nor pass over one that appears later below its position. Both
would let two readers of one log come to different results.

Protocol, I2: "Segments are contiguous: each begins where the previous one ended."

A reader learns: offsets have no holes, and what one reader has read, each later reader reads at the same offset.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Event

from fenceline import Record

WRITERS, BATCHES = 4, 10


def test_readers_beside_writers_read_one_log_without_holes(fenceline_in_memory):
    client = fenceline_in_memory.client
    client.create_topic("visits")
    written = [[f"{writer}.{number}".encode() for number in range(2 * BATCHES)] for writer in range(WRITERS)]

    def append(values):
        with fenceline_in_memory.another_client() as own_client:
            for at in range(0, len(values), 2):
                own_client.produce("visits", 0, [Record(value) for value in values[at : at + 2]])

    is_over = Event()

    def follow():
        """Read page after page; the last one is asked for once all is written."""
        read, position, is_last = [], 0, False
        with fenceline_in_memory.another_client() as own_client:
            while not is_last:
                is_last = is_over.is_set()
                page = own_client.read("visits", 0, offset=position)
                read += [(record.offset, record.value) for record in page.records]
                position = page.position
        return read

    with ThreadPoolExecutor(WRITERS + 2) as threads:
        readers = [threads.submit(follow) for _ in range(2)]
        try:
            list(threads.map(append, written))
        finally:
            is_over.set()
    one, other = (reader.result() for reader in readers)

    # The log as it is now: what each reader saw on its way is still there, in the same place.
    kept = [(record.offset, record.value) for _, record in client.reader("visits")]
    assert one == other == kept
    assert [offset for offset, _ in kept] == list(range(len(kept)))
    for values in written:  # nothing is lost or doubled, and each writer's records are in its own order
        assert [value for _, value in kept if value in values] == values
