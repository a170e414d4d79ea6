"""``fenceline own``: own resources by hand, or show their owners."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from fenceline.errors import FencelineError
from fenceline_cli import units
from fenceline_cli.held_right import LeaseSeconds, ending_in_order, hold, in_ms, owner_line
from fenceline_cli.options import DEFAULT_URL, AsJson, Url, connect
from fenceline_cli.output import CommandError, print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.client.types import Ownership

app = typer.Typer()

COLUMNS = ("resource", "group", "generation", "fencing_token", "session_id", "client_name", "since", "until")
Group = Annotated[
    str | None,
    typer.Option(help="Own reading and committing for this group; left out, own writing, or a lock."),
]
Generation = Annotated[
    int | None,
    typer.Option(min=0, help="Sever an owner of a lower or equal generation; 0 severs any, and begins at 1 again."),
]


class _RunsNothing(TyperCommand):
    """The command, which refuses ``-- COMMAND`` as ``lock`` takes it, because it would own the command's words."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args:
            what, command = " ".join(args[: args.index("--")]) or "RESOURCE", " ".join(args[args.index("--") + 1 :])
            raise typer.BadParameter(
                f"'own' runs no command; to run one while a resource is held: fenceline lock {what} -- {command}"
            )
        return super().parse_args(ctx, args)


@app.command(
    cls=_RunsNothing,
    epilog="Example: fenceline own orders/0 orders/1 --group billing --generation 7\n\n"
    "Example: fenceline own orders/0 --group billing --show\n\n"
    "Example: fenceline own --show   (all locks that were taken without --group)",
)
def own(
    resources: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RESOURCE]...",
            help="TOPIC/PARTITION, or any other name for a lock; left out with --show, all locks.",
        ),
    ] = None,
    group: Group = None,
    generation: Generation = None,
    show: Annotated[
        bool,
        typer.Option(
            "--show",
            help="Take nothing: show the owners, and end. Without RESOURCE, all locks that are owned for the group, or"
            " for none.",
        ),
    ] = False,
    wait: Annotated[
        float | None,
        typer.Option(
            metavar="DURATION",
            parser=units.seconds,
            help="How long to wait while another session owns a resource, as 30s or 2m.",
        ),
    ] = 0,
    lease: LeaseSeconds = 30,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Own resources, all or none, until Ctrl-C, SIGTERM, or until another session severs this owner.

    The command prints each resource with its generation and fencing token, and gives them back at its end.
    """
    if show:
        _show(resources, group, as_json, url)
        return
    if not resources:
        raise CommandError("name a RESOURCE, or give --show, which shows all locks")

    def tell(error: FencelineError) -> None:
        typer.echo(f"waiting for {error.resource}: {owner_line(client, error, group)}", err=True)

    with (
        ending_in_order(),
        connect(url) as client,
        client.own(
            resources,
            group=group,
            generation=generation,
            wait_ms=None if wait is None else in_ms(wait),
            lease_ms=in_ms(lease),
            on_wait=tell if wait else None,
        ) as owner,
    ):
        if as_json:
            owned = [asdict(one) for one in owner.owned.values()]
            print_json({"session_id": owner.session_id, "group": group, "resources": owned})
        else:
            for one in owner.owned.values():
                numbers = f"generation={one.generation} fencing_token={one.fencing_token}"
                typer.echo(f"owned {one.resource} {numbers} session_id={owner.session_id}")
        hold(owner)


def _show(resources: list[str] | None, group: str | None, as_json: bool, url: str) -> None:
    with connect(url) as client:
        found = [client.ownership(resource, group=group) for resource in resources or ()] or list(client.locks(group))
    if as_json:
        print_json([asdict(one) for one in found])
        return
    print_rows(COLUMNS, [_row(one) for one in found])


def _row(one: Ownership) -> tuple[object, ...]:
    since, until = ("" if ms is None else utc(ms) for ms in (one.since, one.until))
    numbers, owner = (one.generation, one.fencing_token), (one.session_id or "", one.client_name or "")
    return one.resource, one.group or "", *numbers, *owner, since, until
