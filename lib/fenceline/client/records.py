"""Records as a caller gives them.

Rule: a record that cannot be encoded is refused before anything is sent, because all records of its batch would fail
with it. Keys, values and header values are bytes; the caller encodes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from fenceline.client.calls import WrongTypeError, WrongValueError
from fenceline.limits import INT64_MAX
from fenceline.model.record import Record

_CHUNK_RECORDS = 2_000
_OCTETS = (bytes, type(None))


def checked(record: Record) -> Record:
    """Return ``record`` if it can be encoded.

    Raises:
        WrongTypeError: It is no ``Record``, or a key or value is neither bytes nor ``None``, or a header is no pair.
        WrongValueError: Its timestamp is negative or too large, or a header's name is no text that UTF-8 has.
    """
    if not isinstance(record, Record):
        raise WrongTypeError(
            f"each record must be a fenceline.Record: record=<{type(record).__name__}>", field="records"
        )
    if not isinstance(record.value, _OCTETS) or not isinstance(record.key, _OCTETS):
        raise WrongTypeError(
            f"a record's key and value must be bytes or None; encode text first: key={record.key!r} "
            f"value={record.value!r}",
            field="value" if isinstance(record.key, _OCTETS) else "key",
        )
    timestamp = record.timestamp
    if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= INT64_MAX):
        kind = WrongValueError if type(timestamp) is int else WrongTypeError
        raise kind(
            f"a record's timestamp must be an integer of ms, 0 or more: timestamp={timestamp!r}", field="timestamp"
        )
    if record.headers != ():
        _check_headers(record.headers)
    return record


def _check_headers(headers: object) -> None:
    if not isinstance(headers, Sequence) or isinstance(headers, (str, bytes)):
        raise WrongTypeError(
            f"a record's headers must be pairs of name and value in a list, or a mapping: "
            f"headers=<{type(headers).__name__}>",
            field="headers",
        )
    for pair in headers:
        is_pair = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not is_pair or not isinstance(pair[0], str) or not isinstance(pair[1], _OCTETS):
            shown = f"name={pair[0]!r} value={pair[1]!r}" if is_pair else f"header={pair!r}"
            raise WrongTypeError(
                f"a record's header must be a name and a value of bytes or None: {shown}", field="headers"
            )
        if not pair[0].isascii() and any("\ud800" <= one <= "\udfff" for one in pair[0]):
            raise WrongValueError(
                f"a header's name must be text without lone surrogates: name={pair[0]!a}", field="headers"
            )


def in_chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield ``records`` in lists, each record checked; raises as ``checked`` does."""
    each = iter(records)
    while some := list(islice(each, _CHUNK_RECORDS)):
        for record in some:
            checked(record)
        yield some
