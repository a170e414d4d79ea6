"""Topics: created, listed, altered and deleted by conditional writes of one item each (DESIGN.md, sections 3 and 4).

The rule: the item first, carrying its number n; then the object ``topic/{topic_id}/{n}.json``, from which the item can
be rebuilt; only then the answer. A missing object is made up by the next change, first. A deleted name is free once
every partition is sealed; what lies under its ``topic_id`` is then nobody's, and is collected.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fenceline import config as configs
from fenceline import keys, limits
from fenceline.config import ConfigValue
from fenceline.errors import (
    InvalidRequestError,
    InvalidTopicError,
    OutcomeUnknownError,
    RetryError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from fenceline.ports import AlreadyExists, Check, Delete, Item, Put, StoreFact, VersionMoved
from fenceline.retry import Attempts

if TYPE_CHECKING:  # a client shows topics without a log
    from fenceline.context import Context

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_LEGAL_REGION = re.compile(r"[a-z0-9-]{1,63}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic, as API.md "Topics" shows it."""

    name: str
    topic_id: str
    partitions: int
    config: Mapping[str, ConfigValue]  # what was set, and nothing else
    regions: Sequence[str]
    created_at: int  # ms

    def setting(self, name: str) -> Any:
        """Return the configuration's value of ``name``, its default if it was not set."""
        return self.config.get(name, configs.DEFAULTS[name])


class TopicItem(NamedTuple):
    """A topic's item: the topic, how often it was changed, and whether it is being deleted."""

    topic: Topic
    n: int
    is_going: bool
    version: int
    object_n: int = -1  # the newest of its objects that is known to be there

    def to_value(self) -> dict[str, Any]:
        topic = self.topic
        return {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": topic.partitions,
            "config": dict(topic.config),
            "regions": list(topic.regions),
            "created_at": topic.created_at,
            "n": self.n,
            "is_going": self.is_going,
            "object_n": self.object_n,
        }


def topic_from_value(value: Mapping[str, Any], version: int) -> TopicItem:
    """Return the topic that an item's value, or a topic object, describes."""
    topic = Topic(
        name=value["name"],
        topic_id=value["topic_id"],
        partitions=value["partitions"],
        config=dict(value["config"]),
        regions=tuple(value["regions"]),
        created_at=value["created_at"],
    )
    return TopicItem(topic, value["n"], value["is_going"], version, value.get("object_n", value["n"]))


def topic_from_item(item: Item) -> TopicItem:
    return topic_from_value(item.value, item.version)


def is_legal_name(name: str) -> bool:
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def unknown_topic(name: str) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(f"no such topic; create it first: topic={name[: limits.TOPIC_NAME_CHARS_MAX]}")


def unknown_partition(topic: Topic, partition: int) -> UnknownTopicOrPartitionError:
    return UnknownTopicOrPartitionError(
        f"the topic has no such partition: topic={topic.name} partition={partition} partitions={topic.partitions}"
    )


def create(
    context: Context, name: str, *, partitions: int, config: Mapping[str, Any], regions: Sequence[str] | None
) -> Topic:
    """Create a topic.

    Raises:
        InvalidTopicError: ``name`` is not legal. Nothing was written.
        InvalidRequestError: Another argument is not. Nothing was written.
        TopicAlreadyExistsError: The name is taken, by a topic that is being deleted, too. Nothing was written.
        OutcomeUnknownError: A store did not answer; it may have been created.
    """
    if not is_legal_name(name):
        raise InvalidTopicError("a topic's name is 1 to 249 of A-Z a-z 0-9 . _ - and neither . nor ..")
    _check_partitions(partitions)
    topic = Topic(
        name=name,
        topic_id=context.runtime.fresh_id(),
        partitions=partitions,
        config=configs.merged({}, config),
        regions=_checked_regions(context, regions),
        created_at=context.runtime.now_ms(),
    )
    made = TopicItem(topic, 0, is_going=False, version=context.runtime.fresh_version())
    for attempt in Attempts(context.runtime, "the topic's item"):
        with attempt:
            try:
                # The name's conditional create: whoever loses is told that it exists, and has written nothing. A write
                # that comes late, after this life was deleted, finds it gone.
                put = Put(keys.topic_item(name), made.to_value(), made.version, expected=None)
                context.items.write([put, Check(keys.gone_item(topic.topic_id), expected=None)])
            except VersionMoved:
                if not _is_ours(context, made):
                    raise TopicAlreadyExistsError(f"the name is taken: topic={name}") from None
    try:
        return make_object(context, made).topic
    except RetryError as error:
        raise _half_stored(error) from error


def _is_ours(context: Context, made: TopicItem) -> bool:
    found = find(context, made.topic.name)
    return found is not None and found.topic.topic_id == made.topic.topic_id


def find(context: Context, name: str) -> TopicItem | None:
    """Return the topic's item, going or not; ``None`` if the name leads to nothing."""
    if not is_legal_name(name):
        return None
    key = keys.topic_item(name)
    item = context.items.get([key]).get(key)
    return None if item is None else topic_from_item(item)


def get(context: Context, name: str) -> TopicItem:
    """Return the live topic of that name.

    Raises:
        UnknownTopicOrPartitionError: There is none.
    """
    found = find(context, name)
    if found is None or found.is_going:
        raise unknown_topic(name)
    return found


