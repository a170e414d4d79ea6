"""Answers, each declared once: the annotations of a class, from which JSON is made of its values, and values of JSON.

Rule: a class with annotated members is the only statement of the members of an answer. Four things are made of it:

- ``to_json`` makes the JSON that the service sends.
- ``parse`` makes the value that a client gets of it.
- ``judged`` makes the value of what another region sent, if each member is as promised.
- `fenceline_http.json_schema` makes the schema that the served document shows.

A class has a line for each member, in the order of the JSON::

    @Titled("Gap", "Records that a region no longer keeps.")
    @dataclass(frozen=True, slots=True)
    class Gap:
        partition: PartitionNumber  # an alias: Annotated[int, Whole(0, 9_999)]
        region: str
        to_offset: Annotated[Offset, "Where it ends."]
        noted_at: Annotated[int | None, LEFT_OUT] = None

- A text within ``Annotated`` describes the member.
- ``LEFT_OUT``: a member that has its default is not in the JSON, nor is ``None`` where the member has no default. Any
  other member is always there, and may be null.
- ``INLINE``: the members of the inner class are among those of the outer one. They are absent if the inner is ``None``.
- ``Called("name")``: the member has another name in JSON than in Python.
- ``After("name")``: the member comes right after another one in JSON.
- ``Absent(value)``: a client takes this value where an older service does not send the member.

Not here: the classes (``model``), and errors, whose members `fenceline_http.schemas` has.
"""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING
from functools import cache
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeVar

from fenceline.limits import INT64_MAX

T = TypeVar("T")

JsonObject = Mapping[str, Any]

_PEER_TEXT_CHARS_MAX = 256  # unless the member has a promise of its own


def _kept(make: Callable[[Any], T]) -> Callable[[Any], T]:
    """Let ``make`` be called once for each class. This states a type, because mypy takes no class for hashable."""
    return cache(make)


class Whole:
    """The bounds of an integer, both included. An integer without them has those of this class."""

    def __init__(self, low: int = 0, high: int = INT64_MAX) -> None:
        self.low, self.high = low, high


class Stated:
    """The bounds of a text or a list, by JSON Schema's keywords, such as ``maxItems``."""

    def __init__(self, **keywords: Any) -> None:
        self.keywords = keywords


class OneOf:
    """The words of which a text is one. ``Literal`` says the same where the code names each word."""

    def __init__(self, *words: str) -> None:
        self.words = words


class Default:
    """The value that is in force where a member is not given. The member itself is then absent."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Keys:
    """The keys that a mapping may have, each with the type of its value. Only the document calls the function."""

    def __init__(self, types: Callable[[], Mapping[str, Any]]) -> None:
        self.types = types


class Titled:
    """The name by which the served document refers to a type, and what it says of it. It also decorates a class."""

    def __init__(self, name: str, description: str = "") -> None:
        self.name, self.description = name, description

    def __call__(self, cls: type[T]) -> type[T]:
        cls.__titled__ = self  # type: ignore[attr-defined]
        return cls


class Called:
    """The name of a member in JSON."""

    def __init__(self, name: str) -> None:
        self.name = name


class After:
    """The member that comes right before this one in JSON, if Python's order is another."""

    def __init__(self, name: str) -> None:
        self.name = name


