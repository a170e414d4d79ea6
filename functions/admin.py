"""Topics, trims, compactions, producer ids, and the service itself; also what no other function serves."""

from __future__ import annotations

from typing import Any

from . import answers, door, media, wiring
from .answers import Answer
from .resolver import Event, Resolver

app = Resolver()


@app.post("/v1/topics")
def create_topic() -> Answer:
    wanted = door.new_topic(app.event)
    created = wiring.service().log.create_topic(
        wanted.name,
        partitions=1 if wanted.partitions is None else wanted.partitions,
        config=wanted.config or {},
        regions=wanted.regions,
    )
    return answers.json(answers.topic(created), 201)


@app.get("/v1/topics")
def list_topics() -> Answer:
    wanted = door.listing(app.event)
    topics, has_more = wiring.service().log.topics(
        prefix=wanted.prefix, start_after=wanted.start_after, limit=wanted.limit
    )
    return answers.json(answers.listed("topics", map(answers.topic, topics), has_more=has_more))


@app.get("/v1/topics/{topic}")
def show_topic(topic: str) -> Answer:
    door.no_parameters(app.event)
    return answers.json(answers.topic(wiring.service().log.topic(door.topic(topic))))


@app.patch("/v1/topics/{topic}")
def alter_topic(topic: str) -> Answer:
    wanted = door.topic_change(app.event, topic)
    altered = wiring.service().log.alter_topic(
        door.topic(topic), partitions=wanted.partitions, config=wanted.config, regions=wanted.regions
    )
    return answers.json(answers.topic(altered))


@app.delete("/v1/topics/{topic}")
def delete_topic(topic: str) -> Answer:
    door.no_parameters(app.event)
    wiring.service().log.delete_topic(door.topic(topic))
    return answers.empty(202)


@app.post("/v1/topics/{topic}/partitions/{partition}/trim")
def trim(topic: str, partition: str) -> Answer:
    before_offset = door.before_offset(app.event)
    log_start_offset = wiring.service().log.trim(*door.partition(topic, partition), before_offset)
    return answers.json({"log_start_offset": log_start_offset})


@app.post("/v1/topics/{topic}/partitions/{partition}/compact")
def compact(topic: str, partition: str) -> Answer:
    door.nothing(app.event)
    wiring.service().log.compact(*door.partition(topic, partition))
    return answers.empty(202)


@app.post("/v1/producer-ids")
def new_producer_id() -> Answer:
    transactional_id = door.transactional_id(app.event)
    producer_id, producer_epoch = wiring.service().log.new_producer_id(transactional_id)
    return answers.json({"producer_id": producer_id, "producer_epoch": producer_epoch})


@app.get("/v1/health")
def health() -> Answer:
    door.no_parameters(app.event)
    service = wiring.service()
    return answers.json({"status": "ok", "region": service.settings.region, "version": service.version})


@app.get("/v1/openapi.json")
def openapi_document() -> Answer:
    door.no_parameters(app.event)
    from .openapi import document_json  # Only who asks for it pays for making it.

    return answers.text(document_json(wiring.service().version))


@app.get("/")
def links() -> Answer:
    door.no_parameters(app.event)
    if media.prefers_page(door.header(app.event, "accept")):
        return _contract()
    paths = {"openapi": "/v1/openapi.json", "docs": "/docs", "health": "/v1/health", "topics": "/v1/topics"}
    return answers.json({"name": "fenceline", "version": wiring.service().version, "links": paths})


@app.get("/docs")
def docs() -> Answer:
    door.no_parameters(app.event)
    return _contract()


def _contract() -> Answer:
    from .docs import page  # Only who asks for it pays for making it.

    return answers.page(page(wiring.service().version))


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
