"""Sweep: one run of the sweeper, of bounded length, over all topics and partitions.

Protocol, "Deleting" and "The sweeper's round".

Rule: each partition goes through these steps in this order:

1. The checkpoint comes forward.
2. Open transactions that are due are ended.
3. The log start moves.
4. The ``state/`` object of the log start is made.
5. Objects go, only ``gc_grace`` after that.

Each step is durable, and harmless to appends, readers and another sweeper. Each step finds by itself the rest of the
step before, because a run may die anywhere.

A round sees the head of every partition, a hundred in a call. These reads are its looks at the items, too. A partition
is passed if its head says that nothing is due, and no segment lies after its head. One listing shows which neighbouring
partitions without a head have segments.

A round goes once over everything: deleted topics, then topics and their partitions by name. It may take several runs.
The position says where the next run continues, and losing it costs a repetition. Once an hour a round is thorough: it
also looks for lapsed producers, ended sessions, every transaction, expired transactional ids, old offers, and orphans.

A problem with one partition is reported, and delays nothing else. Nor does a compaction in which a run dies, because
the position after its partition is saved before it begins.

Not here: the choice of objects and items that may go (``collect``, ``deleted_topics``, the ``*_expiry`` modules), and
of a log start (``retention``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from fenceline import limits
from fenceline.compaction import compact as compaction
from fenceline.errors import CorruptLogError, FencelineError, place_of
from fenceline.format import keys
from fenceline.log import topics
from fenceline.log.checkpoint import move_log_start, save
from fenceline.log.checkpoint_items import Head
from fenceline.log.context import StaleTopicId
from fenceline.log.deletes import Budget
from fenceline.log.partition import Partition
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.model.topic import Topic
from fenceline.ports import Damaged, ObjectSummary, StoreFact, VersionMoved
from fenceline.service.log import Log
from fenceline.subscriptions.heads import SeenHeads, first_with_segments, read_heads, with_segments
from fenceline.sweeper import collect
from fenceline.sweeper.deleted_topics import collect_incarnation, collect_orphans
from fenceline.sweeper.group_expiry import GROUPS, sweep_groups
from fenceline.sweeper.offer_expiry import expire_offers
from fenceline.sweeper.position import SweepPosition, SweepStage
from fenceline.sweeper.producer_expiry import expire_producers
from fenceline.sweeper.report import SweepReport
from fenceline.sweeper.retention import Followed, Now, StoredSegments, retained_from, retention_of
from fenceline.sweeper.session_expiry import sweep_producers, sweep_sessions
from fenceline.sweeper.subscription_expiry import collect_unowned, expire_heard
from fenceline.sweeper.transaction_meetings import TransactionMeetings


def sweep(
    log: Log,
    *,
    duration_ms: int,
    deletes_max: int = limits.SWEEP_DELETES_MAX,
    is_thorough: bool = False,
    pause_ms: int = 0,
) -> SweepReport | None:
    """Sweep from where the last run stopped, then once over everything, as far as time and deletions reach.

    Args:
        deletes_max: How many objects and items are deleted at most.
        is_thorough: Whether a round that begins now is thorough, whenever the last thorough one was.
        pause_ms: If any process began a run less than so long ago, do nothing, and return ``None``.

    Raises:
        FencelineError: A store could not be asked for its time, or for the position. Nothing was done.
        StoreFact: The same.
    """
    context = log.context
    budget = Budget(context, context.runtime.monotonic_ms() + duration_ms, deletes_max)
    cursor = SweepPosition(context)
    if not cursor.begin(pause_ms=pause_ms):
        return None
    store_now_ms = collect.store_now(context)
    run = _Run(log, cursor, budget, store_now_ms)
    if not cursor.is_at_end:
        # This ends the round that the last run left. The work that it could not finish comes up again at once.
        run.go_on()
    if cursor.is_at_end:
        cursor.begin_round(store_now_ms, is_thorough=is_thorough)
        run.go_on()
    return run.end()


class _Run:
    """One run of the sweeper."""

    def __init__(self, log: Log, cursor: SweepPosition, budget: Budget, store_now_ms: int) -> None:
        self._log = log
        self._context = log.context
        self._cursor = cursor
        self._budget = budget
        self._store_now_ms = store_now_ms
        self._began_at = cursor.position
        self._half_ms = (log.context.runtime.monotonic_ms() + budget.until_ms) // 2
        self._bare = "", 0, 0  # (topic id, first, end) of partitions without a segment
        self._is_put_off = False  # True: the next run begins with a compaction that was put off
        # Data is old when both clocks say so, so that one that is wrong by years deletes nothing.
        self._now_ms = min(store_now_ms, log.context.runtime.now_ms())
        self.report = SweepReport()
        self._transactions = TransactionMeetings(
            log.context, budget, self.report, self._reporting, store_now_ms=store_now_ms
        )

    def go_on(self) -> None:
        """Continue the round to its end, or to the end of the budget."""
        self.report.is_thorough = self._cursor.is_thorough
        self._bare = "", 0, 0
        phases = {
            SweepStage.INCARNATIONS: self._incarnations,
            SweepStage.TOPICS: self._topics,
            SweepStage.SESSIONS: self._sessions,
            SweepStage.TRANSACTIONS: self._every_transaction,
            SweepStage.PRODUCER_IDS: self._producer_ids,
            SweepStage.ORPHANS: self._orphans,
        }
        for place, phase in phases.items():
            if self._cursor.place == place:
                phase()
                if self._budget.is_over() or self._is_put_off:
                    return
                self._cursor.go_on(place.following)

    def end(self) -> SweepReport:
        """Leave the position to the next run, and return the report of this run."""
        report = self.report
        with self._reporting("position"):
            self._cursor.save()
        report.is_whole = self._cursor.is_at_end
        report.objects, report.items = self._budget.objects, self._budget.items
        return report

    @contextmanager
    def _reporting(self, where: str) -> Iterator[None]:
        """Report a problem with one thing, so that the run continues with the next."""
        try:
            yield
        except StaleTopicId:
            return  # left to a later run, under ``gone``
        except VersionMoved:
            return  # another process was faster, so the rest is left to the next run
        except (StoreFact, FencelineError) as error:
            self.report.problems.append(f"{where}: {error or type(error).__name__}")
            self.report.is_corrupt = self.report.is_corrupt or isinstance(error, CorruptLogError | Damaged)
        except Exception as error:  # noqa: BLE001  else one partition would end every run, and hold up all behind it
            self.report.problems.append(f"{where}: {place_of(error)}")
            self.report.unexpected += 1

    # The parts of a round

    def _incarnations(self) -> None:
        items, cursor = self._context.items, self._cursor
        while found := items.query(keys.GONE, start_after=cursor.after, limit=limits.TRANSACTION_ITEMS_MAX):
            for gone in found:
                if self._budget.is_over():
                    return
                with self._reporting(f"deleted topic_id={gone.key.sort}"):
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
        """Sweep a topic from the position's partition on. Return True if the run came to the topic's end."""
        name = item.topic.name
        if self._budget.is_over():
            return False
        if item.is_going:
            with self._reporting(f"topic={name}"):
                self._log.topics.resume_delete(item)
            return True
        with self._reporting(f"topic={name}"):
            topics.make_object(self._context, item)
            if self._cursor.is_thorough:
                sweep_producers(self._context, item.topic.topic_id, budget=self._budget)
                collect_unowned(self._context, item.topic.topic_id, now_ms=self._now_ms, budget=self._budget)
                expire_heard(self._context, item.topic.topic_id, now_ms=self._now_ms, budget=self._budget)
        at_once = limits.TRANSACTION_ITEMS_MAX - 1  # the topic's item is read with them
        while (first := self._cursor.partition) < item.topic.partitions:
            if self._budget.is_over():
                return False
            if not self._partitions(item.topic, range(item.topic.partitions)[first : first + at_once]):
                return False
        return True

    def _partitions(self, topic: Topic, numbers: Sequence[int]) -> bool:
        """Sweep neighbouring partitions, whose heads one call reads. Return True if the run came to their end."""
        seen, idle = SeenHeads({}, None), set[int]()
        with self._reporting(f"topic={topic.name} partitions={numbers[0]} to {numbers[-1]}"):
            seen = read_heads(self._context, topic, numbers)
            idle = self._idle(topic, numbers, seen)
            if self._cursor.is_thorough:
                used = [n for n in numbers if n not in idle or seen.head(topic.topic_id, n) is not None]
                expire_offers(self._context, topic.topic_id, used, now_ms=self._now_ms, budget=self._budget)
        for number in numbers:
            if number not in idle:
                if self._budget.is_over():
                    return False
                with self._reporting(f"topic={topic.name} partition={number}"):
                    self._partition(Partition(self._context, topic.name, topic.topic_id, number), seen)
                if self._is_put_off:
                    self._cursor.partition = number
                    return False
            # This also passes a partition that was not finished, which the next round continues.
            self._cursor.partition = number + 1
            self.report.partitions += 1
        return True

    def _idle(self, topic: Topic, numbers: Sequence[int], seen: SeenHeads) -> set[int]:
        """Return the partitions where nothing is due, by their heads and by listings of the segments after these."""
        nexts: dict[int, int] = {}
        for number in numbers:
            head = seen.head(topic.topic_id, number)
            if self._is_idle(head, topic):
                nexts[number] = 0 if head is None else head.next_offset
        headed = {number: next_offset for number, next_offset in nexts.items() if next_offset}
        bare = {number for number in sorted(nexts.keys() - headed.keys()) if self._is_bare(topic.topic_id, number)}
        return bare | headed.keys() - with_segments(self._context, topic.topic_id, headed)

    def _is_bare(self, topic_id: str, number: int) -> bool:
        """Return True if a partition has no segment.

        One listing also shows its neighbours, which is remembered for this round of this run.
        """
        known, first, end = self._bare
        if known != topic_id or not first <= number < end:
            following = first_with_segments(self._context, topic_id, number)
            self._bare = topic_id, number, limits.PARTITIONS_MAX if following is None else following
        return number < self._bare[2]

    def _is_idle(self, head: Head | None, topic: Topic) -> bool:
        """Return True if a partition's head says that nothing is due, provided that no segment lies after it."""
        if head is None or head.next_offset == 0:
            return True
        has_left_behind = head.log_start > 0 or head.view is not None
        is_kept = retention_of(topic) is None or head.next_offset == head.log_start
        is_compacted = not topic.is_compacted or not compaction.is_due(head, is_by_timestamp=topic.is_by_timestamp)
        is_at_rest = not head.state.open_transactions and not self._cursor.is_thorough
        return not has_left_behind and is_kept and is_compacted and is_at_rest

    def _sessions(self) -> None:
        if not self._cursor.is_thorough:
            return  # requests that meet a severed session finish its fences at once
        if not self._cursor.after.startswith(GROUPS):
            with self._reporting("sessions"):
                after = sweep_sessions(
                    self._context,
                    self._cursor.after,
                    now_ms=self._now_ms,
                    budget=self._budget,
                    reporting=self._reporting,
                )
                self._cursor.after = after or self._cursor.after
            if self._budget.is_over():
                return
        if self._cursor.has_groups:
            self._groups()

    def _groups(self) -> None:
        """Sweep the groups: the second half of the sessions' part, because older sweepers know no part of their own."""
        after = self._cursor.after.removeprefix(GROUPS) if self._cursor.after.startswith(GROUPS) else ""
        with self._reporting("groups"):
            left = sweep_groups(
                self._context,
                self._log.subscriptions.live,
                after,
                now_ms=self._now_ms,
                budget=self._budget,
                report=self.report,
                reporting=self._reporting,
            )
            if left is not None:
                self._cursor.after = GROUPS + left

    def _every_transaction(self) -> None:
        if not (self._cursor.is_thorough and self._cursor.has_producer_ids):
            return  # transactions that are open in a partition were met there
        with self._reporting("transactions"):
            after = self._transactions.meet_ids(self._cursor.after, now_ms=self._now_ms)
            self._cursor.after = after or self._cursor.after

    def _producer_ids(self) -> None:
        if not (self._cursor.is_thorough and self._cursor.has_producer_ids):
            return
        with self._reporting("producer ids"):
            after = self._transactions.expire_producer_ids(self._cursor.after, now_ms=self._now_ms)
            self._cursor.after = after or self._cursor.after

    def _orphans(self) -> None:
        if not self._cursor.is_thorough:
            return
        with self._reporting("orphans"):
            after = collect_orphans(self._context, self._cursor.after, self._budget)
            self._cursor.after = after or self._cursor.after

    # One partition

    def _partition(self, partition: Partition, seen: SeenHeads) -> None:
        context, budget, number = self._context, self._budget, partition.partition
        topic = (partition.refresh() if seen.look is None else partition.adopt_look(seen.items, seen.look)).topic
        if not partition.has_young_look:
            topic = partition.refresh().topic
        if not partition.can_checkpoint:
            return  # a newer fenceline sweeps it
        followed = Followed()
        is_at_end = self._bring_forward(partition, followed)
        if partition.head is None or budget.is_over():
            return
        with self._reporting(f"topic={topic.name} partition={number}: open transactions"):
            self._transactions.meet_open(partition)
        self._retain(partition, topic, followed)
        if partition.head.view is not None:
            compaction.note_in_force(partition)
            collect.collect_views(context, topic.topic_id, number, partition.head, budget)
        head = partition.head
        if head.log_start > 0:
            states = collect.list_states(context, topic.topic_id, number)
            self.report.states += collect.keep_state(
                partition, topic, states, store_now_ms=self._store_now_ms, is_over=budget.is_over
            )
            collect.collect_partition(
                context, topic.topic_id, number, head, states, store_now_ms=self._store_now_ms, budget=budget
            )
        if self._cursor.is_thorough and is_at_end and not budget.is_over():
            expiration_ms = topic.setting("producer.id.expiration.ms")
            expire_producers(partition, expiration_ms=expiration_ms, now_ms=self._now_ms, budget=budget)
        if topic.is_compacted:
            self._compact(partition)  # last, since a run may die in it

    def _bring_forward(self, partition: Partition, followed: Followed) -> bool:
        """Bring a checkpoint that fell behind forward, step by step. Return True if it is at the log's end."""
        prefix = keys.log_prefix(partition.topic_id, partition.partition)
        is_first = True
        while not self._budget.is_over():
            if not partition.has_young_look:
                partition.refresh()
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
                        # A listing made during appends may lack a key that precedes others, which is asked for by
                        # itself.
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
        """Return True if the sweeper must write the checkpoint.

        A process that appends writes it by itself, after 16 segments or 10 s.
        """
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
        # The configuration may have changed since this partition's turn began, because the turn can take a whole run.
        if log_start > head.log_start and retention_of(partition.refresh().topic) == kept:
            move_log_start(partition, log_start)
            self.report.log_starts += 1

    def _half_over(self) -> Callable[[], bool]:
        """Return the function that returns True once half of the time that this run has left now is over.

        A compaction decodes its part of the log twice, so the second half is for the part that was read in the first.
        """
        runtime = self._context.runtime
        half_ms = (runtime.monotonic_ms() + self._budget.until_ms) // 2
        return lambda: runtime.monotonic_ms() >= half_ms or self._budget.is_over()

    def _compact(self, partition: Partition) -> None:
        """Compact if that is due. In a run's second half, put a large compaction off to the next run's beginning."""
        head, cursor = partition.head, self._cursor
        assert head is not None
        if not compaction.is_due(head, is_by_timestamp=partition.topic.is_by_timestamp) or self._budget.is_over():
            return
        is_late = self._context.runtime.monotonic_ms() >= self._half_ms and cursor.position != self._began_at
        bytes_max = limits.SWEEP_COMPACTION_LATE_BYTES_MAX if is_late else limits.SWEEP_COMPACTION_BYTES_MAX
        cursor.partition = partition.partition + 1  # so that no second run dies in the same compaction
        with suppress(VersionMoved):  # another run saves its own position
            cursor.save()
        try:
            compaction.compact(
                partition,
                is_forced=False,
                bytes_max=bytes_max,
                decoded_max=limits.SWEEP_COMPACTION_DECODED_BYTES,
                is_over=self._half_over(),
            )
        except compaction.CompactionTooLarge as error:
            if is_late and error.bytes <= limits.SWEEP_COMPACTION_BYTES_MAX:
                self._is_put_off = True
                return
            self.report.problems.append(f"topic={partition.name} partition={partition.partition}: {error}")
        else:
            self.report.compactions += 1
