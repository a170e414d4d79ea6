"""The served OpenAPI 3.1 document, made of the routes, the schemas and the table of errors.

The rule: nothing is said twice. A route without an operation here is a `KeyError`, an error's status and members come
from `errors.TABLE`, names and prose from `described`, and tests hold the whole against API.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from fenceline import errors, limits
from fenceline_http import operations, schemas
from fenceline_http.media_types import BATCH_TYPE, HTML_TYPE, JSON_TYPE, PROBLEM_TYPE
from fenceline_http.routes import ROUTES, Route
from fenceline_http.schemas import BOOLEAN, ENCODING, STRING, Schema, integer, ref

_PARTITION = "/v1/topics/{topic}/partitions/{partition}"
_PRODUCER = "/v1/topics/{topic}/producers/{producer_name}"
_SUBSCRIPTION = "/v1/topics/{topic}/subscriptions/{name}"
_ANYWHERE = ("INVALID_REQUEST", "UNAUTHENTICATED", "NOT_AUTHORIZED", "THROTTLED")
_STORES = ("STORE_UNAVAILABLE", "CORRUPT_LOG")
_BODY = ("RECORD_LIST_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
_WRITES = ("CONTENDED", "OUTCOME_UNKNOWN")
_KNOWN = ("UNKNOWN_TOPIC_OR_PARTITION",)
_SUBSCRIBED = (*_KNOWN, "UNKNOWN_SUBSCRIPTION")
_OWNER = ("UNKNOWN_SESSION", "SESSION_SEVERED", "SESSION_EXPIRED")
_APPEND = (
    *_OWNER, "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE", "INVALID_REQUIRED_ACKS", "PRODUCER_FENCED",
    "PRODUCER_BUSY", "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING",
    "INVALID_TXN_STATE", "CONCURRENT_TRANSACTIONS", "OFFSET_MISMATCH", "MESSAGE_TOO_LARGE",
)  # fmt: skip
_PRODUCER_ID = ("INVALID_TRANSACTION_TIMEOUT", "INVALID_TXN_STATE", "PRODUCER_FENCED", "CONCURRENT_TRANSACTIONS")


@dataclass(frozen=True, slots=True)
class Operation:
    """What stands in the document for one route.

    Args:
        query: Parameter name to schema.
        required: The parameters of the query that must be given.
        body: The schema's name; its members are all optional where ``is_optional``.
        answers: Status to the answer's schema name; ``None`` for an empty body.
        gives_page: Whether it answers with HTML, or may do so.
    """

    summary: str
    answers: Mapping[int, str | None]
    codes: Sequence[str]
    query: Mapping[str, Schema] = field(default_factory=dict)
    required: Sequence[str] = ()
    body: str | None = None
    is_optional: bool = False
    takes_batches: bool = False
    gives_batches: bool = False
    gives_page: bool = False


def _capped(maximum: int, default: int) -> Schema:
    return {"type": "integer", "minimum": 1, "default": default, "description": f"More than {maximum} is {maximum}."}


_NAME_PAGE = {"start_after": STRING, "limit": _capped(limits.LIST_MAX, limits.LIST_MAX)}

OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/v1/topics"): Operation(
        "Create a topic",
        {201: "Topic"},
        (*_BODY, *_STORES, *_WRITES, "INVALID_TOPIC_EXCEPTION", "TOPIC_ALREADY_EXISTS"),
        body="NewTopic",
    ),
    ("GET", "/v1/topics"): Operation(
        "List topics by name",
        {200: "Topics"},
        _STORES,
        {"prefix": STRING, "start_after": STRING, "limit": _capped(limits.LIST_MAX, limits.LIST_DEFAULT)},
    ),
    ("GET", "/v1/topics/{topic}"): Operation("Show a topic", {200: "Topic"}, (*_KNOWN, *_STORES)),
    ("PATCH", "/v1/topics/{topic}"): Operation(
        "Change a topic",
        {200: "Topic"},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES),
        body="TopicChange",
        is_optional=True,
    ),
    ("DELETE", "/v1/topics/{topic}"): Operation("Delete a topic", {202: None}, (*_KNOWN, *_STORES, *_WRITES)),
    ("POST", f"{_PARTITION}/records"): Operation(
        "Append one batch",
        {200: "Appended", 202: None},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES, *_APPEND),
        {
            "acks": {"type": "string", "enum": ["-1", "1", "0", "all"]},
            "expected_offset": {"type": "string", "pattern": "^(-1|[0-9]{1,19})(,(-1|[0-9]{1,19}))*$"},
            "session_id": STRING,
            "topic_epoch": schemas.EPOCH,
            "transactional_id": STRING,
        },
        body="Produce",
        takes_batches=True,
    ),
    ("POST", "/v1/produce"): Operation(
        "Append batches to several partitions",
        {200: "ProduceResults", 202: None},
        (*_BODY, *_STORES, "INVALID_REQUIRED_ACKS"),
        body="ProduceMany",
    ),
    ("POST", "/v1/topics/{topic}/records"): Operation(
        "Append each record to the partition of its key",
        {200: "ProducedByKey", 202: None},
        (*_KNOWN, *_BODY, *_STORES, "CONTENDED", "INVALID_REQUIRED_ACKS"),
        body="ProduceByKey",
    ),
    ("GET", f"{_PARTITION}/records"): Operation(
        "Read a page",
        {200: "Page"},
        (*_KNOWN, *_STORES, *_WRITES, *_OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED", "MESSAGE_TOO_LARGE"),
        {
            "offset": integer(),
            "timestamp": integer(),
            "tail_offset": integer(),
            "max_records": _capped(limits.RECORDS_MAX, limits.RECORDS_DEFAULT),
            "max_bytes": _capped(limits.BYTES_MAX, limits.BYTES_DEFAULT),
            "wait_ms": integer(0, limits.WAIT_MS_MAX),
            "isolation": ref("Isolation"),
            "encoding": ENCODING,
            "compacted": BOOLEAN,
            "group": {"type": "string", "minLength": 1, "maxLength": limits.TOPIC_NAME_CHARS_MAX},
            "session_id": STRING,
        },
        gives_batches=True,
    ),
    ("GET", f"{_PARTITION}/offsets"): Operation(
        "Show a partition's offsets, or the first at a time",
        {200: "OffsetsAnswer"},
        (*_KNOWN, *_STORES, "CONTENDED"),
        {"timestamp": integer()},
    ),
    ("GET", "/v1/topics/{topic}/offsets"): Operation(
        "Show the offsets of a topic's partitions, or the first at a time",
        {200: "TopicOffsetsAnswer"},
        (*_KNOWN, *_STORES, "CONTENDED"),
        {
            "start_partition": integer(),
            "limit": _capped(limits.OFFSETS_MAX, limits.OFFSETS_MAX),
            "timestamp": integer(),
        },
    ),
    ("GET", f"{_PARTITION}/segments"): Operation(
        "List segments, with URLs to fetch them by",
        {200: "Segments"},
        (*_KNOWN, *_STORES, "CONTENDED", "OFFSET_OUT_OF_RANGE"),
        {
            "offset": integer(),
            "limit": _capped(limits.SEGMENTS_MAX, limits.SEGMENTS_MAX),
            "origin": {"const": "own"},
        },
    ),
    ("POST", f"{_PARTITION}/trim"): Operation(
        "Delete records below an offset",
        {200: "Trimmed"},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES, "OFFSET_OUT_OF_RANGE"),
        body="Trim",
    ),
    ("POST", f"{_PARTITION}/compact"): Operation(
        "Start a compaction", {202: None}, (*_KNOWN, *_BODY, *_STORES, *_WRITES), body="Nothing", is_optional=True
    ),
    ("POST", "/v1/producer-ids"): Operation(
        "Get a producer id",
        {200: "ProducerId"},
        (*_BODY, *_STORES, *_WRITES, *_PRODUCER_ID),
        body="ProducerIdRequest",
        is_optional=True,
    ),
    ("GET", "/v1/topics/{topic}/subscriptions"): Operation(
        "List a topic's subscriptions by name", {200: "Subscriptions"}, (*_KNOWN, *_STORES), _NAME_PAGE
    ),
    ("PUT", _SUBSCRIPTION): Operation(
        "Create a subscription, or change it",
        {200: "Subscription", 201: "Subscription"},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES),
        body="SubscriptionChange",
        is_optional=True,
    ),
    ("GET", _SUBSCRIPTION): Operation(
        "Show a subscription",
        {200: "Subscription"},
        (*_SUBSCRIBED, *_STORES, "CONTENDED"),
        {
            "start_partition": integer(),
            "start_offset": integer(),
            "limit": _capped(limits.LIST_MAX, limits.CURSORS_SHOWN_DEFAULT),
        },
    ),
    ("DELETE", _SUBSCRIPTION): Operation("Delete a subscription", {204: None}, (*_SUBSCRIBED, *_STORES, *_WRITES)),
    ("GET", f"{_SUBSCRIPTION}/records"): Operation(
        "Read a page of what is not acknowledged",
        {200: "Page"},
        (*_SUBSCRIBED, *_STORES, *_WRITES, *_OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED", "MESSAGE_TOO_LARGE"),
        {
            "partition": integer(),
            "offset": integer(),
            "max_records": _capped(limits.RECORDS_MAX, limits.RECORDS_DEFAULT),
            "max_bytes": _capped(limits.BYTES_MAX, limits.BYTES_DEFAULT),
            "wait_ms": integer(0, limits.WAIT_MS_MAX),
            "isolation": ref("Isolation"),
            "encoding": ENCODING,
            "session_id": STRING,
        },
    ),
    ("POST", f"{_SUBSCRIPTION}/acknowledgements"): Operation(
        "Acknowledge records",
        {200: "Mark"},
        (*_SUBSCRIBED, *_BODY, *_STORES, *_WRITES, *_OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body="Acknowledgement",
    ),
    ("POST", f"{_SUBSCRIPTION}/seek"): Operation(
        "Set the mark by offset or by time",
        {200: "Mark"},
        (*_SUBSCRIBED, *_BODY, *_STORES, *_WRITES, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body="Seek",
    ),
    ("GET", "/v1/groups/{group}/offsets"): Operation(
        "Show what a group has committed",
        {200: "GroupOffsets"},
        (*_KNOWN, *_STORES, "CONTENDED", "UNSTABLE_OFFSET_COMMIT"),
        {
            "topic": STRING,
            "partition": integer(),
            "require_stable": BOOLEAN,
            "start_after": {"type": "string", "pattern": r"^([A-Za-z0-9._-]{1,249}/[0-9]{1,9})?$"},
            "limit": _capped(limits.LIST_MAX, limits.LIST_MAX),
        },
    ),
    ("POST", "/v1/groups/{group}/offsets"): Operation(
        "Commit a group's offsets, all of them or none",
        {200: "Nothing"},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES, *_OWNER, "OFFSET_OUT_OF_RANGE", "OWNER_FENCED"),
        body="Commit",
    ),
    ("POST", "/v1/sessions"): Operation(
        "Create a session", {201: "MadeSession"}, (*_BODY, *_STORES, *_WRITES), body="NewSession", is_optional=True
    ),
    ("GET", "/v1/sessions/{session_id}"): Operation(
        "Show a session and what it holds", {200: "ShownSession"}, ("UNKNOWN_SESSION", *_STORES, *_WRITES)
    ),
    ("POST", "/v1/sessions/{session_id}/heartbeat"): Operation(
        "Renew a session's lease",
        {200: "Renewed"},
        (*_OWNER, *_BODY, *_STORES, *_WRITES),
        body="Nothing",
        is_optional=True,
    ),
    ("DELETE", "/v1/sessions/{session_id}"): Operation(
        "Close a session", {204: None}, ("UNKNOWN_SESSION", "SESSION_SEVERED", *_STORES, *_WRITES)
    ),
    ("POST", "/v1/topics/{topic}/producers"): Operation(
        "Claim write access",
        {201: "ClaimAnswer", 202: "ClaimAnswer"},
        (*_KNOWN, *_BODY, *_STORES, *_WRITES, *_OWNER, "PRODUCER_FENCED", "PRODUCER_BUSY"),
        body="Claim",
    ),
    ("GET", "/v1/topics/{topic}/producers"): Operation(
        "List producers, and who waits", {200: "NamedProducers"}, (*_KNOWN, *_STORES, "CONTENDED"), _NAME_PAGE
    ),
    ("GET", _PRODUCER): Operation(
        "Show a producer, or poll one's own",
        {200: "ClaimAnswer"},
        (*_KNOWN, *_STORES, *_WRITES, *_OWNER, "UNKNOWN_PRODUCER", "PRODUCER_FENCED"),
        {"session_id": STRING, "wait_ms": integer(0, limits.WAIT_MS_MAX)},
    ),
    ("DELETE", _PRODUCER): Operation(
        "Close a producer",
        {204: None},
        (*_KNOWN, *_STORES, *_WRITES, "UNKNOWN_SESSION", "SESSION_SEVERED", "UNKNOWN_PRODUCER", "PRODUCER_FENCED"),
        {"session_id": STRING},
        required=("session_id",),
    ),
    ("POST", "/v1/own"): Operation(
        "Own resources, all of them or none",
        {200: "Owned"},
        (*_BODY, *_STORES, *_WRITES, *_OWNER, "STALE_GENERATION", "RESOURCE_OWNED"),
        body="OwnRequest",
    ),
    ("POST", "/v1/own/release"): Operation(
        "Release resources", {204: None}, (*_BODY, *_STORES, *_WRITES, *_OWNER), body="ReleaseRequest"
    ),
    ("GET", "/v1/own"): Operation(
        "Show who owns a resource",
        {200: "Ownership"},
        (*_STORES, *_WRITES),
        {"resource": schemas.RESOURCE, "group": schemas.GROUP},
        required=("resource",),
    ),
    ("GET", "/v1/health"): Operation("Say that this function works", {200: "Health"}, ()),
    ("GET", "/v1/openapi.json"): Operation("Return this document", {200: "Document"}, ()),
    ("GET", "/"): Operation("Say what answers here", {200: "Service"}, (), gives_page=True),
    ("GET", "/docs"): Operation("Show this contract as a page", {200: None}, (), gives_page=True),
}

_MORE_COMPONENTS: Mapping[str, Schema] = {
    "OffsetsAnswer": {"oneOf": [ref("Offsets"), ref("OffsetAt")]},
    "TopicOffsetsAnswer": {"anyOf": [ref("TopicOffsets"), ref("TopicOffsetsAt")]},
    "Document": {"type": "object", "required": ["openapi", "info", "paths"]},
}
_PATH_PARAMETERS: Mapping[str, Schema] = {
    "topic": schemas.TOPIC_NAME,
    "partition": integer(0, limits.PARTITIONS_MAX - 1),
    "name": schemas.SUBSCRIPTION_NAME,
    "group": schemas.SUBSCRIPTION_NAME,
    "session_id": schemas.SESSION_ID,
    "producer_name": schemas.PRODUCER_NAME,
}
_SCHEME = "sigv4"


@cache
def document_json(version: str) -> str:
    return json.dumps(document(version))


def document(version: str) -> dict[str, Any]:
    """Return the document of this version of fenceline."""
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fenceline",
            "version": version,
            "summary": "A serverless, partitioned log on object storage.",
            "description": "Topics, partitions and offsets as in Kafka; writers and readers can be fenced. "
            "Times are milliseconds since the epoch.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{}, {_SCHEME: []}],  # either: a local server asks nobody, a deployed one everybody
        "tags": [{"name": name, "description": told} for name, told in operations.TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _in_words({**schemas.components(), **_MORE_COMPONENTS}),
            "securitySchemes": {
                _SCHEME: {
                    "type": "apiKey",
                    "name": "Authorization",
                    "in": "header",
                    "x-amazon-apigateway-authtype": "awsSigv4",
                    "description": "AWS Signature Version 4 for the service execute-api. `fenceline dev` needs none.",
                }
            },
        },
    }


def _in_words(components: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return the schemas, with what `described.SCHEMAS` says of them and of their members."""
    made = dict(components)
    for name, told in operations.SCHEMAS.items():
        schema, _, member = name.partition(".")
        if member:
            properties = dict(made[schema]["properties"])
            properties[member] = {**properties[member], "description": told}
            made[schema] = {**made[schema], "properties": properties}
        else:
            made[schema] = {**made[schema], "description": told}
    return made


