"""JSON Schema as dictionaries: draft 2020-12, as OpenAPI 3.1 has it.

Rule: an object has no members but those that it names.

Not here: what any request or answer has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fenceline import limits

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
BOOLEAN: Schema = {"type": "boolean"}
TEXT_OR_NULL: Schema = {"type": ["string", "null"]}


class Named(Schema):
    """A reference to a schema by its name in the document. It carries that schema, so that the document can show it."""

    def __init__(self, name: str, definition: Schema | Callable[[], Schema], description: str = "") -> None:
        super().__init__({"$ref": f"#/components/schemas/{name}"})
        self.name = name
        self._definition = definition
        self._description = description

    @property
    def definition(self) -> Schema:
        """The schema itself. One that is given as a function is made when the document is."""
        definition = self._definition() if callable(self._definition) else self._definition
        return described(definition, self._description)


def integer(low: int = 0, high: int = limits.INT64_MAX) -> Schema:
    sized = {"format": "int64"} if high > limits.INT32_MAX else {}  # else generators of clients take 32 bits
    return {"type": "integer", **sized, "minimum": low, "maximum": high}


def const(value: str | int) -> Schema:
    return {"type": "string" if isinstance(value, str) else "integer", "const": value}


def words(*given: str) -> Schema:
    """Return the schema of a text, which is one of those given. Without its type, generators make no text of it."""
    return {"type": "string", "enum": list(given)}


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


def described(schema: Schema, text: str) -> Schema:
    return {**schema, "description": text} if text else schema


def named_in(part: object) -> Iterator[Named]:
    """Yield every named schema that ``part`` of a document refers to, those behind it included."""
    if isinstance(part, Named):
        yield part
        yield from named_in(part.definition)
    if isinstance(part, Mapping):
        for value in part.values():
            yield from named_in(value)
    elif isinstance(part, list | tuple):
        for value in part:
            yield from named_in(value)
