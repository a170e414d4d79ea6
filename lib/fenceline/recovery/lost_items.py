"""Lost items: topics that the objects tell of, and that no item knows (DESIGN.md, sections 4 and 10).

The rule: that no item names an incarnation proves nothing but that its items may be lost. It is over only where its
newest topic object is DELETE's mark. Whoever finds one that is not, and that no item knows, has met a rebuild that is
due.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fenceline import limits
from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.log.context import Context
from fenceline.log.topic_objects import read_topic
from fenceline.model.topic import Topic
from fenceline.ports import Item, NotFound


class Lost(NamedTuple):
    """An incarnation that no item knows."""

    topic_id: str
    topic: Topic | None  # None where no object tells of it that can be read
    problem: str

    @property
    def name(self) -> str:
        return self.topic_id if self.topic is None else self.topic.name


def lost_topics(context: Context) -> Iterator[Lost]:
    """Yield the lives whose newest topic object is not DELETE's mark, or can't be read, and that no item knows.

    Raises:
        Unavailable: A store could not be asked.
    """
    known = _known(context)
    for key in newest_objects(context):
        topic_id = keys.parse_topic_id(key)
        if topic_id in known:
            continue
        try:
            told = read_topic(context, key)
        except NotFound:  # collected meanwhile
            continue
        except CorruptLogError as error:
            yield Lost(topic_id, None, error.detail)
            continue
        if not told.is_going and not is_known(context, topic_id):  # asked anew: it may have been created meanwhile
            topic = told.topic
            what = f"topic_id={topic_id} created_at={topic.created_at} partitions={topic.partitions}"
            yield Lost(topic_id, topic, f"the objects tell of this topic, and no item does: {what}")


def lost_segments(context: Context) -> Iterator[Lost]:
    """Yield the lives that have segments and no topic object, and that no item knows: a rebuild would not find them.

    Raises:
        Unavailable: A store could not be asked.
    """
    known = _known(context)
    for key in first_segments(context):
        topic_id = keys.parse_topic_id(key)
        told = topic_id in known or context.objects.list(keys.topic_prefix(topic_id), limit=1)
        if not told and not is_known(context, topic_id):
            what = f"log/{topic_id}/ holds segments, and no object below topic/{topic_id}/ tells of their topic"
            yield Lost(topic_id, None, f"{what}; restore it from a backup")


def first_segments(context: Context) -> Iterator[str]:
    """Yield the key of one segment of each incarnation that has any.

    Raises:
        Unavailable: The store could not be asked.
    """
    (log_prefix, *_), after = keys.TOPIC_ID_PREFIXES, ""
    while listed := context.objects.list(log_prefix, after, 1):
        yield listed[0].key
        after = f"{log_prefix}{keys.parse_topic_id(listed[0].key)}0"  # behind all of its keys: "0" follows "/"


def newest_objects(context: Context) -> Iterator[str]:
    """Yield the key of each incarnation's newest topic object; what is no key of ours is passed over.

    Raises:
        Unavailable: The store could not be asked.
    """
    newest, after = "", ""
    while listed := context.objects.list(keys.TOPIC_PREFIX, after, limits.LIST_MAX):
        for line in listed:
            if not _is_topic_key(line.key):
                continue
            if newest and keys.parse_topic_id(newest) != keys.parse_topic_id(line.key):
                yield newest
            newest = line.key
        after = listed[-1].key
    if newest:
        yield newest


def is_known(context: Context, topic_id: str) -> bool:
    """Whether an item tells of this incarnation."""
    if any(item.value["topic_id"] == topic_id for item in _all(context, keys.TOPICS)):
        return True
    # Behind the topics: a name that is given up between the two looks has moved to here.
    return bool(context.items.get([keys.gone_item(topic_id)]))


def _known(context: Context) -> set[str]:
    known = {str(item.value["topic_id"]) for item in _all(context, keys.TOPICS)}
    return known | {item.key.sort for item in _all(context, keys.GONE)}


def _all(context: Context, partition: str) -> Iterator[Item]:
    after = ""
    while found := context.items.query(partition, start_after=after):
        yield from found
        after = found[-1].key.sort


def _is_topic_key(key: str) -> bool:
    try:
        return key == keys.topic_key(*keys.parse_topic_key(key))
    except ValueError:
        return False
