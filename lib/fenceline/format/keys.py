"""The keys of all objects and items: each key's format and its parser, side by side ("Objects", "Items").

Rule: stored keys are never renamed or renumbered.

Not here: the contents, which are in these modules:

- An object's content: ``segment``, ``log.replay`` (state), ``log.compacted_view``, ``log.topic_item`` (topic).
- The items of a topic: ``log.topic_item`` (topic), ``log.topics`` (gone).
- The items of a partition: ``log.checkpoint_items`` (head, producer id, aborted, long aborted), ``access.rules``
  (access).
- The items of access: ``access.session_item``, ``access.producer`` (named), ``access.claims.snapshot`` (tickets).
- The items of ownership: ``access.resources`` (ownership, lock).
- The items of combining: ``append.combining.offers`` (round, offer).
- The item of a partition's links to other regions: ``regions.link_item``.
- The items of subscriptions: ``subscriptions.items`` (subscription, cursor, chunk).
- The item of cursors without a subscription: ``subscriptions.lifecycle`` (unowned).
- The items of transactions: ``transactions.item`` (transaction, producer id).
- The item of an application's version: ``transactions.committed_version`` (once).
- The items of groups: ``groups.group_item`` (group), ``groups.member_item`` (member).
- The service's own items: ``transactions.producer_ids``, ``log.polls``, ``sweeper.position``, ``recovery.rebuild``.
- The attributes of an item in a table: ``adapters.aws.dynamodb``, ``adapters.sqlite.items``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from fenceline.format.partitioner import COORDINATOR_SHARDS, coordinator_shard
from fenceline.ports import ItemKey

LEGAL_ID = re.compile(r"[A-Za-z0-9_-]{1,32}", re.ASCII)  # a topic's or snapshot's, as another region may send it

# Object store


def log_prefix(topic_id: str, partition: int) -> str:
    return f"log/{topic_id}/{partition:05d}/"


def topic_log_prefix(topic_id: str) -> str:
    return f"log/{topic_id}/"


segment_name = "{:020d}.log".format  # takes a base offset; follows the log's prefix in the segment's key


def segment_key(topic_id: str, partition: int, base_offset: int) -> str:
    return log_prefix(topic_id, partition) + segment_name(base_offset)


def parse_segment_key(key: str) -> tuple[str, int, int]:
    """Return (topic_id, partition, base_offset).

    Raises:
        ValueError: ``key`` is no segment's key.
    """
    kind, topic_id, partition, name = key.split("/")
    if kind != "log" or not name.endswith(".log"):
        raise ValueError(key)
    return topic_id, int(partition), int(name.removesuffix(".log"))


def state_prefix(topic_id: str, partition: int) -> str:
    return f"state/{topic_id}/{partition:05d}/"


def state_key(topic_id: str, partition: int, log_start: int) -> str:
    return f"state/{topic_id}/{partition:05d}/{log_start:020d}.json"


def parse_state_key(key: str) -> tuple[str, int, int]:
    """Return (topic_id, partition, log_start).

    Raises:
        ValueError: ``key`` is no state object's key.
    """
    kind, topic_id, partition, name = key.split("/")
    if kind != "state" or not name.endswith(".json"):
        raise ValueError(key)
    return topic_id, int(partition), int(name.removesuffix(".json"))


def compacted_prefix(topic_id: str, partition: int) -> str:
    return f"compacted/{topic_id}/{partition:05d}/"


def view_prefix(topic_id: str, partition: int, horizon: int, attempt: str) -> str:
    """Return the prefix of one attempt at a compacted view. Two attempts at one horizon share no file."""
    return f"compacted/{topic_id}/{partition:05d}/{horizon:020d}/{attempt}/"


def compacted_key(topic_id: str, partition: int, horizon: int, attempt: str, base_offset: int) -> str:
    return f"compacted/{topic_id}/{partition:05d}/{horizon:020d}/{attempt}/{base_offset:020d}.log"


def parse_compacted_key(key: str) -> tuple[str, int, int, str, int]:
    """Return (topic_id, partition, horizon, attempt, base_offset).

    Raises:
        ValueError: ``key`` is no key of a compacted view's file.
    """
    kind, topic_id, partition, horizon, attempt, name = key.split("/")
    if kind != "compacted" or not name.endswith(".log"):
        raise ValueError(key)
    return topic_id, int(partition), int(horizon), attempt, int(name.removesuffix(".log"))


TOPIC_PREFIX = "topic/"
# The kinds of an incarnation's objects, except its topic objects. The topic_id follows each.
TOPIC_ID_PREFIXES = ("log/", "state/", "compacted/")


def topic_id_prefixes(topic_id: str) -> tuple[str, ...]:
    return tuple(f"{prefix}{topic_id}/" for prefix in TOPIC_ID_PREFIXES)


def parse_topic_id(key: str) -> str:
    """Return the topic_id, which follows the kind in the key of any incarnation's object."""
    return key.split("/")[1]


