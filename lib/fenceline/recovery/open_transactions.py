"""The transactions that a rebuild finds open, and the items that let each process that meets one end it ("Rebuild").

Rule: coordinators' items are not in the log, so an open transaction is aborted, unless a kept log shows its COMMIT.
Then all of it is committed, because a reader may have seen a part of it. As far as the kept logs go, all partitions
show the outcome that one has shown.

Not here: the end itself, by the serving processes (``transactions.finish``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fenceline import limits
from fenceline.format import control
from fenceline.format.segment import Segment
from fenceline.log.context import Context
from fenceline.log.state import PartitionState
from fenceline.model.topic import Topic
from fenceline.model.transaction import PREPARE_ABORT, PREPARE_COMMIT, ProducerPair
from fenceline.ports import Put
from fenceline.transactions.item import ProducerIdItem, TopicPartitions, TransactionItem


class _Place(NamedTuple):
    """A partition where a transaction is open."""

    topic: Topic
    partition: int
    time: int  # ms, of its first batch there


class OpenTransactions:
    """The open transactions, and the commits, in the logs that were read so far."""

    def __init__(self) -> None:
        self._open: dict[ProducerPair, list[_Place]] = defaultdict(list)
        # A bit for each epoch: a log may hold very many commits.
        self._committed: dict[int, int] = defaultdict(int)

    def __len__(self) -> int:
        return len(self._open)

    def note_commits(self, segment: Segment) -> None:
        """Note the COMMIT markers of a segment that was folded."""
        for at, header in segment.batches:
            if header.is_control and header.producer_id >= 0:
                marker = control.parse_marker(segment.body, at, header)
                if marker.type == control.COMMIT:
                    self._committed[header.producer_id] |= 1 << header.producer_epoch

    def note_end(self, topic: Topic, partition: int, state: PartitionState) -> None:
        """Note the transactions that are open at the end of a partition."""
        for producer_id, transaction in state.open_transactions.items():
            pair = ProducerPair(producer_id, transaction.producer_epoch)
            self._open[pair].append(_Place(topic, partition, transaction.time))

    def changes(self, context: Context) -> Iterator[list[Put]]:
        """Yield the items of each open transaction, which belong into one write.

        The log of a producer id that is open at several epochs was damaged before. Its item then leads to the first of
        them, so that the later ones do not count as hanging, and the sweeper's thorough round ends them.
        """
        first = {pair.producer_id: pair for pair in sorted(self._open, reverse=True)}
        now_ms = context.runtime.now_ms()
        for pair, places in self._open.items():
            item = self._item(pair, places, now_ms)
            puts = [item.put(context.runtime)]
            if first[pair.producer_id] == pair:
                known = ProducerIdItem(pair.producer_id, item.transactional_id, now_ms)
                puts.append(known.put(context.runtime))
            yield puts

    def _item(self, pair: ProducerPair, places: list[_Place], now_ms: int) -> TransactionItem:
        producer_id, epoch = pair[0], pair[1] + 1
        is_commit = bool(self._committed.get(producer_id, 0) >> epoch & 1)
        return TransactionItem(
            f"recovered-{pair.producer_id}-{pair.producer_epoch}",
            producer_id,
            epoch,
            PREPARE_COMMIT if is_commit else PREPARE_ABORT,
            limits.TRANSACTION_TIMEOUT_MS_DEFAULT,
            started_at=min(place.time for place in places),
            decided_at=now_ms,
            updated_at=now_ms,
            partitions=tuple(_by_topic(places)),
            is_fenced=True,  # the epoch that the producer's own coordinator gave it is lost
        )


def _by_topic(places: list[_Place]) -> Iterator[TopicPartitions]:
    topics: Mapping[str, Topic] = {place.topic.topic_id: place.topic for place in places}
    for topic_id, topic in topics.items():
        numbers = sorted(place.partition for place in places if place.topic.topic_id == topic_id)
        yield TopicPartitions(topic_id, topic.name, tuple(numbers))
