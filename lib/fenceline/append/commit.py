"""The commit: the create that appends a group to a partition, and what follows from its outcome.

Rule: *the only thing that commits an append is the creation, if absent, of the segment at the state's next offset*
("The commit point", I1). Its line is in ``GroupCommit._create``. A group whose create was not answered stays at its
offset until the outcome there is known ("Frozen groups").

Rule: no pause decides which process may append; the create does (I1). Pauses keep a loser from spending its own time,
and its rivals', on losing. Gaps keep a winner from shutting the others out for good ("Rivals take turns"). Times are
measured in *tries*: one try is what this process takes to follow the log to its end and create there. So they fit a
process near the store and one far from it.

Not here: which entries form a group; see ``queue``. When a caller leads; see ``appender``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fenceline.append.queue import AppendQueue, Group, Ticket
from fenceline.errors import OutcomeUnknownError
from fenceline.format.segment import read_segment
from fenceline.log.checkpoint import advance_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import pause
from fenceline.ports import AlreadyExists, Conflict, NoAnswer, NotFound, Unavailable


class GroupCommit(AppendQueue):
    """A partition's queue whose present group can be created, settled and answered by the caller that leads."""

    def __init__(self, partition: Partition, keep: Callable[[Any], None]) -> None:
        super().__init__(partition, keep)
        self._backoff = ContentionBackoff()
        self._create_at = 0  # when the present create began
        self._try_at = 0  # when the present try began, on the monotonic clock

    @property
    def backoff(self) -> ContentionBackoff:
        return self._backoff

    def _create(self, group: Group) -> None:
        """Create the group's segment at the state's next offset, and settle the group by the store's answer."""
        segment = group.segment
        assert segment is not None
        key = self.partition.segment_key(segment.base_offset)
        with self._lock:
            if self._group is not group:
                return  # dissolved by a caller that left before the first create
            was_unknown, group.is_unknown = group.is_unknown, True
        group.attempts += 1
        runtime = self._context.runtime
        self._create_at = runtime.monotonic_ms()
        if not self._backoff.losses or group.attempts > 1 or segment.metadata.offers:
            self._try_at = self._create_at
        try:
            # The commit point (I1): this create, if absent, commits the append. A process that loses it has written
            # nothing that a reader can see. It folds the winner's segment, and checks its entries again after that.
            # model: Append, "create if absent"
            # model: Access, "create at the judged offset"
            self._context.objects.create(key, segment.body, segment.metadata.to_strings())
        except AlreadyExists:
            self._backoff.answered(runtime.monotonic_ms() - self._create_at)
            self._meet(group, key, was_unknown=was_unknown)
        except NoAnswer:
            pause(runtime, group.attempts)
            self._try_at = runtime.monotonic_ms()  # the wait for an answer is no part of a try
        except Conflict:
            group.is_unknown = was_unknown
            pause(runtime, group.attempts)
        except Unavailable as fact:
            group.is_unknown = was_unknown
            self._trouble.fact = fact
            pause(runtime, group.attempts)
        else:
            group.is_created = True
            self._confirm(group)

    def _meet(self, group: Group, key: str, *, was_unknown: bool) -> None:
        """Find out by its write id whether the object at our offset is ours (an unanswered create) or a rival's."""
        assert group.segment is not None
        runtime = self._context.runtime
        try:
            found = read_segment(self._context.objects, key)
        except NotFound:
            # It was collected meanwhile. So what was known of the log start is too old, and the object may have been
            # ours.
            self.partition.forget()
            # The log's own position says whether a replicated group is in it: it is checked again (I18).
            is_replicated = group.segment.metadata.replicated is not None
            self._give_up(group, is_unknown=was_unknown and not is_replicated)
            return
        if found.metadata.write_id == group.segment.metadata.write_id:
            group.is_created = True
            self._confirm(group)
            return
        # A rival's segment has the key: none of our creates can land there any longer.
        # model: Append, "judge again"
        # model: Transaction, "create at the judged offset"
        self._trouble.losses += 1
        self._dissolve(group)
        self.partition.fold(found)
        now, is_urgent = runtime.monotonic_ms(), group.appended[0].entry.is_urgent
        if self._concede(group):
            self._backoff.concede(now)
            return
        pause_ms = self._backoff.lose(now, now - self._try_at, 0 if is_urgent else runtime.random())
        waiting = [ticket.until_ms for ticket, _ in group.answers if ticket.outcome is None]
        left_ms = min(waiting, default=now) - now
        self._leave_to_others(min(pause_ms, left_ms / 4))
        has_time = left_ms - (runtime.monotonic_ms() - now) > self._context.create_ms
        if self._backoff.should_advance_checkpoint and not is_urgent and has_time:
            advance_checkpoint(self.partition)

    def _concede(self, group: Group) -> bool:
        """Return True if what the lost group held is offered to rivals, or is: no pause is needed then."""
        raise NotImplementedError

    def _leave_to_others(self, pause_ms: float) -> None:
        """Let rivals append for a while, then follow the log to its end: that beats one lost create after another.

        Args:
            pause_ms: For how long. Below 0 if one caller's time was over before; other callers still have time.
        """
        runtime, partition = self._context.runtime, self.partition
        runtime.sleep_ms(max(pause_ms, 0))
        self._try_at = runtime.monotonic_ms()
        if self._backoff.may_be_passed_over and not self._backoff.should_advance_checkpoint:
            return  # what rivals appended is followed once none of them is amid its turn
        try:
            # After a long pause there may be a newer head, which spares the segments below it. After a freeze what was
            # folded may be a late create, and not the log.
            if pause_ms > _FEW * self._backoff.shortest_create_ms or not partition.has_young_look:
                partition.open()
            else:
                partition.catch_up()
        except StaleTopicId:
            partition.forget()  # the caller that forms the next group finds that out, too
            return
        self._backoff.followed(runtime.monotonic_ms() - self._try_at)

    def _leave_gap(self, gap_ms: float, until_ms: int) -> None:
        """Let a rival have its turn. Where one has begun it, wait as one that has lost: following it would cost time.

        Args:
            until_ms: When the caller that leads stops waiting.
        """
        runtime, partition = self._context.runtime, self.partition

        def sleep(pause_ms: float) -> None:
            runtime.sleep_ms(max(min(pause_ms, (until_ms - runtime.monotonic_ms()) / 4), 0))

        sleep(gap_ms)
        self._try_at = runtime.monotonic_ms()
        if partition.has_young_look and partition.fold_at(partition.state.next_offset):
            sleep(self._backoff.end_turn(runtime.monotonic_ms(), runtime.random()))
            self._try_at = runtime.monotonic_ms()

    def _is_passed_over(self, until_ms: int) -> bool:
        """Look whether a rival is amid its turn, and if so let it go on: following it would cost both of them time.

        Args:
            until_ms: When the caller that leads stops waiting.
        """
        runtime, partition, backoff = self._context.runtime, self.partition, self._backoff
        try:
            if partition.is_moving():
                now = runtime.monotonic_ms()
                pause_ms = backoff.lose(now, round(backoff.try_ms), runtime.random())
                runtime.sleep_ms(max(min(pause_ms, (until_ms - now) / 4), 0))
                self._try_at = runtime.monotonic_ms()
                return True
            if not partition.is_fresh:
                partition.follow()
        except StaleTopicId:
            partition.forget()  # the caller that forms the next group finds that out, too
        backoff.followed(runtime.monotonic_ms() - self._try_at)
        return False

    def _verify(self, group: Group) -> None:
        """Answer a group of refusals and duplicates, if the tail that they were checked at is still the end (I4)."""
        partition = self.partition
        try:
            self._freshen([ticket for ticket, _ in group.answers])
            is_end = partition.verified() is group.base  # model: Transaction, "done only from a verified tail"
        except StaleTopicId:
            self._dissolve(group)
            self._end_incarnation([ticket for ticket, _ in group.answers])
            return
        with self._lock:
            if is_end and partition.is_end(group.base) and self._group is group:
                self._finish(group)
            else:
                self._dissolve(group)

    def _freshen(self, tickets: Sequence[Ticket]) -> None:
        """Open the partition anew, if what this process knows of it is too old for these tickets (I4, I7)."""
        if tickets and not self.partition.is_fresh:
            self.partition.open(is_going_allowed=tickets[0].entry.is_going_allowed)

    def _confirm(self, group: Group) -> None:
        """Acknowledge a group whose segment exists, if its offset is still part of the log (I7)."""
        partition, segment = self.partition, group.segment
        assert segment is not None
        entry = group.appended[0].entry
        is_internal = entry.is_internal
        # model: Append, "look after create"
        is_kept = None if entry.is_going_allowed else partition.keeps(segment.base_offset)
        try:
            if is_kept is None:
                partition.look(is_going_allowed=entry.is_going_allowed)
                is_kept = partition.log_start <= segment.base_offset
        except StaleTopicId:
            self._give_up(group, is_unknown=not is_internal)
            return
        if not is_kept:  # model: Transaction, "a marker counts only in the log"
            partition.forget()
            self._give_up(group, is_unknown=not is_internal)
            return
        partition.take_own(group.base, segment, group.folded)
        now = self._context.runtime.monotonic_ms()
        self._backoff.win(now, now - self._try_at)
        self._finish(group)

    def _give_up(self, group: Group, *, is_unknown: bool) -> None:
        """End a group whose offset is no longer part of the log.

        Args:
            is_unknown: Whether its batches may have been written. Otherwise its tickets are queued again.
        """
        if not is_unknown:
            self._dissolve(group)
            return
        with self._lock:
            self._group = None
            unknown = OutcomeUnknownError(
                "the log start has moved beyond the batch, which may have been written; read from the log start to see"
            )
            kept = [t for t, _ in group.answers if t not in group.appended and t.outcome is None]
            self._queue.extendleft(reversed(kept))
            self._deliver([(ticket, unknown) for ticket in group.appended])


