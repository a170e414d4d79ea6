"""Answers of the service as the log's own types, so that a record is the same thing on both sides of HTTP.

The rule: members that are not known are passed over, so that an older client can speak to a newer service. The types
of the log are loaded when there is one to make: a program that only looks at topics does not pay for the others.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import httpx

from fenceline.topics import Topic

if TYPE_CHECKING:
    from fenceline.appended import Appended
    from fenceline.bounds import Bounds
    from fenceline.pages import BatchPage, Page, ReadRecord
    from fenceline.told import AbortedTransaction, Offsets, SegmentList

Answer = Mapping[str, Any]
T = TypeVar("T", "Topic", "Appended", "Bounds", "AbortedTransaction")


class OffsetAt(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: int


class ProducerId(NamedTuple):
    """A producer id that nobody else has, and its epoch (KIP-98)."""

    producer_id: int
    producer_epoch: int


def topic_of(answer: Answer) -> Topic:
    return _flat(Topic, answer)


def appended_of(answer: Answer) -> Appended:
    from fenceline.appended import Appended

    return _flat(Appended, answer)


def page_of(answer: Answer) -> Page:
    from fenceline.bounds import Bounds
    from fenceline.pages import Page

    is_base64 = answer["encoding"] == "base64"
    records = [_record_of(record, is_base64) for record in answer["records"]]
    return Page(records, answer["position"], _flat(Bounds, answer))


def batch_page_of(response: httpx.Response) -> BatchPage:
    from fenceline.bounds import Bounds
    from fenceline.pages import BatchPage

    numbers = {
        name: int(response.headers[f"fenceline-{name.replace('_', '-')}"])
        for name in ("position", "log_start_offset", "next_offset", "last_stable_offset")
    }
    return BatchPage(response.content, numbers["position"], _flat(Bounds, numbers))


def offsets_of(answer: Answer) -> Offsets:
    from fenceline.bounds import Bounds
    from fenceline.told import Offsets

    return Offsets(
        bounds=_flat(Bounds, answer),
        topic_epoch=answer["topic_epoch"],
        access_mode=answer["access_mode"],
        compaction_horizon=answer["compaction_horizon"],
    )


def offset_at_of(answer: Answer) -> OffsetAt | None:
    return None if answer["offset"] is None else OffsetAt(answer["offset"], answer["timestamp"])


def segments_of(answer: Answer) -> SegmentList:
    from fenceline.bounds import Bounds
    from fenceline.told import AbortedTransaction, SegmentEntry, SegmentList

    entries = [
        SegmentEntry(
            base_offset=entry["base_offset"],
            next_offset=entry["next_offset"],
            bytes=entry["bytes"],
            url=entry["url"],
            origin=entry["origin"],
            records=entry["records"],
            aborted=[_flat(AbortedTransaction, aborted) for aborted in entry["aborted"]],
        )
        for entry in answer["segments"]
    ]
    return SegmentList(entries, answer["has_more"], answer["topic_id"], _flat(Bounds, answer))


def _flat(shape: type[T], answer: Answer) -> T:
    return shape(**{field.name: answer[field.name] for field in fields(shape)})


def _record_of(record: Answer, is_base64: bool) -> ReadRecord:
    from fenceline.pages import ReadRecord

    def octets(text: str | None) -> bytes | None:
        if text is None:
            return None
        return b64decode(text) if is_base64 else text.encode()

    return ReadRecord(
        offset=record["offset"],
        timestamp=record["timestamp"],
        key=octets(record["key"]),
        value=octets(record["value"]),
        headers=[(name, octets(value)) for name, value in record["headers"]],
        topic_epoch=record["topic_epoch"],
        origin=record.get("origin"),
    )
