"""Regions that an operator has suspended for one topic ("Lost and suspended regions").

Rule: suspended regions are a member of the topic's item, and of its object, so that a rebuild keeps them.

Not here: what a suspended region means for pulling and for snapshots; see ``regions``.
"""

from __future__ import annotations

from fenceline.log import topics
from fenceline.log.context import Context
from fenceline.log.retry import Attempts
from fenceline.log.topic_item import TopicItem
from fenceline.log.topic_regions import check_other
from fenceline.model.topic import unknown_topic


def suspend(context: Context, name: str, region: str, *, is_suspended: bool) -> TopicItem:
    """Suspend another region of a topic here, or resume it. A second request changes nothing.

    Raises:
        UnknownTopicOrPartitionError: No such topic.
        InvalidRequestError: The region is this one, or the topic does not name it. Nothing was written.
        OutcomeUnknownError: A store did not answer; the topic may have been changed.
    """
    met: set[str] = set()  # topic ids that the attempts so far found
    attempts = Attempts(context.runtime, "the topic's item")
    while True:
        with attempts:
            found = topics.get(context, name)
            if attempts.is_unknown and found.topic.topic_id not in met:
                raise unknown_topic(name)  # the incarnation that may have been changed has ended
            met.add(found.topic.topic_id)
            check_other(context, found, region)
            if (region in found.suspended) == is_suspended:
                return topics.make_whole(context, found)
            others = [one for one in found.suspended if one != region]
            return topics.change(context, found, suspended=(*others, region) if is_suspended else tuple(others))
