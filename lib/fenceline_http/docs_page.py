"""The contract as a page for people, made of the served OpenAPI document; and a page of every error.

Rule: a page loads nothing and runs nothing, and every text of the document is escaped. A page says only what the
document and the table of errors say. Links are relative, because a gateway may serve all of it below a prefix.

Not here: any text about an operation (`described`) or an error (`errors.TABLE`).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any
from urllib.parse import urlencode

from fenceline import errors, limits
from fenceline_http import openapi, schemas
from fenceline_http.media_types import JSON_TYPE

_METHODS = ("get", "post", "put", "patch", "delete")
_REF = "#/components/schemas/"
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 0 auto; padding: 1rem; color: #1b1f24; }
code, pre { font: 0.9em/1.45 ui-monospace, monospace; background: #f3f4f6; border-radius: 4px; }
code { padding: 0.1em 0.3em; overflow-wrap: anywhere; }
pre { padding: 0.7rem; overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: 0.5rem 0 1rem; }
td:first-child code { white-space: nowrap; }
th, td { text-align: left; vertical-align: top; padding: 0.3rem 0.6rem; border-bottom: 1px solid #d5d9de; }
article { border-top: 1px solid #d5d9de; margin-top: 2rem; }
h4 { margin: 1rem 0 0.3rem; }
nav ul { columns: 2; padding-left: 1.2rem; }
a { color: #0b57a4; }
@media (prefers-color-scheme: dark) {
  body { background: #14171a; color: #e3e6ea; }
  code, pre { background: #23282e; }
  a { color: #7db7f2; }
}
"""

Schema = Mapping[str, Any]


@cache
def page(version: str) -> str:
    """Return the whole page, as HTML."""
    document = openapi.document(version)
    info = document["info"]
    by_tag = operations_by_tag(document)
    sections = [_group(tag["name"], tag["description"], by_tag[tag["name"]]) for tag in document["tags"]]
    return _whole(
        f"{info['title']} {version}: HTTP API",
        [
            f"<p>{_prose(info['summary'])} {_prose(info['description'])}</p>\n",
            _introduction(document),
            "</header>\n",
            _contents(by_tag),
            "<main>\n",
            *sections,
            _schemas(document["components"]["schemas"]),
        ],
    )


@cache
def errors_page(version: str) -> str:
    """Return the page that explains every error, as HTML; the member ``help`` of a problem leads to its part."""
    steps = (
        "<p>An error is <code>application/problem+json</code>. <code>fix</code>: no record was written, and the same "
        "request fails again. <code>retry</code>: no record was written; send it again. <code>check</code>: it may "
        "have been written. <code>stop</code>: stored data breaks an invariant.</p>\n"
    )
    rows = []
    for code, leaf in errors.TABLE.items():
        required, optional = schemas.members_of(code)
        rows.append(
            [
                f'<code id="{escape(code.lower())}">{escape(code)}</code>',
                str(leaf.status),
                escape(leaf.next_step),
                ", ".join(f"<code>{escape(name)}</code>" for name in (*required, *optional)),
                _prose(schemas.problem(code).definition["description"]),
            ]
        )
    table = _table(("code", "status", "next step", "also has", "meaning"), rows)
    back = '<p>What gives these errors is in <a href="../docs">the HTTP API</a>.</p>\n'
    return _whole(f"fenceline {version}: errors", [back, "</header>\n<main>\n", steps, table])


def _whole(title: str, parts: Iterable[str]) -> str:
    """Return a page. ``parts`` begin in its header, and end in its main part."""
    return "".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n',
            '<meta name="viewport" content="width=device-width, initial-scale=1">\n',
            f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n",
            f"<body>\n<header>\n<h1>{escape(title)}</h1>\n",
            *parts,
            "</main>\n</body>\n</html>\n",
        ]
    )


