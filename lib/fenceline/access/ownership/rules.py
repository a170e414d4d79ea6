"""The rules of ownership: the owner of a resource, and its generation.

Rule: the table of claims decides (DESIGN.md, "Generations and tokens"). An ownership counts only while the session that
it names is live. Its generation and its token outlive it, and the token only grows.

Not here: clocks and stores. The owner of a resource now is an argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum

from fenceline import limits
from fenceline.access.resources import OwnershipItem
from fenceline.errors import FencelineError, ResourceOwnedError, StaleGenerationError

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
        owner_named: How the error names another owner (``session_item.named_to_others``).
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
    next_token = item.fencing_token + 1 if token is None else token
    return OwnershipItem(granted.generation, next_token, session_id, tuple(severed), now_ms, item.version)


def released(item: OwnershipItem) -> OwnershipItem:
    """Return the item once no session owns the resource: generation and token stay."""
    return replace(item, session_id=None, since=None)
