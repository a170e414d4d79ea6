"""The pages of HTTP operations, made of the OpenAPI document that every server serves: one page a group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from fenceline import errors, limits
from fenceline_http import openapi
from fenceline_http.docs_page import curl_line, operations_by_tag
from tools.docs.markdown_text import block, filled, table

FOLDER = "docs/reference/operations"
INDEX = "docs/reference/operations.md"
_SCHEMAS = "schemas"
_REF = "#/components/schemas/"
SOURCE = "the OpenAPI document (lib/fenceline_http/operations/)"

Schema = Mapping[str, Any]
Operation = tuple[str, str, Schema]


def pages() -> dict[str, str]:
    document = openapi.document("")
    by_tag = operations_by_tag(document)
    what = {tag["name"]: tag["description"] for tag in document["tags"]}
    groups = {f"{FOLDER}/{tag.lower()}.md": _group(tag, what[tag], those) for tag, those in by_tag.items()}
    schemas = _schemas(document["components"]["schemas"])
    return {INDEX: _index(document, what, by_tag), **groups, f"{FOLDER}/{_SCHEMAS}.md": schemas}


def nav() -> str:
    """Return the lines of the navigation, for ``mkdocs.yml``."""
    names = [*openapi.TAGS, _SCHEMAS.capitalize()]
    return "".join(f"              - {name}: reference/operations/{name.lower()}.md\n" for name in names)


def operation_names() -> Mapping[str, list[str]]:
    """Return the operations by the page that has them."""
    by_tag = operations_by_tag(openapi.document(""))
    return {f"{FOLDER}/{tag.lower()}.md": [told["operationId"] for _, _, told in by_tag[tag]] for tag in by_tag}


def _index(document: Schema, what: Mapping[str, str], by_tag: Mapping[str, Sequence[Operation]]) -> str:
    [scheme] = document["components"]["securitySchemes"].values()
    parts = [
        "# Operations\n\n",
        filled(
            "This page lists every HTTP operation, with a line for each. The page of a group has parameters, bodies, "
            "answers, errors and a request to copy. Every server serves the same as `GET /v1/openapi.json` and, for "
            "people, as `GET /docs`. Rules that hold for all operations are in the [contract](http/index.md)."
        ),
        "\n\n",
        block('export FENCELINE_URL=http://127.0.0.1:8080\ncurl -s "$FENCELINE_URL/v1/health"', "sh"),
        "\n",
        filled(scheme["description"] + " Curl signs by itself:"),
        "\n\n",
        block(
            'curl -s --aws-sigv4 "aws:amz:$AWS_REGION:execute-api" \\\n'
            '  --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" \\\n'
            '  -H "x-amz-security-token: $AWS_SESSION_TOKEN" "$FENCELINE_URL/v1/health"',
            "sh",
        ),
    ]
    for tag, those in by_tag.items():
        page = f"operations/{tag.lower()}.md"
        rows = [
            [f"[`{told['operationId']}`]({page}#{told['operationId'].lower()})", f"`{method} {path}`", told["summary"]]
            for method, path, told in those
        ]
        parts.append(f"\n## [{tag}]({page}) {{ #{tag.lower()} }}\n\n{filled(what[tag])}\n\n")
        parts.append(table(("operation", "request", "what it does"), rows))
    parts.append(f"\nWhat bodies and answers are made of is in [schemas](operations/{_SCHEMAS}.md).\n")
    return "".join(parts)


def _group(tag: str, what: str, those: Iterable[Operation]) -> str:
    return "".join([f"# {tag}: operations\n\n{filled(what)}\n", *(_operation(*one) for one in those)])


def _operation(method: str, path: str, told: Schema) -> str:
    parts = [
        f"\n## {told['operationId']}\n\n",
        block(f"{method} {path}", "text"),
        "\n" + filled(f"**{told['summary']}.** {told['description']}") + "\n",
    ]
    if told["parameters"]:
        parts.append("\n**Parameters**\n\n" + _parameters(told["parameters"]))
    body = told.get("requestBody", {})
    if body:
        needed = "required" if body["required"] else "optional"
        parts.append(f"\n**Body** ({needed}): {_content(body['content'])}\n")
    parts.append("\n**Example**\n\n" + block(curl_line(method, path, told), "sh"))
    refused = []
    for status, answer in told["responses"].items():
        if int(status) >= 400:
            codes = answer["description"].split(", ")  # the description lists the status's codes
            refused.append([status, ", ".join(f"[`{code}`](../errors.md#{code.lower()})" for code in codes)])
            continue
        content = answer.get("content", {})
        parts.append(f"\n**Answer {status}**: {_content(content) if content else 'no body'}\n")
        for name, header in answer.get("headers", {}).items():
            parts.append(f"\n- `{name}`: {header['description']}")
        parts += [f"\n{shown}" for shown in _examples(content)]
    parts.append("\n**Errors**\n\n" + table(("status", "codes"), refused))
    return "".join(parts)


def _parameters(parameters: Sequence[Schema]) -> str:
    rows = [
        [
            f"`{one['name']}`",
            f"{one['in']}{', required' if one['required'] else ''}",
            _type(one["schema"], f"{_SCHEMAS}.md"),
            f"{one.get('description', '')} {one['schema'].get('description', '')}".strip(),
        ]
        for one in parameters
    ]
    return table(("name", "in", "type", "meaning"), rows)


def _content(content: Mapping[str, Schema]) -> str:
    return "; ".join(f"`{media}`, {_type(told['schema'], f'{_SCHEMAS}.md')}" for media, told in content.items())


def _examples(content: Mapping[str, Schema]) -> Iterator[str]:
    for told in content.values():
        if "example" in told:
            yield block(json.dumps(told["example"], indent=2, ensure_ascii=False), "json")


def _schemas(components: Mapping[str, Schema]) -> str:
    parts = [
        "# Schemas\n\n",
        filled("This page has every body and answer of the [operations](../operations.md), member by member."),
        "\n",
    ]
    for name, schema in components.items():
        if name in errors.TABLE:
            continue
        # Not searched, because a schema's name would come before the error or the operation that a reader looks for.
        parts.append(f"\n## {name} {{ data-search-exclude }}\n\n")
        if "description" in schema:
            parts.append(filled(schema["description"]) + "\n\n")
        parts.append(_members(schema) if schema.get("properties") else f"{_type(schema, '')}\n")
    return "".join(parts)


def _members(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        [f"`{name}`", "required" if name in required else "optional", _type(member, ""), member.get("description", "")]
        for name, member in schema["properties"].items()
    ]
    return table(("member", "needed", "type", "meaning"), rows)


def _type(schema: Schema, page: str) -> str:
    """Return the type of a value in words; ``page`` is that of schemas, or "" on it."""
    if "$ref" in schema:
        name = schema["$ref"].removeprefix(_REF)
        return f"[{name}]({page}#{name.lower()})"
    for word in ("anyOf", "oneOf"):
        if word in schema:
            found = [one for one in schema[word] if one.get("$ref", "").removeprefix(_REF) not in errors.TABLE]
            return " or ".join(_type(one, page) for one in found) or "[an error](../errors.md)"
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(one)}`" for one in schema["enum"])
    if schema.get("format") == "binary":
        return "bytes"
    return _plain(schema, page)


def _plain(schema: Schema, page: str) -> str:
    kind = schema.get("type", "anything")
    if kind == "array":
        items = [_type(one, page) for one in schema.get("prefixItems", ())]
        return f"array: {', '.join(items)}" if items else f"array of {_type(schema['items'], page)}"
    if kind == "object" and "properties" in schema:
        required = schema.get("required", ())
        members = [
            f"`{name}{'' if name in required else '?'}`: {_type(member, page)}"
            for name, member in schema["properties"].items()
        ]
        return f"object: {', '.join(members)}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object, each member {_type(schema['additionalProperties'], page)}"
    words = " or ".join(kind) if isinstance(kind, list) else str(kind)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high not in (None, limits.INT64_MAX):
        return f"{words} from {low} to {high}"
    return f"{words} from {low} on" if low is not None else words
