"""``fenceline consume``: records as lines."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.errors import OutcomeUnknownError, RetryError, ViewMovedError
from fenceline.model.table_order import Winners
from fenceline_cli import positions, record_lines, units
from fenceline_cli.codec_alone import load_codec
from fenceline_cli.commands.consume.member import consume_as_member, initial_position
from fenceline_cli.commands.consume.reading import Outages, Readers, ReadingEnd, pages_through, read_up_to
from fenceline_cli.held_right import in_ms
from fenceline_cli.options import (
    DEFAULT_URL,
    AsJson,
    Isolation,
    Session,
    TopicName,
    Url,
    connect,
    partitions_of,
)
from fenceline_cli.output import CommandError, warnings_shown
from fenceline_cli.record_lines import NAMES, Lines

if TYPE_CHECKING:
    from fenceline.client import Client, Subscriber

app = typer.Typer()


def _format(text: str) -> str:
    if text in NAMES:
        return text
    if "%" not in text:
        raise typer.BadParameter(f"takes {', '.join(NAMES)}, or a template, not {text!r}. {record_lines.TEMPLATE_HELP}")
    try:
        record_lines.compiled(text, "")
    except record_lines.FormatError as error:
        raise typer.BadParameter(str(error)) from error
    return text


def _pattern(text: str | None) -> str | None:
    try:
        re.compile((text or "").encode())
    except re.error as error:
        raise typer.BadParameter(f"takes a regular expression, but {error}: {text}") from error
    return text


Follow = Annotated[
    bool | None,
    typer.Option(
        "--follow/--no-follow",
        "-f",
        show_default=False,
        help="Wait for new records, through outages of the service, too; Ctrl-C ends it. A member of a group waits "
        "unless --no-follow is given; without a group the command ends at the present end.",
    ),
]
MaxDelay = Annotated[
    float,
    typer.Option(
        "--max-delay",
        metavar="DURATION",
        parser=units.seconds,
        help="With --follow: how old a record may be when it is printed, as 200ms or 5s; a longer delay costs less. "
        "After a minute without records it is 5s at least, except where polls are held: by 'fenceline dev', and below "
        "500ms.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="WHERE", help="End before this place, named as in --from; 'end' is each partition's present end."
    ),
]
SubscriptionName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Read what this subscription has not acknowledged. Each page is acknowledged once it was printed.",
    ),
]
GroupName = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Join this group, and print this member's share of the partitions. What was printed is committed. "
        "With --session, print what the session owns for the group, and commit nothing.",
    ),
]
Shared = Annotated[
    bool,
    typer.Option("--shared", help="Do not warn of another reader that acknowledges the same --subscription."),
]
Compacted = Annotated[
    bool, typer.Option("--compacted", help="Print only the newest record of each key of the compacted part.")
]
Partition = Annotated[
    int | None, typer.Option(min=0, help="Read only this partition; left out, all, as their answers arrive.")
]
Grep = Annotated[
    str | None,
    typer.Option(metavar="REGEX", callback=_pattern, help="Print only records whose key or value matches."),
]
Format = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        callback=_format,
        help=f"{', '.join(NAMES)}, or a template as in kcat. {record_lines.TEMPLATE_HELP}.",
    ),
]
IsolationLevel = Annotated[
    Isolation,
    typer.Option(
        help="read_committed prints what is committed: it ends, or waits, where the first open transaction begins."
    ),
]


@app.command(
    epilog="Example: fenceline consume orders --from earliest --max 10\n\n"
    "Example: fenceline consume orders --from -5   (the last five of each partition)\n\n"
    "Example: fenceline consume orders --partition 0 --from 42 --until 50 --format json\n\n"
    "Example: fenceline consume orders --from 2026-11-20T08:00Z --until -1h --grep 'paid|sent'\n\n"
    "Example: fenceline consume orders --follow --format '%t %p %o %k %s\\n'\n\n"
    "Example: fenceline consume orders --follow --max-delay 5s\n\n"
    "Example: fenceline consume orders --format json | fenceline produce copy --json-lines\n\n"
    "Example: fenceline consume totals --isolation read_committed --follow\n\n"
    "Example: fenceline consume orders --subscription billing\n\n"
    "Example: fenceline consume orders --group billing   (Ctrl-C leaves the group)\n\n"
    "Example: fenceline consume orders --group billing --session 5bd5…  (of 'fenceline own')\n\n"
    "Example: fenceline consume ledger --compacted --format key-value"
)
def consume(
    topic: TopicName,
    follow: Follow = None,
    start: Annotated[str, typer.Option("--from", metavar="WHERE", help=f"{positions.HELP}.")] = "earliest",
    until: Until = None,
    subscription: SubscriptionName = None,
    shared: Shared = False,
    group: GroupName = None,
    session: Session = None,
    compacted: Compacted = False,
    partition: Partition = None,
    max_delay: MaxDelay = 1.0,
    max_records: Annotated[int | None, typer.Option("--max", min=1, help="End after so many records.")] = None,
    grep: Grep = None,
    format_: Format = "value",
    isolation: IsolationLevel = "read_uncommitted",
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print records, one on a line, up to the present end of each partition.

    With --follow, partitions that are added to the topic are printed, too, within a minute and from their beginning.

    The format value prints the value, and null for a tombstone. The format key-value puts the key and a tab before it.
    The format json prints the whole record, in base64 where it is not UTF-8, and says so.

    With --group the command joins the group: each partition is printed by one of its members, and the group shares
    them out again when a member comes or goes. --from then says where the group begins on a topic that it has not read,
    earliest or latest. Lines on stderr say which partitions came and went. Ctrl-C leaves the group.

    With --subscription, --from says where a new subscription begins. With --session the command reads the partitions
    that this session owns for --group, or for the --subscription as a group. The service refuses it once another
    session owns them.
    """
    is_member = group is not None and session is None
    follow = is_member if follow is None else follow
    _check_options(subscription, group, session, compacted, follow, partition)
    if is_member and (until is not None or grep is not None):
        raise CommandError("a group commits every record that it passes; leave out --until and --grep")
    if shared and subscription is None:
        raise CommandError("--shared goes with --subscription, which alone acknowledges")
    if subscription is not None and (until is not None or grep is not None):
        raise CommandError("a subscription acknowledges every record that it passes; leave out --until and --grep")
    begin = positions.parse(start, "--from")
    end = None if until is None else positions.parse(until, "--until")
    pattern = None if grep is None else re.compile(grep.encode())
    lines = Lines("json" if as_json else format_, topic, max_records=max_records, pattern=pattern)
    with connect(url) as client:
        if group is not None and session is None:
            consume_as_member(client, topic, group, start, follow, isolation, in_ms(max_delay), lines)
            return
        partitions = partitions_of(client, topic, partition)
        if session is not None and partition is None:
            partitions = _owned(client, topic, group or subscription, session)
        is_whole = partition is None and session is None
        if subscription is not None:
            some, outages = None if is_whole else partitions, Outages(client, topic, len(partitions))
            _consume_subscription(
                client,
                topic,
                subscription,
                some,
                start,
                follow,
                isolation,
                session,
                lines,
                outages,
                shared,
                in_ms(max_delay),
            )
            return
        starts = {number: begin.offset_in(client, topic, number, isolation) for number in partitions}
        ends = {
            number: ReadingEnd.of(client, topic, number, end, isolation, is_following=follow) for number in partitions
        }
        if compacted:
            for number, offset in starts.items():
                _consume_compacted(client, topic, number, offset, ends[number], isolation, lines)
            return
        load_codec()
        new_from = len(partitions) if is_whole else None
        read_up_to(
            _readers(client, topic, isolation, group, session, new_from, in_ms(max_delay)),
            starts,
            ends,
            lines,
            is_following=follow,
            outages=Outages(client, topic, len(partitions)),
            of_new=ReadingEnd.of_new(end),
        )


