"""What ``fenceline group`` shows: of each partition who has it and what is left of it, and the members' leases."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from fenceline.errors import UnknownSubscriptionError, UnknownTopicOrPartitionError
from fenceline_cli.output import print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.group import GroupMember, GroupPage

MEMBER_COLUMNS = ("member_id", "instance_id", "client_name", "client_host", "member_epoch", "lease", "partitions")
PARTITION_COLUMNS = ("topic", "partition", "committed", "lag", "member", "since", "token", "moves_to")
_SKEW_MS = 1_000  # that two clocks may differ by without being called wrong
GRACE_MS = 1_000  # after a lease, in which the service does not remove the member yet

Marks = Mapping[tuple[str, int], tuple[int, int]]


def marks_of(client: Client, group: str, topics: Sequence[str]) -> Marks:
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


def lags_of(client: Client) -> Mapping[str, int | None]:
    """Return the lag of each subscription's name over all topics; ``None`` where a topic has too many partitions."""
    lags: dict[str, int | None] = {}
    for one in client.lag():
        name, before = one.subscription.name, lags.get(one.subscription.name, 0)
        lags[name] = None if one.lag is None or before is None else before + one.lag.backlog
    return lags


def print_partitions(page: GroupPage, marks: Marks, *, as_json: bool, is_again: bool) -> None:
    """Print a group, and a row for each partition."""
    rows = partition_rows(page.members, marks)
    if as_json:
        partitions = [dict(zip(PARTITION_COLUMNS, row, strict=True)) for row in rows]
        print_json({**asdict(page.group), "lag": _lag(marks), "partitions": partitions})
        return
    _clear(is_again)
    entry, now_ms = page.group, clock_ms()
    typer.echo(
        f"{entry.group}: {entry.state}, {counted(entry.member_count)}, lag {_lag(marks):,}, epoch {entry.epoch}, "
        f"{entry.assignor}, changed {utc(entry.updated_at)}"
    )
    print_rows(PARTITION_COLUMNS, [["" if cell is None else cell for cell in row] for row in rows])
    tell_skew(page.members, now_ms)
    tell_lapsed(entry.group, page.members, now_ms)


def partition_rows(found: Sequence[GroupMember], marks: Marks) -> list[list[Any]]:
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


def print_members(found: Sequence[GroupMember], *, as_json: bool, is_again: bool) -> None:
    """Print a row for each member."""
    if as_json:
        print_json([_member_json(one) for one in found])
        return
    now_ms = clock_ms()
    _clear(is_again)
    print_rows(MEMBER_COLUMNS, [_member_row(one, now_ms) for one in found])
    tell_skew(found, now_ms)


def _called(member: GroupMember) -> str:
    return member.instance_id or member.client_name or member.member_id


def counted(members: int) -> str:
    return f"{members} member{'' if members == 1 else 's'}"


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
    return [member.member_id, *name, member.member_epoch, lease(member, now_ms), partitions]


def lease(member: GroupMember, now_ms: int) -> str:
    left_ms = member.expires_at - now_ms
    state = "away, " if member.is_away else ""
    return f"{state}{left_ms / 1000:.0f}s left" if left_ms > 0 else f"{state}over for {-left_ms / 1000:.0f}s"


def tell_skew(found: Sequence[GroupMember], now_ms: int) -> None:
    for one in found:
        beyond_ms = one.expires_at - now_ms - one.session_timeout_ms
        if beyond_ms > _SKEW_MS:
            typer.echo(
                f"a clock is wrong: the lease of {one.member_id} ends {beyond_ms / 1000:.0f}s later than now and its "
                "session time-out; set the clock of this machine, or of the one that served the member",
                err=True,
            )


def tell_lapsed(group: str, found: Sequence[GroupMember], now_ms: int) -> None:
    for one in found:
        over_ms = now_ms - one.expires_at
        if over_ms > GRACE_MS:
            typer.echo(
                f"the lease of {_called(one)} is over for {over_ms / 1000:.0f}s: the next heartbeat of another member "
                f"removes it, or 'fenceline group remove {group} {one.member_id}'",
                err=True,
            )


def _clear(is_again: bool) -> None:
    if is_again and sys.stdout.isatty():
        typer.echo("\x1b[2J\x1b[H", nl=False)  # an empty screen, from its top


def clock_ms() -> int:
    return time.time_ns() // 1_000_000
