"""Topics: created, listed, altered and deleted by conditional writes of one item each ("Topic ids", "Topic objects").

Rule: the item is written first, and carries its number n. Then the object ``topic/{topic_id}/{n}.json`` is made, from
which the item can be rebuilt. Only then comes the answer. A missing object is made by the next change, before anything
else. A deleted name is free once every partition is sealed. After that all that is stored under its ``topic_id`` is
collected.

Not here: appending the SEAL markers; see ``service.topic_deletion``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.errors import (
    ContendedError,
    CorruptLogError,
    InvalidRequestError,
    InvalidTopicError,
    OutcomeUnknownError,
    RetryError,
    TopicAlreadyExistsError,
)
from fenceline.format import keys
from fenceline.format.checksummed import with_checksum
from fenceline.log.retry import Attempts
from fenceline.log.topic_item import TopicItem, topic_from_item
from fenceline.log.topic_regions import checked_regions
from fenceline.model import topic_config as configs
from fenceline.model.topic import LEGAL_NAME, Topic, unknown_topic
from fenceline.ports import AlreadyExists, Check, Conflict, Delete, NoAnswer, NotFound, Put, StoreFact, VersionMoved

if TYPE_CHECKING:
    from fenceline.log.context import Context


def create(
    context: Context, name: str, *, partitions: int, config: Mapping[str, Any], regions: Sequence[str] | None
) -> Topic:
    """Create a topic.

    Raises:
        InvalidTopicError: ``name`` is not legal. Nothing was written.
        InvalidRequestError: Another argument is not legal. Nothing was written.
        TopicAlreadyExistsError: The name is taken, perhaps by a topic that is being deleted. Nothing was written.
        OutcomeUnknownError: A store did not answer; it may have been created.
    """
    if not LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError("a topic's name must be 1 to 249 of the characters A-Z a-z 0-9 . _ - but not . or ..")
    _check_partitions(partitions)
    wanted = Topic(
        name=name,
        topic_id="",  # a fresh one for each attempt
        partitions=partitions,
        config=configs.merged({}, config),
        regions=checked_regions(context, regions),
        created_at=context.runtime.now_ms(),
    )
    unanswered: list[TopicItem] = []
    attempts = Attempts(context.runtime, "the topic's item")
    while True:
        with attempts:
            found = _created_before(context, name, unanswered) if unanswered else None
            made = found or _take_name(context, wanted, unanswered)
            break
    if made.is_going:
        raise _deleted_since(name)
    try:
        stored = make_object(context, made)
        if stored.object_n != stored.n:
            _check_incarnation(context, stored)
    except RetryError as error:
        raise _half_stored(error) from error
    return stored.topic


def _take_name(context: Context, wanted: Topic, unanswered: list[TopicItem]) -> TopicItem:
    """Create the topic's item under a fresh id.

    The id of an earlier attempt is not used again, because that incarnation may have begun and been deleted since, and
    its objects then say for good that it is over.

    Args:
        unanswered: The items that earlier attempts may have created, or may still create. This attempt's item is added
            if the store does not answer.
    """
    runtime, name = context.runtime, wanted.name
    topic_id = runtime.fresh_id()
    made = TopicItem(replace(wanted, topic_id=topic_id), 0, is_going=False, version=runtime.fresh_version())
    put = Put(keys.topic_item(name), made.to_value(), made.version, expected=None)
    try:
        # The conditional create of the name: a request that loses it has written nothing, and learns that the name is
        # taken. A write that lands late finds its id under `gone`, if this incarnation was deleted or a later attempt
        # replaced it.
        checked = Check(keys.gone_item(topic_id), expected=None)
        context.items.write([put, checked, *_given_up(context, unanswered)])
    except VersionMoved:
        found = _created_before(context, name, unanswered)
        if found is None:
            raise
        return found
    except NoAnswer:
        unanswered.append(made)
        raise
    return made


def _created_before(context: Context, name: str, unanswered: Sequence[TopicItem]) -> TopicItem | None:
    """Return the item that an unanswered attempt has created; ``None`` if the name is free.

    Raises:
        TopicAlreadyExistsError: Another request has taken the name.
    """
    found = find(context, name)
    if found is not None and found.topic.topic_id not in {one.topic.topic_id for one in unanswered}:
        raise TopicAlreadyExistsError(
            f"a topic has this name already; choose another name, or delete that topic first: topic={name}"
        )
    return found


def _given_up(context: Context, unanswered: Sequence[TopicItem]) -> list[Put]:
    """Return the writes under ``gone`` that keep the incarnations of unanswered attempts from beginning later.

    An incarnation that is under ``gone`` already needs no write. Nor does an incarnation with a topic object, because
    it has begun, so that its only write is spent. Since then it has ended, or a rebuild has given it another name.
    """
    incarnations = {keys.gone_item(one.topic.topic_id): one for one in unanswered}
    known = context.items.get([*incarnations]) if incarnations else {}
    gone_at = {"gone_at": context.runtime.now_ms()}
    return [
        Put(key, {**one.to_value(), **gone_at}, context.runtime.fresh_version(), expected=None)
        for key, one in incarnations.items()
        if key not in known and not context.objects.list(keys.topic_prefix(one.topic.topic_id), limit=1)
    ]


def _check_incarnation(context: Context, made: TopicItem) -> None:
    """Check that the topic still exists, because this process may have been frozen between its item and its object.

    Raises:
        OutcomeUnknownError: The topic was created, and has been deleted since.
        StoreUnavailableError: The item store could not be reached.
    """
    found = Attempts(context.runtime, "the topic's item").until_done(lambda: find(context, made.topic.name))
    if found is None or found.is_going or found.topic.topic_id != made.topic.topic_id:
        raise _deleted_since(made.topic.name)


def _deleted_since(name: str) -> OutcomeUnknownError:
    return OutcomeUnknownError(f"the topic was created, and another request has deleted it since: topic={name}")


def find(context: Context, name: str) -> TopicItem | None:
    """Return the topic's item, even if the topic is being deleted; ``None`` if the name leads to nothing."""
    if not LEGAL_NAME.fullmatch(name):
        return None
    key = keys.topic_item(name)
    item = context.items.get([key]).get(key)
    return None if item is None else topic_from_item(item)