class Absent:
    """The value that a client takes where an older service does not send the member. It precedes a default."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Mark:
    """A word about a member."""


LEFT_OUT, INLINE = Mark(), Mark()


class Refused(Exception):
    """A member of an answer is not as promised."""


class Shape:
    """A type as an annotation states it.

    Attributes:
        base: A class, or ``typing.Literal``.
        args: The types in it, or the words of a ``Literal``.
        marks: What ``Annotated`` says of it.
    """

    def __init__(self, hint: Any) -> None:
        marks: list[Any] = []
        self.is_nullable = False
        while True:
            origin = typing.get_origin(hint)
            if origin is typing.Annotated:
                marks += hint.__metadata__
                hint = hint.__origin__
            elif origin in (typing.Union, UnionType):
                left = [one for one in typing.get_args(hint) if one is not NoneType]
                self.is_nullable = len(left) < len(typing.get_args(hint))
                hint, origin = (left[0], None) if len(left) == 1 else (object, None)
            else:
                break
        self.base: Any = origin or hint
        args = typing.get_args(hint)
        self.args: tuple[Any, ...] = args if origin is typing.Literal else tuple(map(Shape, args))
        self.marks = tuple(marks)

    def mark(self, kind: type[T]) -> T | None:
        """Return what was said of this kind, or ``None``."""
        return next((one for one in self.marks if isinstance(one, kind)), None)


def is_declared(cls: Any) -> bool:
    """Return True for a class that declares an answer: a dataclass, or a ``NamedTuple``."""
    return hasattr(cls, "__dataclass_fields__") or hasattr(cls, "_fields")


class Member:
    """One member of a class.

    Attributes:
        name: Its name in JSON.
        attribute: Its name in Python.
        default: ``...`` without one.
    """

    def __init__(self, attribute: str, hint: Any, default: Any) -> None:
        self.attribute = attribute
        self.shape = Shape(hint)
        called = self.shape.mark(Called)
        self.name = attribute if called is None else called.name
        self.is_left_out = LEFT_OUT in self.shape.marks
        self.default = None if self.is_left_out and default is ... else default
        self.is_inline = INLINE in self.shape.marks
        self.is_null_shown = self.shape.is_nullable and not (self.is_left_out and self.default is None)


@_kept
def members_of(cls: type) -> tuple[Member, ...]:
    """Return the members of a class, in the order of JSON."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields = getattr(cls, "__dataclass_fields__", None)
    if fields is None:
        defaults = cls._field_defaults  # type: ignore[attr-defined]
        made = [Member(name, hints[name], defaults.get(name, ...)) for name in cls._fields]  # type: ignore[attr-defined]
    else:
        made = [
            Member(name, hints[name], ... if field.default is MISSING else field.default)
            for name, field in fields.items()
        ]
    for one, after in [(one, after) for one in made if (after := one.shape.mark(After)) is not None]:
        made.remove(one)
        made.insert([other.attribute for other in made].index(after.name) + 1, one)
    return tuple(made)


# To JSON


def to_json(value: Any) -> Any:
    """Return an answer as JSON has it; a value of no declared class is returned as it is."""
    encode = _encoder(type(value))
    return value if encode is None else encode(value)


@_kept
def _encoder(cls: type) -> Callable[[Any], Any] | None:
    """Return the function that makes JSON of a class's values: one expression, as fast as one written by hand."""
    if not is_declared(cls):
        return None
    used: dict[str, Any] = {"__name__": cls.__module__}
    items = [_item(one, f"value.{path}", used) for path, one in _paths(cls)]
    made: Callable[[Any], Any] = eval(f"lambda value: {{{', '.join(items)}}}", used)  # noqa: S307  names of ours alone
    return made


def _item(one: Member, value: str, used: dict[str, Any]) -> str:
    """Return the item of a dictionary's display for one member, whose value the expression ``value`` has."""
    shown = _expression(one.shape, value, used)
    if one.is_inline:
        return f"**({{}} if {value} is None else {shown})"
    if one.is_left_out:
        is_default = f"{value} is None" if one.default is None else f"{value} == {one.default!r}"
        return f"**({{}} if {is_default} else {{{one.name!r}: {shown}}})"
    if one.shape.is_nullable and shown != value:
        shown = f"None if {value} is None else {shown}"
    return f"{one.name!r}: {shown}"


def _expression(shape: Shape, value: str, used: dict[str, Any]) -> str:
    """Return the expression that makes JSON of a value. Names in it are added to ``used``."""
    if shape.base is Sequence:
        entry = _expression(shape.args[0], "one", used)
        return f"list({value})" if entry == "one" else f"[{entry} for one in {value}]"
    if shape.base is Mapping:
        is_text = shape.args[0].base is str
        return f"dict({value})" if is_text else f"{{str(key): entry for key, entry in {value}.items()}}"
    if is_declared(shape.base):
        encode = f"encode_{shape.base.__name__}"
        used[encode] = _encoder(shape.base)
        return f"{encode}({value})"
    return value


def _paths(cls: type, path: str = "") -> Iterator[tuple[str, Member]]:
    """Yield the members of an object in JSON, each with the attributes that lead to it.

    An inline class that may be ``None`` is yielded as a whole.
    """
    for one in members_of(cls):
        if one.is_inline and not one.shape.is_nullable:
            yield from _paths(one.shape.base, f"{path}{one.attribute}.")
        else:
            yield path + one.attribute, one


# From JSON