def _introduction(document: Schema) -> str:
    [scheme] = document["components"]["securitySchemes"].values()
    return (
        '<p>For programs, the same contract as <a href="v1/openapi.json">OpenAPI 3.1</a>. In the examples '
        "<code>$FENCELINE_URL</code> is where the service is, such as <code>http://127.0.0.1:8080</code>.</p>\n"
        f"<p>{_prose(scheme['description'])} With curl: "
        '<code>curl --aws-sigv4 aws:amz:REGION:execute-api --user "$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY" '
        '-H "x-amz-security-token: $AWS_SESSION_TOKEN"</code>.</p>\n'
    )


def operations_by_tag(document: Schema) -> dict[str, list[tuple[str, str, Schema]]]:
    """Return (method, path, operation) by the operation's tag, in the order of the tags."""
    found: dict[str, list[tuple[str, str, Schema]]] = {tag["name"]: [] for tag in document["tags"]}
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                found[item[method]["tags"][0]].append((method.upper(), path, item[method]))
    return found


def _contents(by_tag: Mapping[str, Sequence[tuple[str, str, Schema]]]) -> str:
    parts = ["<nav>\n<h2>Contents</h2>\n"]
    for tag, operations in by_tag.items():
        names = [(escape(told["operationId"]), _prose(told["summary"])) for _, _, told in operations]
        links = [f'<li><a href="#{name}">{name}</a> {summary}</li>' for name, summary in names]
        parts.append(f'<h3><a href="#tag-{escape(tag)}">{escape(tag)}</a></h3>\n<ul>\n{_lines(links)}</ul>\n')
    parts.append('<p><a href="#schemas">Schemas</a>, <a href="docs/errors">errors</a></p>\n</nav>\n')
    return "".join(parts)


def _group(tag: str, told: str, operations: Iterable[tuple[str, str, Schema]]) -> str:
    articles = "".join(_operation(*one) for one in operations)
    return f'<section>\n<h2 id="tag-{escape(tag)}">{escape(tag)}</h2>\n<p>{_prose(told)}</p>\n{articles}</section>\n'


def _operation(method: str, path: str, told: Schema) -> str:
    parts = [
        f'<article>\n<h3 id="{escape(told["operationId"])}">{escape(told["operationId"])}</h3>\n',
        f"<p><code>{escape(method)} {escape(path)}</code></p>\n",
        f"<p><strong>{_prose(told['summary'])}.</strong> {_prose(told['description'])}</p>\n",
    ]
    if told["parameters"]:
        parts.append("<h4>Parameters</h4>\n" + _parameters(told["parameters"]))
    body = told.get("requestBody", {})
    if body:
        needed = "required" if body["required"] else "optional"
        parts.append(f"<h4>Body ({needed})</h4>\n{_content(body['content'])}")
    parts.append(f"<h4>Example</h4>\n<pre>{escape(curl_line(method, path, told))}</pre>\n")
    refused = []
    for status, answer in told["responses"].items():
        if int(status) >= 400:
            codes = answer["description"].split(", ")  # the description lists the status's codes
            links = [f'<a href="docs/errors#{escape(code.lower())}"><code>{escape(code)}</code></a>' for code in codes]
            refused.append([escape(status), " ".join(links)])
            continue
        parts.append(f"<h4>Answer {escape(status)}</h4>\n")
        parts.append(_content(answer["content"]) if "content" in answer else "<p>No body.</p>\n")
    parts.append("<h4>Errors</h4>\n" + _table(("status", "codes"), refused) + "</article>\n")
    return "".join(parts)


def _parameters(parameters: Sequence[Schema]) -> str:
    rows = [
        [
            f"<code>{escape(one['name'])}</code>",
            f"{escape(one['in'])}{', required' if one['required'] else ''}",
            _type(one["schema"]),
            _prose(f"{one.get('description', '')} {one['schema'].get('description', '')}".strip()),
        ]
        for one in parameters
    ]
    return _table(("name", "in", "type", "meaning"), rows)


