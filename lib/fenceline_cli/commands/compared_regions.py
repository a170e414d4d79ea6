"""A region as ``fenceline verify --peer`` reads it: through its service, or from its stores.

Rule: this only reads, and shows a side of the comparison the same either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urljoin

from fenceline import limits
from fenceline.errors import StoreUnavailableError
from fenceline.format import keys
from fenceline.model.requests import ReadRequest
from fenceline_cli.output import CommandError

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.results import Bounds, Page, SegmentEntry, SegmentList
    from fenceline.model.topic import Topic
    from fenceline.recovery.verify_peer import Side
    from fenceline.service.log import Log

FETCH_S = 30


class ComparedRegion(Protocol):
    """A region, its topics and their partitions."""

    @property
    def region(self) -> str: ...
    def topics(self) -> Iterator[Topic]: ...
    def topic(self, name: str) -> Topic: ...
    def partition(self, topic: str, number: int) -> Side: ...


class ServedRegion:
    """A region whose service answers."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.region = client.region()

    def topics(self) -> Iterator[Topic]:
        return self._client.topics()

    def topic(self, name: str) -> Topic:
        return self._client.topic(name)

    def partition(self, topic: str, number: int) -> Side:
        return _ServedPartition(self._client, self.region, topic, number)


class _ServedPartition:
    """One partition, through the service of its region."""

    def __init__(self, client: Client, region: str, topic: str, number: int) -> None:
        self._client = client
        self.region = region
        self._place = topic, number

    def bounds(self) -> Bounds:
        return self._client.offsets(*self._place).bounds

    def read(self, offset: int) -> Page:
        page = self._client.read(
            *self._place,
            offset=offset,
            max_records=limits.RECORDS_MAX,
            max_bytes=limits.BYTES_DEFAULT,
            isolation="read_committed",
            identity=True,
        )
        if any(record.number is None for record in page.records):
            raise CommandError(f"the service of {self.region} knows no numbers of records; upgrade it first")
        return page

    def segments(self, offset: int) -> SegmentList:
        return self._client.segments(*self._place, offset=offset)

    def body(self, entry: SegmentEntry) -> bytes:
        return fetched(urljoin(f"{self._client.url}/", entry.url))


class StoredRegion:
    """A region whose stores this process has opened."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.region = log.context.region

    def topics(self) -> Iterator[Topic]:
        after, has_more = "", True
        while has_more:
            found, has_more = self._log.topics.list(start_after=after, limit=limits.LIST_MAX)
            yield from found
            after = found[-1].name if found else after

    def topic(self, name: str) -> Topic:
        return self._log.topics.get(name)

    def partition(self, topic: str, number: int) -> Side:
        return _StoredPartition(self._log, topic, number)


class _StoredPartition:
    """One partition, from the stores of its region."""

    def __init__(self, log: Log, topic: str, number: int) -> None:
        self._log = log
        self.region = log.context.region
        self._place = topic, number

    def bounds(self) -> Bounds:
        return self._log.partitions.offsets(*self._place).bounds

    def read(self, offset: int) -> Page:
        request = ReadRequest(offset=offset, max_records=limits.RECORDS_MAX, is_read_committed=True, is_identified=True)
        return self._log.partitions.read(*self._place, request)

    def segments(self, offset: int) -> SegmentList:
        return self._log.partitions.segments(*self._place, offset=offset)

    def body(self, entry: SegmentEntry) -> bytes:
        topic_id = self._log.topics.get(self._place[0]).topic_id
        return self._log.context.objects.get(keys.segment_key(topic_id, self._place[1], entry.base_offset)).body


def fetched(url: str) -> bytes:
    """Return the object behind a segment's URL.

    Raises:
        StoreUnavailableError: It could not be fetched.
    """
    import httpx  # only here: loaded already by a command that asks a service

    try:
        return httpx.get(url, timeout=FETCH_S).raise_for_status().content
    except httpx.HTTPError as error:
        raise StoreUnavailableError(f"a segment could not be fetched: reason={type(error).__name__}") from error
