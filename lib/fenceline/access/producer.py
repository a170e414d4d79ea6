"""Records of named producers: a claim and its outcome, for the answers to its session.

Rule: an answer is made from the record, but the record gives no access: the access items and the log say whether the
record's epochs are still in force. On a topic a name belongs to one live producer. A producer that was fenced, closed
or failed has lost its name.

Not here: a producer as it is shown (``model.access``), and decisions on claims (``claims``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from fenceline import limits
from fenceline.access.session_item import SessionItem
from fenceline.format import keys
from fenceline.model.access import GRANTED, QUEUED, Claim
from fenceline.ports import Item, ItemKey

if TYPE_CHECKING:
    from fenceline.model.kinds import AccessMode

# Stored: never rename.
PENDING, CLOSED, FAILED = "reserved", "closed", "failed"  # beside GRANTED and QUEUED

_LEGAL_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{limits.PRODUCER_NAME_CHARS_MAX}}}", re.ASCII)


def is_legal_name(name: str) -> bool:
    return _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A named producer, as it is stored."""

    topic_id: str
    producer_name: str
    session_id: str
    principal: str
    access_mode: str  # as the claim asked for it
    partitions: tuple[int, ...]
    state: str  # PENDING, GRANTED, QUEUED, CLOSED or FAILED
    ticket: int = 0  # its place in the line, if it waits or waited
    topic_epochs: Mapping[int, int] = field(default_factory=dict)  # granted, or reserved
    next_offsets: Mapping[int, int] = field(default_factory=dict)  # right after its markers
    since: int | None = None  # when it was granted, or queued; None: an older version wrote it
    version: int | None = None  # None: it is not stored yet

    @property
    def key(self) -> ItemKey:
        return keys.named_producer_item(self.topic_id, self.producer_name)

    @property
    def name(self) -> tuple[str, str]:
        return self.session_id, self.producer_name

    def to_value(self) -> dict[str, Any]:
        return {
            "session_id": self.session_id,
            "principal": self.principal,
            "access_mode": self.access_mode,
            "partitions": list(self.partitions),
            "state": self.state,
            "ticket": self.ticket,
            "topic_epochs": [[p, epoch] for p, epoch in self.topic_epochs.items()],
            "next_offsets": [[p, offset] for p, offset in self.next_offsets.items()],
            "since": self.since,
        }

    def granted_to(self, session: SessionItem, partitions: Sequence[int]) -> Claim:
        """Return the granted producer of a session, with the partitions that it still has."""
        epochs = {p: self.topic_epochs[p] for p in partitions}
        return self._shown(session, GRANTED, epochs, {p: self.next_offsets[p] for p in partitions})

    def queued(self, session: SessionItem, queue_position: int) -> Claim:
        """Return the producer as one that waits, with its session."""
        return self._shown(session, QUEUED, {}, {}, queue_position)

    def _shown(
        self,
        session: SessionItem,
        state: str,
        topic_epochs: Mapping[int, int],
        next_offsets: Mapping[int, int],
        queue_position: int | None = None,
    ) -> Claim:
        return Claim(
            self.producer_name,
            self.session_id,
            cast("AccessMode", self.access_mode),
            state,
            topic_epochs,
            next_offsets,
            session.expires_at,
            queue_position,
            session.client_name,
            self.since,
            self.partitions,
        )

    def shown_to(self, principal: str, claim: Claim) -> Claim:
        """Return the producer's claim as a principal is shown it, with all of the session's id if that is its own."""
        return claim if self.principal == principal else replace(claim, session_id=self.session_id[:8])


def record_from_item(item: Item) -> ProducerRecord:
    value: Mapping[str, Any] = item.value
    return ProducerRecord(
        topic_id=item.key.partition.removeprefix(keys.producers_of("")),
        producer_name=item.key.sort,
        session_id=value["session_id"],
        principal=value["principal"],
        access_mode=value["access_mode"],
        partitions=tuple(value["partitions"]),
        state=value["state"],
        ticket=value["ticket"],
        topic_epochs={p: epoch for p, epoch in value["topic_epochs"]},  # noqa: C416
        next_offsets={p: offset for p, offset in value["next_offsets"]},  # noqa: C416
        since=value.get("since"),
        version=item.version,
    )


def withdrawn(record: ProducerRecord) -> ProducerRecord:
    """Return the record once the claim is given up: the producer has its access from before, or none."""
    if not record.next_offsets:
        return replace(record, state=FAILED)
    return replace(record, state=GRANTED, topic_epochs={p: record.topic_epochs[p] for p in record.next_offsets})
