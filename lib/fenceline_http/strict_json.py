"""JSON as RFC 8259 has it, and nothing beside it.

Rule: a body is refused as a whole, with the path of the member to blame, before anything of it is used. What the
standard library lets pass (NaN, a name twice, lone surrogates, numbers of any length, any depth) is refused here.
"""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from fenceline.errors import InvalidRequestError

LEVELS_MAX = 64
_INT64_CHARS_MAX = len(str(-(2**63)))

_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_STEPS = bytes.maketrans(b"[]{}", b"\x01\xff\x01\xff")  # one level up or down, as signed bytes
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


class _Refused:
    """A mark in the parsed tree, in place of a value that is refused."""

    def __init__(self, why: str, name: str = "") -> None:
        self.why = why
        self.name = name  # the member to blame, where it is one below


class _Parser:
    """One pass over one body. It remembers that a value was refused; the mark in the tree is at its place."""

    def __init__(self) -> None:
        self.has_refused = False

    def refuse(self, why: str, name: str = "") -> _Refused:
        self.has_refused = True
        return _Refused(why, name)

    def pairs(self, pairs: list[tuple[str, Any]]) -> Any:
        made = dict(pairs)
        if len(made) == len(pairs):
            return made
        [(repeated, _)] = Counter(name for name, _ in pairs).most_common(1)
        return self.refuse("an object has this name twice", repeated)

    def integer(self, digits: str) -> Any:
        if len(digits) > _INT64_CHARS_MAX:
            return self.refuse("the integer has more than 64 bits")
        return int(digits)

    def constant(self, word: str) -> Any:
        return self.refuse(f"{word} is not JSON")


def loads(body: bytes) -> Any:
    """Return the value that ``body`` is.

    Raises:
        InvalidRequestError: It is not JSON, or has what this module's rule forbids.
    """
    try:
        text = body.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"the body is not UTF-8: position={error.start}") from None
    if _is_deep(body):
        raise InvalidRequestError(f"the body is nested deeper than {LEVELS_MAX} levels")
    parser = _Parser()
    try:
        tree = json.loads(
            text, object_pairs_hook=parser.pairs, parse_int=parser.integer, parse_constant=parser.constant
        )
    except ValueError as error:
        raise InvalidRequestError(f"the body is not JSON: {str(error)[:100].lower()}") from None
    if parser.has_refused or _SURROGATE_ESCAPE.search(body):
        for path, why in _refusals(tree, ""):
            raise InvalidRequestError(why, **({"field": path} if path else {}))
    return tree


def _is_deep(body: bytes) -> bool:
    """Return True if brackets outside of strings nest deeper than allowed. One pass is enough for any body.

    Of a body that is not JSON it counts at least as far as a parser would come.
    """
    unescaped = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    brackets = b"".join(unescaped.split(b'"')[::2]).translate(_STEPS, _NOT_BRACKETS)
    return max(accumulate(array("b", brackets)), default=0) > LEVELS_MAX


def _refusals(tree: Any, path: str) -> Iterator[tuple[str, str]]:
    match tree:
        case _Refused():
            yield member(path, tree.name) if tree.name else path, tree.why
        case dict():
            for name, value in tree.items():
                yield from _refusals(name, path)
                yield from _refusals(value, member(path, name))
        case list():
            for index, value in enumerate(tree):
                yield from _refusals(value, f"{path}[{index}]")
        case str() if not is_text(tree):
            yield path, "a lone surrogate is not a character"


def is_text(text: str) -> bool:
    """Whether every character of it can be written as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def member(path: str, name: str) -> str:
    """Return the path of the member ``name`` of the object at ``path``, as errors show it."""
    shown = name if len(name) <= 100 and is_text(name) else "…"
    return f"{path}.{shown}" if path else shown
