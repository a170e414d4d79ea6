"""The columns of a read: spark-sql-kafka's, in its order, and those that an option adds.

Rule: a schema given by ``.schema(…)`` picks columns by name and type, and changes neither.

Not here: how a column is made from a batch; see ``columns``.
"""

from __future__ import annotations

from difflib import get_close_matches

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from fenceline.errors import InvalidRequestError

_ALWAYS: tuple[tuple[str, DataType], ...] = (
    ("key", BinaryType()),
    ("value", BinaryType()),
    ("topic", StringType()),
    ("partition", IntegerType()),
    ("offset", LongType()),
    ("timestamp", TimestampType()),
    ("timestampType", IntegerType()),
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_BY_OPTION: tuple[tuple[str, str, DataType], ...] = (
    ("includeHeaders", "headers", ArrayType(_HEADER)),
    ("includeTopicEpoch", "topic_epoch", IntegerType()),
    ("includeOrigin", "origin", StringType()),
)


def schema_of(included: frozenset[str]) -> StructType:
    """Return all columns of a read, with those that the options ``included`` add."""
    added = [(name, type_) for option, name, type_ in _BY_OPTION if option in included]
    return StructType([StructField(name, type_) for name, type_ in (*_ALWAYS, *added)])


def columns_of(asked: StructType, included: frozenset[str]) -> tuple[str, ...]:
    """Return the names of the columns that ``asked`` picks, in its order.

    Raises:
        InvalidRequestError: A column has another name or type, or comes twice. ``field`` names it.
    """
    offered = {field.name: field.dataType for field in schema_of(included)}
    names: list[str] = []
    for field in asked:
        if field.name not in offered:
            raise _unknown(field.name, offered)
        if field.dataType != offered[field.name] or not field.nullable:
            given = field.dataType.simpleString() + ("" if field.nullable else " not null")
            raise InvalidRequestError(
                f"the column {field.name} has the type {offered[field.name].simpleString()}, and may be null; "
                f"cast it in a select: column={field.name} type={given}",
                field=field.name,
            )
        if field.name in names:
            raise InvalidRequestError(
                f"a schema names each column once; leave one out: column={field.name}", field=field.name
            )
        names.append(field.name)
    if not names:
        raise InvalidRequestError(f"a schema needs a column; give some of {', '.join(offered)}: columns=")
    return tuple(names)


def _unknown(name: str, offered: dict[str, DataType]) -> InvalidRequestError:
    for option, column, _ in _BY_OPTION:
        if name == column:
            advice = f"set {option}=true"
            break
    else:
        close = get_close_matches(name.lower(), [column.lower() for column in offered], n=1)
        found = [column for column in offered if close and column.lower() == close[0]]
        advice = f"did you mean {found[0]}?" if found else f"the columns are {', '.join(offered)}"
    return InvalidRequestError(f"there is no such column; {advice}: column={name}", field=name)
