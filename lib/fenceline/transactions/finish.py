"""The end of a transaction whose outcome is decided: markers, pending offsets, then Complete* ("Ending a transaction").

Rule: Complete* is written only once every marker is durable and every pending offset is settled (I12, I14). Only that
write changes an item that is prepared (I10).

Rule: no finisher needs a lease. Several processes may finish one transaction, and one that thaws late changes nothing,
because a marker is judged at exactly its offset, a pending offset is settled once, and one Complete* wins.

Not here: the decision (``decide``), and the requests that finish a transaction (``coordinator``, ``joint_end``,
``end_due``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from fenceline import limits
from fenceline.append.admission_answer import AskCoordinator, CoordinatorAnswer
from fenceline.append.appender import appender_of
from fenceline.append.entries.transaction_markers import EndEntry
from fenceline.errors import ConcurrentTransactionsError, CorruptLogError, OutcomeUnknownError, RetryError
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partitions
from fenceline.log.retry import Attempts
from fenceline.ports import Unavailable
from fenceline.transactions import item_store
from fenceline.transactions.decide import completed
from fenceline.transactions.item import SubscriptionCursors, TopicPartitions, TransactionItem


def finish(
    partitions: Partitions, item: TransactionItem, until_ms: int, *, first: tuple[str, int] | None = None
) -> TransactionItem:
    """Finish a prepared transaction, and return its item as it is then: Complete*.

    Args:
        item: The item as it was read or written, PrepareCommit or PrepareAbort.
        until_ms: When the caller stops waiting, on the monotonic clock.
        first: The (topic_id, partition) whose marker comes before the others.

    Raises:
        ConcurrentTransactionsError: A part is left to the next finisher.
        CorruptLogError: A partition is damaged, and has no marker. The transaction stays prepared.
    """
    return finish_all(partitions, [item], until_ms, first=first)[0]


def finish_all(
    partitions: Partitions,
    items: Sequence[TransactionItem],
    until_ms: int,
    *,
    first: tuple[str, int] | None = None,
) -> Sequence[TransactionItem]:
    """Finish those of the transactions that are prepared, and return all items as they are then; see ``finish``.

    A transaction that a damaged partition keeps prepared holds up none of the others.
    """
    context = partitions.context
    endings = [_Ending(partitions, item, until_ms) for item in items if item.is_prepared]
    markers = [_Part(one, partial(_end, one, place, number)) for one, place, number in _places(endings, first)]
    cursors = [
        _Part(one, partial(_settle, context, one.item, cursor, number))
        for one in endings
        for cursor in one.item.cursors
        for number in cursor.partitions
    ]
    _make(context, [markers, cursors], until_ms)
    # model: Transaction, "Complete after the markers"
    # model: Transaction, "Complete after the cursors"
    done = [one for one in endings if not one.left]
    ended = context.runtime.gather([partial(_complete, context, one.item) for one in done])
    left = [fact for one in endings for fact in one.left]
    for fact in left:
        if isinstance(fact, CorruptLogError):
            raise fact
    if left:
        raise unfinished(str(left[0])) from left[0]
    completions = {item.transactional_id: item for item in ended}
    return [completions.get(item.transactional_id, item) for item in items]


def unfinished(why: str) -> ConcurrentTransactionsError:
    """Return the answer to a request whose time is over before the transaction is finished."""
    return ConcurrentTransactionsError(
        f"the previous transaction of this id is still being finished; send the same request again: {why}"
    )


class _Ending:
    """The ending of one transaction, shared by its parts."""

    def __init__(self, partitions: Partitions, item: TransactionItem, until_ms: int) -> None:
        self.partitions = partitions
        self.context = partitions.context
        self.item = item
        self.until_ms = until_ms
        self.entry = EndEntry(item.producer_id, item.producer_epoch, item.is_commit)
        self.left: list[Exception] = []  # why some parts are not done
        self.is_past = False  # True once the item is no longer prepared with this outcome: then every part is done

    def is_still_prepared(self) -> bool:
        """Return True if the item is still prepared, so that no marker of a later transaction is in any log."""
        found = item_store.read(self.context, self.item.transactional_id)
        if found is None or not is_same_outcome(found, self.item):
            self.is_past = True
        return not self.is_past


class _Part(NamedTuple):
    """A part of the ending of one transaction: ``make`` returns why it is not done."""

    ending: _Ending
    make: Callable[[], Exception | None]


def _places(
    endings: Sequence[_Ending], first: tuple[str, int] | None
) -> Sequence[tuple[_Ending, TopicPartitions, int]]:
    """Return the places of all markers, those of one partition one after the other, so that they share a segment."""
    places = [(one, place, number) for one in endings for place in one.item.partitions for number in place.partitions]
    if len(endings) > 1:
        places.sort(key=lambda place: (place[1].topic_id, place[2]))
    return places if first is None else sorted(places, key=lambda place: (place[1].topic_id, place[2]) != first)


def _make(context: Context, kinds: Sequence[Sequence[_Part]], until_ms: int) -> None:
    """Do the parts, those of each kind in order and 32 at a time, and note why some are not done.

    A part that takes long holds up none of the others. No part begins with less time left than a create may take.
    """
    runtime, lock = context.runtime, context.runtime.lock()

    def work(parts: Iterator[_Part]) -> None:
        while True:
            with lock:
                part = next(parts, None)
            if part is None:
                return
            has_time = until_ms - runtime.monotonic_ms() > context.create_ms
            fact = part.make() if has_time else unfinished("the request's time is over")
            if fact is not None:
                with lock:
                    part.ending.left.append(fact)

    workers = [
        partial(work, parts)
        for kind in kinds
        for parts in [iter(kind)]
        for _ in range(min(len(kind), limits.MARKERS_AT_ONCE))
    ]
    runtime.gather(workers)


def is_same_outcome(found: TransactionItem, item: TransactionItem) -> bool:
    """Return True if ``found`` is prepared with the pair and the outcome of ``item``. Each is prepared once (I10)."""
    return found.pair == item.pair and found.state == item.state


def _end(ending: _Ending, place: TopicPartitions, number: int) -> Exception | None:
    """Append the marker of one partition, unless it is there or the transaction is past; return why it is not done."""
    context, entry = ending.context, ending.entry
    appender = appender_of(ending.partitions, place.topic, place.topic_id, number)
    try:
        while not ending.is_past:
            answer = appender.append(entry, ending.until_ms)
            if not isinstance(answer, AskCoordinator):
                return None
            # "Ending a transaction": the item is read after the fold by which the marker was judged, because a later
            # marker of this producer, whose item has expired there, must not be followed by this one (I12).
            asked = context.instant()
            if ending.is_still_prepared():
                entry = replace(entry, prepared=CoordinatorAnswer(context, asked, answer.seen))
        return None
    except StaleTopicId:
        return None  # the incarnation has ended, and nothing follows SEAL
    except (RetryError, OutcomeUnknownError, CorruptLogError, Unavailable) as fact:
        return fact


def _settle(context: Context, item: TransactionItem, cursors: SubscriptionCursors, number: int) -> Exception | None:
    """Settle one cursor; return why it is not done."""
    # Imported here, so that a batch whose admission finds a prepared transaction without offsets loads nothing of
    # subscriptions.
    from fenceline.transactions import pending_offsets

    try:
        pending_offsets.settle(
            context, cursors, number, item.producer_id, item.producer_epoch, is_commit=item.is_commit
        )
    except (RetryError, OutcomeUnknownError, Unavailable) as fact:
        return fact
    return None


def _complete(context: Context, item: TransactionItem) -> TransactionItem:
    """Write Complete*, unless another finisher has; return the item as either has written it.

    Raises:
        ConcurrentTransactionsError: It may not be written yet.
    """
    prepared, is_read = item, True
    try:
        attempts = Attempts(context.runtime, "the transaction")
        while True:
            with attempts:
                if not is_read:
                    found = item_store.read(context, item.transactional_id)
                    if found is None or not is_same_outcome(found, item):
                        break  # another finisher has completed it
                    prepared = found
                is_read = False
                # I12, I14: every part is done. A finisher that loses this write finds it completed.
                return item_store.write(context, completed(prepared, context.runtime.now_ms())).item
    except (RetryError, OutcomeUnknownError) as error:
        raise unfinished(error.detail) from error
    done = completed(prepared, context.runtime.now_ms()).item
    return replace(done, version=None if prepared.version is None else prepared.version + 1)
