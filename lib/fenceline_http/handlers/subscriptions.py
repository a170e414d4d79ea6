"""Subscriptions and the offsets of groups: what consumers have read, and what is left for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.errors import UnknownSubscriptionError
from fenceline.model.requests import Acknowledgement as Acknowledged
from fenceline.model.requests import ReadRequest
from fenceline.model.subscription import GroupOffset
from fenceline_http import record_page, responses
from fenceline_http.fields import GROUP, LEGAL_GROUP, WANTED_GROUP
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline_http.operations.shared import NamePage
    from fenceline_http.operations.subscriptions import (
        Acknowledgement,
        Commit,
        Committed,
        PartitionPage,
        ReadSubscription,
        Seek,
        SubscriptionChange,
    )
    from fenceline_http.request import Request


def _subscription(request: Request) -> str:
    """Return the path's subscription.

    Raises:
        UnknownSubscriptionError: It is no legal name, so there is no such subscription.
    """
    name = request.parameters["name"]
    if not LEGAL_GROUP.fullmatch(name):
        raise UnknownSubscriptionError(f"no such subscription; its name would be {WANTED_GROUP}")
    return name


def _new_name(request: Request, parameter: str) -> str:
    """Return a name out of the path, where there may be nothing of that name yet.

    Raises:
        InvalidRequestError: It is no legal name.
    """
    return GROUP.of_json(request.parameters[parameter], parameter)


def put_subscription(request: Request, wanted: SubscriptionChange) -> Response:
    name = _new_name(request, "name")
    made, is_new = request.log.subscriptions.subscribe(
        request.topic,
        name,
        is_latest=wanted.initial_position == "latest",
        replicate_subscription_state=wanted.replicate_subscription_state,
        active_region=[wanted.active_region] if wanted.sets_active_region else (),
    )
    return responses.json(responses.subscription(made), 201 if is_new else 200)


def list_subscriptions(request: Request, wanted: NamePage) -> Response:
    found, has_more = request.log.subscriptions.list(request.topic, start_after=wanted.start_after, limit=wanted.limit)
    entries = map(responses.subscription_entry, found)
    return responses.json(responses.listed("subscriptions", entries, has_more=has_more))


def show_subscription(request: Request, wanted: PartitionPage) -> Response:
    shown = request.log.subscriptions.get(
        request.topic,
        _subscription(request),
        start_partition=wanted.start_partition,
        start_offset=wanted.start_offset,
        limit=wanted.limit,
    )
    return responses.json(responses.subscription(shown))


def delete_subscription(request: Request) -> Response:
    request.log.subscriptions.unsubscribe(request.topic, _subscription(request))
    return responses.empty(204)


def read(request: Request, wanted: ReadSubscription) -> Response:
    page = ReadRequest(
        offset=wanted.offset,
        max_records=wanted.max_records,
        max_bytes=wanted.max_bytes,
        wait_ms=wanted.wait_ms,
        is_read_committed=wanted.isolation == "read_committed",
        session_id=wanted.session_id,
        is_identified=wanted.identity,
    )
    found = request.log.subscriptions.read(
        request.topic,
        wanted.partition,
        _subscription(request),
        page,
        require_stable=wanted.require_stable,
        principal=request.principal,
    )
    return responses.text(record_page.to_json(found, wanted.encoding))


def acknowledge(request: Request, wanted: Acknowledgement) -> Response:
    if wanted.individual is None:
        acknowledged = Acknowledged(wanted.cumulative)
    else:
        acknowledged = Acknowledged(individual=wanted.individual)
    mark = request.log.subscriptions.acknowledge(
        request.topic,
        wanted.partition,
        _subscription(request),
        acknowledged,
        session_id=wanted.session_id,
        principal=request.principal,
    )
    return responses.json({"mark_delete_offset": mark})


def seek(request: Request, wanted: Seek) -> Response:
    mark = request.log.subscriptions.seek(
        request.topic,
        wanted.partition,
        _subscription(request),
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        principal=request.principal,
    )
    return responses.json({"mark_delete_offset": mark})


def committed(request: Request, wanted: Committed) -> Response:
    offsets, has_more = request.log.subscriptions.committed(
        _new_name(request, "group"),
        topic=wanted.topic,
        partition=wanted.partition,
        require_stable=wanted.require_stable,
        start_after=wanted.start_after,
        limit=wanted.limit,
    )
    return responses.json(responses.listed("offsets", map(responses.group_offset, offsets), has_more=has_more))


def commit(request: Request, wanted: Commit) -> Response:
    request.log.subscriptions.commit(
        _new_name(request, "group"),
        [GroupOffset(one.topic, one.partition, one.offset, one.metadata) for one in wanted.offsets],
        session_id=wanted.session_id,
        principal=request.principal,
    )
    return responses.json({})
