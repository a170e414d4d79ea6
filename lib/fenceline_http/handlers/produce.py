"""Appends: one batch to one partition, several to several, or each record to the partition of its key."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.append.entries.batch import AppendRequest
from fenceline.errors import FencelineError, UnknownTopicOrPartitionError
from fenceline.model.results import ProducerRef, SessionRef
from fenceline_http import responses
from fenceline_http.produce_requests import Produce
from fenceline_http.request import topic_name
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline.service.by_key import Share, Shares
    from fenceline.service.log import Log
    from fenceline_http.produce_requests import BatchProducer, BatchQuery, ProduceByKey, ProduceEntry, ProduceMany
    from fenceline_http.request import Request


def append(request: Request, wanted: Produce | BatchQuery) -> Response:
    if not isinstance(wanted, Produce):
        return append_batch(request, wanted)
    return _append(request, wanted.acks, _of_records(wanted, wanted.transactional_id))


def append_batch(request: Request, wanted: BatchQuery) -> Response:
    try:
        batch = _of_batch(wanted, request.body)
    except FencelineError as error:
        with suppress(UnknownTopicOrPartitionError):  # a place that cannot exist: the batch is judged first
            error.name_place(*request.partition)
        raise
    return _append(request, wanted.acks, batch)


def _append(request: Request, acks: int, batch: AppendRequest) -> Response:
    result = request.log.append(*request.partition, batch, acks=acks, principal=request.principal)
    return responses.empty(202) if result is None or acks == 0 else responses.appended(result)


def produce(request: Request, wanted: ProduceMany) -> Response:
    principal = request.principal
    batches = [(entry, _of_records(entry, wanted.transactional_id)) for entry in wanted.partitions]
    calls = [partial(_result, request.log, *one, wanted.acks, principal) for one in batches]
    results = request.service.runtime.gather(calls)
    return responses.empty(202) if wanted.acks == 0 else responses.results(results)


def _result(log: Log, entry: ProduceEntry, batch: AppendRequest, acks: int, principal: str) -> responses.Result:
    """Append one entry. Its failure is its own."""
    place = responses.place(entry.topic, entry.partition)
    try:
        result = log.append(topic_name(entry.topic), entry.partition, batch, acks=acks, principal=principal)
    except FencelineError as error:
        return place, error
    return place, result


def append_by_key(request: Request, wanted: ProduceByKey) -> Response:
    log, principal = request.log, request.principal
    shares, until_ms = log.producing.share_out(request.topic, wanted.records)
    calls = [partial(_share, log, shares, one, until_ms, wanted.acks, principal) for one in shares.shares]
    results: list[responses.Result] = []
    for at in range(0, len(calls), limits.PARTITIONS_PER_PRODUCE_MAX):  # in turn with those of other requests
        results += request.service.runtime.gather(calls[at : at + limits.PARTITIONS_PER_PRODUCE_MAX])
    if wanted.acks == 0:
        return responses.empty(202)
    return responses.results(results, record_partitions=shares.partitions)


def _share(log: Log, shares: Shares, share: Share, until_ms: int, acks: int, principal: str) -> responses.Result:
    """Append one partition's records. Their failure is their own."""
    place = {"topic": shares.topic.name, "partition": share.partition}
    try:
        result = log.producing.append_share(shares, share, until_ms, acks=acks, principal=principal)
    except FencelineError as error:
        errors_max = max(limits.RECORD_ERRORS_BY_KEY_MAX // len(shares.shares), 1)
        return place, share.blamed(error, errors_max)
    return place, result


def _of_records(wanted: Produce | ProduceEntry, transactional_id: str | None) -> AppendRequest:
    producer, session = wanted.producer, wanted.session
    return AppendRequest.of_records(
        wanted.records,
        expected_offset=wanted.expectation,
        producer=None if producer is None else _producer_ref(producer),
        session=None if session is None else SessionRef(session.session_id, session.topic_epoch),
        transactional_id=transactional_id,
    )


def _producer_ref(producer: BatchProducer) -> ProducerRef:
    return ProducerRef(producer.producer_id, producer.producer_epoch, producer.sequence)


def _of_batch(wanted: BatchQuery, body: bytes) -> AppendRequest:
    session_id, topic_epoch = wanted.session_id, wanted.topic_epoch
    session = None if session_id is None or topic_epoch is None else SessionRef(session_id, topic_epoch)
    return AppendRequest.of_batch(
        body,
        expected_offset=wanted.expectation,
        expected_field=wanted.expectation_name,
        session=session,
        transactional_id=wanted.transactional_id,
    )
