"""Hanging transactions, found from outside by the answers of partitions and coordinators (protocol, "Hanging
transactions").

Rule: a transaction that is being ended meanwhile is not reported. Because a transactional id moves on only once the
markers of its transaction are in the log, a transaction hangs if it is open both before and after the id was seen to
have moved on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from fenceline_cli.options import partitions_of
from fenceline_cli.progress import counted

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.transaction import Transaction


@dataclass(frozen=True, slots=True)
class Hanging:
    """A transaction that hangs in one partition.

    Attributes:
        start_offset: Where its first batch is: readers with read_committed wait there, or before it.
        transactional_id: The id that has its producer id now, if one has.
    """

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int
    transactional_id: str | None
    why: str


class _Open(NamedTuple):
    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    start_offset: int
    last_timestamp: int


def find_hanging(client: Client, topic: str | None, partition: int | None) -> list[Hanging]:
    """Return the transactions that hang in a partition, in a topic, or, without a name, anywhere.

    It asks by the operators' route. Another principal's transaction that is not listed would seem to hang.
    """
    partitions = list(_partitions(client, topic, partition))
    opened = [one for place in counted(partitions, "partitions") for one in _opened(client, *place)]
    if not opened:
        return []
    # One listing explains nearly all of them: a request for each would look through all ids each time.
    known = {one.producer_id: one for one in client.transactions(longer_than_ms=0, as_operator=True)}
    suspects: dict[_Open, Hanging] = {}
    for one in opened:
        if _why(one, known.get(one.producer_id)) is None:
            continue
        owner = next(iter(client.transactions(producer_id=one.producer_id, as_operator=True)), None)
        if (why := _why(one, owner)) is not None:
            suspects[one] = Hanging(*one, None if owner is None else owner.transactional_id, why)
    still = {_key(one) for place in {(one.topic, one.partition) for one in suspects} for one in _opened(client, *place)}
    return [hanging for one, hanging in suspects.items() if _key(one) in still]


def _partitions(client: Client, topic: str | None, partition: int | None) -> Iterator[tuple[str, int]]:
    """Yield the partitions where a transaction may be open: where the last stable offset is below the next one."""
    names: Iterable[str] = [one.name for one in client.topics()] if topic is None else [topic]
    for name in names:
        numbers = None if partition is None else partitions_of(client, name, partition)
        for number, offsets in client.topic_offsets(name, numbers).items():
            bounds = offsets.bounds
            # A trim may have passed all that an open transaction has written.
            is_trimmed = 0 < bounds.log_start_offset == bounds.next_offset
            if bounds.last_stable_offset < bounds.next_offset or is_trimmed:
                yield name, number


def _opened(client: Client, topic: str, partition: int) -> Iterator[_Open]:
    for one in client.producer_states(topic, partition):
        if one.current_txn_start_offset >= 0:
            pair = (one.producer_id, one.producer_epoch)
            yield _Open(topic, partition, *pair, one.current_txn_start_offset, one.last_timestamp)


def _why(one: _Open, owner: Transaction | None) -> str | None:
    """Return why an open transaction hangs, where ``owner`` has its producer id; ``None`` if it does not hang."""
    from fenceline.model import transaction as states

    if owner is None:
        return "no transactional id has its producer id"
    is_being_ended = (
        owner.state in (states.PREPARE_COMMIT, states.PREPARE_ABORT) and owner.producer_epoch == one.producer_epoch + 1
    )
    if owner.producer_epoch > one.producer_epoch and not is_being_ended:
        return f"its transactional id went on: {owner.state} at epoch {owner.producer_epoch}"
    return None


def _key(one: _Open) -> tuple[str, int, int, int]:
    return one.topic, one.partition, one.producer_id, one.producer_epoch
