"""``fenceline verify --peer``: whether two regions keep the same records of each origin.

Rule: a comparison only reads. A region is read through its service or from its stores, with the same result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from urllib.parse import urljoin

import typer

from fenceline import limits
from fenceline.errors import StoreUnavailableError, UnknownTopicOrPartitionError
from fenceline.format import keys
from fenceline.model.requests import ReadRequest
from fenceline.recovery.verify_peer import Compared, compare, keeps_records
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows
from fenceline_cli.progress import bar

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.results import Bounds, Page, SegmentEntry, SegmentList
    from fenceline.model.topic import Topic
    from fenceline.recovery.verify_peer import Side
    from fenceline.service.log import Log


COLUMNS = ("topic", "partition", "origin", "origin_topic_id", "first_number", "last_number", "records", "result")
TERMINAL_COLUMNS = ("topic", "partition", "origin", "id", "numbers", "records", "result")


class ComparedOrigin(NamedTuple):
    """The result for one origin in one partition; without ``found``, nothing could be compared, as ``why`` says.

    Attributes:
        is_lacking: Whether one region lacks what ``why`` names.
    """

    topic: str
    partition: int | None
    found: Compared | None
    why: str = ""
    is_lacking: bool = False

    @property
    def differs(self) -> bool:
        found = self.found
        return self.is_lacking if found is None else (found.differs_at, found.lacks_at) != (None, None)


def compare_regions(own: ComparedRegion, peer: ComparedRegion, topic: str | None, *, as_json: bool) -> None:
    """Compare the topics of both regions, print what was found, and end with 1 if one differs or lacks anything.

    Raises:
        CommandError: ``topic`` is not in both regions.
    """
    rows = [row for one in _topics(own, peer, topic) for row in _compared(own, peer, one, is_only=topic is not None)]
    if topic is None:
        rows += _only_there(own, peer)
    if as_json:
        print_json([_document(row) for row in rows])
    elif sys.stdout.isatty():
        _show_on_terminal([_row(row) for row in rows])
    else:
        print_rows(COLUMNS, [_row(row) for row in rows])
    if any(row.differs for row in rows):
        raise typer.Exit(EXIT_FAILED)


def _topics(own: ComparedRegion, peer: ComparedRegion, name: str | None) -> Iterator[Topic]:
    if own.region == peer.region:
        raise typer.BadParameter(f"both services are region {own.region}; give the URL of another region as --peer")
    if name is None:
        yield from (one for one in own.topics() if peer.region in one.regions)
        return
    found = own.topic(name)
    if peer.region not in found.regions:
        raise CommandError(
            f"topic {name} is not connected with {peer.region}; name one of its other regions as --peer: regions="
            f"{','.join(found.regions)}"
        )
    yield found


def _only_there(own: ComparedRegion, peer: ComparedRegion) -> Iterator[ComparedOrigin]:
    """Yield a row for each topic of the peer that names the own region, which has no such topic."""
    here = {one.name for one in own.topics()}
    for one in peer.topics():
        if own.region in one.regions and one.name not in here:
            yield ComparedOrigin(one.name, None, None, f"{own.region} has no such topic", is_lacking=True)


def _compared(own: ComparedRegion, peer: ComparedRegion, topic: Topic, *, is_only: bool) -> Iterator[ComparedOrigin]:
    try:
        there = peer.topic(topic.name)
    except UnknownTopicOrPartitionError:
        if is_only:
            raise CommandError(f"{peer.region} has no topic {topic.name}; create it there with --regions") from None
        yield ComparedOrigin(topic.name, None, None, f"{peer.region} has no such topic", is_lacking=True)
        return
    for number in range(max(topic.partitions, there.partitions)):
        if number >= min(topic.partitions, there.partitions):
            lacking, having = (own, peer) if number >= topic.partitions else (peer, own)
            is_lacking = keeps_records(having.partition(topic.name, number))
            yield ComparedOrigin(topic.name, number, None, f"{lacking.region} has no such partition", is_lacking)
            continue
        sides = own.partition(topic.name, number), peer.partition(topic.name, number)
        bounds = [side.bounds() for side in sides]
        total = sum(one.last_stable_offset - one.log_start_offset for one in bounds)
        with bar(f"{topic.name}/{number}", total) as advance:
            found = compare(number, *sides, on_progress=advance)
        yield from (ComparedOrigin(topic.name, number, one) for one in found)


def _show_on_terminal(rows: Sequence[tuple[object, ...]]) -> None:
    """Print a table for 80 columns: ids are cut short, and what is wrong comes after it."""
    results = [str(row[-1]).partition(": ") for row in rows]
    short = []
    for (*place, life, first, last, records, _), (result, _, _) in zip(rows, results, strict=True):
        numbers = "" if first == "" else f"{first}-{last}"
        short.append((*place, str(life)[:8], numbers, records, result))
    print_rows(TERMINAL_COLUMNS, short)
    for row, (result, _, why) in zip(rows, results, strict=True):
        if why:
            typer.echo(f"{row[0]}/{row[1]} {row[2]} {result}: {why}")


def _row(row: ComparedOrigin) -> tuple[object, ...]:
    found, partition = row.found, "all" if row.partition is None else row.partition
    if found is None:
        return row.topic, partition, "", "", "", "", 0, f"{'DIFFERS' if row.differs else 'not compared'}: {row.why}"
    result = f"not compared: {found.problem}" if found.first_number is None else "equal"
    if row.differs:
        result = f"DIFFERS: {found.problem}"
    numbers = ("" if number is None else number for number in (found.first_number, found.last_number))
    return row.topic, partition, *found.life, *numbers, found.records, result


def _document(row: ComparedOrigin) -> dict[str, Any]:
    found = row.found
    if found is None:
        return {
            "topic": row.topic,
            "partition": row.partition,
            "problem": row.why,
            "differs_at": None,
            "differs": row.differs,
        }
    return {
        "topic": row.topic,
        "partition": row.partition,
        "origin": found.life.origin,
        "origin_topic_id": found.life.topic_id,
        "first_number": found.first_number,
        "last_number": found.last_number,
        "records": found.records,
        "differs_at": found.differs_at,
        "differs": row.differs,
        "problem": found.problem,
    }


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
