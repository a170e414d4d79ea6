"""When a follower polls, and which partitions: the rules, without thread, lock, clock or request.

Rule: what a follower asks next depends on what it got, and on the time that it is given.

- While records come, it asks again at once, as soon as the caller has taken them.

- While all is quiet it has its polls held back by the service, where ``max_delay_ms`` is below 500 or the service said
  that holding costs it nothing. Otherwise it asks each ``max_delay_ms``, counted from the beginning of the poll before.

- After a minute in which no record came, it asks each ``idle_delay_ms``, until one comes. Held polls stay held.

- A partition whose page ended before its end is behind. Each of those is polled alone, and all of them at once, until
  its page ends at its end. One answer after the other, with some records of one partition each, would be slower.

- A poll names up to 500 partitions. The list is turned: the next poll begins after the last partition that was served.

- A partition whose error promises that a repeat may succeed is asked again, after a pause that doubles, for as long as
  a request would be.

Not here: the thread that sends polls (``poller``).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from fenceline import errors, limits

HELD_BELOW_MS = 500  # a shorter delay asked for is cheaper by held polls
QUIET_MS = 60_000
IDLE_DELAY_MS = 5_000
MAX_DELAY_MS = 1_000
HOLD_MS = limits.WAIT_MS_MAX // 2
RETRY_MS = 30_000
_UNHELD_PAUSE_MS = limits.POLL_LAST_MS  # after a poll that the service did not hold
_PAUSE_FIRST_MS = 50
_PAUSE_LAST_MS = 2_000

Place = TypeVar("Place", bound=Hashable)
At = TypeVar("At")
PageT = TypeVar("PageT")
ErrorT = TypeVar("ErrorT", bound=BaseException)


@dataclass(frozen=True, slots=True)
class Asking(Generic[Place, At]):
    """A poll: the partitions, in order, and for how long the service holds an empty answer back."""

    places: Sequence[tuple[Place, At]]
    wait_ms: int
    began_ms: int


class Following(Generic[Place, At]):
    """The partitions that a follower waits for, and the pace of its polls. All times are of one monotonic clock.

    Args:
        max_delay_ms: How old a record may be when it is read.
        idle_delay_ms: The same, after a quiet minute.
        hold_ms: For how long one poll is held back.
        retry_ms: For how long a partition's passing error is not shown.
        shows_more: Whether a page ends before the partition's end.
    """

    def __init__(
        self,
        now_ms: int,
        *,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
        hold_ms: int = HOLD_MS,
        retry_ms: int = RETRY_MS,
        shows_more: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._shows_more = shows_more
        self._max_delay_ms = max_delay_ms
        self._idle_delay_ms = max(max_delay_ms, idle_delay_ms)
        self._hold_ms = hold_ms
        self._retry_ms = retry_ms
        self._wanted: dict[Place, At] = {}  # in the order of the next poll
        self._unseen: set[Place] = set()  # those of them that were not looked at in this round
        self._behind: set[Place] = set()  # those that are polled alone
        self._failing: dict[Place, int] = {}  # since when
        self._failures = 0  # answers in a row with such an error
        self._is_free = False  # whether holding costs nothing
        self._due_ms = now_ms
        self._round_ms = now_ms  # when this round of looks at all partitions began
        self._came_ms = now_ms  # when the last page came

    def want(self, place: Place, at: At, now_ms: int) -> None:
        """Poll a partition from a position on, after those that are wanted already."""
        self._wanted[place] = at
        self._unseen.add(place)
        self._due_ms = min(self._due_ms, now_ms)

    def drop(self, place: Place) -> None:
        """Poll a partition no further."""
        self._wanted.pop(place, None)
        self._unseen.discard(place)
        self._behind.discard(place)
        self._failing.pop(place, None)

    def is_behind(self, place: Place) -> bool:
        """Return True if the partition's last page ended before its end."""
        return place in self._behind

    def answered_alone(self, place: Place, page: object, now_ms: int) -> None:
        """Take in the page of a partition that was polled alone; ``None``: there was none."""
        if page is not None:
            self._came_ms = now_ms
        if page is None or not self._shows_more(page):
            self._behind.discard(place)

    def rest(self) -> Sequence[tuple[Place, At]]:
        """Return all that is wanted."""
        return list(self._wanted.items())

    def due_ms(self) -> int | None:
        """Return when the next poll is due; ``None`` while no partition is wanted."""
        return self._due_ms if self._wanted else None

    def next_poll(self, now_ms: int) -> Asking[Place, At]:
        """Return the poll to send now, where one is due."""
        if not self._unseen:
            self._unseen = set(self._wanted)
            self._round_ms = now_ms
        places = list(self._wanted.items())[: limits.POLL_POSITIONS_MAX]
        is_held = self._is_holding and not self._failing
        return Asking(places, self._hold_ms if is_held else 0, now_ms)

    @property
    def _is_holding(self) -> bool:
        is_one_poll = len(self._wanted) <= limits.POLL_POSITIONS_MAX
        return is_one_poll and (self._is_free or self._max_delay_ms < HELD_BELOW_MS)

    def answered(
        self,
        asking: Asking[Place, At],
        entries: Sequence[tuple[Place, PageT | errors.FencelineError]],
        now_ms: int,
        *,
        has_more: bool,
        is_free: bool,
    ) -> list[tuple[Place, At, PageT | errors.FencelineError]]:
        """Take an answer in; return the pages and errors to hand out, whose partitions are no longer wanted."""
        self._is_free = is_free
        said = dict(entries)
        shown: list[tuple[Place, At, PageT | errors.FencelineError]] = []
        is_failing = False
        for place, at in self._seen(asking, entries[-1][0] if has_more and entries else None):
            if place not in self._wanted or self._wanted[place] != at:  # dropped, or wanted from elsewhere meanwhile
                continue
            page = said.get(place)
            if isinstance(page, errors.RetryError) and self._is_passing(place, now_ms):
                is_failing = True
            elif page is not None:
                shown.append((place, at, page))
                self.drop(place)
                if not isinstance(page, errors.FencelineError) and self._shows_more(page):
                    self._behind.add(place)
                continue
            else:
                self._failing.pop(place, None)
            self._unseen.discard(place)
            self._wanted[place] = self._wanted.pop(place)  # the next poll begins after it
        self._failures = self._failures + 1 if is_failing else 0
        if any(not isinstance(page, errors.FencelineError) for _, _, page in shown):
            self._came_ms = now_ms
        self._due_ms = now_ms if shown or self._unseen else self._next_ms(asking, now_ms)
        if self._failures:
            self._due_ms = now_ms + min(_PAUSE_FIRST_MS << min(self._failures - 1, 10), _PAUSE_LAST_MS)
        return shown

    def failed(self, asking: Asking[Place, At], error: ErrorT) -> tuple[Place, At, ErrorT]:
        """Take in that a poll as a whole failed; return what to hand out, whose partition is no longer wanted."""
        place, at = asking.places[0]
        self.drop(place)
        return place, at, error

    def _seen(self, asking: Asking[Place, At], last: Place | None) -> Sequence[tuple[Place, At]]:
        """Return what was asked for, up to ``last``; ``None`` is the end."""
        places = [place for place, _ in asking.places]
        return asking.places if last is None else asking.places[: places.index(last) + 1]

    def _is_passing(self, place: Place, now_ms: int) -> bool:
        return now_ms - self._failing.setdefault(place, now_ms) < self._retry_ms

    def _next_ms(self, asking: Asking[Place, At], now_ms: int) -> int:
        """Return when to poll again after all partitions had nothing to say."""
        if self._is_holding:
            was_held = (now_ms - asking.began_ms) * 2 >= asking.wait_ms
            # A poll that was not held found no room at the service, so the next one must not come at once.
            return now_ms if was_held else now_ms + _UNHELD_PAUSE_MS
        is_idle = now_ms - self._came_ms >= QUIET_MS
        return max(now_ms, self._round_ms + (self._idle_delay_ms if is_idle else self._max_delay_ms))
