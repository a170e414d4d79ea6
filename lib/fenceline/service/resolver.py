"""Names of topics, resolved to the incarnations that they lead to, and to their partitions.

Rule: a name is resolved by a look at its item. The memory of an earlier incarnation is dropped when its log itself says
that the incarnation has ended (protocol, "Old knowledge of a topic"). Store facts become errors here.

Not here: the table of partitions (``log.partition``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import wraps
from typing import ParamSpec, TypeVar

from fenceline import limits
from fenceline.errors import ContendedError, FencelineError, OutcomeUnknownError, StoreUnavailableError
from fenceline.log import topics
from fenceline.log.context import Context, Instant, StaleTopicId
from fenceline.log.partition import Partition, Partitions
from fenceline.log.retry import no_room
from fenceline.log.topic_item import TopicItem
from fenceline.model import topic as model_topic
from fenceline.model.topic import Topic
from fenceline.ports import ItemTooLarge, NoAnswer, Unavailable, VersionMoved

P = ParamSpec("P")
T = TypeVar("T")

INCARNATIONS_PER_REQUEST = 3  # followed by one request


def translated(call: Callable[P, T]) -> Callable[P, T]:
    """Have a call raise the error for its caller in place of a store's fact."""

    @wraps(call)
    def translating(*args: P.args, **named: P.kwargs) -> T:
        try:
            return call(*args, **named)
        except Unavailable as fact:
            raise StoreUnavailableError(f"a store could not be reached; send the request again: {fact}") from fact
        except VersionMoved as fact:
            raise ContendedError("other requests changed the same items first; send the request again") from fact
        except ItemTooLarge as fact:
            raise no_room(fact, "the request") from fact
        except NoAnswer as fact:
            what = "a store did not answer, so the change may be made; check before you send it again"
            raise OutcomeUnknownError(f"{what}: {fact}") from fact

    return translating


@dataclass(frozen=True, slots=True)
class Known:
    """A topic as a look found it, and the moment when that look began."""

    item: TopicItem
    seen: Instant


class PartitionResolver:
    """One process's memory of topics, by name. Safe to share between threads.

    Args:
        item_age_ms: The greatest age of a topic's item by which an append is judged; with 0 each append looks.
    """

    def __init__(self, context: Context, item_age_ms: int) -> None:
        self._context = context
        # With 0 each append looks by itself, and its look shows if the name leads elsewhere by now.
        self._age_ms = item_age_ms or limits.ITEM_AGE_MS_MAX
        self._lock = context.runtime.lock()
        self._known: dict[str, Known] = {}
        self.partitions = Partitions(context)

    def resolve(self, name: str, partition: int) -> tuple[Known, bool]:
        """Return the topic as it is remembered, or after a look, and whether this call looked.

        Raises:
            UnknownTopicOrPartitionError: A look of this call found no such topic or partition.
        """
        known = self._known.get(name)
        is_new = known is None or not self._is_young(known) or not 0 <= partition < known.item.topic.partitions
        if known is None or is_new:
            known = self.refresh(name)
        if not 0 <= partition < known.item.topic.partitions:
            raise model_topic.unknown_partition(known.item.topic, partition)
        return known, is_new

    def _is_young(self, known: Known) -> bool:
        return self._context.is_within(self._age_ms, known.seen)

    def remembered(self, name: str, partition: int) -> Partition | None:
        """Return a partition of the topic that is remembered; ``None`` if none is."""
        known = self._known.get(name)
        return None if known is None else self.partition(known.item.topic, partition)

    def refresh(self, name: str) -> Known:
        """Return the topic from a look that began after the call."""
        began = self._context.instant()
        known = Known(topics.get(self._context, name), began)
        with self._lock:
            if len(self._known) >= limits.TOPICS_CACHED_MAX:
                self._known.clear()
            self._known[name] = known
        return known

    def forget(self, name: str, ended: TopicItem | None = None) -> None:
        """Look again when the name is used next, and keep nothing of an incarnation that has ended."""
        with self._lock:
            self._known.pop(name, None)
        if ended is not None:
            self.partitions.forget(ended.topic.topic_id, ended.topic.partitions)

    def partition(self, topic: Topic, partition: int) -> Partition:
        return self.partitions.get(topic.name, topic.topic_id, partition)

    # Calls that follow a name into new incarnations

    def with_partition(
        self, name: str, number: int, use: Callable[[Partition], T], *, topic_id: str | None = None
    ) -> T:
        """Call ``use`` with a partition of the topic of that name, without a look if the topic is remembered.

        Args:
            topic_id: The topic's id, where the caller means one incarnation.

        Raises:
            UnknownTopicIdError: The name leads to a topic with another id, by a look of this call.
        """

        def find() -> TopicItem:
            if topic_id is not None:
                self._check_id(name, topic_id)
            return self.resolve(name, number)[0].item

        try:
            return self._following(name, find, lambda item: use(self.partition(item.topic, number)))
        except FencelineError as error:
            error.name_place(name, number)
            raise

    def _check_id(self, name: str, topic_id: str) -> None:
        """Check that the name leads to the topic with this id; look before it is refused."""
        known = self._known.get(name)
        if known is None or known.item.topic.topic_id != topic_id or not self._is_young(known):
            model_topic.check_topic_id(self.refresh(name).item.topic, topic_id)

    def with_partitions(self, name: str, numbers: range, use: Callable[[Topic, Sequence[Partition]], T]) -> T:
        """Call ``use`` with those of these partitions that the topic of that name has, after a look at it."""

        def using(item: TopicItem) -> T:
            topic = item.topic
            wanted = range(numbers.start, min(numbers.stop, topic.partitions))
            return use(topic, [self.partition(topic, number) for number in wanted])

        return self.with_item(name, using)

    def with_item(self, name: str, use: Callable[[TopicItem], T]) -> T:
        """Call ``use`` with the item of the topic of that name, after a look at it."""
        return self._following(name, lambda: self.refresh(name).item, use)

    def in_incarnation(self, name: str, use: Callable[[Topic], T]) -> T:
        """Call ``use`` with the topic of that name, after a look, and once a rebuild could find the topic."""

        def find() -> TopicItem:
            return topics.make_object(self._context, self.refresh(name).item)

        return self._following(name, find, lambda item: use(item.topic))

    @translated
    def _following(self, name: str, find: Callable[[], TopicItem], use: Callable[[TopicItem], T]) -> T:
        """Call ``use`` with the topic that ``find`` returns, and again where that incarnation has ended meanwhile."""
        for _ in range(INCARNATIONS_PER_REQUEST):
            item = find()
            try:
                return use(item)
            except StaleTopicId:
                self.forget(name, item)
        raise always_another_incarnation(name)


@translated
def in_incarnations(use: Callable[[], T]) -> T:
    """Make a call that looks at several topics, again where an incarnation ended meanwhile."""
    for _ in range(INCARNATIONS_PER_REQUEST):
        with suppress(StaleTopicId):
            return use()
    raise ContendedError("a topic was deleted and created again while the request ran; send the request again")


def always_another_incarnation(name: str) -> ContendedError:
    what = "the topic was deleted and created again while the request ran; send the request again"
    return ContendedError(f"{what}: topic={name}")
