"""Offers and rounds, by which a process has its batches committed by another process's create ("Combining", I16).

Rule: an offer is committed by the segment at N if and only if that segment lists it. The offer may be listed at N only
while the round's offset is N and the round binds the offer. The round leaves N only after the segment at N was read.
The decisions here are pure: nothing is read or written.

Not here: when a process offers, looks and combines; see ``append.combining.combiner``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.append.checks import Terms
from fenceline.append.entries.batch import BatchEntry
from fenceline.format import keys
from fenceline.format.batch import CheckedBatch, MalformedBatch, has_right_crc, parse_header
from fenceline.ports import Item, ItemKey

LOST = -1  # in ``done``: nothing shows whether the offer was committed
_MEMBERS = frozenset({"batch", "expected_offset", "checks", "expiration_ms", "append_time", "offered_at"})


class Offer(NamedTuple):
    """A batch that waits as an item, where each process finds it. An offer never changes."""

    id: str  # never used again
    key: ItemKey
    version: int
    offered_at: int  # ms, by the offering process's clock
    entry: BatchEntry


def new_ids(random_bytes: Sequence[bytes]) -> list[str]:
    """Return ids of 11 characters, ascending: the order of the queue is the order of the keys."""
    return sorted(base64.urlsafe_b64encode(chance).rstrip(b"=").decode() for chance in random_bytes)


def offer_to_value(entry: BatchEntry, offered_at: int) -> dict[str, Any]:
    """Return the offer of ``entry`` as it is stored."""
    expected = entry.terms.expected_offset
    return {
        "batch": entry.batch.body,
        "expected_offset": expected if expected is None or isinstance(expected, int) else list(expected),
        "checks": entry.terms.checks_expected_offsets,
        "expiration_ms": entry.terms.producer_expiration_ms,
        "append_time": entry.is_log_append_time,
        "offered_at": offered_at,
    }


def offer_from_item(item: Item) -> Offer | None:
    """Return the offer that ``item`` holds, or ``None`` if this version does not know all of its terms."""
    value: Any = item.value
    if value.keys() != _MEMBERS:
        return None  # a newer version's offer, some of whose terms would be ignored here
    try:
        header = parse_header(value["batch"])
    except MalformedBatch:
        return None
    if not has_right_crc(value["batch"], 0, header):
        return None
    expected = value["expected_offset"]
    terms = Terms(
        expected if expected is None or isinstance(expected, int) else tuple(expected),
        value["checks"],
        value["expiration_ms"],
    )
    # Its form, size and timestamps were checked before it was offered.
    batch = CheckedBatch(header, value["batch"], None, header.max_timestamp, has_null_key=False)
    entry = BatchEntry(batch, terms, value["append_time"])
    return Offer(keys.parse_offer_item(item.key), item.key, item.version, value["offered_at"], entry)


@dataclass(frozen=True, slots=True)
class Round:
    """The offers that may be committed at one offset, and those that may be committed nowhere else.

    Args:
        bound: The ids that the segment at ``offset`` may list.
        done: id → the base offset of the segment that lists it, or ``LOST``. These are never bound again.
    """

    offset: int
    bound: Sequence[str] = ()
    done: Mapping[str, int] = field(default_factory=dict)

    def to_value(self) -> dict[str, Any]:
        """Return the round as it is stored."""
        return {"offset": self.offset, "bound": list(self.bound), "done": dict(self.done)}

    @classmethod
    def from_value(cls, value: Mapping[str, Any]) -> Round:
        """Return the round that was stored."""
        return cls(value["offset"], tuple(value["bound"]), dict(value["done"]))


def leave(known: Round, offset: int, listed: Sequence[str] | None) -> Round:
    """Return ``known`` moved on to ``offset``, with nothing bound there yet.

    Args:
        listed: The ids that the segment at ``known.offset`` lists; ``None`` if the log start has passed the segment,
            because an object there may then be a late create's, and no part of the log.
    """
    settled = (
        dict.fromkeys(known.bound, LOST)
        if listed is None
        else {one: known.offset for one in known.bound if one in listed}
    )
    return Round(offset, (), {**known.done, **settled})


def free_offers(known: Round, offers: Sequence[Offer]) -> list[Offer]:
    """Return the offers that may still be bound: neither done nor bound already."""
    # model: Combining, "done is not bound again"
    return [offer for offer in offers if offer.id not in known.done and offer.id not in known.bound]


def is_young(offer: Offer, now_ms: int) -> bool:
    """Return True if the offer may be bound at all: the caller of an older offer has gone."""
    return now_ms - offer.offered_at <= limits.OFFER_MS


def without_absent(known: Round, offers: Sequence[Item]) -> Round:
    """Return ``known`` without the ids whose offers are no longer there. An id never comes back.

    Args:
        offers: All offers of the partition: a process that has not read all of them drops no id.
    """
    there = {keys.parse_offer_item(item.key) for item in offers}
    # model: Combining, "done keeps what is there"
    return Round(known.offset, known.bound, {one: at for one, at in known.done.items() if one in there})
