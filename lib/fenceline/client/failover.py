"""A subscriber of several regions, which moves from one to another by itself (contract, "Regions").

Rule: the subscriber reads in one region at a time, and acknowledges a record only in the region where it was read.

- It leaves a region that is silent for 10 s, and fails over to the next one.

- It moves at once to the subscription's ``active_region``, provided that this region answers.

- It fails back only by ``active_region`` or by ``move_to``, and never by itself.

- In the next region it drops the records whose acknowledgement a region has confirmed, which it recognizes by
  their identity, and acknowledges them there, too.

- An acknowledgement without an answer is not carried over to another region, so its records are shown again.

Because offsets differ from region to region, the caller acknowledges records, which say where they were read, and not
offsets.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fenceline import errors, limits
from fenceline.backoff import Backoff
from fenceline.client.api import ApiClient
from fenceline.client.calls import WrongValueError, call, check_here, public
from fenceline.client.identities import Memory
from fenceline.client.region_reader import UNUSABLE, RegionalRecord, RegionReader, Wanted, answered, enter, read_in
from fenceline.client.transport import log
from fenceline.model.kinds import Isolation
from fenceline.model.results import ReadRecord

SILENT_MS = 10_000
_PROBE_MS = 2_000  # for each request to a region that only advice leads to
_PROBE_BACKOFF = Backoff(SILENT_MS, max_ms=60_000, jitter=0)


@dataclass(slots=True)
class _Advice:
    """An advised region that is left out at present, and the time from which on it is tried again (None: never).

    Attributes:
        overruled: Earlier advice, which the caller overruled by ``move_to`` and of which the new region may still
            learn.
    """

    region: str | None = None
    not_before_ms: int | None = 0
    overruled: str | None = None
    failures: int = 0


@call
def subscribe_with_failover(
    topic: str,
    name: str,
    *,
    regions: Sequence[ApiClient],
    partitions: Sequence[int] | None = None,
    follow: bool = True,
    isolation: Isolation = "read_uncommitted",
    max_records: int = limits.RECORDS_DEFAULT,
    silent_ms: int = SILENT_MS,
) -> FailoverSubscriber:
    """Return a subscriber that reads in the first region that answers; the caller closes it.

    A missing subscription is created at earliest, and replicated.

    Args:
        regions: A client for each region, in the order in which they are tried.
        partitions: Left out, all. A subscriber that follows then also reads those that are added, within 60 s.
        follow: Never end, and wait for new records.
        isolation: As for ``Client.reader``.
        silent_ms: How long a region may give no usable answer before the subscriber leaves it.

    Raises:
        InvalidRequestError: There is no region.
        UnknownTopicOrPartitionError: The topic exists in no region that answers.
        StoreUnavailableError: No region answers.
    """
    if not regions:
        raise WrongValueError("there is no region; give a client for each", field="regions")
    wanted = Wanted(topic, name, partitions, follow, isolation, max_records, silent_ms)
    return FailoverSubscriber(regions, wanted)


@public
class FailoverSubscriber:
    """An iterator over a subscription in several regions, and a context manager that closes it.

    ``subscribe_with_failover`` makes it. Iterating yields ``(partition, record)``, and ``pages`` the same in lists.
    It is for one thread; others may call ``move_to`` and ``close``, and read the counters. The logger ``fenceline``
    warns of each move.

    Attributes:
        dropped: How many records were not shown again, because a region had acknowledged them.
        repeated: How many records were shown again.
        moves: How often the subscriber moved.
    """

    def __init__(self, clients: Sequence[ApiClient], wanted: Wanted) -> None:
        self.dropped = 0
        self.repeated = 0
        self.moves = 0
        self._clients = clients
        self._wanted = wanted
        self._runtime = clients[0].runtime
        self._names: dict[int, str] = {}  # the region of each client that is known, by the client's index
        self._memory: defaultdict[int, Memory] = defaultdict(Memory)
        self._rest: tuple[int, Iterator[RegionalRecord]] | None = None  # unread end of a page
        self._is_handing = False  # records were taken from the stay or the page, and the caller has not got them
        self._told: int | None = None  # the client to go to
        self._advice = _Advice()
        self._at = 0
        self._reader: RegionReader | None = None
        self._stays = 0
        self._dropped: tuple[int, Sequence[int]] | None = None  # from the last page; to be acknowledged here
        self._is_silent = False
        self._is_closed = False
        self._enter_one_of(range(len(clients)), why="begin")

    def __enter__(self) -> FailoverSubscriber:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def region(self) -> str | None:
        """Return the name of the region that is read; ``None`` while none answers."""
        reader = self._reader
        return None if reader is None else reader.region

    def close(self) -> None:
        """End the iteration, and ask for no further page."""
        self._is_closed = True
        if (reader := self._reader) is not None:
            reader.close()

    def __iter__(self) -> Iterator[tuple[int, RegionalRecord]]:
        """Yield each record with its partition.

        Raises:
            StoreUnavailableError: No region answers. Iterate again: no record is lost.
            UnknownSubscriptionError: The subscription was deleted.
            FencelineError: The region refused a request.
        """
        try:
            while (page := self._page()) is not None:
                partition, records = page
                if (record := next(records, None)) is None:
                    self._rest, self._is_handing = None, False
                    continue
                self._note_given(partition, record)
                # No call lies between this and the yield, so no signal is handled there.
                self._is_handing = False
                yield partition, record
        finally:
            self._pause()

    def pages(self) -> Iterator[tuple[int, Sequence[RegionalRecord]]]:
        """Yield records in lists, each with its partition; raises as iterating does."""
        try:
            while (page := self._page()) is not None:
                partition, rest = page
                records = list(rest)
                self._rest = None
                for record in records:
                    self._note_given(partition, record)
                self._is_handing = False
                if records:
                    yield partition, records
        finally:
            self._pause()

    def acknowledge(self, partition: int, record: RegionalRecord) -> bool:
        """Acknowledge every record of ``partition`` up to and including ``record``, in the order of its region.

        Return True if they are acknowledged. If they are not, because the region is silent or the subscriber has left
        it, then they are shown again.

        Raises:
            FencelineError: The region refused the acknowledgement; nothing was acknowledged.
        """
        reader = self._reader
        memory = self._memory[partition]
        if reader is None or record.stay != self._stays:
            return record in memory.acknowledged
        if not self._acknowledge(reader, partition, cumulative=record.offset):
            return False
        for origin, number, count in reader.shown[partition].dequeue(record.offset + 1):
            memory.acknowledged.add(origin, number, count)
        return True

    def acknowledge_individually(self, partition: int, records: Iterable[RegionalRecord]) -> bool:
        """Acknowledge these records only; return True if all are acknowledged. Otherwise as ``acknowledge``."""
        reader = self._reader
        memory = self._memory[partition]
        left = [record for record in records if record not in memory.acknowledged]
        here = [record for record in left if record.stay == self._stays]
        if reader is None:
            return not left
        if here:
            if not self._acknowledge(reader, partition, individual=[record.offset for record in here]):
                return False
            for record in here:
                memory.acknowledged.add_record(record)
        return len(here) == len(left)

    def move_to(self, region: str) -> None:
        """Let the next call for a record go to ``region``, whatever ``active_region`` says now.

        A later change of ``active_region`` is followed again. If ``region`` is silent, the subscriber goes on in
        another one.

        Raises:
            InvalidRequestError: None of the clients that answer is one of ``region``.
        """
        index = self._index_of(region)
        if index is None:
            raise WrongValueError(f"no client that answers is one of this region: region={region}", field="region")
        self._told = index

    def _acknowledge(
        self,
        reader: RegionReader,
        partition: int,
        *,
        cumulative: int | None = None,
        individual: Sequence[int] | None = None,
    ) -> bool:
        if self._is_silent:
            return False
        try:
            reader.acknowledge(partition, cumulative=cumulative, individual=individual)
        except UNUSABLE:
            self._is_silent = True
            return False
        return True

    def _note_given(self, partition: int, record: RegionalRecord) -> None:
        given = self._memory[partition].given
        self.repeated += record in given
        given.add_record(record)

    def _must_leave(self) -> bool:
        return self._reader is None or self._is_silent or self._told is not None or self._is_closed

    def _pause(self) -> None:
        if (reader := self._reader) is not None:
            reader.pause()

    def _page(self) -> tuple[int, Iterator[RegionalRecord]] | None:
        """Return the rest of a page, or the next page; ``None`` at the end."""
        check_here(self)
        if self._is_handing and self._reader is not None:
            # An earlier call failed, or was interrupted, before the caller had the records that were taken. Because a
            # later mark would pass those records, the region is read again from its mark on.
            self._reader.close()
            self._reader = None
        if self._rest is None or self._must_leave():  # the next stay shows what is left of the page
            self._rest = None
            page = self._next_page()
            if page is None:
                return None
            self._rest = (page[0], iter(page[1]))
        self._is_handing = True
        return self._rest

    def _next_page(self) -> tuple[int, Sequence[RegionalRecord]] | None:
        """Return the next page with records that the caller did not acknowledge, or ``None`` at the end."""
        while not self._is_closed:
            reader = self._reader
            if reader is None or self._must_leave():
                self._move()
                continue
            try:
                self._acknowledge_dropped(reader)
                self._is_handing = True
                fetched = reader.next_page()
            except errors.FencelineError as error:
                self._is_handing = False  # the page is fetched again
                if not isinstance(error, UNUSABLE):
                    raise
                self._is_silent = True
                continue
            if fetched is None:
                self._is_handing = False
                if reader.is_over:
                    return None
                continue
            partition, page = fetched
            if self._follows(page.active_region):
                continue  # that region shows the page's records
            if records := self._new_of(reader, partition, page.records):
                return partition, records
        return None

    def _new_of(self, reader: RegionReader, partition: int, records: Sequence[ReadRecord]) -> list[RegionalRecord]:
        """Return the records that are not known to be acknowledged. The next call acknowledges the others here."""
        acknowledged = self._memory[partition].acknowledged
        known = [record.offset for record in records if record in acknowledged]
        if known:
            self._dropped = partition, known
            self.dropped += len(known)
        new: list[RegionalRecord] = []
        for record in records:
            if not known or record not in acknowledged:
                reader.shown[partition].add(record)
                new.append(read_in(reader.region, self._stays, record))
        return new

    def _acknowledge_dropped(self, reader: RegionReader) -> None:
        if self._dropped is not None:
            partition, offsets = self._dropped
            reader.acknowledge(partition, individual=offsets)
            self._dropped = None

    def _move(self) -> None:
        """Move where the caller said, or to the next region that answers, which may be the present one.

        Raises:
            FencelineError: No region takes the subscriber. The next call tries all of them again.
        """
        count, told, is_silent = len(self._clients), self._told, self._is_silent
        left = self._names[self._at]
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if told is None:
            first = self._at + is_silent
            self._enter_one_of([n % count for n in range(first, first + count)], why="silent")
            if is_silent:
                self._advice = _Advice(left, self._runtime.monotonic_ms() + SILENT_MS)
        else:
            self._told = None
            others = [index for index in range(count) if index not in (told, self._at)]
            self._enter_one_of([told, self._at, *others] if told != self._at else [told, *others], why="told")
            if self._at == told:
                self._advice = _Advice(left, None, self._advice.overruled or self._advice.region)

    def _enter_one_of(self, order: Iterable[int], *, why: str) -> None:
        silence: errors.FencelineError | None = None
        refusal: errors.FencelineError | None = None
        for index in order:
            try:
                reader = enter(self._clients[index], self._wanted, self._wanted.silent_ms)
            except UNUSABLE as error:
                silence = error
            except errors.FencelineError as error:
                refusal = refusal or error
            else:
                self._arrive(index, reader, why)
                return
        failure = refusal or silence
        assert failure is not None
        raise failure

    def _arrive(self, index: int, reader: RegionReader, why: str) -> None:
        if why != "begin" and index != self._at:
            self.moves += 1
            log.warning(
                "the subscriber moves: topic=%s subscription=%s from=%s to=%s why=%s",
                self._wanted.topic,
                self._wanted.name,
                self._names.get(self._at),
                reader.region,
                why,
            )
        self._names[index] = reader.region
        # The order matters because a signal may end this: offsets of the earlier stay must not be acknowledged in the
        # new one, and the records that were taken from the earlier stay are owed until the new one begins.
        self._stays += 1
        self._dropped = None
        self._at, self._reader, self._is_silent = index, reader, False
        self._is_handing = False
        if self._is_closed:  # by another thread, which saw only the earlier stay
            reader.close()

    def _follows(self, region: str | None) -> bool:
        """Move to ``region``, where the subscription should be read, if it answers; return True after a move."""
        advice, here = self._advice, self._reader
        if region != advice.region:
            is_overruled = region is not None and region == advice.overruled
            advice = self._advice = _Advice(region, None if is_overruled else 0)
        now = self._runtime.monotonic_ms()
        if region is None or here is None or region == here.region:
            return False
        if advice.not_before_ms is None or now < advice.not_before_ms:
            return False
        index = self._index_of(region)
        try:
            reader = None if index is None else enter(self._clients[index], self._wanted, _PROBE_MS)
        except errors.FencelineError:
            reader = None
        if index is None or reader is None:
            advice.failures += 1
            advice.not_before_ms = self._runtime.monotonic_ms() + round(_PROBE_BACKOFF.pause_ms(advice.failures))
            return False
        here.close()
        self._arrive(index, reader, "advised")
        # Two regions may advise each other for a moment, until the advice has travelled.
        self._advice = _Advice(here.region, now + SILENT_MS)
        return True

    def _index_of(self, region: str) -> int | None:
        """Return the place of the client of ``region``. Clients whose region is not known yet are asked for it."""
        unknown = [index for index in range(len(self._clients)) if index not in self._names]
        for index in [*self._names, *unknown]:
            if index in unknown:
                try:
                    self._names[index] = answered(self._runtime, _PROBE_MS, self._clients[index].region)
                except errors.FencelineError:
                    continue
            if self._names[index] == region:
                return index
        return None
