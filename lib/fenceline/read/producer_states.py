"""The states of a partition's producers, at a verified tail.

Contract, "Producer ids, coordinators, transactions".

Rule: the state of a producer that appended since the checkpoint is brought forward to the log's end, because its item
is behind. The item of any other producer is complete. Producers whose state has lapsed are left out, as an append would
judge them.

Not here: the judgement of an append; see ``append.checks``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fenceline import limits
from fenceline.format import keys
from fenceline.log.checkpoint_items import producer_from_value
from fenceline.log.partition import Partition
from fenceline.log.state import ProducerState
from fenceline.log.tail import verified_tail
from fenceline.model.transaction import ShownProducerState


def producers_at_tail(
    partition: Partition, start_after: int, limit: int, expiration_ms: int
) -> tuple[Sequence[ShownProducerState], bool]:
    """Return up to ``limit`` producers with ids above ``start_after``, by id, and whether there are more.

    Raises:
        StaleTopicId, CorruptLogError, Unavailable: As ``verified_tail``.
    """
    # Taken before the items are read, so that states which a later checkpoint drops here are in the items by then.
    recent = _recent(partition, start_after)
    now_ms = partition.context.runtime.now_ms()
    shown: list[ShownProducerState] = []
    for producer_id, state in _merged(_stored(partition, start_after), recent):
        if state.open is None and now_ms - state.time > expiration_ms:
            continue
        if len(shown) == limit:
            return shown, True
        first_offset = -1 if state.open is None else state.open.first_offset
        last_sequence, time = state.last_sequence, state.time
        shown.append(ShownProducerState(producer_id, state.producer_epoch, last_sequence, time, first_offset))
    return shown, False


def _recent(partition: Partition, start_after: int) -> dict[int, ProducerState]:
    """Return the states, at a verified tail, of the producers that appended since the checkpoint."""
    next_offset = verified_tail(partition).bounds.next_offset
    while True:
        with partition.lock:
            is_behind = partition.state.next_offset < next_offset
            touched = [producer_id for producer_id in partition.touched if producer_id > start_after]
        if is_behind:
            verified_tail(partition)  # the log is being followed again
            continue
        partition.load_producers(touched)
        snapshot = partition.snapshot(touched)
        if snapshot is not None:
            return {p: state for p, state in snapshot.producers.items() if state is not None}


def _stored(partition: Partition, start_after: int) -> Iterator[tuple[int, ProducerState]]:
    """Yield the states in the items of producers with ids above ``start_after``, by id."""
    sort = keys.partition_items(partition.topic_id, partition.partition)
    after = "" if start_after < 0 else keys.producer_item(partition.topic_id, partition.partition, start_after).sort
    while True:
        items = partition.context.items.query(sort, start_after=after, prefix=keys.PRODUCER_SORT, limit=limits.LIST_MAX)
        for item in items:
            yield keys.parse_producer_item(item.key), producer_from_value(item.value)[0]
        if len(items) < limits.LIST_MAX:
            return
        after = items[-1].key.sort


def _merged(
    stored: Iterator[tuple[int, ProducerState]], recent: dict[int, ProducerState]
) -> Iterator[tuple[int, ProducerState]]:
    """Yield all producers by id, of one that is in both the recent state."""
    left = sorted(recent, reverse=True)
    for producer_id, state in stored:
        while left and left[-1] < producer_id:
            following = left.pop()
            yield following, recent[following]
        if left and left[-1] == producer_id:
            left.pop()
        yield producer_id, recent.get(producer_id, state)
    yield from ((producer_id, recent[producer_id]) for producer_id in reversed(left))
