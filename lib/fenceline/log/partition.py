"""One partition as this process follows it: looks at its items, reads its segments, waits for the next one.

Rule: the store calls that bring the memory up to date are made here, and none with the lock held. A state may be
answered from only once its tail is verified (I4).

Not here: what is remembered, and how a segment advances it; see ``partition_memory``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.segment import Segment
from fenceline.log.context import StaleTopicId
from fenceline.log.partition_memory import LookAgain, PartitionMemory
from fenceline.log.state import PartitionState
from fenceline.log.topic_item import TopicItem
from fenceline.model.topic import Topic
from fenceline.ports import NotFound, Unavailable


class Partition(PartitionMemory):
    """A partition that can be brought up to date. Safe to share between threads."""

    def look(self, *, is_going_allowed: bool = False) -> TopicItem:
        """Read the topic's item and the head in one call, and adopt what they say.

        Raises:
            StaleTopicId: The name no longer leads to this incarnation.
            Unavailable: The items could not be read.
        """
        look = self.context.instant()
        return self.take_look(self.context.items.get(self.look_keys), look, is_going_allowed=is_going_allowed)

    @property
    def topic(self) -> Topic:
        """Return the topic as the last look showed it; look, if there was none.

        Raises:
            StaleTopicId, Unavailable: As ``look``.
        """
        return (self._topic or self.look()).topic

    def catch_up(self) -> None:
        """Fold every segment after the state: by listings, the segments of each fetched side by side.

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
                    # A listing of a growing log may show a key and lack the one before it: read that one by itself.
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
            Unavailable: One could not be read. Or it was collected: what is known of the log start is too old.
        """

        def read(key: str) -> Segment:
            try:
                return self.context.segment(key)
            except NotFound as error:
                self.forget()
                raise Unavailable(f"the sweeper deleted a segment while it was read: key={key}") from error

        return self.context.runtime.gather([lambda key=key: read(key) for key in segment_keys])  # type: ignore[misc]

    def hole(self, offset: int) -> CorruptLogError | LookAgain:
        """Return what a missing ``offset`` means."""
        return self.contradiction(offset, "no segment holds this offset")

    def verified(self) -> PartitionState:
        """Return the state of a verified tail: its next key was seen absent after the state was folded (I4).

        The caller must have looked at the items less than 60 s before.

        Raises:
            StaleTopicId: The log is sealed.
            CorruptLogError: A segment on the way is damaged.
            LookAgain: The last look at the head is too old to go on from.
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
        """Bring a state that is unknown, or no longer fresh, up to date: by one look and one listing.

        A process that was frozen after its look, or reads for long, and met what the look cannot explain, looks again.
        What it met is damage if the log start has not passed where it began: then nothing that it read was collected.

        Raises:
            StaleTopicId, CorruptLogError, Unavailable: As ``look`` and ``catch_up``; the next use opens it again.
        """
        damage: CorruptLogError | None = None
        start = 0
        while True:
            self.look(is_going_allowed=is_going_allowed)
            with self.lock:
                if damage is not None and self.has_young_head and self.log_start <= start:
                    raise damage
                start = self.state.next_offset
            try:
                return self.follow()
            except LookAgain as again:
                damage = again.damage

    def follow(self) -> None:
        """Bring a state whose items were just looked at up to date: by one listing.

        Raises:
            CorruptLogError, Unavailable: As ``catch_up``; the next use opens it again.
        """
        try:
            self.catch_up()
        except BaseException:
            self.forget()
            raise

    def is_moving(self) -> bool:
        """Look at the items, and return True if others append at this moment: more follows the head than last time.

        It takes two calls, however many segments there are by now. Where none follows the head, the log was followed.

        Raises:
            StaleTopicId, Unavailable: As ``look``, or the object store could not be asked.
        """
        self.look()
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
        """Load the states of these producers: from their items, read after the head, and the events folded since.

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
            with self.lock:  # the look's age counts for this state, and not for one of another thread's look
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

        One waiter of a process looks at the store for all of them: after ``pause_ms``, then ever more rarely, down to
        once a second.

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

    def _look_for_next(self, state: PartitionState) -> None:
        try:
            segment = self.context.segment(self.segment_key(state.next_offset))
        except NotFound:
            return
        try:
            self.fold(segment)
        except LookAgain:
            self.open()  # the process was frozen: `state` may not have been the log's


def look_at(partitions: Sequence[Partition]) -> None:
    """Look at the items of several partitions of one incarnation, all read together; as ``Partition.look`` for each.

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
