"""``fenceline spark``: jobs that keep a log useful, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fenceline.service.log import Log
from fenceline_cli import positions
from fenceline_cli.commands.compact import PartitionNumber, show_views
from fenceline_cli.commands.spark.session import borrowed_session, require_spark
from fenceline_cli.options import (
    DEFAULT_URL,
    AsJson,
    IsSure,
    TopicName,
    Url,
    chosen_partitions,
    confirm,
    connect,
    topic_names,
)
from fenceline_cli.output import CommandError, print_json
from fenceline_cli.stores import Data, Items, Objects, Region, chosen, opened

app = typer.Typer(
    name="spark",
    no_args_is_help=True,
    help="Run the jobs that keep a log useful on Spark: on all cores of this machine, or where spark-submit runs them."
    '\n\nThey need Java 17 or newer, and: pip install "fenceline-log[spark]". A job that was cut off has done a part '
    "that counts, or nothing that counts: run it again.",
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
        numbers = chosen_partitions(topic, log.topics.get(topic).partitions, partition)
        for number in numbers:
            log.partitions.check_compacts(topic, number)  # before Spark, which takes much longer to start
        with borrowed_session(f"compact {topic}") as spark:
            from fenceline_spark.jobs import compact as compact_by_spark

            views = {number: compact_by_spark(spark, settings, topic, number) for number in numbers}
        show_views(log, topic, views, as_json=as_json)


@app.command(
    epilog="Example: fenceline spark archive orders --to s3://my-archive/orders\n\n"
    "Example: fenceline spark archive orders --to /mnt/archive --verify"
)
def archive(
    topic: TopicName,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="DIR|s3://BUCKET[/PREFIX]",
            help="The archive: a directory that every worker can write, or a bucket.",
        ),
    ],
    verify: Annotated[
        bool, typer.Option("--verify", help="Add nothing: compare every file with its manifest, by SHA-256 and count.")
    ] = False,
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="Go on where records were deleted before they were archived; note which."),
    ] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Add the committed records of a topic to an archive of Parquet files (zstd): what came since the last run.

    Files are under topic=TOPIC/date=YYYY-MM-DD, by the records' own time (UTC). Only those count that a manifest names,
    under _fenceline; a run commits by creating one. A run that dies leaves files that the next one removes. Of two at
    once, one is refused. Read an archive with fenceline_spark.jobs.archived(spark, TOPIC, PLACE).

    With --verify the exit code is 1 if a file is missing or is not what was archived, or a range is missing.
    """
    require_spark()
    from fenceline_cli.commands.spark.archive import add, check

    if verify:
        check(topic, to, as_json=as_json)
    else:
        add(topic, to, url, skips_lost=skip_lost, as_json=as_json)


@app.command(
    epilog="Example: fenceline spark replay orders orders-2 --name fix-1 --from 2026-11-20T08:00Z --until -1h\n\n"
    "Example: fenceline spark replay orders paid --name paid-1 --where \"get_json_object(string(value), '$.paid')\""
)
def replay(
    source: Annotated[
        str,
        typer.Argument(metavar="FROM", help="The topic that is read.", autocompletion=topic_names, show_default=False),
    ],
    target: Annotated[
        str,
        typer.Argument(metavar="TO", help="The topic that is written.", autocompletion=topic_names, show_default=False),
    ],
    name: Annotated[
        str, typer.Option("--name", metavar="NAME", help="The replay's own name: another run of it continues it.")
    ],
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=f"{positions.HELP}.")] = "earliest",
    until: Annotated[str, typer.Option(metavar="WHERE", help="End before this place, named as in --from.")] = "latest",
    where: Annotated[
        str | None,
        typer.Option(
            metavar="SQL",
            help="Copy only the records for which this is true of key, value, partition, offset, headers"
            " and timestamp.",
        ),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Write records of one topic to another once more, each exactly once: with partition, key, headers and timestamp.

    The first run of a name settles which offsets it copies; 'latest' is what is committed by then. They are written in
    parts, each visible whole or not at all. A run that was cut off is continued by the same command. A run of a replay
    that is finished does nothing. TO needs as many partitions as FROM. 'fenceline spark forget NAME' frees the name.
    """
    require_spark()
    from fenceline_cli.commands.spark.replay import run

    run(source, target, url, name=name, start=start, until=until, where=where, as_json=as_json)


@app.command(epilog="Example: fenceline spark forget 5bd5aa1e-0b6c-4d2e-9d55-4d0fb3a6c1f2")
def forget(
    app_id: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="A streaming query's id, which its checkpoint has, a txnAppId, or a replay's name."
        ),
    ],
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Forget which batch or version an application committed last, so that it may begin anew from an older one.

    What it committed stays in the log: a checkpoint from before writes those batches once more. Use it after a
    checkpoint was restored from a copy, where the query says that its checkpoint is older than what was written.
    """
    require_spark()
    from fenceline_spark.jobs import forget as forget_version

    what = f"{app_id} may then write again what it has committed"
    confirm(is_sure, f"Forget {app_id}? It may then write again what it has committed.", what)
    with connect(url) as client:
        mark = forget_version(client, app_id)
    if as_json:
        print_json({"app_id": app_id if mark is None else mark.app_id, "version": -1 if mark is None else mark.version})
    elif mark is None:
        typer.echo(f"nothing was remembered of {app_id}")
    else:
        typer.echo(f"forgot {mark.app_id}, which had committed version {mark.version}")


@app.command(
    epilog="Example: fenceline spark audit orders payments --html audit.html\n\n"
    "Example: fenceline spark audit orders --data ./data --strict\n\n"
    "Example: fenceline spark audit orders --archive s3://my-archive/orders"
)
def audit(
    topics: Annotated[
        list[str],
        typer.Argument(metavar="TOPIC...", help="The topics.", autocompletion=topic_names, show_default=False),
    ],
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", dir_okay=False, help="Write a page with plots to this file, too.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive",
            metavar="DIR|s3://BUCKET[/PREFIX]",
            help="Audit what this archive has of the topics. No service is asked.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Duplicated records, records that come late, and records that an archive missed are findings, too.",
        ),
    ] = False,
    data: Data = None,
    objects: Objects = "",
    items: Items = "",
    as_json: AsJson = False,
    region: Region = "local",
    url: Url = DEFAULT_URL,
) -> None:
    """Count what each partition of some topics holds, and look for what should not be there. Exit code 1 if it is.

    Findings are damaged bytes, offsets that hold nothing, and, where the stores are named, a chain of segments that is
    broken. With --strict they are also records with the key and the value of an earlier one, and records with an
    earlier time. All is read from the log start to the last stable offset, through --url.

    With --archive, a finding is a file that is not what its manifest says, or a range that does not follow from the one
    before. A record that is there twice is one, too.
    """
    require_spark()
    from fenceline_cli.commands.spark.audit import report

    settings = None
    if archive is not None and (data is not None or objects or items):
        raise CommandError("an archive is audited without a log's stores; give --archive, or those")
    if data is not None or objects or items:
        settings = chosen(data and data.resolve(), objects, items, region=region)
        with opened(data, region, objects, items):
            pass  # stores that can't be used are refused before Spark is started
    report(topics, url, settings, archive=archive, html=html, is_strict=strict, as_json=as_json)
