"""``fenceline producers``: write access to a topic, its history, what partitions know of producers, and claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from fenceline.answers import to_json
from fenceline_cli.held_right import LeaseSeconds, WaitSeconds, ending_in_order, hold, in_ms
from fenceline_cli.options import DEFAULT_URL, AccessMode, AsJson, TopicName, Url, connect, partitions_of
from fenceline_cli.output import describe as describe_error
from fenceline_cli.output import print_json, print_rows, utc

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.client.types import AccessMarker, AccessState, Claim
    from fenceline.errors import FencelineError
    from fenceline.model.access import AccessHolder
    from fenceline.model.topic import Topic
    from fenceline.model.transaction import ShownProducerState

app = typer.Typer(
    name="producers",
    no_args_is_help=True,
    help="List the producers of a topic, claim write access (PIP-68), show who may write, who could before, and what "
    "partitions know of producers.",
    epilog="Example: fenceline producers list orders\n\nExample: fenceline producers access orders --history",
)

COLUMNS = (
    "producer_name", "access_mode", "state", "queue_position", "topic_epochs", "next_offsets", "expires_at",
    "session_id", "client_name", "since",
)  # fmt: skip
ACCESS_COLUMNS = (
    "partition", "topic_epoch", "access_mode", "producer_name", "client_name", "since", "expires_at", "waiting",
    "groups",
)  # fmt: skip
MARKER_COLUMNS = (
    "partition", "offset", "time", "topic_epoch", "access_mode", "producer_name", "client_name", "session_id",
    "records",
)  # fmt: skip
STATE_COLUMNS = (
    "partition", "producer_id", "producer_epoch", "last_sequence", "last_append", "current_txn_start_offset",
)  # fmt: skip


@app.command("list", epilog="Example: fenceline producers list orders")
def list_producers(topic: TopicName, as_json: AsJson = False, url: Url = DEFAULT_URL) -> None:
    """List the producers that hold access to a topic under a session, then those that wait for it, in order.

    A producer whose expires_at is past blocks no other, and may come back.
    """
    with connect(url) as client:
        found = client.producers(topic)
    claims = [*found.granted, *found.waiting]
    if as_json:
        print_json([asdict(claim) for claim in claims])
        return
    print_rows(COLUMNS, [_row(claim) for claim in claims])


@app.command(
    epilog="Example: fenceline producers claim orders\n\n"
    "Example: fenceline producers claim orders --mode WaitForExclusive --partition 0 --partition 1 --wait 60"
)
def claim(
    topic: TopicName,
    mode: Annotated[AccessMode, typer.Option(help="How to claim it.")] = "Exclusive",
    partition: Annotated[
        list[int] | None,
        typer.Option(min=0, help="Claim this partition; may be given several times. Left out, claim all."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="The producer's name; left out, a random one.")] = None,
    wait: WaitSeconds = None,
    lease: LeaseSeconds = 30,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Claim write access, and hold it until Ctrl-C, SIGTERM, or until another producer takes it.

    The command prints a line with the epochs once access is granted, and gives it back at its end. Only
    WaitForExclusive waits. A claim of the whole topic also claims the partitions that are added to it, within a minute.
    The command says on stderr whether they were granted; if not, it asks again each minute.
    """
    positions: list[int | None] = []

    def tell(queued: Claim) -> None:
        if positions[-1:] != [queued.queue_position]:
            positions.append(queued.queue_position)
            typer.echo(f"waiting for {topic}: queue_position={queued.queue_position}", err=True)

    def tell_growth(grown: Topic, error: FencelineError | None) -> None:
        if partition is None:
            outcome = "all are granted" if error is None else f"not all are granted: {describe_error(error)}"
            typer.echo(f"{topic} has {grown.partitions} partitions now: {outcome}", err=True)

    with (
        ending_in_order(),
        connect(url) as client,
        client.producer(
            topic,
            access_mode=mode,
            partitions=partition,
            producer_name=name,
            lease_ms=in_ms(lease),
            wait_ms=None if wait is None else in_ms(wait),
            on_queued=tell,
            on_growth=tell_growth,
            idempotent=False,
        ) as producer,
    ):
        granted = producer.claim
        assert granted is not None
        if as_json:
            print_json(asdict(granted))
        else:
            epochs, offsets = _numbers(granted.topic_epochs), _numbers(granted.next_offsets)
            who = f"producer_name={granted.producer_name} session_id={granted.session_id}"
            typer.echo(f"granted {topic} topic_epochs={epochs} next_offsets={offsets} {who}")
        hold(producer.held)


