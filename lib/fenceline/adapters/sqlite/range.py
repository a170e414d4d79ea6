"""A search for a prefix, as an SQL condition.

Rule: there is one bound at each end, so that SQLite finds both in the index and looks at nothing outside them.
"""

from __future__ import annotations


def range_of(column: str, prefix: str, start_after: str) -> tuple[str, list[str]]:
    """Return a condition, and its parameters, for text that begins with ``prefix`` and comes after ``start_after``.

    Text compares by code points in Python and by UTF-8 bytes in SQLite, which is the same order.
    """
    condition, bounds = (f"{column} >= ?", [prefix]) if start_after < prefix else (f"{column} > ?", [start_after])
    after = _after_prefix(prefix)
    if after is None:
        return condition, bounds
    return f"{condition} AND {column} < ?", [*bounds, after]


def _after_prefix(prefix: str) -> str | None:
    """Return the first text after all that begin with ``prefix``; ``None`` if there is none."""
    stem = prefix.rstrip("\U0010ffff")
    if not stem:
        return None
    following = ord(stem[-1]) + 1
    if 0xD800 <= following <= 0xDFFF:  # a surrogate, which is no text
        following = 0xE000
    return stem[:-1] + chr(following)
