"""Results as answers: status, headers in lower case, body.

The rule: field names and statuses are those of API.md, and nothing is decided here. Errors leave by ``problem`` alone.
What results are is imported for their types alone: a function begins cold with its own, and not with the others'.
"""

from __future__ import annotations

from collections.abc import Mapping
from json import JSONEncoder
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools.event_handler import Response

from fenceline import limits
from fenceline.errors import FencelineError

from .media import BATCH_TYPE, HTML_TYPE, JSON_TYPE, PROBLEM_TYPE

if TYPE_CHECKING:
    from fenceline.append import Appended
    from fenceline.group_offsets import GroupOffset
    from fenceline.leases import Session
    from fenceline.offsets import Offsets, SegmentEntry, SegmentList
    from fenceline.own import OwnedResource
    from fenceline.own_release import Ownership
    from fenceline.producers import Producer
    from fenceline.read import BatchPage
    from fenceline.subscription_items import Subscription
    from fenceline.subscriptions import ShownCursor, ShownSubscription
    from fenceline.tail import Bounds
    from fenceline.topics import Topic

to_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode

Answer = Response[Any]


def json(body: object, status: int = 200) -> Answer:
    return text(to_json(body), status)


def text(body: str, status: int = 200) -> Answer:
    """Answer with a body that is JSON already."""
    return Response(status, headers={"content-type": JSON_TYPE}, body=body)


def page(body: str) -> Answer:
    """Answer with HTML that may load nothing and run nothing."""
    headers = {
        "content-type": HTML_TYPE,
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options": "nosniff",
        "vary": "accept",
    }
    return Response(200, headers=headers, body=body)


def empty(status: int) -> Answer:
    return Response(status, body="")


def problem(error: FencelineError) -> Answer:
    return Response(error.status, headers={"content-type": PROBLEM_TYPE}, body=to_json(error.problem()))


def topic(shown: Topic) -> dict[str, Any]:
    return {
        "name": shown.name,
        "topic_id": shown.topic_id,
        "partitions": shown.partitions,
        "config": dict(shown.config),
        "regions": list(shown.regions),
        "created_at": shown.created_at,
    }


def appended(result: Appended) -> dict[str, Any]:
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
    return {**made_session(shown), "state": shown.state, "holds": holds}


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
    }


def bounds(shown: Bounds) -> dict[str, int]:
    return {
        "log_start_offset": shown.log_start_offset,
        "next_offset": shown.next_offset,
        "last_stable_offset": shown.last_stable_offset,
    }


def batches(page: BatchPage) -> Answer:
    numbers: Mapping[str, int] = {"position": page.position, **bounds(page.bounds)}
    headers = {f"fenceline-{name.replace('_', '-')}": str(number) for name, number in numbers.items()}
    return Response(200, headers={"content-type": BATCH_TYPE, **headers}, body=page.body)


def offsets(shown: Offsets) -> dict[str, Any]:
    return {
        **bounds(shown.bounds),
        "topic_epoch": shown.topic_epoch,
        "access_mode": shown.access_mode,
        "compaction_horizon": shown.compaction_horizon,
    }


def segments(shown: SegmentList, base_url: str) -> dict[str, Any]:
    """Show segments; ``base_url`` is this server's, for URLs that are paths on it."""
    return {
        "segments": [_segment(entry, base_url) for entry in shown.segments],
        "has_more": shown.has_more,
        "topic_id": shown.topic_id,
        **bounds(shown.bounds),
    }


def _segment(entry: SegmentEntry, base_url: str) -> dict[str, Any]:
    return {
        "base_offset": entry.base_offset,
        "next_offset": entry.next_offset,
        "bytes": entry.bytes,
        "url": base_url + entry.url if entry.url.startswith("/") else entry.url,
        "origin": entry.origin,
        "records": entry.records,
        "aborted": [
            {"producer_id": one.producer_id, "first_offset": one.first_offset, "last_offset": one.last_offset}
            for one in entry.aborted
        ],
    }


# Subscriptions

_CURSORS_BYTES_MAX = limits.REPLY_BYTES_MAX - 1_024  # what stands around them is less


def subscription_entry(shown: Subscription) -> dict[str, Any]:
    return {
        "name": shown.name,
        "topic": shown.topic,
        "replicate_subscription_state": shown.replicate_subscription_state,
    }


def subscription(shown: ShownSubscription) -> dict[str, Any]:
    """Show a subscription, with as many of its partitions as pass the gateway; at least one."""
    cursors: list[dict[str, Any]] = []
    left = _CURSORS_BYTES_MAX
    for cursor in shown.cursors:
        made = _cursor(cursor)
        left -= len(to_json(made)) + 1
        if left < 0 and cursors:
            break
        cursors.append(made)
    has_more = shown.has_more or len(cursors) < len(shown.cursors)
    return {**subscription_entry(shown.subscription), "partitions": cursors, "has_more": has_more}


def _cursor(shown: ShownCursor) -> dict[str, Any]:
    return {
        "partition": shown.partition,
        "mark_delete_offset": shown.mark_delete_offset,
        "individually_acknowledged": shown.individually_acknowledged,
        "backlog": shown.backlog,
    }


def group_offset(shown: GroupOffset) -> dict[str, Any]:
    return {
        "topic": shown.topic,
        "partition": shown.partition,
        "offset": shown.offset,
        "metadata": shown.metadata,
    }
