"""Pages of a consumer's partitions, read ahead, while partitions come and go.

Rule: a consumer that follows polls all of its partitions by one request; one that does not reads each alone. Once a
partition was dropped, no page of it is handed out, also none that is on its way or waiting.

Not here: the pace and the threads (``following``, ``poller``, ``prefetch``), and what a page's error means
(``consumer``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.consumer.member import Place
from fenceline.client.following import Following
from fenceline.client.poller import Answer, Poller
from fenceline.client.poller import Requests as PollerRequests
from fenceline.client.prefetch import Fetching
from fenceline.model.kinds import Isolation
from fenceline.model.requests import PollPosition
from fenceline.model.results import Page

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


class Reads:
    """Pages of partitions, each time that one is begun under a number of its own.

    Args:
        member: Returns the member id and the member epoch to read as.
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

    def begin(self, places: Iterable[Place]) -> None:
        """Read partitions from what the group has committed."""
        for place in places:
            number, self._next_number = self._next_number, self._next_number + 1
            self._places[number], self._number_of[place] = place, number
            self._fetching.add(number, None)

    def drop(self, places: Iterable[Place]) -> None:
        """Read partitions no further, and forget what was read of them."""
        for place in places:
            number = self._number_of.pop(place, -1)
            self._places.pop(number, None)
            if isinstance(self._fetching, Poller):
                self._fetching.drop(number)

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