def get(context: Context, name: str) -> TopicItem:
    """Return the live topic of that name.

    Raises:
        UnknownTopicOrPartitionError: No live topic has the name.
    """
    found = find(context, name)
    if found is None or found.is_going:
        raise unknown_topic(name)
    return found


def list_topics(context: Context, *, prefix: str, start_after: str, limit: int) -> tuple[list[Topic], bool]:
    """Return up to ``limit`` live topics in byte order of their names, and whether there are more."""
    if len(prefix) > limits.TOPIC_NAME_CHARS_MAX:
        return [], False
    # Cut, because no name is longer, and a store's keys have bounds.
    start_after = start_after[: limits.TOPIC_NAME_CHARS_MAX + 1]
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
    """Change the arguments that are given, and keep the rest.

    Raises:
        UnknownTopicOrPartitionError: No such topic.
        InvalidRequestError: A value is not legal, or the topic has more partitions already. Nothing was written.
        OutcomeUnknownError: A store did not answer; it may have been changed.
    """
    met: set[str] = set()  # topic ids that the attempts so far found
    attempts = Attempts(context.runtime, "the topic's item")
    while True:
        with attempts:
            found = get(context, name)
            topic = found.topic
            if attempts.is_unknown and topic.topic_id not in met:
                raise unknown_topic(name)  # the incarnation that may have been changed has ended
            met.add(topic.topic_id)
            if partitions is not None:
                _check_partitions(partitions)
                if partitions < topic.partitions:
                    raise InvalidRequestError(
                        f"a topic never loses partitions; name at least as many: partitions={topic.partitions}",
                        field="partitions",
                    )
            changed = replace(
                topic,
                partitions=topic.partitions if partitions is None else partitions,
                config=configs.merged(topic.config, config or {}),
                regions=topic.regions if regions is None else checked_regions(context, regions),
            )
            if changed != topic:
                suspended = tuple(name for name in found.suspended if name in changed.regions)
                return change(context, found, topic=changed, suspended=suspended).topic
            return make_whole(context, found).topic


def mark_going(context: Context, name: str) -> TopicItem | None:
    """Mark a topic as being deleted, if it is not yet, and return its item; ``None`` if it is deleted already.

    The second happens if an attempt was not answered, or came too late, and other requests have finished the deletion.
    A topic that was created under the name since then is not the one that this request found.

    Raises:
        UnknownTopicOrPartitionError: No such topic.
    """
    met = ""
    attempts = Attempts(context.runtime, "the topic's item")
    while True:
        with attempts:
            found = find(context, name)
            if met and (found is None or found.topic.topic_id != met):
                return None
            if found is None:
                raise unknown_topic(name)
            met = found.topic.topic_id
            if not found.is_going:
                return change(context, found, is_going=True)
            return make_whole(context, found)


