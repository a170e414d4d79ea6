"""Pauses before another try: they grow exponentially to a bound, and are jittered.

Rule: it is pure. The caller draws the chance, and sleeps or waits by its own clock.

Not here: what is tried again, and how often (``log.retry``, ``client.transport``). Nor the pauses of processes that
append to one partition, which are measured in tries (``append.contention``), nor the intervals of polls.
"""

from __future__ import annotations

from dataclasses import dataclass

from fenceline import limits

_GROWTHS_MAX = 32  # because a float overflows beyond 1,000 of them; every pause is at its bound long before


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses after failures in a row.

    Attributes:
        first_ms: The pause after the first failure, before jitter.
        max_ms: The longest pause.
        factor: By how much a pause is longer than the one before.
        jitter: The share of each pause that chance decides: 0 is none of it, and 1 is all of it.
    """

    first_ms: float
    max_ms: float
    factor: float = 2
    jitter: float = 1

    def pause_ms(self, failures: int, random: float = 1) -> float:
        """Return the pause after so many failures in a row.

        Args:
            failures: At least 1.
            random: A number in [0, 1). Pauses without jitter need none.
        """
        grown_ms = self.first_ms * self.factor ** min(failures - 1, _GROWTHS_MAX)
        return min(grown_ms, self.max_ms) * (1 - self.jitter + self.jitter * random)


PEER_BACKOFF = Backoff(limits.PEER_PAUSE_MS, limits.PEER_PAUSE_MS_MAX, jitter=0)  # before a region is asked again
