"""Results as responses: status, headers in lower case, body.

Rule: the names of members and the statuses are those of API.md, and nothing is decided here. Errors leave by `problem`
alone. The types of results are imported for their names only, so that a cold start imports no other function's results.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json import JSONEncoder
from typing import TYPE_CHECKING, Any, TypeVar

from fenceline import limits
from fenceline.errors import FencelineError, MessageTooLargeError
from fenceline_http.media_types import HTML_TYPE, JSON_TYPE, PROBLEM_TYPE

if TYPE_CHECKING:
    from fenceline.model.access import OwnedResource, Ownership, Producer, ProducerPage, Session
    from fenceline.model.results import Appended, BatchPage, Bounds, Offsets, PartitionList
    from fenceline.model.subscription import GroupOffset, ShownCursor, ShownSubscription, Subscription
    from fenceline.model.topic import Topic
    from fenceline.model.transaction import (
        OnceMark,
        ProducerPair,
        ShownProducerState,
        Transaction,
        TransactionMember,
    )

T = TypeVar("T")

to_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Response:
    """One response.

    Args:
        codes: Those of the errors that it reports: its own, or those of the single results in it.
        duplicates: How many of the batches in it were stored before.
    """

    __slots__ = ("body", "codes", "duplicates", "headers", "status")

    def __init__(
        self,
        status: int,
        body: str | bytes = "",
        headers: dict[str, str] | None = None,
        *,
        codes: Iterable[str] = (),
        duplicates: int = 0,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.codes = list(codes)
        self.duplicates = duplicates

    def fitting(self) -> Response:
        """Return this response, or, in place of one that the gateway does not carry, an error that says so."""
        if passes(self.body):
            return self
        # It holds one record, which was compressed.
        return problem(
            MessageTooLargeError(
                "the record is too large for JSON; read it as a batch, with GET …/batches",
                bytes_max=limits.GATEWAY_BYTES_MAX,
            )
        )

    def to_event(self) -> dict[str, Any]:
        """Return the response as a gateway takes it; bytes travel in base64."""
        is_binary = isinstance(self.body, bytes)
        return {
            "statusCode": self.status,
            "body": base64.b64encode(self.body).decode() if isinstance(self.body, bytes) else self.body,
            "isBase64Encoded": is_binary,
            "headers": self.headers,
            "cookies": [],
        }


def json(body: object, status: int = 200) -> Response:
    return text(to_json(body), status)


def text(body: str, status: int = 200) -> Response:
    """Respond with a body that is JSON already."""
    return Response(status, body if passes(body) else body.encode(), {"content-type": JSON_TYPE})


def passes(body: str | bytes) -> bool:
    """Whether the gateway carries a body: text as a string in JSON, where a quote counts twice, bytes in base64."""
    if isinstance(body, bytes):
        return len(body) <= limits.GATEWAY_BYTES_MAX // 4 * 3
    if len(body) <= limits.GATEWAY_BYTES_MAX // 4:
        return True  # whatever its characters are
    return bytes_of(body) + body.count('"') + body.count("\\") <= limits.GATEWAY_BYTES_MAX


def bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


_LIST_BYTES_MAX = limits.REPLY_BYTES_MAX - 1_024  # what stands around a list is less


def listed(name: str, entries: Iterable[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Show a list, cut so that it passes the gateway."""
    shown, is_cut = fitting(entries)
    return {name: shown, "has_more": has_more or is_cut}


