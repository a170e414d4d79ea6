"""``fenceline group``: list consumer groups, show who has which partition, and reset, remove and delete."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fenceline.errors import GroupIdNotFoundError, UnknownSubscriptionError, UnknownTopicOrPartitionError
from fenceline_cli import positions
from fenceline_cli.moves import move_of, show_moves
from fenceline_cli.options import DEFAULT_URL, AsJson, IsSure, TopicName, Url, can_answer, confirm, connect
from fenceline_cli.output import CommandError, print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.group import GroupMember, GroupPage

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
MEMBER_COLUMNS = ("member_id", "instance_id", "client_name", "client_host", "member_epoch", "lease", "partitions")
PARTITION_COLUMNS = ("topic", "partition", "committed", "lag", "member", "since", "token", "moves_to")
_SKEW_MS = 1_000  # that two clocks may differ by without being called wrong
_GRACE_MS = 1_000  # after a lease, in which the service does not remove the member yet


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
        lags = _lags(client) if lag else {}
    if as_json:
        print_json([{**asdict(one), **({"lag": lags.get(one.group, 0)} if lag else {})} for one in found])
        return
    rows: list[tuple[object, ...]] = []
    for one in found:
        row = (one.group, one.type, one.state, one.member_count, one.epoch, ",".join(one.topics))
        rows.append((*row, _shown(lags.get(one.group, 0))) if lag else row)
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
        while True:
            page = client.group(group)
            _show(page, _marks(client, group, page.group.topics), as_json=as_json, is_again=watch)
            if not watch:
                return
            time.sleep(1)


@app.command(epilog="Example: fenceline group members billing --json")
def members(group: Name, watch: Watch = False, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """Show the members of a group, with the time that is left of each lease.

    A member is removed one second after its lease, by the heartbeat of another member. Where no other lives, it is
    removed by the next join, 'reset' or 'delete', or within an hour by a sweep. A static member that is away keeps
    its partitions until then. A partition with a question mark is one that the member was asked to give up, and still
    holds.
    """
    with connect(url) as client:
        while True:
            page, now_ms = client.group(group), _now_ms()
            if as_json:
                print_json([_member_json(one) for one in page.members])
            else:
                _clear(watch)
                print_rows(MEMBER_COLUMNS, [_member_row(one, now_ms) for one in page.members])
                _tell_skew(page.members, now_ms)
            if not watch:
                return
            time.sleep(1)


@app.command(
    epilog="Example: fenceline group reset billing orders --to earliest --dry-run\n\n"
    "Example: fenceline group reset billing orders --to 2026-11-01 --yes\n\n"
    "Example: fenceline group reset billing orders --to -100 --partition 3   (before the last hundred)",
)
def reset(
    group: Name,
    topic: TopicName,
    to: Annotated[str, typer.Option("--to", metavar="WHERE", help=f"{positions.HELP}.", show_default=False)],
    partition: Annotated[int | None, typer.Option(min=0, help="Move only this partition; left out, all.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Move nothing: show how many records would be skipped, or come again.")
    ] = False,
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
            cursors = client.subscription(topic, group).partitions
        except UnknownSubscriptionError as error:
            raise CommandError(
                f"the group {group} has never read {topic}, so it has no offsets there; "
                f"'fenceline subscription create {topic} {group} --from WHERE' makes them"
            ) from error
        chosen = [one for one in cursors if partition in (None, one.partition)]
        if not chosen:
            raise CommandError(f"topic {topic} has no partition {partition}; it has 0 to {len(cursors) - 1}")
        moves = [move_of(client, topic, one, position) for one in chosen]
        if dry_run:
            show_moves(moves, as_json=as_json)
            return
        if any(move.changes_anything for move in moves):
            if can_answer() and not (is_sure or as_json):
                show_moves(moves, as_json=False)
            skipped, repeated = sum(move.skipped for move in moves), sum(move.repeated for move in moves)
            what = f"{group} skips {skipped} records of {topic}, and gets {repeated} again"
            confirm(is_sure, f"Reset it? {what}.", f"{what} (--dry-run shows which)")
        marks = {move.partition: client.seek(topic, group, move.partition, offset=move.to_offset) for move in moves}
    if as_json:
        print_json([{"partition": number, "offset": mark} for number, mark in marks.items()])
        return
    for number, mark in marks.items():
        typer.echo(f"reset {group} on {topic}/{number} offset={mark}")


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
    now_ms = _now_ms()
    if any(one.expires_at + _GRACE_MS >= now_ms for one in found):
        raise CommandError(
            f"the group {group} has {_count(found)}; stop them first, or 'fenceline group remove' those that are dead "
            f"(see 'fenceline group members {group}')"
        )


def _count(found: Sequence[GroupMember]) -> str:
    return f"{len(found)} member{'' if len(found) == 1 else 's'}"


Marks = Mapping[tuple[str, int], tuple[int, int]]


def _marks(client: Client, group: str, topics: Sequence[str]) -> Marks:
    """Return the offset that the group reads next in each partition, and how many records are left from there on.

    Args:
        topics: What its members read; the topics where it has committed something are added.
    """
    marks: dict[tuple[str, int], tuple[int, int]] = {}
    for topic in sorted({*topics, *(one.topic for one in client.committed_offsets(group))}):
        try:
            found = client.subscription(topic, group).partitions
        except (UnknownSubscriptionError, UnknownTopicOrPartitionError):
            continue
        marks.update(((topic, one.partition), (one.mark_delete_offset, one.backlog)) for one in found)
    return marks


def _lag(marks: Marks) -> int:
    return sum(left for _, left in marks.values())


def _lags(client: Client) -> Mapping[str, int | None]:
    """Return the lag of each subscription's name over all topics; ``None`` where a topic has too many partitions."""
    lags: dict[str, int | None] = {}
    for one in client.lag():
        name, before = one.subscription.name, lags.get(one.subscription.name, 0)
        lags[name] = None if one.lag is None or before is None else before + one.lag.backlog
    return lags


