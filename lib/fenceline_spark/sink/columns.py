"""The columns that a write takes, judged when it is planned.

Rule: a column of another name or type is refused, never left out.
"""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from fenceline.errors import InvalidRequestError

_OCTETS = (BinaryType, StringType)
_TAKES = {
    "value": "binary or string",
    "key": "binary or string",
    "topic": "string",
    "partition": "int",
    "headers": "array<struct<key:string,value:binary>>",
    "timestamp": "timestamp",
}


def check_columns(schema: StructType, topic: str | None) -> None:
    """Check the names and types of the rows' columns.

    Args:
        topic: The option ``topic``.

    Raises:
        InvalidRequestError: A column is unknown, has another type, comes twice, or is missing.
    """
    names = [field.name for field in schema.fields]
    unknown = [name for name in names if name not in _TAKES]
    if unknown:
        raise InvalidRequestError(
            f"a record has no such column; select some of its own, {', '.join(_TAKES)}: column={','.join(unknown)}",
            field=unknown[0],
        )
    twice = [name for name in _TAKES if names.count(name) > 1]
    if twice:
        raise InvalidRequestError(f"a column comes twice; give it once: column={','.join(twice)}", field=twice[0])
    mistyped = [field for field in schema.fields if not _is_taken(field.name, field.dataType)]
    if mistyped:
        casts = ", ".join(f"{field.name} to {_TAKES[field.name]}" for field in mistyped)
        types = " ".join(f"column={field.name} type={field.dataType.simpleString()}" for field in mistyped)
        raise InvalidRequestError(
            f"a column has another type than a record's; cast {casts}: {types}", field=mistyped[0].name
        )
    seen = set(names)
    if "value" not in seen:
        raise InvalidRequestError(
            f"the rows lack the column value; add it: columns={','.join(sorted(seen))}", field="value"
        )
    if topic is None and "topic" not in seen:
        raise InvalidRequestError(
            f"no topic is named; give the option topic, or a column topic: columns={','.join(sorted(seen))}",
            field="topic",
        )


def _is_taken(name: str, type: DataType) -> bool:
    if name in ("key", "value"):
        return isinstance(type, _OCTETS)
    if name == "headers":
        return _is_headers(type)
    return isinstance(type, {"topic": StringType, "partition": IntegerType, "timestamp": TimestampType}[name])


def _is_headers(type: DataType) -> bool:
    if not isinstance(type, ArrayType) or not isinstance(type.elementType, StructType):
        return False
    fields = type.elementType.fields
    return [field.name for field in fields] == ["key", "value"] and (
        isinstance(fields[0].dataType, StringType) and isinstance(fields[1].dataType, BinaryType)
    )
