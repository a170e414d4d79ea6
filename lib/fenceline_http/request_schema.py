"""Requests as classes that are declared member by member.

Rule: a declaration is the only statement of what a request has. The parser, the JSON Schema and the parameters of the
OpenAPI operation are made of the declaration.

A class has a line for each member::

    class Seek(Body):
        partition: int = required(integer())
        offset: int | None = optional(OFFSET, "Where to go.")

        def check(self) -> None: ...  # what no single member is to blame for

Members are judged in the order of the lines, those of a base class last, then names that are not declared, and then
``check``. Null for an optional member is the member left out.

Not here: how a value is parsed (`value_kinds`), and which operation takes the request (`routes`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar, cast, overload
from urllib.parse import unquote_to_bytes

from fenceline.errors import InvalidRequestError, UnsupportedMediaTypeError
from fenceline_http import json_schema, media_types, strict_json
from fenceline_http.json_schema import Named, Schema
from fenceline_http.media_types import Media
from fenceline_http.value_kinds import Kind, refuse

if TYPE_CHECKING:
    from typing import Self

    from fenceline_http.request import Request

T = TypeVar("T")
M = TypeVar("M", bound="Members")


class RequestMember:
    """One declared member: its kind, and what it is where it is left out."""

    __slots__ = ("by", "default", "description", "is_required", "is_shown", "kind", "kinds")

    def __init__(
        self,
        kind: Kind[Any] | Mapping[str, Kind[Any]],
        description: str,
        *,
        is_required: bool,
        is_shown: bool = True,
        default: Any = None,
        by: str = "",
    ) -> None:
        self.by = by
        self.is_shown = is_shown
        self.kinds: Mapping[str, Kind[Any]] = {} if isinstance(kind, Kind) else kind
        self.kind: Kind[Any] = kind if isinstance(kind, Kind) else next(iter(kind.values()))
        self.description = description
        self.is_required = is_required
        self.default = default

    def body_schema(self) -> Schema:
        schema = self.kind.schema if self.is_required else json_schema.nullable(self.kind.schema)
        return json_schema.described(schema, self.description)


def required(kind: Kind[T], description: str = "") -> T:
    """Declare a member that must be given."""
    return cast("T", RequestMember(kind, description, is_required=True))


@overload
def optional(kind: Kind[T], description: str = "") -> T | None: ...
@overload
def optional(kind: Kind[T], description: str = "", *, default: T) -> T: ...
def optional(kind: Kind[Any], description: str = "", *, default: Any = None) -> Any:
    """Declare a member that may be left out."""
    return RequestMember(kind, description, is_required=False, default=default)


def unshown(kind: Kind[T]) -> T | None:
    """Declare a member that is taken, and that the document does not show: another operation has its place."""
    return cast("T | None", RequestMember(kind, "", is_required=False, is_shown=False))


def required_by(by: str, kinds: Mapping[str, Kind[T]], description: str = "") -> T:
    """Declare a member whose kind the text of the member ``by``, declared before it, says."""
    return cast("T", RequestMember(kinds, description, is_required=True, by=by))


class Members:
    """A JSON object of a request, declared by its members."""

    members: ClassVar[tuple[tuple[str, RequestMember], ...]] = ()
    names: ClassVar[frozenset[str]] = frozenset()
    # The one object of all requests with an empty query, which no handler may change. It is None if an empty query is
    # refused, and for bodies, because each body is parsed.
    bare: ClassVar[Members | None] = None

    def __init_subclass__(cls) -> None:
        own = tuple((name, value) for name, value in cls.__dict__.items() if isinstance(value, RequestMember))
        for name, _ in own:
            delattr(cls, name)
        bases = [base for base in cls.__bases__ if issubclass(base, Members)]
        cls.members = (*own, *(one for base in bases for one in base.members))
        cls.names = frozenset(name for name, _ in cls.members)

    def check(self) -> None:
        """Refuse a request for which no single member is to blame."""

    @classmethod
    def of_json(cls, tree: Any, path: str = "") -> Self:
        """Return the request that ``tree`` is.

        Raises:
            InvalidRequestError: It is not one; ``field`` says which member is to blame.
        """
        if type(tree) is not dict:
            refuse(path, "an object")
        made = cls.__new__(cls)
        values = made.__dict__
        for name, member in cls.members:
            value = tree.get(name)
            if value is None:
                if member.is_required:
                    refuse(f"{path}.{name}" if path else name, "given")
                values[name] = member.default
            else:
                kind = member.kinds[values[member.by]] if member.by else member.kind
                values[name] = kind.of_json(value, f"{path}.{name}" if path else name)
        if not tree.keys() <= cls.names:
            _refuse_unknown(strict_json.member(path, name) for name in tree if name not in cls.names)
        made.check()
        return made

    @classmethod
    def schema(cls) -> Named:
        """Return the schema of the object, named as the class is, or as ``Titled`` says."""
        shown = {name: member.body_schema() for name, member in cls.members}
        needed = {name: shown[name] for name, member in cls.members if member.is_required}
        rest = {name: shown[name] for name, member in cls.members if not member.is_required}
        title = vars(cls).get("__titled__")
        name = cls.__name__ if title is None else title.name
        return Named(name, json_schema.obj(needed, rest), " ".join((cls.__doc__ or "").split()))


def object_of(declaration: type[M], *, is_named: bool = True) -> Kind[M]:
    """Return the kind of JSON objects that ``declaration`` declares, whose schema has a name or stands where it is."""
    schema = declaration.schema()
    return Kind(declaration.of_json, schema if is_named else schema.definition)


class Body(Members):
    """A request whose members are those of its JSON body. Where ``is_optional``, no body is the same as ``{}``."""

    is_optional: ClassVar[bool] = False

    def __init_subclass__(cls, *, is_optional: bool = False) -> None:
        super().__init_subclass__()
        cls.is_optional = is_optional

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the declared request that the body of ``request`` is.

        Raises:
            FencelineError: The body's size, its media type, its form, or a parameter beside it, in this order.
        """
        content, query = request.body, request.query
        is_absent = not content and cls.is_optional  # Some callers send no body with a content type all the same.
        if not is_absent and request.media is not Media.JSON:
            raise UnsupportedMediaTypeError(f"send {media_types.JSON_TYPE} here")
        if query:
            Query.of_query(query)
        return cls.of_json({} if is_absent else strict_json.loads(content))


