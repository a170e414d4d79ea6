"""Position: the item with the place in the round at which the next run of the sweeper, in any process, continues.

Rule: the position is a hint. Two concurrent runs sweep the same twice, and one of their positions stays. Only the end
of a round depends on it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from fenceline import limits
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.ports import Put, VersionMoved


class SweepStage(StrEnum):
    """A part of a round; rounds take them in this order. Stored: never rename."""

    INCARNATIONS = "lives"
    TOPICS = "topics"
    SESSIONS = "sessions"
    TRANSACTIONS = "transactions"
    PRODUCER_IDS = "producer-ids"
    ORPHANS = "orphans"
    END = "end"

    @property
    def following(self) -> SweepStage:
        places = list(SweepStage)
        return SweepStage.END if self == SweepStage.END else places[places.index(self) + 1]


class SweepPosition:
    """The sweeper's position, as this run knows it."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._version: int | None = None
        self._value: dict[str, Any] = {}
        self.place = SweepStage.END
        self.after = ""  # the last key that is done in this place
        self.partition = 0  # the first that is not done in the topic after ``after``
        self.is_thorough = False
        self.has_groups = False  # False: no group was ever made
        self.has_producer_ids = False  # False: no producer id was given before this run, so no transactional id was

    @property
    def is_at_end(self) -> bool:
        return self.place == SweepStage.END

    @property
    def position(self) -> tuple[SweepStage, str, int]:
        return self.place, self.after, self.partition

    def begin(self, *, pause_ms: int) -> bool:
        """Read the item, and with ``pause_ms`` claim this turn. Return True if the turn is this run's.

        Raises:
            Unavailable, NoAnswer: The item store failed.
        """
        found = self._context.items.get([keys.SWEEP_CURSOR, keys.PRODUCER_ID_BLOCK, keys.ANY_GROUP])
        self.has_groups = keys.ANY_GROUP in found
        self.has_producer_ids = keys.PRODUCER_ID_BLOCK in found
        item = found.get(keys.SWEEP_CURSOR)
        if item is not None:
            self._version, self._value = item.version, dict(item.value)
            self.place = SweepStage(str(item.value["place"]))
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
        except VersionMoved:  # the turn is another process's
            return False
        return True

    def begin_round(self, store_now_ms: int, *, is_thorough: bool) -> None:
        """Begin a round, a thorough one if the caller wants it, or if the last thorough round is long ago."""
        last_ms = self._value.get("thorough_at")
        is_due = last_ms is None or store_now_ms - last_ms >= limits.SWEEP_THOROUGH_MS
        self.is_thorough = is_thorough or is_due
        if self.is_thorough:
            self._value["thorough_at"] = store_now_ms
        self.go_on(SweepStage.INCARNATIONS)

    def go_on(self, place: SweepStage) -> None:
        """Begin with the next part of the round."""
        self.place, self.after, self.partition = place, "", 0

    def save(self) -> None:
        """Leave the position to the next run.

        Raises:
            VersionMoved: Another run has left its own position.
            Unavailable, NoAnswer: The item store failed. The next run may begin where this one did.
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
