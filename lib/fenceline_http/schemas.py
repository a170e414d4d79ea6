"""The shapes of requests and answers, as JSON Schema (draft 2020-12, as OpenAPI 3.1 has it).

The rule: an object has no members but those named here, and numbers have their bounds; what a schema can't say (which
members go together) is in API.md and in the door.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from fenceline import errors, limits
from fenceline.model.requests import ACCESS_MODES, CLIENT_NAME_PATTERN
from fenceline.model.topic_config import NAMES as CONFIG_NAMES
from fenceline_http.request import INT16_MAX

Schema = dict[str, Any]


def _name_pattern(chars_max: int) -> str:
    return rf"^(?!\.{{1,2}}$)[A-Za-z0-9._-]{{1,{chars_max}}}$"  # neither . nor ..: no path could hold it


SUBSCRIPTION_PATTERN = _name_pattern(limits.SUBSCRIPTION_NAME_CHARS_MAX)
TOPIC_PATTERN = _name_pattern(limits.TOPIC_NAME_CHARS_MAX)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def integer(minimum: int = 0, maximum: int = limits.INT64_MAX, **more: Any) -> Schema:
    return {"type": "integer", "minimum": minimum, "maximum": maximum, **more}


def obj(required: Mapping[str, Schema], optional: Mapping[str, Schema] | None = None) -> Schema:
    return {
        "type": "object",
        "properties": {**required, **(optional or {})},
        "required": list(required),
        "additionalProperties": False,
    }


def array(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def nullable(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def optionals(members: Mapping[str, Schema]) -> dict[str, Schema]:
    """Return members of a request that may be left out: null says the same."""
    return {name: nullable(schema) for name, schema in members.items()}


STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
OFFSET = integer()
EPOCH = integer(-1)
TOPIC_NAME: Schema = {"type": "string", "pattern": TOPIC_PATTERN}
RESOURCE: Schema = {"type": "string", "minLength": 1, "maxLength": limits.RESOURCE_BYTES_MAX}
GROUP: Schema = {"type": "string", "minLength": 1, "maxLength": limits.GROUP_BYTES_MAX}
GENERATION = integer(0, limits.GENERATION_MAX)
SUBSCRIPTION_NAME: Schema = {"type": "string", "pattern": SUBSCRIPTION_PATTERN}
PRODUCER_NAME: Schema = {"type": "string", "pattern": _name_pattern(limits.PRODUCER_NAME_CHARS_MAX)}
SESSION_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
ACCESS_MODE = ref("AccessMode")
LEASE_MS = integer(limits.LEASE_MS_MIN, limits.LEASE_MS_MAX)
CLIENT_NAME: Schema = {
    "type": "string",
    "minLength": 1,
    "maxLength": limits.CLIENT_NAME_BYTES_MAX,
    "pattern": CLIENT_NAME_PATTERN,
}
_SESSION: Mapping[str, Schema] = {"session_id": STRING, "lease_ms": LEASE_MS, "expires_at": integer()}
ENCODING = ref("Encoding")
EXPECTED: Schema = {"anyOf": [integer(-1), array(integer(-1))]}

_BOUNDS = {"log_start_offset": OFFSET, "next_offset": OFFSET, "last_stable_offset": OFFSET}
_OFFSETS: Mapping[str, Schema] = {
    **_BOUNDS,
    "topic_epoch": EPOCH,
    "access_mode": {"enum": ["Shared", "Exclusive"]},
    "compaction_horizon": OFFSET,
}
_OFFSET_AT: Mapping[str, Schema] = {"offset": nullable(OFFSET), "timestamp": nullable(integer(-1))}
_SUBSCRIPTION = {"name": SUBSCRIPTION_NAME, "topic": TOPIC_NAME, "replicate_subscription_state": BOOLEAN}
_HEADERS = array({"type": "array", "prefixItems": [STRING, TEXT_OR_NULL], "minItems": 2, "maxItems": 2})
_APPENDED = {
    "base_offset": OFFSET,
    "next_offset": OFFSET,
    "count": integer(1),
    "duplicate": BOOLEAN,
    "topic_epoch": EPOCH,
    "expected_offset_checked": BOOLEAN,
    "timestamp": integer(-1),
}
_BATCH_REQUIRED = {"records": array(ref("RecordIn"), minItems=1)}
_BATCH_OPTIONAL = optionals(
    {
        "encoding": ENCODING,
        "expected_offset": EXPECTED,
        "producer": ref("Producer"),
        "session": ref("Session"),
    }
)
_WHOLE_OPTIONAL = optionals({"acks": ref("Acks"), "transactional_id": STRING})


def by_partition(schema: Schema, **more: Any) -> Schema:
    return {
        "type": "object",
        "propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"},
        "additionalProperties": schema,
        **more,
    }


def _config(*, is_shown: bool) -> Schema:
    properties: dict[str, Schema] = {}
    for name, spec in CONFIG_NAMES.items():
        if isinstance(spec.default, bool):
            schema = BOOLEAN
        elif spec.choices:
            schema = {"enum": list(spec.choices)}
        else:
            schema = integer(spec.lowest, spec.highest)
        properties[name] = schema if is_shown else nullable(schema)
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _partitions() -> Schema:
    return integer(1, limits.PARTITIONS_MAX)


def _regions() -> Schema:
    name: Schema = {"type": "string", "pattern": "^[a-z0-9-]{1,63}$"}
    return array(name, minItems=1, maxItems=limits.REGIONS_MAX, uniqueItems=True)


def _partition_list(members: Mapping[str, Schema]) -> Schema:
    entry = obj({"partition": integer(0, limits.PARTITIONS_MAX - 1), **members})
    return obj(
        {"topic_id": STRING, "partitions": array(entry, maxItems=limits.OFFSETS_MAX), "has_more": BOOLEAN},
    )


COMPONENTS: Mapping[str, Schema] = {
    # Two alternatives of one type each: generators of clients drop what has an enum of several types.
    "Acks": {"anyOf": [{"type": "integer", "minimum": -1, "maximum": 1}, {"type": "string", "const": "all"}]},
    "AccessMode": {"type": "string", "enum": list(ACCESS_MODES)},
    "Encoding": {"type": "string", "enum": ["utf8", "base64"]},
    "Isolation": {"type": "string", "enum": ["read_uncommitted", "read_committed"]},
    "Config": _config(is_shown=True),
    "ConfigChange": _config(is_shown=False),
    "Topic": obj(
        {
            "name": TOPIC_NAME,
            "topic_id": STRING,
            "partitions": _partitions(),
            "config": ref("Config"),
            "regions": array(STRING),
            "created_at": integer(),
        }
    ),
    "Topics": obj({"topics": array(ref("Topic")), "has_more": BOOLEAN}),
    "NewTopic": obj(
        {"name": TOPIC_NAME},
        optionals({"partitions": _partitions(), "config": ref("ConfigChange"), "regions": _regions()}),
    ),
    "TopicChange": obj(
        {}, optionals({"partitions": _partitions(), "config": ref("ConfigChange"), "regions": _regions()})
    ),
    "RecordIn": obj(
        {"value": TEXT_OR_NULL}, {"key": TEXT_OR_NULL, **optionals({"headers": _HEADERS, "timestamp": integer()})}
    ),
    "Producer": obj(
        {
            "producer_id": integer(),
            "producer_epoch": integer(0, INT16_MAX),
            "sequence": integer(0, limits.INT32_MAX),
        }
    ),
    "Session": obj({"session_id": STRING, "topic_epoch": EPOCH}),
    "Produce": obj(_BATCH_REQUIRED, {**_BATCH_OPTIONAL, **_WHOLE_OPTIONAL}),
    "Appended": obj(_APPENDED),
    "ProduceMany": obj(
        {"partitions": array(ref("ProduceEntry"), minItems=1, maxItems=limits.PARTITIONS_PER_PRODUCE_MAX)},
        _WHOLE_OPTIONAL,
    ),
    "ProduceEntry": obj({"topic": STRING, "partition": integer(), **_BATCH_REQUIRED}, _BATCH_OPTIONAL),
    "ProduceResult": {
        "anyOf": [
            obj({"topic": STRING, "partition": integer(), **_APPENDED}),
            obj({"topic": STRING, "partition": integer(), "error": ref("Problem")}),
        ]
    },
    "ProduceResults": obj({"results": array(ref("ProduceResult"))}),
    "ProduceByKey": obj(_BATCH_REQUIRED, optionals({"encoding": ENCODING, "acks": ref("Acks")})),
    "ProducedByKey": obj({"results": array(ref("ProduceResult")), "record_partitions": array(integer())}),
    "RecordOut": obj(
        {
            "offset": OFFSET,
            "timestamp": integer(-1),
            "key": TEXT_OR_NULL,
            "value": TEXT_OR_NULL,
            "headers": _HEADERS,
            "topic_epoch": EPOCH,
        },
        {"origin": STRING},
    ),
    "Page": obj({"records": array(ref("RecordOut")), "encoding": ENCODING, "position": OFFSET, **_BOUNDS}),
    "Offsets": obj(_OFFSETS),
    "OffsetAt": obj(_OFFSET_AT),
    "TopicOffsets": _partition_list(_OFFSETS),
    "TopicOffsetsAt": _partition_list(_OFFSET_AT),
    "Segments": obj(
        {
            "segments": array(ref("Segment"), maxItems=limits.SEGMENTS_MAX),
            "has_more": BOOLEAN,
            "topic_id": STRING,
            **_BOUNDS,
        }
    ),
    "Segment": obj(
        {
            "base_offset": OFFSET,
            "next_offset": OFFSET,
            "bytes": integer(),
            "url": {"type": "string", "format": "uri"},
            "origin": TEXT_OR_NULL,
            "records": integer(),
            "aborted": array(obj({"producer_id": integer(), "first_offset": OFFSET, "last_offset": OFFSET})),
        }
    ),
    "Trim": obj({"before_offset": OFFSET}),
    "Trimmed": obj({"log_start_offset": OFFSET}),
    "Nothing": obj({}),
    "ProducerIdRequest": obj(
        {},
        optionals(
            {
                "transactional_id": STRING,
                "transaction_timeout_ms": integer(-limits.INT64_MAX),  # ignored without a transactional_id
                "producer_id": integer(),
                "producer_epoch": integer(0, INT16_MAX),
            }
        ),
    ),
    "ProducerId": obj({"producer_id": integer(), "producer_epoch": integer(0, INT16_MAX)}),
    "NewSession": obj({}, optionals({"lease_ms": LEASE_MS, "client_name": CLIENT_NAME})),
    "MadeSession": obj(_SESSION),
    "ShownSession": obj(
        {
            **_SESSION,
            "client_name": nullable(CLIENT_NAME),
            "since": integer(),
            "state": {"enum": ["live", "severed", "expired", "closed"]},
            "holds": array(obj({"group": TEXT_OR_NULL, "resource": STRING})),
        }
    ),
    "Renewed": obj({"expires_at": integer()}),
    "Claim": obj(
        {"access_mode": ACCESS_MODE},
        optionals(
            {
                "partitions": array(integer(), minItems=1, maxItems=limits.CLAIM_PARTITIONS_MAX, uniqueItems=True),
                "producer_name": PRODUCER_NAME,
                "session_id": STRING,
                "lease_ms": LEASE_MS,
                "client_name": CLIENT_NAME,
                "topic_epochs": by_partition(EPOCH, minProperties=1, maxProperties=limits.CLAIM_PARTITIONS_MAX),
                "wait_ms": integer(0, limits.WAIT_MS_MAX),
            }
        ),
    ),
    "NamedProducer": obj(
        {
            "producer_name": PRODUCER_NAME,
            "session_id": STRING,
            "access_mode": ACCESS_MODE,
            "state": {"enum": ["granted", "queued"]},
            "topic_epochs": by_partition(EPOCH),
            "next_offsets": by_partition(OFFSET),
            "expires_at": integer(),
            "client_name": nullable(CLIENT_NAME),
            "since": nullable(integer()),
        },
        {"queue_position": integer()},
    ),
    "ClaimAnswer": obj({"producer": ref("NamedProducer")}),
    "NamedProducers": obj(
        {"producers": array(ref("NamedProducer")), "waiting": array(ref("NamedProducer")), "has_more": BOOLEAN}
    ),
    "OwnRequest": obj(
        {
            "session_id": STRING,
            "resources": array(
                obj({"resource": RESOURCE}, optionals({"generation": GENERATION})),
                minItems=1,
                maxItems=limits.RESOURCES_PER_OWN_MAX,
            ),
        },
        optionals({"group": GROUP}),
    ),
    "Owned": obj(
        {
            "group": nullable(GROUP),
            "resources": array(
                obj({"resource": RESOURCE, "generation": integer(1, limits.GENERATION_MAX), "fencing_token": integer()})
            ),
        }
    ),
    "ReleaseRequest": obj(
        {"session_id": STRING, "resources": array(RESOURCE, minItems=1, maxItems=limits.RESOURCES_PER_OWN_MAX)},
        optionals({"group": GROUP}),
    ),
    "Ownership": obj(
        {
            "resource": RESOURCE,
            "group": nullable(GROUP),
            "generation": GENERATION,
            "fencing_token": EPOCH,
            "session_id": TEXT_OR_NULL,
            "client_name": nullable(CLIENT_NAME),
            "since": nullable(integer()),
            "until": nullable(integer()),
        }
    ),
    "SubscriptionChange": obj(
        {},
        optionals({"initial_position": {"enum": ["latest", "earliest"]}, "replicate_subscription_state": BOOLEAN}),
    ),
    "Subscription": obj({**_SUBSCRIPTION, "partitions": array(ref("Cursor")), "has_more": BOOLEAN}),
    "Subscriptions": obj({"subscriptions": array(obj(_SUBSCRIPTION)), "has_more": BOOLEAN}),
    "Cursor": obj(
        {
            "partition": integer(0, limits.PARTITIONS_MAX - 1),
            "mark_delete_offset": OFFSET,
            "individually_acknowledged": array(array(OFFSET, minItems=2, maxItems=2)),
            "backlog": integer(),
        },
        {"has_more": BOOLEAN},
    ),
    "Acknowledgement": obj(
        {"partition": integer()},
        optionals(
            {
                "cumulative": OFFSET,
                "individual": array(OFFSET, minItems=1, maxItems=limits.ACKNOWLEDGED_PER_REQUEST_MAX),
                "session_id": STRING,
            }
        ),
    ),
    "Seek": obj({"partition": integer()}, optionals({"offset": OFFSET, "timestamp": integer()})),
    "Mark": obj({"mark_delete_offset": OFFSET}),
    "GroupOffsets": obj(
        {
            "offsets": array(
                obj({"topic": TOPIC_NAME, "partition": integer(), "offset": OFFSET, "metadata": STRING}),
            ),
            "has_more": BOOLEAN,
        }
    ),
    "Commit": obj(
        {
            "offsets": array(
                obj(
                    {"topic": STRING, "partition": integer(), "offset": OFFSET},
                    optionals({"metadata": {"type": "string", "maxLength": limits.METADATA_BYTES_MAX}}),
                ),
                minItems=1,
                maxItems=limits.PARTITIONS_PER_COMMIT_MAX,
            )
        },
        optionals({"session_id": STRING}),
    ),
    "Health": obj({"status": {"const": "ok"}, "region": STRING, "version": STRING}),
    "Service": obj({"name": {"const": "fenceline"}, "version": STRING, "links": ref("Links")}),
    "Links": obj({"openapi": STRING, "docs": STRING, "health": STRING, "topics": STRING}),
}

_RECORD_ERRORS = {
    "record_errors": array(obj({"index": integer(), "message": STRING}), maxItems=limits.RECORD_ERRORS_MAX),
    "record_errors_count": integer(),
}
_GENERATION = {"resource": STRING, "generation": integer()}
# What a problem document has beside the members that all have: required and optional (API.md, "Errors").
EXTRA: Mapping[str, tuple[Mapping[str, Schema], Mapping[str, Schema]]] = {
    "INVALID_REQUEST": ({}, {"field": STRING}),
    "INVALID_RECORD": (_RECORD_ERRORS, {}),
    "INVALID_TIMESTAMP": (_RECORD_ERRORS, {}),
    "PRODUCER_FENCED": ({}, {"topic_epoch": EPOCH, "topic_epochs": {"type": "object", "additionalProperties": EPOCH}}),
    "STALE_GENERATION": (_GENERATION, {}),
    "RESOURCE_OWNED": (_GENERATION, {}),
    "OWNER_FENCED": ({"resource": STRING}, {}),
    "OFFSET_MISMATCH": ({"next_offset": OFFSET}, {}),
    "MESSAGE_TOO_LARGE": ({"bytes_max": integer()}, {}),
    "RECORD_LIST_TOO_LARGE": ({"bytes_max": integer()}, {}),
    "OFFSET_OUT_OF_RANGE": ({"log_start_offset": OFFSET, "next_offset": OFFSET}, {}),
}


def problem(code: str) -> Schema:
    """Return the schema of one error's problem document (RFC 9457)."""
    leaf = errors.TABLE[code]
    required, optional = EXTRA.get(code, ({}, {}))
    common: dict[str, Schema] = {
        "type": {"const": "about:blank"},
        "title": {"const": leaf.title},
        "status": {"const": leaf.status},
        "detail": STRING,
        "code": {"const": code},
        "next_step": {"const": leaf.next_step},
    }
    told = " ".join((leaf.__doc__ or "").split())
    return {"title": leaf.__name__, "description": told, **obj({**common, **required}, optional)}


def one_of(codes: Iterable[str]) -> Schema:
    refs = [ref(code) for code in codes]
    return refs[0] if len(refs) == 1 else {"oneOf": refs}


def components() -> dict[str, Schema]:
    """Return every named schema: the shapes, each error by its code, and ``Problem``, which is any of these."""
    return {**COMPONENTS, **{code: problem(code) for code in errors.TABLE}, "Problem": one_of(errors.TABLE)}
