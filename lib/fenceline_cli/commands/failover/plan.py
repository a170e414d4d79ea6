"""The plan of a move of a subscription to another region: the repeated records of each partition, and the warnings.

Rule: making a plan changes nothing. A region that does not answer is left out, and the count is then an upper bound. A
warning does not stop the move, because a lost region must be left all the same.

Not here: the move itself; see ``command``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fenceline.errors import UnknownSubscriptionError, UnknownTopicOrPartitionError
from fenceline_cli.output import CommandError, RegionSilentError, utc
from fenceline_cli.positions import records_between
from fenceline_cli.region_options import RegionUrl, naming

if TYPE_CHECKING:
    from fenceline.client import Client
    from fenceline.client.types import Cursor, Subscription
    from fenceline.model.region import RegionStatus


@dataclass(frozen=True, slots=True)
class PartitionMarks:
    """The marks of a subscription in a partition of both regions; ``None`` where it is not known, or does not exist."""

    partition: int
    from_mark: int | None
    from_backlog: int | None
    to_mark: int | None
    to_backlog: int | None

    @property
    def repeats(self) -> int:
        """Return about how many records come again: those that only the region that is left knows as acknowledged."""
        return max(0, (self.to_backlog or 0) - (self.from_backlog or 0))

    @property
    def lacking(self) -> int:
        """Return how many records only the region that is left counts; 0 if the other one lacks the partition."""
        return 0 if self.to_backlog is None else max(0, (self.from_backlog or 0) - self.to_backlog)


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A move, as it looks before it is made.

    Attributes:
        silence: Why the region that is left does not answer; ``None`` if it does.
        left: The subscription in the region that is left; ``None`` if it is not there, or not known.
        lacked: What the region that is left lacks, "topic" or "subscription"; ``None`` if nothing, or not known.
        right: The subscription in the other region; ``None`` if it is still missing there.
        link: The link to the region that is left, as the region to which the subscription moves sees it.
    """

    partitions: Sequence[PartitionMarks]
    silence: str | None
    left: Subscription | None
    lacked: str | None
    right: Subscription | None
    link: RegionStatus | None

    @property
    def last_seen_at(self) -> int | None:
        """Return when the region that is left last answered the other one, in ms."""
        return None if self.link is None else self.link.last_seen_at

    @property
    def repeats(self) -> int:
        return sum(one.repeats for one in self.partitions)

    @property
    def lacking(self) -> int:
        """Return by how many records the backlog to which the subscription moves is smaller, which no lag explains."""
        behind = 0 if self.link is None else self.link.lag_records or 0
        return max(0, sum(one.lacking for one in self.partitions) - behind)

    @property
    def is_created(self) -> bool:
        """Return True if the move creates the subscription in the other region."""
        return self.right is None

    @property
    def is_bound(self) -> bool:
        """Return True if at most ``repeats`` come again, and fewer are likely."""
        return self.left is None


def make_plan(
    topic: str, name: str, left: tuple[RegionUrl, Client], right: tuple[RegionUrl, Client], silence: str | None
) -> MovePlan:
    """Return the plan of moving a subscription from ``left`` to ``right``.

    Args:
        silence: Why ``left`` does not answer, and is not asked again; ``None`` if it does.

    Raises:
        CommandError: The topic does not connect the regions, or the subscription does not exist, or cannot be moved.
        RegionError: The region to which it would move does not answer, or lacks the topic.
    """
    (source, from_client), (target, to_client) = left, right
    with naming(target, "--to"):
        described = to_client.topic(topic)
    if source.region not in described.regions:
        raise CommandError(
            f"topic {topic} in {target.region} is not connected with {source.region}: regions="
            f"{','.join(described.regions)}; its records may lack there, so move no subscription"
        )
    here, lacked = None, None
    try:
        if silence is None:
            here, lacked = _left_in(source, from_client, topic, name)
    except RegionSilentError as error:
        silence = str(error)
    with naming(target, "--to"):  # later than the other one: what is written meanwhile must not seem to lack here
        there = subscription_in(to_client, topic, name)
    if there is None and here is None and silence is None:
        raise CommandError(
            f"neither {source.region} nor {target.region} has a subscription {name} of {topic}; 'fenceline subscription"
            f" list {topic}' shows those that exist"
        )
    if there is not None and not there.replicate_subscription_state:
        raise CommandError(
            f"{name} is not replicated in {target.region}, so its marks there have no meaning; run"
            f" '{replicating(topic, name, target)}', or delete it there, or use 'fenceline subscription seek'"
        )
    with naming(target, "--to"):
        partitions = _marks_of(to_client, topic, here, there, described.partitions)
        link = link_in(to_client, topic, source.region)
    return MovePlan(partitions, silence, here, lacked, there, link)


def link_in(client: Client, topic: str, region: str) -> RegionStatus | None:
    """Return how a service sees another region of the topic; ``None`` if it does not know that region."""
    return next((one for one in client.replication(topic).regions if one.region == region), None)


def _left_in(source: RegionUrl, client: Client, topic: str, name: str) -> tuple[Subscription | None, str | None]:
    """Return the subscription in the region that is left, and what that region lacks."""
    with naming(source, "--from"):
        try:
            found = subscription_in(client, topic, name)
        except UnknownTopicOrPartitionError:
            return None, "topic"  # deployed again, without the topic
    return found, "subscription" if found is None else None


def replicating(topic: str, name: str, there: RegionUrl) -> str:
    """Return the command that makes a subscription of a region replicated."""
    return f"fenceline subscription create {topic} {name} --replicated --url {there.url}"


def subscription_in(client: Client, topic: str, name: str) -> Subscription | None:
    """Return a subscription, or ``None`` if the region has none of this name."""
    try:
        return client.subscription(topic, name)
    except UnknownSubscriptionError:
        return None


def _marks_of(
    client: Client, topic: str, here: Subscription | None, there: Subscription | None, partitions: int
) -> list[PartitionMarks]:
    from_cursors = {} if here is None else {cursor.partition: cursor for cursor in here.partitions}
    if there is None:  # created at earliest, it begins at each log start
        to_marks = {number: _beginning(client, topic, number) for number in range(partitions)}
    else:
        to_marks = {cursor.partition: (cursor.mark_delete_offset, cursor.backlog) for cursor in there.partitions}
    found = []
    for number in sorted({*from_cursors, *to_marks}):
        cursor: Cursor | None = from_cursors.get(number)
        left = (None, None) if cursor is None else (cursor.mark_delete_offset, cursor.backlog)
        found.append(PartitionMarks(number, *left, *to_marks.get(number, (None, None))))
    return found


def _beginning(client: Client, topic: str, partition: int) -> tuple[int, int]:
    """Return the log start, and how many records there are from it on."""
    bounds = client.offsets(topic, partition).bounds
    return bounds.log_start_offset, records_between(
        client, topic, partition, bounds.log_start_offset, bounds.next_offset
    )


def warnings_of(plan: MovePlan, source: RegionUrl, right: str, reverse: RegionStatus | None) -> Iterator[str]:
    """Yield the warnings about a move from a region to region ``right``.

    Args:
        reverse: How the region that is left sees ``right``; ``None`` if that is not known.
    """
    left = source.region
    for one in plan.partitions:
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
    """Return the trouble with a link of region ``here``; ``None`` if there is none."""
    if link.suspended:
        return f"{here} has suspended {link.region}"
    if not link.connected:
        return f"{here} does not hear from {link.region}"
    return None if link.problem is None else f"{here} takes no records from {link.region}"


def _reason(link: RegionStatus) -> str:
    return "" if link.problem is None else f": {link.problem}"
