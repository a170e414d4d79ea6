"""Filters of a query that narrow the ranges of a batch read.

Rule: narrowing takes away only rows that the filter would not show, so that a query's rows are the same with it and
without it.

Rule: ``offset``, ``partition`` and ``topic`` narrow by any comparison. ``timestamp`` narrows from below alone, because
all records before the first one at or after T are earlier than T, in any order. It never narrows from above, because a
record of a later offset may have an earlier time, even under ``LogAppendTime``: clocks of appenders differ, regions
keep their times, and a topic's type can change.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import datasource as spark

from fenceline.client import Client
from fenceline.limits import INT64_MAX
from fenceline_spark.source.bounds import offsets_at
from fenceline_spark.source.reading import ReadRange
from fenceline_spark.versions import HAS_FILTERS

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MS = timedelta(milliseconds=1)

# PySpark 4.0 has no filters, and pushes none down.
_COMPARISONS: Mapping[type, Callable[[Any, Any], bool]] = (
    {
        spark.EqualTo: operator.eq,
        spark.LessThan: operator.lt,
        spark.LessThanOrEqual: operator.le,
        spark.GreaterThan: operator.gt,
        spark.GreaterThanOrEqual: operator.ge,
        spark.In: lambda value, choices: value in choices,
    }
    if HAS_FILTERS
    else {}
)
_TYPES: Mapping[str, type] = {"offset": int, "partition": int, "topic": str, "timestamp": datetime}


@dataclass(frozen=True)
class ColumnCondition:
    """One comparison of a column with a value, or with several."""

    column: str
    kind: type
    value: Any

    @property
    def is_exact(self) -> bool:
        """Return True if ranges hold exactly the rows that the condition accepts."""
        return self.column in ("topic", "partition") or (self.column == "offset" and self.kind is not spark.In)

    def accepts(self, value: object) -> bool:
        return _COMPARISONS[self.kind](value, self.value)


@dataclass(frozen=True)
class Filters:
    """Conditions that all rows of a query meet."""

    conditions: tuple[ColumnCondition, ...] = ()

    def narrow(self, client: Client, ranges: Iterable[ReadRange]) -> list[ReadRange]:
        """Return the ranges without offsets whose rows no condition would show; a range may end up empty.

        One request for 100 partitions of each topic is made where a condition is about time.
        """
        low, high = self._offsets()
        left = [replace(one, start=max(one.start, low), end=min(one.end, high)) for one in ranges if self._is_read(one)]
        since_ms = self._since_ms()
        if since_ms is None:
            return left
        found = {topic: offsets_at(client, topic, since_ms) for topic in sorted({one.topic for one in left})}
        return [_from(one, found[one.topic].get(one.partition)) for one in left if one.end > one.start]

    def _is_read(self, one: ReadRange) -> bool:
        values = {"topic": one.topic, "partition": one.partition}
        return all(
            condition.accepts(values[condition.column]) for condition in self.conditions if condition.column in values
        )

    def _offsets(self) -> tuple[int, int]:
        """Return the half-open range that holds each offset that the conditions accept."""
        low, high = 0, INT64_MAX
        for condition in self.conditions:
            if condition.column == "offset":
                lowest, highest = _edges(condition)
                low, high = max(low, lowest), min(high, highest)
        return low, high

    def _since_ms(self) -> int | None:
        """Return the time, in ms, before which no condition accepts a record; ``None`` without one after 1970."""
        lows = [_since(condition) for condition in self.conditions if condition.column == "timestamp"]
        latest = max((low for low in lows if low is not None), default=0)
        return latest if latest > 0 else None


class PushFilters:
    """The reader's ``pushFilters``: notes the filters that narrow, and hands back those that ranges do not replace.

    A range holds exactly the rows that a comparison of ``topic``, ``partition`` or ``offset`` shows, so those filters
    are kept, and ``explain("formatted")`` lists them. Times, and a list of offsets, are for Spark to apply again.

    If ``spark.sql.python.filterPushdown.enabled`` is false, PySpark refuses a reader that has a method of this name,
    which it recognizes by ``__func__``. So this object is no method, and has the ``__func__`` that PySpark looks for.
    If the setting is false, PySpark never calls it.
    """

    if HAS_FILTERS:
        __func__ = staticmethod(spark.DataSourceReader.pushFilters)

    def __init__(self) -> None:
        self.filters = Filters()

    def __call__(self, filters: list[spark.Filter]) -> list[spark.Filter]:
        found = [(one, condition_of(one)) for one in filters]
        self.filters = Filters(tuple(condition for _, condition in found if condition is not None))
        return [one for one, condition in found if condition is None or not condition.is_exact]


def condition_of(one: spark.Filter) -> ColumnCondition | None:
    """Return the condition of a filter on one column, or ``None`` if it narrows nothing."""
    if type(one) not in _COMPARISONS or len(one.attribute) != 1:
        return None
    column = one.attribute[0]
    expected = _TYPES.get(column)
    values = one.value if isinstance(one, spark.In) else (one.value,)
    if expected is None or not all(type(value) is expected for value in values):
        return None
    if expected is datetime and any(value.tzinfo is None for value in values):
        return None
    return ColumnCondition(column, type(one), one.value)


def _edges(condition: ColumnCondition) -> tuple[int, int]:
    value = condition.value
    if condition.kind is spark.In:
        return (min(value), max(value) + 1) if value else (0, 0)
    return {
        spark.EqualTo: (value, value + 1),
        spark.LessThan: (0, value),
        spark.LessThanOrEqual: (0, value + 1),
        spark.GreaterThan: (value + 1, INT64_MAX),
        spark.GreaterThanOrEqual: (value, INT64_MAX),
    }[condition.kind]


def _since(condition: ColumnCondition) -> int | None:
    """Return the first whole ms that the condition accepts; ``None`` if it has no lowest time."""
    if condition.kind in (spark.LessThan, spark.LessThanOrEqual):
        return None
    value = min(condition.value) if condition.kind is spark.In else condition.value
    whole, rest = divmod(value - _EPOCH, _MS)
    return int(whole) + (1 if rest or condition.kind is spark.GreaterThan else 0)


def _from(one: ReadRange, offset: int | None) -> ReadRange:
    start = one.end if offset is None else min(max(one.start, offset), one.end)
    return replace(one, start=start)
