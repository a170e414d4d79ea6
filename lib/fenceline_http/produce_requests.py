"""Requests to append, with the kinds of values that only these have: records, expected offsets, acks.

Rule: the path of a record in its request is made only once the record is to blame, because parsing is the hot path.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fenceline import limits
from fenceline.answers import Titled
from fenceline.errors import InvalidRequiredAcksError
from fenceline.model.record import Record
from fenceline_http import json_schema
from fenceline_http.json_schema import TEXT_OR_NULL, Named, array, const, described, nullable, obj, words
from fenceline_http.request_schema import Body, Members, Query, object_of, optional, required, required_by
from fenceline_http.schemas import ENCODING as ENCODING_SCHEMA
from fenceline_http.schemas import HEADERS
from fenceline_http.strict_json import member
from fenceline_http.value_kinds import TEXT, TRANSACTIONAL_ID, Kind, choice, integer, list_of, refuse

ToBytes = Callable[[str], bytes]

_MISSING = object()
_RECORD_FIELDS = frozenset(("key", "value", "headers", "timestamp"))
_ACKS = (-1, 0, 1)

RECORD_IN = Named(
    "RecordIn",
    obj(
        {"value": TEXT_OR_NULL},
        {
            "key": TEXT_OR_NULL,
            "headers": nullable(HEADERS),
            "timestamp": described(
                nullable(json_schema.integer()), "Milliseconds since the epoch; the default is the time of the append."
            ),
        },
    ),
    "A record to append. A `value` of null is a tombstone.",
)


class _WrongMemberError(Exception):
    """A record's member is to blame. The caller knows which record it is."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(name, wanted)
        self.name = name
        self.wanted = wanted


def _records(to_bytes: ToBytes) -> Kind[list[Record]]:
    def of_json(trees: Any, path: str) -> list[Record]:
        if type(trees) is not list or not trees:
            refuse(path, "a list of at least one record")
        records: list[Record] = []
        try:
            for tree in trees:
                records.append(_record(tree, to_bytes))
        except _WrongMemberError as wrong:
            at = f"{path}[{len(records)}]"
            refuse(member(at, wrong.name) if wrong.name else at, wrong.wanted)
        return records

    return Kind(of_json, array(RECORD_IN, minItems=1))


def _record(tree: Any, to_bytes: ToBytes) -> Record:
    if type(tree) is not dict:
        raise _WrongMemberError("", "an object")
    if not tree.keys() <= _RECORD_FIELDS:
        raise _WrongMemberError(min(tree.keys() - _RECORD_FIELDS), "left out: there is no such field here")
    value = tree.get("value", _MISSING)
    if value is _MISSING:
        raise _WrongMemberError("value", "given; null is a tombstone")
    key, headers, timestamp = tree.get("key"), tree.get("headers"), tree.get("timestamp")
    if timestamp is not None and (type(timestamp) is not int or not 0 <= timestamp <= limits.INT64_MAX):
        raise _WrongMemberError("timestamp", "an integer from 0 to 2^63-1, in ms")
    return Record(
        value=None if value is None else _bytes(value, "value", to_bytes),
        key=None if key is None else _bytes(key, "key", to_bytes),
        headers=() if headers is None else _headers(headers, to_bytes),
        timestamp=timestamp,
    )


def _bytes(text: Any, name: str, to_bytes: ToBytes) -> bytes:
    if type(text) is not str:
        raise _WrongMemberError(name, "a string or null")
    try:
        return to_bytes(text)
    except ValueError:
        raise _WrongMemberError(name, "base64 (RFC 4648 section 4, padded)") from None


def _headers(trees: Any, to_bytes: ToBytes) -> list[tuple[str, bytes | None]]:
    if type(trees) is not list:
        raise _WrongMemberError("headers", "a list of [name, value]")
    headers = []
    for index, tree in enumerate(trees):
        if type(tree) is not list or len(tree) != 2 or type(tree[0]) is not str:
            raise _WrongMemberError(f"headers[{index}]", "[name, value], the name a string")
        name, value = tree
        headers.append((name, None if value is None else _bytes(value, f"headers[{index}]", to_bytes)))
    return headers


