"""Appends: one batch to one partition, or several to several."""

from __future__ import annotations

from functools import partial
from typing import Any

from fenceline.errors import FencelineError

from . import answers, door, records, wiring
from .answers import Answer
from .resolver import Event, Resolver

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


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
