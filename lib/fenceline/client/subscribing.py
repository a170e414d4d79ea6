"""A subscriber: the records of a subscription that are not acknowledged, and their acknowledgements.

The rules:

- Each record is shown once by one subscriber, in the order of its partition; what was not acknowledged is shown again
  by the next one. So a record is acknowledged after what it was for is done.
- Under a session that owns the partitions for the group, each page and each acknowledgement is checked by the service:
  one that comes late from a reader that was severed is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fenceline import errors
from fenceline.client.fetching import Fetching
from fenceline.read import Page, ReadRecord

if TYPE_CHECKING:
    from fenceline.client.client import Client
    from fenceline.client.subscription_requests import Isolation


class Subscriber:
    """Made by ``Client.subscribe``. An iterator for one thread; a context manager that stops its fetches.

    Iterating yields ``(partition, record)``, ``pages`` the same in lists, which is faster; each goes on where the other
    left off. One that does not follow ends at the offsets that were next when each partition first answered.

    Attributes:
        topic, name: What it subscribes to.
        positions: For each partition the offset behind the last record that was yielded.
    """

    def __init__(
        self,
        client: Client,
        topic: str,
        name: str,
        partitions: Sequence[int],
        *,
        is_following: bool,
        isolation: Isolation,
        session_id: str | None,
        max_records: int,
    ) -> None:
        self._client = client
        self.topic = topic
        self.name = name
        self._isolation: Isolation = isolation
        self._session_id = session_id
        self._is_following = is_following
        self._max_records = max_records
        self._ends: dict[int, int] = {}
        self._open = set(partitions)
        self._rest: tuple[int, Iterator[ReadRecord]] | None = None  # of a page that was left in the middle
        self.positions: dict[int, int] = {}
        self._fetching: Fetching[int | None, Page] = Fetching(self._fetch, len(partitions), is_following=is_following)
        self._fetching.start((partition, None) for partition in partitions)

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Ask for no more pages."""
        self._fetching.close()

    def __iter__(self) -> Iterator[tuple[int, ReadRecord]]:
        """Yield each record with its partition.

        Raises:
            OwnerFencedError: Another session owns a partition for this group.
            SessionSeveredError, SessionExpiredError: The session is over.
            UnknownSubscriptionError: It was deleted.
        """
        while True:
            if self._rest is None:
                page = self._next_page()
                if page is None:
                    return
                self._rest = (page[0], iter(page[1]))
            partition, records = self._rest
            for record in records:
                self.positions[partition] = record.offset + 1
                yield partition, record
            self._rest = None

    def pages(self) -> Iterator[tuple[int, Sequence[ReadRecord]]]:
        """Yield records in lists, each with its partition; raises as iterating does."""
        while True:
            if self._rest is not None:
                partition, rest = self._rest
                records: Sequence[ReadRecord] = list(rest)
                self._rest = None
            elif (page := self._next_page()) is not None:
                partition, records = page
            else:
                return
            if records:
                self.positions[partition] = records[-1].offset + 1
                yield partition, records

    def acknowledge(self, partition: int, offset: int) -> int:
        """Acknowledge every record of ``partition`` up to and including ``offset``; return the mark after it.

        Raises:
            OwnerFencedError, SessionSeveredError, SessionExpiredError: Nothing was acknowledged.
        """
        return self._client.acknowledge(
            self.topic, self.name, partition, cumulative=offset, session_id=self._session_id
        )

    def acknowledge_individually(self, partition: int, offsets: Iterable[int]) -> int:
        """Acknowledge these records only; return the mark after it. Raises as ``acknowledge`` does."""
        return self._client.acknowledge(
            self.topic, self.name, partition, individual=offsets, session_id=self._session_id
        )

    def _next_page(self) -> tuple[int, Sequence[ReadRecord]] | None:
        """Return the next page that shows something, or ``None`` at the end."""
        while self._open:
            partition, position, page = self._fetching.next()
            if isinstance(page, BaseException):
                self._fetching.want(partition, position)  # so that a caller who goes on asks again
                raise page
            bounds = page.bounds
            end = bounds.last_stable_offset if self._isolation == "read_committed" else bounds.next_offset
            if self._is_following or page.position < self._ends.setdefault(partition, end):
                self._fetching.want(partition, page.position)  # fetched while this page is used
            else:
                self._open.remove(partition)
            if page.records:
                return partition, page.records
        return None

    def _fetch(self, partition: int, position: int | None, wait_ms: int) -> Page:
        def read(offset: int | None) -> Page:
            return self._client.read_subscription(
                self.topic,
                self.name,
                partition,
                offset=offset,
                max_records=self._max_records,
                wait_ms=wait_ms,
                isolation=self._isolation,
                session_id=self._session_id,
            )

        try:
            return read(position)
        except errors.OffsetOutOfRangeError:
            if position is None:
                raise
            return read(None)  # Retention, a seek or another subscriber moved the mark past this position.
