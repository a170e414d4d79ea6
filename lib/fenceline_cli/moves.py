"""The effect of moving a subscription's marks, shown before it is done.

Rule: a move is counted in records that would be skipped, and in records that would come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass, fields
from typing import TYPE_CHECKING

import typer

from fenceline.errors import OffsetOutOfRangeError
from fenceline_cli.output import print_json, print_rows
from fenceline_cli.positions import Position, records_between

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.client.types import Cursor


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


def move_of(client: Client, topic: str, cursor: Cursor, position: Position) -> Move:
    """Return the effect of moving ``cursor`` to ``position``.

    Records that were acknowledged individually are counted by their offsets.

    Raises:
        OffsetOutOfRangeError: The position is not in the partition's log.
    """
    number, mark = cursor.partition, cursor.mark_delete_offset
    to_offset = position.offset_in(client, topic, number)
    bounds = client.offsets(topic, number).bounds
    if not bounds.log_start_offset <= to_offset <= bounds.next_offset:
        raise OffsetOutOfRangeError(
            f"the offset is not in the partition's log: partition={number} offset={to_offset} "
            f"log_start_offset={bounds.log_start_offset} next_offset={bounds.next_offset}",
            log_start_offset=bounds.log_start_offset,
            next_offset=bounds.next_offset,
        )
    forgotten = sum(end - max(start, to_offset) for start, end in cursor.individually_acknowledged if end > to_offset)
    if to_offset < mark:
        repeated = records_between(client, topic, number, max(to_offset, bounds.log_start_offset), mark)
        return Move(number, mark, to_offset, 0, repeated + forgotten)
    passed = sum(min(end, to_offset) - start for start, end in cursor.individually_acknowledged if start < to_offset)
    skipped = records_between(client, topic, number, mark, to_offset) - passed
    return Move(number, mark, to_offset, max(0, skipped), forgotten)


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
