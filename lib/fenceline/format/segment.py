"""Segments: immutable objects with one or more batches and their metadata ("The metadata of a segment").

Rule: members that Kafka does not have are in the object's user metadata. ``chain`` binds the metadata, the body and the
whole log before it together ("The chain value"). Stored names are never renamed. A member that this version does not
know is kept unchanged: either a newer version wrote it, and the chain covers it, or a tool that copied the object added
it, and the chain does not.

Not here: the effect of a segment on the state; see ``log.state``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from fenceline.errors import CorruptLogError
from fenceline.format import keys
from fenceline.format.batch import BatchHeader, MalformedBatch, StoredRecord, decode, has_right_crc, headers
from fenceline.ports import Damaged, Object, ObjectStore

Body: TypeAlias = bytes  # `SegmentMetadata.bytes` hides the type's own name there


@dataclass(frozen=True, slots=True)
class Replicated:
    """The source of a replicated segment's batches."""

    topic_id: str  # the source's
    next_offset: int  # the source offset to read next
    count: int  # the own number of the last record taken ("Own numbers and positions")
    chain: str = ""  # the chain value of the source's segment that holds next_offset - 1; "" if it is not known


class SegmentMetadata(NamedTuple):
    """A segment's user metadata. The counters are those of the log below its base."""

    write_id: str  # unique for each group that is created
    appended_at: int  # ms, the appender's clock
    origin: str  # the region in which its batches were first produced
    records: int  # data records
    bytes: int  # stored bytes
    max_timestamp: int  # the highest record timestamp, -1 for none
    chain: str = ""  # SHA-256 in hexadecimal digits
    replicated: Replicated | None = None
    own_records: int | None = None  # data records of this region; None in a segment of a version without regions
    unknown: tuple[tuple[str, str], ...] = ()  # members that this version does not know
    offers: tuple[str, ...] = ()  # the ids of the offers that it commits, which are its first batches, in order (I16)

    @property
    def own_records_below(self) -> int:
        """Return how many data records of this region lie below the base. Without regions all were own."""
        return self.records if self.own_records is None else self.own_records

    def to_strings(self) -> dict[str, str]:
        """Return the metadata as it is stored."""
        strings = {
            **dict(self.unknown),
            "write-id": self.write_id,
            "appended-at": str(self.appended_at),
            "origin": self.origin,
            "records": str(self.records),
            "bytes": str(self.bytes),
            "max-timestamp": str(self.max_timestamp),
        }
        if self.own_records is not None:
            strings["own-records"] = str(self.own_records)
        if self.replicated is not None:
            strings["origin-topic"] = self.replicated.topic_id
            strings["origin-next"] = str(self.replicated.next_offset)
            strings["origin-count"] = str(self.replicated.count)
            if self.replicated.chain:
                strings["origin-chain"] = self.replicated.chain
        if self.offers:
            strings["offers"] = ",".join(self.offers)
        if self.chain:
            strings["chain"] = self.chain
        return strings

    @classmethod
    def from_strings(cls, strings: Mapping[str, str]) -> SegmentMetadata:
        """Return the metadata that was stored.

        Raises:
            KeyError: A member is missing.
            ValueError: A value has the wrong form.
        """
        replicated = None
        if "origin-topic" in strings:
            replicated = Replicated(
                strings["origin-topic"],
                int(strings["origin-next"]),
                int(strings["origin-count"]),
                strings.get("origin-chain", ""),
            )
        own_records = strings.get("own-records")
        known = cls(
            write_id=strings["write-id"],
            appended_at=int(strings["appended-at"]),
            origin=strings["origin"],
            records=int(strings["records"]),
            bytes=int(strings["bytes"]),
            max_timestamp=int(strings["max-timestamp"]),
            chain=strings["chain"],
            replicated=replicated,
            own_records=None if own_records is None else int(own_records),
            offers=tuple(strings["offers"].split(",")) if "offers" in strings else (),
        )
        names = {"chain", *known.to_strings()}
        unknown = tuple(sorted(member for member in strings.items() if member[0] not in names))
        return known._replace(unknown=unknown) if unknown else known

    def chained(self, previous: str, body: Body) -> SegmentMetadata:
        """Return this metadata with its chain value: SHA-256 over ``previous``, every other member and ``body``."""
        return self._replace(chain=self._chain(previous, body))

    def follows(self, previous: str, body: Body) -> bool:
        """Return True if the chain value is that of ``previous``, the members and ``body``.

        It may be the value with all members, or without those that this version does not know. Damage to a known member
        is found in both cases.
        """
        if self.chain == self._chain(previous, body):
            return True
        return bool(self.unknown) and self.chain == self._replace(unknown=())._chain(previous, body)

    def _chain(self, previous: str, body: Body) -> str:
        members = self.to_strings()
        members.pop("chain", None)
        lines = "\n".join(map("=".join, sorted(members.items())))
        digest = hashlib.sha256(f"{previous}\n{lines}\n\n".encode())
        digest.update(body)
        return digest.hexdigest()


