"""Two writers read the same end of a log, and each wants its record to be the next one.

Think of a bank's ledger. Each withdrawal is decided from the balance that the log gives by now. If both
withdrawals were appended, the second one would be decided from a balance that is no longer true.

Protocol, promise 2: "An append that names its expected offset lands exactly there or nowhere (KIP-27)."

A reader learns: name the offset that you expect; if you lose the race, read, decide again, and try again.
"""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

from fenceline import Record, errors

WRITERS = ["ann", "bob", "cleo", "dan"]


def test_of_writers_that_saw_the_same_end_one_appends_and_each_other_one_learns_of_it(fenceline_in_memory):
    client = fenceline_in_memory.client
    client.create_topic("ledger")
    all_have_looked = Barrier(len(WRITERS))

    def withdraw(name):
        with fenceline_in_memory.another_client() as own_client:
            seen = own_client.offsets("ledger", 0).next_offset
            all_have_looked.wait()
            try:
                own_client.produce("ledger", 0, [Record(name.encode())], expected_offset=seen)
            except errors.OffsetMismatchError:
                return "lost"
            return "won"

    with ThreadPoolExecutor(len(WRITERS)) as threads:
        outcomes = list(threads.map(withdraw, WRITERS))

    # Any of them may win. Two never do, and what the others sent is nowhere in the log.
    assert sorted(outcomes) == ["lost", "lost", "lost", "won"]
    winner = WRITERS[outcomes.index("won")]
    assert [(record.offset, record.value) for record in client.read("ledger", 0, offset=0).records] == [
        (0, winner.encode())
    ]

    # A loser reads what it missed, decides again, and appends behind the winner.
    again = client.offsets("ledger", 0).next_offset
    assert client.produce("ledger", 0, [Record(b"second thoughts")], expected_offset=again).base_offset == 1
