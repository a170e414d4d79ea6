"""The request that polls many partitions at once (contract, "One poll for many partitions").

Rule: an answer's entries are in the order of the request's positions, so each is given back with its position.

Not here: when a poll is sent, and for which partitions (``following``, ``poller``).
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fenceline import errors, limits
from fenceline.client import types
from fenceline.client.calls import public
from fenceline.client.problems import error_in
from fenceline.client.requests.base import Requests, given
from fenceline.model.kinds import Isolation
from fenceline.model.results import Page

if TYPE_CHECKING:
    from fenceline.model.requests import PollPosition

FRAMES_TYPE = "application/vnd.fenceline.batches"
_FRAME = struct.Struct(">16siqi")


@dataclass(frozen=True, slots=True)
class Frame:
    """Whole batches as stored, from the one that holds the position's offset, and the offset to go on with."""

    body: bytes
    position: int


PageT = TypeVar("PageT", bound="Page | Frame")


@dataclass(frozen=True, slots=True)
class Polled(Generic[PageT]):
    """The answer to a poll.

    Attributes:
        entries: For each position that has something to say, in the order of the request: the position, the topic's id
            (empty with an error), and its page or error.
        has_more: Whether positions that are left out may not have been looked at.
        hold: Whether it costs nothing to have an answer held back.
    """

    entries: Sequence[tuple[PollPosition, str, PageT | errors.FencelineError]]
    has_more: bool
    hold: bool


@public
class PollRequests(Requests):
    """The part of ``Client`` that is about one poll for many partitions."""

    def poll(
        self,
        positions: Sequence[PollPosition],
        *,
        max_records: int = limits.RECORDS_DEFAULT,
        max_bytes: int = limits.BYTES_DEFAULT,
        wait_ms: int = 0,
        max_delay_ms: int | None = None,
        isolation: Isolation = "read_uncommitted",
        identity: bool = False,
        group: str | None = None,
        session_id: str | None = None,
        member_id: str | None = None,
        member_epoch: int | None = None,
    ) -> Polled[Page]:
        """Return what is new at 1 to 500 positions, each of a partition of its own. The bounds hold for the answer.

        Args:
            wait_ms: How long the service holds an empty answer back.
            max_delay_ms: The longest pause between two looks at a partition meanwhile.
            group, session_id, member_id, member_epoch: As for ``read``; positions with a subscription read as that one.

        Raises:
            NotFoundError: The service is older than this request.
        """
        body = _body(positions, max_records, max_bytes, wait_ms, max_delay_ms, isolation, group, session_id)
        body |= given(member_id=member_id, member_epoch=member_epoch, identity=True if identity else None)
        answer = self._call("POST", "/v1/poll", "none", body={**body, "encoding": "base64"}, hold_ms=wait_ms)
        places = {(one.topic, one.partition): one for one in positions}
        entries = [
            (places[entry["topic"], entry["partition"]], entry.get("topic_id", ""), _page_of(entry))
            for entry in answer["partitions"]
        ]
        return Polled(entries, answer["has_more"], answer["hold"])

    def poll_batches(
        self,
        positions: Sequence[PollPosition],
        *,
        max_bytes: int = limits.BYTES_DEFAULT,
        wait_ms: int = 0,
        max_delay_ms: int | None = None,
        isolation: Isolation = "read_uncommitted",
        group: str | None = None,
        session_id: str | None = None,
    ) -> Polled[Frame]:
        """Return whole batches, otherwise as ``poll``. Positions of several topics need the ``topic_id`` of each."""
        body = _body(positions, limits.RECORDS_MAX, max_bytes, wait_ms, max_delay_ms, isolation, group, session_id)
        response = self._transport.request(
            "POST", "/v1/poll", effect="none", body=body, headers={"accept": FRAMES_TYPE}, hold_ms=wait_ms
        )
        flags = {name: response.headers.get(f"fenceline-{name}") for name in ("has-more", "hold")}
        if None in flags.values():
            raise errors.NotFoundError("the server at this URL answers a poll as no fenceline service does")
        entries = list(_entries_of(response.content, positions))
        return Polled(entries, flags["has-more"] == "true", flags["hold"] == "true")


def _body(
    positions: Sequence[PollPosition],
    max_records: int,
    max_bytes: int,
    wait_ms: int,
    max_delay_ms: int | None,
    isolation: Isolation,
    group: str | None,
    session_id: str | None,
) -> dict[str, Any]:
    return given(
        positions=[_position(one) for one in positions],
        max_records=max_records,
        max_bytes=max_bytes,
        wait_ms=wait_ms,
        max_delay_ms=max_delay_ms,
        isolation=isolation,
        group=group,
        session_id=session_id,
    )


def _position(one: PollPosition) -> dict[str, Any]:
    return given(
        topic=one.topic,
        partition=one.partition,
        offset=one.offset,
        topic_id=one.topic_id,
        subscription=one.subscription,
        require_stable=True if one.require_stable else None,
    )


def _page_of(entry: Mapping[str, Any]) -> Page | errors.FencelineError:
    return error_in(entry["error"]) if "error" in entry else types.page_of(entry)


def _entries_of(
    content: bytes, positions: Sequence[PollPosition]
) -> Iterator[tuple[PollPosition, str, Frame | errors.FencelineError]]:
    """Yield the frames of an answer (contract, "One poll for many partitions")."""
    left = iter(positions)
    at = 0
    while at < len(content):
        try:
            topic_id, partition, position, length = _FRAME.unpack_from(content, at)
            body = content[at + _FRAME.size : at + _FRAME.size + length]
            if length < 0 or len(body) < length:
                raise struct.error("cut")
            at += _FRAME.size + length
            if position < 0:
                entry = json.loads(body)
                place = next(one for one in left if (one.topic, one.partition) == (entry["topic"], entry["partition"]))
                yield place, "", error_in(entry["error"])
            else:
                name = topic_id.hex()
                place = next(one for one in left if one.partition == partition and one.topic_id in (None, name))
                yield place, name, Frame(body, position)
        except (struct.error, ValueError, KeyError, StopIteration) as error:
            raise errors.CorruptLogError(
                "the service answered a poll with bytes that are no frames of batches"
            ) from error