def _operation(route: Route) -> dict[str, Any]:
    operation, words = OPERATIONS[route.method, route.path], operations.DESCRIBED[route.method, route.path]
    answers = {str(status): _answer(name, operation) for status, name in operation.answers.items()}
    first = next(iter(answers.values()))
    if words.answer is not None:
        first["content"][JSON_TYPE]["example"] = words.answer
    made: dict[str, Any] = {
        "operationId": words.operation_id,
        "tags": [words.tag],
        "summary": operation.summary,
        "description": words.description,
        "parameters": [*_in_path(route.path), *_in_query(operation, words)],
        "responses": {**answers, **_problems((*_ANYWHERE, *operation.codes))},
    }
    if operation.body is not None:
        content: dict[str, Any] = {JSON_TYPE: {"schema": ref(operation.body)}}
        if words.body is not None:
            content[JSON_TYPE]["example"] = words.body
        if operation.takes_batches:
            content[BATCH_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        made["requestBody"] = {"required": not operation.is_optional, "content": content}
    return made


def _in_path(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": told, "schema": schema, "example": example}
        for name, schema in _PATH_PARAMETERS.items()
        for told, example in [operations.PATH_PARAMETERS[name]]
        if f"{{{name}}}" in path
    ]


def _in_query(operation: Operation, words: operations.Described) -> list[dict[str, Any]]:
    made = []
    for name, schema in operation.query.items():
        parameter = {"name": name, "in": "query", "required": name in operation.required, "schema": schema}
        told = words.parameters.get(name) or operations.PARAMETERS.get(name)
        if told is not None:
            parameter["description"] = told
        if name in words.query:
            parameter["example"] = words.query[name]
        made.append(parameter)
    return made


def _answer(name: str | None, operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {} if name is None else {JSON_TYPE: {"schema": ref(name)}}
    if operation.gives_page:
        content[HTML_TYPE] = {"schema": STRING}
    if not content:
        return {"description": "Accepted; no body"}
    made: dict[str, Any] = {"description": name or "A page for people", "content": content}
    if operation.gives_batches:
        content[BATCH_TYPE] = {"schema": {"type": "string", "format": "binary"}}
        headers = ("position", "log-start-offset", "next-offset", "last-stable-offset")
        made["headers"] = {
            f"fenceline-{one}": {"schema": integer(), "description": "With whole batches."} for one in headers
        }
    return made


def _problems(codes: Sequence[str]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    for code in codes:
        by_status.setdefault(errors.TABLE[code].status, []).append(code)
    return {
        str(status): {
            "description": ", ".join(those),
            "content": {PROBLEM_TYPE: {"schema": schemas.one_of(those)}},
        }
        for status, those in sorted(by_status.items())
    }
