"""The effect of moving a subscription's marks, shown before it is done.

Rule: a move is counted in records that would be skipped, and in records that would come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING

import typer

from fenceline_cli.output import print_json, print_rows

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline_cli.positions import Position


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's part of a seek.

    Attributes:
        skipped: How many records were not acknowledged, and would no longer be delivered.
        repeated: How many records were acknowledged, and would be delivered again.
    """

    partition: int
    from_offset: int
    to_offset: int
    skipped: int
    repeated: int


def move_of(client: Client, topic: str, name: str, partition: int, position: Position) -> Move:
    """Return the effect of moving a subscription's mark to ``position``, as the service counts it.

    Raises:
        OffsetOutOfRangeError: The position is not in the partition's log.
    """
    to_offset = position.offset_in(client, topic, partition)
    found = client.preview_seek(topic, name, partition, offset=to_offset)
    return Move(partition, found.mark_delete_offset, to_offset, found.skipped, found.repeated)


def show_moves(moves: Sequence[Move], *, as_json: bool) -> None:
    """Print the moves as a table, or as JSON."""
    if as_json:
        print_json([asdict(move) for move in moves])
        return
    columns = tuple(field.name for field in fields(Move))
    print_rows(columns, [astuple(move) for move in moves])


def totals(moves: Sequence[Move]) -> tuple[int, int]:
    """Return how many records are skipped, and how many come again."""
    return sum(move.skipped for move in moves), sum(move.repeated for move in moves)


def carry_out(
    client: Client, topic: str, name: str, moves: Sequence[Move], done: str, mark_name: str, *, as_json: bool
) -> None:
    """Move the marks of a subscription, and print each under ``mark_name``; ``done`` is the line's first word."""
    marks = {move.partition: client.seek(topic, name, move.partition, offset=move.to_offset) for move in moves}
    if as_json:
        print_json([{"partition": number, mark_name: mark} for number, mark in marks.items()])
        return
    for number, mark in marks.items():
        typer.echo(f"{done} {name} on {topic}/{number} {mark_name}={mark}")
