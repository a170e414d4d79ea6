"""Rebuild: writes all items again, from the objects alone, after the items were lost (protocol, "Rebuild").

Rule: a rebuild runs before anything is served, into an empty item store, where an item says that the rebuild is under
way, from its first write to its last. Topics, heads, producers and aborted transactions come from the objects. The id
counter goes above every producer id that any state knows. A transaction that is open in a head gets items that decide
it (``open_transactions``). Afterwards every incarnation that is not going can be reached. Where two have one name,
because a lost topic was created again, the newest keeps the name, and the others get fresh ones.

Not here: subscriptions, group offsets, sessions, ownerships and transactional ids, which are lost, because they are not
in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, islice

from fenceline import limits
from fenceline.errors import TopicAlreadyExistsError
from fenceline.format import keys
from fenceline.log.checkpoint_items import Head, aborted_items, producer_to_value
from fenceline.log.context import Context
from fenceline.log.replay import Replay, begin, segments
from fenceline.log.topic_item import TopicItem
from fenceline.log.topic_objects import read_topic
from fenceline.model.topic import Topic
from fenceline.ports import Change, Delete, ItemKey, ItemValue, Put, VersionMoved
from fenceline.recovery.lost_items import LostIncarnation, lost_segments, newest_objects
from fenceline.recovery.open_transactions import OpenTransactions

NOT_EMPTY = (
    "rebuild writes only into an empty item store; end every server, and move items.sqlite3 away or name an empty table"
)


@dataclass(frozen=True, slots=True)
class Namesake:
    """One of several incarnations that had the same name."""

    topic: Topic  # under its present name
    name: str  # its name before
    records: int


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The findings of a rebuild in the objects."""

    topics: int
    partitions: int
    segments: int
    records: int
    namesakes: Sequence[Namesake] = ()
    lost: Sequence[LostIncarnation] = ()  # incarnations with segments whose topic no object names
    transactions: int = 0  # found open, and decided


def rebuild(context: Context, *, on_progress: Callable[[str, int, int], object] = lambda *_: None) -> Rebuilt:
    """Write all items again.

    Args:
        on_progress: Called with (topic, partition, offset reached) after each segment.

    Raises:
        TopicAlreadyExistsError: The item store is not empty. Nothing was written, unless a rebuild that was cut off
            wrote it.
        CorruptLogError: A segment is damaged. Items that were written before are true.
        Unavailable, NoAnswer: A store failed; start again with an empty item store.
    """
    _check_empty(context)
    found = _topics(context)
    under_way = Put(keys.REBUILDING, {}, context.runtime.fresh_version(), expected=None)
    _write(context, [under_way])
    named = _named([item for item in found if not item.is_going])
    shared = set(named.renamed.values())
    namesakes: list[Namesake] = []
    partitions = segment_count = records = 0
    producer_id_max = -1
    open_ = OpenTransactions()
    for item in named.incarnations:
        topic, records_before = item.topic, records
        for partition in range(topic.partitions):
            replay = begin(context, topic.topic_id, partition)
            for _, segment in segments(context, topic.topic_id, partition, replay.state.next_offset):
                replay.feed(segment, region=context.region)
                open_.note_commits(segment)
                on_progress(topic.name, partition, segment.next_offset)
                segment_count += 1
            open_.note_end(topic, partition, replay.state)
            _write(context, _partition_items(context, item, partition, replay))
            partitions += 1
            records += replay.state.records
            producer_id_max = max(producer_id_max, *replay.producers, -1)
        name = named.renamed.get(topic.topic_id, topic.name)
        if name in shared:
            namesakes.append(Namesake(topic, name, records - records_before))
    _write_each(context, open_.changes(context))
    first = producer_id_max + 1 + limits.PRODUCER_IDS_AFTER_REBUILD
    changes = [_put(context, keys.PRODUCER_ID_BLOCK, {"next": first})]
    # An incarnation that is going counts as gone, because no request can reach it, and it waits to be collected.
    changes += [_put(context, keys.gone_item(i.topic.topic_id), i.to_value()) for i in found if i.is_going]
    changes += [_put(context, keys.topic_item(i.topic.name), i.to_value()) for i in named.incarnations]
    _write(context, [*changes, Delete(under_way.key, under_way.version)])
    lost = tuple(lost_segments(context))
    return Rebuilt(len(named.incarnations), partitions, segment_count, records, tuple(namesakes), lost, len(open_))


