"""``fenceline spark``: jobs that keep a log useful, on Spark."""

from __future__ import annotations

import typer

from fenceline.service.log import Log
from fenceline_cli.commands.compact import COLUMNS, PartitionNumber, chosen_partitions, row_of
from fenceline_cli.commands.spark_session import borrowed_session, require_spark
from fenceline_cli.options import AsJson, TopicName
from fenceline_cli.output import print_json, print_rows
from fenceline_cli.stores import Data, Items, Objects, Region, chosen, opened

app = typer.Typer(
    name="spark",
    no_args_is_help=True,
    help="Run the jobs that keep a log useful on Spark: on all cores of this machine, or where spark-submit runs them."
    '\n\nThey need Java 17 or newer, and: pip install "fenceline[spark]". A job that was cut off has done a part that '
    "counts, or nothing that counts: run it again.",
    epilog="Example: fenceline spark archive orders --to ./archive\n\n"
    "Example: fenceline spark compact --data ./data prices",
)


@app.command(
    epilog="Example: fenceline spark compact --data ./data prices\n\n"
    "Example: fenceline spark compact --objects s3://my-log --items dynamodb://my-log prices 3"
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
    """Keep the newest value of each key of a topic with cleanup.policy=compact, as 'fenceline compact' does.

    The result is the same, record for record. Spark finds the newest values on all cores, and holds any number of keys.
    The stores are read by every worker, so each must reach them. The command may run beside a server, the sweeper and
    other compactions: of two, the one that gets farther wins.
    """
    require_spark()
    settings = chosen(data and data.resolve(), objects, items, region=region)  # workers may begin elsewhere
    with opened(data, region, objects, items) as context:
        log = Log(context.objects, context.items, context.runtime, region=region)
        numbers = chosen_partitions(log, topic, partition)
        with borrowed_session(f"compact {topic}") as spark:
            from fenceline_spark.jobs import compact as compact_by_spark

            rows = [row_of(number, compact_by_spark(spark, settings, topic, number)) for number in numbers]
    if as_json:
        print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
    else:
        print_rows(COLUMNS, rows)
