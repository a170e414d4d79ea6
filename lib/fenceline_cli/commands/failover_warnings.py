"""What an operator should know before a subscription moves to another region: broken links, and what cannot follow.

Rule: a warning stops nothing. A lost region must be left all the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fenceline_cli.commands.failover_plan import replicating
from fenceline_cli.output import utc

if TYPE_CHECKING:
    from fenceline.model.region import RegionStatus
    from fenceline_cli.commands.failover_plan import Plan
    from fenceline_cli.region_options import RegionUrl


def warnings_of(plan: Plan, source: RegionUrl, right: str, reverse: RegionStatus | None) -> Iterator[str]:
    """Yield what is wrong with a move from a region to region ``right``.

    Args:
        reverse: How the region that is left sees ``right``; ``None`` if that is not known.
    """
    left = source.region
    for one in plan.places:
        if one.to_backlog is None:
            yield f"{right} has no partition {one.partition}; its records wait until it has"
    if plan.silence is not None:
        seen = "" if plan.last_seen_at is None else f"; {right} last saw it at {utc(plan.last_seen_at)}"
        yield f"{left} does not answer, so consumers there may go on{seen}: {plan.silence}"
    if plan.left is not None and not plan.left.replicate_subscription_state:
        name, command = plan.left.name, replicating(plan.left.topic, plan.left.name, source)
        yield (
            f"{name} is not replicated in {left}, so its marks do not follow, and it cannot move back; run '{command}'"
        )
    if plan.link is not None:
        yield from _records_that_lack(plan.link, right)
    if plan.lacking:
        smaller = f"the backlog in {right} is smaller by {plan.lacking}"
        yield f"{smaller}: {right} lacks records, or more are acknowledged there"
    trouble = None if reverse is None else _trouble(reverse, left)
    if reverse is not None and trouble is not None:
        yield f"{trouble}; marks may not follow, and {right} may lack records{_reason(reverse)}"


def _records_that_lack(link: RegionStatus, here: str) -> Iterator[str]:
    trouble = _trouble(link, here)
    if link.lag_records:
        until = "before they have arrived" if trouble is None else f"until the link works{_reason(link)}"
        many = f"{link.lag_records} of the records that {link.region} has written"
        yield f"{here} lacks {many}; consumers in {here} do not see them {until}"
    elif trouble is not None:
        yield f"{trouble}; consumers in {here} do not see what has not arrived until the link works{_reason(link)}"


def _trouble(link: RegionStatus, here: str) -> str | None:
    """Return what is wrong with a link of region ``here``; ``None`` if nothing is."""
    if link.suspended:
        return f"{here} has suspended {link.region}"
    if not link.connected:
        return f"{here} does not hear from {link.region}"
    return None if link.problem is None else f"{here} takes no records from {link.region}"


def _reason(link: RegionStatus) -> str:
    return "" if link.problem is None else f": {link.problem}"
