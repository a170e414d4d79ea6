"""The pauses of a process that loses creates to rivals, and the gaps of one that wins ("Rivals take turns").

Rule: no pause decides which process may append; the create does (I1). Pauses exist because each create that a loser
tries in vain costs time of its own and of its rivals. Gaps exist because a process that always wins would shut the
others out for good. Times are measured in *tries*, so that they fit a process near the store and one far from it: a try
is the time that this process takes to follow the log to its end and create there.

Not here: appending through another process's create; see ``append.combining``.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from fenceline.log.checkpoint import advance_checkpoint, keep_checkpoint
from fenceline.log.context import StaleTopicId
from fenceline.log.partition import Partition

_FEW = 8  # segments that rivals may have created in a pause, few of which a newer head would spare
# Each pair is (tries, at least so many ms), because following the log costs the same work, however near the store is.
TURN = (4.0, 500)
GAP = (3.0, 70)  # longer than the pause and the try of the rival that has waited longest
LONG_PAUSE = (4.0, 1_500)
SHORT_PAUSE = (0.5, 15)
HALVED = (4.0, 700)  # after so long a wait pauses are half as long
FIRST_PAUSE_TRIES = 0.25
CHANCE_LOSSES = 4  # in a row, up to which pauses grow; from there on they shrink
CHECKPOINT_LOSSES = 6  # in a row, until the loser moves the checkpoint
CHECKPOINT_AGAIN = 16  # losses, until it does so again
RIVAL = (256.0, 4_000)  # for which a rival that was met counts
# A process that met no rival leaves 1 to 3 % of the time to rivals, because it cannot see one that only loses.
ALONE_TURNS = 24
# Weights of the newest try in the average. A longer try weighs less, because collisions of rivals make tries long.
_WEIGHT_SHORTER, _WEIGHT_LONGER = 0.5, 0.1
SAMPLES_MAX = 32


@dataclass(slots=True)
class ContentionBackoff:
    """The wins and losses of one process at one partition. Times are in ms, of the monotonic clock.

    A process that lost a create pauses: briefly at first, in case the loss was chance, then twice as long each time.
    After some losses its pauses shrink with the time that it has waited, so that the process that has waited longest
    tries most often. A loser that won several times just before begins with the long pause.

    A process that won goes on at once for a turn. Then it leaves a gap, in which a rival that tries succeeds. A process
    that met no rival leaves a gap now and then, too, because it cannot see a rival that only loses. A process that has
    lost for long moves the checkpoint, so that the winner, which finds the checkpoint moved when it writes its own next
    one, learns of the rival.
    """

    try_ms: float = 0.0  # what a try takes, on average
    # The average time of a create that won, because a process that never loses knows a try only by its two parts.
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
    def create_unit_ms(self) -> float:
        """Return what a create takes this process, at least 1: the unit of the pauses of ``append.combining``."""
        return max(self.create_ms, 1.0)

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

        Return False before a loss after which this process moves the checkpoint, so that this loss is by a create.
        """
        return self.losses >= CHANCE_LOSSES and not _advances(self.losses + 1)

    def meet_rivals(self, now: int) -> None:
        """Note that there are rivals, because something was written that only rivals write."""
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