def _shown(lag: int | None) -> int | str:
    return "" if lag is None else lag


def _show(page: GroupPage, marks: Marks, *, as_json: bool, is_again: bool) -> None:
    rows = _partition_rows(page.members, marks)
    if as_json:
        partitions = [dict(zip(PARTITION_COLUMNS, row, strict=True)) for row in rows]
        print_json({**asdict(page.group), "lag": _lag(marks), "partitions": partitions})
        return
    _clear(is_again)
    entry, now_ms = page.group, _now_ms()
    count = f"{entry.member_count} member{'' if entry.member_count == 1 else 's'}"
    typer.echo(
        f"{entry.group}: {entry.state}, {count}, lag {_lag(marks):,}, epoch {entry.epoch}, {entry.assignor}, "
        f"changed {utc(entry.updated_at)}"
    )
    print_rows(PARTITION_COLUMNS, [["" if cell is None else cell for cell in row] for row in rows])
    _tell_skew(page.members, now_ms)
    _tell_lapsed(page.group.group, page.members, now_ms)


def _partition_rows(found: Sequence[GroupMember], marks: Marks) -> list[list[Any]]:
    """Return a row for each partition: its member, and the next one where that is another."""
    held = {
        (topic.topic, one.partition): (member, one)
        for member in found
        for topic in member.partitions
        for one in topic.partitions
    }
    target = {(topic.topic, number): one for one in found for topic in one.target for number in topic.partitions}
    rows: list[list[Any]] = []
    for place in sorted({*held, *target, *marks}):
        holder, part = held.get(place, (None, None))
        heir = target.get(place)
        moves_to = None if heir is None or heir is holder else _called(heir)
        since, token = (None, None) if part is None else (part.since, part.token)
        who = None if holder is None else _called(holder)
        rows.append([*place, *marks.get(place, (None, None)), who, since, token, moves_to])
    return rows


def _called(member: GroupMember) -> str:
    return member.instance_id or member.client_name or member.member_id


def _member_json(member: GroupMember) -> dict[str, Any]:
    """Return a member as the service's answer has it, with names in place of positions."""
    held = [{**one._asdict(), "partitions": [part._asdict() for part in one.partitions]} for one in member.partitions]
    asked, target = [one._asdict() for one in member.asked], [one._asdict() for one in member.target]
    return {**asdict(member), "partitions": held, "asked": asked, "target": target}


def _member_row(member: GroupMember, now_ms: int) -> list[object]:
    held = {topic.topic: [one.partition for one in topic.partitions] for topic in member.partitions}
    asked = {(topic.topic, number) for topic in member.asked for number in topic.partitions}
    partitions = " ".join(
        f"{topic}/{','.join(f'{n}?' if (topic, n) in asked else str(n) for n in numbers)}"
        for topic, numbers in held.items()
    )
    name = (member.instance_id or "", member.client_name or "", member.client_host or "")
    return [member.member_id, *name, member.member_epoch, _lease(member, now_ms), partitions]


def _lease(member: GroupMember, now_ms: int) -> str:
    left_ms = member.expires_at - now_ms
    state = "away, " if member.is_away else ""
    return f"{state}{left_ms / 1000:.0f}s left" if left_ms > 0 else f"{state}over for {-left_ms / 1000:.0f}s"


def _tell_skew(found: Sequence[GroupMember], now_ms: int) -> None:
    for one in found:
        beyond_ms = one.expires_at - now_ms - one.session_timeout_ms
        if beyond_ms > _SKEW_MS:
            typer.echo(
                f"a clock is wrong: the lease of {one.member_id} ends {beyond_ms / 1000:.0f}s later than now and its "
                "session time-out; set the clock of this machine, or of the one that served the member",
                err=True,
            )


def _tell_lapsed(group: str, found: Sequence[GroupMember], now_ms: int) -> None:
    for one in found:
        over_ms = now_ms - one.expires_at
        if over_ms > _GRACE_MS:
            typer.echo(
                f"the lease of {_called(one)} is over for {over_ms / 1000:.0f}s: the next heartbeat of another member "
                f"removes it, or 'fenceline group remove {group} {one.member_id}'",
                err=True,
            )


def _clear(is_again: bool) -> None:
    if is_again and sys.stdout.isatty():
        typer.echo("\x1b[2J\x1b[H", nl=False)  # an empty screen, from its top


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