def _readers(
    client: Client,
    topic: str,
    isolation: Isolation,
    group: str | None,
    session: str | None,
    new_from: int | None,
    max_delay_ms: int,
) -> Readers:
    """Return a function that makes a reader of partitions from their starts on, and of those from ``new_from`` on."""
    return lambda some, is_following: client.reader(
        topic,
        [*some],
        start=some,
        follow=is_following,
        isolation=isolation,
        group=group,
        session_id=session,
        new_from=new_from if is_following else None,
        max_delay_ms=max_delay_ms,
    )


def _check_options(
    subscription: str | None,
    group: str | None,
    session: str | None,
    compacted: bool,
    follow: bool,
    partition: int | None,
) -> None:
    """Refuse options that do not go together, before any request is sent."""
    if subscription is not None and group is not None:
        raise CommandError("a subscription is a group already; leave out --group or --subscription")
    if group is not None and session is None and (partition is not None or compacted):
        raise CommandError(
            "a group shares out the partitions, and reads all records; leave out --partition and --compacted, or add "
            "the --session that 'fenceline own --group' holds"
        )
    if session is not None and group is None and subscription is None:
        raise CommandError("--session needs a group; add the --group, or the --subscription, that it owns for")
    if compacted and (follow or subscription is not None or session is not None):
        raise CommandError("--compacted reads up to the present end; leave out --follow, --subscription and --session")


