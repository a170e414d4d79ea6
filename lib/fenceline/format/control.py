"""Markers: control batches of exactly one record, which take offsets and are never shown to consumers ("Markers").

Rule: a marker of an unknown type is parsed, too. Its number decides whether a process that folds the log passes it, or
stops there ("Markers"). Types 0 and 1 are Kafka's. Kafka's tools show fenceline's as unknown control types.

Not here: the effect of a marker on the state; see ``log.state``.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from fenceline.format.batch import HEADER_BYTES, BatchHeader, MalformedBatch, decode, stamp_control

# Stored: never renumber.
ABORT = 0
COMMIT = 1
ACCESS = 64
SEAL = 65
SKIP = 66
SNAPSHOT = 0x80
TRAVELS = 0x100  # the bit of the types that are replicated to other regions
SNAPSHOT_REQUEST = 0x181
SNAPSHOT_RESPONSE = 0x182
SUBSCRIPTION_UPDATE = 0x183
# Stored: the access modes of an ACCESS marker, and of items.
EXCLUSIVE, SHARED = "Exclusive", "Shared"

_OURS = frozenset({ACCESS, SEAL, SKIP, SNAPSHOT, SNAPSHOT_REQUEST, SNAPSHOT_RESPONSE, SUBSCRIPTION_UPDATE})
_STATE_TYPES = range(64, 128)  # 2 to 63 stay Kafka's
_KEY = struct.Struct(">hh")  # version, type
_PLAIN = b"\x00\x00\x00\x08"  # between the length and the key of a marker's record
_OUTCOME = struct.Struct(">hi")  # version, coordinator epoch


@dataclass(frozen=True, slots=True)
class Marker:
    """One marker.

    Attributes:
        value: For a type of fenceline, its JSON, with ``version``. For ABORT and COMMIT, ``{"coordinator_epoch":
            int}``. For an unknown type, empty.
    """

    type: int
    value: Mapping[str, Any]
    producer_id: int
    producer_epoch: int


def changes_state(type: int) -> bool:
    """Return True if a process that folds the log must know this type to go on after it."""
    return type in (ABORT, COMMIT) or type in _STATE_TYPES


def travels(type: int) -> bool:
    """Return True if a marker of this type is replicated to other regions."""
    return type >= 0 and bool(type & TRAVELS)


def encode_transaction_marker(
    is_commit: bool, *, producer_id: int, producer_epoch: int, base_offset: int, leader_epoch: int, now_ms: int
) -> bytes:
    """Return Kafka's COMMIT or ABORT; ``producer_epoch`` is the bumped epoch (KIP-890)."""
    builder = DefaultRecordBatchBuilder(2, 0, 1, producer_id, producer_epoch, -1, 0)
    # The coordinator epoch is always 0, because the producer epoch, which only grows, fences markers.
    builder.append(0, now_ms, _KEY.pack(0, COMMIT if is_commit else ABORT), _OUTCOME.pack(0, 0), [])
    return stamp_control(builder.build(), base_offset=base_offset, leader_epoch=leader_epoch)


def encode_marker(type: int, value: Mapping[str, Any], *, base_offset: int, leader_epoch: int, now_ms: int) -> bytes:
    """Return a marker of a type of fenceline, with ``version`` 1 in its value, and its names sorted.

    So equal values give equal bytes.
    """
    versioned = {**value, "version": 1}
    text = json.dumps(versioned, ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True)
    builder = DefaultRecordBatchBuilder(2, 0, 0, -1, -1, -1, 0)
    builder.append(0, now_ms, _KEY.pack(0, type), text.encode(), [])
    return stamp_control(builder.build(), base_offset=base_offset, leader_epoch=leader_epoch)


def parse_marker(body: bytes, at: int, header: BatchHeader) -> Marker:
    """Return the marker at ``at``, whose header is already parsed.

    Raises:
        MalformedBatch: It is no control batch of exactly one record, or its type does not have this value.
    """
    if not header.is_control or header.count != 1 or header.last_offset_delta != 0:
        raise MalformedBatch(f"a marker must be a control batch of one record: position={at} count={header.count}")
    (record,) = decode(body, at)
    if record.key is None or len(record.key) < _KEY.size:
        raise MalformedBatch(f"a marker's record has no type: position={at}")
    _, marker_type = _KEY.unpack_from(record.key)
    try:
        value = _parse_value(marker_type, record.value or b"")
    except (ValueError, RecursionError, struct.error) as error:
        raise MalformedBatch(f"a marker's value cannot be read: position={at} type={marker_type}") from error
    return Marker(marker_type, value, header.producer_id, header.producer_epoch)


def type_of(body: bytes, at: int, header: BatchHeader) -> int:
    """Return the type of the marker at ``at``, whose header is already parsed.

    Raises:
        MalformedBatch: As ``parse_marker``.
    """
    # Every encoder writes a marker's record so: its length in one byte, no attributes, no deltas, a key of four bytes.
    key_at = at + HEADER_BYTES + 1 + len(_PLAIN)
    has_room = key_at + _KEY.size <= at + header.size
    plain = body[key_at - len(_PLAIN) : key_at]
    if header.count == 1 and has_room and body[at + HEADER_BYTES] < 0x80 and plain == _PLAIN:
        marker_type: int = _KEY.unpack_from(body, key_at)[1]
        return marker_type
    return parse_marker(body, at, header).type


def _parse_value(type: int, value: bytes) -> Mapping[str, Any]:
    if type in (ABORT, COMMIT):
        _, coordinator_epoch = _OUTCOME.unpack_from(value)
        return {"coordinator_epoch": coordinator_epoch}
    if type in _OURS:
        parsed = json.loads(value)
        if not isinstance(parsed, dict) or "version" not in parsed:
            raise ValueError("the value must be a JSON object with a version")
        return parsed
    return {}