def _base64(text: str) -> bytes:
    if len(text) % 4 or text.endswith("==="):  # a2b_base64 takes this after whole quads
        raise Base64Error
    return a2b_base64(text, strict_mode=True)


ENCODING = choice(("utf8", "base64"), ENCODING_SCHEMA)
RECORDS: Mapping[str, Kind[list[Record]]] = {"utf8": _records(str.encode), "base64": _records(_base64)}


def _acks(value: Any, field: str) -> int:
    if value == "all":
        return -1
    if type(value) is not int or not -limits.INT64_MAX <= value <= limits.INT64_MAX:
        refuse(field, '-1, 1, 0 or "all"')
    return _known_acks(value)


def _acks_word(word: str, field: str) -> int:
    if word == "all":
        return -1
    value = _integers(word, field, low=-limits.INT64_MAX)
    if isinstance(value, list):
        refuse(field, "-1, 1, 0 or all")
    return _known_acks(value)


def _known_acks(value: int) -> int:
    if value not in _ACKS:
        raise InvalidRequiredAcksError(f"acks must be -1, 1 or 0: acks={value}")
    return value


# Two alternatives of one type each: generators of clients drop an enum of several types.
ACKS: Kind[int] = Kind(
    _acks,
    Named(
        "Acks",
        {"anyOf": [json_schema.integer(-1, 1), const("all")]},
        "What to wait for: -1 or `all`, 1, or 0. With 0 the answer is 202 and says nothing of the append.",
    ),
)
ACKS_WORD: Kind[int] = Kind(_acks_word, words("-1", "1", "0", "all"))

Expected = int | Sequence[int]

_OFFSET = integer(-1)


def _expected(value: Any, field: str) -> Expected:
    if type(value) is not list:
        return _OFFSET.of_json(value, field)
    return [_OFFSET.of_json(one, f"{field}[{index}]") for index, one in enumerate(value)]


def _expected_words(text: str, field: str) -> Expected:
    return _integers(text, field, low=-1)


def _each_expected_word(text: str, field: str) -> Sequence[int]:
    expected = _expected_words(text, field)
    return [expected] if isinstance(expected, int) else expected


# A list is taken, too, as it always was. The document shows one type, for the sake of generated clients.
EXPECTED: Kind[Expected] = Kind(_expected, _OFFSET.schema, _expected_words)
EACH_EXPECTED: Kind[Sequence[int]] = Kind(list_of(_OFFSET).of_json, array(_OFFSET.schema), _each_expected_word)


def _integers(text: str, field: str, *, low: int) -> int | list[int]:
    """Return one integer, or a list where ``text`` has commas."""
    of_text = integer(low).of_text
    values = [of_text(piece, field) for piece in text.split(",")]
    return values if len(values) > 1 else values[0]


def _refuse_unacknowledged(acks: int) -> None:
    """Refuse a batch of a transaction whose sender does not wait: only what was acknowledged is surely in it."""
    if acks != -1:
        refuse("acks", "-1 with a transactional_id")


# The requests


@Titled("Producer")
class BatchProducer(Members):
    """Makes a batch idempotent: sent twice, it is stored once."""

    producer_id: int = required(integer())
    producer_epoch: int = required(integer(0, limits.MARKER_EPOCH_MAX))
    sequence: int = required(integer(0, limits.INT32_MAX))


@Titled("Session")
class BatchSession(Members):
    """The session that was granted the partition, and the epoch of the grant."""

    session_id: str = required(TEXT)
    topic_epoch: int = required(integer(-1))


