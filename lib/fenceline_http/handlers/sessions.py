"""Sessions, the named producers that have write access under them, and what they own."""

from __future__ import annotations

from typing import Any

from fenceline.model.access import QUEUED
from fenceline_http import own_requests, responses, session_requests, wiring
from fenceline_http import request as http_request
from fenceline_http.dispatch import Event, Resolver
from fenceline_http.responses import Answer

app = Resolver()


@app.post("/v1/sessions")
def create_session() -> Answer:
    wanted = session_requests.new_session(app.event)
    made = wiring.service().log.access.create_session(
        lease_ms=wanted.lease_ms, client_name=wanted.client_name, principal=http_request.principal(app.event)
    )
    return responses.json(responses.made_session(made), 201)


@app.get("/v1/sessions/{session_id}")
def show_session(session_id: str) -> Answer:
    http_request.no_parameters(app.event)
    shown = wiring.service().log.access.session(session_id, principal=http_request.principal(app.event))
    return responses.json(responses.session(shown))


@app.post("/v1/sessions/{session_id}/heartbeat")
def heartbeat(session_id: str) -> Answer:
    http_request.nothing(app.event)
    renewed = wiring.service().log.access.heartbeat(session_id, principal=http_request.principal(app.event))
    return responses.json({"expires_at": renewed.expires_at})


@app.delete("/v1/sessions/{session_id}")
def close_session(session_id: str) -> Answer:
    http_request.no_parameters(app.event)
    wiring.service().log.access.close_session(session_id, principal=http_request.principal(app.event))
    return responses.empty(204)


@app.post("/v1/topics/{topic}/producers")
def claim(topic: str) -> Answer:
    request = session_requests.claim(app.event)
    principal = http_request.principal(app.event)
    producer = wiring.service().log.access.claim(http_request.topic(topic), request, principal=principal)
    status = 202 if producer.state == QUEUED else 201
    return responses.json({"producer": responses.producer(producer, principal)}, status)


@app.get("/v1/topics/{topic}/producers/{producer_name}")
def show_producer(topic: str, producer_name: str) -> Answer:
    asked = session_requests.poll(app.event)
    principal = http_request.principal(app.event)
    producer = wiring.service().log.access.producer(
        http_request.topic(topic),
        producer_name,
        session_id=asked.session_id,
        wait_ms=asked.wait_ms,
        principal=principal,
    )
    return responses.json({"producer": responses.producer(producer, principal)})


@app.delete("/v1/topics/{topic}/producers/{producer_name}")
def close_producer(topic: str, producer_name: str) -> Answer:
    session_id = session_requests.session_id(app.event)
    log = wiring.service().log
    log.access.close_producer(
        http_request.topic(topic), producer_name, session_id, principal=http_request.principal(app.event)
    )
    return responses.empty(204)


@app.get("/v1/topics/{topic}/producers")
def list_producers(topic: str) -> Answer:
    asked = http_request.name_page(app.event)
    page = wiring.service().log.access.producers(
        http_request.topic(topic), start_after=asked.start_after, limit=asked.limit
    )
    return responses.json(responses.producers(page, http_request.principal(app.event)))


@app.post("/v1/own")
def own() -> Answer:
    wanted = own_requests.own(app.event)
    owned = wiring.service().log.access.own(
        wanted.session_id, wanted.resources, group=wanted.group, principal=http_request.principal(app.event)
    )
    return responses.json({"group": wanted.group, "resources": [responses.owned(one) for one in owned]})


@app.post("/v1/own/release")
def release() -> Answer:
    wanted = own_requests.release(app.event)
    wiring.service().log.access.release(
        wanted.session_id, wanted.resources, group=wanted.group, principal=http_request.principal(app.event)
    )
    return responses.empty(204)


@app.get("/v1/own")
def show_owner() -> Answer:
    asked = own_requests.look(app.event)
    shown = wiring.service().log.access.ownership(
        asked.resource, group=asked.group, principal=http_request.principal(app.event)
    )
    return responses.json(responses.ownership(shown))


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
