"""Pages of records or of whole batches: the service's answer, and the client's (API.md, "Read").

The rule: it needs nothing of the log, so that a client loads none of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fenceline.bounds import Bounded, Bounds


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """One record, as a consumer is shown it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]
    topic_epoch: int
    origin: str | None  # None where it was produced in this region


@dataclass(frozen=True, slots=True)
class Page(Bounded):
    """Records, and where to read next."""

    records: Sequence[ReadRecord]
    position: int
    bounds: Bounds


@dataclass(frozen=True, slots=True)
class BatchPage(Bounded):
    """Whole batches as stored, one behind the other, and where to read next."""

    body: bytes
    position: int
    bounds: Bounds
