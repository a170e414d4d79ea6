"""Reads: pages of records or of whole batches, offsets of a partition or of a topic's, segments."""

from __future__ import annotations

from typing import Any

from . import answers, door, page, reads, wiring
from .answers import Answer
from .media import Media
from .resolver import Event, Resolver

app = Resolver()


@app.get("/v1/topics/{topic}/partitions/{partition}/records")
def read(topic: str, partition: str) -> Answer:
    wanted = reads.read(app.event)
    place, principal = door.partition(topic, partition), door.principal(app.event)
    log = wiring.service().log
    if wanted.media is Media.BATCH:
        return answers.batches(log.read_batches(*place, wanted.request, principal=principal))
    return answers.text(page.to_json(log.read(*place, wanted.request, principal=principal), wanted.encoding))


@app.get("/v1/topics/{topic}/partitions/{partition}/offsets")
def offsets(topic: str, partition: str) -> Answer:
    timestamp = reads.timestamp(app.event)
    place = door.partition(topic, partition)
    log = wiring.service().log
    if timestamp is None:
        return answers.json(answers.offsets(log.offsets(*place)))
    return answers.json(answers.offset_at(log.offset_at(*place, timestamp)))


@app.get("/v1/topics/{topic}/offsets")
def topic_offsets(topic: str) -> Answer:
    asked = reads.topic_offsets(app.event)
    name, log = door.topic(topic), wiring.service().log
    if asked.timestamp is None:
        listed = log.topic_offsets(name, start_partition=asked.start_partition, limit=asked.limit)
        return answers.json(answers.partition_list(listed, answers.offsets))
    found = log.topic_offsets_at(name, asked.timestamp, start_partition=asked.start_partition, limit=asked.limit)
    return answers.json(answers.partition_list(found, answers.offset_at))


@app.get("/v1/topics/{topic}/partitions/{partition}/segments")
def segments(topic: str, partition: str) -> Answer:
    wanted = reads.segments(app.event)
    listed = wiring.service().log.segments(
        *door.partition(topic, partition), offset=wanted.offset, limit=wanted.limit, own_only=wanted.own_only
    )
    return answers.json(answers.segments(listed, door.base_url(app.event)))


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
