"""One poll for many partitions: what is new in any of them, and where to read next (contract, "One poll for
many partitions").

Rule: every answer comes from verified tails (I4). An answer is empty only after a look at every partition, and each of
these looks began after the request arrived. Each position is judged and read alone, by the code of a plain read or of a
subscription's (``_read_at``), so one that is refused does not stop the others.

Not here: how a page is filled (``read.reader``, ``subscriptions.read``), and the answer's bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeAlias, cast

from fenceline import limits
from fenceline.errors import CorruptLogError, FencelineError
from fenceline.groups import member_guard
from fenceline.log.context import Context, StaleTopicId
from fenceline.log.partition import Partition, Watch
from fenceline.log.polls import Poll
from fenceline.log.tail import Tail, tails_found
from fenceline.model.requests import PollPosition, PollRequest, ReadRequest
from fenceline.model.results import BatchPage, Bounds, Page, PageT, PollAnswer, PollEntry
from fenceline.model.topic import LEGAL_NAME, Topic, unknown_topic
from fenceline.ports import Unavailable
from fenceline.read.answer_bounds import AnswerBounds
from fenceline.read.reader import PartitionReader
from fenceline.service.resolver import PartitionResolver
from fenceline.service.subscriptions import Subscriptions

ReadPage: TypeAlias = Callable[[Partition, ReadRequest, "Tail | None"], PageT]
"""A reader of one page, which begins with the partition's verified tail where that is given."""

_PAGES_FIRST = 4  # read side by side at first: a reader that is behind fills the answer from a few partitions


class Polling:
    """Polls of the partitions of all topics. Safe to share between threads.

    Args:
        held: Ends a due transaction that holds a reader of a partition up; see ``PartitionReader``.
    """

    def __init__(
        self,
        context: Context,
        resolver: PartitionResolver,
        subscriptions: Subscriptions,
        held: Callable[[Partition, Tail], bool],
    ) -> None:
        self.context = context
        self.resolver = resolver
        self.subscriptions = subscriptions
        self._held = held

    def poll(self, request: PollRequest, *, principal: str = "") -> PollAnswer[Page]:
        """Return the partitions that have something to say: records, a moved position, or an error.

        Hold an empty answer back for up to ``wait_ms``, until there is something to say.
        """

        def read(partition: Partition, asked: ReadRequest, tail: Tail | None) -> Page:
            return self._reader(partition).page(asked, tail=tail)

        return _Poll(self, request, principal, read).answer()

    def poll_batches(self, request: PollRequest, *, principal: str = "") -> PollAnswer[BatchPage]:
        """Return whole batches, otherwise as ``poll``. No position may have a subscription."""

        def read(partition: Partition, asked: ReadRequest, tail: Tail | None) -> BatchPage:
            return self._reader(partition).batches(asked, tail=tail)

        return _Poll(self, request, principal, read).answer()

    def _reader(self, partition: Partition) -> PartitionReader:
        return PartitionReader(partition, partial(self._held, partition))


class _Entry:
    """One position of a poll.

    Attributes:
        partition: Where it leads to, once that is known.
        tail: The partition's verified tail, for the next page alone.
        seen: The end of the log as the last page showed it; -1 if a look has failed since.
    """

    def __init__(self, position: PollPosition, *, is_committed: bool) -> None:
        self.position = position
        self.partition: Partition | None = None
        self.tail: Tail | None = None
        self.seen = 0
        self._is_committed = is_committed

    def end_of(self, bounds: Bounds) -> int:
        """Return the end of the log, as the request's isolation shows it."""
        return bounds.last_stable_offset if self._is_committed else bounds.next_offset

    @property
    def has_moved(self) -> bool:
        """Return True if the process has seen the end of the log move since the last page."""
        if self.partition is None:
            return False
        state = self.partition.state
        return (state.last_stable_offset(0) if self._is_committed else state.next_offset) > self.seen

    @property
    def is_held_up(self) -> bool:
        """Return True if an open transaction keeps the reader from records."""
        if self.partition is None or not self._is_committed:
            return False
        state = self.partition.state
        return state.last_stable_offset(0) < state.next_offset

    @property
    def is_at_end(self) -> bool:
        """Return True if a look has shown that there is nothing to read, so that a page costs no call."""
        return self.tail is not None and self.position.offset == self.end_of(self.tail.bounds)


