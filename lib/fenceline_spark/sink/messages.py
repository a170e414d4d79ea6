"""Messages from a task to the driver: the part of the batch that the task wrote, and the outcome of its rows.

Rule: the driver knows nothing else of the task, because a stream's commit runs in a process of its own, which gets the
messages alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql.datasource import WriterCommitMessage

from fenceline.model.transaction import ProducerPair, TopicPartition


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of rows that is written once, or a job of one batch.

    Attributes:
        prefix: What the transactional ids of the batch begin with.
        once_id: The app id that remembers the last version written; ``None`` if none does.
        version: The batch's number. Without ``once_id`` it has no meaning.
        run: The run of the query that writes it, or the job.
        is_stream: A later version that was written is an error. In a batch write it means that nothing is left to do.
        target: Of a batch write: where its rows go.
        within: Of a batch write in ``foreachBatch``: the run of the query around it, which calls it once for a version.
    """

    prefix: str
    once_id: str | None
    version: int
    run: str
    is_stream: bool
    target: str | None = None
    within: str | None = None

    def note(self, rows: int) -> str:
        """Return the note that is stored with the version of so many rows. Stored: a part is never renamed."""
        named = (self.run, self.target, self.within and f"run={self.within}", f"{_ROWS}{rows}")
        return " ".join(each for each in named if each)


_ROWS = "rows="


def run_of(note: str | None) -> str:
    """Return the run that wrote the version with this note."""
    return (note or "").partition(" ")[0]


def rows_of(note: str | None) -> int | None:
    """Return how many rows were written with this note; ``None`` if it does not say."""
    said = [each.removeprefix(_ROWS) for each in (note or "").split(" ") if each.startswith(_ROWS)]
    return int(said[0]) if said and said[0].isdigit() else None


@dataclass(frozen=True, slots=True)
class Part:
    """One task's part of a batch, and which attempt at it this is."""

    batch: Batch
    index: int
    attempt: int

    def transactional_id(self, attempt: int | None = None) -> str:
        """Return the id that this attempt's own transaction has, or that of another attempt."""
        return f"{self.batch.prefix}.{self.index}.{self.attempt if attempt is None else attempt}"


@dataclass(frozen=True, slots=True)
class Message(WriterCommitMessage):
    """The outcome of one part.

    Attributes:
        last_note: What was remembered with the last version before, as the task saw it; ``None`` if none is known.
    """

    part: Part
    last_note: str | None


@dataclass(frozen=True, slots=True)
class Repeat(Message):
    """The batch had been written before, so this part wrote nothing.

    Attributes:
        rows: How many this part would have written.
    """

    rows: int


@dataclass(frozen=True, slots=True)
class Inline(Message):
    """The part's rows themselves, as an Arrow stream; ``None`` if there were none. Nothing was written anywhere."""

    rows: bytes | None


@dataclass(frozen=True, slots=True)
class Large(Message):
    """The part's rows lie in a transaction of its own, which waits for its end."""

    transactional_id: str
    pair: ProducerPair
    counts: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sent(WriterCommitMessage):
    """The part's rows were written, and are visible (at least once)."""

    counts: Mapping[TopicPartition, int]
