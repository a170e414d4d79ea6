"""``fenceline spark audit``, run and printed: a line for each partition, the findings, and the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from fenceline.runtime import ThreadRuntime
from fenceline_cli.commands.spark.archive import one_line
from fenceline_cli.commands.spark.session import borrowed_session, require_topics
from fenceline_cli.options import signing_region
from fenceline_cli.output import EXIT_FAILED, CommandError, print_json, print_rows

if TYPE_CHECKING:
    from fenceline.settings import Settings

COLUMNS = (
    "topic", "partition", "end", "records", "bytes", "markers", "aborted", "gaps", "duplicate_keys", "duplicated",
    "late", "chain",
)  # fmt: skip


def report(
    topics: Sequence[str],
    url: str,
    settings: Settings | None,
    *,
    archive: str | None,
    html: Path | None,
    is_strict: bool,
    as_json: bool,
) -> None:
    """Audit topics, in their log or in an archive, and print what they hold and what is wrong.

    Raises:
        CommandError: The page has no place, the archive cannot be read, or a task failed.
        Exit: Something is wrong.
    """
    from fenceline_spark.jobs import audit, audit_archive
    from fenceline_spark.jobs.archive_places import check_place
    from fenceline_spark.jobs.archiving import manifests_of
    from fenceline_spark.jobs.audit_page import page

    if html is not None and not html.parent.is_dir():
        raise CommandError(f"the page's directory does not exist; create it, or name another file: html={html}")
    name = f"audit {', '.join(topics)}"
    if archive is not None:
        with one_line():
            check_place(archive)
            for topic in topics:
                manifests_of(topic, archive)
            with borrowed_session(name) as spark:
                found = audit_archive(spark, topics, archive, is_strict=is_strict)
    else:
        require_topics(url, *dict.fromkeys(topics))
        region = signing_region.get()
        with borrowed_session(name) as spark:
            found = audit(spark, topics, endpoint=url, region=region, settings=settings, is_strict=is_strict)
    if html is not None:
        html.write_text(page(found, made_at_ms=ThreadRuntime().now_ms()), encoding="utf-8")
    if as_json:
        partitions, findings = [asdict(one) for one in found.partitions], [asdict(one) for one in found.findings]
        print_json({"partitions": partitions, "findings": findings})
    else:
        rows = [[_shown(getattr(one, name)) for name in COLUMNS] for one in found.partitions]
        print_rows(COLUMNS, rows)
        for one in found.findings:
            typer.echo(f"FOUND {one.kind}: {one.topic}/{one.partition}: {one.what}")
        if html is not None:
            typer.echo(f"the page is {html}")
    if found.findings:
        raise typer.Exit(EXIT_FAILED)


def _shown(value: object) -> object:
    return "" if value is None else value
