"""The two stores as the protocol sees them, and the facts that they report.

Rule: an adapter turns its store's mechanisms into these facts, and nothing else comes out of it. An adapter never
retries a create by itself, because the append loop owns those retries ("Append"): a blind retry would take this
process's own object for a rival's.

Not here: any store; see ``adapters``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ItemValue: TypeAlias = "str | int | bool | bytes | Sequence[ItemValue] | Mapping[str, ItemValue] | None"


class StoreFact(Exception):
    """A fact that a store reported, or that it did not answer."""


class AlreadyExists(StoreFact):
    """An object exists at that key, so this create did nothing. This process's own earlier create may have made it."""


class Conflict(StoreFact):
    """Another create of the same key was under way. Create again, because it is open which of them wins."""


class NotFound(StoreFact):
    """No object exists at that key."""


class Damaged(StoreFact):
    """The object is not what was stored, by a checksum that was stored with it."""


class Unavailable(StoreFact):
    """The request never left this process, or the store refused it before it did anything. Nothing was changed.

    A failure inside the store (HTTP 5xx, also S3's SlowDown) is no such refusal: for a write it is ``NoAnswer``.
    """


class NoAnswer(StoreFact):
    """The request may have left, and no certain answer came: it may have been carried out, or may still be."""


class VersionMoved(StoreFact):
    """A condition of an item transaction did not hold: nothing of it was written.

    Its text does not name the key, because answers repeat that text, and a key may be another caller's session.
    """

    def __init__(self, key: ItemKey) -> None:
        super().__init__("another write changed an item first")
        self.key = key


class ItemTooLarge(StoreFact):
    """An item is larger than the item store takes. Nothing was written."""


class WriteTooLarge(ItemTooLarge):
    """The items of one write are together larger than the item store takes. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object: its whole body (or the range asked for) and its user metadata (names in lower case)."""

    key: str
    body: bytes
    metadata: Mapping[str, str]
    size: int  # bytes of the whole object, also where a range was asked for
    modified_at: int  # ms, by the store's own clock


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """One line of a listing."""

    key: str
    size: int
    modified_at: int  # ms, by the store's own clock


class ObjectStore(Protocol):
    """A store of immutable objects, each created once. As in S3, reads and listings are strongly consistent."""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Create the object if no object exists at ``key`` (``If-None-Match: *``); durable on return.

        Raises:
            AlreadyExists: One exists there.
            Conflict: Another create of this key was under way; its outcome is unknown.
            Unavailable: Nothing was created.
            NoAnswer: It may have been created, or may still be.
        """

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        """Return the object, its body cut to the bytes ``[start, end)``.

        Raises:
            NotFound: No object exists there.
            Damaged: It is not what was stored, as far as the store knows (reported for whole objects only).
            Unavailable: The store could not be asked.
        """

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        """Return up to ``limit`` objects whose key begins with ``prefix`` and comes after ``start_after``, by key.

        Fewer than ``limit`` means that these are the last.

        Raises:
            Unavailable: The store could not be asked.
        """

    def delete(self, key: str) -> None:
        """Delete the object, if it exists.

        Raises:
            Unavailable: The store could not be asked; it may have been deleted.
        """

    def url(self, key: str, lifetime_ms: int) -> str:
        """Return the URL of the object for plain GETs during ``lifetime_ms``: absolute, or a path on this server."""


class ItemKey(NamedTuple):
    """An item's key: items of one ``partition`` key are kept in the order of ``sort`` (by its UTF-8 bytes)."""

    partition: str
    sort: str


class Item(NamedTuple):
    """A small, versioned item."""

    key: ItemKey
    version: int
    value: Mapping[str, ItemValue]


@dataclass(frozen=True, slots=True)
class Put:
    """A write of ``value`` with ``version``, if the stored version is ``expected`` (``None``: if no item exists)."""

    key: ItemKey
    value: Mapping[str, ItemValue]
    version: int
    expected: int | None

    @classmethod
    def replacing(
        cls, key: ItemKey, value: Mapping[str, ItemValue], read: int | None, fresh_version: Callable[[], int]
    ) -> Put:
        """Return the write in the place of the version that was read; a new item begins at a random version."""
        return cls(key, value, fresh_version() if read is None else read + 1, read)


@dataclass(frozen=True, slots=True)
class Delete:
    """A deletion of the item, if its stored version is ``expected``."""

    key: ItemKey
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that changes nothing: the stored version is ``expected`` (``None``: no item exists)."""

    key: ItemKey
    expected: int | None


Change: TypeAlias = Put | Delete | Check


class ItemStore(Protocol):
    """A store of small, versioned items. Every write is conditional, and reads are strongly consistent."""

    def get(self, keys: Sequence[ItemKey]) -> Mapping[ItemKey, Item]:
        """Return those of the items (at most 100) that exist, read in one call.

        Raises:
            Unavailable: The store could not be asked.
            ValueError: More than 100 keys.
        """

    def write(self, changes: Sequence[Change]) -> None:
        """Make all changes (1 to 100, each key once) or none; durable on return.

        Raises:
            VersionMoved: A condition did not hold; nothing was written.
            ItemTooLarge: An item, or all of them together, is larger than the store takes; nothing was written.
            Unavailable: Nothing was written.
            NoAnswer: All changes may have been made, or none.
            ValueError: There is no change, more than 100, or a key twice; nothing was written.
        """

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        """Return up to ``limit`` items of one partition key, in the order of their sort keys.

        Each sort key begins with ``prefix`` and comes after ``start_after``. Fewer than ``limit`` items means that
        these are the last.

        Raises:
            Unavailable: The store could not be asked.
        """
