r"""The templates of ``consume --format``, as kcat has them: ``%t %p %o %k %s\n``.

Rule: keys and values are written as their bytes. A null is written as nothing, and its length as -1, as in kcat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from fenceline.format.batch import StoredRecord
    from fenceline.model.results import ReadRecord

AnyRecord: TypeAlias = "StoredRecord | ReadRecord"

HELP = (
    "A template holds %t topic, %p partition, %o offset, %k key, %s value, %K and %S their lengths (-1 is null)."
    " It also holds %T time in ms, %h headers, %% a percent sign, \\n, \\t, \\r, \\\\ and \\xHH"
)

Part = Callable[[str, int, "AnyRecord"], bytes]

_PARTS: Mapping[str, Part] = {
    "t": lambda topic, _partition, _record: topic.encode(),
    "p": lambda _topic, partition, _record: b"%d" % partition,
    "o": lambda _topic, _partition, record: b"%d" % record.offset,
    "k": lambda _topic, _partition, record: record.key or b"",
    "s": lambda _topic, _partition, record: record.value or b"",
    "K": lambda _topic, _partition, record: _length(record.key),
    "S": lambda _topic, _partition, record: _length(record.value),
    "T": lambda _topic, _partition, record: b"%d" % record.timestamp,
    "h": lambda _topic, _partition, record: _headers(record),
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}
_PIECE = re.compile(r"%(?P<part>.?)|\\x(?P<hex>[0-9A-Fa-f]{2})|\\(?P<escape>.?)|(?P<text>[^%\\]+)", re.DOTALL)


class FormatError(ValueError):
    """A template that is invalid; the message lists what one may hold."""


def compiled(template: str, topic: str) -> Callable[[int, AnyRecord], bytes]:
    """Return a function that makes a line's bytes from a partition and a record.

    Raises:
        FormatError: ``template`` holds a letter that has no meaning.
    """
    pieces: list[bytes | Part] = [_piece(found) for found in _PIECE.finditer(template)]

    def line_of(partition: int, record: AnyRecord) -> bytes:
        return b"".join(one if isinstance(one, bytes) else one(topic, partition, record) for one in pieces)

    return line_of


def _piece(found: re.Match[str]) -> bytes | Part:
    if found["text"] is not None:
        return found["text"].encode()
    if found["hex"] is not None:
        return bytes.fromhex(found["hex"])
    if found["part"] == "%":
        return b"%"
    if found["part"] in _PARTS:
        return _PARTS[found["part"]]
    if found["escape"] in _ESCAPES:
        return _ESCAPES[found["escape"]]
    raise FormatError(f"{found[0]} has no meaning. {HELP}")


def _length(octets: bytes | None) -> bytes:
    return b"-1" if octets is None else b"%d" % len(octets)


def _headers(record: AnyRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)
