"""Names of topics, resolved to the lives that they lead to, and each partition's appender.

The rule: a name is resolved by a look at its item, and what was remembered of an earlier incarnation is dropped when
the log itself says that it ended (DESIGN.md, section 4, "Old knowledge of a topic"). Store facts become errors here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from fenceline import limits
from fenceline.append.appender import Appender
from fenceline.append.appenders import Appenders
from fenceline.errors import ContendedError, OutcomeUnknownError, StoreUnavailableError
from fenceline.log import topics
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.log.retry import no_room
from fenceline.log.topic_item import TopicItem
from fenceline.model import topic as model_topic
from fenceline.model.topic import Topic
from fenceline.ports import ItemTooLarge, NoAnswer, Unavailable, VersionMoved

T = TypeVar("T")

INCARNATIONS_PER_REQUEST = 3  # how often one request follows its topic into a new incarnation


@dataclass(frozen=True, slots=True)
class Known:
    """A topic as it was seen, and when the look began."""

    item: TopicItem
    seen: Instant


class PartitionResolver:
    """What one process knows of topics. Safe to share between threads.

    Args:
        item_age_ms: How old a topic's item may be that an append is judged by; 0 looks on each append.
    """

    def __init__(self, context: Context, item_age_ms: int) -> None:
        self._context = context
        # Where each append looks for itself, the name's id may be as old as anywhere: that look would tell.
        self._age_ms = item_age_ms or limits.ITEM_AGE_MS_MAX
        self._lock = context.runtime.lock()
        self._known: dict[str, Known] = {}
        self.appenders = Appenders(context)

    def resolve(self, name: str, partition: int) -> tuple[Known, bool]:
        """Return the topic by what is known of it, and whether this looked; an unknown one only after a look."""
        known = self._known.get(name)
        is_new = known is None or not self._is_young(known) or not 0 <= partition < known.item.topic.partitions
        if known is None or is_new:
            known = self.look(name)
        if not 0 <= partition < known.item.topic.partitions:
            raise model_topic.unknown_partition(known.item.topic, partition)
        return known, is_new

    def _is_young(self, known: Known) -> bool:
        return self._context.is_within(self._age_ms, known.seen)

    def look(self, name: str) -> Known:
        """Return the topic from a look that began after the call."""
        began = self._context.instant()
        known = Known(topics.get(self._context, name), began)
        with self._lock:
            if len(self._known) >= limits.TOPICS_CACHED_MAX:
                self._known.clear()
            self._known[name] = known
        return known

    def forget(self, name: str, ended: TopicItem | None = None) -> None:
        """Look anew when the name is used next; of an incarnation that has ended keep nothing."""
        with self._lock:
            self._known.pop(name, None)
        if ended is not None:
            self.appenders.forget(ended.topic.topic_id, ended.topic.partitions)

    def appender(self, topic: Topic, partition: int) -> Appender:
        return self.appenders.of(topic.name, topic.topic_id, partition)

    # Into new lives

    def with_partition(self, name: str, partition: int, use: Callable[[Partition], T]) -> T:
        """Use a partition of the topic of that name, by what is known of it."""
        for _ in range(INCARNATIONS_PER_REQUEST):
            known, _ = translate_store_facts(lambda: self.resolve(name, partition))
            try:
                return translate_store_facts(partial(use, self.appender(known.item.topic, partition).partition))
            except StaleTopicId:
                self.forget(name, known.item)
        raise always_another_incarnation(name)

    def with_partitions(self, name: str, numbers: range, use: Callable[[Topic, Sequence[Partition]], T]) -> T:
        """Use those of these partitions that the topic of that name has, by a fresh look at it."""
        for _ in range(INCARNATIONS_PER_REQUEST):
            known = translate_store_facts(lambda: self.look(name))
            topic = known.item.topic
            wanted = range(numbers.start, min(numbers.stop, topic.partitions))
            partitions = [self.appender(topic, number).partition for number in wanted]
            try:
                return translate_store_facts(partial(use, topic, partitions))
            except StaleTopicId:
                self.forget(name, known.item)
        raise always_another_incarnation(name)

    def in_incarnation(self, name: str, use: Callable[[Topic], T]) -> T:
        """Use the topic of that name, from a fresh look, with all that a rebuild needs to find it."""
        for _ in range(INCARNATIONS_PER_REQUEST):
            known = translate_store_facts(lambda: topics.make_object(self._context, self.look(name).item))
            try:
                return translate_store_facts(partial(use, known.topic))
            except StaleTopicId:
                self.forget(name)
        raise always_another_incarnation(name)


def in_incarnations(use: Callable[[], T]) -> T:
    """Use several topics, each from a fresh look."""
    for _ in range(INCARNATIONS_PER_REQUEST):
        with suppress(StaleTopicId):
            return translate_store_facts(use)
    raise ContendedError("a topic is being deleted and created again; send it again")


def always_another_incarnation(name: str) -> ContendedError:
    return ContendedError(f"the topic is being deleted and created again; send it again: topic={name}")


def translate_store_facts(call: Callable[[], T]) -> T:
    """Make a call, and tell what a store did as the error that its caller is answered."""
    try:
        return call()
    except Unavailable as fact:
        raise StoreUnavailableError(f"a store could not be reached; send it again: {fact}") from fact
    except VersionMoved as fact:
        raise ContendedError(f"others were faster; send it again: {fact}") from fact
    except ItemTooLarge as fact:
        raise no_room(fact, "the request") from fact
    except NoAnswer as fact:
        raise OutcomeUnknownError(f"a store did not answer; look before sending it again: {fact}") from fact
