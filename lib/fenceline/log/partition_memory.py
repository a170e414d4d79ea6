"""A partition as one process remembers it: its state at some offset, and how old the last look at its items is.

Rule: no store is called here, and the state and what belongs to it change only with the lock held. The state is always
that of a prefix of the log, and answers nothing by itself (I4). An appender or a reader that meets the next segment
advances it. A segment out of turn is passed over.

Not here: looking at the items, and reading segments; see ``partition``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.segment import Segment, corrupt
from fenceline.log.checkpoint_items import Head, producer_from_value
from fenceline.log.compacted_view import ViewFiles
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.segment_index import SegmentIndex
from fenceline.log.state import (
    FOLD_VERSION,
    AbortedTransaction,
    Folded,
    PartitionState,
    ProducerEvent,
    ProducerState,
    advance,
    apply,
    lowers_epoch,
)
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.ports import Item, ItemKey, Unavailable


class Snapshot(NamedTuple):
    """A state, and the states of some producers, at one and the same offset."""

    state: PartitionState
    producers: Mapping[int, ProducerState | None]
    producers_dropped: int  # as ``PartitionMemory`` counts
    is_young: bool  # taken while the last look at the head was young: all that was folded is the log (I3)


class LookAgain(Unavailable):
    """The last look at the head is too old: what seems damaged may be a late create. Only another look shows which.

    Attributes:
        damage: What it is if the log was followed from an offset that the next look shows to be kept.
    """

    def __init__(self, what: str, damage: CorruptLogError | None = None) -> None:
        super().__init__(what)
        self.damage = damage


class PartitionMemory:
    """A partition's state and what belongs to it. Safe to share between threads."""

    seen_end = ""  # the last segment's key, when this process looked whether others append
    _head_look: Instant | None = None  # when the last look at the head began, also of a topic that is going
    _certain = 0  # what was folded below it was folded before a look that was young then

    def __init__(self, context: Context, name: str, topic_id: str, partition: int) -> None:
        self.context = context
        self.name = name
        self.topic_id = topic_id
        self.partition = partition
        self.log_prefix = keys.log_prefix(topic_id, partition)
        self.look_keys = (keys.topic_item(name), keys.head_item(topic_id, partition))
        self.lock = context.runtime.lock()
        self.changed = context.runtime.condition(self.lock)
        self.index = SegmentIndex(context, topic_id, partition)
        self.state = PartitionState()
        self.log_start = 0
        self.head: Head | None = None
        self.head_version: int | None = None
        self.view_files: ViewFiles | None = None  # of the compacted view that a reader read last
        self.base = 0  # the items hold everything below it
        self.aborted: list[AbortedTransaction] = []  # ended at or above `base`
        self.touched: dict[int, int] = {}  # producers that appended at or above `base`: their last offset there
        self.segments_since_checkpoint = 0
        self.checkpointed_ms = context.runtime.monotonic_ms()
        self.no_checkpoint_until_ms = 0
        self.overtaken = 0  # how often another process's checkpoint was seen
        self.versions: dict[int, int | None] = {}  # of the producers' items
        self._producers: dict[int, ProducerState | None] = {}  # None: the partition does not know it
        # How often anything that this process knew of producers may have been dropped. While it stays the same, the
        # states of producers have followed from each other, segment by segment.
        self.producers_dropped = 0
        self._unloaded: dict[int, list[ProducerEvent]] = {}  # at or above `base`, of producers whose item was not read
        self.last_look: Instant | None = None  # when the last look at the items began that showed a live topic
        self._topic: TopicItem | None = None  # as it was last read
        self._bases = 0  # how often `base` moved
        self._resets = 0  # how often a state was adopted in place of the one before
        self._is_followed = False  # to the end of a listing, since that state was adopted
        self.last_listed: tuple[int, Sequence[str]] = (-1, ())  # the last segment's base, and the offers that it lists
        self.awaited: dict[str, int | None] = {}  # offers of this process: the segment that was seen to list each
        self.has_looker = False  # a reader polls the store, for all readers that wait
        self.is_saving = False  # a checkpoint is being written

    def segment_key(self, offset: int) -> str:
        """Return the key of the segment whose base is ``offset``."""
        return self.log_prefix + keys.segment_name(offset)

    @property
    def is_idle(self) -> bool:
        """Return True if forgetting it loses nothing: no reader waits, and no offer of this process is looked for."""
        return not (self.awaited or self.has_looker)

    @property
    def is_fresh(self) -> bool:
        """Return True if the log was followed to its end, and the last look at its items is young (I4, I7)."""
        return self._is_followed and self.has_young_look

    @property
    def has_young_look(self) -> bool:
        """Return True if the last look at the items began less than 60 s ago."""
        return self.is_young(self.last_look)

    @property
    def has_young_head(self) -> bool:
        """Return True if the head was looked at less than 60 s ago: nothing below its log start was folded since."""
        return self.is_young(self._head_look)

    @property
    def young_end(self) -> int | None:
        """Return the end of what was folded; ``None`` if the look is old, and a late create may be part of that."""
        with self.lock:
            return self.state.next_offset if self.has_young_head else None

    def is_young(self, look: Instant | None) -> bool:
        """Return True if a look that began at ``look`` began less than 60 s ago by all three clocks."""
        return look is not None and self.context.is_within(limits.ITEM_AGE_MS_MAX, look)

    def is_end(self, state: PartitionState) -> bool:
        """Return True if ``state`` is a verified tail: it was seen to be the log's end, and the look is young (I4)."""
        # model: Append, "look is young at answer"
        # model: Append, "same state at answer"
        # model: Append, "log start at answer"
        with self.lock:
            return self.is_fresh and self.state is state and self.log_start <= state.next_offset

    def keeps(self, offset: int) -> bool | None:
        """Return whether ``offset`` is part of the log (I7); ``None`` if only another look can show it."""
        with self.lock:  # model: Append, "look is young at create"
            return self.log_start <= offset if self.has_young_look else None

    def take_look(self, found: Mapping[ItemKey, Item], look: Instant, *, is_going_allowed: bool = False) -> TopicItem:
        """Adopt the items that a look found; ``look_at`` reads those of many partitions together.

        Args:
            found: The items; a missing head means that there is no checkpoint yet.
            look: When the look began.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
        """
        topic_key, head_key = self.look_keys
        topic = self._topic_of(found.get(topic_key))
        if topic is None or topic.topic.topic_id != self.topic_id or (topic.is_going and not is_going_allowed):
            raise StaleTopicId
        self._adopt(found.get(head_key), look, is_going=topic.is_going)
        return topic

    def _topic_of(self, item: Item | None) -> TopicItem | None:
        known = self._topic
        if item is None or (known is not None and known.version == item.version):
            return None if item is None else known
        topic = topic_from_item(item)
        if topic.topic.topic_id == self.topic_id:  # of the name's next incarnation nothing is kept
            self._topic = topic
        return topic

    def _adopt(self, item: Item | None, look: Instant | None, *, is_going: bool = False) -> None:
        """Adopt the head that a look found, and its state if that is ahead."""
        with self.lock:
            is_stale = not self.has_young_look
            self._head_look = _later(self._head_look, look)
            if not is_going:  # I7: only a look at a live topic lets an append be acknowledged
                self.last_look = _later(self.last_look, look)
            if is_stale:
                # A segment folded since the last look may be a late create of a frozen process, at a key that the log
                # start has passed. Only the head, and the segments after it, are known to be the log.
                # model: Append, "drop an old state"
                self.index.forget(self._certain)
                self._reset(PartitionState())
            elif self.has_young_head:
                self._certain = max(self._certain, self.state.next_offset)
            if item is None:
                return
            known = self.head
            if known is not None and item.version == self.head_version and self.state.next_offset >= known.next_offset:
                return  # seen before, and not ahead of the state
            head = Head.from_value(item.value)
            self.note_head(head, item.version)
            if head.next_offset > self.state.next_offset:
                self._reset(head.state)

    def _reset(self, state: PartitionState) -> None:
        """Take ``state`` in place of the one before, with no producers loaded; the lock is held."""
        self.state, self.base = state, state.next_offset
        self.index.reach(state.next_offset)
        self._producers, self._unloaded, self.versions = {}, {}, {}
        self.producers_dropped += 1
        self.aborted, self.touched = [], {}
        self.segments_since_checkpoint = 0
        self._bases += 1
        self._resets += 1
        self._is_followed = False
        self.changed.notify_all()

    def note_head(self, head: Head, version: int, *, is_own: bool = False) -> None:
        """Remember the newest head item seen; its log start only moves forward.

        Args:
            is_own: Whether this process wrote it.
        """
        with self.lock:
            self.log_start = max(self.log_start, head.log_start)
            known = self.head
            if not is_own and known is not None and head.next_offset > known.next_offset:
                self.overtaken += 1
            if known is None or (head.log_start, head.state.next_offset, head.compaction_horizon) >= (
                known.log_start,
                known.state.next_offset,
                known.compaction_horizon,
            ):
                self.head, self.head_version = head, version
            self._drop_below(min(head.next_offset, self.state.next_offset))

    def _drop_below(self, base: int) -> None:
        """Drop what was kept for a checkpoint below ``base``: a head says that the items hold it."""
        if base <= self.base:
            return
        self.base = base
        self._bases += 1  # an item that was read before that head may lack what is dropped here
        self.touched = {p: last for p, last in self.touched.items() if last >= base}
        self.aborted = [ended for ended in self.aborted if ended.last_offset >= base]
        kept = {p: [e for e in events if e.base_offset >= base] for p, events in self._unloaded.items()}
        self._unloaded = {p: events for p, events in kept.items() if events}

    def forget(self) -> None:
        """Drop the time of the last look, so that the next use looks at the items again."""
        with self.lock:
            self.last_look = self._head_look = None

    @property
    def can_checkpoint(self) -> bool:
        """Return True if this version may write over the head: never over one of a higher fold version."""
        return self.head is None or self.head.fold_version <= FOLD_VERSION

    def is_checkpoint_due(self, *, is_early: bool = False) -> bool:
        """Return True if, since the last checkpoint, 16 segments were folded, or 10 s passed and any was folded.

        None is due in the 10 s after one that failed: while the item store is down or slow, appends do not wait for it.

        Args:
            is_early: Whether a single segment since the last checkpoint is enough.
        """
        now, since = self.context.runtime.monotonic_ms(), self.segments_since_checkpoint
        if since == 0 or not self.can_checkpoint or now < self.no_checkpoint_until_ms:
            return False
        if is_early:
            return True
        age_ms = now - self.checkpointed_ms
        return since >= limits.CHECKPOINT_SEGMENTS or age_ms >= limits.CHECKPOINT_MS

    def take_own(self, base: PartitionState, segment: Segment, folded: Folded) -> None:
        """Advance by a segment of the log that this process made on ``base``, and that was folded for it already."""
        with self.lock:
            if self.state is base:
                self._take(segment, folded)
                return
        self.fold(segment)  # a reader met it first, or the head was adopted anew

    def fold(self, segment: Segment) -> bool:
        """Fold a segment that was read from the log, if it is the next one.

        Returns:
            Whether it was the next one.

        Raises:
            CorruptLogError: Its chain value does not follow from what was folded before.
            LookAgain: It does not follow, and what was folded before may be a late create.
        """
        while True:
            state = self.state
            if segment.base_offset != state.next_offset:
                return False
            if not segment.metadata.follows(state.chain, segment.body):
                with self.lock:
                    if self.state is state:
                        what = "its chain value does not follow from its body and the chain"
                        raise self.contradiction(segment.base_offset, what)
                continue
            folded = apply(state, segment, region=self.context.region)
            with self.lock:
                if self.state is state:
                    self._take(segment, folded)
                    return True

    def contradiction(self, offset: int, what: str) -> CorruptLogError | LookAgain:
        """Return what it means that the log at ``offset`` contradicts what was folded below it.

        It is damage (I2) if the head was looked at lately, and has ``offset``. Otherwise the process may have been
        frozen. The log start may have moved, and what was folded may be a late create at a collected key.
        """
        with self.lock:
            damage = corrupt(self.segment_key(offset), offset, what)
            # model: Append, "corrupt while young"
            if self.has_young_head and self.log_start <= offset:
                return damage
            self.forget()
            return LookAgain(
                f"the server's last look at the log start is too old to read the log by: offset={offset}", damage
            )

    def _take(self, segment: Segment, folded: Folded) -> None:
        """Advance by one segment; the lock is held."""
        self.state = folded.state
        self.aborted += folded.aborted
        self.segments_since_checkpoint += 1
        for producer_id, event in folded.events:
            self.touched[producer_id] = event.base_offset
            if producer_id in self._producers:
                known = self._producers[producer_id]
                self._producers[producer_id] = advance(known, event)
                if lowers_epoch(known, event):
                    # model: Transaction, "a lowered epoch voids an admission"
                    self.producers_dropped += 1
            else:
                self._unloaded.setdefault(producer_id, []).append(event)
        self.last_listed = segment.base_offset, segment.metadata.offers
        for offer in segment.metadata.offers:
            if offer in self.awaited:
                self.awaited[offer] = segment.base_offset
        self.index.add(segment.base_offset, segment.next_offset, segment.metadata)
        self.index.reach(segment.next_offset)
        self.changed.notify_all()

    # Producers

    def _enter_producers(self, items: Mapping[int, Item | None], bases: int) -> bool:
        """Enter producers by their items, brought forward to the state.

        Args:
            bases: What ``_bases`` was before the items were read.

        Returns:
            False if the items cannot be used: one is ahead of the state, or ``base`` has moved.
        """
        loaded = {p: producer_from_value(item.value) for p, item in items.items() if item is not None}
        with self.lock:
            ahead = any(folded_to > self.state.next_offset for _, folded_to in loaded.values())
            if ahead or bases != self._bases:
                return False
            for producer_id, item in items.items():
                if producer_id in self._producers:
                    continue
                state, folded_to = loaded.get(producer_id, (None, 0))
                for event in self._unloaded.pop(producer_id, ()):
                    if event.base_offset >= folded_to:
                        state = advance(state, event)
                self._producers[producer_id] = state
                self.versions[producer_id] = None if item is None else item.version
            return True

    def snapshot(self, producer_ids: Iterable[int]) -> Snapshot | None:
        """Return the state with the states of these producers, or ``None`` while one of them is not loaded."""
        with self.lock:
            wanted = set(producer_ids)
            if not wanted <= self._producers.keys():
                return None
            known = {p: self._producers[p] for p in wanted}
            return Snapshot(self.state, known, self.producers_dropped, self.has_young_head)

    def prune_producers(self) -> None:
        """Forget producers beyond the limit of one process, if the items hold all that is known of them."""
        with self.lock:
            if len(self._producers) > limits.PRODUCERS_CACHED_MAX:
                kept = {p: self._producers[p] for p in self.touched if p in self._producers}
                self._producers, self.versions = kept, {p: self.versions[p] for p in kept}
                self.producers_dropped += 1


def _later(known: Instant | None, look: Instant | None) -> Instant | None:
    """Return the later of two looks; the wall clock, which may go back, does not count."""
    if known is None or look is None:
        return look or known
    return look if look[1:] >= known[1:] else known
