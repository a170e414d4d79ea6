"""Reads: pages of records or of whole batches, offsets of a partition or of a topic's, segments."""

from __future__ import annotations

from typing import Any

from fenceline_http import read_requests, record_page, responses, wiring
from fenceline_http import request as http_request
from fenceline_http.dispatch import Event, Resolver
from fenceline_http.media_types import Media
from fenceline_http.responses import Answer

app = Resolver()


@app.get("/v1/topics/{topic}/partitions/{partition}/records")
def read(topic: str, partition: str) -> Answer:
    wanted = read_requests.read(app.event)
    place, principal = http_request.partition(topic, partition), http_request.principal(app.event)
    log = wiring.service().log
    if wanted.media is Media.BATCH:
        return responses.batches(log.partitions.read_batches(*place, wanted.request, principal=principal))
    return responses.text(
        record_page.to_json(log.partitions.read(*place, wanted.request, principal=principal), wanted.encoding)
    )


@app.get("/v1/topics/{topic}/partitions/{partition}/offsets")
def offsets(topic: str, partition: str) -> Answer:
    timestamp = read_requests.timestamp(app.event)
    place = http_request.partition(topic, partition)
    log = wiring.service().log
    if timestamp is None:
        return responses.json(responses.offsets(log.partitions.offsets(*place)))
    return responses.json(responses.offset_at(log.partitions.offset_at(*place, timestamp)))


@app.get("/v1/topics/{topic}/offsets")
def topic_offsets(topic: str) -> Answer:
    asked = read_requests.topic_offsets(app.event)
    name, log = http_request.topic(topic), wiring.service().log
    if asked.timestamp is None:
        listed = log.partitions.list_offsets(name, start_partition=asked.start_partition, limit=asked.limit)
        return responses.json(responses.partition_list(listed, responses.offsets))
    found = log.partitions.list_offsets_at(
        name, asked.timestamp, start_partition=asked.start_partition, limit=asked.limit
    )
    return responses.json(responses.partition_list(found, responses.offset_at))


@app.get("/v1/topics/{topic}/partitions/{partition}/segments")
def segments(topic: str, partition: str) -> Answer:
    wanted = read_requests.segments(app.event)
    listed = wiring.service().log.partitions.segments(
        *http_request.partition(topic, partition), offset=wanted.offset, limit=wanted.limit, own_only=wanted.own_only
    )
    return responses.json(responses.segments(listed, http_request.base_url(app.event)))


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
