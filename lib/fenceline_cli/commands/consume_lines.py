"""Records as lines on stdout, in the formats of ``fenceline consume``, at most as many as were asked for.

Rule: a JSON line holds all of its record, and ``fenceline produce --json-lines`` makes the same record of it.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, Literal

from fenceline_cli.commands import record_format
from fenceline_cli.commands.record_format import AnyRecord

Format = Literal["value", "key-value", "json"]  # those that have a name
LineOf = Callable[[int, AnyRecord], bytes]


class Lines:
    """The lines of one command, and how many are still to be printed.

    Args:
        format_: A name of ``NAMES``, or a template as record_format.py says.
        max_records: The number of records to print; ``None`` sets no bound.
        pattern: Print only records whose key or value matches it.
    """

    def __init__(
        self, format_: str, topic: str, *, max_records: int | None = None, pattern: re.Pattern[bytes] | None = None
    ) -> None:
        self._line_of = LINES.get(format_) or record_format.compiled(format_, topic)
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
