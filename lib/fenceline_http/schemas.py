"""The schemas that several operations share, and those of errors.

Rule: a schema that one operation alone has is declared beside it, in `operations`.

Not here: what a schema cannot state, such as which members go together; the contract states it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fenceline import errors, limits
from fenceline.model import kinds
from fenceline_http.json_schema import (
    STRING,
    TEXT_OR_NULL,
    Named,
    Schema,
    array,
    const,
    integer,
    obj,
    of_type,
    words,
)

OFFSET = of_type(kinds.Offset)
EPOCH = of_type(kinds.Epoch)
TOPIC_NAME = of_type(kinds.TopicName)
SUBSCRIPTION_NAME = of_type(kinds.SubscriptionName)
PRODUCER_NAME = of_type(kinds.ProducerName)
MEMBER_ID = of_type(kinds.MemberId)
TRANSACTIONAL_ID = of_type(kinds.TransactionalId)
REGION_NAME = of_type(kinds.RegionName)
SESSION_ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}

ENCODING = Named(
    "Encoding",
    words("utf8", "base64"),
    "How keys, values and header values are written: as text, or in base64.",
)
HEADERS = array({"type": "array", "prefixItems": [STRING, TEXT_OR_NULL], "minItems": 2, "maxItems": 2})

# The parameters of paths, with meaning, schema and example, the same in every path.
PATH_PARAMETERS: Mapping[str, tuple[str, Schema, object]] = {
    "topic": ("The topic's name.", TOPIC_NAME, "orders"),
    "partition": ("The partition's number, from 0.", integer(0, limits.PARTITIONS_MAX - 1), 0),
    "region": ("The other region's name.", REGION_NAME, "b"),
    "name": ("The subscription's name.", SUBSCRIPTION_NAME, "billing"),
    "group": ("The group's name.", SUBSCRIPTION_NAME, "billing"),
    "member_id": ("The member's id.", MEMBER_ID, "7d1c2f0e-5b3a-4c55-9a0e-1f2b3c4d5e6f"),
    "session_id": ("The session's id.", SESSION_ID, "5f0c8a4e1d2b4c6f9a7e3b1d0c5f8a2e"),
    "producer_name": ("The producer's name.", PRODUCER_NAME, "loader"),
    "transactional_id": ("The transactional id.", TRANSACTIONAL_ID, "loader-1"),
    "app_id": ("The application's id: text as a transactional id's.", TRANSACTIONAL_ID, "hourly-totals"),
    "key": ("The group's name, or the transactional id.", TRANSACTIONAL_ID, "loader-1"),
}


_RECORD_ERRORS = {
    "record_errors": array(obj({"index": integer(), "message": STRING}), maxItems=limits.RECORD_ERRORS_MAX),
    "record_errors_count": integer(),
}
_OF_MEMBER = {"transactional_id": STRING}  # where several transactions end together
_GENERATION = {"resource": STRING, "generation": integer()}
# The members of a problem document beside those that all have: required and optional (contract, "Errors").
EXTRA: Mapping[str, tuple[Mapping[str, Schema], Mapping[str, Schema]]] = {
    "INVALID_REQUEST": ({}, {"field": STRING}),
    "INVALID_RECORD": (_RECORD_ERRORS, {}),
    "INVALID_TIMESTAMP": (_RECORD_ERRORS, {}),
    "NOT_AUTHORIZED": ({}, _OF_MEMBER),
    "INVALID_PRODUCER_ID_MAPPING": ({}, _OF_MEMBER),
    "INVALID_TXN_STATE": ({}, _OF_MEMBER),
    "ALREADY_COMMITTED": ({"version": integer(), "note": TEXT_OR_NULL}, {}),
    "PRODUCER_FENCED": (
        {},
        {"topic_epoch": EPOCH, "topic_epochs": {"type": "object", "additionalProperties": EPOCH}, **_OF_MEMBER},
    ),
    "STALE_GENERATION": (_GENERATION, {}),
    "RESOURCE_OWNED": (_GENERATION, {}),
    "OWNER_FENCED": ({"resource": STRING}, {}),
    "STALE_MEMBER_EPOCH": ({"topic": STRING, "partition": integer()}, {}),
    "UNRELEASED_INSTANCE_ID": ({"instance_id": STRING}, {}),
    "FENCED_INSTANCE_ID": ({"instance_id": STRING}, {}),
    "UNSUPPORTED_ASSIGNOR": ({"field": STRING}, {}),
    "VIEW_MOVED": ({"compaction_horizon": OFFSET, "deletes_to": OFFSET}, {}),
    "OFFSET_MISMATCH": ({"topic": STRING, "partition": integer(), "next_offset": OFFSET}, {}),
    "MESSAGE_TOO_LARGE": ({"bytes_max": integer()}, {}),
    "RECORD_LIST_TOO_LARGE": ({"bytes_max": integer()}, {}),
    "OFFSET_OUT_OF_RANGE": ({"log_start_offset": OFFSET, "next_offset": OFFSET}, {}),
}


# Further members of an error about one partition, if a request for one partition was refused.
PLACE: Mapping[str, Schema] = {"topic": STRING, "partition": integer()}


def members_of(code: str) -> tuple[Mapping[str, Schema], Mapping[str, Schema]]:
    """Return the members of one error that not all have: those that it always has, and those that it may have."""
    required, optional = EXTRA.get(code, ({}, {}))
    place = {name: schema for name, schema in PLACE.items() if code in errors.PLACED and name not in required}
    return required, {**optional, **place}


def problem(code: str) -> Named:
    """Return the schema of one error's problem document (RFC 9457)."""
    leaf = errors.TABLE[code]
    required, optional = members_of(code)
    common: dict[str, Schema] = {
        "type": const("about:blank"),
        "title": const(leaf.title),
        "status": const(leaf.status),
        "detail": STRING,
        "code": const(code),
        "next_step": const(leaf.next_step),
    }
    definition = {"title": leaf.__name__, **obj({**common, **required}, {"help": STRING, **optional})}
    return Named(code, definition, " ".join((leaf.__doc__ or "").replace("``", "`").split()))


def one_of(codes: Iterable[str]) -> Schema:
    refs = [problem(code) for code in codes]
    if len(refs) == 1:
        return refs[0]
    mapping = {one.name: one["$ref"] for one in refs}
    return {"oneOf": refs, "discriminator": {"propertyName": "code", "mapping": mapping}}


PROBLEM = Named(
    "Problem",
    lambda: one_of(errors.TABLE),
    "An error (RFC 9457). `next_step` says what the caller can do: fix, retry, check or stop.",
)
