"""A subscriber's stay in one region: its pages, its acknowledgements, and whether the region is silent.

Rule: a region is silent if a request to it gets no usable answer for ``silent_ms``. Every method then raises one of
``UNUSABLE``, and nothing else does.

- A refusal (4xx) is an answer, so it is raised as it is, and the region is not silent.

- NOT_FOUND is no answer: the path exists at every fenceline service, so another server sent it.

- A subscriber that follows its whole topic also reads the partitions that are added there (``topic_watch``).

- Only time spent polling counts towards silence, so a paused program does not fail over.

Not here: where the subscriber goes from a silent region; see ``failover``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeVar

from fenceline import errors
from fenceline.client.api import ApiClient
from fenceline.client.identities import Shown
from fenceline.client.prefetch import Fetching
from fenceline.client.topic_watch import NewPartitions
from fenceline.model.kinds import Isolation
from fenceline.model.results import Page, ReadRecord
from fenceline.runtime import Runtime

UNUSABLE = (
    errors.StoreUnavailableError,
    errors.ContendedError,
    errors.OutcomeUnknownError,
    errors.NotFoundError,
)
LOOK_MS = 50  # between two looks at the time, while no page comes
_POLL_HOLD_MS = 3_000  # the rest of the silence is for the poll's answer
_PAUSE_MS = 250  # after the client gave up a request before the region counts as silent
_AWAY_MS = 2_000  # between two looks, from which on the caller was away

T_co = TypeVar("T_co", covariant=True)


class RetriedRequest(Protocol[T_co]):
    """A request that is sent again for ``retry_ms``, each time with ``timeout_ms`` for its answer."""

    def __call__(self, *, retry_ms: int, timeout_ms: int) -> T_co: ...


@dataclass(frozen=True, slots=True)
class Wanted:
    """The subscription that a subscriber reads, in whichever region."""

    topic: str
    name: str
    partitions: Sequence[int] | None  # None: all that the region has
    is_following: bool
    isolation: Isolation
    max_records: int
    silent_ms: int


@dataclass(frozen=True, slots=True)
class RegionalRecord(ReadRecord):
    """A record with its identity, and the region in which it was read: ``offset`` is its offset there.

    Attributes:
        stay: The subscriber's stay in a region in which the record was read. Offsets of an earlier stay are not used
            again, even in the same region, because its log may have been restored since.
    """

    region: str = ""
    stay: int = 0


def read_in(region: str, stay: int, record: ReadRecord) -> RegionalRecord:
    """Return ``record`` as one that was read in that stay."""
    return RegionalRecord(
        record.offset,
        record.timestamp,
        record.key,
        record.value,
        record.headers,
        record.topic_epoch,
        record.origin,
        record.origin_topic_id,
        record.number,
        record.value_bytes,
        region,
        stay,
    )


def answered(
    runtime: Runtime, silent_ms: int, request: RetriedRequest[T_co], is_over: Callable[[], bool] = lambda: False
) -> T_co:
    """Send ``request`` until it gets a usable answer.

    Raises:
        FencelineError: The answer, if it is a refusal. One of ``UNUSABLE``: there was none for ``silent_ms``.
    """
    end = runtime.monotonic_ms() + silent_ms
    while True:
        left = max(end - runtime.monotonic_ms(), 0)
        try:
            return request(retry_ms=left, timeout_ms=silent_ms // 2)
        except UNUSABLE:
            left = end - runtime.monotonic_ms()
            if is_over() or left <= 0:
                raise
        runtime.sleep_ms(min(_PAUSE_MS, left))


class RegionReader:
    """A subscriber in one region, made by ``enter``. For one thread.

    Attributes:
        region: The region's name.
        shown: For each partition what was shown, until it is acknowledged cumulatively.
    """

    def __init__(self, client: ApiClient, wanted: Wanted, region: str, partitions: Sequence[int]) -> None:
        self.region = region
        self.shown = {partition: Shown() for partition in partitions}
        self._client = client
        self._runtime = client.runtime
        self._wanted = wanted
        self._open = set(partitions)
        self._ends: dict[int, int] = {}
        self._closed = threading.Event()
        self._lock = self._runtime.lock()
        self._asked: dict[int, int] = {}  # since when a page is waited for (monotonic clock)
        self._looked = self._present = self._runtime.monotonic_ms()
        hold_ms = min(_POLL_HOLD_MS, wanted.silent_ms // 4)
        # Always as one that follows, because threads that wait for a silent region are not waited for.
        self._fetching: Fetching[int | None, Page] = Fetching(
            self._fetch, len(partitions), is_following=True, wait_ms=hold_ms
        )
        self._fetching.start((partition, None) for partition in partitions)
        self._new: NewPartitions | None = None
        if wanted.partitions is None and wanted.is_following:
            self._new = NewPartitions(client, wanted.topic, len(partitions), self._read_new)
            self._fetching.growth = self._new
        self._fetching.go_on()  # before the first call: a region that was just entered shows whether it answers

    def next_page(self) -> tuple[int, Page] | None:
        """Return a page with its partition, or ``None`` if none came for a moment, or all partitions are at their end.

        Raises:
            FencelineError: As ``answered``. The page is fetched again.
        """
        fetched = self._fetching.next_within(LOOK_MS) if self._open else None
        if fetched is None:
            self._check_silence()
            return None
        partition, position, page = fetched
        if isinstance(page, BaseException):
            if self._new is not None:
                self._new.refused(page)
            self._fetching.want(partition, position)
            raise page
        end = page.bounds.end(self._wanted.isolation)
        if self._wanted.is_following or page.position < self._ends.setdefault(partition, end):
            self._fetching.want(partition, page.position)
        else:
            self._open.remove(partition)
        return partition, page

    @property
    def is_over(self) -> bool:
        """Return True if each partition was read to its end, by a subscriber that does not follow."""
        return not self._open

    def acknowledge(
        self, partition: int, *, cumulative: int | None = None, individual: Iterable[int] | None = None
    ) -> None:
        """Acknowledge offsets of this region; raises as ``answered``, and then they may be acknowledged or not."""
        named = partial(self._client.acknowledge, self._wanted.topic, self._wanted.name, partition)
        self._answered(partial(named, cumulative=cumulative, individual=individual))

    def pause(self) -> None:
        """Leave no threads; the next call for a page goes on."""
        self._fetching.pause()

    def close(self) -> None:
        self._closed.set()
        if self._new is not None:
            self._new.close()
        self._fetching.close()

    def _read_new(self, partitions: Sequence[int]) -> None:
        for partition in partitions:
            self.shown[partition] = Shown()  # before a page comes
            self._fetching.add(partition, None)

    def _answered(self, request: RetriedRequest[T_co]) -> T_co:
        return answered(self._runtime, self._wanted.silent_ms, request, self._closed.is_set)

    def _check_silence(self) -> None:
        now = self._runtime.monotonic_ms()
        if now - self._looked > _AWAY_MS:
            self._present = now
        self._looked = now
        with self._lock:
            first = min(self._asked.values(), default=now)
        if now - max(first, self._present) >= self._wanted.silent_ms:
            raise errors.StoreUnavailableError(
                f"the region gave no usable answer: region={self.region} silent_ms={self._wanted.silent_ms}"
            )

    def _fetch(self, partition: int, position: int | None, wait_ms: int) -> Page:
        with self._lock:
            self._asked[partition] = self._runtime.monotonic_ms()
        try:
            return self._answered(partial(self._read, partition, position, wait_ms))
        finally:
            with self._lock:
                del self._asked[partition]

    def _read(self, partition: int, position: int | None, wait_ms: int, *, retry_ms: int, timeout_ms: int) -> Page:
        def read(offset: int | None) -> Page:
            return self._client.read_subscription(
                self._wanted.topic,
                self._wanted.name,
                partition,
                offset=offset,
                max_records=self._wanted.max_records,
                wait_ms=wait_ms if self._wanted.is_following else 0,
                isolation=self._wanted.isolation,
                identity=True,
                retry_ms=retry_ms,
                timeout_ms=timeout_ms,
            )

        try:
            return read(position)
        except errors.OffsetOutOfRangeError:
            if position is None:
                raise
            # Retention, a seek or another subscriber moved the mark past this position.
            return read(None)


def enter(client: ApiClient, wanted: Wanted, silent_ms: int) -> RegionReader:
    """Begin to read in the region of ``client``. Its subscription is replicated from now on, and created if missing.

    A missing one is created at earliest, because at ``latest`` all earlier records would be acknowledged in every
    region.

    Raises:
        FencelineError: As ``answered``.
    """
    runtime = client.runtime
    region = answered(runtime, silent_ms, client.region)
    create = partial(client.create_subscription, wanted.topic, wanted.name)
    create = partial(create, initial_position="earliest", replicate_subscription_state=True)
    answered(runtime, silent_ms, create)
    partitions = wanted.partitions
    if partitions is None:
        partitions = range(answered(runtime, silent_ms, partial(client.topic, wanted.topic)).partitions)
    return RegionReader(client, wanted, region, partitions)
