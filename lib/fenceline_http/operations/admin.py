"""What the admin function takes and answers: topics. `replication` and `about` have the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fenceline import limits
from fenceline.model.topic_config import NAMES
from fenceline_http.declared import Body, Members, Nothing, Query, optional, required
from fenceline_http.fields import TEXT, Kind, integer, list_of, refuse, size
from fenceline_http.json_schema import BOOLEAN, STRING, Named, Schema, array, described, nullable, obj, words
from fenceline_http.json_schema import integer as integer_schema
from fenceline_http.operations import about, replication
from fenceline_http.operations.shared import KNOWN, LIMIT_TEXT, PARTITION, STORES, TOPIC, TOPIC_ID_EXAMPLE, WRITES
from fenceline_http.route import Route
from fenceline_http.schemas import OFFSET, REGION_NAME, TOPIC_NAME

# Topics


def _config_schema(*, is_change: bool) -> Schema:
    properties: dict[str, Schema] = {}
    for name, spec in NAMES.items():
        if isinstance(spec.default, bool):
            schema = BOOLEAN
        elif spec.choices:
            schema = words(*spec.choices)
        else:
            schema = integer_schema(spec.lowest, spec.highest)
        properties[name] = nullable(schema) if is_change else schema
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _object(value: Any, field: str) -> Mapping[str, Any]:
    if type(value) is not dict:
        refuse(field, "an object")
    found: dict[str, Any] = value
    return found


_CONFIG = Kind(
    _object,
    Named(
        "ConfigChange",
        lambda: _config_schema(is_change=True),
        "Settings to change, by Kafka's names; `null` returns one to its default.",
    ),
)
_PARTITIONS = integer().shown(integer_schema(1, limits.PARTITIONS_MAX))
_REGIONS = list_of(
    TEXT.shown(REGION_NAME),
    minItems=1,
    maxItems=limits.REGIONS_MAX,
    uniqueItems=True,
)


class _Settings(Members):
    """What a topic can be given, and what of it can be changed."""

    partitions: int | None = optional(_PARTITIONS)
    config: Mapping[str, Any] | None = optional(_CONFIG)
    regions: Sequence[str] | None = optional(_REGIONS)


class NewTopic(_Settings, Body):
    """A topic to create."""

    name: str = required(TEXT.shown(TOPIC_NAME))


class TopicChange(_Settings, Body, is_optional=True):
    """What to change of a topic."""


class Listing(Query):
    """A part of a listing by name."""

    prefix: str = optional(TEXT, "Only names that begin with this.", default="")
    start_after: str = optional(TEXT, "Continue after this name.", default="")
    limit: int = optional(size(limits.LIST_DEFAULT, limits.LIST_MAX), LIMIT_TEXT, default=limits.LIST_DEFAULT)


class Trim(Body):
    """Where a partition is to begin."""

    before_offset: int = required(integer())


# What is answered

_TOPIC = Named(
    "Topic",
    obj(
        {
            "name": TOPIC_NAME,
            "topic_id": STRING,
            "partitions": integer_schema(1, limits.PARTITIONS_MAX),
            "config": Named(
                "Config",
                lambda: _config_schema(is_change=False),
                "A topic's settings that were set, by Kafka's names.",
            ),
            "regions": array(STRING),
            "created_at": described(integer_schema(), "Milliseconds since the epoch."),
        }
    ),
    "A topic.",
)

_TOPIC_EXAMPLE = {
    "name": "orders",
    "topic_id": TOPIC_ID_EXAMPLE,
    "partitions": 4,
    "config": {"retention.ms": 86_400_000},
    "regions": ["us-east-1"],
    "created_at": 1_700_000_000_000,
}

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
        answers={201: _TOPIC},
        codes=(*WRITES, "INVALID_TOPIC_EXCEPTION", "TOPIC_ALREADY_EXISTS"),
        body={"name": "orders", "partitions": 4, "config": {"retention.ms": 86_400_000}},
        answer=_TOPIC_EXAMPLE,
    ),
    Route(
        "GET",
        "/v1/topics",
        "admin.list_topics",
        operation="listTopics",
        tag="Topics",
        summary="List topics by name",
        description="Lists topics in byte order of their names. Where `has_more` is true, continue with `start_after`.",
        takes=Listing,
        answers={200: Named("Topics", obj({"topics": array(_TOPIC), "has_more": BOOLEAN}))},
        codes=STORES,
        query={"prefix": "ord"},
        answer={"topics": [_TOPIC_EXAMPLE], "has_more": False},
    ),
    Route(
        "GET",
        TOPIC,
        "admin.show_topic",
        operation="getTopic",
        tag="Topics",
        summary="Show a topic",
        description="Shows a topic. `config` has only what was set.",
        answers={200: _TOPIC},
        codes=(*KNOWN, *STORES),
        answer=_TOPIC_EXAMPLE,
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
        answers={200: _TOPIC},
        codes=(*KNOWN, *WRITES),
        body={"config": {"retention.ms": None, "cleanup.policy": "compact"}},
        answer={**_TOPIC_EXAMPLE, "config": {"cleanup.policy": "compact"}},
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
        answers={200: Named("Trimmed", obj({"log_start_offset": OFFSET}))},
        codes=(*KNOWN, *WRITES, "OFFSET_OUT_OF_RANGE"),
        body={"before_offset": 1},
        answer={"log_start_offset": 1},
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
