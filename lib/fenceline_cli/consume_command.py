"""``fenceline consume``: records as lines."""

from __future__ import annotations

from typing import Annotated

import typer

from fenceline.client import Client
from fenceline.client.subscription_requests import InitialPosition, Isolation
from fenceline_cli.consume_lines import Format, Lines
from fenceline_cli.options import DEFAULT_URL, Session, TopicName, Url, connect, partitions_of, timestamp_of
from fenceline_cli.output import CommandError

app = typer.Typer()


@app.command(
    epilog="Example: fenceline consume orders --from earliest --max 10\n\n"
    "Example: fenceline consume orders --partition 0 --from 42 --format json\n\n"
    "Example: fenceline consume orders --from @2026-11-20T08:00:00Z --follow\n\n"
    "Example: fenceline consume orders --subscription billing\n\n"
    "Example: fenceline consume orders --group billing --session 5bd5…  (of 'fenceline own')\n\n"
    "Example: fenceline consume ledger --compacted --format key-value"
)
def consume(
    topic: TopicName,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new records; Ctrl-C ends it.")] = False,
    start: Annotated[
        str,
        typer.Option("--from", metavar="WHERE", help="earliest, latest, an offset, or @ and a time (by default UTC)."),
    ] = "earliest",
    subscription: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What this one has not acknowledged; each page is, once it was printed."),
    ] = None,
    group: Annotated[str | None, typer.Option(metavar="NAME", help="As this group, for which --session owns.")] = None,
    session: Session = None,
    compacted: Annotated[
        bool, typer.Option("--compacted", help="Of what was compacted, only the newest record of each key.")
    ] = False,
    partition: Annotated[int | None, typer.Option(min=0, help="Only this partition; else all, as they come.")] = None,
    max_records: Annotated[int | None, typer.Option("--max", min=1, help="End after so many records.")] = None,
    format_: Annotated[Format, typer.Option("--format", help="How a record becomes a line.")] = "value",
    isolation: Annotated[
        Isolation, typer.Option(help="read_committed leaves out what is not, or not yet, committed.")
    ] = "read_uncommitted",
    url: Url = DEFAULT_URL,
) -> None:
    """Print records, one a line, up to the present end of each partition.

    value prints the value, and null for a tombstone. key-value puts the key and a tab before it. json prints all there
    is, in base64 where a record is not UTF-8, and says so. With --subscription, --from says where one begins that does
    not exist yet. With --session it reads what that one owns for --group, or for the --subscription as a group, and is
    refused once somebody else owns it.
    """
    _judge(subscription, group, session, compacted, follow)
    lines = Lines(format_, max_records)
    with connect(url) as client:
        partitions = partitions_of(client, topic, partition)
        if session is not None and partition is None:
            partitions = _owned(client, topic, group or subscription, session)
        if subscription is not None:
            _consume_subscription(client, topic, subscription, partitions, start, follow, isolation, session, lines)
            return
        starts = _starts(client, topic, partitions, start)
        if compacted:
            for number, offset in starts.items():
                _consume_compacted(client, topic, number, offset, isolation, lines)
            return
        with client.reader(
            topic, partitions, start=starts, follow=follow, isolation=isolation, group=group, session_id=session
        ) as reader:
            for number, records in reader.pages():
                lines.show(number, records)
                if lines.is_done:
                    return


def _judge(subscription: str | None, group: str | None, session: str | None, compacted: bool, follow: bool) -> None:
    """Refuse options that do not go together, before anything is asked."""
    if subscription is not None and group is not None:
        raise CommandError("a subscription is a group already: leave out --group or --subscription")
    if group is not None and session is None:
        raise CommandError("--group takes the --session that 'fenceline own --group' holds")
    if session is not None and group is None and subscription is None:
        raise CommandError("--session takes the --group, or the --subscription, that it owns partitions for")
    if compacted and (follow or subscription is not None or session is not None):
        raise CommandError("--compacted reads up to the present end: leave out --follow, --subscription and --session")


def _owned(client: Client, topic: str, group: str | None, session_id: str) -> list[int]:
    places = [hold.resource.rpartition("/") for hold in client.session_state(session_id).holds if hold.group == group]
    owned = [int(number) for name, _, number in places if name == topic and number.isascii() and number.isdecimal()]
    if not owned:
        raise CommandError(
            f"the session owns no partition of {topic} for {group} "
            f"(see 'fenceline own {topic}/0 --group {group} --show'): session_id={session_id}"
        )
    return sorted(owned)


def _consume_subscription(
    client: Client,
    topic: str,
    name: str,
    partitions: list[int],
    start: str,
    follow: bool,
    isolation: Isolation,
    session: str | None,
    lines: Lines,
) -> None:
    if start not in ("earliest", "latest"):
        raise CommandError(
            f"--from takes earliest or latest with --subscription ('fenceline subscription seek'): {start}"
        )
    at: InitialPosition = "earliest" if start == "earliest" else "latest"
    with client.subscribe(
        topic, name, partitions, initial_position=at, follow=follow, isolation=isolation, session_id=session
    ) as subscriber:
        for number, records in subscriber.pages():
            if (last := lines.show(number, records)) is not None:
                subscriber.acknowledge(number, last.offset)
            if lines.is_done:
                return


def _consume_compacted(
    client: Client, topic: str, partition: int, offset: int, isolation: Isolation, lines: Lines
) -> None:
    """Print a partition's compacted view, and the log behind its horizon.

    Raises:
        CommandError: The view was replaced meanwhile. A key that the newer one left out may have been printed.
    """
    began = client.offsets(topic, partition)
    end = began.bounds.last_stable_offset if isolation == "read_committed" else began.bounds.next_offset
    while offset < end and not lines.is_done:
        page = client.read(topic, partition, offset=offset, compacted=True, isolation=isolation)
        lines.show(partition, page.records)
        offset = page.position
    if client.offsets(topic, partition).compaction_horizon != began.compaction_horizon:
        raise CommandError(f"{topic}/{partition} was compacted again while it was read: read it once more")


def _starts(client: Client, topic: str, partitions: list[int], start: str) -> dict[int, int]:
    if start in ("earliest", "latest"):
        bounds = {partition: client.offsets(topic, partition).bounds for partition in partitions}
        return {n: at.log_start_offset if start == "earliest" else at.next_offset for n, at in bounds.items()}
    if start.startswith("@"):
        timestamp = timestamp_of(start[1:], "--from")
        return {partition: _offset_at(client, topic, partition, timestamp) for partition in partitions}
    if start.isdecimal() and start.isascii():
        return dict.fromkeys(partitions, int(start))
    raise CommandError(f"--from takes earliest, latest, an offset, or a time such as @2026-11-20T08:00:00Z: {start}")


def _offset_at(client: Client, topic: str, partition: int, timestamp: int) -> int:
    found = client.offset_at(topic, partition, timestamp)
    return found[0] if found else client.offsets(topic, partition).bounds.next_offset