class Segment(NamedTuple):
    """A segment that was read or is being made. Its batches are contiguous from ``base_offset`` to ``next_offset``."""

    base_offset: int
    next_offset: int
    body: bytes
    metadata: SegmentMetadata
    batches: Sequence[tuple[int, BatchHeader]]  # (position in body, header)


def read_segment(objects: ObjectStore, key: str) -> Segment:
    """Return the segment at ``key``.

    Raises:
        NotFound: The segment does not exist, now.
        CorruptLogError: It is damaged, by the store's checksum or by ``parse_segment``.
        Unavailable: The store could not be asked.
    """
    try:
        return parse_segment(objects.get(key))
    except Damaged as fact:
        raise corrupt(key, base_of(key), "it does not match the checksum that is stored with it") from fact


def parse_segment(stored: Object) -> Segment:
    """Return the segment that ``stored`` (whole) holds.

    Raises:
        CorruptLogError: The object holds no segment, or not the one that its key names. Nothing may be appended after
            it.
    """
    base_offset = base_of(stored.key)
    try:
        metadata = SegmentMetadata.from_strings(stored.metadata)
        batches = tuple(headers(stored.body))
    except KeyError as error:
        raise corrupt(stored.key, base_offset, f"its metadata lacks the member {error.args[0]}") from error
    except (MalformedBatch, ValueError) as error:
        raise corrupt(stored.key, base_offset, str(error)) from error
    next_offset = base_offset
    for position, header in batches:
        if header.base_offset != next_offset or header.last_offset_delta < 0:
            raise corrupt(
                stored.key, next_offset, f"a batch begins at the wrong offset: base_offset={header.base_offset}"
            )
        if not has_right_crc(stored.body, position, header):
            raise corrupt(stored.key, header.base_offset, "a batch does not match its CRC")
        next_offset = header.next_offset
    if next_offset == base_offset:
        raise corrupt(stored.key, base_offset, "it holds no batch")
    return Segment(base_offset, next_offset, stored.body, metadata, batches)


def base_of(key: str) -> int:
    """Return the base offset that a key under ``log/`` names.

    Raises:
        CorruptLogError: The key is no segment's.
    """
    try:
        return keys.parse_segment_key(key)[2]
    except ValueError as error:
        raise CorruptLogError(f"an object under log/ is not a segment; delete it: key={key}") from error


def corrupt(key: str, offset: int, what: str) -> CorruptLogError:
    """Return the error for stored data that breaks an invariant at ``offset``."""
    return CorruptLogError(f"a stored segment is damaged: {what}; restore it from a backup: key={key} offset={offset}")


def decode_stored(
    segment: Segment, at: int, *, on_decoded: Callable[[int], object] = lambda _: None
) -> list[StoredRecord]:
    """Return the records of one stored batch; as ``decode``.

    Raises:
        CorruptLogError: They cannot be decoded, or their CRC is wrong.
    """
    try:
        return decode(segment.body, at, on_decoded=on_decoded)
    except MalformedBatch as error:
        raise damaged_batch(segment, error) from error


def damaged_batch(segment: Segment, error: MalformedBatch) -> CorruptLogError:
    """Return the error for a stored batch whose records cannot be decoded."""
    return CorruptLogError(
        f"a stored batch is damaged; restore its segment from a backup: {error} offset={segment.base_offset}"
    )
