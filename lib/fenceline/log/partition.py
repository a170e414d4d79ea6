"""One partition as this process follows it: its state at some offset, and how old the last look at its items is.

Rule: the state and its fields change only with the lock held, and no store is called meanwhile. The state is always
that of a prefix of the log, and answers nothing until its tail is verified (I4). An appender or a reader that finds the
next segment advances the state. Any other segment is ignored.

Rule: a partition, and its appender, exist once in this process for as long as any request has them (``Partitions``). An
appender is made at the first append, so a reader makes none. Only an idle partition is dropped, because that loses
nothing.

Not here: which incarnation of a topic a name leads to (``service.resolver``); how a partition is appended to
(``append.appender``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

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
    AbortedRange,
    Folded,
    PartitionState,
    ProducerEvent,
    ProducerState,
    TentativeState,
    advance,
    apply,
    lowers_epoch,
)
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.model.topic import Topic
from fenceline.ports import Item, ItemKey, NotFound, Unavailable
from fenceline.runtime import Runtime

_LOOKS_PER_DROP = 16  # at the least recently used partitions, for one that is idle


class Snapshot(NamedTuple):
    """A state, and the states of some producers, at one and the same offset."""

    state: PartitionState
    producers: Mapping[int, ProducerState | None]
    producers_dropped: int  # as ``Partition`` counts
    is_young: bool  # taken while the last look at the head was young, so that all folded segments are the log (I3)

    def tentative(self) -> TentativeState:
        """Return the state as a group of entries begins to change it."""
        return TentativeState(self.state, dict(self.producers), self.producers_dropped)


class Watch:
    """What one thread waits on while it waits for several partitions. Its lock is taken within theirs, never around."""

    def __init__(self, runtime: Runtime) -> None:
        self._lock = runtime.lock()
        self._changed = runtime.condition(self._lock)
        self._is_woken = False

    def wake(self) -> None:
        with self._lock:
            self._is_woken = True
            self._changed.notify_all()

    def wait(self, duration_ms: float) -> bool:
        """Return once a partition has changed since the last call, or after ``duration_ms``; and whether one has."""
        with self._lock:
            if not self._is_woken:
                self._changed.wait(duration_ms / 1000)
            is_woken, self._is_woken = self._is_woken, False
            return is_woken


class LookAgain(Unavailable):
    """The last look at the head is too old to show whether the log is damaged, or a late create was read. Look again.

    Attributes:
        damage: The error to raise if the next look shows that the offset from which the log was followed is kept.
    """

    def __init__(self, what: str, damage: CorruptLogError | None = None) -> None:
        super().__init__(what)
        self.damage = damage


class Partition:
    """A partition's state, and what this process knows around it. Safe to share between threads."""

    seen_end = ""  # the last segment's key, when this process looked whether others append
    _head_look: Instant | None = None  # when the last look at the head began, also of a topic that is going
    watches: tuple[Watch, ...] = ()  # of held polls, each of which waits for several partitions
    _certain = 0  # segments below this offset were folded before a look that was young then

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
        self.view_files: ViewFiles | None = None  # the files of the compacted view that a reader read last
        self.base = 0  # the items hold everything below it
        self.aborted: list[AbortedRange] = []  # ended at or above `base`
        self.touched: dict[int, int] = {}  # producers that appended at or above `base`: their last offset there
        self.segments_since_checkpoint = 0
        self.checkpointed_ms = context.runtime.monotonic_ms()
        self.no_checkpoint_until_ms = 0
        self.overtaken = 0  # how often another process's checkpoint was seen
        self.versions: dict[int, int | None] = {}  # the producers' items', by producer id
        self._producers: dict[int, ProducerState | None] = {}  # None: the partition does not know it
        # How often states of producers may have been dropped. While the count stays the same, each state of a producer
        # has followed from the one before, segment by segment.
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
        """Return True if the process may forget it: no reader waits, and no offer of this process is looked for."""
        return not (self.awaited or self.has_looker or self.watches)

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
        """Return True if the head was looked at less than 60 s ago, so that nothing below its log start was folded."""
        return self.is_young(self._head_look)

    @property
    def young_end(self) -> int | None:
        """Return the end of the folded segments; ``None`` if the look is old, because one may be a late create then."""
        with self.lock:
            return self.state.next_offset if self.has_young_head else None

    def is_young(self, look: Instant | None) -> bool:
        """Return True if a look that began at ``look`` began less than 60 s ago by all three clocks."""
        return look is not None and self.context.is_within(limits.ITEM_AGE_MS_MAX, look)

    def is_end(self, state: PartitionState) -> bool:
        """Return True if ``state`` is a verified tail: it was seen at the log's end, and the look is young (I4)."""
        # model: Append, "look is young at answer"
        # model: Append, "same state at answer"
        # model: Append, "log start at answer"
        with self.lock:
            return self.is_fresh and self.state is state and self.log_start <= state.next_offset

    def is_kept(self, offset: int, *, is_going_allowed: bool = False) -> bool:
        """Return True if ``offset`` is part of the log, by a look less than 60 s old (I7). Look if the last is older.

        Args:
            is_going_allowed: Whether the topic may be going; a new look is then taken in any case.

        Raises:
            StaleTopicId, Unavailable: As ``refresh``.
        """
        with self.lock:  # model: Append, "look is young at create"
            if self.has_young_look and not is_going_allowed:
                return self.log_start <= offset
        self.refresh(is_going_allowed=is_going_allowed)
        return self.log_start <= offset

    def adopt_look(self, found: Mapping[ItemKey, Item], look: Instant, *, is_going_allowed: bool = False) -> TopicItem:
        """Adopt the items that a look found; ``refresh_all`` reads those of many partitions together.

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
        if topic.topic.topic_id == self.topic_id:  # nothing is kept of the name's next incarnation
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
                # start has passed. Only the head, and the segments after the head, are known to be the log.
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
        """Replace the state by ``state``, with no producers loaded; the lock is held."""
        self.state, self.base = state, state.next_offset
        self.index.reach(state.next_offset)
        self._producers, self._unloaded, self.versions = {}, {}, {}
        self.producers_dropped += 1
        self.aborted, self.touched = [], {}
        self.segments_since_checkpoint = 0
        self._bases += 1
        self._resets += 1
        self._is_followed = False
        self.notify()

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
        """Drop what was kept for a checkpoint below ``base``, because a head says that the items hold it."""
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
        """Return True if this version may overwrite the head, whose fold version is not higher."""
        return self.head is None or self.head.fold_version <= FOLD_VERSION

    def is_checkpoint_due(self, *, is_early: bool = False) -> bool:
        """Return True if, since the last checkpoint, 16 segments were folded, or 10 s passed and any was folded.

        None is due in the 10 s after one that failed, so that appends do not wait for an item store that is down or
        slow.

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
        """Advance by a segment that this process created on ``base``, and whose fold is known already."""
        with self.lock:
            if self.state is base:
                self._take(segment, folded)
                return
        self.fold(segment)  # a reader folded it first, or another head was adopted

    def fold(self, segment: Segment) -> bool:
        """Fold a segment that was read from the log, if it is the next one.

        Returns:
            Whether it was the next one.

        Raises:
            CorruptLogError: Its chain value does not follow from the segments that were folded before.
            LookAgain: It does not follow, and a late create may have been folded before it.
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
        """Return the error for a segment at ``offset`` that contradicts the folded ones below it.

        The log is damaged (I2) if the head was looked at lately, and has ``offset``. Otherwise the process may have
        been frozen while the log start moved, and may have folded a late create at a collected key.
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
        for watch in self.watches:
            watch.wake()

    # Producers

    def _enter_producers(self, items: Mapping[int, Item | None], bases: int) -> bool:
        """Enter producers by their items, brought forward to the state.

        Args:
            bases: The value of ``_bases`` before the items were read.

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
        """Forget producers beyond the limit of one process, if the items hold their states."""
        with self.lock:
            if len(self._producers) > limits.PRODUCERS_CACHED_MAX:
                kept = {p: self._producers[p] for p in self.touched if p in self._producers}
                self._producers, self.versions = kept, {p: self.versions[p] for p in kept}
                self.producers_dropped += 1

    # Updates from the stores, without the lock

    def refresh(self, *, is_going_allowed: bool = False) -> TopicItem:
        """Read the topic's item and the head in one call, and adopt them.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            Unavailable: The items could not be read.
        """
        look = self.context.instant()
        return self.adopt_look(self.context.items.get(self.look_keys), look, is_going_allowed=is_going_allowed)

    @property
    def topic(self) -> Topic:
        """Return the topic as the last look showed it; look, if there was none.

        Raises:
            StaleTopicId, Unavailable: As ``refresh``.
        """
        return (self._topic or self.refresh()).topic

    def catch_up(self) -> None:
        """Fold every segment after the state, by listings, whose segments are fetched side by side.

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
        """Fold the segments of one listing from ``start`` on; return whether there may be more."""
        after = self.segment_key(start - 1) if start else ""
        listed = self.context.objects.list(self.log_prefix, after, limits.LIST_MAX)
        for at in range(0, len(listed), limits.FETCH_SEGMENTS):
            for segment in self.fetch([line.key for line in listed[at : at + limits.FETCH_SEGMENTS]]):
                with self.lock:
                    if self._resets != resets:
                        return True  # another thread adopted a head meanwhile: follow from there
                    gap_at = self.state.next_offset
                if segment.base_offset > gap_at:
                    # A listing of a growing log may show a key and lack the one before it, which is read by itself.
                    if not self.fold_at(gap_at):
                        with self.lock:
                            if self._resets == resets:  # else another thread's look is not of this state
                                raise self.hole(gap_at)
                    return True
                self.fold(segment)
        return len(listed) == limits.LIST_MAX

    def fold_at(self, offset: int) -> bool:
        """Fold the segment at ``offset``, the next one; return whether it exists."""
        try:
            self.fold(self.context.segment(self.segment_key(offset)))
        except NotFound:
            return False
        return True

    def fetch(self, segment_keys: Sequence[str]) -> list[Segment]:
        """Return the segments, read side by side.

        Raises:
            CorruptLogError: One is damaged.
            Unavailable: One could not be read. Or it was collected, because the look at the log start is too old.
        """

        def read(key: str) -> Segment:
            try:
                return self.context.segment(key)
            except NotFound as error:
                self.forget()
                raise Unavailable(f"the sweeper deleted a segment while it was read: key={key}") from error

        return self.context.runtime.gather([partial(read, key) for key in segment_keys])

    def hole(self, offset: int) -> CorruptLogError | LookAgain:
        """Return the error for a missing segment at ``offset``."""
        return self.contradiction(offset, "no segment holds this offset")

    def verified(self) -> PartitionState:
        """Return the state of a verified tail: its next key was seen absent after the state was folded (I4).

        The caller must have looked at the items less than 60 s before.

        Raises:
            StaleTopicId: The log is sealed.
            CorruptLogError: A segment on the way is damaged.
            LookAgain: The last look at the head is too old to go on.
            Unavailable: A store could not be asked.
        """
        steps = 0
        while True:
            state = self.state
            try:
                segment = self.context.segment(self.segment_key(state.next_offset))
            except NotFound:  # model: Append, "next key is absent"
                if state.is_sealed:
                    raise StaleTopicId from None
                return state
            self.fold(segment)
            steps += 1
            if steps % limits.FETCH_SEGMENTS == 2:
                self.catch_up()  # far behind: side by side is faster than one by one

    def open(self, *, is_going_allowed: bool = False) -> None:
        """Bring a state that is unknown, or not fresh, up to date, by one look and one listing.

        A process that was frozen after its look, or reads for long, may find segments that contradict the look. It then
        looks again. The contradiction is damage if the log start has not passed the offset at which the process began
        to read, because then no segment that it read was collected.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``refresh`` and ``catch_up``; the next use opens it again.
        """
        damage: CorruptLogError | None = None
        start = 0
        while True:
            self.refresh(is_going_allowed=is_going_allowed)
            with self.lock:
                if damage is not None and self.has_young_head and self.log_start <= start:
                    raise damage
                start = self.state.next_offset
            try:
                return self.follow()
            except LookAgain as again:
                damage = again.damage

    def follow(self) -> None:
        """Bring a state whose items were just looked at up to date, by one listing.

        Raises:
            CorruptLogError, Unavailable: As ``catch_up``; the next use opens it again.
        """
        try:
            self.catch_up()
        except BaseException:
            self.forget()
            raise

    def is_moving(self) -> bool:
        """Look at the items, and return True if others append now: more segments follow the head than last time.

        It takes two calls, however many segments there are by now. Where no segment follows the head, the log has been
        followed.

        Raises:
            StaleTopicId, Unavailable: As ``refresh``, or the object store could not be asked.
        """
        self.refresh()
        with self.lock:
            resets, start, seen = self._resets, self.state.next_offset, self.seen_end
        after = self.segment_key(start - 1) if start else ""
        listed = self.context.objects.list(self.log_prefix, after, limits.LIST_MAX)
        with self.lock:
            self.seen_end = listed[-1].key if listed else ""
            if self._resets == resets:
                self._is_followed = not listed
        return bool(listed) and listed[-1].key != seen

    def load_producers(self, producer_ids: Iterable[int]) -> None:
        """Load the states of these producers from their items, read after the head, and from the events folded since.

        Raises:
            CorruptLogError: An item is ahead of the log, or as ``catch_up``.
            Unavailable: A store could not be asked, or an item is ahead and the last look at the items is too old.
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
            self.catch_up()  # an item is ahead of the state, or the head moved: follow the log, and read again
            with self.lock:  # the look's age counts for this state, and not for one that another thread adopted
                if self.state is not state or self._bases != bases:
                    continue
                if not self.has_young_look:
                    self.forget()  # the segments that the item is ahead by may be collected by now
                    raise Unavailable("the server's last look at the items is too old to judge a producer's item by")
                raise CorruptLogError(
                    "a producer's item is ahead of the log; stop all servers and rebuild the items: "
                    f"topic={self.name} partition={self.partition} next={state.next_offset}"
                )

    # Waiting

    def wait(self, state: PartitionState, until_ms: int, pause_ms: int = limits.POLL_FIRST_MS) -> None:
        """Return when the log may have moved beyond ``state``, at ``until_ms`` (monotonic), or when the process stops.

        One waiter of a process polls the store for all of them: after ``pause_ms``, then ever more rarely, down to once
        a second.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``open``.
        """
        runtime, stopping = self.context.runtime, self.context.stopping
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

    def look(self) -> None:
        """Look for the next segment, and fold it, without a look at the items.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``open``.
        """
        self._look_for_next(self.state)

    def watch(self, watch: Watch) -> None:
        """Have ``watch`` woken by each change of the state, until ``unwatch``."""
        with self.lock:
            self.watches = (*self.watches, watch)

    def unwatch(self, watch: Watch) -> None:
        with self.lock:
            self.watches = tuple(one for one in self.watches if one is not watch)

    def notify(self) -> None:
        """Wake all who wait for a change of the state; the lock is held."""
        self.changed.notify_all()
        for watch in self.watches:
            watch.wake()

    def _look_for_next(self, state: PartitionState) -> None:
        try:
            segment = self.context.segment(self.segment_key(state.next_offset))
        except NotFound:
            return
        try:
            self.fold(segment)
        except LookAgain:
            self.open()  # the process was frozen, so `state` may not have been the log's


def refresh_all(partitions: Sequence[Partition]) -> None:
    """Look at the items of several partitions of one incarnation, all read together; as ``Partition.refresh`` for each.

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
        partition.adopt_look(found, look)


