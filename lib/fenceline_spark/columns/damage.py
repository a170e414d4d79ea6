"""Damage that decoding finds, before it is known which stored batch holds it.

Not here: the error that a caller gets, with topic, partition and offset; see ``decode``.
"""

from __future__ import annotations

from typing import Any


class Damage(Exception):
    """Bytes that are no records.

    Attributes:
        record: The number of the first wrong record, among those that were decoded together.
    """

    def __init__(self, record: int, what: str) -> None:
        super().__init__(what)
        self.record = record
        self.what = what


def refuse(is_wrong: Any, what: str) -> None:
    """Raise ``Damage`` for the first record that ``is_wrong`` (booleans, by number) names, if it names one."""
    if is_wrong.any():
        raise Damage(int(is_wrong.argmax()), what)
