"""``fenceline cost``: the cost of a million appends and of a GiB on AWS, from counted requests and dated prices.

Rule: requests are counted on a log in memory, and never estimated. Only the functions' time comes from ``prices``,
because it can't be counted here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.format.batch import encode
from fenceline.log.polls import SharedSlots
from fenceline.model.record import Record
from fenceline.model.requests import PollPosition, PollRequest, ReadRequest
from fenceline.model.results import ProducerRef
from fenceline.runtime import ThreadRuntime
from fenceline.service.log import Log
from fenceline.sweeper.sweep import sweep
from fenceline_cli import prices
from fenceline_cli.commands.cost import regions as between_regions
from fenceline_cli.commands.cost.charges import Counted, RequestCost
from fenceline_cli.commands.cost.fast_clock import JumpingRuntime
from fenceline_cli.options import AsJson
from fenceline_cli.output import print_json, print_rows

app = typer.Typer()

KIB = 1024
SIZES_KIB = (1, 64, 1024)
APPENDS = 4 * limits.CHECKPOINT_SEGMENTS
TOPIC = "cost"
SWEEPS_PER_MONTH = 30 * 24 * 60
MONTH_MS = 30 * 24 * 3_600_000
FOLLOWED = (4, 20, 500)  # partitions of a follower
DELAYS_MS = (5_000, 1_000)
POLLS_PER_MONTH = MONTH_MS // limits.WAIT_MS_MAX
COLUMNS = ("batch", "what", "$ per million requests", "$ per GiB", "counted in each request")


@app.command(epilog="Example: fenceline cost\n\nExample: fenceline cost --regions 3\n\nExample: fenceline cost --json")
def cost(
    regions: Annotated[
        int,
        typer.Option(
            min=1,
            max=limits.REGIONS_MAX,
            help="How many regions each topic is in. With 2 or more, the command adds what it costs until an append is"
            " in all other regions, and what a snapshot of subscriptions costs.",
        ),
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Count the requests of appends, reads, held polls and idle sweeps, and print what they cost on AWS.

    Prices are list prices. They are kept with their date in one file of this program, prices.py. Traffic out of the
    region is not included, except that between regions with --regions.
    """
    rows = [row for kib in SIZES_KIB for row in measured(kib)]
    between = None if regions == 1 else between_regions.measured(regions, SIZES_KIB)
    rows += [] if between is None else between.rows
    idle, follower = idle_month(has_peers=between is not None), follower_month()
    polled = [Followed.of(partitions) for partitions in FOLLOWED]
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
                "polled_months": [followed.document() for followed in polled],
                "gib_month": prices.S3_GIB_MONTH,
                **({} if between is None else {"regions": between.document()}),
            }
        )
        return
    print_rows(
        COLUMNS,
        [(row.batch, row.what, f"{row.per_million:,.2f}", f"{row.per_gib:,.4f}", _shown(row.counted)) for row in rows],
    )
    typer.echo(f"\nkept: ${prices.S3_GIB_MONTH} per GiB and month; idle: ${idle:,.2f} per region and month")
    for followed in polled:
        typer.echo(followed.line())
    typer.echo(f"a program that reads one partition, a plain read held all the time: ${follower:,.2f} per month")
    if between is not None:
        for line in between.lines():
            typer.echo(line)
    traffic = "" if between is None else f", but with ${prices.TRANSFER_GB} per GB between regions"
    typer.echo(f"list prices of {prices.REGION}, {prices.DATE}; without traffic out of the region{traffic}")


def measured(kib: int) -> list[RequestCost]:
    """Count appends of batches of ``kib`` KiB, one in a request, and reading them back."""
    runtime, counted = JumpingRuntime(), Counted()  # nothing is counted that only a slow machine makes due
    around = len(encode([Record(bytes(kib * KIB))], now_ms=runtime.now_ms()).body) - kib * KIB
    record = Record(bytes(kib * KIB - around))
    body = encode([record], now_ms=runtime.now_ms()).body
    with counted.stores(runtime) as (objects, items):
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