def fitting(entries: Iterable[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
    """Return as many entries as pass the gateway, at least one if there is one, and whether there are others."""
    shown, is_cut = fitting_with_json(entries)
    return [entry for entry, _ in shown], is_cut


def fitting_with_json(entries: Iterable[dict[str, Any]]) -> tuple[list[tuple[dict[str, Any], str]], bool]:
    """Return what ``fitting`` does, each entry with its JSON."""
    shown: list[tuple[dict[str, Any], str]] = []
    left = _LIST_BYTES_MAX
    for entry in entries:
        text = to_json(entry)
        left -= bytes_of(text) + 1
        if left < 0 and shown:
            return shown, True
        shown.append((entry, text))
    return shown, False


def page(body: str) -> Response:
    """Respond with HTML that may load nothing and run nothing."""
    headers = {
        "content-type": HTML_TYPE,
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options": "nosniff",
        "vary": "accept",
    }
    return Response(200, body, headers)


def empty(status: int) -> Response:
    return Response(status)


def problem(error: FencelineError) -> Response:
    return Response(error.status, to_json(error.problem()), {"content-type": PROBLEM_TYPE}, codes=(error.code,))


def topic(shown: Topic) -> dict[str, Any]:
    return {
        "name": shown.name,
        "topic_id": shown.topic_id,
        "partitions": shown.partitions,
        "config": dict(shown.config),
        "regions": list(shown.regions),
        "created_at": shown.created_at,
    }


def place(topic: str, partition: int) -> dict[str, Any]:
    """Return the place of a batch, as it was named; a name that is longer than any legal one is cut."""
    longest = limits.TOPIC_NAME_CHARS_MAX
    return {"topic": topic if len(topic) <= longest else topic[:longest] + "…", "partition": partition}


Result = tuple[dict[str, Any], "Appended | FencelineError | None"]  # of a batch: its place, and what became of it


def appended(result: Appended) -> Response:
    response = json(_appended(result))
    response.duplicates = int(result.duplicate)
    return response


def results(found: Sequence[Result], **more: Any) -> Response:
    """Respond with what became of each of several batches."""
    response = json({"results": [_result(*one) for one in found], **more})
    for _, became in found:
        if isinstance(became, FencelineError):
            response.codes.append(became.code)
        elif became is not None:
            response.duplicates += became.duplicate
    return response


def _result(place: dict[str, Any], became: Appended | FencelineError | None) -> dict[str, Any]:
    if became is None:
        return place
    if isinstance(became, FencelineError):
        return {**place, "error": became.problem()}
    return {**place, **_appended(became)}


def _appended(result: Appended) -> dict[str, Any]:
    return {
        "base_offset": result.base_offset,
        "next_offset": result.next_offset,
        "count": result.count,
        "duplicate": result.duplicate,
        "topic_epoch": result.topic_epoch,
        "expected_offset_checked": result.expected_offset_checked,
        "timestamp": result.timestamp,
    }


def made_session(shown: Session) -> dict[str, Any]:
    return {"session_id": shown.session_id, "lease_ms": shown.lease_ms, "expires_at": shown.expires_at}


def session(shown: Session) -> dict[str, Any]:
    holds = [{"group": group, "resource": resource} for group, resource in shown.holds]
    named = {"client_name": shown.client_name, "since": shown.since}
    return {**made_session(shown), **named, "state": shown.state, "holds": holds}


def producer(shown: Producer, principal: str) -> dict[str, Any]:
    """Show a producer; of another principal's session only the beginning of its id."""
    position = {} if shown.queue_position is None else {"queue_position": shown.queue_position}
    return {
        "producer_name": shown.producer_name,
        "session_id": shown.session_id if shown.principal == principal else shown.session_id[:8],
        "access_mode": shown.access_mode,
        "state": shown.state,
        **position,
        "topic_epochs": {str(p): epoch for p, epoch in shown.topic_epochs.items()},
        "next_offsets": {str(p): offset for p, offset in shown.next_offsets.items()},
        "expires_at": shown.expires_at,
        "client_name": shown.client_name,
        "since": shown.since,
    }


def producers(page: ProducerPage, principal: str) -> dict[str, Any]:
    """Show a page of producers; what does not pass the gateway is cut off by name, whichever list it is in."""
    by_name = sorted([*page.producers, *page.waiting], key=lambda one: one.producer_name)
    entries, is_cut = fitting(producer(one, principal) for one in by_name)
    shown = {entry["producer_name"]: entry for entry in entries}
    return {
        "producers": [shown[one.producer_name] for one in page.producers if one.producer_name in shown],
        "waiting": [shown[one.producer_name] for one in page.waiting if one.producer_name in shown],
        "has_more": page.has_more or is_cut,
    }


def owned(shown: OwnedResource) -> dict[str, Any]:
    return {"resource": shown.resource, "generation": shown.generation, "fencing_token": shown.fencing_token}


def ownership(shown: Ownership) -> dict[str, Any]:
    return {
        "resource": shown.resource,
        "group": shown.group,
        "generation": shown.generation,
        "fencing_token": shown.fencing_token,
        "session_id": shown.session_id,
        "client_name": shown.client_name,
        "since": shown.since,
        "until": shown.until,
    }


def bounds(shown: Bounds) -> dict[str, int]:
    return {
        "log_start_offset": shown.log_start_offset,
        "next_offset": shown.next_offset,
        "last_stable_offset": shown.last_stable_offset,
    }


def batches(page: BatchPage, content_type: str) -> Response:
    numbers: Mapping[str, int] = {"position": page.position, **bounds(page.bounds)}
    headers = {f"fenceline-{name.replace('_', '-')}": str(number) for name, number in numbers.items()}
    return Response(200, page.body, {"content-type": content_type, **headers})


def offsets(shown: Offsets) -> dict[str, Any]:
    return {
        **bounds(shown.bounds),
        "topic_epoch": shown.topic_epoch,
        "access_mode": shown.access_mode,
        "compaction_horizon": shown.compaction_horizon,
    }


def offset_at(found: tuple[int, int] | None) -> dict[str, Any]:
    offset, timestamp = found or (None, None)
    return {"offset": offset, "timestamp": timestamp}


def partition_list(shown: PartitionList[T], to_members: Callable[[T], dict[str, Any]]) -> dict[str, Any]:
    """Show partitions, each as its own answer is, by ``to_members``."""
    return {
        "topic_id": shown.topic_id,
        "partitions": [{"partition": number, **to_members(told)} for number, told in shown.partitions],
        "has_more": shown.has_more,
    }


# Subscriptions


def subscription_entry(shown: Subscription) -> dict[str, Any]:
    entry = {
        "name": shown.name,
        "topic": shown.topic,
        "replicate_subscription_state": shown.replicate_subscription_state,
    }
    return {**entry, "active_region": shown.active_region} if shown.active_n else entry


def subscription(shown: ShownSubscription) -> dict[str, Any]:
    """Show a subscription, with as many of its partitions as pass the gateway; of one at least a part."""
    cursors, is_cut = fitting(_up_to_a_part(map(_cursor, shown.cursors)))
    has_more = shown.has_more or is_cut or len(cursors) < len(shown.cursors) or "has_more" in (cursors or [{}])[-1]
    return {**subscription_entry(shown.subscription), "partitions": cursors, "has_more": has_more}


def _up_to_a_part(cursors: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield cursors up to the first that is not whole: a reader goes on from there."""
    for cursor in cursors:
        yield cursor
        if "has_more" in cursor:
            return


_RANGE_CHARS_MAX = 42  # "[a,b]," with two offsets of 19 digits


def _cursor(shown: ShownCursor) -> dict[str, Any]:
    ranges = shown.individually_acknowledged
    count_max = max(_LIST_BYTES_MAX // _RANGE_CHARS_MAX - 10, 1)  # the other members have the place of a few ranges
    more = {"has_more": True} if len(ranges) > count_max else {}
    return {
        "partition": shown.partition,
        "mark_delete_offset": shown.mark_delete_offset,
        "individually_acknowledged": ranges[:count_max],
        "backlog": shown.backlog,
        **more,
    }


def group_offset(shown: GroupOffset) -> dict[str, Any]:
    return {
        "topic": shown.topic,
        "partition": shown.partition,
        "offset": shown.offset,
        "metadata": shown.metadata,
    }


# Transactions


def pair(shown: ProducerPair) -> dict[str, int]:
    return {"producer_id": shown.producer_id, "producer_epoch": shown.producer_epoch}


def member(shown: TransactionMember) -> dict[str, Any]:
    return {"transactional_id": shown.transactional_id, **pair(shown.pair)}


def once(shown: OnceMark) -> dict[str, Any]:
    return {
        "app_id": shown.app_id,
        "version": shown.version,
        "note": shown.note,
        "committed_at": shown.committed_at,
    }


def transaction(shown: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": shown.transactional_id,
        "state": shown.state,
        "producer_id": shown.producer_id,
        "producer_epoch": shown.producer_epoch,
        "transaction_timeout_ms": shown.transaction_timeout_ms,
        "started_at": shown.started_at,
        "partitions": [{"topic": one.topic, "partition": one.partition} for one in shown.partitions],
        "groups": list(shown.groups),
        **({} if shown.expires_at is None else {"expires_at": shown.expires_at}),
    }


def producer_state(shown: ShownProducerState) -> dict[str, int]:
    return {
        "producer_id": shown.producer_id,
        "producer_epoch": shown.producer_epoch,
        "last_sequence": shown.last_sequence,
        "last_timestamp": shown.last_timestamp,
        "current_txn_start_offset": shown.current_txn_start_offset,
    }
