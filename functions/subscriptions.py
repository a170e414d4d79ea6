"""Subscriptions and the offsets of groups: what consumers have read, and what is left for them."""

from __future__ import annotations

from typing import Any

from . import answers, door, page, subscription_requests, wiring
from .answers import Answer
from .resolver import Event, Resolver

app = Resolver()


@app.put("/v1/topics/{topic}/subscriptions/{name}")
def put_subscription(topic: str, name: str) -> Answer:
    wanted = subscription_requests.subscription_change(app.event, name)
    made, is_new = wiring.service().log.consumers.subscribe(
        door.topic(topic),
        name,
        is_latest=wanted.is_latest,
        replicate_subscription_state=wanted.replicate_subscription_state,
    )
    return answers.json(answers.subscription(made), 201 if is_new else 200)


@app.get("/v1/topics/{topic}/subscriptions")
def list_subscriptions(topic: str) -> Answer:
    asked = door.name_page(app.event)
    found, has_more = wiring.service().log.consumers.subscriptions(
        door.topic(topic), start_after=asked.start_after, limit=asked.limit
    )
    return answers.json(answers.listed("subscriptions", map(answers.subscription_entry, found), has_more=has_more))


@app.get("/v1/topics/{topic}/subscriptions/{name}")
def show_subscription(topic: str, name: str) -> Answer:
    asked = subscription_requests.partition_page(app.event)
    shown = wiring.service().log.consumers.subscription(
        door.topic(topic),
        subscription_requests.known_name(name),
        start_partition=asked.start_partition,
        start_offset=asked.start_offset,
        limit=asked.limit,
    )
    return answers.json(answers.subscription(shown))


@app.delete("/v1/topics/{topic}/subscriptions/{name}")
def delete_subscription(topic: str, name: str) -> Answer:
    door.no_parameters(app.event)
    wiring.service().log.consumers.unsubscribe(door.topic(topic), subscription_requests.known_name(name))
    return answers.empty(204)


@app.get("/v1/topics/{topic}/subscriptions/{name}/records")
def read(topic: str, name: str) -> Answer:
    wanted = subscription_requests.read(app.event)
    found = wiring.service().log.consumers.read(
        door.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        wanted.request,
        principal=door.principal(app.event),
    )
    return answers.text(page.to_json(found, wanted.encoding))


@app.post("/v1/topics/{topic}/subscriptions/{name}/acknowledgements")
def acknowledge(topic: str, name: str) -> Answer:
    wanted = subscription_requests.acknowledge(app.event)
    mark = wiring.service().log.consumers.acknowledge(
        door.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        wanted.request,
        session_id=wanted.session_id,
        principal=door.principal(app.event),
    )
    return answers.json({"mark_delete_offset": mark})


@app.post("/v1/topics/{topic}/subscriptions/{name}/seek")
def seek(topic: str, name: str) -> Answer:
    wanted = subscription_requests.seek(app.event)
    mark = wiring.service().log.consumers.seek(
        door.topic(topic),
        wanted.partition,
        subscription_requests.known_name(name),
        offset=wanted.offset,
        timestamp=wanted.timestamp,
        principal=door.principal(app.event),
    )
    return answers.json({"mark_delete_offset": mark})


@app.get("/v1/groups/{group}/offsets")
def committed(group: str) -> Answer:
    asked = subscription_requests.committed(app.event)
    offsets, has_more = wiring.service().log.consumers.committed(
        subscription_requests.group_name(group),
        topic=asked.topic,
        partition=asked.partition,
        require_stable=asked.require_stable,
        start_after=asked.start_after,
        limit=asked.limit,
    )
    return answers.json(answers.listed("offsets", map(answers.group_offset, offsets), has_more=has_more))


@app.post("/v1/groups/{group}/offsets")
def commit(group: str) -> Answer:
    wanted = subscription_requests.commit(app.event)
    wiring.service().log.consumers.commit(
        subscription_requests.group_name(group),
        wanted.offsets,
        session_id=wanted.session_id,
        principal=door.principal(app.event),
    )
    return answers.json({})


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
