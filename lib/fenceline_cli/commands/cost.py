"""``fenceline cost``: what a million appends and a GiB cost on AWS, from counted requests and dated prices.

Rule: requests are counted, on a log in memory, never estimated. Only the functions' time, which can't be counted here,
comes from prices.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field

import typer

from fenceline import limits
from fenceline.adapters.sqlite.directory import SqliteItemStore, SqliteObjectStore
from fenceline.append.request import AppendRequest
from fenceline.format.batch import encode
from fenceline.format.item_size import size_of
from fenceline.log.polls import SharedSlots
from fenceline.model.record import Record
from fenceline.model.requests import ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.ports import Change, Item, ItemKey, Object, ObjectSummary, Put
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.sweeper.sweep import sweep
from fenceline_cli.commands import prices
from fenceline_cli.commands.jumping import JumpingRuntime
from fenceline_cli.options import AsJson
from fenceline_cli.output import print_json, print_rows

app = typer.Typer()

KIB = 1024
SIZES_KIB = (1, 64, 1024)
APPENDS = 4 * limits.CHECKPOINT_SEGMENTS
TOPIC = "cost"
SWEEPS_PER_MONTH = 30 * 24 * 60
POLLS_PER_MONTH = 30 * 24 * 3_600_000 // limits.WAIT_MS_MAX
COLUMNS = ("batch", "what", "$ per million requests", "$ per GiB", "counted in each request")


@dataclass(slots=True)
class Counted:
    """The requests to the stores, in the units that AWS charges."""

    units: Counter[str] = field(default_factory=Counter)

    @property
    def dollars(self) -> float:
        each = {
            "put": prices.S3_PUT,
            "list": prices.S3_PUT,
            "get": prices.S3_GET,
            "delete": 0.0,
            "write unit": prices.DYNAMODB_WRITE_UNIT,
            "read unit": prices.DYNAMODB_READ_UNIT,
        }
        return sum(each[unit] * count for unit, count in self.units.items())


class CountedObjects(SqliteObjectStore):
    """An object store in memory that counts its requests."""

    def __init__(self, counted: Counted, runtime: ThreadRuntime) -> None:
        super().__init__(":memory:", now_ms=runtime.now_ms)
        self._counted = counted

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        self._counted.units["put"] += 1
        super().create(key, body, metadata)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        self._counted.units["get"] += 1
        return super().get(key, start, end)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        self._counted.units["list"] += 1
        return super().list(prefix, start_after, limit)

    def delete(self, key: str) -> None:
        self._counted.units["delete"] += 1
        super().delete(key)


class CountedItems(SqliteItemStore):
    """An item store in memory that counts the units of its requests."""

    def __init__(self, counted: Counted) -> None:
        super().__init__(":memory:")
        self._counted = counted

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        found = super().get(keys)
        sizes = [size_of(key, found[key].value) if key in found else 1 for key in keys]
        self._counted.units["read unit"] += sum(_units(size, prices.READ_UNIT_BYTES) for size in sizes)
        return found

    def write(self, changes: Sequence[Change]) -> None:
        sizes = [size_of(one.key, one.value) if isinstance(one, Put) else 1 for one in changes]
        units = sum(_units(size, prices.WRITE_UNIT_BYTES) for size in sizes)
        self._counted.units["write unit"] += units * (2 if len(changes) > 1 else 1)
        super().write(changes)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        found = super().query(partition, start_after=start_after, prefix=prefix, limit=limit)
        size = sum(size_of(item.key, item.value) for item in found)
        self._counted.units["read unit"] += _units(max(size, 1), prices.READ_UNIT_BYTES)
        return found


@dataclass(frozen=True, slots=True)
class Row:
    """The cost of one kind of request."""

    batch: str
    what: str
    per_million: float
    per_gib: float
    counted: Mapping[str, float]


@app.command(epilog="Example: fenceline cost\n\nExample: fenceline cost --json")
def cost(as_json: AsJson = False) -> None:
    """Count the requests of appends, reads, held polls and idle sweeps, and print what they cost on AWS.

    Prices are list prices. They are kept with their date in one file of this program, prices.py. Traffic out of the
    region is not included.
    """
    rows = [row for kib in SIZES_KIB for row in measured(kib)]
    idle, follower = idle_month(), follower_month()
    if as_json:
        print_json(
            {
                "prices": {"date": prices.DATE, "region": prices.REGION},
                "rows": [
                    {
                        "batch": row.batch,
                        "what": row.what,
                        "per_million": row.per_million,
                        "per_gib": row.per_gib,
                        "counted": dict(row.counted),
                    }
                    for row in rows
                ],
                "idle_month": idle,
                "follower_month": follower,
                "gib_month": prices.S3_GIB_MONTH,
            }
        )
        return
    print_rows(
        COLUMNS,
        [(row.batch, row.what, f"{row.per_million:,.2f}", f"{row.per_gib:,.4f}", _shown(row.counted)) for row in rows],
    )
    typer.echo(f"\nkept: ${prices.S3_GIB_MONTH} per GiB and month; idle: ${idle:,.2f} per region and month")
    typer.echo(f"a reader that follows one partition, a poll held all the time: ${follower:,.2f} per month")
    typer.echo(f"list prices of {prices.REGION}, {prices.DATE}; without traffic out of the region")


def measured(kib: int) -> list[Row]:
    """Count appends of batches of ``kib`` KiB, one in a request, and reading them back."""
    runtime, counted = ThreadRuntime(), Counted()
    around = len(encode([Record(bytes(kib * KIB))], now_ms=runtime.now_ms()).body) - kib * KIB
    record = Record(bytes(kib * KIB - around))
    body = encode([record], now_ms=runtime.now_ms()).body
    with closing(CountedObjects(counted, runtime)) as objects, closing(CountedItems(counted)) as items:
        log = Log(objects, items, runtime, region=prices.REGION)
        log.topics.create(TOPIC, config={"max.message.bytes": limits.MESSAGE_BYTES_MAX})
        stored = 0
        for sequence in range(-limits.CHECKPOINT_SEGMENTS, APPENDS):
            if sequence == 0:
                counted.units.clear()  # warm, and right after a checkpoint
            producer = ProducerRef(1, 0, sequence + limits.CHECKPOINT_SEGMENTS)
            request = AppendRequest.of_records([record], producer=producer)
            log.append(TOPIC, 0, request)
            stored += len(body) if sequence >= 0 else 0
        appended = _row(kib, "append", counted, APPENDS, stored, len(body), prices.APPEND_MS[kib])
        counted.units.clear()
        reader = Log(objects, items, runtime, region=prices.REGION)
        offset, pages, read = limits.CHECKPOINT_SEGMENTS, 0, 0
        while offset < limits.CHECKPOINT_SEGMENTS + APPENDS:
            page = reader.partitions.read_batches(TOPIC, 0, ReadRequest(offset=offset, max_bytes=limits.BYTES_DEFAULT))
            offset, pages, read = page.position, pages + 1, read + len(page.body)
        fetched = _row(kib, "read, pages of 1 MiB", counted, pages, read, read // pages, prices.READ_MS)
        log.close()
        reader.close()
        return [appended, fetched]


def _row(kib: int, what: str, counted: Counted, requests: int, moved: int, body: int, duration_ms: float) -> Row:
    """Return the cost of ``requests`` of one kind that moved ``moved`` bytes, each with a body of ``body`` bytes."""
    stores = counted.dollars / requests
    gateway = prices.API_REQUEST * _units(body, prices.API_REQUEST_BYTES)
    function = prices.LAMBDA_REQUEST + prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB * duration_ms / 1_000
    each = stores + gateway + function + prices.LOG_GB * prices.LOG_BYTES / prices.GB
    per_request = {unit: round(count / requests, 3) for unit, count in sorted(counted.units.items())}
    return Row(f"{kib} KiB", what, each * prices.MILLION, each * requests * prices.GIB / moved, per_request)


def idle_month() -> float:
    """Return the cost of a region in a month without requests."""
    runtime, counted = ThreadRuntime(), Counted()
    with closing(CountedObjects(counted, runtime)) as objects, closing(CountedItems(counted)) as items:
        log = Log(objects, items, runtime, region=prices.REGION)
        sweep(log, duration_ms=10_000)
        counted.units.clear()
        sweep(log, duration_ms=10_000)
        log.close()
    function = prices.LAMBDA_REQUEST + prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB * prices.SWEEP_MS / 1_000
    logged = prices.LOG_GB * prices.LOG_BYTES / prices.GB
    watched = prices.METRICS * prices.METRIC_MONTH + prices.ALARMS * prices.ALARM_MONTH + prices.DASHBOARD_MONTH
    return SWEEPS_PER_MONTH * (counted.dollars + function + logged) + watched


def follower_month() -> float:
    """Return the cost of a month of polls that find nothing, one after the other, each held for the longest time.

    Most of it is a function's time: a held poll occupies a process.
    """
    runtime, counted = JumpingRuntime(), Counted()
    with closing(CountedObjects(counted, runtime)) as objects, closing(CountedItems(counted)) as items:
        slots = SharedSlots(items, runtime, "read", limits.POLLS_OF_A_FUNCTION)
        log = Log(objects, items, runtime, region=prices.REGION, poll_slots=slots)
        log.topics.create(TOPIC)
        request = ReadRequest(offset=0, wait_ms=limits.WAIT_MS_MAX)
        log.partitions.read(TOPIC, 0, request)
        counted.units.clear()  # warm
        log.partitions.read(TOPIC, 0, request)
        log.close()
    seconds = limits.WAIT_MS_MAX / 1_000
    function = prices.LAMBDA_REQUEST + prices.LAMBDA_GB_SECOND * prices.LAMBDA_GB * seconds
    logged = prices.LOG_GB * prices.LOG_BYTES / prices.GB
    return POLLS_PER_MONTH * (counted.dollars + prices.API_REQUEST + function + logged)


def _units(size: int, unit: int) -> int:
    return -(-size // unit)


def _shown(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{count:g} {unit}" for unit, count in counted.items())
