"""The stores that a command works on, a directory or a bucket and a table, named, opened and checked in one place.

Rule: stores that can't be used are refused before anything is done, in one line that says what to do.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from fenceline import limits
from fenceline.adapters.sqlite.directory import CannotOpen, SqliteItemStore, SqliteObjectStore, open_directory
from fenceline.format import keys
from fenceline.format.segment import SegmentMetadata
from fenceline.log.context import Context
from fenceline.ports import Damaged, NotFound, StoreFact
from fenceline.recovery.lost_items import first_segments, lost_topics
from fenceline.recovery.rebuild import is_cut_off
from fenceline.recovery.store_check import probe
from fenceline.settings import Settings
from fenceline_cli.output import CommandError
from fenceline_http import wiring

LOCAL = "local"  # the region's name if none is given
NAMES_SHOWN = 3
LOGS_ASKED = 20  # for the region that they belong to

Data: TypeAlias = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", file_okay=False, help="The directory that 'fenceline dev' works in."),
]
Objects: TypeAlias = Annotated[
    str,
    typer.Option(
        "--objects", metavar="s3://BUCKET[/PREFIX]", help="The bucket of the objects, with --items instead of --data."
    ),
]
Items: TypeAlias = Annotated[
    str,
    typer.Option(
        "--items", metavar="dynamodb://TABLE", help="The table of the items, with --objects instead of --data."
    ),
]
Region: TypeAlias = Annotated[str, typer.Option("--region", help="The name of the region that the log belongs to.")]


def chosen(data: Path | None, objects: str, items: str, *, region: str = LOCAL) -> Settings:
    """Return the settings that the options make.

    Raises:
        CommandError: The options name no stores, or too many.
    """
    if data is None and not objects and not items:
        raise CommandError(
            "no stores are named; give --data DIR, or --objects s3://BUCKET[/PREFIX] and --items dynamodb://TABLE"
        )
    if data is not None and (objects or items):
        raise CommandError("two pairs of stores are named; give either --data, or --objects and --items")
    # With local stores each append reads the topic's item, so that a change of a topic holds at once, everywhere.
    item_age_ms = limits.ITEM_AGE_MS_MAX if data is None else 0
    try:
        return Settings(str(data) if data else "", region, item_age_ms, objects, items)
    except ValueError as error:
        raise CommandError(str(error)) from error


def prepare(settings: Settings, *, is_create: bool = False) -> None:
    """Check that a server can work on the stores: they exist, are ours, create conditionally, and lack no items.

    Args:
        is_create: Create what is missing.

    Raises:
        CommandError: The stores can't be used.
    """
    runtime = wiring.runtime_of(settings)
    with _facts_as_errors():
        objects, items = wiring.stores_of(settings, now_ms=runtime.now_ms)
        try:
            _check(objects, items, is_create=is_create)
            context = Context(objects, items, runtime, settings.region)
            _refuse_lost_items(context, settings)
            _refuse_other_region(context)
            if settings.is_embedded:
                return
            # A store that lets several creates of a key win would lose acknowledged records.
            report = probe(objects, runtime.fresh_id(), rounds=4, racers=8)
        finally:
            objects.close()
            items.close()
    if not report.is_sound:
        raise CommandError(str(report))


def _refuse_lost_items(context: Context, settings: Settings) -> None:
    """Refuse stores with lost items: a topic created now would take the name of one whose items are lost."""
    if is_cut_off(context):
        raise CommandError(
            "a rebuild of these items was cut off, or is still running; end every server, move the items away, and"
            f" make them anew with '{rebuild_command(settings)}'"
        )
    if context.items.query(keys.TOPICS, limit=1):
        return
    names = [lost.name for lost in islice(lost_topics(context), NAMES_SHOWN + 1)]
    if names:
        shown = ", ".join(names[:NAMES_SHOWN]) + (", …" if len(names) > NAMES_SHOWN else "")
        raise CommandError(
            f"the objects have topics that no item names: {shown}; if the items are lost, rebuild them with"
            f" '{rebuild_command(settings)}', else name the items of these objects"
        )


def _refuse_other_region(context: Context) -> None:
    """Refuse a log of another region: records would be counted as produced here, and that is wrong for good."""
    origins = (_origin_of(context, key) for key in islice(first_segments(context), LOGS_ASKED))
    origin = next((origin for origin in origins if origin is not None), context.region)
    if origin != context.region:
        raise CommandError(
            f"the log belongs to another region; name that one by --region: region={context.region} its_region={origin}"
        )


def _origin_of(context: Context, key: str) -> str | None:
    """Return the region that made a segment; ``None`` if it was replicated, or that is not known."""
    with suppress(NotFound, Damaged, KeyError, ValueError):  # damage: reported by the command itself
        metadata = SegmentMetadata.from_strings(context.objects.get(key, 0, 1).metadata)
        return metadata.origin if metadata.replicated is None else None
    return None


def rebuild_command(settings: Settings) -> str:
    """Return the command line that rebuilds the items of these stores."""
    if settings.is_embedded:
        options = ["--data", settings.data_dir]
    else:
        options = ["--objects", settings.objects, "--items", settings.items]
    if settings.region != LOCAL:
        options += ["--region", settings.region]
    return shlex.join(["fenceline", "rebuild", *options])


@contextmanager
def opened(
    data: Path | None, region: str | None, objects: str = "", items: str = "", *, is_alone: bool = False
) -> Iterator[Context]:
    """Lend the existing stores, with their surroundings, to a command.

    Args:
        region: ``None`` for a command that looks at no log.
        is_alone: No other process may have the directory open. This cannot be checked for a bucket and a table.

    Raises:
        CommandError: The stores can't be used, or failed meanwhile.
    """
    settings = chosen(data, objects, items, region=region or LOCAL)
    if data is not None and not data.is_dir():
        raise CommandError(f"there is no such directory; name the one that 'fenceline dev' works in: {data}")
    runtime = wiring.runtime_of(settings)
    with _facts_as_errors():
        object_store: wiring.Objects
        item_store: wiring.Items
        if settings.is_embedded:
            object_store, item_store = open_directory(settings.data_dir, now_ms=runtime.now_ms, is_alone=is_alone)
        else:
            object_store, item_store = wiring.stores_of(settings, now_ms=runtime.now_ms)
        try:
            _check(object_store, item_store)
            context = Context(object_store, item_store, runtime, settings.region)
            if region is not None:
                _refuse_other_region(context)
            yield context
        finally:
            object_store.close()
            item_store.close()


def _check(objects: wiring.Objects, items: wiring.Items, *, is_create: bool = False) -> None:
    if not isinstance(objects, SqliteObjectStore):
        (objects.create_bucket if is_create else objects.check)()
    if not isinstance(items, SqliteItemStore):
        (items.create_table if is_create else items.check)()


@contextmanager
def _facts_as_errors() -> Iterator[None]:
    try:
        yield
    except (CannotOpen, StoreFact) as fact:
        raise CommandError(str(fact)) from fact