def parse(cls: type[T], answer: JsonObject) -> T:
    """Return the value that an answer is. Members that the class does not have are ignored.

    Raises:
        KeyError: A member is missing that has no default.
    """
    made: T = _parser(cls)(answer)
    return made


@_kept
def _parser(cls: Any) -> Callable[[JsonObject], Any]:
    """Return the function that makes a value of a class from its JSON: one expression, too."""
    used: dict[str, Any] = {"__name__": cls.__module__, "made": cls}
    arguments = [f"{one.attribute}={_argument(one, used)}" for one in members_of(cls)]
    parsed: Callable[[JsonObject], Any] = eval(f"lambda answer: made({', '.join(arguments)})", used)  # noqa: S307  as above
    return parsed


def _argument(one: Member, used: dict[str, Any]) -> str:
    """Return the expression for one member; ``answer`` is the JSON."""
    if one.is_inline:
        inner = _parsed(one.shape, "answer", used)
        return (
            f"{inner} if {members_of(one.shape.base)[0].name!r} in answer else None" if one.shape.is_nullable else inner
        )
    absent = one.shape.mark(Absent)
    default = one.default if absent is None else absent.value
    value = f"answer[{one.name!r}]" if default is ... else f"answer.get({one.name!r}, {default!r})"
    made = _parsed(one.shape, value, used)
    return f"None if answer.get({one.name!r}) is None else {made}" if one.shape.is_nullable and made != value else made


def _parsed(shape: Shape, value: str, used: dict[str, Any]) -> str:
    """Return the expression that makes a value of JSON. Names in it are added to ``used``."""
    if shape.base is Sequence:
        entry = _parsed(shape.args[0], "one", used)
        return value if entry == "one" else f"[{entry} for one in {value}]"
    if shape.base is Mapping and shape.args[0].base is int:
        return f"{{int(key): entry for key, entry in {value}.items()}}"
    if shape.base is tuple:
        return f"tuple({value})"
    if is_declared(shape.base):
        parse_one = f"parse_{shape.base.__name__}"
        used[parse_one] = _parser(shape.base)
        return f"{parse_one}({value})"
    return value


# From JSON that another region sent

Promises = Mapping[str, tuple[str, Callable[[Any], bool]]]
"""By a member's name: what it must be, in words, and whether a value is that."""


def judged(cls: type[T], answer: Any, promises: Promises, path: str = "") -> T:
    """Return the value that an answer is, if each member is there and of its type. An inline class is always expected.

    A number has at most 63 bits, and a text at most 256 characters, unless ``promises`` names the member.

    Raises:
        Refused: A member is missing or wrong; the text names it.
    """
    if type(answer) is not dict:
        refuse(path, "an object")
    given: dict[str, Any] = {}
    for one in members_of(cls):
        where = f"{path}.{one.name}" if path else one.name
        if one.is_inline:
            given[one.attribute] = judged(one.shape.base, answer, promises, path)
            continue
        value = answer.get(one.name)
        if value is None and one.is_left_out:
            continue
        if value is None and one.shape.is_nullable:
            given[one.attribute] = None
            continue
        given[one.attribute] = _judged_value(one.shape, value, promises.get(one.name), promises, where)
    return cls(**given)


def _judged_value(
    shape: Shape, value: Any, promise: tuple[str, Callable[[Any], bool]] | None, promises: Promises, where: str
) -> Any:
    if shape.base is Sequence:
        if type(value) is not list:
            refuse(where, "a list")
        return [
            _judged_value(shape.args[0], one, None, promises, f"{where}[{index}]") for index, one in enumerate(value)
        ]
    if is_declared(shape.base):
        return judged(shape.base, value, promises, where)
    wanted, fits = promise or _PROMISES[shape.base]
    if type(value) is not shape.base or not fits(value):
        refuse(where, wanted)
    return value


_PROMISES: Mapping[type, tuple[str, Callable[[Any], bool]]] = {
    int: ("a number of at most 63 bits", lambda value: 0 <= value <= INT64_MAX),
    str: (f"text of at most {_PEER_TEXT_CHARS_MAX} characters", lambda value: len(value) <= _PEER_TEXT_CHARS_MAX),
    bool: ("true or false", lambda _: True),
}


def refuse(member: str, wanted: str) -> NoReturn:
    """Raise ``Refused`` for a member that is not as ``wanted``."""
    raise Refused(f"{member} must be {wanted}")
