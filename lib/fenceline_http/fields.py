"""Typed values out of JSON objects and query strings, one by one, each refusal with its field.

The rule: what a request has and its endpoint does not take is refused (``end``), and so is every value of another type
than the one asked for; ``null`` for an optional member is the member left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn
from urllib.parse import unquote_to_bytes

from fenceline.errors import InvalidRequestError
from fenceline.limits import INT64_MAX
from fenceline_http.strict_json import member

_INTEGER = re.compile(r"-?[0-9]+")
_INT64_DIGITS = 19


def refuse(field: str, wanted: str) -> NoReturn:
    """Blame ``field``; ``wanted`` says what would have been right."""
    raise InvalidRequestError(f"{field or 'the body'} must be {wanted}", **({"field": field} if field else {}))


def integer(value: Any, field: str, *, low: int = 0, high: int = INT64_MAX) -> int:
    """Return ``value`` if it is an integer (no boolean, no ``1.0``) within the bounds, both included."""
    if type(value) is not int or not low <= value <= high:
        refuse(field, f"an integer from {low} to {high}")
    return value


class Fields:
    """The members of one JSON object. Take them by name, then call ``end``."""

    def __init__(self, tree: Any, path: str = "") -> None:
        if type(tree) is not dict:
            refuse(path, "an object")
        self._left: dict[str, Any] = dict(tree)
        self._path = path

    def path(self, name: str) -> str:
        return member(self._path, name)

    def take(self, name: str) -> Any:
        """Return the member's value; ``None`` if it is null or left out."""
        return self._left.pop(name, None)

    def require(self, name: str) -> Any:
        value = self.take(name)
        if value is None:
            refuse(self.path(name), "given")
        return value

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and type(value) is not str:
            refuse(self.path(name), "a string")
        return value

    def integer(self, name: str, *, low: int = 0, high: int = INT64_MAX) -> int | None:
        value = self.take(name)
        return None if value is None else integer(value, self.path(name), low=low, high=high)

    def require_integer(self, name: str, *, low: int = 0, high: int = INT64_MAX) -> int:
        return integer(self.require(name), self.path(name), low=low, high=high)

    def require_text(self, name: str) -> str:
        value = self.require(name)
        if type(value) is not str:
            refuse(self.path(name), "a string")
        return value

    def choice(self, name: str, words: Sequence[str]) -> str:
        """Return one of ``words``, the first where it is left out."""
        return _choice(self.text(name), self.path(name), words)

    def end(self) -> None:
        _refuse_unknown(self.path(name) for name in self._left)


class Query:
    """The parameters of one query string. Take them by name, then call ``end``."""

    def __init__(self, raw: str) -> None:
        self._left: dict[str, str] = {}
        for piece in raw.split("&"):
            if not piece:
                continue
            name, _, value = piece.partition("=")
            name = _decoded(name, "")
            if name in self._left:
                refuse(member("", name), "given once")
            self._left[name] = _decoded(value, member("", name))

    def text(self, name: str) -> str | None:
        return self._left.pop(name, None)

    def integer(self, name: str, *, low: int = 0, high: int = INT64_MAX) -> int | None:
        text = self.text(name)
        return None if text is None else integer(_integer(text), name, low=low, high=high)

    def capped(self, name: str, *, default: int, maximum: int) -> int:
        """Return a size of at least 1, cut to ``maximum`` with any digits however many."""
        text = self.text(name)
        if text is None:
            return default
        if text.isascii() and text.isdigit() and len(text.lstrip("0")) >= _INT64_DIGITS:
            return maximum
        return min(integer(_integer(text), name, low=1), maximum)

    def choice(self, name: str, words: Sequence[str]) -> str:
        """Return one of ``words``, the first where it is left out."""
        return _choice(self.text(name), name, words)

    def end(self) -> None:
        _refuse_unknown(member("", name) for name in self._left)


def _decoded(text: str, field: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeError:
        refuse(field, "UTF-8, percent-encoded")


def _integer(text: str) -> int | None:
    """Return what ``text`` says, if that is an integer that may have 64 bits."""
    if not _INTEGER.fullmatch(text):
        return None
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _INT64_DIGITS:
        return None
    return -int(digits) if text[0] == "-" else int(digits)


def integers(text: str, field: str, *, low: int) -> int | list[int]:
    """Return one integer, or a list where ``text`` has commas."""
    values = [integer(_integer(piece), field, low=low) for piece in text.split(",")]
    return values if len(values) > 1 else values[0]


def _choice(value: str | None, field: str, words: Sequence[str]) -> str:
    if value is None:
        return words[0]
    if value not in words:
        refuse(field, "one of " + ", ".join(words))
    return value


def _refuse_unknown(names: Iterable[str]) -> None:
    for name in names:
        raise InvalidRequestError(f"there is no such field here: field={name}", field=name)
