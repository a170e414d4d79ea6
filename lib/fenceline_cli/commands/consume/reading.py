"""The reading of ``fenceline consume``: up to an end that ``--until`` names, and with ``--follow`` through outages.

Rule: records after a partition's end are not asked for, except by a page that is already on its way. While the service
is away the command waits, as ``tail -F`` does for a file. An outage is one line on stderr, however many requests fail.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from fenceline.errors import FencelineError, RetryError
from fenceline_cli.output import describe
from fenceline_cli.positions import Position, end_of

if TYPE_CHECKING:
    from fenceline.client import Client, Reader
    from fenceline.format.batch import StoredRecord
    from fenceline.model.kinds import Isolation
    from fenceline_cli.record_lines import Lines


Readers = Callable[[Mapping[int, int], bool], "AbstractContextManager[Reader]"]


RecordT = TypeVar("RecordT", covariant=True)


class _Pages(Protocol[RecordT]):
    def pages(self) -> Iterator[tuple[int, Sequence[RecordT]]]: ...


@dataclass(frozen=True, slots=True)
class ReadingEnd:
    """The end of one partition's reading.

    Attributes:
        offset: The end lies before this offset; ``None`` if it is not known yet, or there is none.
        time_ms: The end lies before the first record of this time or later, which is not in the log yet.
        is_there: True if all records up to ``offset`` have been written.
    """

    offset: int | None = None
    time_ms: int | None = None
    is_there: bool = False

    @staticmethod
    def of(
        client: Client, topic: str, partition: int, end: Position | None, isolation: Isolation, *, is_following: bool
    ) -> ReadingEnd:
        if end is None:
            return ReadingEnd()
        if end.kind == "time":
            found = client.offset_at(topic, partition, end.number)
            if found is None:
                return ReadingEnd(time_ms=end.number) if is_following else ReadingEnd()
            offset = found[0]
        else:
            offset = end.offset_in(client, topic, partition, isolation)
        # Records of an open transaction do not exist yet for a reader of committed records.
        return ReadingEnd(offset, is_there=offset <= end_of(client.offsets(topic, partition).bounds, isolation))

    @staticmethod
    def of_new(end: Position | None) -> ReadingEnd | None:
        """Return the end of a partition that is added while the command reads; ``None`` if nothing of it is printed.

        Nothing of such a partition is printed if the end is the present one, or a distance before it.
        """
        if end is None:
            return ReadingEnd()
        if end.kind == "time":
            return ReadingEnd(time_ms=end.number)
        return ReadingEnd(end.number) if end.kind == "offset" else None

    def within(self, records: Sequence[StoredRecord]) -> Sequence[StoredRecord]:
        """Return the records that come before the end, in their order."""
        if self.time_ms is not None:
            late = next((n for n, record in enumerate(records) if record.timestamp >= self.time_ms), len(records))
            return records[:late]
        if self.offset is None or not records or records[-1].offset < self.offset:
            return records
        return [record for record in records if record.offset < self.offset]

    def is_before(self, offset: int) -> bool:
        """Return True if the end lies at ``offset`` or before it."""
        return self.offset is not None and self.offset <= offset


def read_up_to(
    readers: Readers,
    starts: Mapping[int, int],
    spans: Mapping[int, ReadingEnd],
    lines: Lines,
    *,
    is_following: bool,
    outages: Outages,
    of_new: ReadingEnd | None = None,
) -> None:
    """Print each partition from its start up to its end. A reader that follows goes on after outages.

    Args:
        of_new: The end of partitions that are added meanwhile. The command does not wait for it.
    """
    starts = {number: offset for number, offset in starts.items() if not spans[number].is_before(offset)}
    for number, offset in starts.items():
        if spans[number].is_there and not lines.is_done:
            _read(readers, {number: offset}, spans, lines, is_following=False)
    others = {number: offset for number, offset in starts.items() if not spans[number].is_there}
    if others and not lines.is_done:
        through = outages if is_following else None
        _read(readers, others, spans, lines, is_following=is_following, outages=through, of_new=of_new)


def pages_through(reader: _Pages[RecordT], outages: Outages | None) -> Iterator[tuple[int, Sequence[RecordT]]]:
    """Yield the pages of ``reader``; after an outage it goes on where it was."""
    while True:
        try:
            for page in reader.pages():
                if outages is not None:
                    outages.is_over()
                yield page
            return
        except RetryError as error:
            if outages is None:
                raise
            outages.wait(error)


def _read(
    readers: Readers,
    starts: Mapping[int, int],
    spans: Mapping[int, ReadingEnd],
    lines: Lines,
    *,
    is_following: bool,
    outages: Outages | None = None,
    of_new: ReadingEnd | None = None,
) -> None:
    left, passed = set(starts), {number for number in spans if number not in starts}
    with readers(starts, is_following) as reader:
        for number, records in pages_through(reader, outages):
            span = spans.get(number, of_new)
            if span is None or number in passed:
                continue
            shown = span.within(records)
            lines.show(number, shown)
            if len(shown) < len(records) or span.is_before(reader.positions[number]):
                left.discard(number)
                passed.add(number)
            if lines.is_done or not left:
                return


_PAUSE_S = 0.5  # between two looks whether the service is back
_APART_S = 60  # failures further apart are of two outages: a request is given up sooner, so others succeeded meanwhile


class Outages:
    """The outages of one command's service.

    Args:
        at_once: How many requests may fail in one outage, because each partition has one under way.
    """

    def __init__(self, client: Client, topic: str, at_once: int) -> None:
        self._client = client
        self._topic = topic
        self._at_once = at_once
        self._failed = 0  # requests, since one succeeded last
        self._last_s = 0.0  # when one failed, or the service was away
        self._is_told = False

    def is_over(self) -> None:
        """Note that a request succeeded."""
        self._failed, self._is_told = 0, False

    def wait(self, error: FencelineError) -> None:
        """Return once the service answers. An outage that has ended by now is not reported."""
        if time.monotonic() - self._last_s > _APART_S:  # answers without records were not shown to ``is_over``
            self.is_over()
        self._failed += 1
        if self._failed > self._at_once:  # the service answers others, and refuses these requests again and again
            self._tell(error)
            time.sleep(_PAUSE_S)
        else:
            while (away := self._away()) is not None:
                self._tell(away)
                time.sleep(_PAUSE_S)
            if self._is_told:
                self.is_over()
        self._last_s = time.monotonic()

    def _away(self) -> RetryError | None:
        try:
            self._client.topic(self._topic)
        except RetryError as error:
            return error
        return None

    def _tell(self, error: FencelineError) -> None:
        if not self._is_told:
            self._is_told = True
            typer.echo(f"waiting for the service: {describe(error)}; Ctrl-C ends the command", err=True)