def _later(known: Instant | None, look: Instant | None) -> Instant | None:
    """Return the later of two looks, not by the wall clock, which may go back."""
    if known is None or look is None:
        return look or known
    return look if look[1:] >= known[1:] else known


# The partitions of one process


class Appending(Protocol):
    """The appender of one partition, as ``Partitions`` keeps it."""

    @property
    def partition(self) -> Partition: ...
    @property
    def is_idle(self) -> bool:
        """Return True if the process may forget this appender."""


A = TypeVar("A", bound=Appending)


class Partitions:
    """The partitions of one process, over one context. Safe to share between threads."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self._lock = context.runtime.lock()
        self._kept: OrderedDict[tuple[str, int], Partition] = OrderedDict()  # least recently used first
        self._appenders: dict[tuple[str, int], Any] = {}  # one for a partition that is kept and was appended to
        # Also partitions that were dropped while a request had them, because each exists once.
        self._in_use: WeakValueDictionary[tuple[str, int], Partition] = WeakValueDictionary()
        self._appenders_in_use: WeakValueDictionary[tuple[str, int], Any] = WeakValueDictionary()

    def get(self, name: str, topic_id: str, partition: int) -> Partition:
        """Return one incarnation's partition, which finds out by itself if the name leads elsewhere."""
        key = (topic_id, partition)
        with self._lock:
            kept = self._kept.get(key)
            if kept is not None and len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                self._kept.move_to_end(key)
                return kept
            found = self._in_use.get(key)
            if found is None:
                found = self._in_use[key] = Partition(self.context, name, topic_id, partition)
            self._keep(key, found)
            return found

    def appender(
        self, name: str, topic_id: str, partition: int, make: Callable[[Partition, Callable[[Partition], None]], A]
    ) -> A:
        """Return the appender of one incarnation's partition.

        Args:
            make: Makes the appender of a partition. The appender calls the second argument with the partition when a
                caller leaves a request there, because from then on the process must not forget the two.
        """
        key = (topic_id, partition)
        with self._lock:
            appender: A | None = self._appenders.get(key)
            if appender is not None and len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                self._kept.move_to_end(key)
                return appender
            found = self.get(name, topic_id, partition)
            appender = self._appenders_in_use.get(key)
            if appender is None:
                appender = self._appenders_in_use[key] = make(found, self._keep_left)
                self._keep(key, found)
            return appender

    def _keep_left(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.partition)
        with self._lock:
            if self._in_use.get(key) is partition:  # else its incarnation has ended
                self._keep(key, partition)

    def _keep(self, key: tuple[str, int], partition: Partition) -> None:
        """Remember a partition with its appender, and drop the least recently used ones where there are too many.

        A partition is dropped only while no reader waits in it, nothing waits in its appender, and each create has an
        outcome. While a request still has the dropped partition, no second one is made. If that request leaves a group
        in the appender, the partition and its appender are kept again.
        """
        self._kept[key] = partition
        self._kept.move_to_end(key)
        appender = self._appenders_in_use.get(key)
        if appender is not None:
            self._appenders[key] = appender
        for _ in range(_LOOKS_PER_DROP):
            if len(self._kept) <= limits.PARTITIONS_CACHED_MAX:
                return
            oldest, partition = next(iter(self._kept.items()))
            appender = self._appenders.get(oldest)
            if partition.is_idle and (appender is None or appender.is_idle):
                del self._kept[oldest]
                self._appenders.pop(oldest, None)
            else:
                self._kept.move_to_end(oldest)

    def forget(self, topic_id: str, partitions: int) -> None:
        """Forget the partitions of an incarnation that has ended."""
        tables: Sequence[Any] = (self._kept, self._appenders, self._in_use, self._appenders_in_use)
        with self._lock:
            for partition in range(partitions):
                for table in tables:
                    table.pop((topic_id, partition), None)

    def kept(self) -> Sequence[Partition]:
        """Return the partitions that are remembered, the least recently used first."""
        with self._lock:
            return list(self._kept.values())
