"""The reads of a request about ownership: sessions, topics, ownerships, access, and the ends of logs.

Rule: each request reads the topic's item to find out whether a resource guards a partition, because no memory may
decide that.

Not here: the changes of the request (``decision``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from fenceline.access import fence_markers, session_item
from fenceline.access.ownership.decision import FoundResource
from fenceline.access.resources import OwnershipItem, Resource, partition_named
from fenceline.access.rules import AccessItem, PartitionAccess, access_from_item
from fenceline.access.session_item import SessionItem, judge_live, session_from_item
from fenceline.format import keys
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.state import PartitionState
from fenceline.log.tail import verified_tail
from fenceline.log.topic_item import topic_from_item
from fenceline.ports import Item, ItemKey, VersionMoved

Items = Mapping[ItemKey, Item]


def read_claimer(
    partitions: Partitions, session_id: str, principal: str, named: Sequence[ItemKey]
) -> tuple[SessionItem, Items]:
    """Return the claimer's session, live and its principal's, and the items at ``named``, all from one call.

    Raises:
        UnknownSessionError, NotAuthorizedError, SessionSeveredError, SessionExpiredError: In this order.
        Unavailable: The item store could not be asked.
    """
    context = partitions.context
    key = keys.session_item(session_id) if keys.is_session_id(session_id) else None
    found = context.items.get([*named, *([] if key is None else [key])])
    session = session_from_item(found[key]) if key is not None and key in found else None
    if session is not None:
        fence_markers.finish_all(partitions, [session])
    return judge_live(session, session_id, principal, context.runtime.now_ms()), found


def keys_named(names: Iterable[str], group: str | None) -> list[ItemKey]:
    """Return the keys of the topics that resources name, and of their ownerships in case they are plain strings."""
    places = [(name, partition_named(name)) for name in names]
    topics = {keys.topic_item(place[0]): None for _, place in places if place is not None}
    return [*topics, *(keys.lock_item(group, name) for name, _ in places)]


def resolve(name: str, group: str | None, named: Items) -> Resource:
    """Return the resource that a name leads to now: a partition, if one has that name, else a plain string."""
    place = partition_named(name)
    item = None if place is None else named.get(keys.topic_item(place[0]))
    if place is None or item is None:
        return Resource(name, group)
    topic, partition = topic_from_item(item), place[1]
    if topic.is_going or partition >= topic.topic.partitions:
        return Resource(name, group)
    return Resource(name, group, topic.topic.topic_id, topic.topic.name, partition)


def read_found(partitions: Partitions, resources: Sequence[Resource], named: Items) -> list[FoundResource]:
    """Return each resource's items, and the verified tail of each partition whose write access is one.

    Args:
        named: The items at ``keys_named``.

    Raises:
        VersionMoved: A topic was deleted meanwhile, so the resources must be resolved again.
        CorruptLogError: A partition's log is damaged.
        Unavailable: A store could not be asked.
    """
    context = partitions.context
    written = [resource for resource in resources if resource.is_write_access]
    access_keys = {one: keys.access_item(one.topic_id, one.partition) for one in written}
    wanted = [*(one.key for one in resources if not one.is_plain), *access_keys.values()]
    items = {**named, **(context.items.get(wanted) if wanted else {})}

    def state_of(resource: Resource) -> PartitionState:
        partition = partitions.get(resource.topic, resource.topic_id, resource.partition)
        try:
            return verified_tail(partition).state
        except StaleTopicId as error:
            raise VersionMoved(keys.topic_item(resource.topic)) from error

    states = context.runtime.gather([partial(state_of, one) for one in written])
    views = {
        one: PartitionAccess(one.partition, access_from_item(items.get(access_keys[one])), state)
        for one, state in zip(written, states, strict=True)
    }
    return [FoundResource(one, OwnershipItem.from_item(items.get(one.key)), views.get(one)) for one in resources]


def read_owners(partitions: Partitions, found: Iterable[FoundResource]) -> dict[str, SessionItem]:
    """Return the sessions that these resources name, once the fences of the severed ones are finished.

    They include the sessions that a former owner severed for the resources, because the former owner may have crashed
    before their fences, and a request that is granted replaces them by the sessions that it severs.

    Raises:
        StoreUnavailableError, ContendedError, OutcomeUnknownError, CorruptLogError: As ``fence_markers.finish``.
        Unavailable: The item store could not be asked.
    """
    wanted = {one for resource in found for one in (*resource.session_ids(), *resource.item.severed)}
    return fence_markers.read_fenced(partitions, wanted)


def read_held(context: Context, session: SessionItem, count: int) -> dict[tuple[str, int], AccessItem]:
    """Return the access items of all holds of a session, if with ``count`` more it might hold too much.

    Raises:
        Unavailable: The item store could not be asked.
    """
    wanted = {place: keys.access_item(*place) for place in session_item.crowded(session, count)}
    found = context.read_items(list(wanted.values()))
    return {place: access_from_item(found.get(key)) for place, key in wanted.items()}
