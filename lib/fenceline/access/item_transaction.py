"""One item transaction: all changes of a request to the items that it read.

Rule: all changes are written, or none, and each on the version that was read, so a write that ends a session that
looked dead fails if that session came back meanwhile. An item on which the request depends, and which stays as it is,
is a condition of the same write.

Not here: the changes of a request (``claims.decision``, ``ownership.decision``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from fenceline import limits
from fenceline.access.session_item import SessionItem
from fenceline.errors import ThrottledError
from fenceline.ports import Change, Check, ItemKey, Put
from fenceline.runtime import Runtime


class VersionedItem(Protocol):
    """An item that is made for a write: its value, and the version at which it was read."""

    @property
    def version(self) -> int | None: ...
    def to_value(self) -> Mapping[str, Any]: ...


class ItemTransaction:
    """Changes to the items that one request read, collected while it is decided.

    Args:
        read: By id, the sessions as they were read.
        if_made: A condition of the write if it makes an item that did not exist.
        too_large: The error's text if the changes are too many for one write.
    """

    def __init__(self, read: Mapping[str, SessionItem], *, if_made: Check | None = None, too_large: str = "") -> None:
        self._read = read
        self._if_made = if_made
        self._too_large = too_large
        self._items: dict[ItemKey, VersionedItem] = {}
        self._sessions: dict[str, SessionItem] = {}  # as they are once the changes are written
        self._required: dict[ItemKey, int | None] = {}  # the versions that these items must still have

    def put(self, key: ItemKey, item: VersionedItem) -> None:
        """Write an item over the version at which it was read."""
        self._items[key] = item

    def change(self, key: ItemKey, before: VersionedItem, after: VersionedItem) -> None:
        """Write an item, unless it is as it was read."""
        if after != before:
            self._items[key] = after

    def require(self, key: ItemKey, version: int | None) -> None:
        """Let the write fail if an item that the request does not change has another version by then."""
        self._required[key] = version

    def session(self, session_id: str | None) -> SessionItem | None:
        """Return a session with the changes so far."""
        found = self._sessions.get(session_id or "")
        return self._read.get(session_id or "") if found is None else found

    def change_session(self, session: SessionItem) -> None:
        self._sessions[session.session_id] = session

    def changes(self, runtime: Runtime) -> list[Change]:
        """Return the whole write; an empty one if there is nothing to change.

        Raises:
            ThrottledError: It is too large for one write.
        """
        fresh = runtime.fresh_version
        puts = [Put.replacing(key, item.to_value(), item.version, fresh) for key, item in self._items.items()]
        for session_id, session in self._sessions.items():
            if session != self._read.get(session_id):
                puts.append(session.put(runtime))
        if not puts:
            return []
        changes: list[Change] = [*puts]
        if self._required:
            written = {put.key for put in puts}
            changes += [Check(key, version) for key, version in self._required.items() if key not in written]
        if self._if_made is not None and any(put.expected is None for put in puts):
            changes.append(self._if_made)
        if len(changes) > limits.TRANSACTION_ITEMS_MAX:
            raise ThrottledError(f"too many other sessions are in the way of one {self._too_large}")
        return changes
