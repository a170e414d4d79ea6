"""Subscriptions and the offsets of groups: what consumers have read, and what is left for them."""

from __future__ import annotations

from typing import Any

from fenceline_http import record_page, responses, subscription_requests, wiring
from fenceline_http import request as http_request
from fenceline_http.dispatch import Event, Resolver
from fenceline_http.responses import Answer

app = Resolver()


@app.put("/v1/topics/{topic}/subscriptions/{name}")
def put_subscription(topic: str, name: str) -> Answer:
    wanted = subscription_requests.subscription_change(app.event, name)
    made, is_new = wiring.service().log.subscriptions.subscribe(
        http_request.topic(topic),
        name,
        is_latest=wanted.is_latest,
        replicate_subscription_state=wanted.replicate_subscription_state,
    )
    return responses.json(responses.subscription(made), 201 if is_new else 200)


@app.get("/v1/topics/{topic}/subscriptions")
def list_subscriptions(topic: str) -> Answer:
    asked = http_request.name_page(app.event)
    found, has_more = wiring.service().log.subscriptions.list(
        http_request.topic(topic), start_after=asked.start_after, limit=asked.limit
    )
    return responses.json(
        responses.listed("subscriptions", map(responses.subscription_entry, found), has_more=has_more)
    )


@app.get("/v1/topics/{topic}/subscriptions/{name}")
def show_subscription(topic: str, name: str) -> Answer:
    asked = subscription_requests.partition_page(app.event)
    shown = wiring.service().log.subscriptions.get(
        http_request.topic(topic),
        subscription_requests.known_name(name),
        start_partition=asked.start_partition,
        start_offset=asked.start_offset,
        limit=asked.limit,
    )
    return responses.json(responses.subscription(shown))


@app.delete("/v1/topics/{topic}/subscriptions/{name}")
def delete_subscription(topic: str, name: str) -> Answer:
    http_request.no_parameters(app.event)
    wiring.service().log.subscriptions.unsubscribe(http_request.topic(topic), subscription_requests.known_name(name))
    return responses.empty(204)


@app.get("/v1/topics/{topic}/subscriptions/{name}/records")
def read(topic: str, name: str) -> Answer:
    wanted = subscription_requests.read(app.event)
    found = wiring.service().log.subscriptions.read(
        http_request.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        wanted.request,
        principal=http_request.principal(app.event),
    )
    return responses.text(record_page.to_json(found, wanted.encoding))


@app.post("/v1/topics/{topic}/subscriptions/{name}/acknowledgements")
def acknowledge(topic: str, name: str) -> Answer:
    wanted = subscription_requests.acknowledge(app.event)
    mark = wiring.service().log.subscriptions.acknowledge(
        http_request.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        wanted.request,
        session_id=wanted.session_id,
        principal=http_request.principal(app.event),
    )
    return responses.json({"mark_delete_offset": mark})


@app.post("/v1/topics/{topic}/subscriptions/{name}/seek")
def seek(topic: str, name: str) -> Answer:
    wanted = subscription_requests.seek(app.event)
    mark = wiring.service().log.subscriptions.seek(
        http_request.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        principal=http_request.principal(app.event),
    )
    return responses.json({"mark_delete_offset": mark})


@app.get("/v1/groups/{group}/offsets")
def committed(group: str) -> Answer:
    asked = subscription_requests.committed(app.event)
    offsets, has_more = wiring.service().log.subscriptions.committed(
        subscription_requests.group_name(group),
        topic=asked.topic,
        partition=asked.partition,
        require_stable=asked.require_stable,
        start_after=asked.start_after,
        limit=asked.limit,
    )
    return responses.json(responses.listed("offsets", map(responses.group_offset, offsets), has_more=has_more))


@app.post("/v1/groups/{group}/offsets")
def commit(group: str) -> Answer:
    wanted = subscription_requests.commit(app.event)
    wiring.service().log.subscriptions.commit(
        subscription_requests.group_name(group),
        wanted.offsets,
        session_id=wanted.session_id,
        principal=http_request.principal(app.event),
    )
    return responses.json({})


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
