r"""Records as lines on stdout: in a format that has a name, or by a template as kcat has them: ``%t %p %o %k %s\n``.

Rule: a JSON line holds all of its record, and ``fenceline produce --json-lines`` makes the same record of the line.
Templates write keys and values as their bytes, and a null as nothing with the length -1, as in kcat.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    from fenceline.format.batch import StoredRecord
    from fenceline.model.results import ReadRecord


AnyRecord: TypeAlias = "StoredRecord | ReadRecord"

Format = Literal["value", "key-value", "json"]  # those that have a name
LineOf = Callable[[int, AnyRecord], bytes]


class Lines:
    """The lines of one command, and how many are still to be printed.

    Args:
        format_: A name of ``NAMES``, or a template as ``TEMPLATE_HELP`` says.
        max_records: The number of records to print; ``None`` sets no bound.
        pattern: Print only records whose key or value matches it.
    """

    def __init__(
        self, format_: str, topic: str, *, max_records: int | None = None, pattern: re.Pattern[bytes] | None = None
    ) -> None:
        self._line_of = LINES.get(format_) or compiled(format_, topic)
        self._left = max_records
        self._pattern = pattern

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def show(self, partition: int, records: Sequence[AnyRecord]) -> AnyRecord | None:
        """Print the records at once, and return the last one that was printed."""
        if self._pattern is not None:
            records = [record for record in records if _is_found(self._pattern, record)]
        shown = records if self._left is None else records[: self._left]
        sys.stdout.buffer.writelines(self._line_of(partition, record) for record in shown)
        sys.stdout.buffer.flush()
        if self._left is not None:
            self._left -= len(shown)
        return shown[-1] if shown else None


def _is_found(pattern: re.Pattern[bytes], record: AnyRecord) -> bool:
    return any(octets is not None and pattern.search(octets) for octets in (record.key, record.value))


def _value_line(_partition: int, record: AnyRecord) -> bytes:
    return (b"null" if record.value is None else record.value) + b"\n"


def _key_value_line(_partition: int, record: AnyRecord) -> bytes:
    key = b"null" if record.key is None else record.key
    return key + b"\t" + _value_line(_partition, record)


def _json_line(partition: int, record: AnyRecord) -> bytes:
    try:
        content = _content(record, lambda octets: octets.decode())
    except UnicodeDecodeError:
        content = {**_content(record, lambda octets: b64encode(octets).decode()), "encoding": "base64"}
    line = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp, **content}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def _content(record: AnyRecord, text_of: Callable[[bytes], str]) -> dict[str, Any]:
    def text(octets: bytes | None) -> str | None:
        return None if octets is None else text_of(octets)

    headers = [[name, text(value)] for name, value in record.headers]
    return {"key": text(record.key), "value": text(record.value), "headers": headers}


LINES: dict[str, LineOf] = {
    "value": _value_line,
    "key-value": _key_value_line,
    "json": _json_line,
}
NAMES = tuple(LINES)


TEMPLATE_HELP = (
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
    raise FormatError(f"{found[0]} has no meaning. {TEMPLATE_HELP}")


def _length(octets: bytes | None) -> bytes:
    return b"-1" if octets is None else b"%d" % len(octets)


def _headers(record: AnyRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)