class _Expecting(Members):
    """The offsets that a batch expects of the log (KIP-27).

    Attributes:
        expectation: The value of the member that was given; ``check_expectation`` sets it, and the name.
        expectation_name: The name of that member.
    """

    expectation: Expected | None
    expectation_name: str
    expected_offset: Expected | None = optional(
        EXPECTED, "The offset that the batch must land at; the next one, or nothing is written. -1 is not checked."
    )
    expected_offsets: Sequence[int] | None = optional(
        EACH_EXPECTED, "One expected offset for each record, in place of `expected_offset`; -1 is not checked."
    )

    def check_expectation(self, acks: int, path: str = "", *, count: int | None = None) -> None:
        """Take the expectation; it must go with ``acks``, and with the batch's number of records, if that is known."""
        is_one = self.expected_offsets is None
        self.expectation = expected = self.expected_offset if is_one else self.expected_offsets
        self.expectation_name = "expected_offset" if is_one else "expected_offsets"
        field = f"{path}{self.expectation_name}"
        if self.expected_offset is not None and self.expected_offsets is not None:
            refuse(field, "left out with expected_offset")
        if count is not None and isinstance(expected, list) and len(expected) != count:
            refuse(field, f"{'one offset, or ' if is_one else ''}a list of one for each of the {count} records")
        offsets = [expected] if isinstance(expected, int) else expected or ()
        if acks == 0 and any(offset != -1 for offset in offsets):
            refuse(field, "left out with acks=0")  # The sender would not hear that it was not met.


class _Batch(_Expecting):
    """Records for one partition, and what is said of them."""

    encoding: str = optional(ENCODING, default="utf8")
    records: Sequence[Record] = required_by("encoding", RECORDS)
    producer: BatchProducer | None = optional(object_of(BatchProducer))
    session: BatchSession | None = optional(object_of(BatchSession))


class Produce(_Batch, Body):
    """One batch of records."""

    acks: int = optional(ACKS, default=-1)
    transactional_id: str | None = optional(
        TRANSACTIONAL_ID, "The transaction that the batch belongs to. It needs `producer`, and `acks` -1."
    )

    def check(self) -> None:
        self.check_expectation(self.acks, count=len(self.records))
        if self.transactional_id is not None:
            _refuse_unacknowledged(self.acks)


class BatchQuery(_Expecting, Query):
    """The parameters of a record batch."""

    acks: int = optional(ACKS_WORD, "What to wait for: `-1` or `all`, `1`, or `0`.", default=-1)
    session_id: str | None = optional(TEXT, "The session that was granted the partition.")
    topic_epoch: int | None = optional(integer(-1), "The epoch that the session was granted.")
    transactional_id: str | None = optional(TRANSACTIONAL_ID, "The transaction that the batch belongs to.")

    def check(self) -> None:
        if (self.session_id is None) != (self.topic_epoch is None):
            refuse(
                "session_id" if self.session_id is None else "topic_epoch",
                "given: session_id and topic_epoch go together",
            )
        self.check_expectation(self.acks)
        if self.transactional_id is not None:
            _refuse_unacknowledged(self.acks)


class ProduceEntry(_Batch):
    """One batch of several, for one partition."""

    topic: str = required(TEXT)
    partition: int = required(integer())


class ProduceMany(Body):
    """Batches for several partitions. Each succeeds or fails by itself."""

    acks: int = optional(ACKS, default=-1)
    transactional_id: str | None = optional(
        TRANSACTIONAL_ID, "The transaction that all batches belong to. Each needs `producer`, and `acks` is -1."
    )
    partitions: Sequence[ProduceEntry] = required(
        list_of(object_of(ProduceEntry), 1, limits.PARTITIONS_PER_PRODUCE_MAX)
    )

    def check(self) -> None:
        if self.transactional_id is not None:
            _refuse_unacknowledged(self.acks)
        seen = set()
        for index, entry in enumerate(self.partitions):
            place = entry.topic, entry.partition
            if place in seen:
                refuse(f"partitions[{index}].partition", "named once in a request")
            seen.add(place)
            entry.check_expectation(self.acks, f"partitions[{index}].", count=len(entry.records))
            if self.transactional_id is not None and entry.producer is None:
                refuse(f"partitions[{index}].producer", "given with a transactional_id")


class ProduceByKey(Body):
    """Records for the partitions of their keys."""

    acks: int = optional(ACKS, default=-1)
    encoding: str = optional(ENCODING, default="utf8")
    records: Sequence[Record] = required_by("encoding", RECORDS)
