"""One partition as this process knows it: a state folded to some offset, and how old the look at its items is.

The rule: what is remembered here is always a true fold of a prefix of the log, and answers nothing by itself (I4). It
is advanced by whoever meets the next segment, an appender or a reader; segments out of turn are passed over.
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
)
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.ports import Item, ItemKey, NotFound, Unavailable


class Snapshot(NamedTuple):
    """A state, and what it knows of some producers, at one and the same offset."""

    state: PartitionState
    producers: Mapping[int, ProducerState | None]


class Partition:
    """A partition's folded state. Safe to share between threads; no store is called with the lock held."""

    def __init__(self, context: Context, name: str, topic_id: str, partition: int) -> None:
        self.context = context
        self.name = name
        self.topic_id = topic_id
        self.partition = partition
        self.look_keys = (keys.topic_item(name), keys.head_item(topic_id, partition))
        self.lock = context.runtime.lock()
        self.changed = context.runtime.condition(self.lock)
        self.index = SegmentIndex(context, topic_id, partition)
        self.state = PartitionState()
        self.log_start = 0
        self.head: Head | None = None
        self.head_version: int | None = None
        self.view_files: ViewFiles | None = None  # of the compacted view that was last read
        self.base = 0  # the items hold everything below it
        self.aborted: list[AbortedTransaction] = []  # those that ended since
        self.touched: dict[int, int] = {}  # producers that appended since, and where last
        self.segments_since_checkpoint = 0
        self.checkpointed_ms = context.runtime.monotonic_ms()
        self.no_checkpoint_until_ms = 0
        self.overtaken = 0  # how often a checkpoint of others was seen
        self.versions: dict[int, int | None] = {}  # of producer items
        self._producers: dict[int, ProducerState | None] = {}  # None: the partition does not know it
        self._unloaded: dict[int, list[ProducerEvent]] = {}  # since `base`, of producers whose item was not read
        self.last_look: Instant | None = None  # when the last look at the items began
        self._topic: TopicItem | None = None  # as it was read last
        self._bases = 0  # how often `base` moved
        self._resets = 0  # how often the state was adopted
        self._is_followed = False  # to the end of a listing, since the state was adopted
        self.has_looker = False
        self.is_saving = False

    def segment_key(self, offset: int) -> str:
        return keys.segment_key(self.topic_id, self.partition, offset)

    # Looking at the items

    @property
    def is_fresh(self) -> bool:
        """Whether the log was followed to its end, and the last look at its items is young (I4, I7)."""
        return self._is_followed and self.has_young_look

    @property
    def has_young_look(self) -> bool:
        """Whether the last look at the items began less than 60 s ago."""
        return self.is_young(self.last_look)

    def is_young(self, look: Instant | None) -> bool:
        """Whether a look that began at ``look`` began less than 60 s ago, by all three clocks."""
        return look is not None and self.context.is_within(limits.ITEM_AGE_MS_MAX, look)

    def is_end(self, state: PartitionState) -> bool:
        """Whether ``state``, seen to be the log's end, may be told: all that it leans on is young (I4)."""
        with self.lock:
            return self.is_fresh and self.state is state and self.log_start <= state.next_offset

    def keeps(self, offset: int) -> bool | None:
        """Whether ``offset`` is part of the log (I7); ``None`` where only another look can tell."""
        with self.lock:
            return self.log_start <= offset if self.has_young_look else None

    def look(self, *, is_going_allowed: bool = False) -> TopicItem:
        """Read the topic's item and the head in one call, and adopt what they say.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            Unavailable: The items could not be read.
        """
        look = self.context.instant()
        return self.take_look(self.context.items.get(self.look_keys), look, is_going_allowed=is_going_allowed)

    def take_look(self, found: Mapping[ItemKey, Item], look: Instant, *, is_going_allowed: bool = False) -> TopicItem:
        """Adopt what was found by ``look``, as ``look()``; who asked for many partitions' items together has it.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
        """
        topic_key, head_key = self.look_keys
        topic = self._topic_of(found.get(topic_key))
        if topic is None or topic.topic.topic_id != self.topic_id or (topic.is_going and not is_going_allowed):
            raise StaleTopicId
        self._adopt(found.get(head_key), None if topic.is_going else look)
        return topic

    def _topic_of(self, item: Item | None) -> TopicItem | None:
        known = self._topic
        if item is None or (known is not None and known.version == item.version):
            return None if item is None else known
        self._topic = topic_from_item(item)
        return self._topic

    def _adopt(self, item: Item | None, look: Instant | None) -> None:
        with self.lock:
            is_stale = not self.has_young_look
            last = self.last_look
            if look is not None and (last is None or look[1:] >= last[1:]):  # the wall clock may go back
                self.last_look = look
            if is_stale:
                # Whatever was folded since the last look may be a late create of a frozen process, where the log
                # start has passed: only the head, and what stands behind it, is known to be the log.
                self._reset(PartitionState())
            if item is None:
                return
            known = self.head
            if known is not None and item.version == self.head_version and self.state.next_offset >= known.next_offset:
                return  # seen before, and behind us
            head = Head.from_value(item.value)
            self.note_head(head, item.version)
            if head.next_offset > self.state.next_offset:
                self._reset(head.state)

    def _reset(self, state: PartitionState) -> None:
        self.state, self.base = state, state.next_offset
        self.index.reach(state.next_offset)
        self._producers, self._unloaded, self.versions = {}, {}, {}
        self.aborted, self.touched = [], {}
        self.segments_since_checkpoint = 0
        self._bases += 1
        self._resets += 1
        self._is_followed = False
        self.changed.notify_all()

    def note_head(self, head: Head, version: int, *, is_own: bool = False) -> None:
        """Remember the newest head item seen; its log start only moves forward.

        Args:
            is_own: Whether it was written here.
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
        """Drop what was kept for a checkpoint, where the items are known to hold it: a head says so."""
        if base <= self.base:
            return
        self.base = base
        self._bases += 1  # an item that was read before that head may lack what is dropped here
        self.touched = {p: last for p, last in self.touched.items() if last >= base}
        self.aborted = [ended for ended in self.aborted if ended.last_offset >= base]
        kept = {p: [e for e in events if e.base_offset >= base] for p, events in self._unloaded.items()}
        self._unloaded = {p: events for p, events in kept.items() if events}

    def forget(self) -> None:
        """Make the next use look at the items again."""
        with self.lock:
            self.last_look = None

    @property
    def can_checkpoint(self) -> bool:
        """Whether this fold may write over the head: never over one of a higher fold version."""
        return self.head is None or self.head.fold_version <= FOLD_VERSION

    # Following the log

    def take_own(self, base: PartitionState, segment: Segment, folded: Folded) -> None:
        """Take a segment that was made here on ``base`` and stands in the log, with what the fold made of it."""
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
            CorruptLogError: It does not belong behind what was folded before it.
        """
        while True:
            state = self.state
            if segment.base_offset != state.next_offset:
                return False
            if not segment.metadata.follows(state.chain, segment.body):
                key = self.segment_key(segment.base_offset)
                raise corrupt(key, segment.base_offset, "its chain value does not follow from its body and the chain")
            folded = apply(state, segment, region=self.context.region)
            with self.lock:
                if self.state is state:
                    self._take(segment, folded)
                    return True

    def _take(self, segment: Segment, folded: Folded) -> None:
        self.state = folded.state
        self.aborted += folded.aborted
        self.segments_since_checkpoint += 1
        for producer_id, event in folded.events:
            self.touched[producer_id] = event.base_offset
            if producer_id in self._producers:
                self._producers[producer_id] = advance(self._producers[producer_id], event)
            else:
                self._unloaded.setdefault(producer_id, []).append(event)
        self.index.add(segment.base_offset, segment.next_offset)
        self.index.reach(segment.next_offset)
        self.changed.notify_all()

    def catch_up(self) -> None:
        """Fold every segment behind the state: a listing, and the segments side by side.

        Raises:
            CorruptLogError: The segments do not join up, or one is damaged.
            Unavailable: The store could not be asked.
        """
        while True:
            with self.lock:
                resets, start = self._resets, self.state.next_offset
            if self._follow(start, resets):
                continue
            with self.lock:
                if self._resets == resets:
                    self._is_followed = True
                    return

    def _follow(self, start: int, resets: int) -> bool:
        """Fold one listing behind ``start``; return whether there may be more."""
        prefix = keys.log_prefix(self.topic_id, self.partition)
        after = self.segment_key(start - 1) if start else ""
        listed = self.context.objects.list(prefix, after, limits.LIST_MAX)
        for at in range(0, len(listed), limits.FETCH_SEGMENTS):
            for segment in self.fetch([line.key for line in listed[at : at + limits.FETCH_SEGMENTS]]):
                with self.lock:
                    if self._resets != resets:
                        return True  # another thread adopted a head meanwhile: follow from there
                    gap_at = self.state.next_offset
                if segment.base_offset > gap_at:
                    # A listing of what grows may show a key and not the one before it: that one is asked for by itself.
                    if not self.fold_at(gap_at):
                        raise self.hole(gap_at)
                    return True
                self.fold(segment)
        return len(listed) == limits.LIST_MAX

    def fold_at(self, offset: int) -> bool:
        """Fold the segment at ``offset``, which is next; return whether there is one."""
        try:
            self.fold(self.context.segment(self.segment_key(offset)))
        except NotFound:
            return False
        return True

    def fetch(self, segment_keys: Sequence[str]) -> list[Segment]:
        """Return the segments, read side by side.

        Raises:
            CorruptLogError: One is damaged.
            Unavailable: One could not be read, or is gone: what was known of the log start is too old.
        """

        def read(key: str) -> Segment:
            try:
                return self.context.segment(key)
            except NotFound as error:
                self.forget()
                raise Unavailable(f"a segment was collected while it was read: key={key}") from error

        return self.context.runtime.gather([lambda key=key: read(key) for key in segment_keys])  # type: ignore[misc]

    def hole(self, offset: int) -> CorruptLogError | Unavailable:
        """Return what a missing ``offset`` means: damage (I2), if what is known of the log start is young."""
        if not self.keeps(offset):
            self.forget()
            return Unavailable(f"the log start moved while segments were read: offset={offset}")
        return corrupt(self.segment_key(offset), offset, "no segment holds this offset")

    def verified(self) -> PartitionState:
        """Return the state at a verified tail: its next key was seen absent after it was folded (I4).

        The caller has looked at the items less than 60 s before.

        Raises:
            StaleTopicId: The log is sealed.
            CorruptLogError: A segment on the way is damaged.
            Unavailable: A store could not be asked.
        """
        steps = 0
        while True:
            state = self.state
            try:
                segment = self.context.segment(self.segment_key(state.next_offset))
            except NotFound:
                if state.is_sealed:
                    raise StaleTopicId from None
                return state
            self.fold(segment)
            steps += 1
            if steps % limits.FETCH_SEGMENTS == 2:
                self.catch_up()  # far behind: side by side is faster than one by one

    def open(self, *, is_going_allowed: bool = False) -> None:
        """Bring a state that is not known, or not fresh, up to date: one look and one listing.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``look`` and ``catch_up``; the next use opens it again.
        """
        self.look(is_going_allowed=is_going_allowed)
        self.follow()

    def follow(self) -> None:
        """Bring a state whose items were just looked at up to date: one listing.

        Raises:
            CorruptLogError, Unavailable: As ``catch_up``; the next use opens it again.
        """
        try:
            self.catch_up()
        except BaseException:
            self.forget()
            raise

    # Producers

    def load_producers(self, producer_ids: Iterable[int]) -> None:
        """Make the states of these producers known: their items, read after the head, and what was folded since.

        Raises:
            CorruptLogError: An item is ahead of the log, or as ``catch_up``.
            Unavailable: A store could not be asked, or the last look at the items is too old to tell.
        """
        wanted = sorted(set(producer_ids))
        while True:
            with self.lock:
                missing = [p for p in wanted if p not in self._producers][: limits.TRANSACTION_ITEMS_MAX]
                bases, state = self._bases, self.state
            if not missing:
                return
            item_keys = {p: keys.producer_item(self.topic_id, self.partition, p) for p in missing}
            found = self.context.items.get(list(item_keys.values()))
            items = {p: found.get(key) for p, key in item_keys.items()}
            if self._enter_producers(items, bases):
                continue
            self.catch_up()  # an item is ahead of us, or the head moved meanwhile: follow, and read again
            if self.state is state and self._bases == bases:
                if not self.has_young_look:
                    self.forget()  # what the item was ahead by may be collected by now
                    raise Unavailable("the look at the items is too old to tell whether a producer's item is ahead")
                raise CorruptLogError(
                    "a producer's item is ahead of the log; end all servers and rebuild the items: "
                    f"topic={self.name} partition={self.partition} next={state.next_offset}"
                )

    def _enter_producers(self, items: Mapping[int, Item | None], bases: int) -> bool:
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
        """Return the state with these producers', or ``None`` while one of them is not loaded."""
        with self.lock:
            wanted = set(producer_ids)
            if not wanted <= self._producers.keys():
                return None
            return Snapshot(self.state, {p: self._producers[p] for p in wanted})

    def prune_producers(self) -> None:
        """Forget producers beyond what one process keeps, if the items hold all that is known of them."""
        with self.lock:
            if len(self._producers) > limits.PRODUCERS_CACHED_MAX:
                kept = {p: self._producers[p] for p in self.touched if p in self._producers}
                self._producers, self.versions = kept, {p: self.versions[p] for p in kept}

    # Waiting

    def wait(self, state: PartitionState, until_ms: int) -> None:
        """Return when the log may have moved beyond ``state``, at ``until_ms`` (monotonic), or when the process stops.

        One waiter of a process looks at the store for all: after 50 ms, then ever more rarely, down to once a second.
        """
        runtime, stopping = self.context.runtime, self.context.stopping
        pause_ms = limits.POLL_FIRST_MS
        while self.state is state and not stopping.is_set:
            left_ms = until_ms - runtime.monotonic_ms()
            if left_ms <= 0:
                return
            with self.lock:
                if self.state is not state or stopping.is_set:
                    return
                if self.has_looker:
                    self.changed.wait(min(left_ms, limits.POLL_LAST_MS) / 1000)
                    continue
                self.has_looker = True
                self.changed.wait(min(left_ms, pause_ms) / 1000)
            try:
                if self.state is state and not stopping.is_set:
                    self._look_for_next(state)
            finally:
                with self.lock:
                    self.has_looker = False
                    self.changed.notify_all()
            pause_ms = min(2 * pause_ms, limits.POLL_LAST_MS)

    def _look_for_next(self, state: PartitionState) -> None:
        try:
            segment = self.context.segment(self.segment_key(state.next_offset))
        except NotFound:
            return
        self.fold(segment)


def look_at(partitions: Sequence[Partition]) -> None:
    """Let each of these partitions of one incarnation look at its items, all read together; as ``Partition.look``.

    Raises:
        StaleTopicId: The name no longer leads to this incarnation.
        Unavailable: The items could not be read.
    """
    if not partitions:
        return
    context = partitions[0].context
    look = context.instant()
    found = context.read_items(sorted({key for partition in partitions for key in partition.look_keys}))
    for partition in partitions:
        partition.take_look(found, look)