def free_name(context: Context, going: TopicItem) -> None:
    """Free the name of a sealed topic. Its item under ``gone`` stays until all that is stored is collected."""
    gone = keys.gone_item(going.topic.topic_id)
    attempts = Attempts(context.runtime, "the topic's item")
    while True:
        with attempts:
            found = find(context, going.topic.name)
            if found is None or found.topic.topic_id != going.topic.topic_id:
                return  # another DELETE has freed it
            value = {**found.to_value(), "gone_at": context.runtime.now_ms()}
            put = Put(gone, value, context.runtime.fresh_version(), expected=None)
            context.items.write([Delete(keys.topic_item(going.topic.name), found.version), put])
            return


def change(context: Context, found: TopicItem, **members: Any) -> TopicItem:
    """Change members of a topic's item, and make its object.

    Raises:
        VersionMoved: Another request changed the item first; read it again.
        OutcomeUnknownError: The object may be missing.
    """
    found = make_object(context, found)
    version = context.runtime.fresh_version()
    changed = found._replace(**members)._replace(n=found.n + 1, version=version)
    put = Put(keys.topic_item(found.topic.name), changed.to_value(), version, expected=found.version)
    context.items.write([put])
    return make_whole(context, changed)


def make_whole(context: Context, changed: TopicItem) -> TopicItem:
    """Make the object of an item that is written already, by this request or by an earlier one that did not end.

    Raises:
        OutcomeUnknownError: The object may be missing.
    """
    try:
        return make_object(context, changed)
    except RetryError as error:
        raise _half_stored(error) from error


def _half_stored(error: RetryError) -> OutcomeUnknownError:
    return OutcomeUnknownError(
        f"the topic was changed, but its object may be missing; send the request again to complete it: {error.detail}"
    )


def make_object(context: Context, item: TopicItem) -> TopicItem:
    """Make the object from which the item can be rebuilt, unless it is known to exist.

    The object is made before anything that depends on the item.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError: A store. The item is unchanged.
        CorruptLogError: The objects say that the topic was deleted.
    """
    if item.object_n == item.n:
        return item
    item = Attempts(context.runtime, "the topic's object").until_done(partial(_with_object, context, item))
    known = item._replace(object_n=item.n, version=context.runtime.fresh_version())
    with suppress(StoreFact):  # then the next process that depends on the object checks once more
        put = Put(keys.topic_item(item.topic.name), known.to_value(), known.version, expected=item.version)
        context.items.write([put])
        return known
    return item


def _with_object(context: Context, item: TopicItem) -> TopicItem:
    """Create the item's object; return the item, which gets another number if another change has its number."""
    from fenceline.log.topic_objects import read_topic

    key = keys.topic_key(item.topic.topic_id, item.n)
    value = {name: member for name, member in item.to_value().items() if name != "object_n"}
    body = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    try:
        context.objects.create(key, body, with_checksum(body, {}))
    except AlreadyExists as fact:
        # An earlier attempt made it, or another process that found the item. Or it belongs to an item that was lost
        # since.
        try:
            said = read_topic(context, key)
        except NotFound:
            raise Conflict(f"the sweeper deleted the topic object meanwhile: key={key}") from fact
        if said._replace(version=item.version, object_n=item.object_n) != item:
            return _renumbered(context, item)
    return item


def _renumbered(context: Context, item: TopicItem) -> TopicItem:
    """Give the item the number after its newest object, and make that object.

    Raises:
        ContendedError: The item is no longer the topic's.
        CorruptLogError: The newest object is DELETE's mark, and the item is not marked.
    """
    from fenceline.log.topic_objects import newest_object, read_topic

    newest = newest_object(context, item.topic.topic_id)
    assert newest is not None  # the object with the item's number, or DELETE's mark
    said = read_topic(context, newest)
    if said.is_going and item.is_going:
        return item  # the mark exists, made by this request or another
    if said.is_going:
        found = find(context, item.topic.name)
        if found is None or found.version != item.version:  # a DELETE came meanwhile
            raise _changed_meanwhile(item)
        raise CorruptLogError(f"the items hold a topic that was deleted; rebuild the items: key={newest}")
    version = context.runtime.fresh_version()
    moved = item._replace(n=said.n + 1, object_n=said.n, version=version)
    try:
        # A request that loses this write has an item that is no longer the topic's.
        context.items.write([Put(keys.topic_item(item.topic.name), moved.to_value(), version, expected=item.version)])
    except VersionMoved as fact:
        raise _changed_meanwhile(item) from fact
    return _with_object(context, moved)


def _changed_meanwhile(item: TopicItem) -> ContendedError:
    return ContendedError(f"another request changed the topic meanwhile; send this one again: topic={item.topic.name}")


def _check_partitions(partitions: int) -> None:
    if not 1 <= partitions <= limits.PARTITIONS_MAX:
        raise InvalidRequestError(f"partitions must be from 1 to {limits.PARTITIONS_MAX}", field="partitions")
