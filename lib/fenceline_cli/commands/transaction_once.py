"""``fenceline txn once``: the version that an application has committed, shown or forgotten."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, Url, confirm, connect
from fenceline_cli.output import print_json, utc

if TYPE_CHECKING:
    from fenceline.model.transaction import OnceMark

EXAMPLES = "Example: fenceline txn once hourly-totals\n\nExample: fenceline txn once hourly-totals --delete --yes"


def once(
    app_id: Annotated[str, typer.Argument(metavar="APP_ID", help="The application's id.")],
    is_deleted: Annotated[
        bool, typer.Option("--delete", help="Forget it, so that any version can be committed again.")
    ] = False,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show the last version that an application has committed by 'once', by which run (note), and when.

    A version of -1 means that it has committed none. With --delete the command forgets the version, after it has asked.
    A run of the application that repeats a version then commits it again.
    """
    with connect(url) as client:
        found = client.once(app_id)
        if is_deleted and found.version >= 0:
            confirm(
                is_sure,
                f"Forget version {found.version} of {app_id}? A repeated version is then committed again.",
                f"this forgets version {found.version} of {app_id}, and a repeated version is then committed again",
            )
            client.forget_once(app_id)
    if is_deleted:
        _show_forgotten(found, as_json=as_json)
    elif as_json:
        print_json(_document(found))
    else:
        for name, value in (
            ("app_id", found.app_id),
            ("version", found.version),
            ("note", found.note or ""),
            ("committed_at", "" if found.committed_at is None else utc(found.committed_at)),
        ):
            typer.echo(f"{name}\t{value}")


def _show_forgotten(found: OnceMark, *, as_json: bool) -> None:
    if as_json:
        print_json({"forgotten": _document(found)})
    elif found.version < 0:
        typer.echo(f"nothing to forget: {found.app_id} has committed no version")
    else:
        typer.echo(f"forgot {found.app_id} version={found.version}")


def _document(found: OnceMark) -> dict[str, Any]:
    """Return the version as API.md shows it."""
    return {
        "app_id": found.app_id,
        "version": found.version,
        "note": found.note,
        "committed_at": found.committed_at,
    }
