"""``fenceline group``: list consumer groups, show who has which partition, and reset, remove and delete."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fenceline.errors import GroupIdNotFoundError, UnknownSubscriptionError
from fenceline_cli import positions
from fenceline_cli.commands.groups.rows import (
    GRACE_MS,
    clock_ms,
    counted,
    lags_of,
    marks_of,
    print_members,
    print_partitions,
)
from fenceline_cli.moves import carry_out, move_of, show_moves, totals
from fenceline_cli.options import (
    DEFAULT_URL,
    AsJson,
    DryRun,
    IsSure,
    OnePartition,
    TopicName,
    Url,
    can_answer,
    confirm,
    connect,
    partitions_of,
)
from fenceline_cli.output import CommandError, print_json, print_rows

if TYPE_CHECKING:
    from fenceline.client import Client

app = typer.Typer(
    name="group",
    no_args_is_help=True,
    help="List consumer groups, show who has which partition, and reset, remove and delete.",
    epilog="Example: fenceline group show billing --watch",
)

# A copy of the contract's own type, because importing it would load the client only to show help.
State = Literal["Empty", "Assigning", "Reconciling", "Stable", "PreparingRebalance", "CompletingRebalance"]
Name = Annotated[str, typer.Argument(metavar="GROUP", help="The group's name.")]
Watch = Annotated[bool, typer.Option("--watch", "-w", help="Show it again each second; Ctrl-C ends it.")]

LIST_COLUMNS = ("group", "type", "state", "members", "epoch", "topics")


@app.command(
    "list",
    epilog="Example: fenceline group list --state Reconciling\n\nExample: fenceline group list --prefix bill --lag",
)
def list_groups(
    prefix: Annotated[str | None, typer.Option(help="Only groups whose names begin so.")] = None,
    state: Annotated[State | None, typer.Option(help="Only groups in this state.")] = None,
    lag: Annotated[bool, typer.Option("--lag", help="Add how many records each group has not committed.")] = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """List the groups that have, or had, members.

    A group is Stable while each member has what the group gives it, Reconciling while partitions move, and Assigning
    until a change of its members is shared out. An Empty group has no members, and keeps its offsets.
    """
    with connect(url) as client:
        found = client.groups(prefix=prefix, state=state)
        lags = lags_of(client) if lag else {}
    if as_json:
        print_json([{**asdict(one), **({"lag": lags.get(one.group, 0)} if lag else {})} for one in found])
        return
    rows: list[tuple[object, ...]] = []
    for one in found:
        row = (one.group, one.type, one.state, one.member_count, one.epoch, ",".join(one.topics))
        left = lags.get(one.group, 0)
        rows.append((*row, "" if left is None else left) if lag else row)
    print_rows((*LIST_COLUMNS, "lag") if lag else LIST_COLUMNS, rows)


@app.command(epilog="Example: fenceline group show billing\n\nExample: fenceline group show billing --watch")
def show(group: Name, watch: Watch = False, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show a group's state, and of each partition who has it and how many records are left.

    committed is the offset that the group reads next, and lag counts the records from there to the end. since is the
    member epoch at which the member got the partition, and token is its fencing token. moves_to names the member that
    gets the partition next. A member is named by its instance id, else by its client name, else by its member id.

    Lines on stderr name the members whose lease is over, and those whose lease ends later than their session time-out
    allows, because a clock was wrong.
    """
    with connect(url) as client:
        for _ in _looks(watch):
            page = client.group(group)
            print_partitions(page, marks_of(client, group, page.group.topics), as_json=as_json, is_again=watch)


