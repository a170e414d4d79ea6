"""JSON Schema as dictionaries: draft 2020-12, as OpenAPI 3.1 has it; and the schema of a type that declares an answer.

Rule: an object has no members but those that it names.

Not here: what any request or answer has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from fenceline import limits
from fenceline.answers import Default, Keys, OneOf, Shape, Stated, Titled, Whole, is_declared, members_of

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
    return {"type": "string", "enum": list(given)} if len(given) > 1 else const(given[0])


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


# Schemas of declared answers


def of_type(hint: Any) -> Schema:
    """Return the schema of a type, as its annotations state it."""
    return _of_shape(Shape(hint))


def of_answer(declared: type) -> Named:
    """Return the schema of the class of an answer, by its own name where it has no title."""
    title = getattr(declared, "__titled__", None) or Titled(declared.__name__)
    return Named(title.name, lambda: obj(*members(declared)), title.description)


def members(declared: type) -> tuple[Mapping[str, Schema], Mapping[str, Schema]]:
    """Return the members of a class of answers: those that each answer has, and those that it may have."""
    required: dict[str, Schema] = {}
    optional: dict[str, Schema] = {}
    for one in members_of(declared):
        if one.is_inline:
            always, sometimes = members(one.shape.base)
            (optional if one.shape.is_nullable else required).update(always)
            optional.update(sometimes)
        else:
            shown = _of_shape(one.shape, is_null_shown=one.is_null_shown)
            (optional if one.is_left_out else required)[one.name] = shown
    return required, optional


def _of_shape(shape: Shape, *, is_null_shown: bool = True) -> Schema:
    schema = _plain(shape)
    title = shape.mark(Titled)
    if title is not None:
        schema = Named(title.name, schema, title.description)
    if shape.is_nullable and is_null_shown:
        schema = TEXT_OR_NULL if schema == STRING else nullable(schema)
    default = shape.mark(Default)
    if default is not None:
        schema = {**schema, "default": default.value}
    return described(schema, shape.mark(str) or "")


def _plain(shape: Shape) -> Schema:
    stated, whole, one_of = shape.mark(Stated), shape.mark(Whole) or Whole(), shape.mark(OneOf)
    more = {} if stated is None else stated.keywords
    if is_declared(shape.base):
        return of_answer(shape.base) if hasattr(shape.base, "__titled__") else obj(*members(shape.base))
    if one_of is not None:
        return words(*one_of.words)
    if shape.base is Literal:
        return words(*shape.args)
    if shape.base is Sequence:
        return array(_of_shape(shape.args[0]), **more)
    if shape.base is tuple:
        return _of_tuple([_of_shape(one) for one in shape.args])
    if shape.base is Mapping:
        return _of_mapping(shape)
    return {int: integer(whole.low, whole.high), bool: BOOLEAN, str: {**STRING, **more}, bytes: STRING}[shape.base]


def _of_tuple(entries: Sequence[Schema]) -> Schema:
    count = {"minItems": len(entries), "maxItems": len(entries)}
    if all(one == entries[0] for one in entries):
        return array(entries[0], **count)
    return {"type": "array", "prefixItems": entries, **count}


def _of_mapping(shape: Shape) -> Schema:
    keys = shape.mark(Keys)
    if keys is not None:
        of_keys = {name: of_type(hint) for name, hint in keys.types().items()}
        return {"type": "object", "properties": of_keys, "additionalProperties": False}
    key, value = shape.args
    names = {"propertyNames": {"pattern": "^(0|[1-9][0-9]{0,8})$"}} if key.base is int else {}
    return {"type": "object", **names, "additionalProperties": _of_shape(value)}


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
