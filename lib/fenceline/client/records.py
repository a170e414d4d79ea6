"""Records as a caller gives them.

Rule: a record that cannot be encoded is refused before anything is sent, since all records of its batch would fail with
it. Keys, values and header values are bytes; the caller encodes text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from fenceline.limits import INT64_MAX
from fenceline.model.record import Record

_CHUNK_RECORDS = 2_000
_OCTETS = (bytes, type(None))


def checked(record: Record) -> Record:
    """Return ``record`` if it can be encoded.

    Raises:
        TypeError: A key or value is neither bytes nor ``None``, or a header is no pair of a name and such a value.
        ValueError: Its timestamp is no integer of ms, or negative.
    """
    if not isinstance(record.value, _OCTETS) or not isinstance(record.key, _OCTETS):
        raise TypeError(
            f"a record's key and value must be bytes or None; encode text first: key={record.key!r} "
            f"value={record.value!r}"
        )
    timestamp = record.timestamp
    if timestamp is not None and not (isinstance(timestamp, int) and 0 <= timestamp <= INT64_MAX):
        raise ValueError(f"a record's timestamp must be an integer of ms, 0 or more: timestamp={timestamp!r}")
    for name, value in record.headers:
        if not isinstance(name, str) or not isinstance(value, _OCTETS):
            raise TypeError(
                f"a record's header must be a name and a value of bytes or None: name={name!r} value={value!r}"
            )
    return record


def in_chunks(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Yield ``records`` in lists, each record checked; raises as ``checked`` does."""
    each = iter(records)
    while some := list(islice(each, _CHUNK_RECORDS)):
        for record in some:
            checked(record)
        yield some
