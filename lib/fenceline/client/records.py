"""Records as a caller gives them.

Rule: what cannot be encoded is refused before anything is sent, since the batch of such a record would take its
neighbours with it. Keys, values and header values are bytes; text is the caller's to encode.
"""

from __future__ import annotations

from fenceline.limits import INT64_MAX
from fenceline.model.record import Record

_OCTETS = (bytes, type(None))


def checked(record: Record) -> Record:
    """Return ``record`` if it can be encoded.

    Raises:
        TypeError: A key or value is neither bytes nor ``None``, or a header is no pair of a name and such a value.
        ValueError: Its timestamp is none.
    """
    if not isinstance(record.value, _OCTETS) or not isinstance(record.key, _OCTETS):
        raise TypeError(f"key and value must be bytes or None: key={record.key!r} value={record.value!r}")
    timestamp = record.timestamp
    if timestamp is not None and not (isinstance(timestamp, int) and 0 <= timestamp <= INT64_MAX):
        raise ValueError(f"a timestamp is an integer of ms, not below 0: timestamp={timestamp!r}")
    for name, value in record.headers:
        if not isinstance(name, str) or not isinstance(value, _OCTETS):
            raise TypeError(f"a header is a name and bytes or None: name={name!r} value={value!r}")
    return record
