"""The log service over two stores: an append, and one face for each other capability.

Rule: a face has the requests of one capability, and leaves the work to the packages below. All errors are those of
errors.py: store facts never leave the service. An append needs only the modules imported here. The first request for
another face imports that face, because on Lambda every process begins cold, and most processes only append.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.log.context import Context
from fenceline.log.polls import Slots, Unbounded
from fenceline.ports import ItemStore, ObjectStore
from fenceline.runtime import Runtime
from fenceline.service.produce import Producing
from fenceline.service.resolver import PartitionResolver

if TYPE_CHECKING:
    from fenceline.log.partition import Partition
    from fenceline.log.tail import Tail
    from fenceline.regions.announce_subscriptions import Announcer
    from fenceline.regions.peer import Peers
    from fenceline.service.access import Access
    from fenceline.service.groups import Groups
    from fenceline.service.partitions import PartitionRequests
    from fenceline.service.poll import Polling
    from fenceline.service.replication import Replication
    from fenceline.service.subscriptions import Subscriptions
    from fenceline.service.topics import Topics
    from fenceline.service.transactions import Transactions
    from fenceline.subscriptions.items import SubscriptionItem
    from fenceline.transactions.end_due import Meetings


class Log:
    """A log service over an object store and an item store. Safe to share between threads.

    Args:
        region: The name of this deployment, stamped on records that are produced here.
        item_age_ms: The greatest age of a topic's item by which an append is judged; with 0 each append looks.
        timeout_ms: How long a request works before it gives up.
        create_ms: The longest time that one create may take; no create begins with less time left.
        poll_slots: How many polls are held at once; ``None`` sets no bound.
        peers: The other regions by name; topics may name these, and are replicated from them.
        peer_calls: The runtime of the calls to peers; ``None`` takes ``runtime``.

    All errors are those of errors.py; store facts never leave the service.
    """

    def __init__(
        self,
        objects: ObjectStore,
        items: ItemStore,
        runtime: Runtime,
        *,
        region: str,
        item_age_ms: int = limits.ITEM_AGE_MS_MAX,
        timeout_ms: int = 20_000,
        create_ms: int = 0,
        poll_slots: Slots | None = None,
        peers: Peers | None = None,
        peer_calls: Runtime | None = None,
    ) -> None:
        self._peers: Peers = {} if peers is None else peers
        slots = poll_slots or Unbounded()
        self.context = Context(objects, items, runtime, region, create_ms, slots, frozenset(self._peers))
        self._peer_calls = peer_calls
        self._timeout_ms = timeout_ms
        self._resolver = PartitionResolver(self.context, item_age_ms)
        self.producing = Producing(self.context, self._resolver, item_age_ms, timeout_ms)
        # Bound, so that they cost no call of their own, because each append needs these two.
        self.append = self.producing.append
        self.note_event = self.context.events.note

    @property
    def topics(self) -> Topics:
        """Topics by name."""
        from fenceline.service.topics import Topics

        return Topics(self.context, self._resolver, self._timeout_ms)

    @property
    def partitions(self) -> PartitionRequests:
        """Reads, offsets, segments, trims, compactions and checkpoints of one partition."""
        from fenceline.service.partitions import PartitionRequests

        return PartitionRequests(self._resolver, self._held)

    @property
    def polling(self) -> Polling:
        """One poll for many partitions."""
        from fenceline.service.poll import Polling

        return Polling(self.context, self._resolver, self.subscriptions, self._held)

    @property
    def access(self) -> Access:
        """Sessions, claims and ownership."""
        from fenceline.service.access import Access

        return Access(self.context, self._resolver, self.producing.sessions.remember, self._timeout_ms)

    @property
    def subscriptions(self) -> Subscriptions:
        """Subscriptions and groups' offsets."""
        from fenceline.service.subscriptions import Subscriptions

        return Subscriptions(self.context, self._resolver, self._pending, self._held, self._announce)

    @property
    def groups(self) -> Groups:
        """Groups and their members."""
        from fenceline.service.groups import Groups

        return Groups(self.context, self.subscriptions.live)

    @property
    def transactions(self) -> Transactions:
        """Transactional ids and their transactions."""
        from fenceline.service.transactions import Transactions

        return Transactions(self.context, self._resolver, lambda: self.producing.new_producer_id()[0], self._timeout_ms)

    @cached_property
    def _announcer(self) -> Announcer:
        from fenceline.regions.announce_subscriptions import Announcer

        return Announcer(self.context, self._resolver.partitions)

    def _announce(self, subscription: SubscriptionItem, partition: int) -> None:
        """Send a cursor's due moves to other regions, unless that was done less than a second ago."""
        self._announcer.announce(subscription, partition)

    @cached_property
    def replication(self) -> Replication:
        """Topics in several regions: replication, snapshots, suspended regions, gaps."""
        from fenceline.service.replication import Replication

        return Replication(self.context, self._resolver, self._peers, self._timeout_ms, self._peer_calls)

    @cached_property
    def _meetings(self) -> Meetings:
        from fenceline.transactions.end_due import Meetings

        return Meetings(self._resolver.partitions)

    def _held(self, partition: Partition, tail: Tail) -> bool:
        """End the transaction that holds a reader up, if that is due; return True if the reader should look again."""
        return self._meetings.held(partition, tail)

    def _pending(self, producer_id: int) -> bool:
        """End a transaction with a pending offset, if that is due; return True if the caller should look again."""
        return self._meetings.pending(producer_id)

    def close(self) -> None:
        """End long polls early, for a server that stops."""
        self.context.stopping.is_set = True
        for partition in self._resolver.partitions.kept():
            with partition.lock:
                partition.notify()
