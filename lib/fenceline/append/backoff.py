"""The pauses of one process whose rivals append to the same partition ("Rivals take turns").

Rule: nothing here decides which process may append; the create does (I1). Pauses keep a loser from spending its own
time, and its rivals', on losing. Gaps keep a winner from shutting the others out for good. Times are measured in
*tries*: one try is what this process takes to follow the log to its end and create there. So they fit a process near
the store and one far from it.

A process that lost a create pauses: briefly at first, in case it was chance, then twice as long each time. After some
losses it pauses less with each, so that the process that has waited longest tries most often. A process that won goes
on at once for a turn. Then it leaves a gap, in which a rival that tries succeeds. A loser that won several times just
before begins with the long pause. A process that met no rival cannot see one that only loses. So it leaves a gap now
and then, too. A process that has lost for long moves the checkpoint. The winner finds it moved when it writes its own
next one.

Not here: the waiting itself; see ``commit``.
"""

from __future__ import annotations

from dataclasses import dataclass

# (tries, at least so many ms): following the log costs each process the same work, however near the store is.
TURN = (4.0, 500)
GAP = (3.0, 100)  # longer than the pause and the try of the rival that has waited longest
LONG_PAUSE = (4.0, 1_500)
SHORT_PAUSE = (0.5, 75)
FIRST_PAUSE_TRIES = 0.25
CHANCE_LOSSES = 6  # in a row, up to which pauses grow; from there on they shrink
CHECKPOINT_LOSSES = 8  # in a row, until the loser moves the checkpoint; again after each further `CHANCE_LOSSES`
RIVAL_TRIES = 256  # for which a rival that was met counts
# A process that met no rival cannot know of one that only loses, and leaves 1 to 3 % of the time to it.
ALONE_TURNS = 24
# Weights of the newest try in the average. What counts is the try itself, but rivals that collide make tries long.
_WEIGHT_SHORTER, _WEIGHT_LONGER = 0.5, 0.1


@dataclass(slots=True)
class ContentionBackoff:
    """The wins and losses of one process at one partition. Times are in ms, of the monotonic clock."""

    try_ms: float = 0.0  # what a try takes, on average
    # What a create that won took, on average: a process that never loses knows a try only by its two parts.
    create_ms: float = 0.0
    follow_ms: float = 0.0
    losses: int = 0  # in a row
    _met_at: int | None = None  # when a rival's segment was met last
    _turn_at: int | None = None  # since when this process wins without a gap
    _won_at: int = 0

    def lose(self, now: int, took_ms: int, random: float) -> float:
        """Note a create that was lost, by a try of ``took_ms``, and return how long to leave the log to others."""
        self.try_ms = _average(self.try_ms, took_ms)
        is_recent = now - self._won_at <= self._ms(TURN)
        had_turn = is_recent and self._turn_at is not None and self._won_at > self._turn_at
        self._met_at, self._turn_at = now, None
        self.losses = CHANCE_LOSSES if had_turn else self.losses + 1
        longest_ms = self._ms(LONG_PAUSE)
        if self.losses < CHANCE_LOSSES:
            pause_ms = min(FIRST_PAUSE_TRIES * 2.0 ** (self.losses - 1) * self.try_ms, longest_ms)
        else:
            pause_ms = max(longest_ms / (1 + self.losses - CHANCE_LOSSES), self._ms(SHORT_PAUSE))
        return 2 * random * pause_ms

    @property
    def should_advance_checkpoint(self) -> bool:
        """Return True if this process has lost for so long that the winner may not know of it."""
        return self.losses >= CHECKPOINT_LOSSES and (self.losses - CHECKPOINT_LOSSES) % CHANCE_LOSSES == 0

    def meet(self, now: int) -> None:
        """Note that there are rivals: something was written that only they write."""
        self._met_at = now

    def followed(self, took_ms: int) -> None:
        """Note how long it took to follow the log to its end."""
        self.follow_ms = _average(self.follow_ms, took_ms)

    def win(self, now: int, took_ms: int) -> None:
        """Note a create that succeeded, ``took_ms`` after its try began."""
        self.losses = 0
        self.create_ms = _average(self.create_ms, took_ms)
        if self._turn_at is None or now - self._won_at > self._ms(GAP):
            self._turn_at = now
        self._won_at = now

    def gap(self, now: int, random: float) -> float:
        """Return how long to leave the log to others before the next create: mostly 0."""
        if self._turn_at is None or now - self._won_at > self._ms(GAP):
            return 0
        is_alone = self._met_at is None or now - self._met_at > RIVAL_TRIES * self._longest_try_ms
        turn_ms = self._ms(TURN) * (ALONE_TURNS if is_alone else 1)
        if self._won_at - self._turn_at < turn_ms:
            return 0
        self._turn_at = None
        return (0.75 + 0.5 * random) * self._ms(GAP)

    @property
    def _longest_try_ms(self) -> float:
        return max(self.try_ms, self.create_ms + self.follow_ms)

    def _ms(self, scale: tuple[float, int]) -> float:
        tries, least_ms = scale
        return max(tries * self._longest_try_ms, least_ms)


def _average(average: float, newest: int) -> float:
    weight = _WEIGHT_SHORTER if newest < average else _WEIGHT_LONGER
    return average + (newest - average) * (weight if average else 1)
