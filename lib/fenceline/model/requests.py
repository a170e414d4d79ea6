"""Requests of callers: reads, claims, resources to own, acknowledgements.

Rule: a request is a value that nothing has checked yet. The service checks it, and names the field to blame.
Not here: appends, whose request holds a checked batch (``append.entries.batch``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from fenceline import limits


class MemberRef(NamedTuple):
    """The member of a group that a request comes from, and the member epoch that it knows."""

    member_id: str
    member_epoch: int


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """A page to read. Exactly one of ``offset``, ``timestamp`` and ``tail_offset`` says where it starts."""

    offset: int | None = None
    timestamp: int | None = None
    tail_offset: int | None = None
    max_records: int = limits.RECORDS_DEFAULT
    max_bytes: int = limits.BYTES_DEFAULT
    wait_ms: int = 0
    is_read_committed: bool = False
    is_compacted: bool = False
    compacted_since: int | None = None  # the horizon of the reader's first page of the view
    compaction_order: str | None = None  # the order of the reader's table
    is_identified: bool = False  # each record with its identity: origin, topic id there, own number
    value_bytes_max: int | None = None  # a longer value is cut to so many bytes
    has_batches: bool = False  # the page says of each batch whose it is, and what became of it
    group: str | None = None
    session_id: str | None = None
    member: MemberRef | None = None  # of the group, instead of a session

    @property
    def read_bytes_max(self) -> int:
        """Return how many bytes are gone through for the page: stored ones, and those of whole records."""
        return self.max_bytes if self.value_bytes_max is None else limits.CUT_PAGE_BYTES_MAX


@dataclass(frozen=True, slots=True)
class PollPosition:
    """A partition to poll, and where its reader is.

    Attributes:
        offset: Where to read; ``None`` is the mark of ``subscription``.
        topic_id: The topic's id, where its reader means one incarnation.
        subscription: The subscription that reads, in place of the request's group.
        require_stable: Whether to refuse while an offset of the subscription is pending there.
    """

    topic: str
    partition: int
    offset: int | None = None
    topic_id: str | None = None
    subscription: str | None = None
    require_stable: bool = False


@dataclass(frozen=True, slots=True)
class PollRequest:
    """Partitions to poll, each of them once. The bounds hold for the whole answer.

    Attributes:
        max_delay_ms: The longest pause between two looks at a partition while the poll is held; ``None`` sets no bound
            of its own.
    """

    positions: Sequence[PollPosition]
    max_records: int = limits.RECORDS_DEFAULT
    max_bytes: int = limits.BYTES_DEFAULT
    wait_ms: int = 0
    max_delay_ms: int | None = None
    is_read_committed: bool = False
    is_identified: bool = False
    group: str | None = None
    session_id: str | None = None
    member: MemberRef | None = None  # instead of a session

    def page_of(self, position: PollPosition, max_records: int, max_bytes: int) -> ReadRequest:
        """Return the page to read at one position, which is not held."""
        return ReadRequest(
            offset=position.offset,
            max_records=max_records,
            max_bytes=max_bytes,
            is_read_committed=self.is_read_committed,
            is_identified=self.is_identified,
            group=None if position.subscription else self.group,
            session_id=self.session_id,
            member=self.member,
        )


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """A claim of write access (contract, "Sessions and producers")."""

    access_mode: str  # one of ACCESS_MODES
    partitions: Sequence[int] | None = None
    producer_name: str | None = None
    session_id: str | None = None
    lease_ms: int | None = None  # for the session that this claim makes
    client_name: str | None = None  # for that session, too
    topic_epochs: Mapping[int, int] | None = None  # a reconnecting producer's, by partition
    wait_ms: int = 0


@dataclass(frozen=True, slots=True)
class OwnTarget:
    """One resource to own, and the generation that is asked for; ``None`` for the next one."""

    resource: str
    generation: int | None = None


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The acknowledged offsets: all up to and including ``cumulative``, or the ``individual`` ones."""

    cumulative: int | None = None
    individual: Sequence[int] = ()
    reader_id: str | None = None  # of who acknowledges, fresh for each reader; None: the cursor remembers no reader
    client_name: str | None = None

    @property
    def highest(self) -> int:
        return max(self.individual, default=0) if self.cumulative is None else self.cumulative


@dataclass(frozen=True, slots=True)
class OwnedPartitions:
    """Partitions of one topic that a client says it works on. Without a topic id it is the topic of today."""

    topic: str
    partitions: Sequence[int]
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat, as a request states it; ``None``: left out."""

    member_id: str
    member_epoch: int
    topics: Sequence[str] | None = None
    topic_prefixes: Sequence[str] | None = None
    owned: Sequence[OwnedPartitions] | None = None
    instance_id: str | None = None
    client_name: str | None = None
    client_host: str | None = None
    rack: str | None = None
    assignor: str | None = None
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    is_latest: bool = True  # where a subscription begins that the join makes
