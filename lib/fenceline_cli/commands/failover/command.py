"""``fenceline failover``: let a subscription's consumers go on in another region, with as few repeats as possible.

Rule: no record is passed that a consumer was not offered, because marks move only by the UPDATEs between the regions.
So each step may fail, or be left out, and the only cost is repeated records.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fenceline.errors import FencelineError
from fenceline_cli.commands.failover.plan import MovePlan, link_in, make_plan, subscription_in, warnings_of
from fenceline_cli.options import AsJson, IsSure, confirm
from fenceline_cli.output import RegionError, RegionSilentError, print_json, print_rows
from fenceline_cli.region_options import RegionUrl, check_region, connect_to, naming, region_url

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.region import RegionStatus, ShownSnapshot

app = typer.Typer()

ANSWER_MS = 5_000  # for one request: the region that is left may be lost
SNAPSHOT_MS = 10_000
LOOK_MS = 200

Topic = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name, the same in both regions.")]
Name = Annotated[str, typer.Argument(metavar="SUB", help="The subscription's name.")]


@app.command(
    epilog="Example: fenceline failover orders billing --from a=http://127.0.0.1:8080 --to b=http://127.0.0.1:8081\n\n"
    "Example: fenceline failover orders billing --from a=$URL_A --to b=$URL_B --yes --json"
)
def failover(
    topic: Topic,
    name: Name,
    left: Annotated[
        RegionUrl,
        typer.Option(
            "--from",
            metavar="REGION=URL",
            parser=region_url,
            help="The region that the consumers leave, and the URL of its service. It may be lost.",
        ),
    ],
    right: Annotated[
        RegionUrl,
        typer.Option(
            "--to",
            metavar="REGION=URL",
            parser=region_url,
            help="The region in which the consumers go on, and the URL of its service.",
        ),
    ],
    is_sure: IsSure = False,
    as_json: AsJson = False,
) -> None:
    """Move a subscription to another region, where some records come again.

    No record that has arrived in the other region is lost. A record that has not arrived there comes when the region
    that is left is back. The command warns of such records before it asks.

    The command shows the subscription's mark and backlog in both regions, and about how many records will repeat. Then
    it asks. If the region that is left answers, the command takes a snapshot there. It waits up to 10 s until the
    marks have followed, so that fewer records repeat. It creates the subscription where it is missing, at earliest.
    At last it sets the active region in both. Consumers that know several regions then move by themselves; others must
    be started with the other URL. To move back, run it with --from and --to exchanged.
    """
    if left.region == right.region:
        raise typer.BadParameter(f"--from and --to are one region; name two: {left.region}")
    with connect_to(left, timeout_ms=ANSWER_MS) as from_client, connect_to(right, timeout_ms=ANSWER_MS) as to_client:
        check_region(to_client, right, "--to")
        plan = make_plan(topic, name, (left, from_client), (right, to_client), _silence(left, from_client))
        if not as_json:
            _show(plan, left.region, right.region)
        reverse = _reverse(plan, from_client, topic, right.region)
        warnings = _warned(as_json, *warnings_of(plan, left, right.region, reverse))
        many, move = _how_many(plan), f"{name} of {topic} from {left.region} to {right.region}"
        confirm(is_sure, f"Move {move}? {many[0].upper()}{many[1:]}.", f"this moves {move}, and {many}")
        with _if_interrupted("nothing was moved"):
            snapshot_id = _snapshot(plan, from_client, to_client, topic, name, right.region)
        with _if_interrupted("it may have been moved; run the command again"):
            with naming(right, "--to"):
                to_client.create_subscription(
                    topic, name, initial_position="earliest", replicate_subscription_state=True
                )
                to_client.set_active_region(topic, name, right.region)
            untold = _tell(plan, left, from_client, topic, name, right.region)
            if untold is not None and plan.silence is None:
                warnings += _warned(as_json, f"{left.region} was not told, so consumers there may go on: {untold}")
            after = make_plan(topic, name, (left, from_client), (right, to_client), plan.silence)
            active = None if after.right is None else after.right.active_region
            if active != right.region:
                found = f"in {active or 'no region'} by now, not in {right.region}"
                warnings += _warned(as_json, f"{name} of {topic} is active {found}: another command moved it meanwhile")
    if as_json:
        where = {"topic": topic, "subscription": name, "from": left.region, "to": right.region, "active_region": active}
        print_json({**where, **_document(plan, after, snapshot_id, untold), "warnings": warnings})
    elif active == right.region:
        typer.echo(f"moved {name} of {topic} active_region={right.region}: {_how_many(after)}")
        typer.echo(f"consumers that do not move by themselves go on with --url {right.url}")


def _silence(left: RegionUrl, client: Client) -> str | None:
    """Return why the region that is left does not answer; ``None`` if it does."""
    try:
        check_region(client, left, "--from")
    except RegionSilentError as error:
        return str(error)
    return None


@contextmanager
def _if_interrupted(what: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(f"interrupted: {what}", err=True)
        raise


def _warned(as_json: bool, *warnings: str) -> list[str]:
    """Return warnings, which are printed unless they are shown in a JSON document."""
    for warning in () if as_json else warnings:
        typer.echo(f"warning: {warning}", err=True)
    return [*warnings]


def _show(plan: MovePlan, left: str, right: str) -> None:
    columns = ("partition", f"mark in {left}", f"backlog in {left}", f"mark in {right}", f"backlog in {right}")
    rows = [
        tuple(
            "" if value is None else value
            for value in (one.partition, one.from_mark, one.from_backlog, one.to_mark, one.to_backlog)
        )
        for one in plan.partitions
    ]
    print_rows((*columns, "repeats"), [(*row, one.repeats) for row, one in zip(rows, plan.partitions, strict=True)])


def _reverse(plan: MovePlan, client: Client, topic: str, right: str) -> RegionStatus | None:
    """Return how the region that is left sees the other one; ``None`` if that is not known."""
    if plan.silence is None:
        with suppress(FencelineError):
            return link_in(client, topic, right)
    return None


def _how_many(plan: MovePlan) -> str:
    created = ", from the log start on" if plan.is_created else ""
    records = "1 record repeats" if plan.repeats == 1 else f"{plan.repeats} records repeat"
    return f"{'at most' if plan.is_bound else 'about'} {records}{created}"


def _snapshot(
    plan: MovePlan, from_client: Client, to_client: Client, topic: str, name: str, to_region: str
) -> str | None:
    """Take a snapshot in the region that is left, and wait until the marks in the other one have followed it.

    Returns:
        Its id, or ``None`` if none was taken. Both only change how many records repeat.
    """
    if plan.left is None or not plan.left.replicate_subscription_state:
        return None
    try:
        snapshot_id = from_client.snapshot(topic)
    except FencelineError:
        return None
    runtime = from_client.runtime
    until_ms = runtime.monotonic_ms() + SNAPSHOT_MS
    with suppress(FencelineError):
        while not _has_moved(from_client, to_client, topic, name, to_region, snapshot_id):
            if runtime.monotonic_ms() + LOOK_MS > until_ms:
                break
            runtime.sleep_ms(LOOK_MS)
    return snapshot_id


def _has_moved(from_client: Client, to_client: Client, topic: str, name: str, to_region: str, snapshot_id: str) -> bool:
    """Return True if the snapshot is complete, and each mark that it lets move has moved."""
    found = from_client.replication(topic)
    if any(one.snapshot_id == snapshot_id for one in found.pending):
        return False
    complete: dict[int, ShownSnapshot] = {
        one.partition: one for one in found.snapshots if one.snapshot_id == snapshot_id
    }
    if not complete:
        return False
    here, there = subscription_in(from_client, topic, name), subscription_in(to_client, topic, name)
    if here is None or there is None:
        return False
    marks = {cursor.partition: cursor.mark_delete_offset for cursor in there.partitions}
    for cursor in here.partitions:
        one = complete.get(cursor.partition)
        if one is None or cursor.partition not in marks:
            continue
        is_passed = cursor.backlog == 0 or cursor.mark_delete_offset >= one.local_offset
        if is_passed and marks[cursor.partition] < one.offsets.get(to_region, 0):
            return False
    return True


def _tell(plan: MovePlan, left: RegionUrl, client: Client, topic: str, name: str, region: str) -> str | None:
    """Set the active region in the region that is left; return why that was not possible."""
    if plan.left is None:
        return plan.silence or f"it has no such {plan.lacked}"
    try:
        with naming(left, "--from"):
            client.set_active_region(topic, name, region)
    except RegionError as error:
        return str(error)
    return None


def _document(plan: MovePlan, after: MovePlan, snapshot_id: str | None, untold: str | None) -> dict[str, Any]:
    return {
        "answered": plan.silence is None,
        "last_seen_at": plan.last_seen_at,
        "created": plan.is_created,
        "snapshot_id": snapshot_id,
        "told": untold is None,
        "repeats_before": plan.repeats,
        "repeats": after.repeats,
        "at_most": after.is_bound,
        "partitions": [{**asdict(one), "repeats": one.repeats} for one in after.partitions],
    }