def _owned(client: Client, topic: str, group: str | None, session_id: str) -> list[int]:
    owned = client.session_state(session_id).owned_partitions(topic, group)
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
    partitions: list[int] | None,
    start: str,
    follow: bool,
    isolation: Isolation,
    session: str | None,
    lines: Lines,
    outages: Outages,
    shared: bool,
    max_delay_ms: int,
) -> None:
    at = initial_position(start, "--subscription", "'fenceline subscription seek' moves one elsewhere")
    with (
        warnings_shown("fenceline.readers"),
        client.subscribe(
            topic,
            name,
            partitions,
            initial_position=at,
            follow=follow,
            isolation=isolation,
            session_id=session,
            shared=shared,
            max_delay_ms=max_delay_ms,
        ) as subscriber,
    ):
        through = outages if follow else None
        for number, records in pages_through(subscriber, through):
            if (last := lines.show(number, records)) is not None:
                _acknowledge(subscriber, number, last.offset, through)
            if lines.is_done:
                return


def _acknowledge(subscriber: Subscriber, partition: int, offset: int, outages: Outages | None) -> None:
    """Acknowledge what was printed, also through an outage, because another subscriber would print it again."""
    while True:
        try:
            subscriber.acknowledge(partition, offset)
            return
        except (RetryError, OutcomeUnknownError) as error:  # what was acknowledged is acknowledged again
            if outages is None:
                raise
            outages.wait(error)


def _consume_compacted(
    client: Client, topic: str, partition: int, offset: int, span: ReadingEnd, isolation: Isolation, lines: Lines
) -> None:
    """Print a partition's compacted view, and the log after its horizon.

    Raises:
        CommandError: A deletion that was not printed may be gone. A key that it deleted was printed.
    """
    end = positions.end_of(client.offsets(topic, partition).bounds, isolation)
    since: int | None = None
    winners = Winners() if client.topic(topic).is_by_timestamp else None
    while offset < _least(end, span.offset) and not lines.is_done:
        try:
            page = client.read(
                topic,
                partition,
                offset=offset,
                compacted=True,
                compacted_since=since,
                compaction_order="offset" if winners is None else "timestamp",
                identity=winners is not None,
                isolation=isolation,
            )
        except ViewMovedError as error:
            raise CommandError(
                f"{topic}/{partition} was compacted again while it was read, trimmed or altered, so old records "
                "may be among these; read it once more"
            ) from error
        horizon = page.compaction_horizon or 0
        since = horizon if since is None else since
        # A newer view has the newest records of keys up to its own end, and not what they replaced.
        end = max(end, horizon)
        shown = [record for record in page.records if record.offset < _least(end, span.offset)]
        lines.show(partition, shown if winners is None else [record for record in shown if winners.is_kept(record)])
        offset = page.position


def _least(end: int, until: int | None) -> int:
    return end if until is None else min(end, until)
