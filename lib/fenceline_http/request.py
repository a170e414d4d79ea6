"""One HTTP request, out of the event that a gateway makes of it.

Rule: an event is that of an HTTP API, payload version 2.0. The gateway has decoded ``rawPath``, and writes the names of
headers in lower case. There is one addition: ``"isRaw": true`` says that a caller in the same process sent the event.
The event's ``body`` is then ``bytes``, and the response's body may be ``bytes``, too, which saves both sides base64.

Not here: what a request must have (`request_schema`), and which route it takes (`routes`).
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.errors import RecordListTooLargeError, UnknownTopicOrPartitionError
from fenceline.model.topic import LEGAL_NAME, unknown_topic
from fenceline_http import content_codings, media_types
from fenceline_http.media_types import Media

if TYPE_CHECKING:
    from fenceline.service.log import Log
    from fenceline_http.wiring import Service

Event = Mapping[str, Any]

_PARTITION_DIGITS_MAX = 9


def event_ms(event: Event) -> int:
    """Return when a request came about, by the clock of the gateway that sent it; 0 if the event does not say.

    The time is a clock for the log, and no part of the request, so a value that makes no sense refuses nothing.
    """
    sent = event.get("requestContext", {}).get("timeEpoch", 0)
    return sent if type(sent) is int else 0


def schedule_ms(event: Event) -> int:
    """Return the time that a schedule's event was meant for, which is past; 0 if the event does not say."""
    try:
        return int(datetime.fromisoformat(event["time"]).timestamp() * 1000)
    except (KeyError, TypeError, ValueError, OverflowError):
        return 0


def topic_name(name: str) -> str:
    """Return a topic's name.

    Raises:
        UnknownTopicOrPartitionError: It is no legal name, so there is no such topic.
    """
    if not LEGAL_NAME.fullmatch(name):
        raise unknown_topic(name)
    return name


def match(segments: Sequence[str], path: str) -> dict[str, str] | None:
    """Return the parameters that ``path`` gives to a route of these segments, legal or not; None for another path.

    An illegal topic name is an unknown topic, not an unknown path (contract, "Form of requests").
    """
    given = path.split("/")
    if len(given) != len(segments):
        return None
    found: dict[str, str] = {}
    for segment, piece in zip(segments, given, strict=True):
        if segment.startswith("{") and piece:
            found[segment[1:-1]] = piece
        elif segment != piece:
            return None
    return found


class Request:
    """One request, with the service that answers it.

    Attributes:
        parameters: The values of the path's parameters, legal or not.
        operation: The name of the operation that its path and its method lead to, once that is found.
    """

    __slots__ = ("_body", "_media", "event", "operation", "parameters", "service")

    def __init__(self, event: Event, service: Service) -> None:
        self.event = event
        self.service = service
        self.parameters: Mapping[str, str] = {}
        self.operation = ""
        self._body: bytes | None = None
        self._media: Media | None = None

    @property
    def log(self) -> Log:
        return self.service.log

    @property
    def method(self) -> str:
        method: str = self.event["requestContext"]["http"]["method"]
        return method.upper()

    @property
    def path(self) -> str:
        """The path, without the name of the gateway's stage."""
        stage = self.event["requestContext"].get("stage", "$default")
        path: str = self.event["rawPath"]
        return path if stage == "$default" else path[len(f"/{stage}") :]

    @property
    def query(self) -> str:
        return self.event.get("rawQueryString") or ""

    @property
    def body(self) -> bytes:
        """The body, without its content coding.

        Raises:
            RecordListTooLargeError: It is larger than any may be; it was not looked at.
            UnsupportedMediaTypeError: Its content coding is not one that this service reads.
            InvalidRequestError: It is not in the content coding that its header names.
        """
        if self._body is None:
            sent, coding = body_of(self.event), self.header("content-encoding")
            self._body = sent if coding is None or not sent else content_codings.decoded(sent, coding)
        return self._body

    @property
    def media(self) -> Media:
        """The media type of the body.

        Raises:
            UnsupportedMediaTypeError: It is nothing that any request may send.
        """
        if self._media is None:
            content_type = self.header("content-type")
            self._media = media_types.USUAL.get(content_type) or media_types.of_body(content_type)
        return self._media

    @property
    def is_batch(self) -> bool:
        """Whether the body is a record batch.

        Raises:
            RecordListTooLargeError, UnsupportedMediaTypeError, InvalidRequestError: As ``body`` and ``media``, in this
                order.
        """
        _ = self.body  # Its size is judged before its type.
        return self.media is Media.BATCH

    def check_batch(self) -> None:
        """Check that the body may be a record batch, on a path that takes nothing else.

        Raises:
            RecordListTooLargeError, UnsupportedMediaTypeError: As ``is_batch``.
        """
        _ = self.body  # Its size is judged before its type.
        media_types.check_batch(self.header("content-type"))

    @property
    def principal(self) -> str:
        """The sender, as the gateway authorized it; ``""`` where the gateway authorizes none."""
        authorizer = self.event["requestContext"].get("authorizer") or {}
        return (authorizer.get("iam") or {}).get("userArn") or ""

    @property
    def client_host(self) -> str | None:
        """The address of the sender, as the gateway saw it; ``None`` where the event does not say."""
        host = self.event["requestContext"]["http"].get("sourceIp")
        return host if isinstance(host, str) and host else None

    @property
    def base_url(self) -> str:
        """Scheme and host that the request was sent to."""
        scheme = (self.header("x-forwarded-proto") or "https").split(",")[0].strip()
        host = self.header("host") or self.event["requestContext"].get("domainName", "localhost")
        return f"{scheme}://{host}"

    @property
    def topic(self) -> str:
        """The path's topic.

        Raises:
            UnknownTopicOrPartitionError: It is no legal name, so there is no such topic.
        """
        return topic_name(self.parameters["topic"])

    @property
    def partition(self) -> tuple[str, int]:
        """The path's topic and partition.

        Raises:
            UnknownTopicOrPartitionError: One of them is not legal, so there is no such partition.
        """
        topic, digits = self.topic, self.parameters["partition"]
        if not (digits.isascii() and digits.isdigit() and len(digits) <= _PARTITION_DIGITS_MAX):
            raise UnknownTopicOrPartitionError(f"no such partition: topic={topic}, partition={digits[:20]}")
        return topic, int(digits)

    def header(self, name: str) -> str | None:
        """Return a header's value; ``name`` is in lower case, as the gateway gives it."""
        value: str | None = self.event.get("headers", {}).get(name)
        return value


def body_of(event: Event) -> bytes:
    """Return an event's body.

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
            f"the body is too large; send less in one request: bytes={len(content)}, bytes_max={limits.BODY_BYTES_MAX}",
            bytes_max=limits.BODY_BYTES_MAX,
        )
    return content
