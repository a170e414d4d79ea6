"""``fenceline regions``: the other regions of a topic, and going on without one of them."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline_cli.options import DEFAULT_URL, AsJson, TopicName, Url, connect
from fenceline_cli.output import print_json, print_rows, utc
from fenceline_cli.region_options import region_name

if TYPE_CHECKING:
    from fenceline.model.region import RegionStatus

app = typer.Typer(
    name="regions",
    no_args_is_help=True,
    help="List the regions of a topic; suspend one that is lost, and resume it.\n\n"
    "Each region decides for itself: the commands ask, and change, only the region of --url. 'fenceline topic alter "
    "--regions' adds a region to a topic, or removes one.",
    epilog="Example: fenceline regions list orders\n\nExample: fenceline regions suspend orders b",
)

RegionName = Annotated[
    str,
    typer.Argument(
        metavar="REGION", callback=region_name, help="The other region, as 'fenceline regions list' shows it."
    ),
]

COLUMNS = ("region", "state", "lag_records", "last_seen_at", "problem")


@app.command("list", epilog="Example: fenceline regions list orders\n\nExample: fenceline regions list orders --json")
def list_regions(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the regions of a topic, as the region of --url sees them.

    The state is 'here' for that region itself, and for another one 'connected', 'away' or 'suspended'. A connected
    region has answered for this topic within 10 s. The column lag_records counts what it has and this region lacks.
    """
    with connect(url) as client:
        found = client.replication(topic)
    if as_json:
        print_json({"region": found.region, "regions": [asdict(one) for one in found.regions]})
        return
    rows = [(found.region, "here", "", "", ""), *map(_row, found.regions)]
    if not sys.stdout.isatty():
        print_rows(COLUMNS, rows)
        return
    print_rows(COLUMNS[:-1], [row[:-1] for row in rows])
    for one in found.regions:  # outside the table, which would break the lines
        if one.problem is not None:
            typer.echo(f"{one.region}: {one.problem}")


@app.command(epilog="Example: fenceline regions suspend orders b")
def suspend(topic: TopicName, region: RegionName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Go on without a region that is lost: snapshots no longer wait for it, so subscriptions move on elsewhere.

    What it wrote and this region lacks is taken from the other region that has most of it. Its own link goes on: when
    it is back, its later records arrive, none of them twice. Suspend it in each region that remains. Twice is no error.
    """
    with connect(url) as client:
        changed = client.suspend(topic, region)
    if as_json:
        print_json(asdict(changed))
        return
    typer.echo(f"suspended {region} for {topic}; 'fenceline regions resume {topic} {region}' ends it")


@app.command(epilog="Example: fenceline regions resume orders b")
def resume(topic: TopicName, region: RegionName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Count on a region again: from the next snapshot on it must answer.

    Resume it in each region. Twice is no error.
    """
    with connect(url) as client:
        changed = client.resume(topic, region)
    if as_json:
        print_json(asdict(changed))
        return
    typer.echo(f"resumed {region} for {topic} state={state_of(changed)}")


def state_of(one: RegionStatus) -> str:
    """Return the word for a region's state."""
    if one.suspended:
        return "suspended"
    return "connected" if one.connected else "away"


def _row(one: RegionStatus) -> tuple[object, ...]:
    seen = "" if one.last_seen_at is None else utc(one.last_seen_at)
    lag = "" if one.lag_records is None else one.lag_records
    return one.region, state_of(one), lag, seen, one.problem or ""
