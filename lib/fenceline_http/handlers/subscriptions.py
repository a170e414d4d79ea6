"""Subscriptions, groups, and the offsets of groups: what consumers have read, and what is left for them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from fenceline.errors import GroupIdNotFoundError, UnknownSubscriptionError
from fenceline.model.requests import Acknowledgement, Heartbeat, OwnedPartitions, ReadRequest
from fenceline.model.subscription import CommittedOffset, CursorPart, SubscriptionPage
from fenceline_http import record_page, responses
from fenceline_http.operations.groups import GroupList
from fenceline_http.operations.shared import topic_ids
from fenceline_http.operations.subscriptions import GroupOffsets, LagList, MarkAnswer, SubscriptionList
from fenceline_http.responses import Response
from fenceline_http.value_kinds import GROUP, LEGAL_GROUP, MEMBER_ID, WANTED_GROUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from fenceline.model.subscription import Cursor, ShownSubscription
    from fenceline_http.operations.groups import GroupListing, HeartbeatBody, Leave, MemberPage
    from fenceline_http.operations.shared import NamePage
    from fenceline_http.operations.subscriptions import (
        AcknowledgementBody,
        Commit,
        CommittedQuery,
        LagQuery,
        PartitionPage,
        ReadSubscription,
        SeekBody,
        SeekQuery,
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
    return _shown(made, 201 if is_new else 200)


def _shown(shown: ShownSubscription, status: int = 200) -> Response:
    """Respond with a subscription and as many of its partitions as pass the gateway, at least with a part of one."""
    parts = list(_up_to_a_part(map(_part, shown.cursors)))
    parts = parts[: len(responses.fitting(parts)[0])]
    has_more = shown.has_more or len(parts) < len(shown.cursors) or any(one.has_more for one in parts)
    return responses.json(SubscriptionPage(shown.subscription.entry, parts, has_more), status)


def _up_to_a_part(cursors: Iterable[CursorPart]) -> Iterator[CursorPart]:
    """Yield cursors up to and including the first that is not whole, from which a reader goes on."""
    for cursor in cursors:
        yield cursor
        if cursor.has_more:
            return


_RANGE_CHARS_MAX = 42  # "[a,b]," with two offsets of 19 digits


def _part(cursor: Cursor) -> CursorPart:
    ranges = cursor.individually_acknowledged
    # The other members have the place of a few ranges.
    count_max = max(responses.LIST_BYTES_MAX // _RANGE_CHARS_MAX - 10, 1)
    if len(ranges) <= count_max:
        return CursorPart(cursor)
    return CursorPart(replace(cursor, individually_acknowledged=ranges[:count_max]), has_more=True)


def list_subscriptions(request: Request, wanted: NamePage) -> Response:
    found, has_more = request.log.subscriptions.list(request.topic, start_after=wanted.start_after, limit=wanted.limit)
    return responses.listed(SubscriptionList([one.entry for one in found], has_more))


def show_subscription(request: Request, wanted: PartitionPage) -> Response:
    shown = request.log.subscriptions.get(
        request.topic,
        _subscription(request),
        start_partition=wanted.start_partition,
        start_offset=wanted.start_offset,
        limit=wanted.limit,
    )
    return _shown(shown)


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
        member=wanted.member,
        is_identified=wanted.identity,
    )
    found = request.log.subscriptions.read(
        request.topic,
        wanted.partition,
        _subscription(request),
        page,
        require_stable=wanted.require_stable,
        principal=request.principal,
        topic_id=wanted.topic_id,
    )
    return responses.text(record_page.to_json(found, wanted.encoding))


def acknowledge(request: Request, wanted: AcknowledgementBody) -> Response:
    if wanted.individual is None:
        acknowledged = Acknowledgement(wanted.cumulative)
    else:
        acknowledged = Acknowledgement(individual=wanted.individual)
    acknowledged = replace(acknowledged, reader_id=wanted.reader_id, client_name=wanted.client_name)
    answer = request.log.subscriptions.acknowledged(
        request.topic,
        wanted.partition,
        _subscription(request),
        acknowledged,
        session_id=wanted.session_id,
        member=wanted.member,
        principal=request.principal,
        topic_id=wanted.topic_id,
    )
    return responses.json(answer)


def list_lag(request: Request, wanted: LagQuery) -> Response:
    found, go_on_after = request.log.subscriptions.list_lag(
        topic=wanted.topic, start_after=wanted.start_after, limit=wanted.limit, principal=request.principal
    )
    is_end = go_on_after is None
    return responses.json(LagList(found, not is_end, None if is_end else str(go_on_after)))


def seek(request: Request, wanted: SeekBody) -> Response:
    mark = request.log.subscriptions.seek(
        request.topic,
        wanted.partition,
        _subscription(request),
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        member=wanted.member,
        principal=request.principal,
    )
    return responses.json(MarkAnswer(mark))


def preview_seek(request: Request, wanted: SeekQuery) -> Response:
    found = request.log.subscriptions.preview_seek(
        request.topic, wanted.partition, _subscription(request), offset=wanted.offset, timestamp=wanted.timestamp
    )
    return responses.json(found)


def committed(request: Request, wanted: CommittedQuery) -> Response:
    offsets, has_more = request.log.subscriptions.committed(
        _new_name(request, "group"),
        topic=wanted.topic,
        partition=wanted.partition,
        require_stable=wanted.require_stable,
        start_after=wanted.start_after,
        limit=wanted.limit,
    )
    return responses.listed(GroupOffsets(offsets, has_more))


def commit(request: Request, wanted: Commit) -> Response:
    request.log.subscriptions.commit(
        _new_name(request, "group"),
        [CommittedOffset(one.topic, one.partition, one.offset, one.metadata) for one in wanted.offsets],
        session_id=wanted.session_id,
        member=wanted.member,
        principal=request.principal,
        topic_ids=topic_ids(wanted.offsets),
    )
    return responses.json({})


# Groups and their members


def heartbeat(request: Request, wanted: HeartbeatBody) -> Response:
    group, member_id = _new_name(request, "group"), _member_id(request)
    owned = None
    if wanted.owned is not None:
        owned = [OwnedPartitions(one.topic, one.partitions, one.topic_id) for one in wanted.owned]
    beat = Heartbeat(
        member_id,
        wanted.member_epoch,
        topics=wanted.topics,
        topic_prefixes=wanted.topic_prefixes,
        owned=owned,
        instance_id=wanted.instance_id,
        client_name=wanted.client_name,
        client_host=request.client_host,
        assignor=wanted.assignor,
        session_timeout_ms=wanted.session_timeout_ms,
        rebalance_timeout_ms=wanted.rebalance_timeout_ms,
        is_latest=wanted.initial_position == "latest",
    )
    return responses.json(request.log.groups.heartbeat(group, beat, principal=request.principal))


def leave(request: Request, wanted: Leave) -> Response:
    group, member_id = _new_name(request, "group"), _member_id(request)
    request.log.groups.leave(group, member_id, is_coming_back=wanted.is_coming_back, principal=request.principal)
    return responses.empty(204)


def list_groups(request: Request, wanted: GroupListing) -> Response:
    found, has_more = request.log.groups.list(
        prefix=wanted.prefix, state=wanted.state, start_after=wanted.start_after, limit=wanted.limit
    )
    return responses.listed(GroupList(found, has_more))


def show_group(request: Request, wanted: MemberPage) -> Response:
    found = request.log.groups.get(_group(request), start_after=wanted.start_after, limit=wanted.limit)
    fitting, is_cut = responses.fitting(found.members)
    return responses.json(found._replace(members=found.members[: len(fitting)], has_more=found.has_more or is_cut))


def delete_group(request: Request) -> Response:
    request.log.groups.delete(_group(request))
    return responses.empty(204)


def _member_id(request: Request) -> str:
    return MEMBER_ID.of_json(request.parameters["member_id"], "member_id")


def _group(request: Request) -> str:
    """Return the path's group.

    Raises:
        GroupIdNotFoundError: It is no legal name, so there is no such group.
    """
    group = request.parameters["group"]
    if not LEGAL_GROUP.fullmatch(group):
        raise GroupIdNotFoundError(f"there is no such group; its name would be {WANTED_GROUP}")
    return group
