"""A producer of transactions in the crash matrix, with a ledger of its answers.

Rule: ``transactions_are_whole`` holds at the end of each cell, however a process died in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from fenceline.errors import InvalidProducerEpochError, ProducerFencedError
from fenceline.model.requests import ReadRequest
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import ONGOING, ProducerPair
from tests.simulation.crash.scene import Process, Scene, read_all
from tests.simulation.crash.transaction_rows import outcomes_of, pending_of, transactions_of
from tests.support.service import TOPIC

ID, OTHER = "payments", "refunds"
GROUP = "readers"
PARTITIONS = 2
TIMEOUT_MS = 300_000  # lasts over the shorter of the pauses, not over the longer one
OFFSET = 1  # what a transaction sends


@dataclass
class KnownTransaction:
    """One transaction, and what its producer knows of it."""

    transactional_id: str
    pair: ProducerPair
    sent: dict[int, list[str]] = field(default_factory=dict)  # by partition, acknowledged or not
    acknowledged: set[str] = field(default_factory=set)
    is_offset_sent: bool = False
    asked: bool | None = None  # the outcome that END_TXN asked for
    is_answered: bool = False


def known_transaction(scene: Scene, transactional_id: str = ID) -> KnownTransaction:
    """Return the present transaction of an id, as its producer knows it."""
    every: list[KnownTransaction] = scene.ledger.answers["transactions"]
    return [one for one in every if one.transactional_id == transactional_id][-1]


def begin(scene: Scene, process: Process, transactional_id: str = ID, pair: ProducerPair | None = None) -> ProducerPair:
    """Ask for the id, with ``pair`` to keep it; what the producer sends from now on is another transaction."""
    given = process.log.transactions.init(transactional_id, TIMEOUT_MS, pair)
    holders: dict[ProducerPair, tuple[str, Any]] = scene.ledger.answers.setdefault("pairs", {})
    request = (transactional_id, object() if pair is None else pair)
    assert holders.setdefault(given, request) == request, f"{given} was given to two requests"
    _start(scene, transactional_id, given)
    return given


def _start(scene: Scene, transactional_id: str, pair: ProducerPair) -> None:
    scene.ledger.answers.setdefault("transactions", []).append(KnownTransaction(transactional_id, pair))


def produce(scene: Scene, process: Process, value: str, partition: int = 0, transactional_id: str = ID) -> None:
    """Send a batch of the present transaction; a repeat has the same value."""
    known = known_transaction(scene, transactional_id)
    values = known.sent.setdefault(partition, [])
    if value not in values:
        values.append(value)
    producer = (*known.pair, values.index(value))
    scene.append(process, TOPIC, partition, value, producer=producer, transactional_id=transactional_id)
    known.acknowledged.add(value)


def send_offset(scene: Scene, process: Process) -> None:
    known = known_transaction(scene)
    offsets = [CommittedOffset(TOPIC, 0, OFFSET, "sent")]
    process.log.transactions.send_offsets(ID, known.pair, GROUP, offsets)
    known.is_offset_sent = True


def end(scene: Scene, process: Process, transactional_id: str = ID, *, is_commit: bool = True) -> None:
    known = known_transaction(scene, transactional_id)
    assert known.asked in (None, is_commit)
    known.asked = is_commit
    following = process.log.transactions.end(transactional_id, known.pair, is_commit)
    known.is_answered = True
    given: ProducerPair = scene.ledger.answers.setdefault("following", {}).setdefault(known.pair, following)
    assert given == following, "a repeat was answered with another pair"
    if known_transaction(scene, transactional_id) is known:
        _start(scene, transactional_id, following)


def end_again(scene: Scene, process: Process, transactional_id: str = ID, *, is_commit: bool = True) -> None:
    """End the transaction that the producer ended last, or still has open."""
    every = [one for one in scene.ledger.answers["transactions"] if one.transactional_id == transactional_id]
    known = next(one for one in reversed(every) if one.sent or one.is_offset_sent or one is every[0])
    known.asked = is_commit
    following = process.log.transactions.end(transactional_id, known.pair, is_commit)
    known.is_answered = True
    assert following > known.pair


def is_out_of_time(scene: Scene, transactional_id: str = ID) -> bool:
    """Return True if the next request must find that the transaction is over: its time-out is due, or was met."""
    now_ms, pair = scene.runtime.now_ms(), known_transaction(scene, transactional_id).pair
    for item in transactions_of(scene.stored()).values():
        if item.transactional_id == transactional_id:
            return item.is_out_of_time(now_ms) or item.is_fenced or item.pair > pair
    return False


def in_time(scene: Scene, act: Callable[[], object], *, is_met: bool = True) -> bool:
    """Act, and return True, if the transaction is not over; otherwise assert that its producer is refused.

    Args:
        is_met: The act meets a time-out that is due. A batch does not where the transaction is open.
    """
    is_over = is_out_of_time(scene)
    try:
        act()
    except (ProducerFencedError, InvalidProducerEpochError):
        assert is_over
        return False
    assert not (is_over and is_met), "a producer whose transaction had timed out was not refused"
    return True


def shown(process: Process, partition: int) -> list[str]:
    """Return the records that a reader of committed records is shown, up to where it would wait."""
    values, offset = [], 0
    while True:
        request = ReadRequest(offset=offset, max_records=10_000, is_read_committed=True)
        page = process.log.partitions.read(TOPIC, partition, request)
        values += [(record.value or b"").decode() for record in page.records]
        if page.position == offset:
            assert offset == page.bounds.last_stable_offset
            return values
        offset = page.position


def nothing_is_due(scene: Scene) -> None:
    """Assert that no transaction has anything to be ended: its outcome is written, and so is all of its ending."""
    now_ms = scene.runtime.now_ms()
    for item in transactions_of(scene.stored()).values():
        assert not item.is_prepared, item
        assert not item.is_out_of_time(now_ms), item


def transactions_are_whole(scene: Scene, process: Process) -> None:
    """Assert that each transaction is all or nothing, as it was answered; each id can be taken up again."""
    for transactional_id in {one.transactional_id for one in scene.ledger.answers.get("transactions", [])}:
        begin(scene, process, transactional_id)
    nothing_is_due(scene)
    stored, topic_id = scene.stored(), scene.topic(TOPIC).topic_id
    assert [*pending_of(stored)] == [], "I14"
    assert not [one for one in transactions_of(stored).values() if one.state == ONGOING]
    for partition in range(PARTITIONS):
        bounds = process.log.partitions.offsets(TOPIC, partition).bounds
        assert bounds.last_stable_offset == bounds.next_offset, "held up, though nothing is open"
        _markers_ascend([(one[1], one[2]) for one in outcomes_of(stored, topic_id, partition)])
    every = {p: shown(process, p) for p in range(PARTITIONS)}
    logged = {p: {(r.value or b"").decode() for r in read_all(process.log, TOPIC, p, 0)} for p in range(PARTITIONS)}
    offset = _offset(process)
    for known in scene.ledger.answers.get("transactions", []):
        _is_whole(scene, known, every, logged, offset)


def _markers_ascend(markers: list[tuple[int, int]]) -> None:
    assert all(count == 1 for count in Counter(markers).values()), "I12: a marker twice"
    for producer_id in {one[0] for one in markers}:
        epochs = [epoch for p, epoch in markers if p == producer_id]
        assert epochs == sorted(epochs), "I12: a marker lowers an epoch"


def _is_whole(
    scene: Scene, known: KnownTransaction, every: dict[int, list[str]], logged: dict[int, set[str]], offset: int | None
) -> None:
    assert known.acknowledged <= set().union(*logged.values()), f"acknowledged, and not in the log: {known}"
    outcomes = {value in every[p] for p, values in known.sent.items() for value in values if value in logged[p]}
    if known.is_offset_sent and not scene.ledger.answers.get("offsets are lost"):
        outcomes.add(offset == OFFSET)
    assert len(outcomes) <= 1, f"torn apart: {known} {every} {offset}"
    if known.is_answered:
        assert outcomes <= {known.asked}, f"{known} {every} {offset}"
    elif known.asked is not True:
        assert outcomes <= {False}, f"no commit was asked for: {known} {every} {offset}"


def _offset(process: Process) -> int | None:
    found, _ = process.log.subscriptions.committed(GROUP, topic=TOPIC, partition=0, require_stable=True)
    return found[0].offset if found else None


def stable_offset(scene: Scene, process: Process) -> None:
    """Ask for stable offsets: what is prepared is settled by this look."""
    due = [one for one in transactions_of(scene.stored()).values() if one.is_prepared]
    pending = [*pending_of(scene.stored())]
    if pending and not due and not is_out_of_time(scene):
        return
    _offset(process)
    assert not [*pending_of(scene.stored())]


def read_each(scene: Scene, process: Process) -> None:
    for partition in range(PARTITIONS):
        shown(process, partition)


def read_committed(scene: Scene, process: Process) -> None:
    """Read committed records: no reader is held up by a transaction that is due to end."""
    read_each(scene, process)
    now_ms, stored = scene.runtime.now_ms(), scene.stored()
    ongoing = {i.pair for i in transactions_of(stored).values() if i.state == ONGOING and not i.is_out_of_time(now_ms)}
    for partition in range(PARTITIONS):
        states, _ = process.log.partitions.producer_states(TOPIC, partition)
        for one in states:
            is_open = one.current_txn_start_offset >= 0
            assert not is_open or (one.producer_id, one.producer_epoch) in ongoing, one


def get_each(scene: Scene, process: Process) -> None:
    """Look at each transaction: what is due of it is ended then."""
    for item in transactions_of(scene.stored()).values():
        with suppress(LookupError):
            process.log.transactions.get(item.transactional_id)
    nothing_is_due(scene)
