"""The regions of a topic, and which of them a request may name ("Topics in several regions").

Rule: a topic names this region, and of the others only peers, each once. An older version's item may have other names.

Not here: the topic's item (``topics``), and suspended regions (``topic_suspension``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.errors import InvalidRequestError

if TYPE_CHECKING:
    from fenceline.log.context import Context
    from fenceline.log.topic_item import TopicItem


def checked_regions(context: Context, regions: Sequence[str] | None) -> tuple[str, ...]:
    """Return the regions of a topic, which is in this region alone if ``regions`` is ``None``.

    Raises:
        InvalidRequestError: The regions are not this one and peers, each once.
    """
    if regions is None:
        return (context.region,)
    if not 1 <= len(regions) <= limits.REGIONS_MAX or len(set(regions)) < len(regions):
        raise _illegal_regions(f"regions must be a list of 1 to {limits.REGIONS_MAX} different region names")
    if context.region not in regions:
        raise _illegal_regions(f"regions must name the region that is asked: region={context.region}")
    unknown = next((name for name in regions if name != context.region and name not in context.peers), None)
    if unknown is not None:
        known = ", ".join(sorted(context.peers)) or "none"
        raise _illegal_regions(f"regions may name this region and its peers: region={unknown[:63]} peers={known}")
    return tuple(regions)


def _illegal_regions(detail: str) -> InvalidRequestError:
    return InvalidRequestError(detail, field="regions")


def check_other(context: Context, found: TopicItem, region: str) -> None:
    """Check that a topic names ``region``, and that it is not this region.

    Raises:
        InvalidRequestError: It is this region, or the topic does not name it.
    """
    if region == context.region:
        raise InvalidRequestError(
            f"this is the region that was asked; name another one: region={region}", field="region"
        )
    if region not in found.topic.regions:
        others = ", ".join(one for one in found.topic.regions if one != context.region) or "none"
        raise InvalidRequestError(
            f"the topic has no such region; name one of its others: region={region[:63]} others={others}",
            field="region",
        )
