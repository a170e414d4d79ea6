"""The served OpenAPI 3.1 document, made of the routes and of the table of errors.

Rule: nothing is said twice. A route says what is particular to it, an error's status and members come from
`errors.TABLE`, and tests hold the whole against the contract.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from fenceline import errors
from fenceline.answers import to_json
from fenceline_http import schemas
from fenceline_http.json_schema import STRING, Named, Schema, described, integer, named_in, of_answer
from fenceline_http.media_types import BYTES_TYPE, HTML_TYPE, JSON_TYPE, PROBLEM_TYPE
from fenceline_http.request_schema import Body, Query
from fenceline_http.route import Route
from fenceline_http.routes import ROUTES

TAGS: Mapping[str, str] = {
    "Topics": "Create, list, change and delete topics; trim and compact their partitions.",
    "Records": "Append records, and read them back.",
    "Producers": "Idempotent producer ids, and producers that claim write access to partitions.",
    "Sessions": "Leases. A session represents a connection: it is renewed, closed, severed, or it expires.",
    "Ownership": "Locks with generations and fencing tokens, on partitions or on any other name.",
    "Subscriptions": "Named cursors: read what is not acknowledged, acknowledge it, seek.",
    "Groups": "Kafka's consumer groups: members that share out partitions, and committed offsets. A group is a "
    "subscription of its name on each of its topics.",
    "Transactions": "Records of several partitions and offsets of a group, all of them or none (exactly once).",
    "Operators": "What ends or shows transactions of every principal. Only operators should be let in.",
    "Regions": "Topics in several regions: what is replicated, snapshots, suspended regions, gaps.",
    "Service": "The service itself: health, and this contract.",
}
_SCHEME = "sigv4"
_BINARY: Schema = {"type": "string", "format": "binary"}
_BATCH_HEADERS: Mapping[str, str] = {
    "fenceline-position": "The offset to read next.",
    "fenceline-log-start-offset": "As `log_start_offset` of a page.",
    "fenceline-next-offset": "As `next_offset` of a page.",
    "fenceline-last-stable-offset": "As `last_stable_offset` of a page.",
}


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
        "security": [{}, {_SCHEME: []}],  # either: only a deployed server asks for a signature
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": _components(paths),
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


def _components(paths: Mapping[str, Any]) -> dict[str, Schema]:
    """Return every schema that has a name, by that name: those of the operations, then those of errors."""
    found = {one.name: one.definition for one in named_in(paths) if one.name not in errors.TABLE}
    return {**found, **{code: schemas.problem(code).definition for code in errors.TABLE}}


def _operation(route: Route) -> dict[str, Any]:
    answers = {str(status): _answer(given, route) for status, given in route.answers.items()}
    first = next(iter(answers.values()))
    if route.answer is not None:
        first["content"][JSON_TYPE]["example"] = to_json(route.answer)
    made: dict[str, Any] = {
        "operationId": route.operation,
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "parameters": [*_in_path(route.path), *_in_query(route)],
        "responses": {**answers, **_problems(route.codes)},
    }
    if issubclass(route.takes, Body):
        content: dict[str, Any] = {JSON_TYPE: {"schema": route.takes.schema()}}
        if route.body is not None:
            content[JSON_TYPE]["example"] = route.body
        made["requestBody"] = {"required": not route.takes.is_optional, "content": content}
    if route.takes_batch:
        made["requestBody"] = {"required": True, "content": {BYTES_TYPE: {"schema": _BINARY}}}
    return made


def _in_path(path: str) -> Iterator[dict[str, Any]]:
    for name, (meaning, schema, example) in schemas.PATH_PARAMETERS.items():
        if f"{{{name}}}" in path:
            yield {
                "name": name,
                "in": "path",
                "required": True,
                "description": meaning,
                "schema": schema,
                "example": example,
            }


def _in_query(route: Route) -> Iterator[dict[str, Any]]:
    query = route.takes if issubclass(route.takes, Query) else Query
    last = query.last_shown
    for name, member in sorted(query.members, key=lambda one: last.index(one[0]) + 1 if one[0] in last else 0):
        if not member.is_shown:
            continue
        parameter = {"name": name, "in": "query", "required": member.is_required, "schema": member.kind.schema}
        if member.kind.schema.get("type") == "array":
            parameter |= {"style": "form", "explode": False}  # with commas
        if name in route.query:
            parameter["example"] = route.query[name]
        yield described(parameter, member.description)


def _answer(given: Any, route: Route) -> dict[str, Any]:
    """Return one answer; each has one media type, and one type of that."""
    if given is not None:
        shape = given if isinstance(given, Named) else of_answer(type(given))
        return {"description": shape.name, "content": {JSON_TYPE: {"schema": shape}}}
    if route.gives_page:
        return {"description": "A page for people", "content": {HTML_TYPE: {"schema": STRING}}}
    if route.gives_batches:
        headers = {name: {"schema": integer(), "description": text} for name, text in _BATCH_HEADERS.items()}
        return {"description": "Whole batches", "content": {BYTES_TYPE: {"schema": _BINARY}}, "headers": headers}
    return {"description": "Accepted; no body"}


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
