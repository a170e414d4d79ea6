"""Helpers of the tests of offsets in transactions: a producer's transaction, as its coordinator would move it.

Rule: the item moves as the coordinator moves it, by writes on the version that was read. The code under test sends and
settles.

Not here: the coordinator itself (``transactions.coordinator``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from fenceline.errors import InvalidTxnStateError
from fenceline.format import keys
from fenceline.groups import member_guard
from fenceline.groups.member_guard import Caller
from fenceline.model.subscription import CommittedOffset
from fenceline.model.transaction import COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from fenceline.service.log import Log
from fenceline.subscriptions import cursor_store
from fenceline.subscriptions.items import CursorItem
from fenceline.transactions import pending_offsets
from fenceline.transactions.item import TransactionItem, transaction_from_item
from tests.support.service import TOPIC, Service

GROUP = "g"


@dataclass
class Sender:
    """A transactional producer that sends a group's offsets."""

    service: Service
    producer_id: int = 7
    epoch: int = 0

    @property
    def transactional_id(self) -> str:
        return f"txn-{self.producer_id}"

    @property
    def item(self) -> TransactionItem:
        key = keys.transaction_item(self.transactional_id)
        return transaction_from_item(self.service.items.store.get([key])[key])

    def write(self, item: TransactionItem) -> TransactionItem:
        put = item.put(self.service.runtime)
        self.service.items.store.write([put])
        return item.written(put)

    def begin(self, *groups: str) -> Sender:
        """Begin a transaction with these groups, and return the producer."""
        key = keys.transaction_item(self.transactional_id)
        found = self.service.items.store.get([key]).get(key)
        known = TransactionItem(self.transactional_id, self.producer_id, self.epoch)
        item = known if found is None else transaction_from_item(found)
        self.write(replace(item, state=ONGOING, producer_epoch=self.epoch, groups=groups or (GROUP,), cursors=()))
        return self

    def ongoing(self, group: str) -> TransactionItem:
        """Return the item, as the coordinator does that judges a producer."""
        item = self.item
        if item.state != ONGOING or item.producer_epoch != self.epoch or group not in item.groups:
            raise InvalidTxnStateError("no transaction is ongoing with this group")
        return item

    def send(
        self,
        *offsets: tuple[str, int, int] | CommittedOffset,
        group: str = GROUP,
        log: Log | None = None,
        session_id: str | None = None,
    ) -> None:
        """Send a group's offsets: (topic, partition, offset) each."""
        log = log or self.service.log
        given = [one if isinstance(one, CommittedOffset) else CommittedOffset(*one) for one in offsets]
        context = log.context
        judge = partial(member_guard.judge_commit, context, Caller(group, session_id))
        pending_offsets.send(context, log.subscriptions.live, group, given, judge, lambda: self.ongoing(group))

    def prepare(self, *, is_commit: bool) -> TransactionItem:
        """Decide the outcome; the epoch grows."""
        item = self.item
        if item.state != ONGOING:
            raise InvalidTxnStateError("no transaction is ongoing")
        state = PREPARE_COMMIT if is_commit else PREPARE_ABORT
        self.epoch += 1
        return self.write(replace(item, state=state, producer_epoch=self.epoch))

    def settle(self, item: TransactionItem) -> None:
        """Settle every cursor that the item names, as a finisher does."""
        for cursors in item.cursors:
            for number in cursors.partitions:
                pending_offsets.settle(
                    self.service.log.context, cursors, number, item.producer_id, item.producer_epoch, item.is_commit
                )

    def end(self, *, is_commit: bool = True) -> TransactionItem:
        """End the transaction, and return its item as it was prepared."""
        item = self.prepare(is_commit=is_commit)
        self.settle(item)
        self.write(replace(item, state=COMPLETE_COMMIT, cursors=(), groups=()))
        return item


def cursor_of(service: Service, partition: int = 0, *, group: str = GROUP, topic: str = TOPIC) -> CursorItem:
    """Return a group's cursor as it is stored; one that is absent is not set."""
    context = service.log.context
    found = cursor_store.find(context, service.topic_id(topic), group)
    assert found is not None
    (stored,) = cursor_store.read(context, found, [partition])
    return stored.cursor
