"""The two stores behind the log, as the protocol sees them, and the facts they tell.

The rule: an adapter turns its store's mechanisms into these facts, and nothing else comes out of it. It never retries a
create by itself: the append loop owns retries (DESIGN.md, section 4), because a blind retry turns one's own object into
a rival's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

ItemValue: TypeAlias = "str | int | bool | bytes | Sequence[ItemValue] | Mapping[str, ItemValue] | None"


class StoreFact(Exception):
    """Something a store told, or failed to tell."""


class AlreadyExists(StoreFact):
    """An object stands at that key: the create did nothing, now (an earlier one of ours may have made it)."""


class Conflict(StoreFact):
    """A create for the same key was under way. It says nothing of who wins; create again."""


class NotFound(StoreFact):
    """No object stands at that key."""


class Damaged(StoreFact):
    """The object's body does not match the checksum that was stored with it."""


class Unavailable(StoreFact):
    """The request never left this process, or the store refused it before it did anything. Nothing was changed.

    A failure of the store's own (HTTP 5xx, S3's SlowDown too) is no such refusal: of a write it is ``NoAnswer``.
    """


class NoAnswer(StoreFact):
    """The request may have left, and no answer, or no certain one, came: it may have been, or yet be, carried out."""


class VersionMoved(StoreFact):
    """A condition of an item transaction did not hold: nothing of it was written."""

    def __init__(self, key: ItemKey) -> None:
        super().__init__(f"item moved: key={key}")
        self.key = key


class ItemTooLarge(StoreFact):
    """An item beyond what the item store takes. Nothing was written."""


class WriteTooLarge(ItemTooLarge):
    """Items that are together beyond what one write takes. Nothing was written."""


@dataclass(frozen=True, slots=True)
class Object:
    """One stored object: its whole body (or the range asked for) and its user metadata (names in lower case)."""

    key: str
    body: bytes
    metadata: Mapping[str, str]
    size: int  # of the whole object, in bytes
    modified_at: int  # ms, by the store's own clock


@dataclass(frozen=True, slots=True)
class ObjectSummary:
    """One line of a listing."""

    key: str
    size: int
    modified_at: int  # ms, by the store's own clock


class ObjectStore(Protocol):
    """Immutable objects, created once. S3's semantics: strongly consistent reads and listings."""

    def create(self, key: str, body: bytes, metadata: Mapping[str, str]) -> None:
        """Create the object if no object stands at ``key`` (``If-None-Match: *``); durable on return.

        Raises:
            AlreadyExists: One stands there.
            Conflict: Another create of this key was under way; nothing is known of it.
            Unavailable: Nothing was created.
            NoAnswer: It may have been created, or yet be.
        """

    def get(self, key: str, start: int = 0, end: int | None = None) -> Object:
        """Return the object, its body cut to the bytes ``[start, end)``.

        Raises:
            NotFound: No object stands there.
            Damaged: It is not what was stored (told of whole objects only).
            Unavailable: The store could not be asked.
        """

    def list(self, prefix: str, start_after: str = "", limit: int = 1000) -> Sequence[ObjectSummary]:
        """Return up to ``limit`` objects whose key begins with ``prefix`` and lies behind ``start_after``, by key.

        Fewer than ``limit`` means that there are no more.

        Raises:
            Unavailable: The store could not be asked.
        """

    def delete(self, key: str) -> None:
        """Delete the object, if there is one.

        Raises:
            Unavailable: The store could not be asked; it may have been deleted.
        """

    def url(self, key: str, lifetime_ms: int) -> str:
        """Return where a plain GET reads the object for ``lifetime_ms``: absolute, or a path on this server."""


class ItemKey(NamedTuple):
    """Where an item stands: items of one ``partition`` key are kept in the order of ``sort`` (by its UTF-8 bytes)."""

    partition: str
    sort: str


class Item(NamedTuple):
    """A small, versioned item."""

    key: ItemKey
    version: int
    value: Mapping[str, ItemValue]


@dataclass(frozen=True, slots=True)
class Put:
    """Write ``value`` with ``version``, if the stored version is ``expected`` (``None``: if there is no item)."""

    key: ItemKey
    value: Mapping[str, ItemValue]
    version: int
    expected: int | None


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the item, if its stored version is ``expected``."""

    key: ItemKey
    expected: int


@dataclass(frozen=True, slots=True)
class Check:
    """Change nothing, but hold only if the stored version is ``expected`` (``None``: if there is no item)."""

    key: ItemKey
    expected: int | None


Change: TypeAlias = Put | Delete | Check


class ItemStore(Protocol):
    """Small, versioned items; every write is conditional. Reads are strongly consistent."""

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
            NoAnswer: All may have been written, or none.
            ValueError: No change, more than 100, or a key twice; nothing was written.
        """

    def query(self, partition: str, *, start_after: str = "", prefix: str = "", limit: int = 1000) -> Sequence[Item]:
        """Return up to ``limit`` items of one partition key whose sort key begins with ``prefix`` and lies behind
        ``start_after``, in order. Fewer than ``limit`` means that there are no more.

        Raises:
            Unavailable: The store could not be asked.
        """