_FEW = 8  # segments that rivals may have created in a pause: a newer head would hardly spare any of them
# Each pair is (tries, at least so many ms). Following the log costs each process the same work, however near the store
# is.
TURN = (4.0, 500)
GAP = (3.0, 70)  # longer than the pause and the try of the rival that has waited longest
LONG_PAUSE = (4.0, 1_500)
SHORT_PAUSE = (0.5, 15)
HALVED = (4.0, 700)  # of waiting, after which pauses are half as long
FIRST_PAUSE_TRIES = 0.25
CHANCE_LOSSES = 4  # in a row, up to which pauses grow; from there on they shrink
CHECKPOINT_LOSSES = 6  # in a row, until the loser moves the checkpoint
CHECKPOINT_AGAIN = 16  # losses, until it does so again
RIVAL = (256.0, 4_000)  # for which a rival that was met counts
# A process that met no rival cannot know of one that only loses, and leaves 1 to 3 % of the time to it.
ALONE_TURNS = 24
# Weights of the newest try in the average. What counts is the try itself, but rivals that collide make tries long.
_WEIGHT_SHORTER, _WEIGHT_LONGER = 0.5, 0.1
SAMPLES_MAX = 32


@dataclass(slots=True)
class ContentionBackoff:
    """The wins and losses of one process at one partition. Times are in ms, of the monotonic clock.

    A process that lost a create pauses: briefly at first, in case it was chance, then twice as long each time. After
    some losses its pauses shrink with the time that it has waited, so that the process that has waited longest tries
    most often. A process that won goes on at once for a turn. Then it leaves a gap, in which a rival that tries
    succeeds. A loser that won several times just before begins with the long pause. A process that met no rival cannot
    see one that only loses. So it leaves a gap now and then, too. A process that has lost for long moves the
    checkpoint. The winner finds it moved when it writes its own next one.
    """

    try_ms: float = 0.0  # what a try takes, on average
    # What a create that won took, on average: a process that never loses knows a try only by its two parts.
    create_ms: float = 0.0
    follow_ms: float = 0.0
    losses: int = 0  # in a row
    _met_at: int | None = None  # when a rival's segment was met last
    _turn_at: int | None = None  # since when this process wins without a gap
    _lost_at: int = 0  # when the first of the losses in a row was
    won_at: int = 0
    _creates_ms: deque[int] = field(default_factory=lambda: deque(maxlen=SAMPLES_MAX))  # what the newest ones took

    def lose(self, now: int, took_ms: int, random: float) -> float:
        """Note a create that was lost, by a try of ``took_ms``, and return how long to leave the log to others."""
        self.try_ms = _average(self.try_ms, took_ms)
        is_recent = now - self.won_at <= self._ms(TURN)
        had_turn = is_recent and self._turn_at is not None and self.won_at > self._turn_at
        self._met_at, self._turn_at = now, None
        self._count_loss(now)
        if had_turn:
            self.losses = CHANCE_LOSSES
        longest_ms = self._ms(LONG_PAUSE)
        if self.losses < CHANCE_LOSSES:
            pause_ms = min(FIRST_PAUSE_TRIES * 2.0 ** (self.losses - 1) * self.try_ms, longest_ms)
        else:
            shrunk_ms = longest_ms * 2.0 ** ((self._lost_at - now) / self._ms(HALVED))
            pause_ms = max(shrunk_ms, self._ms(SHORT_PAUSE))
        return 2 * random * pause_ms

    def end_turn(self, now: int, random: float) -> float:
        """Note that a rival took over in the gap, and return how long to leave the log to it."""
        self._met_at, self._turn_at, self._lost_at = now, None, now
        self.losses = CHANCE_LOSSES
        return 2 * random * self._ms(LONG_PAUSE)

    def answered(self, took_ms: int) -> None:
        """Note how long a create took, won or lost."""
        self.create_ms = _average(self.create_ms, took_ms)
        self._creates_ms.append(took_ms)

    @property
    def shortest_create_ms(self) -> int:
        return min(self._creates_ms, default=0)

    def concede(self, now: int) -> None:
        """Note a create that was lost, after which the process offers its batches instead of trying again."""
        self._count_loss(now)
        self._turn_at = None

    def _count_loss(self, now: int) -> None:
        if not self.losses:
            self._lost_at = now
        self.losses += 1

    @property
    def should_advance_checkpoint(self) -> bool:
        """Return True if this process has lost for so long that the winner may not know of it."""
        return _advances(self.losses)

    @property
    def may_be_passed_over(self) -> bool:
        """Return True if this process has lost for so long that a rival is likely to be amid its turn.

        Its next loss is by a create, if that is one after which it moves the checkpoint.
        """
        return self.losses >= CHANCE_LOSSES and not _advances(self.losses + 1)

    def meet(self, now: int) -> None:
        """Note that there are rivals: something was written that only they write."""
        self._met_at = now

    def followed(self, took_ms: int) -> None:
        """Note how long it took to follow the log to its end."""
        self.follow_ms = _average(self.follow_ms, took_ms)

    def win(self, now: int, took_ms: int) -> None:
        """Note a create that succeeded, ``took_ms`` after its try began."""
        self.losses = 0
        self.answered(took_ms)
        if self._turn_at is None or now - self.won_at > self._ms(GAP):
            self._turn_at = now
        self.won_at = now

    def gap(self, now: int, random: float) -> float:
        """Return how long to leave the log to others before the next create: mostly 0."""
        if self._turn_at is None or now - self.won_at > self._ms(GAP):
            return 0
        is_alone = self._met_at is None or now - self._met_at > self._ms(RIVAL)
        turn_ms = self._ms(TURN) * (ALONE_TURNS if is_alone else 1)
        if self.won_at - self._turn_at < turn_ms:
            return 0
        self._turn_at = None
        return (0.75 + 0.5 * random) * self._ms(GAP)

    @property
    def longest_try_ms(self) -> float:
        return max(self.try_ms, self.create_ms + self.follow_ms)

    def _ms(self, scale: tuple[float, int]) -> float:
        tries, least_ms = scale
        return max(tries * self.longest_try_ms, least_ms)


def _advances(losses: int) -> bool:
    return losses >= CHECKPOINT_LOSSES and (losses - CHECKPOINT_LOSSES) % CHECKPOINT_AGAIN == 0


def _average(average: float, newest: int) -> float:
    weight = _WEIGHT_SHORTER if newest < average else _WEIGHT_LONGER
    return average + (newest - average) * (weight if average else 1)