def topic_prefix(topic_id: str) -> str:
    return f"topic/{topic_id}/"


def topic_key(topic_id: str, n: int) -> str:
    return f"topic/{topic_id}/{n:010d}.json"


def parse_topic_key(key: str) -> tuple[str, int]:
    """Return (topic_id, n).

    Raises:
        ValueError: ``key`` is no topic object's key.
    """
    kind, topic_id, name = key.split("/")
    if kind != "topic" or not name.endswith(".json"):
        raise ValueError(key)
    return topic_id, int(name.removesuffix(".json"))


CLOCK_PREFIX = "clock/"


def clock_key(fresh_id: str) -> str:
    """Return the key of an object that is made, listed and deleted, to find out the store's time."""
    return f"{CLOCK_PREFIX}{fresh_id}"


PROBE_PREFIX = "probe/"  # begins the keys of objects that try a store before it is used, and are deleted again


# Item store

TOPICS = "topics"
GONE = "gone"


def topic_item(name: str) -> ItemKey:
    return ItemKey(TOPICS, name)


def gone_item(topic_id: str) -> ItemKey:
    """Return the key of a deleted incarnation's item, which exists until all of it is collected."""
    return ItemKey(GONE, topic_id)


def partition_items(topic_id: str, partition: int) -> str:
    return f"partition/{topic_id}/{partition:05d}"


def parse_partition_items(key: ItemKey) -> tuple[str, int]:
    """Return the (topic_id, partition) to which an item of a partition belongs."""
    _, topic_id, partition = key.partition.split("/")
    return topic_id, int(partition)


def head_item(topic_id: str, partition: int) -> ItemKey:
    return ItemKey(partition_items(topic_id, partition), "head")


PRODUCER_SORT = "producer/"
ABORTED_SORT = "aborted/"
LONG_ABORTED_SORT = "long-aborted/"


def producer_item(topic_id: str, partition: int, producer_id: int) -> ItemKey:
    return ItemKey(partition_items(topic_id, partition), f"{PRODUCER_SORT}{producer_id:020d}")


def parse_producer_item(key: ItemKey) -> int:
    """Return the producer id."""
    return int(key.sort.removeprefix(PRODUCER_SORT))


def aborted_sort(last_offset: int) -> str:
    return f"{ABORTED_SORT}{last_offset:020d}"


def aborted_item(topic_id: str, partition: int, last_offset: int) -> ItemKey:
    return ItemKey(partition_items(topic_id, partition), aborted_sort(last_offset))


def long_aborted_prefix(length_class: int) -> str:
    return f"{LONG_ABORTED_SORT}{length_class:02d}/"


def long_aborted_sort(length_class: int, last_offset: int) -> str:
    return f"{long_aborted_prefix(length_class)}{last_offset:020d}"


