"""Items in an SQLite database.

Rule: a write checks all of its conditions, then makes all of its changes, in one transaction. Values are kept as JSON,
which a person can read in the database. Bytes in them have a form that no other value can take.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from fenceline import limits
from fenceline.adapters.sqlite.database import Database
from fenceline.adapters.sqlite.file import Schema
from fenceline.adapters.sqlite.lock import DirectoryLock
from fenceline.adapters.sqlite.range import range_of
from fenceline.format.item_size import check_sizes
from fenceline.ports import Change, Delete, Item, ItemKey, ItemValue, Put, VersionMoved

SCHEMA = Schema(
    application_id=0x666E6C69,  # "fnli"
    version=1,
    page_bytes=4096,
    statements=(
        "CREATE TABLE items (partition TEXT NOT NULL, sort TEXT NOT NULL, version INTEGER NOT NULL,"
        " value TEXT NOT NULL, PRIMARY KEY (partition, sort)) WITHOUT ROWID",
    ),
    if_damaged="end every server, move it (and its -wal and -shm) away, then 'fenceline rebuild --data DIR'",
)

_VERSION = "SELECT version FROM items WHERE partition = ? AND sort = ?"
# In this order each item is found by its key, because with IN SQLite would scan the table.
_GET = (
    "WITH asked (p, s) AS (VALUES {}) SELECT partition, sort, version, value FROM asked CROSS JOIN items"
    " ON partition = p AND sort = s"
)
_PUT = (
    "INSERT INTO items (partition, sort, version, value) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET version = excluded.version, value = excluded.value"
)
_DELETE = "DELETE FROM items WHERE partition = ? AND sort = ?"


class SqliteItemStore:
    """An ``ItemStore`` in the file ``path``, or in memory (``":memory:"``). Threads and processes may share it.

    Args:
        lock: A lock that is held until this store is closed.

    Raises:
        CannotOpen: There is no database of this schema at ``path``, and none could be made.
    """

    def __init__(self, path: str | Path, *, lock: DirectoryLock | None = None) -> None:
        self._database = Database(path, SCHEMA)
        self._lock = lock

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        if len(keys) > limits.TRANSACTION_ITEMS_MAX:
            raise ValueError(f"a get takes up to {limits.TRANSACTION_ITEMS_MAX} keys: count={len(keys)}")
        if not keys:
            return {}
        asked = tuple([part for key in keys for part in key])
        # One statement, so that all items are of one moment.
        return self._database.remembered(_get_query(len(keys)), asked, _items)

    def write(self, changes: Sequence[Change]) -> None:
        if not 1 <= len(changes) <= limits.TRANSACTION_ITEMS_MAX:
            raise ValueError(f"a write takes 1 to {limits.TRANSACTION_ITEMS_MAX} changes: count={len(changes)}")
        if len({change.key for change in changes}) < len(changes):
            raise ValueError("a write takes each key once")
        for change in changes:  # text that SQLite can't take fails here, not in the midst of a group
            f"{change.key.partition}{change.key.sort}".encode()
        rows = [_row(change) for change in changes if isinstance(change, Put)]
        if sum(len(text) for *_, text in rows) > limits.ITEM_BYTES_MAX // _BYTES_PER_CHAR_MAX:
            check_sizes(changes)
        deleted = [(change.key.partition, change.key.sort) for change in changes if isinstance(change, Delete)]

        def work(connection: sqlite3.Connection) -> None:
            for change in changes:
                row = connection.execute(_VERSION, (change.key.partition, change.key.sort)).fetchone()
                if (row[0] if row else None) != change.expected:
                    raise VersionMoved(change.key)
            for put in rows:
                connection.execute(_PUT, put)
            for key in deleted:
                connection.execute(_DELETE, key)

        self._database.write(work)

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        condition, bounds = range_of("sort", prefix, start_after)
        query = f"SELECT sort, version, value FROM items WHERE partition = ? AND {condition} ORDER BY sort LIMIT ?"
        rows = self._database.rows(query, (partition, *bounds, limit))
        return [Item(ItemKey(partition, sort), version, decode(value)) for sort, version, value in rows]

    def close(self) -> None:
        self._database.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _items(rows: Sequence[tuple[str, str, int, str]]) -> Mapping[ItemKey, Item]:
    return {
        (key := ItemKey(partition, sort)): Item(key, version, decode(text)) for partition, sort, version, text in rows
    }


@lru_cache
def _get_query(count: int) -> str:
    return _GET.format(", ".join(["(?, ?)"] * count))


def _row(put: Put) -> tuple[str, str, int, str]:
    return put.key.partition, put.key.sort, put.version, encode(put.value)


# No value counts as many bytes as four times its JSON's characters, so most writes need no counting.
_BYTES_PER_CHAR_MAX = 4
_BYTES = "$bytes"


def encode(value: Mapping[str, ItemValue]) -> str:
    """Return ``value`` as JSON.

    Bytes become ``{"$bytes": base64}``. A name's leading ``$`` is doubled, so that no other value has that form.
    """
    return json.dumps(_tagged(value), separators=(",", ":"))


def decode(text: str) -> Mapping[str, ItemValue]:
    """Return the value that ``encode`` was given. Do not change it, because other callers may get the same object."""
    return _decode_again(text) if len(text) <= _REMEMBERED_CHARS_MAX else _decode(text)


def _decode(text: str) -> Mapping[str, ItemValue]:
    value: Mapping[str, ItemValue] = _DECODER.decode(text)
    return value


# A server reads the same few items again and again, and mostly they have not changed.
_REMEMBERED_CHARS_MAX = 4096
_decode_again = lru_cache(maxsize=1024)(_decode)


def _tagged(value: ItemValue) -> Any:
    if value is None or isinstance(value, str | int):
        return value
    if isinstance(value, bytes):
        return {_BYTES: base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {f"${name}" if name[:1] == "$" else name: _tagged(member) for name, member in value.items()}
    if isinstance(value, Sequence):
        return [_tagged(element) for element in value]
    raise TypeError(f"an item cannot hold a value of this type: type={type(value).__name__}")


def _untagged(members: dict[str, Any]) -> Any:
    if _BYTES in members:
        return base64.b64decode(members[_BYTES])
    if any(name[:1] == "$" for name in members):
        return {name.removeprefix("$"): member for name, member in members.items()}
    return members


_DECODER = json.JSONDecoder(object_hook=_untagged)
