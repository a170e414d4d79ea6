"""Where the sweeper is in its round: an item that the next run, of any process, goes on from.

The rule: it is a hint. Two runs beside each other sweep the same twice, and one's place stays; nothing leans on it but
that a round comes to its end.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.ports import Put, VersionMoved


class Place(StrEnum):
    """What a round goes over, in this order. Stored: never rename."""

    INCARNATIONS = "lives"
    TOPICS = "topics"
    SESSIONS = "sessions"
    ORPHANS = "orphans"
    END = "end"

    @property
    def following(self) -> Place:
        following = {Place.INCARNATIONS: Place.TOPICS, Place.TOPICS: Place.SESSIONS, Place.SESSIONS: Place.ORPHANS}
        return following.get(self, Place.END)


class Cursor:
    """The sweeper's cursor item, as this run knows it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._version: int | None = None
        self._value: dict[str, Any] = {}
        self.place = Place.END
        self.after = ""  # what the place has done
        self.partition = 0  # of the topic behind ``after``
        self.is_thorough = False

    @property
    def is_at_end(self) -> bool:
        return self.place == Place.END

    @property
    def position(self) -> tuple[Place, str, int]:
        return self.place, self.after, self.partition

    def begin(self, *, pause_ms: int) -> bool:
        """Read the item, and with ``pause_ms`` claim the turn; return whether it is this run's.

        Raises:
            Unavailable, NoAnswer: The item store.
        """
        item = self._context.items.get([keys.SWEEP_CURSOR]).get(keys.SWEEP_CURSOR)
        if item is not None:
            self._version, self._value = item.version, dict(item.value)
            self.place = Place(str(item.value["place"]))
            self.after, self.partition = str(item.value["after"]), int(str(item.value["partition"]))
            self.is_thorough = bool(item.value["is_thorough"])
        if not pause_ms:
            return True
        now_ms = self._context.runtime.now_ms()
        if 0 <= now_ms - self._value.get("began_at", -pause_ms) < pause_ms:
            return False
        self._value["began_at"] = now_ms
        try:
            self._write()
        except VersionMoved:  # another process takes this turn
            return False
        return True

    def begin_round(self, store_now_ms: int, *, is_thorough: bool) -> None:
        """Begin a new round."""
        last_ms = self._value.get("thorough_at")
        is_due = last_ms is None or store_now_ms - last_ms >= limits.SWEEP_THOROUGH_MS
        self.is_thorough = is_thorough or is_due
        if self.is_thorough:
            self._value["thorough_at"] = store_now_ms
        self.go_on(Place.INCARNATIONS)

    def go_on(self, place: Place) -> None:
        self.place, self.after, self.partition = place, "", 0

    def save(self) -> None:
        """Leave the place to the next run.

        Raises:
            VersionMoved: Another run has left its own.
            Unavailable, NoAnswer: The item store; the next run may begin where this one did.
        """
        self._write()

    def _write(self) -> None:
        self._value |= {
            "place": str(self.place),
            "after": self.after,
            "partition": self.partition,
            "is_thorough": self.is_thorough,
        }
        version = self._context.runtime.fresh_version() if self._version is None else self._version + 1
        self._context.items.write([Put(keys.SWEEP_CURSOR, dict(self._value), version, self._version)])
        self._version = version
