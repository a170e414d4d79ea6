"""``fenceline verify`` and ``fenceline rebuild``, which work on the stores themselves, without a service."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.topic_item import topic_from_item
from fenceline.model.topic import Topic
from fenceline.recovery.group_findings import group_findings
from fenceline.recovery.lost_items import LostIncarnation, lost_segments, lost_topics
from fenceline.recovery.rebuild import rebuild as rebuild_items
from fenceline.recovery.verify import Verified, verify_partition
from fenceline.settings import Settings
from fenceline_cli.commands.recovery.workers import Workers
from fenceline_cli.options import DEFAULT_URL, AsJson, Url, connect
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows, utc
from fenceline_cli.progress import progress_bar
from fenceline_cli.region_options import RegionUrl, check_region, connect_to, region_url
from fenceline_cli.stores import Data, Items, Objects, Region, chosen, opened, rebuild_command

app = typer.Typer()

NOT_IN_THE_LOG = (
    "gone: subscriptions, group offsets, sessions, ownerships (they are not in the log; only a backup of the items has"
    " them)"
)
COLUMNS = ("topic", "partition", "segments", "records", "bytes", "next_offset", "result")


@app.command(
    epilog="Example: fenceline verify --data ./data\n\nExample: fenceline verify --data ./data orders\n\n"
    "Example: fenceline verify orders --url http://127.0.0.1:8081 --peer b=http://127.0.0.1:8082"
)
def verify(
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="Check only this topic.")] = None,
    data: Data = None,
    objects: Objects = "",
    items: Items = "",
    as_json: AsJson = False,
    region: Region = "local",
    workers: Annotated[
        int, typer.Option(min=1, show_default="one for each core", help="How many processes check segments.")
    ] = os.cpu_count() or 1,
    peer: Annotated[
        RegionUrl | None,
        typer.Option(
            "--peer",
            metavar="REGION=URL",
            parser=region_url,
            help="Compare with another region instead: its name, and the URL of its service.",
        ),
    ] = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Check every segment: contiguity, CRCs, chain and counts, and the items against the segments' state.

    The command also looks for topics in the objects that no item knows: their items were lost. It looks for open
    transactions, and pending offsets, that nothing will end, and for members of no group that hold a partition. It
    changes nothing, and may run beside a server. It must be allowed to write to a directory, since SQLite's readers do.
    The exit code is 1 if anything is broken, lost or found. The first broken offset of each partition is printed.

    With --peer the command compares the records of this region with those of another one: of each origin, and over the
    numbers that both keep. It prints the first number that differs, or that one region lacks between them, and its exit
    code is 1 then. It is 1, too, if one region lacks a topic that names both, or a partition in which the other keeps
    records. It is also 1 if the regions keep no number in common, and one never took what the other keeps.

    Records that were trimmed, aborted, or given up by 'fenceline replication skip' are no difference. Nor are records
    of an earlier topic of that name. Records after the last number that both keep may still arrive, and are not
    compared. This region is read through the service at --url, or from the stores if they are named.
    """
    if peer is not None:
        _compare(topic, peer, data, objects, items, region, url, as_json=as_json)
        return
    settings = chosen(data, objects, items, region=region)
    with opened(data, region, objects, items) as context, Workers(settings, context, workers) as pool:
        lost = [_lost(one, settings) for one in _all_lost(context) if topic is None or topic == one.name]
        found = _topics(context, topic, is_lost=bool(lost))
        places = [(one, partition) for one in found for partition in range(one.partitions)]
        rows = [_verified(context, *place, pool) for place in places]
        of_groups = group_findings(context)
        rows = [
            replace(row, findings=[*row.findings, *of_groups.get((one.topic_id, partition), ())])
            for row, (one, partition) in zip(rows, places, strict=True)
        ]
        rows += lost
    if as_json:
        print_json([{name: getattr(row, name) for name in Verified.__slots__} for row in rows])
    else:
        print_rows(COLUMNS, [_row(row) for row in rows])
    if any(row.broken_at is not None or row.findings for row in rows):
        raise typer.Exit(EXIT_FAILED)


