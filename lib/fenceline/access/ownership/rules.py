"""The rules of ownership: the owner of a resource, and its generation.

Rule: the table of claims decides (DESIGN.md, "Generations and tokens"). An ownership counts only while the session that
it names is live. Its generation and its token outlive it, and the token only grows.

Not here: clocks and stores. The owner of a resource now is an argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from fenceline import limits
from fenceline.errors import FencelineError, ResourceOwnedError, StaleGenerationError
from fenceline.ports import Item

T = TypeVar("T")

# The item


@dataclass(frozen=True, slots=True)
class OwnershipItem:
    """What is remembered of a resource: the last granted generation and token, and the session that got them.

    Args:
        severed: The sessions that this session severed for it. Their fences are finished before any answer says that
            it owns the resource. The request that severed them finishes them, or the same request sent again.
    """

    generation: int = 0
    fencing_token: int = -1
    session_id: str | None = None
    severed: tuple[str, ...] = ()
    since: int | None = None  # when that session took it; None: an older version wrote it

    def to_value(self) -> dict[str, Any]:
        return {
            "generation": self.generation,
            "fencing_token": self.fencing_token,
            "session_id": self.session_id,
            "severed": list(self.severed),
            "since": self.since,
        }

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> OwnershipItem:
        severed, since = tuple(value["severed"]), value.get("since")
        return cls(value["generation"], value["fencing_token"], value["session_id"], severed, since)

    @classmethod
    def from_item(cls, item: Item | None) -> OwnershipItem:
        """Return what the item says; a resource without an item was never owned."""
        return cls() if item is None else cls.from_value(item.value)


# The table of claims to own


class Owner(Enum):
    """The owner of a resource now, as its claimer sees it."""

    NONE = "none"
    OTHER = "other"
    SAME = "the same session"


@dataclass(frozen=True, slots=True)
class Granted:
    """The claimer owns the resource, with this generation.

    Args:
        is_kept: The claimer owned it before, and keeps its token. Else it gets the next token, and a live owner is
            severed.
    """

    generation: int
    is_kept: bool = False


def decide(
    resource: str, last: int, owner: Owner, asked: int | None, *, owner_named: str = ""
) -> Granted | FencelineError:
    """Judge one resource of a claim, row by row.

    Args:
        last: The last generation that any session was granted; 0 if the resource was never owned.
        asked: The generation that the claim names; ``None`` takes the next one.
        owner_named: How the error names another owner (``session.named_to_others``).
    """
    if asked == 0:
        return Granted(1, is_kept=owner is Owner.SAME)
    if asked is not None and asked < last:
        advice = f"claim it with {last} or more, or without a generation"
        return _stale(resource, last, f"{asked} is lower; {advice}")
    if owner is Owner.SAME:
        return Granted(max(last, asked or 1), is_kept=True)
    if asked is not None:
        return Granted(asked)
    if owner is Owner.OTHER:
        return ResourceOwnedError(
            f"another session owns the resource; wait until that ends, or take it with a generation: "
            f"resource={resource} generation={last}{owner_named}",
            resource=resource,
            generation=last,
        )
    if last == limits.GENERATION_MAX:
        advice = f"claim it with generation {last} itself, or with 0"
        return _stale(resource, last, f"there is no higher one; {advice}")
    return Granted(last + 1)


def _stale(resource: str, last: int, why: str) -> StaleGenerationError:
    detail = f"the resource's last granted generation is {last}, and {why}: resource={resource} generation={last}"
    return StaleGenerationError(detail, resource=resource, generation=last)


def taken(
    item: OwnershipItem,
    granted: Granted,
    session_id: str,
    *,
    token: int | None = None,
    severed: Sequence[str] = (),
    now_ms: int | None = None,
) -> OwnershipItem:
    """Return the item once ``session_id`` owns the resource.

    Args:
        token: The partition's epoch, where that is the token; else the item's own counter gives it.
        severed: The live owners that it takes the resource from.
    """
    if granted.is_kept:
        kept = item.fencing_token if token is None else token
        since = item.since if item.session_id == session_id else now_ms
        return replace(item, generation=granted.generation, fencing_token=kept, session_id=session_id, since=since)
    return OwnershipItem(
        granted.generation, item.fencing_token + 1 if token is None else token, session_id, tuple(severed), now_ms
    )


def released(item: OwnershipItem) -> OwnershipItem:
    """Return the item once no session owns the resource: generation and token stay."""
    return replace(item, session_id=None, since=None)


# Reading and committing as a group