class Contention:
    """The tries of one process at one partition, and the time that it leaves to its rivals between them.

    Its appender's leader calls it, one thread at a time.
    """

    def __init__(self, partition: Partition) -> None:
        self._partition = partition
        self._runtime = partition.context.runtime
        self.backoff = ContentionBackoff()
        self._create_at = 0  # when the present create began, on the monotonic clock
        self._try_at = 0  # when the present try began

    def begin_try(self) -> None:
        """Begin another try: the time until now was a pause, or a wait for an answer, and is part of no try."""
        self._try_at = self._runtime.monotonic_ms()

    def begin_create(self, *, is_new_try: bool) -> None:
        """Note that a create begins.

        Args:
            is_new_try: Whether a try begins with the create, because the log was not followed before it.
        """
        self._create_at = self._runtime.monotonic_ms()
        if is_new_try or not self.backoff.losses:
            self._try_at = self._create_at

    def create_lost(self) -> None:
        """Note that the create was answered: an object was there."""
        self.backoff.answered(self._runtime.monotonic_ms() - self._create_at)

    def won(self) -> None:
        """Note that the try has succeeded."""
        now = self._runtime.monotonic_ms()
        self.backoff.win(now, now - self._try_at)

    def make_way(self, now: int, *, is_urgent: bool, until_ms: int) -> None:
        """Leave the log to the rival that has won, follow it after that, and let a rival know that has won for long.

        Args:
            now: When the loss was found, on the monotonic clock.
            is_urgent: Whether the caller's entry does not wait for rivals.
            until_ms: When the first of the callers stops waiting.
        """
        backoff = self.backoff
        pause_ms = backoff.lose(now, now - self._try_at, 0 if is_urgent else self._runtime.random())
        left_ms = until_ms - now
        self._pause_and_follow(min(pause_ms, left_ms / 4))
        has_time = left_ms - (self._runtime.monotonic_ms() - now) > self._partition.context.create_ms
        if backoff.should_advance_checkpoint and not is_urgent and has_time:
            advance_checkpoint(self._partition)

    def _pause_and_follow(self, pause_ms: float) -> None:
        """Let rivals append for a while, then follow the log to its end, instead of losing one create after another.

        Args:
            pause_ms: For how long. Below 0 if one caller's time was over before; other callers still have time.
        """
        backoff, partition = self.backoff, self._partition
        self._runtime.sleep_ms(max(pause_ms, 0))
        self.begin_try()
        if backoff.may_be_passed_over and not backoff.should_advance_checkpoint:
            return  # the log is followed once no rival is amid its turn
        try:
            # After a long pause there may be a newer head, which spares the reads of the segments below it. After a
            # freeze this process may have folded a late create, which is not the log.
            if pause_ms > _FEW * backoff.shortest_create_ms or not partition.has_young_look:
                partition.open()
            else:
                partition.catch_up()
        except StaleTopicId:
            partition.forget()  # the caller that forms the next group finds that out, too
            return
        self._followed()

    def leave_gap(self, now: int, until_ms: int) -> None:
        """Let a rival have its turn, if a gap is due, and first move the checkpoint, so that one look shows it the log.

        Where a rival has begun its turn, wait as a loser does, because following the log meanwhile would cost time.

        Args:
            now: When this step began, on the monotonic clock.
            until_ms: When the caller that leads stops waiting.
        """
        partition = self._partition
        gap_ms = self.backoff.gap(now, self._runtime.random())
        if not gap_ms:
            return
        if partition.is_checkpoint_due(is_early=True) and self._has_time(until_ms):
            keep_checkpoint(partition)
        self._sleep(gap_ms, until_ms)
        if partition.has_young_look and partition.fold_at(partition.state.next_offset):
            self._sleep(self.backoff.end_turn(self._runtime.monotonic_ms(), self._runtime.random()), until_ms)

    def is_passed_over(self, until_ms: int) -> bool:
        """Return True if a process that has lost for long has let a rival go on with its turn.

        Args:
            until_ms: When the caller that leads stops waiting.
        """
        return self.backoff.may_be_passed_over and self._has_time(until_ms) and self._lets_rival_go_on(until_ms)

    def _lets_rival_go_on(self, until_ms: int) -> bool:
        """Let a rival go on if it is amid its turn, because following it then would cost both processes time."""
        partition, backoff = self._partition, self.backoff
        try:
            if partition.is_moving():
                pause_ms = backoff.lose(self._runtime.monotonic_ms(), round(backoff.try_ms), self._runtime.random())
                self._sleep(pause_ms, until_ms)
                return True
            if not partition.is_fresh:
                partition.follow()
        except StaleTopicId:
            partition.forget()  # the caller that forms the next group finds that out, too
        self._followed()
        return False

    def _has_time(self, until_ms: int) -> bool:
        """Return True if there is more time until then than a create may take."""
        return until_ms - self._runtime.monotonic_ms() > self._partition.context.create_ms

    def _sleep(self, pause_ms: float, until_ms: int) -> None:
        """Sleep, for a quarter of the leading caller's time at most, and begin another try."""
        self._runtime.sleep_ms(max(min(pause_ms, (until_ms - self._runtime.monotonic_ms()) / 4), 0))
        self.begin_try()

    def _followed(self) -> None:
        self.backoff.followed(self._runtime.monotonic_ms() - self._try_at)
