"""Lost items: finds topics that the objects name, and that no item names.

Protocol, "Rebuild" and "Deleted topics".

Rule: an incarnation is over only where its newest topic object is DELETE's mark. That no item names it is not enough,
because its items may be lost: where its newest topic object is no mark, and no item names it, a rebuild is due.
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


class LostIncarnation(NamedTuple):
    """An incarnation that no item names."""

    topic_id: str
    topic: Topic | None  # None: no topic object of it can be read
    problem: str

    @property
    def name(self) -> str:
        return self.topic_id if self.topic is None else self.topic.name


def lost_topics(context: Context) -> Iterator[LostIncarnation]:
    """Yield the incarnations that no item names, and whose newest topic object is not DELETE's mark or can't be read.

    Raises:
        Unavailable: A store could not be asked.
    """
    known = _known(context)
    for key in newest_objects(context):
        topic_id = keys.parse_topic_id(key)
        if topic_id in known:
            continue
        try:
            item = read_topic(context, key)
        except NotFound:  # collected meanwhile
            continue
        except CorruptLogError as error:
            yield LostIncarnation(topic_id, None, error.detail)
            continue
        # Ask again, because the topic may have been created meanwhile.
        if not item.is_going and not is_known(context, topic_id):
            topic = item.topic
            what = f"topic_id={topic_id} created_at={topic.created_at} partitions={topic.partitions}"
            yield LostIncarnation(
                topic_id,
                topic,
                f"objects name this topic, and no item does; if its items are lost, rebuild them: {what}",
            )


def lost_segments(context: Context) -> Iterator[LostIncarnation]:
    """Yield the incarnations that have segments, but no topic object and no item, so that no rebuild would find them.

    Raises:
        Unavailable: A store could not be asked.
    """
    known = _known(context)
    for key in first_segments(context):
        topic_id = keys.parse_topic_id(key)
        is_named = topic_id in known or context.objects.list(keys.topic_prefix(topic_id), limit=1)
        if not is_named and not is_known(context, topic_id):
            what = f"log/{topic_id}/ holds segments, and topic/{topic_id}/ has no object that names their topic"
            yield LostIncarnation(topic_id, None, f"{what}; restore it from a backup")


def first_segments(context: Context) -> Iterator[str]:
    """Yield the key of one segment of each incarnation that has any.

    Raises:
        Unavailable: The store could not be asked.
    """
    (log_prefix, *_), after = keys.TOPIC_ID_PREFIXES, ""
    while listed := context.objects.list(log_prefix, after, 1):
        yield listed[0].key
        after = f"{log_prefix}{keys.parse_topic_id(listed[0].key)}0"  # after all of its keys: "0" follows "/"


def newest_objects(context: Context) -> Iterator[str]:
    """Yield the key of each incarnation's newest topic object. Keys that are not fenceline's are ignored.

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
    """Return True if an item names this incarnation."""
    if any(item.value["topic_id"] == topic_id for item in _all(context, keys.TOPICS)):
        return True
    # Asked after the topics, because an incarnation whose name is given up between the two looks has moved here.
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