def _check_empty(context: Context) -> None:
    has_some = any(context.items.query(partition, limit=1) for partition in (keys.TOPICS, keys.GONE))
    if is_cut_off(context):
        raise TopicAlreadyExistsError(f"the item store holds what is left of a rebuild that was cut off; {NOT_EMPTY}")
    if has_some or context.items.get([keys.PRODUCER_ID_BLOCK]):
        raise TopicAlreadyExistsError(f"the item store holds topics, or did; {NOT_EMPTY}")


def is_cut_off(context: Context) -> bool:
    """Return True if a rebuild has begun and is not done, so that the items are true, but incomplete."""
    return keys.REBUILDING in context.items.get([keys.REBUILDING])


def _topics(context: Context) -> list[TopicItem]:
    """Return each incarnation, as its newest topic object describes it, in the order of their creation."""
    items = [read_topic(context, key) for key in newest_objects(context)]
    return sorted(items, key=lambda item: (item.topic.created_at, item.topic.topic_id))


@dataclass(frozen=True, slots=True)
class _Named:
    """Incarnations, each under a name of its own."""

    incarnations: Sequence[TopicItem]
    renamed: Mapping[str, str]  # topic id -> the name before


def _named(incarnations: Sequence[TopicItem]) -> _Named:
    """Leave each name to the newest incarnation that has it, and rename the others.

    A renamed one still has to make its next topic object.
    """
    newest = {item.topic.name: item for item in incarnations}
    named, renamed = dict(newest), {}
    for item in incarnations:
        topic = item.topic
        if newest[topic.name] is not item:
            name = _fresh_name(topic, named)
            renamed[topic.topic_id] = topic.name
            named[name] = item._replace(topic=replace(topic, name=name), n=item.n + 1, object_n=item.n)
    return _Named(tuple(named.values()), renamed)


def _fresh_name(topic: Topic, taken: Container[str]) -> str:
    suffixes = (f".recovered-{topic.topic_id[:n]}" + "-" * (n - len(topic.topic_id)) for n in count(8))
    names = (topic.name[: limits.TOPIC_NAME_CHARS_MAX - len(suffix)] + suffix for suffix in suffixes)
    return next(name for name in names if name not in taken)


def _partition_items(context: Context, item: TopicItem, partition: int, replay: Replay) -> list[Change]:
    topic_id, state = item.topic.topic_id, replay.state
    changes = [
        _put(context, key, value)
        for ended in replay.aborted
        for key, value in aborted_items(topic_id, partition, ended)
    ]
    changes += [
        _put(context, keys.producer_item(topic_id, partition, p), producer_to_value(known, state.next_offset))
        for p, known in replay.producers.items()
    ]
    head = Head(state, replay.log_start, long_aborted_from=0)
    changes.append(_put(context, keys.head_item(topic_id, partition), head.to_value()))
    return changes


def _put(context: Context, key: ItemKey, value: Mapping[str, ItemValue]) -> Change:
    return Put(key, value, context.runtime.fresh_version(), expected=None)


def _write_each(context: Context, writes: Iterator[list[Put]]) -> None:
    """Make many writes, some side by side, because items of transactions may be so large that few fit one write."""
    while chunk := list(islice(writes, limits.FETCH_SEGMENTS)):
        context.runtime.gather([partial(_write, context, changes) for changes in chunk])


def _write(context: Context, changes: Sequence[Change]) -> None:
    for at in range(0, len(changes), limits.TRANSACTION_ITEMS_MAX):
        try:
            context.items.write(changes[at : at + limits.TRANSACTION_ITEMS_MAX])
        except VersionMoved as error:
            what = "the item store holds what is left of a rebuild that was cut off, or another process writes to it"
            raise TopicAlreadyExistsError(f"{what}; {NOT_EMPTY}") from error