def _compare(
    topic: str | None,
    peer: RegionUrl,
    data: Path | None,
    objects: str,
    items: str,
    region: str,
    url: str,
    *,
    as_json: bool,
) -> None:
    from fenceline.service.log import Log
    from fenceline_cli.commands.recovery.peer import ServedRegion, StoredRegion, compare_regions

    with connect_to(peer) as there:
        check_region(there, peer, "--peer")
        if data is None and not objects and not items:
            with connect(url) as here:
                compare_regions(ServedRegion(here), ServedRegion(there), topic, as_json=as_json)
            return
        with opened(data, region, objects, items) as context:
            log = Log(context.objects, context.items, context.runtime, region=context.region)
            compare_regions(StoredRegion(log), ServedRegion(there), topic, as_json=as_json)


def _row(found: Verified) -> tuple[object, ...]:
    result = f"FOUND: {'; '.join(found.findings)}" if found.findings else "ok"
    if found.broken_at is not None:
        result = f"BROKEN at offset {found.broken_at}: {found.problem}"
    return (
        found.topic,
        "all" if found.partition is None else found.partition,
        found.segments,
        found.records,
        found.bytes,
        found.next_offset,
        result if found.partition is not None else f"LOST: {found.problem}",
    )


def _all_lost(context: Context) -> Iterator[LostIncarnation]:
    yield from lost_topics(context)
    yield from lost_segments(context)


def _lost(one: LostIncarnation, settings: Settings) -> Verified:
    problem = one.problem
    if one.topic is not None:
        advice = f"end every server, then '{rebuild_command(settings)}' into an empty item store"
        problem = f"{problem}; {advice}"
    return Verified(one.name, None, 0, 0, 0, 0, 0, problem)


@app.command(epilog="Example: fenceline rebuild --data ./data   (with no server running)")
def rebuild(data: Data = None, objects: Objects = "", items: Items = "", region: Region = "local") -> None:
    """Make all items anew from the objects, after items.sqlite3 or the table was lost or restored from a backup.

    End every server on these stores first. The command checks this for a directory, and cannot check it for a bucket
    and a table. Move away items that still exist: rebuild writes only into an empty item store.

    Topics, offsets, producers and transactions are then as the log says. A transaction that is open in the log is
    decided: as committed if any partition has its commit, else as aborted. Subscriptions, group offsets, sessions and
    ownerships are not in the log, and are gone: only a backup of the items has them. If a lost topic was created again
    meanwhile, the newer one keeps the name, and the older one comes back as NAME.recovered-ID.
    """
    with opened(data, region, objects, items, is_alone=True) as context, progress_bar() as progress:
        task = progress.add_task("rebuild", total=None)
        found = rebuild_items(context, on_progress=lambda *_: progress.advance(task))
    typer.echo(
        f"rebuilt topics={found.topics} partitions={found.partitions} segments={found.segments} records={found.records}"
    )
    if found.transactions:
        typer.echo(f"decided transactions={found.transactions} (found open; the next server on these stores ends them)")
    typer.echo(NOT_IN_THE_LOG)
    for one in found.namesakes:
        topic = one.topic
        outcome = "keeps that name" if topic.name == one.name else f"is {topic.name} from now on"
        what = f"topic_id={topic.topic_id} created_at={utc(topic.created_at)} records={one.records}"
        typer.echo(f"warning: one of several topics {one.name} {outcome}: {what}", err=True)
    for lost in found.lost:
        typer.echo(f"warning: {lost.problem}, then rebuild again", err=True)


def _verified(context: Context, topic: Topic, partition: int, workers: Workers) -> Verified:
    key = keys.head_item(topic.topic_id, partition)
    head = context.items.get([key]).get(key)
    total = None if head is None else int(str(head.value["next_offset"]))
    with progress_bar() as progress:
        task = progress.add_task(f"{topic.name}/{partition}", total=total)
        return verify_partition(
            context,
            topic,
            partition,
            on_progress=lambda offset: progress.update(task, completed=offset),
            check_ranges=workers.check,
        )


def _topics(context: Context, name: str | None, *, is_lost: bool) -> list[Topic]:
    found: list[Topic] = []
    after = ""
    while items := context.items.query(keys.TOPICS, start_after=after):
        found += [topic_from_item(item).topic for item in items]
        after = items[-1].key.sort
    if name is None:
        return found
    chosen = [topic for topic in found if topic.name == name]
    if not chosen and not is_lost:
        raise CommandError(
            f"there is no topic {name}; these exist: {', '.join(topic.name for topic in found) or 'none'}"
        )
    return chosen