class _Poll(Generic[PageT]):
    """One request."""

    def __init__(
        self,
        polling: Polling,
        request: PollRequest,
        principal: str,
        read: ReadPage[PageT],
    ) -> None:
        self._context, self._runtime = polling.context, polling.context.runtime
        self._resolver, self._subscriptions = polling.resolver, polling.subscriptions
        self._request = request
        self._principal = principal
        self._read_page: ReadPage[PageT] = read
        self._entries = [_Entry(one, is_committed=request.is_read_committed) for one in request.positions]
        self._work_until_ms = self._runtime.monotonic_ms() + limits.POLL_WORK_MS

    def answer(self) -> PollAnswer[PageT]:
        until_ms = self._runtime.monotonic_ms() + self._request.wait_ms
        answer = self._ask(self._entries)
        if answer.entries or not self._request.wait_ms:
            return answer
        with self._context.poll() as poll:
            return self._hold(poll, until_ms)

    # Asking

    def _ask(self, entries: Sequence[_Entry]) -> PollAnswer[PageT]:
        """Look at these positions, in order, and return what they have to say, as far as the bounds go."""
        bounds = AnswerBounds(self._request.max_records, self._request.max_bytes)
        said: list[PollEntry[PageT]] = []
        for entry, page in self._pages(entries, bounds):
            is_full = False
            if page is not None:
                fitting = page if isinstance(page, FencelineError) else bounds.fit(page)
                if fitting is None:
                    return PollAnswer(said, has_more=True)
                said.append(_said(entry, fitting))
                is_full = bounds.is_full or fitting is not page
            is_late = bool(said) and self._runtime.monotonic_ms() >= self._work_until_ms
            if (is_full or is_late) and entry is not entries[-1]:
                return PollAnswer(said, has_more=True)
        return PollAnswer(said, has_more=False)

    def _pages(
        self, entries: Sequence[_Entry], bounds: AnswerBounds
    ) -> Iterator[tuple[_Entry, PageT | FencelineError | None]]:
        """Yield each position with its page, with its error, or with ``None`` if it has nothing to say.

        Those that may have something to read are read a few at once, because what does not fit the answer was fetched
        for nothing.
        """
        at_once = _PAGES_FIRST
        for at in range(0, len(entries), limits.POLL_LOOKS_AT_ONCE):
            wave = entries[at : at + limits.POLL_LOOKS_AT_ONCE]
            self._look(wave)
            while wave:
                room = limits.POLL_BODIES_BYTES // (max(bounds.bytes, 1) + limits.SEGMENT_BYTES_MAX)
                some = _some(wave, max(min(at_once, room), 1))
                records, size = max(bounds.records, 1), max(bounds.bytes, 1)
                calls = [partial(self._page, entry, records, size) for entry in some]
                yield from zip(some, self._runtime.gather(calls), strict=True)
                wave = wave[len(some) :]
                at_once *= 2

    def _look(self, entries: Sequence[_Entry]) -> None:
        """Look at those positions that no subscription reads, all of them together.

        A look that fails is left to the page, which looks by itself and can judge a failure.
        """
        plain = [one for one in entries if one.position.subscription is None]
        topics = self._topics({one.position.topic for one in plain})
        looked: list[tuple[_Entry, Partition]] = []
        for entry in plain:
            topic, number = topics.get(entry.position.topic), entry.position.partition
            if topic is not None and 0 <= number < topic.partitions:
                looked.append((entry, self._resolver.partition(topic, number)))
        tails = tails_found([partition for _, partition in looked])
        for (entry, partition), tail in zip(looked, tails, strict=True):
            entry.partition, entry.tail = partition, tail

    def _topics(self, names: set[str]) -> dict[str, Topic]:
        """Return the topics of these names as they are remembered, or after a look at those that are not."""

        def find(name: str) -> Topic | None:
            with suppress(FencelineError, Unavailable):
                return self._resolver.resolve(name, 0)[0].item.topic
            return None

        legal = sorted(name for name in names if LEGAL_NAME.fullmatch(name))
        found = zip(legal, self._runtime.gather([partial(find, name) for name in legal]), strict=True)
        return {name: topic for name, topic in found if topic is not None}

    def _page(self, entry: _Entry, max_records: int, max_bytes: int) -> PageT | FencelineError | None:
        """Return what one position has to say; ``None`` for nothing."""
        asked = self._request.page_of(entry.position, max_records, max_bytes)
        try:
            start, page = self._read_at(entry, asked)
        except FencelineError as error:
            return error
        finally:
            entry.tail = None
        entry.seen = entry.end_of(page.bounds)
        # A page with nothing to show has moved its position wherever it passed anything.
        return None if page.position == start else page

    def _read_at(self, entry: _Entry, asked: ReadRequest) -> tuple[int, PageT]:
        """Judge one position as its reader, and return where its page begins, and the page.

        Raises:
            FencelineError: The position is refused. Nothing of it is shown.
        """
        position = entry.position
        name, number = position.topic, position.partition
        if not LEGAL_NAME.fullmatch(name):
            raise unknown_topic(name)
        if position.subscription is not None:
            found = self._subscriptions.read_from(
                name,
                number,
                position.subscription,
                asked,
                require_stable=position.require_stable,
                principal=self._principal,
                topic_id=position.topic_id,
            )
            entry.partition = found.partition
            return found.start, cast(PageT, found.page)

        def read(partition: Partition) -> PageT:
            tail = entry.tail if partition is entry.partition else None
            entry.partition, entry.tail = partition, None
            return member_guard.guarded(
                partition, asked, self._principal, lambda: self._read_page(partition, asked, tail)
            )

        page = self._resolver.with_partition(name, number, read, topic_id=position.topic_id)
        return position.offset or 0, page

    # Holding

    def _hold(self, poll: Poll, until_ms: int) -> PollAnswer[PageT]:
        """Hold the request until there is something to say, or until its time is over. It takes one slot."""
        runtime, watch = self._runtime, Watch(self._runtime)
        watched: set[Partition] = set()
        try:
            pause_ms = self._pause_ms(limits.POLL_AGAIN_MS)
            look_ms = runtime.monotonic_ms() + pause_ms
            meet_ms = runtime.monotonic_ms() + limits.POLL_LAST_MS
            while True:
                self._watch(watch, watched)
                moved = [one for one in self._entries if one.has_moved]
                if runtime.monotonic_ms() >= meet_ms:
                    # The page ends the transaction that holds it up, where that is due.
                    moved = [one for one in self._entries if one.has_moved or one.is_held_up]
                    meet_ms = runtime.monotonic_ms() + limits.POLL_LAST_MS
                if moved:
                    answer = self._ask(moved)
                    if answer.entries:
                        return answer
                now_ms = runtime.monotonic_ms()
                left_ms = until_ms - now_ms
                if left_ms <= 0 or self._context.stopping.is_set or not poll.may_wait(left_ms):
                    return PollAnswer([], has_more=False)
                if now_ms < look_ms:
                    watch.wait(min(left_ms, look_ms - now_ms))
                    self._work_until_ms += runtime.monotonic_ms() - now_ms
                    continue
                self._look_again()
                pause_ms = self._pause_ms(2 * pause_ms)
                look_ms = runtime.monotonic_ms() + pause_ms
        finally:
            for partition in watched:
                partition.unwatch(watch)

    def _watch(self, watch: Watch, watched: set[Partition]) -> None:
        """Have changes of all partitions wake the request. A topic that was replaced has others."""
        for entry in self._entries:
            if entry.partition is not None and entry.partition not in watched:
                entry.partition.watch(watch)
                watched.add(entry.partition)

    def _pause_ms(self, wanted_ms: int) -> int:
        """Return the pause before the next look, within the bounds of the service and of the request."""
        longest_ms = limits.POLL_LAST_MS
        if self._request.max_delay_ms is not None:
            longest_ms = min(longest_ms, max(self._request.max_delay_ms, limits.POLL_FIRST_MS))
        return min(wanted_ms, longest_ms)

    def _look_again(self) -> None:
        """Look for the next segment of each partition, without a look at the items."""

        def look(entry: _Entry) -> None:
            try:
                if entry.partition is not None and not entry.has_moved:
                    entry.partition.look()
            except (StaleTopicId, CorruptLogError, Unavailable):
                entry.seen = -1  # moved, so that its page is read, which can judge a failure

        for at in range(0, len(self._entries), limits.POLL_LOOKS_AT_ONCE):
            some = self._entries[at : at + limits.POLL_LOOKS_AT_ONCE]
            self._runtime.gather([partial(look, entry) for entry in some])


def _some(wave: Sequence[_Entry], bodies_max: int) -> Sequence[_Entry]:
    """Return the first of these positions, of which up to ``bodies_max`` may have something to read."""
    bodies = 0
    for at, entry in enumerate(wave):
        bodies += not entry.is_at_end
        if bodies > bodies_max:
            return wave[:at]
    return wave


def _said(entry: _Entry, page: Any) -> PollEntry[Any]:
    position = entry.position
    topic_id = "" if entry.partition is None else entry.partition.topic_id
    return PollEntry(position.topic, position.partition, page, topic_id)
