"""Appends: one batch to one partition, several to several, or each record to the partition of its key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from fenceline import limits
from fenceline.errors import FencelineError
from fenceline_http import produce_requests, responses, wiring
from fenceline_http import request as http_request
from fenceline_http.dispatch import Event, Resolver
from fenceline_http.responses import Answer

if TYPE_CHECKING:
    from fenceline.service.by_key import Share, Shares

app = Resolver()


@app.post("/v1/topics/{topic}/partitions/{partition}/records")
def append(topic: str, partition: str) -> Answer:
    request = produce_requests.produce(app.event)
    result = wiring.service().log.append(
        *http_request.partition(topic, partition),
        request.append,
        acks=request.acks,
        principal=http_request.principal(app.event),
    )
    return responses.empty(202) if result is None or request.acks == 0 else responses.json(responses.appended(result))


@app.post("/v1/produce")
def produce() -> Answer:
    request = produce_requests.produce_many(app.event)
    service = wiring.service()
    principal = http_request.principal(app.event)  # here: the event is this thread's
    calls = [partial(_result, service, entry, request.acks, principal) for entry in request.entries]
    results = service.runtime.gather(calls)
    return responses.empty(202) if request.acks == 0 else responses.json({"results": results})


def _result(service: wiring.Service, entry: produce_requests.Entry, acks: int, principal: str) -> dict[str, Any]:
    """Append one entry; its failure is its own."""
    place: dict[str, Any] = {"topic": responses.name(entry.topic), "partition": entry.partition}
    try:
        topic = http_request.topic(entry.topic)
        result = service.log.append(topic, entry.partition, entry.append, acks=acks, principal=principal)
    except FencelineError as error:
        return {**place, "error": error.problem()}
    return place if result is None else {**place, **responses.appended(result)}


@app.post("/v1/topics/{topic}/records")
def append_by_key(topic: str) -> Answer:
    request = produce_requests.produce_by_key(app.event)
    service = wiring.service()
    principal = http_request.principal(app.event)
    shares, until_ms = service.log.producing.share_out(http_request.topic(topic), request.records)
    calls = [partial(_share, service, shares, one, until_ms, request.acks, principal) for one in shares.shares]
    results: list[dict[str, Any]] = []
    for at in range(0, len(calls), limits.PARTITIONS_PER_PRODUCE_MAX):  # in turn with those of other requests
        results += service.runtime.gather(calls[at : at + limits.PARTITIONS_PER_PRODUCE_MAX])
    if request.acks == 0:
        return responses.empty(202)
    return responses.json({"results": results, "record_partitions": shares.partitions})


def _share(
    service: wiring.Service, shares: Shares, share: Share, until_ms: int, acks: int, principal: str
) -> dict[str, Any]:
    """Append one partition's records; their failure is their own."""
    place: dict[str, Any] = {"topic": shares.topic.name, "partition": share.partition}
    try:
        result = service.log.producing.append_share(shares, share, until_ms, acks=acks, principal=principal)
    except FencelineError as error:
        errors_max = max(limits.RECORD_ERRORS_BY_KEY_MAX // len(shares.shares), 1)
        return {**place, "error": share.blamed(error, errors_max).problem()}
    return place if result is None else {**place, **responses.appended(result)}


def handler(event: Event, context: object) -> dict[str, Any]:
    return app.resolve(event, context)
