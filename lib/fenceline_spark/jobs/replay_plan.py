"""The plan of a replay: its ranges, and the number of versions in which they are written, the same for all its runs.

Rule: the first run of a name settles the plan, by marks of ``once`` that only one run can make, and every later run
takes this plan. So a version always holds the same records, however far the source has grown.

A plan of many partitions has several marks, because a mark's note has 1,024 bytes. Each mark is settled by itself. Two
first runs at once may each settle some of them, which does no harm, because each mark is about other partitions.

Not here: reading and writing (``replaying``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from fenceline import limits
from fenceline.client import Client
from fenceline.errors import AlreadyCommittedError, InvalidRequestError
from fenceline.model.transaction import OnceMark, check_transactional_id

Ranges = Mapping[int, tuple[int, int]]

NAME_BYTES_MAX = limits.TRANSACTIONAL_ID_BYTES_MAX - len(".plan.9999")
_FORM = "1"  # the first word of each note; stored
_PARTITIONS_PER_MARK = 40  # a range takes 18 bytes at most, and a third more as text


class ReplayError(Exception):
    """A replay that is refused; the message says what to do. Nothing was written."""


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """The records that a replay copies.

    Attributes:
        ranges: [start, end) of every partition of the source; empty where nothing is copied.
        versions: Into how many writes they are cut.
    """

    ranges: Ranges
    versions: int

    def part(self, version: int) -> dict[int, tuple[int, int]]:
        """Return the ranges of one version, without the empty ones."""
        cut = {
            number: tuple(start + (end - start) * n // self.versions for n in (version, version + 1))
            for number, (start, end) in self.ranges.items()
        }
        return {number: (start, end) for number, (start, end) in cut.items() if start < end}


def settled(client: Client, name: str, identity: str, make: Callable[[], ReplayPlan]) -> ReplayPlan:
    """Return the plan of a name: the one that was settled before, or else the one that ``make`` returns.

    Args:
        identity: All that a run is asked for. Another one under the same name is refused.

    Raises:
        ReplayError: The name is that of another replay, or of another application.
        FencelineError: The service refused, or did not answer. Asking again is right.
    """
    digest = hashlib.sha256(identity.encode()).hexdigest()[:16]
    written = client.once(name)  # before its plan is looked at: a plan is settled before anything is written
    first = client.once(mark_id(name, 0))
    if first.version < 0 <= written.version:
        what = "another application writes under this name, as its txnAppId; choose another name"
        raise ReplayError(f"{what}: name={name} version={written.version}")
    made = None if first.version >= 0 else make()
    numbers = sorted(made.ranges) if made is not None else []
    note = first.note or ""
    if made is not None:
        head = f"{_FORM} {digest} {made.versions} {len(numbers)}"
        note = _settle(client, name, 0, f"{head} {_packed(made.ranges, 0)}")
    form, settled_digest, versions, count, packed = note.split(" ") if note.count(" ") == 4 else [""] * 5
    if form != _FORM or settled_digest != digest:
        what = "another replay has this name; choose another name, or ask for the same topics, range and condition"
        raise ReplayError(f"{what}: name={name}")
    ranges = dict(_unpacked(packed, 0))
    for mark in range(1, -(-int(count) // _PARTITIONS_PER_MARK)):
        ranges |= dict(_unpacked(_rest(client, name, mark, made, make), mark))
    return ReplayPlan(ranges, int(versions))


def check_name(name: str) -> None:
    """Refuse a name that leaves its marks no legal id.

    Raises:
        ReplayError: No replay can have this name.
    """
    try:
        check_transactional_id(name)
        is_legal = len(name.encode()) <= NAME_BYTES_MAX
    except InvalidRequestError:
        is_legal = False
    if not is_legal:
        what = f"a replay's name has 1 to {NAME_BYTES_MAX} bytes of UTF-8, no '/' and no control characters"
        raise ReplayError(f"{what}, and is neither '.' nor '..'; choose another name: name={name}")


def mark_id(name: str, number: int) -> str:
    """Return the application id of a part of a name's plan."""
    return f"{name}.plan.{number}"


def _rest(client: Client, name: str, number: int, made: ReplayPlan | None, make: Callable[[], ReplayPlan]) -> str:
    """Return a further part of a plan. A first run that died may not have settled it."""
    mark = client.once(mark_id(name, number))
    if mark.version >= 0:
        return mark.note or ""
    return _settle(client, name, number, _packed((made or make()).ranges, number))


def _settle(client: Client, name: str, number: int, note: str) -> str:
    """Settle a part of a plan, unless another run has done so. Return what is settled."""
    try:
        client.end_transactions([], "commit", once=OnceMark(mark_id(name, number), 0, note))
    except AlreadyCommittedError:
        return client.once(mark_id(name, number)).note or ""
    return note


def _packed(ranges: Ranges, mark: int) -> str:
    packed = bytearray()
    for number in range(mark * _PARTITIONS_PER_MARK, (mark + 1) * _PARTITIONS_PER_MARK):
        start, end = ranges.get(number, (0, 0))
        packed += _varint(start) + _varint(end - start)
    return base64.b64encode(packed).decode()


def _unpacked(text: str, mark: int) -> Iterator[tuple[int, tuple[int, int]]]:
    numbers = _varints(base64.b64decode(text))
    for number, start in enumerate(numbers, mark * _PARTITIONS_PER_MARK):
        count = next(numbers)
        if count:
            yield number, (start, start + count)


def _varint(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*packed, number])


def _varints(packed: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in packed:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number
            number = shift = 0
