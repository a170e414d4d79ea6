"""Reads of topic objects, the object store's copies of a topic's item ("Topic objects").

Rule: a damaged object is an error, and is never skipped.

Not here: making the objects; see ``topics``. Topics without an item; see ``recovery.lost_items``.
"""

from __future__ import annotations

import json

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.checksummed import get_checked
from fenceline.log.context import Context
from fenceline.log.replay import UNREADABLE
from fenceline.log.topic_item import TopicItem, topic_from_value
from fenceline.ports import Damaged


def newest_object(context: Context, topic_id: str) -> str | None:
    """Return the key of one incarnation's newest topic object, or ``None`` if it has none.

    Raises:
        Unavailable: The store could not be asked.
    """
    prefix, newest = keys.topic_prefix(topic_id), ""
    while listed := context.objects.list(prefix, newest, limits.LIST_MAX):
        newest = listed[-1].key
        if len(listed) < limits.LIST_MAX:
            break
    return newest or None


def read_topic(context: Context, key: str) -> TopicItem:
    """Return the item that a topic object holds.

    Raises:
        CorruptLogError: The object cannot be read.
        NotFound: The object does not exist, now.
        Unavailable: The store could not be asked.
    """
    try:
        return topic_from_value(json.loads(get_checked(context.objects, key).body), 0)
    except (Damaged, *UNREADABLE) as error:
        what = f"{type(error).__name__} {error}"
        raise CorruptLogError(f"a topic object is damaged; restore it from a backup: {what} key={key}") from error
