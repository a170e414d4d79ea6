"""``fenceline compact``: compaction on the stores themselves, beside a server or without one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import typer

from fenceline.log.checkpoint_items import CompactedView
from fenceline.service.log import Log
from fenceline_cli.options import AsJson, TopicName, chosen_partitions
from fenceline_cli.output import CommandError, print_json, print_rows
from fenceline_cli.progress import progress_bar
from fenceline_cli.stores import Data, Items, Objects, Region, opened

app = typer.Typer()

PartitionNumber = Annotated[
    int | None, typer.Argument(metavar="[PARTITION]", min=0, help="Compact only this partition.")
]
COLUMNS = ("partition", "compaction_horizon", "records", "files", "bytes")


@app.command(
    epilog="Example: fenceline compact --data ./data prices\n\nExample: fenceline compact --data ./data prices 3"
)
def compact(
    topic: TopicName,
    partition: PartitionNumber = None,
    data: Data = None,
    objects: Objects = "",
    items: Items = "",
    as_json: AsJson = False,
    region: Region = "local",
) -> None:
    """Keep the newest value of each key of a topic with cleanup.policy=compact, for reads with compacted=true.

    The command may run beside a server, however large the topic is. It does not change the log itself.
    """
    with opened(data, region, objects, items) as context:
        log = Log(context.objects, context.items, context.runtime, region=region)
        numbers = chosen_partitions(topic, log.topics.get(topic).partitions, partition)
        views = {number: _compacted(log, topic, number) for number in numbers}
        show_views(log, topic, views, as_json=as_json)


def _compacted(log: Log, topic: str, partition: int) -> CompactedView | None:
    with progress_bar() as progress:
        task = progress.add_task(f"{topic}/{partition}", total=None)
        return log.partitions.compact_now(
            topic, partition, on_progress=lambda read, total: progress.update(task, completed=read, total=total)
        )


def show_views(log: Log, topic: str, views: Mapping[int, CompactedView | None], *, as_json: bool) -> None:
    """Print the line of ``COLUMNS`` for the view of each partition.

    Raises:
        CommandError: A view has another order than the topic: no record came since the topic was altered.
    """
    rows = [_row_of(number, view) for number, view in views.items()]
    if as_json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_rows(COLUMNS, rows)
    is_by_timestamp = log.topics.get(topic).is_by_timestamp
    others = [n for n, view in views.items() if view is not None and view.is_by_timestamp != is_by_timestamp]
    if others:
        from fenceline.compaction.compact import OTHER_ORDER

        raise CommandError(f"{OTHER_ORDER}: topic={topic} partitions={others}")


def _row_of(partition: int, view: CompactedView | None) -> tuple[int, ...]:
    if view is None:
        return (partition, 0, 0, 0, 0)
    return (partition, view.horizon, view.records, view.files, view.bytes)