def long_aborted_item(topic_id: str, partition: int, length_class: int, last_offset: int) -> ItemKey:
    """Return the key of a long aborted transaction's second item, by which it is found among many short ones."""
    return ItemKey(partition_items(topic_id, partition), long_aborted_sort(length_class, last_offset))


def ownership_item(topic_id: str, partition: int, group: str | None) -> ItemKey:
    """Return the key of a partition's ownership: for write access, or for a group's reads and commits."""
    return ItemKey(partition_items(topic_id, partition), "own" if group is None else f"own/{group}")


def parse_ownership_item(key: ItemKey) -> str | None:
    """Return the group; ``None`` for write access."""
    return key.sort.removeprefix("own/") if key.sort != "own" else None


def lock_item(group: str | None, resource: str) -> ItemKey:
    """Return the key of the ownership of a string that guards no partition. No group differs from every group."""
    return ItemKey("own" if group is None else f"own/{group}", resource)


def access_item(topic_id: str, partition: int) -> ItemKey:
    """Return the key of a partition's access: its holders, its waiters, and the highest epoch ever reserved."""
    return ItemKey(partition_items(topic_id, partition), "access")


def link_item(topic_id: str, partition: int) -> ItemKey:
    """Return the key of a partition's link item: the lease of a replicator, its notes, and the state of the peers."""
    return ItemKey(partition_items(topic_id, partition), "link")


def round_item(topic_id: str, partition: int) -> ItemKey:
    """Return the key of a partition's round: the offers that may be committed next, and those that are done."""
    return ItemKey(partition_items(topic_id, partition), "round")


def offer_items(topic_id: str, partition: int) -> str:
    """Return the partition key of the offers: batches that any process may commit."""
    return f"offers/{topic_id}/{partition:05d}"


def offer_item(topic_id: str, partition: int, offered_at: int, offer_id: str) -> ItemKey:
    return ItemKey(offer_items(topic_id, partition), f"{offered_at:013d}-{offer_id}")


def offer_sort_from(offered_at: int) -> str:
    """Return the sort key that follows all offers made before this time (ms)."""
    return f"{max(offered_at, 0):013d}"


def parse_offer_item(key: ItemKey) -> str:
    """Return the offer's id."""
    return key.sort.partition("-")[2]


SESSION_SHARDS = "0123456789abcdef"
SESSION_ID_CHARS = 32
_SESSION_ID = re.compile(rf"[0-9a-f]{{{SESSION_ID_CHARS}}}", re.ASCII)


def sessions_of(shard: str) -> str:
    """Return the partition key of the sessions whose id begins with this digit."""
    return f"sessions/{shard}"


def session_item(session_id: str) -> ItemKey:
    return ItemKey(sessions_of(session_id[:1]), session_id)


def is_session_id(text: str) -> bool:
    """Return True if a session can have this id, because a caller may send any text."""
    return _SESSION_ID.fullmatch(text) is not None


def producers_of(topic_id: str) -> str:
    """Return the partition key of a topic's named producers."""
    return f"producers/{topic_id}"


def named_producer_item(topic_id: str, producer_name: str) -> ItemKey:
    return ItemKey(producers_of(topic_id), producer_name)


def tickets_item(topic_id: str) -> ItemKey:
    """Return the key of the counter from which a topic's waiters draw their tickets."""
    return ItemKey(f"tickets/{topic_id}", "next")


def subscription_items(topic_id: str) -> str:
    return f"subscriptions/{topic_id}"


def subscription_item(topic_id: str, name: str) -> ItemKey:
    return ItemKey(subscription_items(topic_id), name)


def unowned_items(topic_id: str) -> str:
    return f"unowned/{topic_id}"


def unowned_item(topic_id: str, subscription_id: str) -> ItemKey:
    """Return the key of the item that names cursors which no subscription has, not yet or no longer."""
    return ItemKey(unowned_items(topic_id), subscription_id)


def cursor_items(name: str) -> str:
    """Return the partition key of all items of a group, over all topics."""
    return f"cursors/{name}"


