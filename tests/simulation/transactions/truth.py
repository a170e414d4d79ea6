"""The truth of transactions: every item and every segment, judged at the moment at which it was written.

Rule: the truth is made from the writes that were really made, and no process is asked. The invariants of the protocol
that hold at each moment, I10 to I15, are judged here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.format import keys
from fenceline.format.batch import decode
from fenceline.format.control import ABORT, COMMIT, parse_marker
from fenceline.format.segment import Segment
from fenceline.log.state import OngoingTransaction, PartitionState, apply
from fenceline.ports import Change, Check, Delete, Item, ItemKey, Put
from fenceline.transactions.item import TransactionItem, transaction_from_item
from tests.simulation.harness import real
from tests.simulation.harness.history import text_of
from tests.simulation.harness.stores import Creation
from tests.simulation.harness.world import World
from tests.simulation.log.truth import Violation

COMMITTED, ABORTED, OPEN, PLAIN = "committed", "aborted", "open", "plain"
_FOLLOWS = {
    None: {"Empty"},
    "Empty": {"Empty", "Ongoing", "CompleteAbort"},
    "Ongoing": {"Ongoing", "PrepareCommit", "PrepareAbort"},
    "PrepareCommit": {"CompleteCommit"},
    "PrepareAbort": {"CompleteAbort"},
    "CompleteCommit": {"Empty", "Ongoing", "CompleteAbort"},
    "CompleteAbort": {"Empty", "Ongoing", "CompleteAbort"},
}


@dataclass
class Stored:
    """One record as it is in the log."""

    offset: int
    value: str
    step: int
    outcome: str = PLAIN
    transaction: tuple[int, int] | None = None  # producer id and epoch


@dataclass
class Log:
    """One partition of one incarnation."""

    topic_id: str
    partition: int
    records: list[Stored] = field(default_factory=list)
    # After each segment: (step, next offset, LSO of a log without a log start).
    ends: list[tuple[int, int, int]] = field(default_factory=list)
    state: PartitionState = field(default_factory=PartitionState)
    epochs: dict[int, int] = field(default_factory=dict)  # by producer, as the log says
    markers: Counter[tuple[int, int]] = field(default_factory=Counter)
    ended: dict[int, int] = field(default_factory=dict)  # the highest epoch of each producer's markers
    forgotten: set[tuple[int, int]] = field(default_factory=set)  # markers that a process may no longer know of

    def forget(self, producer_id: int) -> None:
        """Note that a process may no longer know which markers of a producer are here.

        A finisher at work may append its marker again, even after Complete*, which changes nothing (I12).
        """
        self.forgotten |= {key for key in self.markers if key[0] == producer_id}
        self.markers = Counter({key: n for key, n in self.markers.items() if key[0] != producer_id})

    def bounds_between(self, start: int, end: int) -> set[tuple[int, int]]:
        """Return each (next offset, LSO) that the log had at some moment."""
        before = [(following, stable) for step, following, stable in self.ends if step <= start]
        return {
            before[-1] if before else (0, 0),
            *((following, stable) for step, following, stable in self.ends if start < step <= end),
        }

    def data(self, start: int, end: int, *, is_committed: bool) -> list[tuple[int, str]]:
        """Return the records that a reader of [start, end) is shown, now that all is decided."""
        shown = (PLAIN, COMMITTED) if is_committed else (PLAIN, COMMITTED, ABORTED, OPEN)
        return [(one.offset, one.value) for one in self.records if start <= one.offset < end and one.outcome in shown]


class TransactionTruth:
    """The items of transactions, the cursors, and the logs, as they really are."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.logs: dict[tuple[str, int], Log] = {}
        self._made: set[str] = set()
        self._items: dict[ItemKey, TransactionItem] = {}
        self._versions: dict[str, list[tuple[int, TransactionItem | None]]] = {}  # (step, item) of each id
        self._ids: dict[int, str] = {}  # producer id -> transactional id
        self._cursors: dict[ItemKey, Mapping[str, Any]] = {}
        self._topics: dict[str, tuple[str, bool]] = {}  # name -> (topic id, whether it is going)
        self.decisions: dict[tuple[int, int], bool] = {}  # (producer id, epoch) -> whether it was a commit
        self.epoch_max = 0

    # Items

    def on_write(self, changes: Sequence[Change]) -> None:
        try:
            for change in changes:
                if not isinstance(change, Check):
                    self._take(change)
            for change in changes:
                if isinstance(change, Put) and change.key.partition.startswith("cursors/"):
                    self._judge_pending(change.key)
        except Violation as violation:
            self._world.failures.append(violation)

    def _take(self, change: Put | Delete) -> None:
        place = change.key.partition
        if place == keys.TOPICS and isinstance(change, Put):
            self._topics[change.key.sort] = (str(change.value["topic_id"]), bool(change.value["is_going"]))
        elif place == keys.TOPICS:
            self._topics.pop(change.key.sort, None)
        elif place.startswith("producer-ids/") and isinstance(change, Put):
            producer_id = keys.parse_transactional_id_item(change.key)
            if producer_id in self._ids:
                raise Violation(f"I13: producer id {producer_id} was given twice")
            self._ids[producer_id] = str(change.value["transactional_id"])
        elif place.startswith("cursors/"):
            self._take_cursor(change)
        elif place.startswith("transactions/"):
            self._take_transaction(change)
        elif isinstance(change, Delete) and change.key.sort.startswith(keys.PRODUCER_SORT):
            _, topic_id, number = place.split("/")
            self._log(topic_id, int(number)).forget(keys.parse_producer_item(change.key))

    def _take_transaction(self, change: Put | Delete) -> None:
        before = self._items.get(change.key)
        if isinstance(change, Delete):
            if before is not None and before.state not in ("Empty", "CompleteCommit", "CompleteAbort"):
                raise Violation(f"I10: deleted in {before.state}: {before}")
            self._items.pop(change.key, None)
            self._versions[change.key.sort].append((self._world.step, None))
            return
        after = transaction_from_item(Item(change.key, change.version, change.value))
        self._items[change.key] = after
        self._versions.setdefault(after.transactional_id, []).append((self._world.step, after))
        self.epoch_max = max(self.epoch_max, after.producer_epoch)
        state = None if before is None else before.state
        if after.state not in _FOLLOWS[state]:
            raise Violation(f"I10: from {before} to {after}")
        if before is None:
            return
        if after.producer_id == before.producer_id and after.producer_epoch < before.producer_epoch:
            raise Violation(f"I13: the pair went back from {before} to {after}")
        if before.is_fenced and after.state == "Ongoing":
            raise Violation(f"I13: a transaction began at an epoch that no producer was given: {before} {after}")
        if before.state == "Ongoing" and after.state == "Ongoing" and after.pair != before.pair:
            raise Violation(f"I13: the pair of a transaction changed from {before} to {after}")
        if after.is_prepared:
            self._decide(before, after)
        if before.is_prepared:
            self._judge_complete(before)

    def _decide(self, before: TransactionItem, after: TransactionItem) -> None:
        if after.pair != (before.producer_id, before.producer_epoch + 1):
            raise Violation(f"I10: decided with another epoch: {before} {after}")
        if (after.partitions, after.cursors) != (before.partitions, before.cursors):
            raise Violation(f"I12: a decision changed what is named: {before} {after}")
        self.decisions[before.pair] = after.is_commit

    def _judge_complete(self, prepared: TransactionItem) -> None:
        """Judge that each part of it was done: the markers durable, the cursors settled."""
        for topic_id, number, log in self._named(prepared):
            found = log.state.open_transactions.get(prepared.producer_id)
            if found is not None and found.producer_epoch < prepared.producer_epoch and self.is_served(topic_id):
                raise Violation(f"I12: complete, but open in {topic_id}/{number}: {prepared} {found}")
        for key, value in self._cursors.items():
            for producer_id, (epoch, *_) in value.get("pending", {}).items():
                if int(producer_id) == prepared.producer_id and epoch < prepared.producer_epoch:
                    raise Violation(f"I14: complete, but pending in {key}: {prepared} {value}")

    def _named(self, item: TransactionItem) -> Iterator[tuple[str, int, Log]]:
        for one in item.partitions:
            for number in one.partitions:
                yield one.topic_id, number, self._log(one.topic_id, number)

    def is_served(self, topic_id: str) -> bool:
        return any(known == topic_id and not is_going for known, is_going in self._topics.values())

    def _of(self, producer_id: int) -> TransactionItem | None:
        transactional_id = self._ids.get(producer_id)
        if transactional_id is None:
            return None
        return self._items.get(keys.transaction_item(transactional_id))

    # Cursors

    def _take_cursor(self, change: Put | Delete) -> None:
        before = self._cursors.get(change.key)
        if isinstance(change, Delete):
            self._cursors.pop(change.key, None)
            return
        value: Mapping[str, Any] = change.value
        self._cursors[change.key] = value
        if before is not None:
            for member in ("settled", "sent"):
                if value.get(member, 0) < before.get(member, 0):
                    raise Violation(f"I15: {member} went back in {change.key}: {before} {value}")
        if value.get("settled", 0) > value.get("sent", 0):
            raise Violation(f"I15: settled beyond what was sent in {change.key}: {value}")
        self._judge_order(change.key, before or {"mark": 0}, value)

    def _judge_order(self, key: ItemKey, before: Mapping[str, Any], after: Mapping[str, Any]) -> None:
        """Judge one step of a cursor: what was sent last is in force, of what is decided."""
        was, now = before.get("pending", {}), after.get("pending", {})
        step = f"in {key}: {before} {after}"
        new = [one for producer_id, one in now.items() if was.get(producer_id) != one]
        gone = [(producer_id, one) for producer_id, one in was.items() if producer_id not in now]
        sent = after.get("sent", 0) - before.get("sent", 0)
        if new:
            if [one[1] for one in new] != [after["sent"]] or gone or sent != 1:
                raise Violation(f"I15: sent without a number of its own {step}")
            if (after["mark"], after["settled"]) != (before["mark"], before.get("settled", 0)):
                raise Violation(f"I15: a pending offset shows {step}")
        elif gone:
            [(producer_id, (epoch, number, offset, _))] = gone
            item = self._of(int(producer_id))
            if item is None or not item.is_prepared or item.producer_epoch <= epoch:
                raise Violation(f"I14: taken out, though its outcome is not decided {step}: {item}")
            is_in_force = item.is_commit and number > before.get("settled", 0)
            expected = (offset, number) if is_in_force else (before["mark"], before.get("settled", 0))
            if (after["mark"], after["settled"]) != expected:
                raise Violation(f"I15: not the one that was sent last {step}: {item}")
        elif sent != 1 or after["settled"] != after["sent"]:
            self._judge_slide(key, before["mark"], after["mark"], step)

    def _judge_slide(self, key: ItemKey, start: int, end: int, step: str) -> None:
        """Judge a mark that moved, though no commit was sent: it passes markers and aborted records alone."""
        topic_id, _, number = keys.parse_cursor_item(key)
        passed = self._log(topic_id, number).data(start, end, is_committed=True)
        if passed or end < start:
            raise Violation(f"I15: a commit at once that takes no number {step}: {passed}")

    def _judge_pending(self, key: ItemKey) -> None:
        value = self._cursors.get(key, {})
        _, subscription_id, number = keys.parse_cursor_item(key)
        for producer_id, (epoch, *_) in value.get("pending", {}).items():
            item = self._of(int(producer_id))
            if item is None or item.producer_id != int(producer_id):
                raise Violation(f"I14: pending of no transaction in {key}: {value}")
            is_ongoing = item.state == "Ongoing" and item.producer_epoch == epoch
            is_prepared = item.is_prepared and item.producer_epoch == epoch + 1
            is_named = any(c.subscription_id == subscription_id and number in c.partitions for c in item.cursors)
            if not (is_ongoing or is_prepared) or not is_named:
                raise Violation(f"I14: pending in {key}, but not named: {value} {item}")

    # The log

    def _log(self, topic_id: str, partition: int) -> Log:
        return self.logs.setdefault((topic_id, partition), Log(topic_id, partition))

    def on_create(self, creation: Creation) -> None:
        if not creation.key.startswith("log/") or creation.key in self._made:
            return  # where an object was collected: no part of the log
        self._made.add(creation.key)
        try:
            self._fold(creation)
        except Violation as violation:
            self._world.failures.append(violation)

    def _fold(self, creation: Creation) -> None:
        topic_id, partition, _ = keys.parse_segment_key(creation.key)
        log, segment = self._log(topic_id, partition), real.segment_of(creation)
        for position, header in segment.batches:
            if header.is_control:
                self._fold_marker(log, segment, position)
                continue
            transaction = None
            if header.is_transactional:
                transaction = (header.producer_id, header.producer_epoch)
                self._judge_batch(log, *transaction)
            if header.has_producer:
                if header.producer_epoch < log.epochs.get(header.producer_id, -1):
                    log.forget(header.producer_id)  # a plain batch, where the producer's state had lapsed
                log.epochs[header.producer_id] = header.producer_epoch
            log.records += [
                Stored(
                    header.base_offset + i,
                    text_of(record).decode(),
                    creation.step,
                    PLAIN if transaction is None else OPEN,
                    transaction,
                )
                for i, record in enumerate(decode(segment.body, position))
            ]
        log.state = apply(log.state, segment, region=real.REGION).state
        log.ends.append((creation.step, log.state.next_offset, log.state.last_stable_offset(0)))
        for producer_id, open_ in log.state.open_transactions.items():
            self._judge_open(log, producer_id, open_)

    def _judge_batch(self, log: Log, producer_id: int, epoch: int) -> None:
        """Judge I12 at the create: the item names the partition, for exactly this epoch.

        Where a topic is going, what is over counts as done, and nothing that lands is acknowledged or shown.
        """
        if not self.is_served(log.topic_id):
            return
        item = self._of(producer_id)
        where = f"producer {producer_id}/{epoch} in {log.topic_id}/{log.partition}"
        if item is None or item.producer_id != producer_id or not item.names(log.topic_id, log.partition):
            raise Violation(f"I12: a batch of a transaction that does not name it: {where}: {item}")
        is_ongoing = item.state == "Ongoing" and item.producer_epoch == epoch
        is_prepared = item.is_prepared and item.producer_epoch == epoch + 1
        if not is_ongoing and not is_prepared:
            raise Violation(f"I12: a batch after its transaction: {where}: {item}")
        if log.ended.get(producer_id, -1) > epoch:
            raise Violation(f"I12: a batch behind a marker: {where}: {log.ended[producer_id]}")

    def _fold_marker(self, log: Log, segment: Segment, position: int) -> None:
        header = next(header for at, header in segment.batches if at == position)
        marker = parse_marker(segment.body, position, header)
        if marker.type not in (ABORT, COMMIT):
            return
        producer_id, epoch = header.producer_id, header.producer_epoch
        where = f"marker {producer_id}/{epoch} in {log.topic_id}/{log.partition} at {header.base_offset}"
        if log.epochs.get(producer_id, -1) > epoch:
            raise Violation(f"I12: a marker lowers an epoch: {where}: {log.epochs[producer_id]}")
        log.epochs[producer_id] = epoch
        log.markers[producer_id, epoch] += 1
        log.ended[producer_id] = max(epoch, log.ended.get(producer_id, -1))
        if log.markers[producer_id, epoch] > 1:
            raise Violation(f"I12: a marker twice: {where}")
        item = self._of(producer_id)
        is_right = item is not None and item.is_prepared and item.pair == (producer_id, epoch)
        is_right = is_right and item is not None and item.is_commit == (marker.type == COMMIT)
        is_again = (producer_id, epoch) in log.forgotten
        if not is_right and not is_again and self.is_served(log.topic_id):
            raise Violation(f"I12: a marker that its item does not ask for: {where}: {item}")
        for one in log.records:
            if one.outcome == OPEN and one.transaction is not None and one.transaction[0] == producer_id:
                if one.transaction[1] >= epoch:
                    raise Violation(f"I11: a marker of an earlier epoch ends {one}: {where}")
                one.outcome = COMMITTED if marker.type == COMMIT else ABORTED

    def _judge_open(self, log: Log, producer_id: int, open_: OngoingTransaction) -> None:
        if log.epochs[producer_id] > open_.producer_epoch:
            raise Violation(f"I11: {open_} of {producer_id} in {log.topic_id}/{log.partition}")

    def live(self, name: str) -> str:
        """Return the topic id of a topic's present incarnation."""
        return self._topics[name][0]

    def unfinished(self) -> list[TransactionItem]:
        """Return the transactions that still have something to be ended."""
        return [item for item in self._items.values() if item.state == "Ongoing" or item.is_prepared]

    def still_open(self) -> list[tuple[str, int, dict[int, OngoingTransaction]]]:
        """Return the partitions that are served, and have something open."""
        return [
            (log.topic_id, log.partition, dict(log.state.open_transactions))
            for log in self.logs.values()
            if log.state.open_transactions and self.is_served(log.topic_id)
        ]

    def items_between(self, transactional_id: str, start: int, end: int) -> list[TransactionItem | None]:
        """Return each version that an id's item had at some moment."""
        known = self._versions.get(transactional_id, [])
        before = [item for step, item in known if step <= start]
        return [before[-1] if before else None, *(item for step, item in known if start < step <= end)]

    def pending(self) -> list[ItemKey]:
        return [key for key, value in self._cursors.items() if value.get("pending")]

    def mark(self, group: str, topic_id: str, partition: int) -> int:
        """Return a group's settled offset."""
        marks = [
            int(value["mark"])
            for key, value in self._cursors.items()
            if key.partition == keys.cursor_items(group)
            and (keys.parse_cursor_item(key)[0], keys.parse_cursor_item(key)[2]) == (topic_id, partition)
        ]
        return marks[0] if marks else 0
