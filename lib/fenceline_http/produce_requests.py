"""Records to append, out of JSON or as a binary batch.

The rule: the form of a request, that of its records included, is judged whole before anything of it is appended. A
record's path is made up only once it is to blame, since this is the hot path.
"""

from __future__ import annotations

from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fenceline import limits
from fenceline.append.request import AppendRequest
from fenceline.errors import InvalidRequiredAcksError
from fenceline.model.record import Record
from fenceline.model.results import ProducerRef, SessionRef
from fenceline_http import media_types
from fenceline_http import request as http_request
from fenceline_http.fields import Fields, integer, integers, refuse
from fenceline_http.media_types import Media
from fenceline_http.strict_json import member

_RECORD_FIELDS = frozenset(("key", "value", "headers", "timestamp"))
_ACKS = (-1, 0, 1)
_MISSING = object()

ToBytes = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class Produce:
    """One batch to append, and what its sender waits for."""

    append: AppendRequest
    acks: int


@dataclass(frozen=True, slots=True)
class Entry:
    """One batch of several, for one partition."""

    topic: str
    partition: int
    append: AppendRequest


@dataclass(frozen=True, slots=True)
class ProduceMany:
    """Batches for several partitions; each succeeds or fails by itself."""

    entries: Sequence[Entry]
    acks: int


@dataclass(frozen=True, slots=True)
class Keyed:
    """Records for the partitions of their keys, and what their sender waits for."""

    records: Sequence[Record]
    acks: int


def produce(event: http_request.Event) -> Produce:
    content = http_request.body(event)
    if media_types.of_body(http_request.header(event, "content-type")) is Media.BATCH:
        return _of_batch(event, content)
    fields = http_request.members(event)
    acks = _acks(fields.take("acks"))
    transactional_id = fields.text("transactional_id")
    append = _of_fields(fields, transactional_id, acks)
    return Produce(append, acks)


def produce_many(event: http_request.Event) -> ProduceMany:
    fields = http_request.members(event)
    acks = _acks(fields.take("acks"))
    transactional_id = fields.text("transactional_id")
    trees = fields.require("partitions")
    fields.end()
    if type(trees) is not list or not 1 <= len(trees) <= limits.PARTITIONS_PER_PRODUCE_MAX:
        refuse("partitions", f"a list of 1 to {limits.PARTITIONS_PER_PRODUCE_MAX}")
    entries = []
    seen = set()
    for index, tree in enumerate(trees):
        one = Fields(tree, f"partitions[{index}]")
        place = one.require_text("topic"), one.require_integer("partition")
        if place in seen:
            refuse(one.path("partition"), "named once in a request")
        seen.add(place)
        entries.append(Entry(*place, _of_fields(one, transactional_id, acks)))
    return ProduceMany(entries, acks)


def produce_by_key(event: http_request.Event) -> Keyed:
    fields = http_request.members(event)
    acks = _acks(fields.take("acks"))
    records = _encoded_records(fields)
    fields.end()
    return Keyed(records, acks)


def _encoded_records(fields: Fields) -> list[Record]:
    to_bytes = _base64 if fields.choice("encoding", ("utf8", "base64")) == "base64" else _utf8
    return _records(fields.require("records"), fields.path("records"), to_bytes)


def _of_fields(fields: Fields, transactional_id: str | None, acks: int) -> AppendRequest:
    records = _encoded_records(fields)
    where = fields.path("expected_offset")
    expected = _expected(fields.take("expected_offset"), where, len(records))
    producer = fields.take("producer")
    session = fields.take("session")
    request = AppendRequest.of_records(
        records,
        expected_offset=expected,
        producer=None if producer is None else _producer(Fields(producer, fields.path("producer"))),
        session=None if session is None else _session(Fields(session, fields.path("session"))),
        transactional_id=transactional_id,
    )
    fields.end()
    _refuse_unanswerable(expected, acks, where)
    return request


def _of_batch(event: http_request.Event, content: bytes) -> Produce:
    asked = http_request.query(event)
    acks = _acks_word(asked.text("acks"))
    text = asked.text("expected_offset")
    expected = None if text is None else integers(text, "expected_offset", low=-1)
    session_id = asked.text("session_id")
    topic_epoch = asked.integer("topic_epoch", low=-1)
    transactional_id = asked.text("transactional_id")
    asked.end()
    if (session_id is None) != (topic_epoch is None):
        refuse("session_id" if session_id is None else "topic_epoch", "given with the other of the pair")
    _refuse_unanswerable(expected, acks, "expected_offset")
    session = SessionRef(session_id, topic_epoch) if session_id is not None and topic_epoch is not None else None
    return Produce(
        AppendRequest.of_batch(content, expected_offset=expected, session=session, transactional_id=transactional_id),
        acks,
    )


def _records(trees: Any, path: str, to_bytes: ToBytes) -> list[Record]:
    if type(trees) is not list or not trees:
        refuse(path, "a list of at least one record")
    records = []
    for index, tree in enumerate(trees):
        try:
            records.append(_record(tree, to_bytes))
        except _WrongMemberError as wrong:
            at = f"{path}[{index}]"
            refuse(member(at, wrong.name) if wrong.name else at, wrong.wanted)
    return records


class _WrongMemberError(Exception):
    """A record's member is to blame; where the record stands, its caller knows."""

    def __init__(self, name: str, wanted: str) -> None:
        super().__init__(name, wanted)
        self.name = name
        self.wanted = wanted


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


def _utf8(text: str) -> bytes:
    return text.encode()


def _base64(text: str) -> bytes:
    if len(text) % 4 or text.endswith("==="):  # which a2b_base64 takes behind whole quads
        raise Base64Error
    return a2b_base64(text, strict_mode=True)


def _acks(value: Any) -> int:
    if value is None or value == "all":
        return -1
    if type(value) is not int or not -limits.INT64_MAX <= value <= limits.INT64_MAX:
        refuse("acks", '-1, 1, 0 or "all"')
    return _known_acks(value)


def _acks_word(word: str | None) -> int:
    if word is None or word == "all":
        return -1
    value = integers(word, "acks", low=-limits.INT64_MAX)
    if isinstance(value, list):
        refuse("acks", "-1, 1, 0 or all")
    return _known_acks(value)


def _known_acks(value: int) -> int:
    if value not in _ACKS:
        raise InvalidRequiredAcksError(f"acks must be -1, 1 or 0: acks={value}")
    return value


def _expected(tree: Any, path: str, count: int) -> int | list[int] | None:
    if tree is None:
        return None
    if type(tree) is not list:
        return integer(tree, path, low=-1)
    if len(tree) != count:
        refuse(path, f"one offset, or a list of one for each of the {count} records")
    return [integer(one, f"{path}[{index}]", low=-1) for index, one in enumerate(tree)]


def _refuse_unanswerable(expected: int | Sequence[int] | None, acks: int, path: str) -> None:
    """An expectation whose failure nobody would hear of is no expectation."""
    offsets = [expected] if isinstance(expected, int) else expected or ()
    if acks == 0 and any(offset != -1 for offset in offsets):
        refuse(path, "left out with acks=0")


def _producer(fields: Fields) -> ProducerRef:
    producer = ProducerRef(
        fields.require_integer("producer_id"),
        fields.require_integer("producer_epoch", high=http_request.INT16_MAX),
        fields.require_integer("sequence", high=limits.INT32_MAX),
    )
    fields.end()
    return producer


def _session(fields: Fields) -> SessionRef:
    session = SessionRef(fields.require_text("session_id"), fields.require_integer("topic_epoch", low=-1))
    fields.end()
    return session
