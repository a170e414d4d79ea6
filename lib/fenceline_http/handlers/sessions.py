"""Sessions, the named producers that have write access under them, and what they own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline.model.access import QUEUED, Lease
from fenceline.model.requests import ClaimRequest, OwnTarget
from fenceline_http import responses
from fenceline_http.operations.ownership import OwnAnswer
from fenceline_http.operations.sessions import ClaimAnswer, Renewed
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline.model.access import ProducerPage
    from fenceline_http.operations.ownership import LockQuery, OwnerQuery, OwnRequest, ReleaseRequest
    from fenceline_http.operations.sessions import (
        AccessPage,
        ClaimBody,
        MarkerPage,
        NewSession,
        OfSession,
        ProducerQuery,
        SessionQuery,
    )
    from fenceline_http.operations.shared import NamePage
    from fenceline_http.request import Request


def create_session(request: Request, wanted: NewSession) -> Response:
    made = request.log.access.create_session(
        lease_ms=wanted.lease_ms, client_name=wanted.client_name, principal=request.principal
    )
    return responses.json(Lease(made.session_id, made.lease_ms, made.expires_at), 201)


def show_session(request: Request) -> Response:
    shown = request.log.access.session(request.parameters["session_id"], principal=request.principal)
    return responses.json(shown)


def list_sessions(request: Request, wanted: SessionQuery) -> Response:
    page = request.log.access.sessions(start_after=wanted.start_after, limit=wanted.limit, principal=request.principal)
    return responses.listed(page)  # which is never cut: a session is short


def heartbeat(request: Request) -> Response:
    renewed = request.log.access.heartbeat(request.parameters["session_id"], principal=request.principal)
    return responses.json(Renewed(renewed.expires_at))


def close_session(request: Request) -> Response:
    request.log.access.close_session(request.parameters["session_id"], principal=request.principal)
    return responses.empty(204)


def claim(request: Request, wanted: ClaimBody) -> Response:
    asked = ClaimRequest(
        access_mode=wanted.access_mode,
        partitions=wanted.partitions,
        producer_name=wanted.producer_name,
        session_id=wanted.session_id,
        lease_ms=wanted.lease_ms,
        client_name=wanted.client_name,
        topic_epochs=wanted.topic_epochs,
        wait_ms=wanted.wait_ms,
    )
    made = request.log.access.claim(request.topic, asked, principal=request.principal)
    return responses.json(ClaimAnswer(made), 202 if made.state == QUEUED else 201)


def show_producer(request: Request, wanted: ProducerQuery) -> Response:
    name, principal = request.parameters["producer_name"], request.principal
    found = request.log.access.producer(
        request.topic, name, session_id=wanted.session_id, wait_ms=wanted.wait_ms, principal=principal
    )
    return responses.json(ClaimAnswer(found))


def close_producer(request: Request, wanted: OfSession) -> Response:
    name = request.parameters["producer_name"]
    request.log.access.close_producer(request.topic, name, wanted.session_id, principal=request.principal)
    return responses.empty(204)


def list_producers(request: Request, wanted: NamePage) -> Response:
    page = request.log.access.producers(
        request.topic, start_after=wanted.start_after, limit=wanted.limit, principal=request.principal
    )
    return _producers(page)


def _producers(page: ProducerPage) -> Response:
    """Respond with a page of producers, cut by name in both lists at once so that it passes the gateway."""
    by_name = sorted([*page.producers, *page.waiting], key=lambda one: one.producer_name)
    rows, is_cut = responses.fitting(by_name)
    shown = {one.producer_name: row for one, row in zip(by_name, rows, strict=False)}
    granted, waiting = (
        ",".join([shown[one.producer_name] for one in part if one.producer_name in shown])
        for part in (page.producers, page.waiting)
    )
    return responses.text(
        f'{{"producers":[{granted}],"waiting":[{waiting}],"has_more":{responses.to_json(page.has_more or is_cut)}}}'
    )


def show_access(request: Request, wanted: AccessPage) -> Response:
    shown = request.log.access.topic_access(
        request.topic, start_partition=wanted.start_partition, limit=wanted.limit, principal=request.principal
    )
    return responses.listed(shown)


def list_markers(request: Request, wanted: MarkerPage) -> Response:
    history = request.log.access.history(
        *request.partition, before_offset=wanted.before_offset, limit=wanted.limit, principal=request.principal
    )
    return responses.json(history)


def own(request: Request, wanted: OwnRequest) -> Response:
    resources = [OwnTarget(one.resource, one.generation) for one in wanted.resources]
    owned = request.log.access.own(wanted.session_id, resources, group=wanted.group, principal=request.principal)
    return responses.json(OwnAnswer(wanted.group, owned))


def release(request: Request, wanted: ReleaseRequest) -> Response:
    request.log.access.release(wanted.session_id, wanted.resources, group=wanted.group, principal=request.principal)
    return responses.empty(204)


def show_owner(request: Request, wanted: OwnerQuery) -> Response:
    shown = request.log.access.ownership(wanted.resource, group=wanted.group, principal=request.principal)
    return responses.json(shown)


def list_locks(request: Request, wanted: LockQuery) -> Response:
    page = request.log.access.locks(
        group=wanted.group, start_after=wanted.start_after, limit=wanted.limit, principal=request.principal
    )
    return responses.listed(page, go_on_after=None)  # A page that is cut goes on after its last one.
