"""``fenceline session``: list live sessions, and show what one holds."""

from __future__ import annotations

from typing import Annotated

import typer

from fenceline.answers import to_json
from fenceline_cli.options import DEFAULT_URL, AsJson, Url, connect
from fenceline_cli.output import print_json, print_rows, utc

app = typer.Typer(
    name="session",
    no_args_is_help=True,
    help="List live sessions, and show what one holds.\n\n"
    "A session is a lease: 'producers claim', 'own' and 'lock' make one, and renew it while they run.",
    epilog="Example: fenceline session list",
)

COLUMNS = ("session_id", "client_name", "since", "expires_at", "holds")


@app.command("list", epilog="Example: fenceline session list --json")
def list_sessions(as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the live sessions by id, each with how many partitions and resources it holds. This renews none.

    Of a session of another role or user only the first 8 characters of the id are shown.
    """
    with connect(url) as client:
        found = list(client.sessions())
    if as_json:
        print_json([to_json(one) for one in found])
        return
    rows = [(one.session_id, one.client_name or "", utc(one.since), utc(one.expires_at), one.holds) for one in found]
    print_rows(COLUMNS, rows)


@app.command(epilog="Example: fenceline session show 5f0c8a4e1d2b4c6f9a7e3b1d0c5f8a2e")
def show(
    session_id: Annotated[str, typer.Argument(metavar="ID", help="The session's id.")],
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show a session, also one that has ended within the last day, and what it holds."""
    with connect(url) as client:
        found = client.session_state(session_id)
    if as_json:
        print_json(to_json(found))
        return
    for name, value in (
        ("session_id", found.session_id),
        ("client_name", found.client_name or ""),
        ("state", found.state),
        ("since", utc(found.since)),
        ("expires_at", utc(found.expires_at)),
    ):
        typer.echo(f"{name}\t{value}")
    print_rows(("resource", "group"), [(hold.resource, hold.group or "") for hold in found.holds])