class Nothing(Body, is_optional=True):
    """No members."""


class Query(Members):
    """A request whose members are the parameters of its query. This class itself takes none."""

    # Parameters that the document lists last. The order is part of it: a generated client may take them by position.
    last_shown: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        try:
            cls.bare = cls.of_query("")
        except InvalidRequestError:
            cls.bare = None

    @classmethod
    def of(cls, request: Request) -> Self:
        """Return the declared request that the query of ``request`` is.

        Raises:
            InvalidRequestError: A parameter is not declared, is given twice, or is of another kind.
        """
        return cls.of_query(request.query)

    @classmethod
    def of_query(cls, query: str) -> Self:
        """Return the declared request that a query is, as ``of`` does."""
        texts = _texts(query)
        made = cls.__new__(cls)
        values = made.__dict__
        for name, member in cls.members:
            text = texts.get(name)
            values[name] = member.default if text is None else member.kind.of_text(text, name)
        if not texts.keys() <= cls.names:
            _refuse_unknown(strict_json.member("", name) for name in texts if name not in cls.names)
        for name, member in cls.members:
            if member.is_required and name not in texts:
                refuse(name, "given")
        made.check()
        return made


Query.bare = Query()


def _texts(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in query.split("&") if query else ():
        if not piece:
            continue
        name, _, value = piece.partition("=")
        name = _decoded(name, "")
        if name in found:
            refuse(strict_json.member("", name), "given once")
        found[name] = _decoded(value, strict_json.member("", name))
    return found


def _decoded(text: str, field: str) -> str:
    try:
        return unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeError:
        refuse(field, "UTF-8, percent-encoded")


def _refuse_unknown(paths: Iterator[str]) -> NoReturn:
    path = next(paths)
    raise InvalidRequestError(f"there is no such field here: field={path}", field=path)
