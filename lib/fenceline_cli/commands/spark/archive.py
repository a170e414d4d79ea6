"""``fenceline spark archive``, run and printed: the ranges that a run added, or the findings of a check."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import typer

from fenceline_cli.commands.spark.session import borrowed_session, require_topics
from fenceline_cli.options import signing_region
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows

COLUMNS = ("partition", "start", "end", "records", "lost")


def add(topic: str, directory: str, url: str, *, skips_lost: bool, as_json: bool) -> None:
    """Archive the records since the last run, and print their ranges.

    Raises:
        CommandError: Nothing was added, unless the message says that it was.
    """
    from fenceline_spark.jobs import archive
    from fenceline_spark.jobs.archive_places import check_place

    with one_line():
        check_place(directory)
    require_topics(url, topic)
    with one_line(), borrowed_session(f"archive {topic}") as spark:
        made = archive(spark, topic, directory, endpoint=url, region=signing_region.get(), skips_lost=skips_lost)
    if as_json:
        print_json({"topic": topic, "ranges": [], "files": []} if made is None else asdict(made))
    elif made is None:
        typer.echo(f"nothing is new in {topic}")
    else:
        lost = [0 if one.lost_from is None else one.start - one.lost_from for one in made.ranges]
        rows = [(r.partition, r.start, r.end, r.records, n) for r, n in zip(made.ranges, lost, strict=True)]
        print_rows(COLUMNS, rows)
        what = f"manifest={made.number} files={len(made.files)} records={made.records} bytes={made.bytes}"
        typer.echo(f"archived {topic}: {what}")


def check(topic: str, directory: str, *, as_json: bool) -> None:
    """Compare an archive with its manifests, and print what is wrong.

    Raises:
        CommandError: The archive cannot be read.
        Exit: Something is wrong.
    """
    from fenceline_spark.jobs import verify_archive
    from fenceline_spark.jobs.archive_places import check_place
    from fenceline_spark.jobs.archiving import manifests_of

    with one_line():
        check_place(directory)
        manifests_of(topic, directory)
    with one_line(), borrowed_session(f"verify {topic}") as spark:
        found = verify_archive(spark, topic, directory)
    if as_json:
        print_json(asdict(found))
    else:
        if found.findings:
            print_rows(("file", "finding"), found.findings)
        result = f"FOUND {len(found.findings)}" if found.findings else "ok"
        what = f"manifests={found.manifests} files={found.files} records={found.records} bytes={found.bytes}"
        typer.echo(f"{topic}: {result}: {what} uncounted_files={found.uncounted}")
    if found.findings:
        raise typer.Exit(EXIT_FAILED)


@contextmanager
def one_line() -> Iterator[None]:
    """Raise an archive's error as a command's error.

    Raises:
        CommandError: See above.
    """
    from fenceline_spark.jobs.archive_places import ArchiveError

    try:
        yield
    except ArchiveError as error:
        raise CommandError(str(error)) from error
