"""The values of the markers between regions: REQUEST, RESPONSE, SNAPSHOT, UPDATE, SKIP ("Markers between regions").

Rule: ``from_value`` returns ``None`` for a value that cannot be used, or that has another round. The fold ignores such
a marker, because a peer's mistake must never stop a log. Of several updates in a marker, each counts by itself. Names
and ids are short and plain, so that a head's region state is bounded. Stored names are never renamed.

Not here: the effect of a marker on the state (``log.region_state``), and when one is due (``regions.snapshots``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from fenceline import limits
from fenceline.format.keys import LEGAL_ID
from fenceline.model.topic import LEGAL_REGION

T = TypeVar("T")

Positions: TypeAlias = Mapping[str, tuple[str, int]]  # by region: (topic id, offset there)

ROUND = 1  # the only one; markers of another round are ignored
LEGAL_SUBSCRIPTION = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{limits.SUBSCRIPTION_NAME_CHARS_MAX}}}", re.ASCII)


def _lenient(parse: Callable[[Mapping[str, Any]], T | None], value: Mapping[str, Any]) -> T | None:
    try:
        return parse(value)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """The REQUEST by which a region asks others for a snapshot."""

    snapshot_id: str
    topic_id: str  # the asker's
    regions: tuple[str, ...]  # that must answer

    def to_value(self) -> dict[str, Any]:
        return {"id": self.snapshot_id, "round": ROUND, "topic_id": self.topic_id, "regions": list(self.regions)}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> SnapshotRequest | None:
        return _lenient(cls._parsed, value)

    @classmethod
    def _parsed(cls, value: Mapping[str, Any]) -> SnapshotRequest:
        _check_round(value)
        return cls(_id(value["id"]), _id(value["topic_id"]), _names(value["regions"]))


@dataclass(frozen=True, slots=True)
class SnapshotResponse:
    """The RESPONSE of a region to a REQUEST: the REQUEST's offset there, and the region's counts of others there."""

    snapshot_id: str
    to: str
    topic_id: str  # the answerer's
    position: int  # the REQUEST's offset in the answerer's log
    origins: Positions  # by region: (topic id, count)
    taken: Positions = field(default_factory=dict)  # the last number that it had, where the count names no record there

    def to_value(self) -> dict[str, Any]:
        return {
            "id": self.snapshot_id,
            "round": ROUND,
            "to": self.to,
            "topic_id": self.topic_id,
            "position": self.position,
            "origins": _lists(self.origins),
            **({"taken": _lists(self.taken)} if self.taken else {}),
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> SnapshotResponse | None:
        return _lenient(cls._parsed, value)

    @classmethod
    def _parsed(cls, value: Mapping[str, Any]) -> SnapshotResponse:
        _check_round(value)
        position = _number(value["position"])
        origins, taken = _pairs(value["origins"]), _pairs(value.get("taken", {}))
        return cls(_id(value["id"]), _region(value["to"]), _id(value["topic_id"]), position, origins, taken)


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """A completed snapshot: all records below ``positions`` elsewhere lie below ``local`` here (I21)."""

    snapshot_id: str
    local: int
    positions: Positions
    starts: Positions  # by origin: (topic id, the number up to which its records are not here)
    is_final: bool

    def to_value(self) -> dict[str, Any]:
        return {
            "id": self.snapshot_id,
            "local": self.local,
            "positions": _lists(self.positions),
            "from": _lists(self.starts),
            "final": self.is_final,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> SnapshotMark | None:
        return _lenient(cls._parsed, value)

    @classmethod
    def _parsed(cls, value: Mapping[str, Any]) -> SnapshotMark:
        local, is_final = _number(value["local"]), value["final"] is True
        return cls(_id(value["id"]), local, _pairs(value["positions"]), _pairs(value["from"]), is_final)


@dataclass(frozen=True, slots=True)
class Update:
    """One subscription's move. Without positions it only says that the subscription exists."""

    subscription: str
    snapshot_id: str = ""
    positions: Positions = field(default_factory=dict)
    starts: Positions = field(default_factory=dict)
    active_region: str | None = None  # advice for clients that fail over by themselves
    active_n: int = 0  # how often it was set; the advice with the highest number is the last

    def to_value(self) -> dict[str, Any]:
        return {
            "subscription": self.subscription,
            "id": self.snapshot_id,
            "positions": _lists(self.positions),
            "from": _lists(self.starts),
            "active_region": self.active_region,
            "active_n": self.active_n,
        }


@dataclass(frozen=True, slots=True)
class Updates:
    """The value of one SUBSCRIPTION_UPDATE, with the updates of up to 100 subscriptions."""

    updates: Sequence[Update]

    def to_value(self) -> dict[str, Any]:
        return {"updates": [update.to_value() for update in self.updates]}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Updates | None:
        return _lenient(cls._parsed, value)

    @classmethod
    def _parsed(cls, value: Mapping[str, Any]) -> Updates | None:
        found = (_lenient(_update, one) for one in value["updates"][: limits.UPDATES_PER_MARKER_MAX])
        usable = [one for one in found if one is not None]
        return cls(usable) if usable else None


def _update(value: Mapping[str, Any]) -> Update:
    """Return an update. If its position cannot be read, the update only says that the subscription exists, with advice.

    No position may count (I22) if the records that the sender never had (``from``) are not known.
    """
    subscription = _subscription(value["subscription"])
    where, advice = _lenient(_where, value) or ("", {}, {}), _lenient(_advice, value) or (None, 0)
    return Update(subscription, *where, *advice)


def _where(value: Mapping[str, Any]) -> tuple[str, Positions, Positions]:
    return _id(value["id"]) if value.get("id") else "", _pairs(value["positions"]), _pairs(value["from"])


def _advice(value: Mapping[str, Any]) -> tuple[str | None, int]:
    active = value.get("active_region")
    return None if active is None else _region(active), _number(value.get("active_n", 0))


@dataclass(frozen=True, slots=True)
class Skip:
    """The SKIP by which an operator gives up records that a source no longer keeps. It changes the state: type 66."""

    origin: str
    origin_topic: str
    from_offset: int
    to_offset: int
    count: int  # records given up

    def to_value(self) -> dict[str, Any]:
        return {
            "origin": self.origin,
            "origin_topic": self.origin_topic,
            "from": self.from_offset,
            "to": self.to_offset,
            "count": self.count,
        }


def _check_round(value: Mapping[str, Any]) -> None:
    if value["round"] != ROUND:
        raise ValueError(value["round"])


def _subscription(value: Any) -> str:
    if not isinstance(value, str) or not LEGAL_SUBSCRIPTION.fullmatch(value):
        raise ValueError(value)
    return value


def _id(value: Any) -> str:
    if not isinstance(value, str) or not LEGAL_ID.fullmatch(value):
        raise ValueError(value)
    return value


def _region(value: Any) -> str:
    if not isinstance(value, str) or not LEGAL_REGION.fullmatch(value):
        raise ValueError(value)
    return value


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= limits.INT64_MAX:
        raise ValueError(value)
    return value


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > limits.REGIONS_MAX:
        raise ValueError(value)
    names = tuple(_region(one) for one in value)
    if len(set(names)) < len(names):
        raise ValueError(value)
    return names


def _pairs(value: Any) -> dict[str, tuple[str, int]]:
    if not isinstance(value, dict) or len(value) > limits.ORIGINS_MAX:
        raise ValueError(value)
    return {_region(region): (_id(topic_id), _number(number)) for region, (topic_id, number) in value.items()}


def _lists(pairs: Positions) -> dict[str, list[str | int]]:
    return {region: list(pair) for region, pair in pairs.items()}
