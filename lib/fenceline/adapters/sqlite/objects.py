"""Objects in an SQLite database.

Rule: a listing, and a look for an absent key, read only the table ``objects``, which is small and in the order of the
keys. Bodies are in another table, in the order of their arrival.

Not here: serving URLs. This module signs and verifies them, and ``fenceline dev`` serves them.
"""

from __future__ import annotations

import hmac
import json
import secrets
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from fenceline.adapters.sqlite.database import Database
from fenceline.adapters.sqlite.file import Schema
from fenceline.adapters.sqlite.range import range_of
from fenceline.ports import AlreadyExists, Damaged, NoAnswer, NotFound, Object, ObjectSummary, Unavailable

SCHEMA = Schema(
    application_id=0x666E6C6F,  # "fnlo"
    version=1,
    # Measured with bodies of 1 KiB, 64 KiB and 1 MiB. With pages of 32 KiB large bodies are written and read in two
    # thirds of the time that pages of 4 KiB take. For small bodies there is no difference, because their cost is the
    # sync.
    page_bytes=32 * 1024,
    statements=(
        "CREATE TABLE objects (key TEXT PRIMARY KEY, size INTEGER NOT NULL, modified_at INTEGER NOT NULL,"
        " id INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE TABLE bodies (id INTEGER PRIMARY KEY, metadata TEXT NOT NULL, body BLOB NOT NULL)",
        "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), value BLOB NOT NULL)",
    ),
    if_damaged="end every server, and restore it from a backup: it is the log, and nothing else has it",
)

# The metadata are read as bytes, because after damage by a failing disk they may be no text.
_GET = "SELECT id, size, modified_at, CAST(metadata AS BLOB) FROM objects JOIN bodies USING (id) WHERE key = ?"
_GET_WHOLE = "SELECT size, modified_at, CAST(metadata AS BLOB), body FROM objects JOIN bodies USING (id) WHERE key = ?"


class SqliteObjectStore:
    """An ``ObjectStore`` in the file ``path``, or in memory (``":memory:"``). Threads and processes may share it.

    Args:
        now_ms: The store's own clock, for ``modified_at`` and the lifetime of URLs.
        secret: Signs URLs, if the database has no secret yet; made up if left out. Every process on ``path`` uses the
            stored secret.

    Raises:
        CannotOpen: There is no database of this schema at ``path``, and none could be made.
    """

    def __init__(self, path: str | Path, *, now_ms: Callable[[], int], secret: bytes | None = None) -> None:
        self._database = Database(path, SCHEMA)
        self._now_ms = now_ms
        self._secret = self._stored_secret() or self._store_secret(secret or secrets.token_bytes(32))

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        key.encode()  # so that text that SQLite can't take fails here, not in the midst of a group
        described = json.dumps({name.lower(): value for name, value in metadata.items()})

        def work(connection: sqlite3.Connection) -> None:
            if connection.execute("SELECT 1 FROM objects WHERE key = ?", (key,)).fetchone():
                raise AlreadyExists(f"an object with this key exists: key={key}")
            stored = connection.execute("INSERT INTO bodies (metadata, body) VALUES (?, ?)", (described, body))
            row = (key, len(body), self._now_ms(), stored.lastrowid)
            connection.execute("INSERT INTO objects (key, size, modified_at, id) VALUES (?, ?, ?, ?)", row)

        self._database.write(work)

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        if start == 0 and end is None:
            rows = self._database.rows(_GET_WHOLE, (key,))
            if not rows:
                raise NotFound(f"no object: key={key}")
            size, modified_at, metadata, body = rows[0]
            known = _metadata(metadata)
            if known is None:
                raise Damaged(f"the object's metadata is not what was stored; restore it from a backup: key={key}")
            return Object(key, body, known, size, modified_at)
        with self._database.reading() as connection:
            # Both reads are of one snapshot, because a row's id is used again after a delete.
            connection.execute("BEGIN")
            row = connection.execute(_GET, (key,)).fetchone()
            if row is None:
                raise NotFound(f"no object: key={key}")
            id_, size, modified_at, metadata = row
            body = _read(connection, id_, start, size if end is None else min(end, size))
        # Only a read of the whole object reports damaged metadata.
        return Object(key, body, _metadata(metadata) or {}, size, modified_at)

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        condition, bounds = range_of("key", prefix, start_after)
        query = f"SELECT key, size, modified_at FROM objects WHERE {condition} ORDER BY key LIMIT ?"
        rows = self._database.rows(query, (*bounds, limit))
        return [ObjectSummary(*row) for row in rows]

    def delete(self, key: str) -> None:
        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM bodies WHERE id = (SELECT id FROM objects WHERE key = ?)", (key,))
            connection.execute("DELETE FROM objects WHERE key = ?", (key,))

        try:
            self._database.write(work)
        except NoAnswer as fact:
            raise Unavailable(str(fact)) from fact

    def url(self, key: str, lifetime_ms: int) -> str:
        """Return a path on this server, which ``verify_url`` checks there."""
        expires = self._now_ms() + lifetime_ms
        return f"/objects/{quote(key)}?expires={expires}&signature={self._signature(key, expires)}"

    def verify_url(self, key: str, expires: int, signature: str, now_ms: int) -> bool:
        """Return True if ``url`` of a store with the same secret made this URL, and its lifetime is not over."""
        is_ours = hmac.compare_digest(self._signature(key, expires).encode(), signature.encode("utf-8", "replace"))
        return is_ours and now_ms < expires

    def close(self) -> None:
        self._database.close()

    def _signature(self, key: str, expires: int) -> str:
        return hmac.digest(self._secret, f"{expires}\n{key}".encode(), "sha256").hex()

    def _stored_secret(self) -> bytes | None:
        rows: list[tuple[bytes]] = self._database.rows("SELECT value FROM secret")
        return rows[0][0] if rows else None

    def _store_secret(self, fresh: bytes) -> bytes:
        """Return the stored secret, which is the first one's if several processes store one at once."""

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("INSERT INTO secret (id, value) VALUES (1, ?) ON CONFLICT DO NOTHING", (fresh,))

        self._database.write(work)
        return self._stored_secret() or fresh


def _metadata(stored: bytes) -> dict[str, str] | None:
    """Return the metadata as stored, names and texts as on S3; ``None`` if they are damaged."""
    try:
        metadata = json.loads(stored)
        json.dumps(metadata, ensure_ascii=False).encode()
    except ValueError:
        return None
    is_text = isinstance(metadata, dict) and all(isinstance(text, str) for text in metadata.values())
    return metadata if is_text else None


def _read(connection: sqlite3.Connection, id_: int, start: int, end: int) -> bytes:
    """Return the bytes ``[start, end)`` of a body without loading the others."""
    if start >= end:
        return b""
    with connection.blobopen("bodies", "body", id_, readonly=True) as blob:
        blob.seek(start)
        return blob.read(end - start)
