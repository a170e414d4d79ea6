"""Checkpoints: the items brought forward to the state that a process has folded ("The checkpoint", I5).

Rule: aborted transactions are written first, then producers, then the head, and each item only moves forward. A
checkpoint is due every 16 segments or 10 s, and before the log is left to rivals. It makes a cold start cheap and is
never needed for correctness, so a write that fails is left to a later checkpoint. A partition's first checkpoint is
conditional on the name leading to this incarnation, because otherwise a process that was frozen until the incarnation
was collected would create an item that no process ever deletes.

Not here: how the items are stored; see ``checkpoint_items``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head, aborted_items, producer_from_value, producer_to_value
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import Attempts
from fenceline.log.state import FOLD_VERSION, AbortedRange, PartitionState, ProducerState
from fenceline.ports import Change, Check, Item, ItemKey, ItemValue, Put, StoreFact, Unavailable, VersionMoved


def keep_checkpoint(partition: Partition) -> None:
    """Write a checkpoint, unless this process is already writing one. If it fails, a later one replaces it."""
    _keep(partition, tries=8)


def advance_checkpoint(partition: Partition, *, tries: int = 1) -> None:
    """Move the checkpoint to the state, if it is behind, so that a rival that always wins finds it moved.

    Args:
        tries: How many writes. One is enough where the head was read just now, because the caller has lost much time
            already, and if other processes were faster, the checkpoint has moved.
    """
    if partition.is_checkpoint_due(is_early=True):
        _keep(partition, tries=tries)


def _keep(partition: Partition, tries: int) -> None:
    with partition.lock:
        if partition.is_saving:
            return
        partition.is_saving = True
    try:
        save(partition, tries=tries)
    except (StoreFact, CorruptLogError, StaleTopicId) as fact:
        # A checkpoint is never needed for correctness, and its failure must not mask an acknowledgement.
        if tries > 1 or not isinstance(fact, VersionMoved):
            partition.no_checkpoint_until_ms = partition.context.runtime.monotonic_ms() + limits.CHECKPOINT_MS
    finally:
        partition.is_saving = False


def save(partition: Partition, reach: int = 0, *, tries: int = 8) -> int:
    """Bring the items forward to the folded state, and return the offset that the checkpoint then has.

    A head of a higher fold version is never overwritten.

    Args:
        reach: The least offset that the state must have for this.
        tries: How often a write is tried when other processes were faster.

    Raises:
        StaleTopicId: The topic was deleted. Nothing was written.
        VersionMoved: Other processes moved the items each time. Items that were written are valid.
        Unavailable, NoAnswer: The item store. Items that were written are valid.
        Unavailable: The last look at the items is old, so the segments that were folded since may not be the log. Or
            the log is being followed again after an old look, and the state has not come to ``reach`` yet. Nothing was
            written.
    """
    while True:
        with partition.lock:
            touched = dict(partition.touched)
        partition.load_producers(touched)
        with partition.lock:
            if partition.touched.keys() <= touched.keys():
                snapshot = partition.snapshot(touched)
                aborted = list(partition.aborted)
                versions = {p: partition.versions.get(p) for p in touched}
                is_young = partition.has_young_look
                if snapshot is not None:
                    break
    state = snapshot.state
    if not is_young:  # model: Append, "save while young"
        raise Unavailable("the server's last look at the items is too old to write a checkpoint by")
    if not partition.can_checkpoint:
        return partition.base
    if state.next_offset < reach:
        raise Unavailable(
            f"the server reads the log anew, and is not far enough yet: offset={state.next_offset} wanted={reach}"
        )
    producers = {p: known for p, known in snapshot.producers.items() if known is not None}
    changes: list[_Step] = [step for transaction in aborted for step in _aborted_steps(partition, transaction)]
    changes += [_producer_step(partition, p, known, state.next_offset, versions[p]) for p, known in producers.items()]
    changes.append(_head_step(partition, state))
    count = limits.TRANSACTION_ITEMS_MAX - 1  # beside the topic's item
    for at in range(0, len(changes), count):
        _write(partition, changes[at : at + count], tries)
    _note_saved(partition, state)
    return state.next_offset


class _Step(NamedTuple):
    """One change of a checkpoint, made from the remembered item, or from the item as it is now."""

    key: ItemKey
    remembered: Callable[[], Change | None]  # None: nothing is left to do
    anew: Callable[[Item | None], Change | None]
    written: Callable[[Change], None] = lambda _: None  # notes the change that was written; the lock is held


def _write(partition: Partition, steps: list[_Step], tries: int) -> None:
    made = [step.remembered() for step in steps]
    for left in reversed(range(tries)):
        todo = [(step, change) for step, change in zip(steps, made, strict=True) if change is not None]
        changes = [change for _, change in todo]
        if not changes:
            return
        if partition.head is None or any(_creates_head(partition, change) for change in changes):
            changes.append(while_alive(partition))
        try:
            partition.context.items.write(changes)
        except VersionMoved:
            if not left:
                raise
            found = partition.context.items.get([step.key for step in steps])
            made = [step.anew(found.get(step.key)) for step in steps]
            continue
        with partition.lock:
            for step, change in todo:
                step.written(change)
        return


def _creates_head(partition: Partition, change: Change) -> bool:
    return change.expected is None and change.key == keys.head_item(partition.topic_id, partition.partition)


def while_alive(partition: Partition) -> Check:
    """Return the condition that the name leads to this incarnation, whose item goes before anything is collected."""
    key = keys.topic_item(partition.name)
    item = partition.context.items.get([key]).get(key)
    if item is None or item.value["topic_id"] != partition.topic_id:
        raise StaleTopicId
    return Check(key, item.version)


def _aborted_steps(partition: Partition, aborted: AbortedRange) -> list[_Step]:
    def step(key: ItemKey, value: Mapping[str, ItemValue]) -> _Step:
        def put() -> Change:
            return Put(key, value, partition.context.runtime.fresh_version(), expected=None)

        return _Step(key, put, lambda item: put() if item is None else None)

    return [step(*item) for item in aborted_items(partition.topic_id, partition.partition, aborted)]


def _producer_step(
    partition: Partition, producer_id: int, state: ProducerState, folded_to: int, version: int | None
) -> _Step:
    key = keys.producer_item(partition.topic_id, partition.partition, producer_id)

    def put(expected: int | None) -> Change:
        return Put(key, producer_to_value(state, folded_to), _next_version(partition, expected), expected)

    def anew(item: Item | None) -> Change | None:
        if item is not None and producer_from_value(item.value)[1] >= folded_to:
            return None
        return put(None if item is None else item.version)

    def written(change: Change) -> None:
        assert isinstance(change, Put)
        partition.versions[producer_id] = change.version

    # The expected version is the one known when the state was taken, so that a slow checkpoint never moves the item
    # back.
    return _Step(key, lambda: put(version), anew, written)


def _head_step(partition: Partition, state: PartitionState) -> _Step:
    key = keys.head_item(partition.topic_id, partition.partition)
    made: dict[int, Head] = {}  # by the version that it is written with

    def put(head: Head | None, version: int | None) -> Change | None:
        if head is not None and (head.state.next_offset >= state.next_offset or head.fold_version > FOLD_VERSION):
            return None
        indexed_from = 0 if head is None else head.long_aborted_from
        if indexed_from is None and head is not None:
            indexed_from = head.next_offset  # an older version may have written what ended below
        moved = Head(state, 0) if head is None else replace(head, state=state, fold_version=FOLD_VERSION)
        moved = replace(moved, long_aborted_from=indexed_from)
        value = moved.to_value()
        change = Put(key, value, _next_version(partition, version), version)
        packed = (state.open_transactions, value["open_transactions"])
        made[change.version] = replace(moved, packed_open=packed)
        return change

    def anew(item: Item | None) -> Change | None:
        if partition.head is None and item is not None:
            with partition.lock:
                partition.overtaken += 1  # another process made the first head
        return put(*_noted(partition, item))

    def written(change: Change) -> None:
        assert isinstance(change, Put)
        partition.note_head(made[change.version], change.version, is_own=True)

    return _Step(key, lambda: put(partition.head, partition.head_version), anew, written)


def _next_version(partition: Partition, expected: int | None) -> int:
    return partition.context.runtime.fresh_version() if expected is None else expected + 1


def read_head(partition: Partition) -> tuple[Head | None, int | None]:
    """Read the head item, and return it with its version."""
    key = keys.head_item(partition.topic_id, partition.partition)
    return _noted(partition, partition.context.items.get([key]).get(key))


def _noted(partition: Partition, item: Item | None) -> tuple[Head | None, int | None]:
    if item is None:
        return None, None
    head = Head.from_value(item.value)
    partition.note_head(head, item.version)
    return head, item.version


def _note_saved(partition: Partition, state: PartitionState) -> None:
    """Drop the events that were kept for this checkpoint, and start counting for the next."""
    with partition.lock:
        partition.base = max(partition.base, state.next_offset)
        partition.touched = {p: last for p, last in partition.touched.items() if last >= state.next_offset}
        partition.aborted = [a for a in partition.aborted if a.last_offset >= state.next_offset]
        partition.segments_since_checkpoint = 0
        partition.checkpointed_ms = partition.context.runtime.monotonic_ms()
    partition.prune_producers()


def move_log_start(partition: Partition, log_start: int) -> int:
    """Move the log start forward to ``log_start``, and return the log start that is in force then.

    The checkpoint is first moved to ``log_start`` or beyond, because the log start never lies beyond the checkpoint.

    Raises:
        StaleTopicId: The topic was deleted.
        StoreUnavailableError, ContendedError: The log start was not moved.
        OutcomeUnknownError: It may have been moved.
    """
    key = keys.head_item(partition.topic_id, partition.partition)
    attempts = Attempts(partition.context.runtime, "the partition's head")
    while True:
        with attempts:
            head, _ = read_head(partition)
            if head is None or head.next_offset < log_start:  # model: Append, "checkpoint first"
                save(partition)
            item = partition.context.items.get([key]).get(key)
            if item is None or int(str(item.value["next_offset"])) < log_start:
                raise VersionMoved(key)  # a newer fenceline keeps this head, and moves its checkpoint itself
            head = Head.from_value(item.value)
            if head.log_start >= log_start:
                return head.log_start
            # A process that loses this write reads the head again, and moves the log start from there. The fields of a
            # newer fold version are kept.
            put = Put(key, {**item.value, "log_start": log_start}, item.version + 1, item.version)
            partition.context.items.write([put])
            partition.note_head(replace(head, log_start=log_start), put.version)
            return log_start