def _row(
    kib: int, what: str, counted: Counted, requests: int, moved: int, body: int, duration_ms: float
) -> RequestCost:
    """Return the cost of ``requests`` of one kind that moved ``moved`` bytes, each with a body of ``body`` bytes."""
    stores = counted.dollars / requests
    gateway = prices.API_REQUEST * -(-body // prices.API_REQUEST_BYTES)
    each = stores + gateway + prices.function_dollars(duration_ms)
    per_request = {unit: round(count / requests, 3) for unit, count in sorted(counted.units.items())}
    return RequestCost(f"{kib} KiB", what, each * prices.MILLION, each * requests * prices.GIB / moved, per_request)


def idle_month(*, has_peers: bool = False) -> float:
    """Return the cost of a region in a month without requests, and without the schedule that asks its peers."""
    runtime, counted = ThreadRuntime(), Counted()
    with counted.stores(runtime) as (objects, items):
        log = Log(objects, items, runtime, region=prices.REGION)
        sweep(log, duration_ms=10_000)
        counted.units.clear()
        sweep(log, duration_ms=10_000)
        log.close()
    metrics = prices.METRICS + (prices.PEER_METRICS if has_peers else 0)
    alarms = prices.ALARMS + (prices.PEER_ALARMS if has_peers else 0)
    watched = metrics * prices.METRIC_MONTH + alarms * prices.ALARM_MONTH + prices.DASHBOARD_MONTH
    return SWEEPS_PER_MONTH * (counted.dollars + prices.function_dollars(prices.SWEEP_MS)) + watched


def follower_month() -> float:
    """Return the cost of a month of plain reads that find nothing, one after the other, each held as long as can be."""
    runtime, counted = JumpingRuntime(), Counted()
    with counted.stores(runtime) as (objects, items):
        slots = SharedSlots(items, runtime, "read", limits.POLLS_OF_A_FUNCTION)
        log = Log(objects, items, runtime, region=prices.REGION, poll_slots=slots)
        log.topics.create(TOPIC)
        request = ReadRequest(offset=0, wait_ms=limits.WAIT_MS_MAX)
        log.partitions.read(TOPIC, 0, request)
        counted.units.clear()  # warm
        log.partitions.read(TOPIC, 0, request)
        log.close()
    return POLLS_PER_MONTH * (counted.dollars + prices.API_REQUEST + prices.function_dollars(limits.WAIT_MS_MAX))


def held_month(partitions: int) -> float:
    """Return the cost of a month of polls that find nothing, one after the other, each held for the longest time."""
    counted = _quiet_poll(partitions, wait_ms=limits.WAIT_MS_MAX)
    return POLLS_PER_MONTH * (counted.dollars + prices.API_REQUEST + prices.function_dollars(limits.WAIT_MS_MAX))


def polled_month(partitions: int, delay_ms: int) -> float:
    """Return the cost of a month of polls that find nothing in ``partitions``, sent each ``delay_ms`` and not held."""
    counted = _quiet_poll(partitions, wait_ms=0)
    each = counted.dollars + prices.API_REQUEST + prices.function_dollars(poll_ms(partitions))
    return MONTH_MS / delay_ms * each


def poll_ms(partitions: int) -> float:
    """Return how long a function is at a poll: its looks are made side by side, so many at once."""
    return prices.LOOK_MS * -(-partitions // limits.POLL_LOOKS_AT_ONCE)


def _quiet_poll(partitions: int, *, wait_ms: int) -> Counted:
    """Count the requests of one poll of so many partitions in which there is nothing new."""
    runtime, counted = JumpingRuntime(), Counted()
    with counted.stores(runtime) as (objects, items):
        slots = SharedSlots(items, runtime, "read", limits.POLLS_OF_A_FUNCTION)
        log = Log(objects, items, runtime, region=prices.REGION, poll_slots=slots)
        log.topics.create(TOPIC, partitions=partitions)
        positions = [PollPosition(TOPIC, partition, 0) for partition in range(partitions)]
        log.polling.poll_batches(PollRequest(positions, wait_ms=wait_ms))
        counted.units.clear()  # warm
        log.polling.poll_batches(PollRequest(positions, wait_ms=wait_ms))
        log.close()
    return counted


@dataclass(frozen=True, slots=True)
class Followed:
    """What a follower of quiet partitions costs in a month, in dollars: by the delay asked for, and with held polls."""

    partitions: int
    by_delay_ms: Mapping[int, float]
    held: float

    @staticmethod
    def of(partitions: int) -> Followed:
        by_delay_ms = {delay_ms: polled_month(partitions, delay_ms) for delay_ms in DELAYS_MS}
        return Followed(partitions, by_delay_ms, held_month(partitions))

    def line(self) -> str:
        delays = ", ".join(f"${month:,.2f} at {delay_ms // 1000} s" for delay_ms, month in self.by_delay_ms.items())
        return f"a follower of {self.partitions} quiet partitions: {delays}, ${self.held:,.2f} held, per month"

    def document(self) -> Mapping[str, object]:
        by_delay = [{"delay_ms": delay_ms, "month": month} for delay_ms, month in self.by_delay_ms.items()]
        return {"partitions": self.partitions, "by_delay": by_delay, "held": self.held}


def _shown(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{count:g} {unit}" for unit, count in counted.items())
