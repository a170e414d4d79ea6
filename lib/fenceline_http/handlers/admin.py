"""Topics, trims, compactions, topics in several regions, and the service itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fenceline import limits
from fenceline.model.topic import ListedTopic
from fenceline_http import media_types, responses
from fenceline_http.operations.about import About, Health, Links
from fenceline_http.operations.admin import TopicList, Trimmed
from fenceline_http.operations.replication import SkippedGap, StartedSnapshot
from fenceline_http.responses import Response

if TYPE_CHECKING:
    from fenceline_http.operations.admin import NewTopic, TopicChange, TopicListing, Trim
    from fenceline_http.operations.replication import GapSkip, ReplicationPage
    from fenceline_http.request import Request


def create_topic(request: Request, wanted: NewTopic) -> Response:
    created = request.log.topics.create(
        wanted.name,
        partitions=1 if wanted.partitions is None else wanted.partitions,
        config=wanted.config or {},
        regions=wanted.regions,
    )
    return responses.json(created, 201)


def list_topics(request: Request, wanted: TopicListing) -> Response:
    where = {"prefix": wanted.prefix, "start_after": wanted.start_after}
    if wanted.totals:
        limit = min(wanted.limit or limits.LAG_ENTRIES_MAX, limits.LAG_ENTRIES_MAX)
        return responses.listed(TopicList(*request.log.topics.list_totals(**where, limit=limit)))
    limit = limits.LIST_DEFAULT if wanted.limit is None else wanted.limit
    topics, has_more = request.log.topics.list(**where, limit=limit)
    return responses.listed(TopicList(list(map(ListedTopic, topics)), has_more))


def show_topic(request: Request) -> Response:
    return responses.json(request.log.topics.get(request.topic))


def alter_topic(request: Request, wanted: TopicChange) -> Response:
    altered = request.log.topics.alter(
        request.topic, partitions=wanted.partitions, config=wanted.config, regions=wanted.regions
    )
    return responses.json(altered)


def delete_topic(request: Request) -> Response:
    request.log.topics.delete(request.topic)
    return responses.empty(202)


def trim(request: Request, wanted: Trim) -> Response:
    return responses.json(Trimmed(request.log.partitions.trim(*request.partition, wanted.before_offset)))


def compact(request: Request) -> Response:
    request.log.partitions.compact(*request.partition)
    return responses.empty(202)


def show_replication(request: Request, wanted: ReplicationPage) -> Response:
    shown = request.log.replication.status(request.topic, start_partition=wanted.start_partition, limit=wanted.limit)
    return responses.json(shown)


def start_snapshot(request: Request) -> Response:
    return responses.json(StartedSnapshot(request.log.replication.snapshot(request.topic)), 202)


def suspend_region(request: Request) -> Response:
    shown = request.log.replication.suspend(request.topic, request.parameters["region"])
    return responses.json(shown)


def resume_region(request: Request) -> Response:
    shown = request.log.replication.resume(request.topic, request.parameters["region"])
    return responses.json(shown)


def skip_gap(request: Request, wanted: GapSkip) -> Response:
    return responses.json(SkippedGap(request.log.replication.skip(*request.partition, wanted.region, wanted.to_offset)))


def health(request: Request) -> Response:
    service = request.service
    settings, peers = service.settings, [peer.name for peer in service.settings.peers]
    return responses.json(Health("ok", settings.region, service.version, service.runtime.now_ms(), peers))


def openapi_document(request: Request) -> Response:
    from fenceline_http.openapi import document_json  # Only a request for it pays for making it.

    return responses.text(document_json(request.service.version))


def links(request: Request) -> Response:
    if media_types.prefers_page(request.header("accept")):
        return docs(request)
    return responses.json(About("fenceline", request.service.version, Links()))


def docs(request: Request) -> Response:
    from fenceline_http.docs_page import page  # Only a request for it pays for making it.

    return responses.page(page(request.service.version))


def errors(request: Request) -> Response:
    from fenceline_http.docs_page import errors_page  # Only a request for it pays for making it.

    return responses.page(errors_page(request.service.version))
