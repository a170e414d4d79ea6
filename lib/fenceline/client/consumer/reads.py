"""Pages of a consumer's partitions, read ahead, while partitions come and go.

Rule: a consumer that follows polls all of its partitions by one request; one that does not reads each alone. Once a
partition was dropped, no page of it is handed out, also none that is on its way or waiting.

Not here: the pace and the threads (``following``, ``poller``, ``prefetch``), and what a page's error means
(``consumer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.consumer.places import Place
from fenceline.client.following import Following
from fenceline.client.poller import Answer, Poller
from fenceline.client.poller import Requests as PollerRequests
from fenceline.client.prefetch import Fetching
from fenceline.model.kinds import Isolation
from fenceline.model.requests import PollPosition
from fenceline.model.results import Page, ReadRecord

_AGAIN_MS = 500  # after a page that was refused
_ANSWER_MS = 100  # between two looks for the answer of a heartbeat that a page waits for
HOLD_MS = 2_000  # for which one poll is held back: a partition that is begun meanwhile waits as long


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a consumer reads."""

    is_following: bool
    isolation: Isolation
    identity: bool
    max_records: int
    max_delay_ms: int
    idle_delay_ms: int


Rest: TypeAlias = tuple[Place, Iterator[ReadRecord], int]
"""What the program has not seen yet of a page, and the position after the page."""


class Reads:
    """Pages of partitions, each time that one is begun under a number of its own.

    Args:
        member: Returns the member id and the member epoch to read as.

    Attributes:
        rest: The end of a page that the program reads.
    """

    def __init__(
        self, client: ApiClient, group: str, options: ReadOptions, member: Callable[[], tuple[str, int]]
    ) -> None:
        self._client = client
        self._group = group
        self._options = options
        self._member = member
        self._next_number = 0
        self._places: dict[int, Place] = {}
        self._number_of: dict[Place, int] = {}
        self.rest: Rest | None = None
        self._ends: dict[Place, int] = {}
        self._open: set[Place] = set()
        self._refused: list[tuple[Place, int | None, int, int]] = []  # with the answers and the time to wait for
        self._fetching: Poller[int, int | None, Page] | Fetching[int | None, Page]
        if options.is_following:
            pace: Following[int, int | None] = Following(
                client.runtime.monotonic_ms(),
                max_delay_ms=options.max_delay_ms,
                idle_delay_ms=options.idle_delay_ms,
                hold_ms=HOLD_MS,
                shows_more=lambda page: page.position < page.bounds.end(options.isolation),
            )
            self._fetching = Poller(PollerRequests(self._poll, self._read), pace, client.runtime, f"group {group}")
        else:
            self._fetching = Fetching(self._read, 0, is_following=False)

    @property
    def is_over(self) -> bool:
        """True if a consumer that does not follow has read all of its partitions."""
        return not self._options.is_following and not self._open

    def begin(self, places: Sequence[Place]) -> None:
        """Read partitions from what the group has committed."""
        self._open.update(places)
        for place in places:
            number, self._next_number = self._next_number, self._next_number + 1
            self._places[number], self._number_of[place] = place, number
            self._fetching.add(number, None)

    def drop(self, places: Sequence[Place]) -> None:
        """Read partitions no further, and forget what was read of them."""
        gone = {*places}
        self._open -= gone
        self._ends = {place: end for place, end in self._ends.items() if place not in gone}
        self._refused = [one for one in self._refused if one[0] not in gone]
        if self.rest is not None and self.rest[0] in gone:
            self.rest = None
        for place in places:
            number = self._number_of.pop(place, -1)
            self._places.pop(number, None)
            if isinstance(self._fetching, Poller):
                self._fetching.drop(number)

    def took(self, place: Place, page: Page) -> None:
        """Show a page, and read on after it unless that was the end."""
        options, end = self._options, page.bounds.end(self._options.isolation)
        if options.is_following or page.position < self._ends.setdefault(place, end):
            self.want(place, page.position)  # fetched during this page's use
        else:
            self._open.discard(place)
        if page.records:
            self.rest = (place, iter(page.records), page.position)

    def put_off(self, place: Place, position: int | None, answers: int, now_ms: int) -> None:
        """Ask for a page that was refused again later, once so many heartbeats were answered."""
        self._refused.append((place, position, answers, now_ms + _AGAIN_MS))

    def go_on(self, now_ms: int, answers: int) -> None:
        """Ask for what was put off, where that is due; so many heartbeats were answered."""
        refused, self._refused = self._refused, []
        for place, position, awaited, at_ms in refused:
            if now_ms >= at_ms and answers >= awaited:
                self.want(place, position)
            else:
                self._refused.append((place, position, awaited, max(at_ms, now_ms + _ANSWER_MS)))

    def due_ms(self) -> Iterator[int]:
        """Yield when each page that was put off is due."""
        return (at_ms for *_, at_ms in self._refused)

    def want(self, place: Place, position: int | None) -> None:
        """Read a partition on, unless it was dropped."""
        if place in self._number_of:
            self._fetching.want(self._number_of[place], position)

    def next_within(self, wait_ms: int) -> tuple[Place, int | None, Page | BaseException] | None:
        """Wait for a page, or its error; return ``None`` if none comes in time, or before ``wake`` is called."""
        fetched = self._fetching.next_within(wait_ms)
        if fetched is None or fetched[0] not in self._places:
            return None
        number, position, page = fetched
        return self._places[number], position, page

    def wake(self) -> None:
        """End a wait for a page."""
        self._fetching.wake()

    def pause(self) -> None:
        """Have no thread, until a page is asked for."""
        self._fetching.pause()

    def close(self) -> None:
        self._fetching.close()

    def _poll(self, places: Sequence[tuple[int, int | None]], wait_ms: int) -> Answer[int, Page]:
        options, (member_id, member_epoch) = self._options, self._member()
        found = {number: (self._places.get(number), at) for number, at in places}  # any may be dropped at any time
        live = {number: (place, at) for number, (place, at) in found.items() if place is not None}
        numbers = {(place.topic, place.partition): number for number, (place, _) in live.items()}
        if not live:
            return Answer([], has_more=False, hold=False)
        polled = self._client.poll(
            [_position(self._group, place, at) for place, at in live.values()],
            max_records=options.max_records,
            wait_ms=wait_ms,
            max_delay_ms=options.max_delay_ms,
            isolation=options.isolation,
            identity=options.identity,
            member_id=member_id,
            member_epoch=member_epoch,
        )
        entries = [(numbers[one.topic, one.partition], page) for one, _, page in polled.entries]
        return Answer(entries, polled.has_more, polled.hold)

    def _read(self, number: int, position: int | None, wait_ms: int) -> Page:
        place, options, (member_id, member_epoch) = self._places.get(number), self._options, self._member()
        if place is None:
            raise errors.UnknownTopicOrPartitionError("the partition was dropped")  # never shown
        return self._client.read_subscription(
            place.topic,
            self._group,
            place.partition,
            offset=position,
            max_records=options.max_records,
            wait_ms=wait_ms,
            isolation=options.isolation,
            require_stable=position is None,
            identity=options.identity,
            member_id=member_id,
            member_epoch=member_epoch,
        )


def _position(group: str, place: Place, at: int | None) -> PollPosition:
    # At the mark the member before this one may have sent an offset in a transaction (KIP-447).
    return PollPosition(
        place.topic,
        place.partition,
        offset=at,
        topic_id=place.topic_id,
        subscription=group,
        require_stable=at is None,
    )