@app.command(epilog="Example: fenceline group members billing --json")
def members(group: Name, watch: Watch = False, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show the members of a group, with the time that is left of each lease.

    A member is removed one second after its lease, by the heartbeat of another member. Where no other lives, it is
    removed by the next join, 'reset' or 'delete', or within an hour by a sweep. A static member that is away keeps
    its partitions until then. A partition with a question mark is one that the member was asked to give up, and still
    holds.
    """
    with connect(url) as client:
        for _ in _looks(watch):
            print_members(client.group(group).members, as_json=as_json, is_again=watch)


@app.command(
    epilog="Example: fenceline group reset billing orders --to earliest --dry-run\n\n"
    "Example: fenceline group reset billing orders --to 2026-11-01 --yes\n\n"
    "Example: fenceline group reset billing orders --to -100 --partition 3   (before the last hundred)",
)
def reset(
    group: Name,
    topic: TopicName,
    to: Annotated[str, typer.Option("--to", metavar="WHERE", help=f"{positions.HELP}.", show_default=False)],
    partition: OnePartition = None,
    dry_run: DryRun = False,
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Move the offsets of a group on a topic, while the group has no members.

    The command first shows how many records the group would skip, and how many it would handle again, and asks. Members
    whose lease is over do not count: the service removes them first.
    """
    position = positions.parse(to, "--to")
    with connect(url) as client:
        _refuse_members(client, group)
        try:
            moves = [move_of(client, topic, group, n, position) for n in partitions_of(client, topic, partition)]
        except UnknownSubscriptionError as error:
            raise CommandError(
                f"the group {group} has never read {topic}, so it has no offsets there; "
                f"'fenceline subscription create {topic} {group} --from WHERE' makes them"
            ) from error
        if dry_run:
            show_moves(moves, as_json=as_json)
            return
        skipped, repeated = totals(moves)
        if skipped or repeated:
            if can_answer() and not (is_sure or as_json):
                show_moves(moves, as_json=False)
            what = f"{group} skips {skipped} records of {topic}, and gets {repeated} again"
            confirm(is_sure, f"Reset it? {what}.", f"{what} (--dry-run shows which)")
        carry_out(client, topic, group, moves, "reset", "offset", as_json=as_json)


@app.command(epilog="Example: fenceline group remove billing 7d1c2f0e-5b3a-4c55-9a0e-1f2b3c4d5e6f")
def remove(
    group: Name,
    member_id: Annotated[str, typer.Argument(metavar="MEMBER_ID", help="The member's id, as 'members' shows it.")],
    is_sure: IsSure = False,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Remove a member, so that others get its partitions at once. The command asks first.

    The service refuses what the member commits later. A member that is alive joins again by itself, so stop it first.
    """
    with connect(url) as client:
        found = {one.member_id: one for one in client.group(group).members}
        if member_id not in found:
            raise CommandError(
                f"the group {group} has no such member; 'fenceline group members {group}' lists them: {member_id}"
            )
        count = sum(len(one.partitions) for one in found[member_id].partitions)
        what = f"its {count} partitions go to others, and what it commits later is refused"
        confirm(is_sure, f"Remove {member_id} from {group}? {what[0].upper()}{what[1:]}.", what)
        client.leave_group(group, member_id)
    if as_json:
        print_json({"removed": member_id, "group": group})
    else:
        typer.echo(f"removed {member_id} from {group}")


@app.command(epilog="Example: fenceline group delete billing --yes")
def delete(group: Name, is_sure: IsSure = False, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Delete a group without members, with its offsets on every topic. It cannot be undone; the command asks first.

    Members whose lease is over do not count: the service removes them first.
    """
    with connect(url) as client:
        _refuse_members(client, group)
        topics = sorted({one.topic for one in client.committed_offsets(group)})
        where = f" on {', '.join(topics)}" if topics else ""
        confirm(
            is_sure, f"Delete {group}, with its offsets{where}?", f"this deletes the group's offsets{where} for good"
        )
        client.delete_group(group)
    if as_json:
        print_json({"deleted": group, "topics": topics})
    else:
        typer.echo(f"deleted {group}")


def _refuse_members(client: Client, group: str) -> None:
    """Refuse a command that is for a group without members. Where all are dead, the service removes them first.

    Raises:
        CommandError: The group has members.
    """
    try:
        found = client.group(group).members
    except GroupIdNotFoundError:
        return  # a subscription without members; what is missing the command's own requests say
    now_ms = clock_ms()
    if any(one.expires_at + GRACE_MS >= now_ms for one in found):
        raise CommandError(
            f"the group {group} has {counted(len(found))}; stop them first, or 'fenceline group remove' those "
            f"that are dead (see 'fenceline group members {group}')"
        )


def _looks(is_again: bool) -> Iterator[None]:
    """Yield once, or each second for ever."""
    yield
    while is_again:
        time.sleep(1)
        yield
