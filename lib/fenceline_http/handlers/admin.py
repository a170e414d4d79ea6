"""Topics, trims, compactions, producer ids, and the service itself; also what no other function serves."""

from __future__ import annotations

from typing import Any

from fenceline_http import media_types, responses, wiring
from fenceline_http import request as http_request
from fenceline_http.dispatch import Event, Resolver
from fenceline_http.responses import Answer

app = Resolver()


@app.post("/v1/topics")
def create_topic() -> Answer:
    wanted = http_request.new_topic(app.event)
    created = wiring.service().log.topics.create(
        wanted.name,
        partitions=1 if wanted.partitions is None else wanted.partitions,
        config=wanted.config or {},
        regions=wanted.regions,
    )
    return responses.json(responses.topic(created), 201)


@app.get("/v1/topics")
def list_topics() -> Answer:
    wanted = http_request.listing(app.event)
    topics, has_more = wiring.service().log.topics.list(
        prefix=wanted.prefix, start_after=wanted.start_after, limit=wanted.limit
    )
    return responses.json(responses.listed("topics", map(responses.topic, topics), has_more=has_more))


@app.get("/v1/topics/{topic}")
def show_topic(topic: str) -> Answer:
    http_request.no_parameters(app.event)
    return responses.json(responses.topic(wiring.service().log.topics.get(http_request.topic(topic))))


@app.patch("/v1/topics/{topic}")
def alter_topic(topic: str) -> Answer:
    wanted = http_request.topic_change(app.event, topic)
    altered = wiring.service().log.topics.alter(
        http_request.topic(topic), partitions=wanted.partitions, config=wanted.config, regions=wanted.regions
    )
    return responses.json(responses.topic(altered))


@app.delete("/v1/topics/{topic}")
def delete_topic(topic: str) -> Answer:
    http_request.no_parameters(app.event)
    wiring.service().log.topics.delete(http_request.topic(topic))
    return responses.empty(202)


@app.post("/v1/topics/{topic}/partitions/{partition}/trim")
def trim(topic: str, partition: str) -> Answer:
    before_offset = http_request.before_offset(app.event)
    log_start_offset = wiring.service().log.partitions.trim(*http_request.partition(topic, partition), before_offset)
    return responses.json({"log_start_offset": log_start_offset})


@app.post("/v1/topics/{topic}/partitions/{partition}/compact")
def compact(topic: str, partition: str) -> Answer:
    http_request.nothing(app.event)
    wiring.service().log.partitions.compact(*http_request.partition(topic, partition))
    return responses.empty(202)


@app.post("/v1/producer-ids")
def new_producer_id() -> Answer:
    transactional_id = http_request.transactional_id(app.event)
    producer_id, producer_epoch = wiring.service().log.producing.new_producer_id(transactional_id)
    return responses.json({"producer_id": producer_id, "producer_epoch": producer_epoch})


@app.get("/v1/health")
def health() -> Answer:
    http_request.no_parameters(app.event)
    service = wiring.service()
    return responses.json({"status": "ok", "region": service.settings.region, "version": service.version})


@app.get("/v1/openapi.json")
def openapi_document() -> Answer:
    http_request.no_parameters(app.event)
    from fenceline_http.openapi import document_json  # Only who asks for it pays for making it.

    return responses.text(document_json(wiring.service().version))


@app.get("/")
def links() -> Answer:
    http_request.no_parameters(app.event)
    if media_types.prefers_page(http_request.header(app.event, "accept")):
        return _contract()
    paths = {"openapi": "/v1/openapi.json", "docs": "/docs", "health": "/v1/health", "topics": "/v1/topics"}
    return responses.json({"name": "fenceline", "version": wiring.service().version, "links": paths})


@app.get("/docs")
def docs() -> Answer:
    http_request.no_parameters(app.event)
    return _contract()


def _contract() -> Answer:
    from fenceline_http.docs_page import page  # Only who asks for it pays for making it.

    return responses.page(page(wiring.service().version))


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