@app.command(
    epilog="Example: fenceline producers describe orders\n\n"
    "Example: fenceline producers describe orders --partition 3 --json"
)
def describe(
    topic: TopicName,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Show only this partition; left out, all."),
    ] = None,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show what each partition knows of the idempotent and transactional producers that wrote to it.

    The column last_sequence is that of the last record, and -1 right after the end of a transaction. The column
    current_txn_start_offset is where the producer's open transaction begins, and empty without one; with --json it is
    -1 then. Producers whose time is over (producer.id.expiration.ms) are left out.
    """
    with connect(url) as client:
        numbers = partitions_of(client, topic, partition)
        found = [(number, state) for number in numbers for state in client.producer_states(topic, number)]
    if as_json:
        print_json([{"partition": number, **asdict(state)} for number, state in found])
        return
    print_rows(STATE_COLUMNS, [_state_row(number, state) for number, state in found])


@app.command(
    epilog="Example: fenceline producers access orders\n\n"
    "Example: fenceline producers access orders --history --partition 3"
)
def access(
    topic: TopicName,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Show only this partition; left out, all."),
    ] = None,
    history: Annotated[
        bool, typer.Option("--history", help="Show who could write before, too: the markers of the log, newest first.")
    ] = False,
    limit: Annotated[
        int, typer.Option(min=1, metavar="N", help="With --history: show this many of each partition.")
    ] = 20,
    as_json: AsJson = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Show for each partition who may write to it, how many wait, and the groups that have an owner there.

    An exclusive partition without a holder is free: its holder's lease is over, or it was closed.

    With --history each line is a marker of the log instead. The column records counts those from the marker up to the
    next one. An epoch fences every earlier one: what an earlier holder sends after the marker never lands.
    """
    with connect(url) as client:
        numbers = partitions_of(client, topic, partition)
        if history:
            _show_history(client, topic, numbers, limit, as_json=as_json)
            return
        found = [state for state in client.access(topic) if state.partition in numbers]
    if as_json:
        print_json([to_json(state) for state in found])
        return
    print_rows(ACCESS_COLUMNS, [_access_row(state) for state in found])


def _show_history(client: Client, topic: str, numbers: Sequence[int], limit: int, *, as_json: bool) -> None:
    found = [(number, marker) for number in numbers for marker in client.markers(topic, number, limit=limit)]
    if as_json:
        print_json([{"partition": number, **asdict(marker)} for number, marker in found])
        return
    print_rows(MARKER_COLUMNS, [_marker_row(number, marker) for number, marker in found])


def _access_row(state: AccessState) -> tuple[object, ...]:
    held, groups = state.holder, ",".join(one.group for one in state.group_owners)
    who = ("", "", "", "") if held is None else (*_names(held), _time(held.since), utc(held.expires_at))
    return (state.partition, str(state.topic_epoch), state.access_mode, *who, state.waiting, groups)


def _marker_row(partition: int, marker: AccessMarker) -> tuple[object, ...]:
    when = (marker.offset, utc(marker.timestamp), str(marker.topic_epoch))
    return (partition, *when, marker.access_mode, *_names(marker), marker.session_id or "", marker.records)


def _names(of: AccessHolder | AccessMarker) -> tuple[str, str]:
    return of.producer_name or "", of.client_name or ""


def _time(at_ms: int | None) -> str:
    return "" if at_ms is None else utc(at_ms)


def _state_row(partition: int, state: ShownProducerState) -> tuple[object, ...]:
    start = state.current_txn_start_offset
    # As text: a table would write ids with separators.
    pair = (str(state.producer_id), str(state.producer_epoch))
    return (partition, *pair, state.last_sequence, utc(state.last_timestamp), "" if start < 0 else start)


def _row(claim: Claim) -> tuple[object, ...]:
    position = "" if claim.queue_position is None else claim.queue_position
    epochs, offsets = _numbers(claim.topic_epochs), _numbers(claim.next_offsets)
    who, expires_at = (claim.producer_name, claim.access_mode, claim.state), utc(claim.expires_at)
    return (*who, position, epochs, offsets, expires_at, claim.session_id, claim.client_name or "", _time(claim.since))


def _numbers(by_partition: object) -> str:
    assert isinstance(by_partition, dict)
    return ",".join(f"{partition}:{number}" for partition, number in by_partition.items())
