"""Kinds of values: how each is parsed out of JSON or out of a query, and how JSON Schema states it.

Rule: the parser and the schema of a value are stated in one place, its kind. A value of another type is refused with
the name of its field.

Not here: which members a request has (`request_schema`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Generic, NoReturn, TypeVar

from fenceline.errors import InvalidRequestError
from fenceline.limits import INT64_MAX, MEMBER_ID_CHARS_MAX, SUBSCRIPTION_NAME_CHARS_MAX
from fenceline_http import json_schema, schemas, strict_json
from fenceline_http.json_schema import Schema

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

_INTEGER = re.compile(r"-?[0-9]+")
_INT64_DIGITS = 19


def refuse(field: str, wanted: str) -> NoReturn:
    """Blame ``field``; ``wanted`` says what would have been right."""
    raise InvalidRequestError(f"{field or 'the body'} must be {wanted}", **({"field": field} if field else {}))


class Kind(Generic[T_co]):
    """One kind of value.

    Args:
        of_json: Returns the value that parsed JSON means; it gets that and the field's path.
        schema: What ``of_json`` takes.
        of_text: Returns the value that a text of a query means; it gets that and the parameter's name.
    """

    __slots__ = ("of_json", "of_text", "schema")

    def __init__(
        self, of_json: Callable[[Any, str], T_co], schema: Schema, of_text: Callable[[str, str], T_co] | None = None
    ) -> None:
        self.of_json = of_json
        self.schema = schema
        self.of_text = of_text or of_json

    def shown(self, schema: Schema) -> Kind[T_co]:
        """Return this kind with a schema that states more: bounds that the service judges, and not the parser."""
        return Kind(self.of_json, schema, self.of_text)


def integer(low: int = 0, high: int = INT64_MAX) -> Kind[int]:
    """Return the kind of integers within the bounds, both included. ``1.0`` and ``true`` are no integers."""
    wanted = f"an integer from {low} to {high}"

    def of_json(value: Any, field: str) -> int:
        if type(value) is not int or not low <= value <= high:
            refuse(field, wanted)
        return value

    return Kind(of_json, json_schema.integer(low, high), lambda text, field: of_json(integer_in(text), field))


def integer_in(text: str) -> int | None:
    """Return the integer that ``text`` is, if it may have 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS:
        return None
    return -int(digits) if text[0] == "-" else int(digits)


def size(default: int, maximum: int) -> Kind[int]:
    """Return the kind of sizes: at least 1, and cut to ``maximum``, in a query with any digits however many."""
    at_least_one = integer(1).of_json

    def of_json(value: Any, field: str) -> int:
        return maximum if type(value) is int and value > maximum else at_least_one(value, field)

    def of_text(text: str, field: str) -> int:
        if text.isascii() and text.isdigit() and len(text.lstrip("0")) >= _INT64_DIGITS:
            return maximum
        return of_json(integer_in(text), field)

    schema = {"type": "integer", "minimum": 1, "default": default, "description": f"More than {maximum} is {maximum}."}
    return Kind(of_json, schema, of_text)


def _text(value: Any, field: str) -> str:
    if type(value) is not str:
        refuse(field, "a string")
    return value


def _flag(value: Any, field: str) -> bool:
    if type(value) is not bool:
        refuse(field, "true or false")
    return value


TEXT: Kind[str] = Kind(_text, json_schema.STRING)


def _transactional_id(value: Any, field: str) -> str:
    from fenceline.model.transaction import check_transactional_id  # Only a request in a transaction needs it.

    text = _text(value, field)
    if not strict_json.is_text(text):
        refuse(field, "text; a lone surrogate is not a character")
    try:
        return check_transactional_id(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(error.detail, field=field) from None


TRANSACTIONAL_ID: Kind[str] = Kind(_transactional_id, schemas.TRANSACTIONAL_ID)

LEGAL_GROUP = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{SUBSCRIPTION_NAME_CHARS_MAX}}}", re.ASCII)
WANTED_GROUP = f"1 to {SUBSCRIPTION_NAME_CHARS_MAX} of A-Z a-z 0-9 . _ -, and neither . nor .."


def _group(value: Any, field: str) -> str:
    if not LEGAL_GROUP.fullmatch(_text(value, field)):
        refuse(field, WANTED_GROUP)
    return str(value)


GROUP: Kind[str] = Kind(_group, schemas.SUBSCRIPTION_NAME)

_LEGAL_MEMBER = re.compile(rf"(?!\.\.?\Z)[A-Za-z0-9._-]{{1,{MEMBER_ID_CHARS_MAX}}}", re.ASCII)


def _member_id(value: Any, field: str) -> str:
    if not _LEGAL_MEMBER.fullmatch(_text(value, field)):
        refuse(field, f"1 to {MEMBER_ID_CHARS_MAX} of A-Z a-z 0-9 . _ -, and neither . nor ..")
    return str(value)


MEMBER_ID: Kind[str] = Kind(_member_id, schemas.MEMBER_ID)


def choice(words: Sequence[str], schema: Schema | None = None) -> Kind[str]:
    """Return the kind of texts that are one of ``words``."""

    def of_json(value: Any, field: str) -> str:
        if _text(value, field) not in words:
            refuse(field, "one of " + ", ".join(words))
        return str(value)

    return Kind(of_json, schema or json_schema.words(*words))


_BOOLEAN_WORD = choice(("false", "true")).of_json
FLAG: Kind[bool] = Kind(_flag, json_schema.BOOLEAN, lambda text, field: _BOOLEAN_WORD(text, field) == "true")


def list_of(kind: Kind[T], low: int = 0, high: int | None = None, *, of: str = "", **stated: Any) -> Kind[list[T]]:
    """Return the kind of lists whose entries are of ``kind``.

    Args:
        low: And ``high``: how many there may be.
        of: What the refusal of another number of entries calls them.
        stated: What the schema states beside, and the service judges.
    """
    wanted = "a list" if high is None else f"a list of {low} to {high}{of and ' '}{of}"
    bounds = {} if high is None else {"minItems": low, "maxItems": high}
    of_json = kind.of_json

    def entries(value: Any, field: str) -> list[T]:
        if type(value) is not list or not (high is None or low <= len(value) <= high):
            refuse(field, wanted)
        return [of_json(entry, f"{field}[{index}]") for index, entry in enumerate(value)]

    return Kind(entries, json_schema.array(kind.schema, **bounds, **stated))
