"""Where an event about a subscription, or a group's offsets, becomes a typed request.

The rule: as in the door. A subscription's name that is no legal one is nobody's, but cannot be created either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from fenceline import limits
from fenceline.errors import InvalidRequestError, UnknownSubscriptionError
from fenceline.model.requests import Acknowledgement, ReadRequest
from fenceline.model.subscription import GroupOffset
from fenceline_http import request as http_request
from fenceline_http.fields import Fields, integer, refuse

_LEGAL_NAME = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{limits.SUBSCRIPTION_NAME_CHARS_MAX}}}", re.ASCII)
_PLACE = re.compile(r"([A-Za-z0-9._-]{1,249})/([0-9]{1,9})", re.ASCII)
_WANTED_NAME = f"1 to {limits.SUBSCRIPTION_NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -, and neither . nor .."


def known_name(name: str) -> str:
    """Return a subscription's name out of a path.

    Raises:
        UnknownSubscriptionError: It is no legal name, so there is no such subscription.
    """
    if not _LEGAL_NAME.fullmatch(name):
        raise UnknownSubscriptionError(f"no such subscription; its name would be {_WANTED_NAME}")
    return name


def group_name(name: str) -> str:
    """Return a group's name out of a path, where there may not be one yet."""
    if not _LEGAL_NAME.fullmatch(name):
        refuse("group", _WANTED_NAME)
    return name


# Subscriptions


@dataclass(frozen=True, slots=True)
class SubscriptionChange:
    """A subscription to create, or what to change of one."""

    is_latest: bool
    replicate_subscription_state: bool | None


def subscription_change(event: http_request.Event, name: str) -> SubscriptionChange:
    fields = http_request.members(event, is_optional=True)
    is_latest = fields.choice("initial_position", ("latest", "earliest")) == "latest"
    is_replicated = fields.take("replicate_subscription_state")
    if is_replicated is not None and type(is_replicated) is not bool:
        refuse("replicate_subscription_state", "true or false")
    fields.end()
    if not _LEGAL_NAME.fullmatch(name):
        refuse("name", _WANTED_NAME)
    return SubscriptionChange(is_latest, is_replicated)


@dataclass(frozen=True, slots=True)
class PartitionPage:
    """Which partitions of a subscription to show."""

    start_partition: int
    start_offset: int
    limit: int


def partition_page(event: http_request.Event) -> PartitionPage:
    asked = http_request.query(event)
    page = PartitionPage(
        start_partition=asked.integer("start_partition") or 0,
        start_offset=asked.integer("start_offset") or 0,
        limit=asked.capped("limit", default=limits.CURSORS_SHOWN_DEFAULT, maximum=limits.LIST_MAX),
    )
    asked.end()
    return page


@dataclass(frozen=True, slots=True)
class Read:
    """A page of what is not acknowledged, and how to show it."""

    partition: int
    request: ReadRequest
    encoding: str


def read(event: http_request.Event) -> Read:
    asked = http_request.query(event)
    wanted = Read(
        partition=asked.integer("partition") or 0,
        request=ReadRequest(
            offset=asked.integer("offset"),
            max_records=asked.capped("max_records", default=limits.RECORDS_DEFAULT, maximum=limits.RECORDS_MAX),
            max_bytes=asked.capped("max_bytes", default=limits.BYTES_DEFAULT, maximum=limits.BYTES_MAX),
            wait_ms=asked.integer("wait_ms", high=limits.WAIT_MS_MAX) or 0,
            is_read_committed=asked.choice("isolation", ("read_uncommitted", "read_committed")) == "read_committed",
            session_id=asked.text("session_id"),
        ),
        encoding=asked.choice("encoding", ("utf8", "base64")),
    )
    asked.end()
    return wanted


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """What to acknowledge in which partition, and under which session."""

    partition: int
    request: Acknowledgement
    session_id: str | None


def acknowledge(event: http_request.Event) -> Acknowledge:
    fields = http_request.members(event)
    partition = fields.require_integer("partition")
    cumulative = fields.integer("cumulative")
    individual = fields.take("individual")
    session_id = fields.text("session_id")
    fields.end()
    if (cumulative is None) == (individual is None):
        raise InvalidRequestError("give exactly one of cumulative and individual", field="cumulative")
    if cumulative is not None:
        return Acknowledge(partition, Acknowledgement(cumulative), session_id)
    return Acknowledge(partition, Acknowledgement(individual=_offsets(individual)), session_id)


def _offsets(given: Any) -> list[int]:
    if type(given) is not list or not 1 <= len(given) <= limits.ACKNOWLEDGED_PER_REQUEST_MAX:
        refuse("individual", f"a list of 1 to {limits.ACKNOWLEDGED_PER_REQUEST_MAX} offsets")
    for index, offset in enumerate(given):
        integer(offset, f"individual[{index}]")
    return list(given)


@dataclass(frozen=True, slots=True)
class Seek:
    """Where to set a mark: exactly one of offset and timestamp."""

    partition: int
    offset: int | None
    timestamp: int | None


def seek(event: http_request.Event) -> Seek:
    fields = http_request.members(event)
    wanted = Seek(fields.require_integer("partition"), fields.integer("offset"), fields.integer("timestamp"))
    fields.end()
    if (wanted.offset is None) == (wanted.timestamp is None):
        raise InvalidRequestError("give exactly one of offset and timestamp", field="offset")
    return wanted


# Groups


@dataclass(frozen=True, slots=True)
class Commit:
    """Offsets to commit, all of them or none, and under which session."""

    offsets: list[GroupOffset]
    session_id: str | None


def commit(event: http_request.Event) -> Commit:
    fields = http_request.members(event)
    given = fields.require("offsets")
    if type(given) is not list:
        refuse("offsets", "a list")
    offsets = [_group_offset(Fields(entry, f"offsets[{index}]")) for index, entry in enumerate(given)]
    session_id = fields.text("session_id")
    fields.end()
    return Commit(offsets, session_id)


def _group_offset(fields: Fields) -> GroupOffset:
    metadata = fields.text("metadata") or ""
    if len(metadata.encode()) > limits.METADATA_BYTES_MAX:
        refuse(fields.path("metadata"), f"text of at most {limits.METADATA_BYTES_MAX} bytes")
    offset = GroupOffset(
        topic=fields.require_text("topic"),
        partition=fields.require_integer("partition"),
        offset=fields.require_integer("offset"),
        metadata=metadata,
    )
    fields.end()
    return offset


@dataclass(frozen=True, slots=True)
class Committed:
    """Which of a group's offsets are asked for."""

    topic: str | None
    partition: int | None
    require_stable: bool
    start_after: tuple[str, int] | None
    limit: int


def committed(event: http_request.Event) -> Committed:
    asked = http_request.query(event)
    wanted = Committed(
        topic=asked.text("topic"),
        partition=asked.integer("partition"),
        require_stable=asked.choice("require_stable", ("false", "true")) == "true",
        start_after=_place(asked.text("start_after")),
        limit=asked.capped("limit", default=limits.LIST_MAX, maximum=limits.LIST_MAX),
    )
    asked.end()
    if wanted.partition is not None and wanted.topic is None:
        refuse("partition", "left out without a topic")
    return wanted


def _place(text: str | None) -> tuple[str, int] | None:
    """Return the topic and partition of a text of both."""
    if not text:
        return None
    found = _PLACE.fullmatch(text)
    if found is None:
        refuse("start_after", "a topic and a partition, as in orders/0")
    return found[1], int(found[2])
