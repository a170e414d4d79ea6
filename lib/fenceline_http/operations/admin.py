"""The admin function's requests and answers about topics. `replication` and `about` have the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from fenceline import limits
from fenceline.answers import Titled
from fenceline.model.kinds import Offset, PartitionCount, RegionName, TopicName
from fenceline.model.topic import ListedTopic, Topic
from fenceline.model.topic_config import NAMES
from fenceline_http.json_schema import Named, Schema, described, nullable, of_type
from fenceline_http.operations import about, replication
from fenceline_http.operations.shared import KNOWN, LIMIT_TEXT, PARTITION, STORES, TOPIC, TOPIC_ID_EXAMPLE, WRITES
from fenceline_http.request_schema import Body, Members, Nothing, Query, optional, required
from fenceline_http.route import Route
from fenceline_http.value_kinds import FLAG, TEXT, Kind, integer, list_of, refuse, size

# Topics


def _config_change() -> Schema:
    # Without defaults: a generated client might send them, and so set what its caller did not mention.
    changes = {name: described(nullable(of_type(spec.kind)), spec.what) for name, spec in NAMES.items()}
    return {"type": "object", "properties": changes, "additionalProperties": False}


def _object(value: Any, field: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        refuse(field, "an object")
    found: dict[str, Any] = value
    return found


_CONFIG = Kind(
    _object,
    Named(
        "ConfigChange",
        _config_change,
        "Settings to change, by Kafka's names; `null` returns one to its default.",
    ),
)
_PARTITIONS = integer().shown(of_type(PartitionCount))
_REGIONS = list_of(
    TEXT.shown(of_type(RegionName)),
    minItems=1,
    maxItems=limits.REGIONS_MAX,
    uniqueItems=True,
)


class _Settings(Members):
    """The settings of a topic that can be given, and changed."""

    partitions: int | None = optional(_PARTITIONS)
    config: Mapping[str, Any] | None = optional(_CONFIG)
    regions: Sequence[str] | None = optional(_REGIONS)


class NewTopic(_Settings, Body):
    """A topic to create."""

    name: str = required(TEXT.shown(of_type(TopicName)))


class TopicChange(_Settings, Body, is_optional=True):
    """What to change of a topic."""


class TopicListing(Query):
    """A part of the topics by name."""

    prefix: str = optional(TEXT, "Only names that begin with this.", default="")
    start_after: str = optional(TEXT, "Continue after this name.", default="")
    totals: bool = optional(
        FLAG, f"Whether each topic has `totals`; `limit` is then {limits.LAG_ENTRIES_MAX} at most.", default=False
    )
    limit: int | None = optional(
        size(limits.LIST_DEFAULT, limits.LIST_MAX),
        f"{LIMIT_TEXT} The default is {limits.LIST_DEFAULT}, and {limits.LAG_ENTRIES_MAX} with `totals`.",
    )


class Trim(Body):
    """Where a partition is to begin."""

    before_offset: int = required(integer())


# Answers


@Titled("Topics")
class TopicList(NamedTuple):
    """Some topics, by name."""

    topics: Sequence[ListedTopic]
    has_more: bool


class Trimmed(NamedTuple):
    """The log start of a partition after a trim."""

    log_start_offset: Offset


_EXAMPLE = Topic("orders", TOPIC_ID_EXAMPLE, 4, {"retention.ms": 86_400_000}, ["us-east-1"], 1_700_000_000_000)

ROUTES = (
    Route(
        "POST",
        "/v1/topics",
        "admin.create_topic",
        operation="createTopic",
        tag="Topics",
        summary="Create a topic",
        description="Creates a topic with its partitions and its configuration. Configuration names are Kafka's.",
        takes=NewTopic,
        answers={201: _EXAMPLE},
        codes=(*WRITES, "INVALID_TOPIC_EXCEPTION", "TOPIC_ALREADY_EXISTS"),
        body={"name": "orders", "partitions": 4, "config": {"retention.ms": 86_400_000}},
    ),
    Route(
        "GET",
        "/v1/topics",
        "admin.list_topics",
        operation="listTopics",
        tag="Topics",
        summary="List topics by name",
        description="Lists topics in byte order of their names. Where `has_more` is true, continue with `start_after`.",
        takes=TopicListing,
        answers={200: TopicList([ListedTopic(_EXAMPLE)], has_more=False)},
        codes=STORES,
        query={"prefix": "ord"},
    ),
    Route(
        "GET",
        TOPIC,
        "admin.show_topic",
        operation="getTopic",
        tag="Topics",
        summary="Show a topic",
        description="Shows a topic. `config` has only what was set.",
        answers={200: _EXAMPLE},
        codes=(*KNOWN, *STORES),
    ),
    Route(
        "PATCH",
        TOPIC,
        "admin.alter_topic",
        operation="updateTopic",
        tag="Topics",
        summary="Change a topic",
        description="Changes what the body names and keeps the rest. `null` returns a setting to its default. "
        "The number of partitions only grows.",
        takes=TopicChange,
        answers={200: replace(_EXAMPLE, config={"cleanup.policy": "compact"})},
        codes=(*KNOWN, *WRITES),
        body={"config": {"retention.ms": None, "cleanup.policy": "compact"}},
    ),
    Route(
        "DELETE",
        TOPIC,
        "admin.delete_topic",
        operation="deleteTopic",
        tag="Topics",
        summary="Delete a topic",
        description="Deletes a topic. Its name is unknown from the answer on, and can be created again at once.",
        answers={202: None},
        codes=(*KNOWN, *WRITES),
    ),
    Route(
        "POST",
        f"{PARTITION}/trim",
        "admin.trim",
        operation="trimPartition",
        tag="Topics",
        summary="Delete records below an offset",
        description="Deletes the records below an offset, for good. At or below the log start it changes nothing.",
        takes=Trim,
        answers={200: Trimmed(1)},
        codes=(*KNOWN, *WRITES, "OFFSET_OUT_OF_RANGE"),
        body={"before_offset": 1},
    ),
    Route(
        "POST",
        f"{PARTITION}/compact",
        "admin.compact",
        operation="compactPartition",
        tag="Topics",
        summary="Start a compaction",
        description="Starts a compaction of what is below the last stable offset. It is done when "
        "`compaction_horizon` is there.",
        takes=Nothing,
        answers={202: None},
        codes=(*KNOWN, *WRITES),
    ),
    *replication.ROUTES,
    *about.ROUTES,
)
