"""Appends to a topic by its name: its incarnation, its configuration, and only then the partition's appender.

The rule: a batch is judged by a configuration that may be a little old, but nothing is refused by it: before a refusal
the topic's item is looked at again (DESIGN.md, section 4, "Old knowledge of a topic").
"""

from __future__ import annotations

from functools import partial

from fenceline.append.checks import names_expectation
from fenceline.append.request import AppendRequest, BatchEntry, prepare
from fenceline.errors import FencelineError, InvalidProducerEpochError, OutOfOrderSequenceNumberError
from fenceline.log import topics
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition
from fenceline.model.results import Appended
from fenceline.model.topic import Topic
from fenceline.service.resolver import (
    INCARNATIONS_PER_REQUEST,
    Known,
    PartitionResolver,
    always_another_incarnation,
    translate_store_facts,
)
from fenceline.service.sender import Sender, Sent


class Producing:
    """Appends for one process."""

    def __init__(self, context: Context, resolver: PartitionResolver, item_age_ms: int) -> None:
        self._context = context
        self._resolver = resolver
        self._item_age_ms = item_age_ms
        self._sender = Sender(context, resolver.appender_of)
        self.grants = self._sender.grants

    def append(
        self,
        topic: str,
        partition: int,
        request: AppendRequest,
        acks: int,
        principal: str,
        until_ms: int,
        *,
        topic_id: str | None = None,
    ) -> Appended | None:
        """Append one batch; acknowledged, it is in the object store and will be read back.

        Args:
            acks: With 0 the answer is ``None`` whatever becomes of the batch, once its partition was found.
            principal: Who sends it, as the session's must be; ``""`` without authorization.
            until_ms: When the caller stops waiting, on the monotonic clock.
            topic_id: The one incarnation that may take the batch; ``None``: whichever the name leads to.

        Raises:
            FencelineError: As API.md says under "Produce".
        """
        for _ in range(INCARNATIONS_PER_REQUEST):
            known, is_new = translate_store_facts(partial(self._resolved, topic, partition, topic_id))
            if topic_id not in (None, known.item.topic.topic_id):
                break  # another incarnation, whose number of partitions may differ
            try:
                sent = Sent(request.session, principal, until_ms)
                appended = translate_store_facts(partial(self._append, known, partition, request, sent, is_new=is_new))
                return None if acks == 0 else appended
            except StaleTopicId:
                self._resolver.forget(topic, known.item)
            except FencelineError:
                if acks == 0:
                    return None
                raise
        if acks == 0:
            return None
        raise always_another_incarnation(topic)

    def _resolved(self, topic: str, partition: int, topic_id: str | None) -> tuple[Known, bool]:
        """Return the topic as ``Resolver.resolve``; one that lacks the partition of its own incarnation only after a
        look.

        What is remembered may be older than the look that placed the batch, if another thread's was slow. By an older
        item nobody sees that the topic's object still lacks that partition.
        """
        if topic_id is None:
            return self._resolver.resolve(topic, partition)
        known, is_new = self._resolver.resolve(topic, 0)
        if known.item.topic.topic_id == topic_id and partition >= known.item.topic.partitions:
            return self._resolver.look(topic), True
        return known, is_new

    def _append(self, known: Known, partition: int, request: AppendRequest, sent: Sent, *, is_new: bool) -> Appended:
        if known.item.object_n != known.item.n:
            # Its maker died in between. What is acknowledged under it must be found by a rebuild.
            topics.make_object(self._context, known.item)
            self._resolver.forget(known.item.topic.name)
        appender = self._resolver.appender(known.item.topic, partition)
        entry = self.prepared(appender.partition, known.item.topic, request, is_new=is_new)
        try:
            return self._sender.send(appender, entry, sent)
        except (InvalidProducerEpochError, OutOfOrderSequenceNumberError):
            # What was remembered of the producer lapses by the topic's configuration, which may be old.
            entry = prepare(appender.partition.look().topic, request, self._context.runtime.now_ms())
            return self._sender.send(appender, entry, sent)

    def prepared(self, partition: Partition, topic: Topic, request: AppendRequest, *, is_new: bool) -> BatchEntry:
        """Judge by the topic's configuration: a refusal, and any expectation, only after a look of this request."""
        now_ms = self._context.runtime.now_ms
        if not is_new and (self._item_age_ms == 0 or names_expectation(request.expected_offset)):
            topic, is_new = partition.look().topic, True
        try:
            return prepare(topic, request, now_ms())
        except FencelineError:
            if is_new:
                raise
        self._resolver.forget(topic.name)
        return prepare(partition.look().topic, request, now_ms())
