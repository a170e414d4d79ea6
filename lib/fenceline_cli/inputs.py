"""Records to produce, from the lines of a file, plain or compressed, or of stdin.

Rule: a line is a record as soon as its end was read, whatever comes later. A line that is no record stops the command
after all lines before it, and the error names the line's number. Nothing is guessed.
"""

from __future__ import annotations

import bz2
import gzip
import io
import json
import os
import stat
import sys
import zlib
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from fenceline.limits import INT64_MAX
from fenceline.model.record import Record
from fenceline_cli.output import CommandError

Parse = Callable[[bytes], Record]

BLOCK_BYTES = 256 * 1024

_MEMBERS = {"key", "value", "headers", "timestamp", "encoding"}
# A record's place, in the lines of `consume --format json` and in pages of the service. A copy has a place of its own.
_PLACE = {"topic", "partition", "offset", "topic_epoch", "origin"}
# Kafka's timestamp of a record without one. The copy gets the time of its append.
_WITHOUT_TIME = -1


class LineError(ValueError):
    """A line that is no record; the message says why, and what to write instead."""


@dataclass(frozen=True, slots=True)
class LineSource:
    """The file or stream that lines come from.

    Attributes:
        fd: The descriptor that becomes readable when there is more; ``None`` if reading never waits long.
        bytes_read: Returns how many bytes of the file, as it lies on disk, were read.
    """

    stream: BinaryIO
    fd: int | None
    bytes_read: Callable[[], int]

    def read(self) -> bytes:
        """Wait for at least one byte, and return what has arrived; ``b""`` at the end."""
        # read1: read() waits for a whole block.
        return cast("io.BufferedReader", self.stream).read1(BLOCK_BYTES)


@contextmanager
def opened(path: Path | None) -> Iterator[LineSource]:
    """Open a file by its suffix (``.gz``, ``.bz2``, else plain), or stdin, for its lines."""
    if path is None:
        yield LineSource(sys.stdin.buffer, _waited_for(sys.stdin.buffer), lambda: 0)
        return
    with path.open("rb") as raw:
        match path.suffix:
            case ".gz":
                yield LineSource(cast("BinaryIO", gzip.GzipFile(fileobj=raw)), None, raw.tell)
            case ".bz2":
                yield LineSource(cast("BinaryIO", bz2.BZ2File(raw)), None, raw.tell)
            case _ if (fd := _waited_for(raw)) is not None:
                yield LineSource(raw, fd, lambda: 0)  # a pipe with a name, but no position
            case _:
                yield LineSource(raw, None, raw.tell)


def records_of(blocks: Iterable[bytes], parse: Parse) -> Iterator[list[Record]]:
    """Yield the records of each block's lines, their ends (LF or CRLF) left out.

    Raises:
        CommandError: A line is no record, or the compressed stream is damaged. All records before were yielded.
    """
    count = 0
    try:
        for lines in _lines(blocks):
            records, fault = _parsed(lines, parse)
            count += len(records)
            if records:
                yield records
            if fault is not None:
                raise CommandError(f"line {count + 1}: {fault}") from fault
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # from the file system, not from decompression
        raise CommandError(f"the compressed input is damaged after line {count}: {error}") from error


def _waited_for(stream: BinaryIO) -> int | None:
    try:
        fd = stream.fileno()
    except io.UnsupportedOperation:  # not a file
        return None
    return None if stat.S_ISREG(os.fstat(fd).st_mode) else fd


def _lines(blocks: Iterable[bytes]) -> Iterator[list[bytes]]:
    begun: list[bytes] = []  # pieces, while the line's end has not come
    for block in blocks:
        lines = block.split(b"\n")
        if len(lines) > 1:
            begun.append(lines[0])
            lines[0] = b"".join(begun)
            begun = []
        begun.append(lines.pop())
        if lines:
            yield lines
    if last := b"".join(begun):
        yield [last]


def _parsed(lines: list[bytes], parse: Parse) -> tuple[list[Record], LineError | None]:
    """Return the records of the lines up to the first that is no record, and that line's error."""
    records: list[Record] = []
    try:
        for line in lines:
            records.append(parse(line.removesuffix(b"\r")))
    except LineError as error:
        return records, error
    return records, None


def value_only(line: bytes) -> Record:
    return Record(line)


def keyed(separator: bytes) -> Parse:
    """Return a parser of ``key separator value``; the key ends at the first separator."""

    def parse(line: bytes) -> Record:
        key, found, value = line.partition(separator)
        if not found:
            raise LineError(f"the line has no key separator {separator.decode()!r}: {_shown(line)}")
        return Record(value, key)

    return parse


def json_line(line: bytes) -> Record:
    """Parse a record as the contract's "Produce" and ``consume --format json`` write it.

    Key, value and header values are text, or base64 where the line has ``"encoding": "base64"``.
    """
    try:
        members = json.loads(line)
    except ValueError as error:
        raise LineError(f"the line is not JSON: {error}") from error
    if not isinstance(members, dict) or "value" not in members or not members.keys() <= _MEMBERS | _PLACE:
        raise LineError(
            "a record must be an object with a value, and optionally key, headers, timestamp and encoding: "
            f"{_shown(line)}"
        )
    timestamp = members.get("timestamp")
    # type(): in JSON true is not 1, though it is in Python.
    if timestamp is not None and (type(timestamp) is not int or not _WITHOUT_TIME <= timestamp <= INT64_MAX):
        raise LineError(f"timestamp must be an integer of ms, 0 or more, or -1 for none: {timestamp!r}")
    encoding = members.get("encoding")
    if encoding not in (None, "utf8", "base64"):
        raise LineError(f"encoding must be utf8 or base64: {encoding!r}")
    octets = _base64 if encoding == "base64" else _octets
    return Record(
        value=octets("value", members["value"]),
        key=octets("key", members.get("key")),
        headers=_headers(members.get("headers"), octets),
        timestamp=None if timestamp == _WITHOUT_TIME else timestamp,
    )


def _headers(headers: Any, octets: Callable[[str, Any], bytes | None]) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    if not isinstance(headers, list):
        raise LineError(f"headers must be a list of [name, value]: {headers!r}")
    parsed: list[tuple[str, bytes | None]] = []
    for header in headers:
        if not isinstance(header, list) or len(header) != 2 or not isinstance(header[0], str):
            raise LineError(f"a header must be [name, value]: {header!r}")
        _octets("a header's name", header[0])
        parsed.append((header[0], octets("a header's value", header[1])))
    return parsed


def _octets(name: str, text: Any) -> bytes | None:
    if text is not None and not isinstance(text, str):
        raise LineError(f"{name} must be text or null: {text!r}")
    try:
        return None if text is None else text.encode()
    except UnicodeEncodeError as error:
        raise LineError(f"{name} is not valid text: {error.reason}") from error


def _base64(name: str, text: Any) -> bytes | None:
    encoded = _octets(name, text)
    try:
        return None if encoded is None else b64decode(encoded, validate=True)
    except ValueError as error:
        raise LineError(f"{name} is not base64, as encoding says: {error}") from error


def _shown(line: bytes) -> str:
    text = line.decode(errors="replace")
    return repr(text if len(text) <= 60 else text[:60] + "…")