def _content(content: Mapping[str, Schema]) -> str:
    parts = []
    for media, told in content.items():
        parts.append(f"<p><code>{escape(media)}</code>: {_type(told['schema'])}</p>\n")
        if "example" in told:
            parts.append(f"<pre>{escape(json.dumps(told['example'], indent=2, ensure_ascii=False))}</pre>\n")
    return "".join(parts)


def curl_line(method: str, path: str, told: Schema) -> str:
    """Return a line for a shell that makes the example's request."""
    for parameter in told["parameters"]:
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
    query = urlencode(
        [(one["name"], one["example"]) for one in told["parameters"] if one["in"] == "query" and "example" in one]
    )
    line = "curl -s" if method == "GET" else f"curl -s -X {method}"
    line += f' "$FENCELINE_URL{path}{"?" if query else ""}{query}"'
    example = told.get("requestBody", {}).get("content", {}).get(JSON_TYPE, {}).get("example")
    if example is not None:
        line += f" \\\n  -H 'content-type: {JSON_TYPE}' -d {shlex.quote(json.dumps(example, ensure_ascii=False))}"
    return line


def _schemas(components: Mapping[str, Schema]) -> str:
    parts = ['<section>\n<h2 id="schemas">Schemas</h2>\n']
    for name, schema in components.items():
        if name in errors.TABLE:
            continue
        parts.append(f'<article>\n<h3 id="schema-{escape(name)}">{escape(name)}</h3>\n')
        if "description" in schema:
            parts.append(f"<p>{_prose(schema['description'])}</p>\n")
        parts.append(_members(schema) if schema.get("properties") else f"<p>{_type(schema)}</p>\n")
        parts.append("</article>\n")
    return "".join([*parts, "</section>\n"])


def _members(schema: Schema) -> str:
    required = schema.get("required", ())
    rows = [
        [
            f"<code>{escape(name)}</code>",
            "required" if name in required else "optional",
            _type(member),
            _prose(member.get("description", "")),
        ]
        for name, member in schema["properties"].items()
    ]
    return _table(("member", "", "type", "meaning"), rows)


# Schemas in a line


def _type(schema: Schema) -> str:
    """Return the type of a value, in words."""
    if "$ref" in schema:
        name = escape(schema["$ref"].removeprefix(_REF))
        return f'<a href="#schema-{name}">{name}</a>'
    for word in ("anyOf", "oneOf"):
        if word in schema:
            # The schema of every error at once: each has its line on the page of errors.
            told = [one for one in schema[word] if one.get("$ref", "").removeprefix(_REF) not in errors.TABLE]
            return " or ".join(map(_type, told)) or '<a href="docs/errors">an error</a>'
    if "const" in schema:
        return f"<code>{escape(json.dumps(schema['const']))}</code>"
    if "enum" in schema:
        return " or ".join(f"<code>{escape(json.dumps(one))}</code>" for one in schema["enum"])
    return _plain_type(schema)


def _plain_type(schema: Schema) -> str:
    kind = schema.get("type", "anything")
    if schema.get("format") == "binary":
        return "bytes"
    if kind == "array":
        items = [_type(one) for one in schema.get("prefixItems", ())]
        return f"array: [{', '.join(items)}]" if items else f"array of {_type(schema['items'])}"
    if kind == "object" and "properties" in schema:
        return _inline(schema)
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object, each member {_type(schema['additionalProperties'])}"
    told = " or ".join(kind) if isinstance(kind, list) else str(kind)
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high not in (None, limits.INT64_MAX):
        return escape(f"{told} from {low} to {high}")
    return escape(f"{told} from {low} on" if low is not None else told)


def _inline(schema: Schema) -> str:
    required = schema.get("required", ())
    members = [
        f"<code>{escape(name)}{'' if name in required else '?'}</code>: {_type(member)}"
        for name, member in schema["properties"].items()
    ]
    return f"object: {{{', '.join(members)}}}"


def _prose(text: str) -> str:
    """Return text, escaped, with each part between backticks as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are HTML already."""
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    body = _lines("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody>\n</table>\n"


def _lines(items: Iterable[str]) -> str:
    return "".join(f"{item}\n" for item in items)
