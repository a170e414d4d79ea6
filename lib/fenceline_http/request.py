"""Where an event becomes a typed request; behind this, only types.

The rule: everything that can be judged without the log is judged here, in the order of DESIGN.md, section 9: the body's
size, its media type, its form. The first line of each handler calls one of these functions. Each raises
`InvalidRequestError` with the field to blame, or the error that API.md names for that field.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fenceline import limits
from fenceline.errors import (
    InvalidTransactionTimeoutError,
    RecordListTooLargeError,
    UnknownTopicOrPartitionError,
    UnsupportedMediaTypeError,
)
from fenceline.model.topic import is_legal_name, unknown_topic
from fenceline_http import media_types, strict_json
from fenceline_http.fields import Fields, Query, refuse
from fenceline_http.media_types import Media

Event = Mapping[str, Any]

TRANSACTION_TIMEOUT_MS_MAX = 900_000
_PARTITION_DIGITS_MAX = 9
INT16_MAX = 2**15 - 1


# What every request has


def event_ms(event: Event) -> int:
    """Return when a request came about, by the clock of the gateway that sent it; 0 if it does not say.

    It is a clock for the log, and no part of the request: one that makes no sense refuses nothing.
    """
    told = event.get("requestContext", {}).get("timeEpoch", 0)
    return told if type(told) is int else 0


def schedule_ms(event: Event) -> int:
    """Return for when a schedule's event was meant, which had come when it was sent; 0 if it does not say."""
    try:
        return int(datetime.fromisoformat(event["time"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def header(event: Event, name: str) -> str | None:
    """Return a header's value; ``name`` in lower case, as the gateway gives them."""
    value: str | None = event.get("headers", {}).get(name)
    return value


def query(event: Event) -> Query:
    return Query(event.get("rawQueryString") or "")


def body(event: Event) -> bytes:
    """Return the request's body.

    Raises:
        RecordListTooLargeError: It is larger than any may be; it was not looked at.
    """
    given = event.get("body") or b""
    if isinstance(given, bytes):
        content = given
    elif event.get("isBase64Encoded"):
        content = base64.b64decode(given)
    else:
        content = given.encode("utf-8", "surrogatepass")
    if len(content) > limits.BODY_BYTES_MAX:
        raise RecordListTooLargeError(
            f"the body is too large: bytes={len(content)}, bytes_max={limits.BODY_BYTES_MAX}",
            bytes_max=limits.BODY_BYTES_MAX,
        )
    return content


def members(event: Event, *, is_optional: bool = False) -> Fields:
    """Return the members of a JSON body; ``is_optional`` lets no body stand for ``{}``."""
    content = body(event)
    is_absent = not content and is_optional  # as some send it, with a type of theirs all the same
    if not is_absent and media_types.of_body(header(event, "content-type")) is not Media.JSON:
        raise UnsupportedMediaTypeError(f"send {media_types.JSON_TYPE} here")
    query(event).end()
    if is_absent:
        return Fields({})
    return Fields(strict_json.loads(content))


def no_parameters(event: Event) -> None:
    """Refuse whatever stands in the query of a request that takes nothing."""
    query(event).end()


def principal(event: Event) -> str:
    """Return who sent the request, as the gateway authorized it; ``""`` where it authorizes nobody."""
    authorizer = event["requestContext"].get("authorizer") or {}
    user_arn: str | None = (authorizer.get("iam") or {}).get("userArn")
    return user_arn or ""


def base_url(event: Event) -> str:
    """Return scheme and host that the request was sent to."""
    scheme = (header(event, "x-forwarded-proto") or "https").split(",")[0].strip()
    host = header(event, "host") or event["requestContext"].get("domainName", "localhost")
    return f"{scheme}://{host}"


def topic(name: str) -> str:
    """Return a topic's name out of a path.

    Raises:
        UnknownTopicOrPartitionError: It is no legal name, so there is no such topic.
    """
    if not is_legal_name(name):
        raise unknown_topic(name)
    return name


def partition(topic_name: str, digits: str) -> tuple[str, int]:
    """Return a topic's name and a partition out of a path.

    Raises:
        UnknownTopicOrPartitionError: One of them is not legal, so there is no such partition.
    """
    known = topic(topic_name)
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _PARTITION_DIGITS_MAX):
        raise UnknownTopicOrPartitionError(f"no such partition: topic={known}, partition={digits[:20]}")
    return known, int(digits)


# Topics


@dataclass(frozen=True, slots=True)
class TopicChange:
    """A topic to create, or what to change of one."""

    name: str
    partitions: int | None
    config: Mapping[str, Any] | None
    regions: Sequence[str] | None


def new_topic(event: Event) -> TopicChange:
    fields = members(event)
    return _topic_change(fields, fields.require_text("name"))


def topic_change(event: Event, name: str) -> TopicChange:
    return _topic_change(members(event, is_optional=True), name)


def _topic_change(fields: Fields, name: str) -> TopicChange:
    partitions = fields.integer("partitions")
    config = fields.take("config")
    if config is not None and type(config) is not dict:
        refuse("config", "an object")
    regions = fields.take("regions")
    if regions is not None:
        if type(regions) is not list:
            refuse("regions", "a list")
        for index, region in enumerate(regions):
            if type(region) is not str:
                refuse(f"regions[{index}]", "a string")
    fields.end()
    return TopicChange(name, partitions, config, regions)


@dataclass(frozen=True, slots=True)
class Listing:
    """Which part of a listing by name is asked for."""

    prefix: str
    start_after: str
    limit: int


def listing(event: Event) -> Listing:
    asked = query(event)
    wanted = Listing(
        prefix=asked.text("prefix") or "",
        start_after=asked.text("start_after") or "",
        limit=asked.capped("limit", default=limits.LIST_DEFAULT, maximum=limits.LIST_MAX),
    )
    asked.end()
    return wanted


@dataclass(frozen=True, slots=True)
class NamePage:
    """Which names of a topic's are asked for: those behind one."""

    start_after: str
    limit: int


def name_page(event: Event) -> NamePage:
    asked = query(event)
    wanted = NamePage(
        start_after=asked.text("start_after") or "",
        limit=asked.capped("limit", default=limits.LIST_MAX, maximum=limits.LIST_MAX),
    )
    asked.end()
    return wanted


# The rest


def before_offset(event: Event) -> int:
    fields = members(event)
    value = fields.require_integer("before_offset")
    fields.end()
    return value


def nothing(event: Event) -> None:
    """Take no body, or an empty object."""
    members(event, is_optional=True).end()


def transactional_id(event: Event) -> str | None:
    """Return for whom a producer id is asked; the rest of that request is judged by its form alone."""
    fields = members(event, is_optional=True)
    asker = fields.text("transactional_id")
    timeout = fields.integer("transaction_timeout_ms", low=-limits.INT64_MAX)
    producer_id = fields.integer("producer_id")
    epoch = fields.integer("producer_epoch", high=INT16_MAX)
    fields.end()
    if (producer_id is None) != (epoch is None):
        refuse("producer_id" if producer_id is None else "producer_epoch", "given with the other of the pair")
    if producer_id is not None and asker is None:
        refuse("producer_id", "left out without a transactional_id")
    if asker is not None and timeout is not None and not 1 <= timeout <= TRANSACTION_TIMEOUT_MS_MAX:
        raise InvalidTransactionTimeoutError(
            f"transaction_timeout_ms must be from 1 to {TRANSACTION_TIMEOUT_MS_MAX}: transaction_timeout_ms={timeout}"
        )
    return asker
