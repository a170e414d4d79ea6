"""``fenceline consume --group``: records as a member of a consumer group.

Rule: a page is committed after it was printed, so what was not printed comes again, and nothing is left out.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from fenceline_cli.options import InitialPosition
from fenceline_cli.output import EXIT_TERMINATED, CommandError

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.model.kinds import Isolation
    from fenceline.model.transaction import TopicPartition
    from fenceline_cli.record_lines import Lines


def initial_position(start: str, option: str, elsewhere: str) -> InitialPosition:
    """Return where a new subscription begins.

    Raises:
        CommandError: ``--from`` is another place; ``elsewhere`` says how to move there.
    """
    if start == "earliest":
        return "earliest"
    if start == "latest":
        return "latest"
    raise CommandError(f"--from takes earliest or latest with {option}; {elsewhere}: {start}")


def consume_as_member(
    client: Client,
    topic: str,
    group: str,
    start: str,
    follow: bool,
    isolation: Isolation,
    max_delay_ms: int,
    lines: Lines,
) -> None:
    """Print the share of a member of ``group``, and leave the group at the end."""
    at = initial_position(start, "--group", "'fenceline group reset' moves an empty group elsewhere")
    client.topic(topic)  # a consumer would wait for a topic to come, also where its name was mistyped
    with (
        _ended_by_sigterm(),
        client.consumer(
            topic,
            group=group,
            start=at,
            follow=follow,
            isolation=isolation,
            max_delay_ms=max_delay_ms,
            on_assigned=lambda some: _tell(group, "has", some),
            on_revoked=lambda some: _tell(group, "gives up", some),
            on_lost=lambda some: _tell(group, "lost", some),
        ) as consumer,
    ):
        for name, partition, records in consumer.pages():
            last = lines.show(partition, records)
            if lines.is_done:
                if last is not None:
                    consumer.commit(name, partition, last.offset + 1)
                return


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM leave the block by an exception, so that the group hears of the end at once."""

    def end(*_: object) -> None:
        raise typer.Exit(EXIT_TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell(group: str, what: str, partitions: Sequence[TopicPartition]) -> None:
    numbers = ",".join(str(one.partition) for one in partitions)
    typer.echo(f"this member of {group} {what} {partitions[0].topic}/{numbers}", err=True)
