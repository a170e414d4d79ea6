"""Who appends, and where a batch came to stand: the service's words, and the client's (API.md, "Produce").

The rule: it needs nothing of the log, so that a client loads none of it.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProducerRef:
    """Who sends a JSON batch, idempotently (KIP-98)."""

    producer_id: int
    producer_epoch: int
    sequence: int


@dataclass(frozen=True, slots=True)
class SessionRef:
    """The session that an append stands under, and the topic epoch it was granted."""

    session_id: str
    topic_epoch: int


@dataclass(frozen=True, slots=True)
class Appended:
    """Where a batch stands in the log. The fields are those of API.md "Produce"."""

    base_offset: int
    next_offset: int
    count: int
    duplicate: bool
    topic_epoch: int
    expected_offset_checked: bool
    timestamp: int