def list_topics(context: Context, *, prefix: str, start_after: str, limit: int) -> tuple[list[Topic], bool]:
    """Return up to ``limit`` live topics in byte order of their names, and whether there are more."""
    if len(prefix) > limits.TOPIC_NAME_CHARS_MAX:
        return [], False
    start_after = start_after[: limits.TOPIC_NAME_CHARS_MAX + 1]  # no name is longer, and a store's keys have bounds
    topics: list[Topic] = []
    while True:
        wanted = limit + 1 - len(topics)
        items = context.items.query(keys.TOPICS, start_after=start_after, prefix=prefix, limit=wanted)
        topics += [found.topic for found in map(topic_from_item, items) if not found.is_going]
        if len(items) < wanted or len(topics) > limit:
            return topics[:limit], len(topics) > limit
        start_after = items[-1].key.sort


def alter(
    context: Context,
    name: str,
    *,
    partitions: int | None,
    config: Mapping[str, Any] | None,
    regions: Sequence[str] | None,
) -> Topic:
    """Change what is given, and keep the rest.

    Raises:
        UnknownTopicOrPartitionError: No such topic.
        InvalidRequestError: A value is not legal, or there would be fewer partitions. Nothing was written.
        OutcomeUnknownError: A store did not answer; it may have been changed.
    """
    for attempt in Attempts(context.runtime, "the topic's item"):
        with attempt:
            found = get(context, name)
            topic = found.topic
            if partitions is not None:
                _check_partitions(partitions)
                if partitions < topic.partitions:
                    raise InvalidRequestError(
                        f"partitions only grow: partitions={topic.partitions}", field="partitions"
                    )
            changed = replace(
                topic,
                partitions=topic.partitions if partitions is None else partitions,
                config=configs.merged(topic.config, config or {}),
                regions=topic.regions if regions is None else _checked_regions(context, regions),
            )
            if changed != topic:
                return _change(context, found, topic=changed, is_going=False).topic
            make_object(context, found)
            return topic
    raise AssertionError


def mark_going(context: Context, name: str) -> TopicItem:
    """Mark a topic as going, if it is not yet, and return its item.

    Raises:
        UnknownTopicOrPartitionError: No such topic.
    """
    for attempt in Attempts(context.runtime, "the topic's item"):
        with attempt:
            found = find(context, name)
            if found is None:
                raise unknown_topic(name)
            if not found.is_going:
                return _change(context, found, topic=found.topic, is_going=True)
            return make_object(context, found)
    raise AssertionError


def free_name(context: Context, going: TopicItem) -> None:
    """Give the name of a sealed topic up; what was stored under it waits in ``gone`` to be collected."""
    gone = keys.gone_item(going.topic.topic_id)
    for attempt in Attempts(context.runtime, "the topic's item"):
        with attempt:
            found = find(context, going.topic.name)
            if found is None or found.topic.topic_id != going.topic.topic_id:
                return  # another DELETE has done it
            value = {**found.to_value(), "gone_at": context.runtime.now_ms()}
            put = Put(gone, value, context.runtime.fresh_version(), expected=None)
            context.items.write([Delete(keys.topic_item(going.topic.name), found.version), put])


def _change(context: Context, found: TopicItem, *, topic: Topic, is_going: bool) -> TopicItem:
    found = make_object(context, found)
    version = context.runtime.fresh_version()
    changed = found._replace(topic=topic, is_going=is_going, n=found.n + 1, version=version)
    put = Put(keys.topic_item(topic.name), changed.to_value(), version, expected=found.version)
    context.items.write([put])  # whoever loses this write reads the item again
    try:
        return make_object(context, changed)
    except RetryError as error:
        raise _half_stored(error) from error


def _half_stored(error: RetryError) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the topic was changed, but not all of it is stored; send it again: {error.detail}")


def make_object(context: Context, item: TopicItem) -> TopicItem:
    """Make the object that the item can be rebuilt from, if it is not known to be there: before anything leans on it.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: The object store; the item is as it was.
    """
    if item.object_n == item.n:
        return item
    value = {name: member for name, member in item.to_value().items() if name != "object_n"}
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    for attempt in Attempts(context.runtime, "the topic's object"):
        with attempt, suppress(AlreadyExists):  # made by an earlier attempt, or by whoever met the item
            context.objects.create(keys.topic_key(item.topic.topic_id, item.n), body, {})
    known = item._replace(object_n=item.n, version=context.runtime.fresh_version())
    with suppress(StoreFact):  # then whoever meets the item makes sure once more
        put = Put(keys.topic_item(item.topic.name), known.to_value(), known.version, expected=item.version)
        context.items.write([put])
        return known
    return item


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidRequestError(f"partitions is from 1 to {limits.PARTITIONS_MAX}", field="partitions")


def _checked_regions(context: Context, regions: Sequence[str] | None) -> tuple[str, ...]:
    if regions is None:
        return (context.region,)
    if not regions or len(set(regions)) < len(regions) or not all(map(_LEGAL_REGION.fullmatch, regions)):
        raise InvalidRequestError("regions is a list of different region names", field="regions")
    return tuple(regions)
