"""A subscriber: the records of a subscription that are not acknowledged, and their acknowledgements.

Rule: a subscriber shows each record once, in the order of its partition. Because the next subscriber shows again what
was not acknowledged, a program acknowledges a record after it has done the record's work.

- Under a session that owns the partitions for the group, the service checks each page and each acknowledgement, and
  refuses those of a reader that was severed.

- A subscriber that follows its whole topic also reads the partitions that are added (``topic_watch``).

- With ``ack_every_ms`` acknowledgements are gathered (``acknowledger``), and sent by the next call once they are due,
  during a wait for records, at the end of an iteration, and by ``close``.

- After a crash at most the records that were acknowledged within ``ack_every_ms`` are shown again. The call that sends
  acknowledgements raises their error.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from fenceline import errors
from fenceline.client.acknowledger import Acknowledgements
from fenceline.client.api import ApiClient
from fenceline.client.calls import check_here, public
from fenceline.client.following import IDLE_DELAY_MS, MAX_DELAY_MS, Following
from fenceline.client.poller import Answer, Poller
from fenceline.client.poller import Requests as PollerRequests
from fenceline.client.prefetch import Fetching
from fenceline.client.reader_watch import ReaderWatch
from fenceline.client.session import GIVE_BACK_MS
from fenceline.client.topic_watch import NewPartitions
from fenceline.client.transport import log
from fenceline.model.kinds import Isolation
from fenceline.model.results import Page, ReadRecord


@public
class Subscriber:
    """An iterator over a subscription, made by ``Client.subscribe``, for one thread; a context manager that closes it.

    Iterating yields ``(partition, record)``, and ``pages`` the same in lists, which is faster. Each goes on where the
    other left off. A subscriber that does not follow ends at the next offsets of each partition's first answer.

    Attributes:
        topic, name: The topic, and the subscription's name.
        positions: For each partition the offset right after the last record that was yielded.
    """

    def __init__(
        self,
        client: ApiClient,
        topic: str,
        name: str,
        partitions: Sequence[int],
        *,
        new_from: int | None,
        is_following: bool,
        isolation: Isolation,
        require_stable: bool,
        session_id: str | None,
        max_records: int,
        ack_every_ms: int,
        is_shared: bool = False,
        max_delay_ms: int = MAX_DELAY_MS,
        idle_delay_ms: int = IDLE_DELAY_MS,
        topic_id: str | None = None,
    ) -> None:
        self._client = client
        self._topic_id = topic_id
        self._max_delay_ms = max_delay_ms
        self.topic = topic
        self.name = name
        self._isolation: Isolation = isolation
        self._require_stable = require_stable
        self._session_id = session_id
        self._is_following = is_following
        self._max_records = max_records
        watch = ReaderWatch(client, topic, name, client.runtime.fresh_id(), session_id, is_shared=is_shared)
        self._acknowledgements = Acknowledgements(watch.acknowledge, client.runtime, ack_every_ms)
        self._ends: dict[int, int] = {}
        self._open = set(partitions)
        self._rest: tuple[int, Iterator[ReadRecord]] | None = None  # unread end of a page
        self.positions: dict[int, int] = {}
        self._fetching: Fetching[int | None, Page] | Poller[int, int | None, Page]
        if is_following:
            pace: Following[int, int | None] = Following(
                client.runtime.monotonic_ms(),
                max_delay_ms=max_delay_ms,
                idle_delay_ms=idle_delay_ms,
                shows_more=lambda page: page.position < page.bounds.end(self._isolation),
            )
            requests = PollerRequests(self._poll, self._fetch)
            self._fetching = Poller(requests, pace, client.runtime, f"{topic}/{name}")
        else:
            self._fetching = Fetching(self._fetch, len(partitions), is_following=False)
        self._fetching.start((partition, None) for partition in partitions)
        self._new: NewPartitions | None = None
        if new_from is not None:
            self._new = NewPartitions(client, topic, new_from, self._read_new, group=name, session_id=session_id)
            self._fetching.growth = self._new

    def __enter__(self) -> Subscriber:
        return self

    def __exit__(self, exception: type[BaseException] | None, *exc: object) -> None:
        if exception is None:
            self.close()
            return
        try:
            # The work of acknowledged records was done in spite of the exception.
            self._acknowledgements.send_last(within_ms=GIVE_BACK_MS)
        except errors.FencelineError as error:  # not raised: it would hide the block's own exception
            log.warning(
                "the subscriber could not send its last acknowledgements; their records come again: why=%s", error.code
            )
        finally:
            self._stop()

    def flush(self) -> None:
        """Send all gathered acknowledgements. Call it before a seek, which they would undo.

        Raises:
            FencelineError: As ``acknowledge``.
        """
        self._acknowledgements.send_all()

    def close(self) -> None:
        """Flush, and ask for no further page. Later acknowledgements are sent at once.

        Raises:
            FencelineError: As ``flush``; the subscriber is closed all the same.
        """
        try:
            self._acknowledgements.send_last()
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._new is not None:
            self._new.close()
        self._fetching.close()

    def _read_new(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self._fetching.add(partition, None)  # from the subscription's mark, which is at the beginning there

    def __iter__(self) -> Iterator[tuple[int, ReadRecord]]:
        """Yield each record with its partition.

        Raises:
            OwnerFencedError: Another session owns a partition for this group.
            SessionSeveredError, SessionExpiredError: The session is over.
            UnknownSubscriptionError: The subscription was deleted.
            UnstableOffsetCommitError: An open transaction still has an offset for the partition, which matters to this
                subscriber (``require_stable``). Iterate again.
            FencelineError: As ``acknowledge``, for what was gathered. No record is lost: iterate again.
        """
        try:
            while True:
                check_here(self)
                if self._rest is None:
                    page = self._next_page()
                    if page is None:
                        return
                    self._rest = (page[0], iter(page[1]))
                partition, records = self._rest
                for record in records:
                    self.positions[partition] = record.offset + 1
                    yield partition, record
                    check_here(self)
                    self._acknowledgements.send_due()
                self._rest = None
        finally:
            self._fetching.pause()

    def pages(self) -> Iterator[tuple[int, Sequence[ReadRecord]]]:
        """Yield records in lists, each with its partition; raises as iterating does."""
        try:
            while True:
                check_here(self)
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
                    check_here(self)
                    self._acknowledgements.send_due()
        finally:
            self._fetching.pause()

    def acknowledge(self, partition: int, offset: int) -> int:
        """Acknowledge every record of ``partition`` up to and including ``offset``; return the mark after it.

        With ``ack_every_ms`` the mark is that of the service's last answer, and -1 before the first one.

        Raises:
            OwnerFencedError, SessionSeveredError, SessionExpiredError: Nothing was acknowledged, neither this nor what
                was gathered for this partition.
        """
        return self._acknowledgements.add(partition, cumulative=offset)

    def acknowledge_individually(self, partition: int, offsets: Iterable[int]) -> int:
        """Acknowledge these records only; return the mark after it. Raises as ``acknowledge`` does."""
        return self._acknowledgements.add(partition, individual=offsets)

    def _next_page(self) -> tuple[int, Sequence[ReadRecord]] | None:
        """Return the next page that shows something, or ``None`` at the end."""
        while self._open:
            partition, position, page = self._next_fetched()
            if isinstance(page, errors.OffsetOutOfRangeError) and position is not None:
                # Retention, a seek or another subscriber moved the mark past this position.
                self._fetching.want(partition, None)
                continue
            if isinstance(page, BaseException):
                if self._new is not None:
                    self._new.refused(page)
                self._fetching.want(partition, position)  # for a caller that goes on
                raise page
            if self._is_following or page.position < self._ends.setdefault(partition, page.bounds.end(self._isolation)):
                self._fetching.want(partition, page.position)  # fetched during this page's use
            else:
                self._open.remove(partition)
            if page.records:
                return partition, page.records
        self._acknowledgements.send_all()
        return None

    def _next_fetched(self) -> tuple[int, int | None, Page | BaseException]:
        """Wait for a page, and send what falls due meanwhile."""
        while (left_ms := self._acknowledgements.left_ms()) is not None:
            if left_ms == 0:
                self._acknowledgements.send_due()
            elif (fetched := self._fetching.next_within(left_ms)) is not None:
                return fetched
        return self._fetching.next()

    def _poll(self, places: Sequence[tuple[int, int | None]], wait_ms: int) -> Answer[int, Page]:
        from fenceline.model.requests import PollPosition  # only followers poll

        polled = self._client.poll(
            [
                PollPosition(
                    self.topic,
                    partition,
                    offset,
                    self._topic_id,
                    self.name,
                    require_stable=self._require_stable and offset is None,
                )
                for partition, offset in places
            ],
            max_records=self._max_records,
            wait_ms=wait_ms,
            max_delay_ms=self._max_delay_ms if wait_ms else None,
            isolation=self._isolation,
            session_id=self._session_id,
        )
        for _, topic_id, _ in polled.entries:
            self._topic_id = self._topic_id or topic_id or None
        entries = [(position.partition, page) for position, _, page in polled.entries]
        return Answer(entries, polled.has_more, polled.hold)

    def _fetch(self, partition: int, position: int | None, wait_ms: int) -> Page:
        return self._client.read_subscription(
            self.topic,
            self.name,
            partition,
            offset=position,
            max_records=self._max_records,
            wait_ms=wait_ms,
            isolation=self._isolation,
            require_stable=self._require_stable and position is None,  # later, its own transactions send offsets
            session_id=self._session_id,
        )
