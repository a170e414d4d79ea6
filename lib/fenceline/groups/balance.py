"""A balance of partitions over members: each topic's rows, and how many partitions of all topics each member has.

Rule: within one topic the counts of its subscribers differ by at most one. With ``least`` partitions for each of them,
some members have one more, an extra. The choice of these members balances all topics together.

Not here: the subscribers of each topic (``groups.assignors``).
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from fenceline.groups.group_item import GroupTopic, Target


class Balance:
    """Rows of partitions under way, by topic id.

    Args:
        totals: How many partitions of all topics each member has so far.
    """

    def __init__(self, totals: dict[str, int]) -> None:
        self.rows: dict[str, list[str | None]] = {}
        self._totals = totals
        self._counts: dict[str, Counter[str]] = {}
        self._shares: dict[str, tuple[int, int]] = {}

    def keep(self, subscribers: Sequence[str], topics: Iterable[GroupTopic], last: Target) -> None:
        """Keep what the topics' subscribers had in the last target, as far as each topic's balance permits it."""
        known = frozenset(subscribers)
        for topic in topics:
            was = [one if one in known else None for one in last.get(topic.topic_id, ())[: topic.partitions]]
            row = [*was, *[None] * (topic.partitions - len(was))]
            counts = Counter(one for one in row if one is not None)
            least, extras = divmod(topic.partitions, len(subscribers))
            for member_id, count in counts.items():
                self._totals[member_id] += count
            self._cut(row, counts, least, extras)
            self.rows[topic.topic_id], self._counts[topic.topic_id] = row, counts
            self._shares[topic.topic_id] = least, extras

    def _cut(self, row: list[str | None], counts: Counter[str], least: int, extras: int) -> None:
        over = sorted((one for one in counts if counts[one] > least), key=lambda one: (self._totals[one], one))
        share = {one: least + (at < extras) for at, one in enumerate(over)}
        if all(counts[one] == most for one, most in share.items()):
            return
        for partition in range(len(row) - 1, -1, -1):
            one = row[partition]
            if one is not None and one in share and counts[one] > share[one]:
                row[partition] = None
                counts[one] -= 1
                self._totals[one] -= 1

    def fill(self, subscribers: Sequence[str], topic_ids: Sequence[str]) -> None:
        """Give what no member has: first to those with less than ``least`` of a topic, then to those with least."""
        for topic_id in topic_ids:
            least, counts = self._shares[topic_id][0], self._counts[topic_id]
            if least:
                needy = [one for one in subscribers for _ in range(least - counts[one])]
                for one, partition in zip(needy, self._free(topic_id), strict=False):
                    self._give(topic_id, partition, one)
        lowest = _Lowest(self._totals, subscribers)
        for topic_id in topic_ids:
            for partition in self._free(topic_id):
                taker = lowest.outside(self._holders(topic_id))
                self._give(topic_id, partition, taker)
                lowest.changed(taker)

    def even_out(self, subscribers: Sequence[str], topic_ids: Sequence[str]) -> bool:
        """Move extras from who has most of all topics to who has least, and return True if one was moved."""
        has_moved = False
        lowest = _Lowest(self._totals, subscribers)
        while (most := max(self._totals[one] for one in subscribers)) - self._totals[lowest.outside(())] > 1:
            # The member with most gives first, because one in the middle that gave would have to be given to again.
            for giving in (most, 0):
                moves = [self._even_out_topic(topic_id, lowest, len(subscribers), giving) for topic_id in topic_ids]
                if any(moves):
                    has_moved = True
                    break
            else:
                break
        return has_moved

    def _even_out_topic(self, topic_id: str, lowest: _Lowest, subscribers: int, giving: int) -> bool:
        has_moved = False
        while 0 < len(holders := self._holders(topic_id)) < subscribers:
            giver = max(holders, key=lambda one: (self._totals[one], one))
            if self._totals[giver] < max(giving, self._totals[lowest.outside(())] + 2):
                break
            taker = lowest.outside(holders)
            if self._totals[giver] - self._totals[taker] < 2:
                break
            partition = max(at for at, one in enumerate(self.rows[topic_id]) if one == giver)
            self._counts[topic_id][giver] -= 1
            self._totals[giver] -= 1
            self._give(topic_id, partition, taker)
            lowest.changed(giver)
            lowest.changed(taker)
            has_moved = True
        return has_moved

    def _free(self, topic_id: str) -> list[int]:
        return [partition for partition, one in enumerate(self.rows[topic_id]) if one is None]

    def _holders(self, topic_id: str) -> set[str]:
        """Return who has an extra of the topic."""
        least = self._shares[topic_id][0]
        return {one for one, count in self._counts[topic_id].items() if count > least}

    def _give(self, topic_id: str, partition: int, member_id: str) -> None:
        self.rows[topic_id][partition] = member_id
        self._counts[topic_id][member_id] += 1
        self._totals[member_id] += 1


class _Lowest:
    """The member with the lowest total, then the lowest id, without a look at all of them each time."""

    def __init__(self, totals: dict[str, int], members: Iterable[str]) -> None:
        self._totals = totals
        self._heap = [(totals[one], one) for one in members]
        heapq.heapify(self._heap)

    def changed(self, member_id: str) -> None:
        heapq.heappush(self._heap, (self._totals[member_id], member_id))

    def outside(self, taken: Collection[str]) -> str:
        """Return the lowest member that is not in ``taken``; there is one."""
        passed: list[tuple[int, str]] = []
        while True:
            total, one = self._heap[0]
            if total != self._totals[one]:  # an entry of before a change; the newer one is in the heap, too
                heapq.heappop(self._heap)
            elif one in taken:
                passed.append(heapq.heappop(self._heap))
            else:
                break
        for entry in passed:
            heapq.heappush(self._heap, entry)
        return one