def cursors_prefix(topic_id: str, subscription_id: str) -> str:
    return f"{topic_id}/{subscription_id}/"


def cursors_end(topic_id: str) -> str:
    """Return a sort key after all items of a group on one incarnation of a topic."""
    return f"{topic_id}/~"


def cursor_item(name: str, topic_id: str, subscription_id: str, partition: int) -> ItemKey:
    return ItemKey(cursor_items(name), f"{cursors_prefix(topic_id, subscription_id)}{partition:05d}")


def parse_cursor_item(key: ItemKey) -> tuple[str, str, int]:
    """Return (topic_id, subscription_id, partition)."""
    topic_id, subscription_id, partition = key.sort.split("/")
    return topic_id, subscription_id, int(partition)


def chunk_items(subscription_id: str) -> str:
    return f"acknowledged/{subscription_id}"


def chunk_item(subscription_id: str, partition: int, chunk_id: str) -> ItemKey:
    """Return the key of some of the ranges of a cursor that has many."""
    return ItemKey(chunk_items(subscription_id), f"{partition:05d}/{chunk_id}")


def transactions_of(shard: int) -> str:
    """Return the partition key of the transactions of one coordinator shard."""
    return f"transactions/{shard:02d}"


@lru_cache(maxsize=1_024)  # because each request needs its own several times
def transaction_item(transactional_id: str) -> ItemKey:
    return ItemKey(transactions_of(coordinator_shard(transactional_id)), transactional_id)


def transactional_ids_of(shard: int) -> str:
    """Return the partition key of the producer ids that a transactional id has or had, by ``id mod 50``."""
    return f"producer-ids/{shard:02d}"


def transactional_id_item(producer_id: int) -> ItemKey:
    """Return the key of the item with the transactional id to which a producer id was given."""
    return ItemKey(transactional_ids_of(producer_id % COORDINATOR_SHARDS), f"{producer_id:020d}")


def parse_transactional_id_item(key: ItemKey) -> int:
    """Return the producer id."""
    return int(key.sort)


ONCE_SHARDS = [f"once/{shard:02d}" for shard in range(COORDINATOR_SHARDS)]  # the partition keys of the versions


def once_item(app_id: str) -> ItemKey:
    """Return the key of an application's committed version, in the shard of a transactional id of that name."""
    return ItemKey(ONCE_SHARDS[coordinator_shard(app_id)], app_id)


def groups_of(shard: int) -> str:
    """Return the partition key of the groups of one coordinator shard."""
    return f"groups/{shard:02d}"


def group_item(group: str) -> ItemKey:
    return ItemKey(groups_of(coordinator_shard(group)), group)


MEMBER_SORT, CHUNK_SORT = "members/", "chunks/"


def member_items(group: str) -> str:
    """Return the partition key of a group's members, which is not the group's own, so that heartbeats don't contend."""
    return f"group/{group}"


def member_item(group: str, member_id: str) -> ItemKey:
    return ItemKey(member_items(group), MEMBER_SORT + member_id)


def parse_member_item(key: ItemKey) -> tuple[str, str]:
    """Return (group, member_id)."""
    return key.partition.removeprefix("group/"), key.sort.removeprefix(MEMBER_SORT)


def group_chunk(group: str, chunks: str, number: int) -> ItemKey:
    """Return the key of a part of a classic group's metadata and assignments."""
    return ItemKey(member_items(group), f"{CHUNK_SORT}{chunks}/{number:04d}")


def poll_slot_item(function: str, number: int) -> ItemKey:
    """Return the key of one of a function's poll slots."""
    return ItemKey(f"polls/{function}", f"{number:05d}")


ANY_GROUP = ItemKey("groups", "any")  # exists once any group was made, so that a sweeper without groups asks no shard
PRODUCER_ID_BLOCK = ItemKey("producer-ids", "next")
SWEEP_CURSOR = ItemKey("sweep", "cursor")
REBUILDING = ItemKey("rebuild", "under-way")  # exists until a rebuild is done
