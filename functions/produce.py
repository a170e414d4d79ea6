"""Appends: one batch to one partition, several to several, or each record to the partition of its key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.errors import FencelineError

from . import answers, door, records, wiring
from .answers import Answer
from .resolver import Event, Resolver

if TYPE_CHECKING:
    from fenceline.by_key import Share, Shares

app = Resolver()


@app.post("/v1/topics/{topic}/partitions/{partition}/records")
def append(topic: str, partition: str) -> Answer:
    request = records.produce(app.event)
    result = wiring.service().log.append(
        *door.partition(topic, partition), request.append, acks=request.acks, principal=door.principal(app.event)
    )
    return answers.empty(202) if result is None or request.acks == 0 else answers.json(answers.appended(result))


@app.post("/v1/produce")
def produce() -> Answer:
    request = records.produce_many(app.event)
    service = wiring.service()
    principal = door.principal(app.event)  # here: the event is this thread's
    calls = [partial(_result, service, entry, request.acks, principal) for entry in request.entries]
    results = service.runtime.gather(calls)
    return answers.empty(202) if request.acks == 0 else answers.json({"results": results})


def _result(service: wiring.Service, entry: records.Entry, acks: int, principal: str) -> dict[str, Any]:
    """Append one entry; its failure is its own."""
    place: dict[str, Any] = {"topic": answers.name(entry.topic), "partition": entry.partition}
    try:
        topic = door.topic(entry.topic)
        result = service.log.append(topic, entry.partition, entry.append, acks=acks, principal=principal)
    except FencelineError as error:
        return {**place, "error": error.problem()}
    return place if result is None else {**place, **answers.appended(result)}


@app.post("/v1/topics/{topic}/records")
def append_by_key(topic: str) -> Answer:
    request = records.produce_by_key(app.event)
    service = wiring.service()
    principal = door.principal(app.event)
    shares, until_ms = service.log.share_out(door.topic(topic), request.records)
    calls = [partial(_share, service, shares, one, until_ms, request.acks, principal) for one in shares.shares]
    results: list[dict[str, Any]] = []
    for at in range(0, len(calls), limits.PARTITIONS_PER_PRODUCE_MAX):  # in turn with those of other requests
        results += service.runtime.gather(calls[at : at + limits.PARTITIONS_PER_PRODUCE_MAX])
    if request.acks == 0:
        return answers.empty(202)
    return answers.json({"results": results, "record_partitions": shares.partitions})


def _share(
    service: wiring.Service, shares: Shares, share: Share, until_ms: int, acks: int, principal: str
) -> dict[str, Any]:
    """Append one partition's records; their failure is their own."""
    place: dict[str, Any] = {"topic": shares.topic.name, "partition": share.partition}
    try:
        result = service.log.append_share(shares, share, until_ms, acks=acks, principal=principal)
    except FencelineError as error:
        errors_max = max(limits.RECORD_ERRORS_BY_KEY_MAX // len(shares.shares), 1)
        return {**place, "error": share.blamed(error, errors_max).problem()}
    return place if result is None else {**place, **answers.appended(result)}


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
