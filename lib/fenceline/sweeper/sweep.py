"""The sweeper: what time leaves to be done, in runs of bounded length over all topics and partitions.

The rule: the order of DESIGN.md, section 10, for each partition: the checkpoint comes forward, then the log start
moves, then its ``state/`` object is made, and objects go only ``gc_grace`` after that. Each step is durable, harmless
beside appends, readers and another sweeper, and finds by itself what the one before has left: a run may die anywhere.

A round sees the head of every partition, a hundred in a call, which are their looks at the items, too. Where the head
alone says that nothing is due, and no segment stands behind it, that is all. Of partitions without a head one listing
tells for all neighbours.

A round goes once over everything: lives that are over, then topics and their partitions by name. It may take several
runs; a cursor item says where the next one goes on, and losing it costs a repetition. Once an hour a round is thorough:
it also looks for lapsed producers, ended sessions and orphans. What goes wrong with one partition is told, and holds
nothing else up; nor does a compaction that a run dies in, since the place behind it is left to the next run first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

from fenceline import limits
from fenceline.compaction import compact as compaction
from fenceline.errors import CorruptLogError, FencelineError
from fenceline.format import keys
from fenceline.log import topics
from fenceline.log.checkpoint import move_log_start, save
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import StaleTopicId
from fenceline.log.deletes import Budget
from fenceline.log.partition import Partition
from fenceline.log.replay import newest_state, write_state
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.model.topic import Topic
from fenceline.ports import Damaged, ObjectSummary, StoreFact, VersionMoved
from fenceline.service.log import Log
from fenceline.subscriptions.heads import Seen, first_with_segments, look_at, with_segments
from fenceline.sweeper import collect
from fenceline.sweeper.deleted_topics import collect_incarnation, collect_orphans
from fenceline.sweeper.position import Cursor, Place
from fenceline.sweeper.producer_expiry import expire_producers
from fenceline.sweeper.retention import Followed, Now, StoredSegments, retained_from, retention_of
from fenceline.sweeper.session_expiry import sweep_producers, sweep_sessions
from fenceline.sweeper.subscription_expiry import collect_unowned


@dataclass(slots=True)
class Report:
    """What one run did."""

    is_whole: bool = False  # it went over everything; else the next run goes on where this one stopped
    is_thorough: bool = False
    topics: int = 0
    partitions: int = 0
    checkpoints: int = 0  # brought forward
    log_starts: int = 0  # moved by retention
    states: int = 0  # objects made under state/
    compactions: int = 0
    objects: int = 0  # deleted
    items: int = 0  # deleted
    problems: list[str] = field(default_factory=list)
    is_corrupt: bool = False  # stored data breaks an invariant: see ``problems``


def sweep(
    log: Log,
    *,
    duration_ms: int,
    deletes_max: int = limits.SWEEP_DELETES_MAX,
    is_thorough: bool = False,
    pause_ms: int = 0,
) -> Report | None:
    """Sweep from where the last run stopped, and then, once, over everything, as far as time and deletions reach.

    Args:
        deletes_max: How many objects and items are deleted at most.
        is_thorough: Whether a round that begins now is, whenever the last one was.
        pause_ms: Do nothing, and return ``None``, if any process began a run less than so long ago.

    Raises:
        FencelineError: A store could not be asked for its time, or the cursor; nothing was done.
        StoreFact: The same.
    """
    context = log.context
    budget = Budget(context, context.runtime.monotonic_ms() + duration_ms, deletes_max)
    cursor = Cursor(context)
    if not cursor.begin(pause_ms=pause_ms):
        return None
    store_now_ms = collect.store_now(context)
    run = _Run(log, cursor, budget, store_now_ms)
    if not cursor.is_at_end:
        run.go_on()  # with the round that the last run left; what that one could not finish comes up again at once
    if cursor.is_at_end:
        cursor.begin_round(store_now_ms, is_thorough=is_thorough)
        run.go_on()
    return run.end()


class _Run:
    """One run of the sweeper."""

    def __init__(self, log: Log, cursor: Cursor, budget: Budget, store_now_ms: int) -> None:
        self._log = log
        self._context = log.context
        self._cursor = cursor
        self._budget = budget
        self._store_now_ms = store_now_ms
        self._began_at = cursor.position
        self._half_ms = (log.context.runtime.monotonic_ms() + budget.until_ms) // 2
        self._bare = "", 0, 0  # of the incarnation, partitions [first, end) have no segment
        self._is_put_off = False  # a compaction was, to the next run, which begins with it
        # Data is old when both clocks say so: one that is wrong by years deletes nothing.
        self._now_ms = min(store_now_ms, log.context.runtime.now_ms())
        self.report = Report()

    def go_on(self) -> None:
        """Go on with the round to its end, or to the end of the budget."""
        self.report.is_thorough = self._cursor.is_thorough
        self._bare = "", 0, 0
        phases = {
            Place.INCARNATIONS: self._incarnations,
            Place.TOPICS: self._topics,
            Place.SESSIONS: self._sessions,
            Place.ORPHANS: self._orphans,
        }
        for place, phase in phases.items():
            if self._cursor.place == place:
                phase()
                if self._budget.is_over() or self._is_put_off:
                    return
                self._cursor.go_on(place.following)

    def end(self) -> Report:
        """Leave the place to the next run, and return what this one did."""
        report = self.report
        with self._telling("cursor"):
            self._cursor.save()
        report.is_whole = self._cursor.is_at_end
        report.objects, report.items = self._budget.objects, self._budget.items
        return report

    @contextmanager
    def _telling(self, where: str) -> Iterator[None]:
        """Tell what goes wrong with one thing, and go on to the next."""
        try:
            yield
        except StaleTopicId:
            return  # it waits under ``gone`` from now on
        except VersionMoved:
            return  # somebody was faster: the next run looks at what that made of it
        except (StoreFact, FencelineError) as error:
            self.report.problems.append(f"{where}: {error or type(error).__name__}")
            self.report.is_corrupt = self.report.is_corrupt or isinstance(error, CorruptLogError | Damaged)

    # What is swept

    def _incarnations(self) -> None:
        items, cursor = self._context.items, self._cursor
        while found := items.query(keys.GONE, start_after=cursor.after, limit=limits.TRANSACTION_ITEMS_MAX):
            for gone in found:
                if self._budget.is_over():
                    return
                with self._telling(f"deleted topic_id={gone.key.sort}"):
                    collect_incarnation(self._context, gone, store_now_ms=self._store_now_ms, budget=self._budget)
                cursor.after = gone.key.sort

    def _topics(self) -> None:
        items, cursor = self._context.items, self._cursor
        while found := items.query(keys.TOPICS, start_after=cursor.after, limit=limits.TRANSACTION_ITEMS_MAX):
            for item in map(topic_from_item, found):
                if not self._topic(item):
                    return
                cursor.after, cursor.partition = item.topic.name, 0
                self.report.topics += 1

    def _topic(self, item: TopicItem) -> bool:
        """Sweep a topic from the cursor's partition on; return whether it came to its end."""
        name = item.topic.name
        if self._budget.is_over():
            return False
        if item.is_going:
            with self._telling(f"topic={name}"):
                self._log.topics.resume_delete(item)
            return True
        with self._telling(f"topic={name}"):
            topics.make_object(self._context, item)
            if self._cursor.is_thorough:
                sweep_producers(self._context, item.topic.topic_id, budget=self._budget)
                collect_unowned(self._context, item.topic.topic_id, now_ms=self._now_ms, budget=self._budget)
        at_once = limits.TRANSACTION_ITEMS_MAX - 1  # beside the topic's item
        while (first := self._cursor.partition) < item.topic.partitions:
            if self._budget.is_over():
                return False
            if not self._partitions(item.topic, range(item.topic.partitions)[first : first + at_once]):
                return False
        return True

    def _partitions(self, topic: Topic, numbers: Sequence[int]) -> bool:
        """Sweep some neighbours, whose heads one call reads; return whether it came to the end of them."""
        seen, idle = Seen({}, None), set[int]()
        with self._telling(f"topic={topic.name} partitions={numbers[0]} to {numbers[-1]}"):
            seen = look_at(self._context, topic, numbers)
            idle = self._idle(topic, numbers, seen)
        for number in numbers:
            if number not in idle:
                if self._budget.is_over():
                    return False
                with self._telling(f"topic={topic.name} partition={number}"):
                    self._partition(Partition(self._context, topic.name, topic.topic_id, number), seen)
                if self._is_put_off:
                    self._cursor.partition = number
                    return False
            self._cursor.partition = number + 1  # also of one that takes longer: the next round goes on with it
            self.report.partitions += 1
        return True

    def _idle(self, topic: Topic, numbers: Sequence[int], seen: Seen) -> set[int]:
        """Return those of the partitions where nothing is due, by their heads, and by listings of what is behind."""
        nexts: dict[int, int] = {}
        for number in numbers:
            head = seen.head(topic.topic_id, number)
            if self._is_idle(head, topic):
                nexts[number] = 0 if head is None else head.next_offset
        headed = {number: next_offset for number, next_offset in nexts.items() if next_offset}
        bare = {number for number in sorted(nexts.keys() - headed.keys()) if self._is_bare(topic.topic_id, number)}
        return bare | headed.keys() - with_segments(self._context, topic.topic_id, headed)

    def _is_bare(self, topic_id: str, number: int) -> bool:
        """Whether a partition has no segment; what one listing told of its neighbours holds for this round and run."""
        known, first, end = self._bare
        if known != topic_id or not first <= number < end:
            following = first_with_segments(self._context, topic_id, number)
            self._bare = topic_id, number, limits.PARTITIONS_MAX if following is None else following
        return number < self._bare[2]

    def _is_idle(self, head: Head | None, topic: Topic) -> bool:
        """Whether nothing is due in a partition by its head alone, as long as no segment stands behind that."""
        if head is None or head.next_offset == 0:
            return True
        has_left_behind = head.log_start > 0 or head.view is not None
        is_kept = retention_of(topic) is None or head.next_offset == head.log_start
        is_compacted = topic.setting("cleanup.policy") != "compact" or not compaction.is_due(head)
        return not has_left_behind and is_kept and is_compacted and not self._cursor.is_thorough

    def _sessions(self) -> None:
        if not self._cursor.is_thorough:
            return  # who meets a severed session finishes its fences at once
        with self._telling("sessions"):
            after = sweep_sessions(
                self._context,
                self._cursor.after,
                now_ms=self._now_ms,
                budget=self._budget,
                telling=self._telling,
            )
            self._cursor.after = after or self._cursor.after

    def _orphans(self) -> None:
        if not self._cursor.is_thorough:
            return
        with self._telling("orphans"):
            after = collect_orphans(self._context, self._cursor.after, self._budget)
            self._cursor.after = after or self._cursor.after

    # One partition

    def _partition(self, partition: Partition, seen: Seen) -> None:
        context, budget, number = self._context, self._budget, partition.partition
        topic = (partition.look() if seen.look is None else partition.take_look(seen.items, seen.look)).topic
        if not partition.has_young_look:
            topic = partition.look().topic
        if not partition.can_checkpoint:
            return  # a newer fenceline sweeps it
        followed = Followed()
        is_at_end = self._bring_forward(partition, followed)
        if partition.head is None or budget.is_over():
            return
        self._retain(partition, topic, followed)
        if partition.head.view is not None:
            compaction.note_in_force(partition)
            collect.collect_views(context, topic.topic_id, number, partition.head, budget)
        head = partition.head
        if head.log_start > 0:
            states = collect.list_states(context, topic.topic_id, number)
            self._keep_state(partition, topic, states)
            collect.collect_partition(
                context, topic.topic_id, number, head, states, store_now_ms=self._store_now_ms, budget=budget
            )
        if self._cursor.is_thorough and is_at_end and not budget.is_over():
            expiration_ms = topic.setting("producer.id.expiration.ms")
            expire_producers(partition, expiration_ms=expiration_ms, now_ms=self._now_ms, budget=budget)
        if topic.setting("cleanup.policy") == "compact":
            self._compact(partition)  # last: a run may die in it

    def _bring_forward(self, partition: Partition, followed: Followed) -> bool:
        """Bring a checkpoint forward that fell behind, step by step; return whether it is at the log's end now."""
        prefix = keys.log_prefix(partition.topic_id, partition.partition)
        is_first = True
        while not self._budget.is_over():
            if not partition.has_young_look:
                partition.look()
            start = partition.state.next_offset
            after = partition.segment_key(start - 1) if start else ""
            listed = self._context.objects.list(prefix, after, limits.SWEEP_FOLD_SEGMENTS)
            if not listed:
                return True
            if is_first and not self._is_behind(listed):
                return False
            is_first = False
            for at in range(0, len(listed), limits.FETCH_SEGMENTS):
                for segment in partition.fetch([line.key for line in listed[at : at + limits.FETCH_SEGMENTS]]):
                    while not partition.fold(segment) and segment.base_offset > partition.state.next_offset:
                        # A listing of what grows may lack a key before others: that one is asked for by itself.
                        if not partition.fold_at(partition.state.next_offset):
                            raise partition.hole(partition.state.next_offset)
                    followed.note(segment.base_offset, segment.metadata.appended_at)
                if self._budget.is_over():
                    break
            save(partition)
            self.report.checkpoints += 1
            if len(listed) < limits.SWEEP_FOLD_SEGMENTS:
                return not self._budget.is_over()
        return False

    def _is_behind(self, listed: Sequence[ObjectSummary]) -> bool:
        """Whether nobody else will see to it: who appends keeps a checkpoint himself, after 16 segments or 10 s."""
        is_old = self._store_now_ms - listed[0].modified_at >= limits.CHECKPOINT_MS
        return is_old or len(listed) >= limits.CHECKPOINT_SEGMENTS or self._cursor.is_thorough

    def _retain(self, partition: Partition, topic: Topic, followed: Followed) -> None:
        head, kept = partition.head, retention_of(topic)
        assert head is not None
        if kept is None or head.state.next_offset == head.log_start:
            return
        now = Now(self._now_ms, self._store_now_ms)
        segments = StoredSegments(partition, followed)
        log_start = retained_from(segments, head, kept, now=now, is_over=self._budget.is_over)
        # It may have been altered since this partition's turn began: to fold and to walk takes up to a whole run.
        if log_start > head.log_start and retention_of(partition.look().topic) == kept:
            move_log_start(partition, log_start)
            self.report.log_starts += 1

    def _compact(self, partition: Partition) -> None:
        """Compact what is due; a large one, in a run's second half, is put off to the next run's beginning."""
        head, cursor = partition.head, self._cursor
        assert head is not None
        if not compaction.is_due(head) or self._budget.is_over():
            return
        is_late = self._context.runtime.monotonic_ms() >= self._half_ms and cursor.position != self._began_at
        bytes_max = limits.SWEEP_COMPACTION_LATE_BYTES_MAX if is_late else limits.SWEEP_COMPACTION_BYTES_MAX
        cursor.partition = partition.partition + 1  # a run that dies in it must not begin with it again
        with suppress(VersionMoved):  # another run is under way, and leaves its own place
            cursor.save()
        try:
            compaction.compact(partition, is_forced=False, bytes_max=bytes_max)
        except compaction.CompactionTooLarge as error:
            if error.bytes <= limits.SWEEP_COMPACTION_BYTES_MAX:
                self._is_put_off = True
                return
            self.report.problems.append(f"topic={partition.name} partition={partition.partition}: {error}")
        else:
            self.report.compactions += 1

    def _keep_state(self, partition: Partition, topic: Topic, states: Sequence[ObjectSummary]) -> None:
        """Make the object under ``state/`` for the log start, at most once in 10 minutes."""
        context, head = self._context, partition.head
        assert head is not None
        newest = states[-1] if states else None
        if newest is not None:
            is_there = keys.parse_state_key(newest.key)[2] >= head.log_start
            if is_there or self._store_now_ms - newest.modified_at < limits.STATE_MS:
                return
        try:
            reached = write_state(
                context,
                topic.topic_id,
                partition.partition,
                head.log_start,
                segments_max=limits.SWEEP_STATE_SEGMENTS_MAX,
                expiration_ms=topic.setting("producer.id.expiration.ms"),
                is_over=self._budget.is_over,
            )
        except CorruptLogError:
            if newest == newest_state(context, topic.topic_id, partition.partition):
                raise
            return  # another run has made one: what this one read, while it was frozen, was collected
        self.report.states += newest is None or reached > keys.parse_state_key(newest.key)[2]
