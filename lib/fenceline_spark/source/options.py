"""The source's options (``README.md`` has the table for people).

Rule: each option is parsed, or refused, before the first request, in the same way for a batch and a stream.

Not here: whether topics and partitions exist; see ``batch`` and ``stream``, which plan.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from fenceline.errors import InvalidRequestError
from fenceline_spark import options
from fenceline_spark.options import Option
from fenceline_spark.source.bounds import Subscribed
from fenceline_spark.source.offsets import (
    EARLIEST,
    LATEST,
    ByPartition,
    PartitionOffsets,
    by_partition,
    parse_json,
    partition_lists,
    topic_name,
)
from fenceline_spark.source.reading import ReadSettings

T = TypeVar("T", int, str)

_NAMES_SHOWN_MAX = 20  # in a message about missing or unwanted topics or partitions
_GROUP = re.compile(r"(?!\.\.?\Z)[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True)
class At:
    """An edge at a time in ms: one for all partitions, or one for each."""

    everywhere: int | None = None
    each: ByPartition = field(default_factory=dict)


Edge: TypeAlias = Literal["earliest", "latest"] | PartitionOffsets | At


def _subscribe(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise ValueError
    return tuple(sorted({topic_name(name) for name in names}))


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(options.words(text))
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from error


def _offsets(text: str) -> PartitionOffsets:
    if not text.lstrip().startswith(("{", "[")):
        raise ValueError  # a word: what a parser of JSON says of it would not help
    found = PartitionOffsets.of(parse_json(text), lowest=EARLIEST)
    if not found.partitions:
        raise ValueError("it names no topic")
    return found


def _starting(text: str) -> Edge:
    word = text.strip().lower()
    return word if word in ("earliest", "latest") else _offsets(text)  # type: ignore[return-value]


def _ending(text: str) -> Edge:
    if text.strip().lower() == "latest":
        return "latest"
    if text.strip().lower() == "earliest":
        raise ValueError("a batch cannot end at the earliest offset")
    found = _offsets(text)
    if any(offset == EARLIEST for offsets in found.partitions.values() for offset in offsets.values()):
        raise ValueError("-2, the earliest offset, is no end")
    return found


def _at(text: str) -> At:
    return At(everywhere=options.whole(0)(text))


def _at_each(text: str) -> At:
    found = by_partition(parse_json(text), lowest=0)
    if not found:
        raise ValueError("it names no topic")
    return At(each=found)


def _group(text: str) -> str:
    if _GROUP.fullmatch(text.strip()) is None:
        raise ValueError
    return text.strip()


_OFFSETS_JSON = 'JSON such as {"topic":{"0":23,"1":-1}} (-1 latest, -2 earliest)'
_TIMES_JSON = 'JSON such as {"topic":{"0":1700000000000}}, in ms'
_FROM_1 = "a whole number from 1 on"
_TRUTH = "true or false"

OPTIONS = (
    Option("endpoint", "the URL of the service", options.words),
    Option("region", "the AWS region that requests are signed for", options.words),
    Option("subscribe", "names of topics, as a,b", _subscribe),
    Option("assign", 'JSON such as {"topic":[0,1]}', lambda text: partition_lists(parse_json(text))),
    Option("subscribePattern", "a regular expression that matches whole names of topics", _pattern),
    Option("startingOffsets", f"earliest, latest (of a stream), or {_OFFSETS_JSON}", _starting),
    Option("endingOffsets", f"latest, or {_OFFSETS_JSON}", _ending),
    Option("startingTimestamp", "a time in ms since the epoch", _at),
    Option("endingTimestamp", "a time in ms since the epoch", _at),
    Option("startingOffsetsByTimestamp", _TIMES_JSON, _at_each),
    Option("endingOffsetsByTimestamp", _TIMES_JSON, _at_each),
    Option("startingOffsetsByTimestampStrategy", "error or latest", options.one_of("error", "latest")),
    Option("isolation", "read_committed or read_uncommitted", options.one_of("read_committed", "read_uncommitted")),
    Option("minPartitions", _FROM_1, options.whole(1)),
    Option("maxRecordsPerPartition", _FROM_1, options.whole(1)),
    Option("maxOffsetsPerTrigger", _FROM_1, options.whole(1)),
    Option("minOffsetsPerTrigger", _FROM_1, options.whole(1)),
    Option("maxTriggerDelay", "a time such as 30s, 15m or 1h", options.duration_ms),
    Option("failOnDataLoss", _TRUTH, options.boolean),
    Option("includeHeaders", _TRUTH, options.boolean),
    Option("includeTopicEpoch", _TRUTH, options.boolean),
    Option("includeOrigin", _TRUTH, options.boolean),
    Option("origin", "own", options.one_of("own")),
    Option("narrowByFilters", _TRUTH, options.boolean),
    Option("progressGroup", "the name of a group: 1 to 249 of A-Z a-z 0-9 . _ -", _group),
)

_INSTEAD: Mapping[str, str] = {
    "kafka.bootstrap.servers": "endpoint takes its place, with the URL of the service",
    "kafka.group.id": "no group is needed to read; progressGroup commits a stream's progress to one",
    "groupIdPrefix": "no group is needed to read; progressGroup commits a stream's progress to one",
    "kafka.isolation.level": "isolation takes its place",
    "kafka.": "nothing of Kafka's client is used, so leave it out; endpoint gives the service's URL",
    "kafkaConsumer.pollTimeoutMs": "requests are sent again by themselves, so leave it out",
    "fetchOffset.numRetries": "requests are sent again by themselves, so leave it out",
    "fetchOffset.retryIntervalMs": "requests are sent again by themselves, so leave it out",
    "path": "topics are named by the option subscribe, so give load() and start() no path",
    "owner": "Spark keeps no options of a table for this source; use CREATE TEMPORARY VIEW … USING fenceline",
    "topic": "a read names its topics by subscribe",
}

_START = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
_END = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
NARROWING = ("narrowByFilters",)
_STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "progressGroup")
MAX_TRIGGER_DELAY_MS = 900_000


@dataclass(frozen=True)
class SourceOptions:
    """All options of a read, parsed. Those of the table that are not here are in ``reading`` and ``included``."""

    endpoint: str
    region: str | None
    subscribed: Subscribed
    starting: Edge | None
    ending: Edge | None
    is_strict_start: bool  # a start by time with no record at or after it fails
    is_committed: bool
    fails_on_loss: bool
    included: frozenset[str]
    origin: str | None
    min_partitions: int | None
    max_records: int | None  # in one Spark partition
    max_offsets: int | None
    min_offsets: int | None
    max_delay_ms: int
    progress_group: str | None
    narrows_by_filters: bool
    given: frozenset[str]

    @classmethod
    def of(cls, given: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> SourceOptions:
        """Return the options of a read.

        Raises:
            InvalidRequestError: There is no such option, it does not take its value, or two exclude each other.
        """
        values = options.parse_options(given, OPTIONS, instead=_INSTEAD)
        options.exclude(
            values, "subscribe", "assign", "subscribePattern", must_have_one="a read needs the topics to read"
        )
        options.exclude(values, *_START)
        options.exclude(values, *_END)
        _check_combinations(values)
        return cls(
            endpoint=options.endpoint_of(values, environ),
            region=options.region_of(values, environ),
            subscribed=Subscribed(values.get("subscribe"), values.get("assign"), values.get("subscribePattern")),
            starting=_first(values, _START),
            ending=_first(values, _END),
            is_strict_start=values.get("startingOffsetsByTimestampStrategy", "error") == "error",
            is_committed=values.get("isolation", "read_committed") == "read_committed",
            fails_on_loss=values.get("failOnDataLoss", True),
            included=frozenset(name for name in values if name.startswith("include") and values[name]),
            origin=values.get("origin"),
            min_partitions=values.get("minPartitions"),
            max_records=values.get("maxRecordsPerPartition"),
            max_offsets=values.get("maxOffsetsPerTrigger"),
            min_offsets=values.get("minOffsetsPerTrigger"),
            max_delay_ms=values.get("maxTriggerDelay", MAX_TRIGGER_DELAY_MS),
            progress_group=values.get("progressGroup"),
            narrows_by_filters=values.get("narrowByFilters", False),
            given=frozenset(values),
        )

    def for_batch(self) -> SourceOptions:
        """Return these options, or refuse what only a stream takes."""
        options.refuse(dict.fromkeys(self.given), _STREAM_ONLY, "is an option of readStream; leave it out of a batch")
        start = self.starting
        is_latest = start == "latest" or (
            isinstance(start, PartitionOffsets)
            and any(offset == LATEST for offsets in start.partitions.values() for offset in offsets.values())
        )
        if is_latest:
            raise InvalidRequestError(
                "a batch cannot start at the latest offset; give startingOffsets as earliest, or as "
                'JSON such as {"topic":{"0":23,"1":-2}} (-2 earliest): option=startingOffsets',
                field="startingOffsets",
            )
        return self

    def for_stream(self) -> SourceOptions:
        """Return these options, or refuse what only a batch takes."""
        options.refuse(dict.fromkeys(self.given), _END, "is an option of a batch; a stream has no end, so leave it out")
        options.refuse(dict.fromkeys(self.given), NARROWING, "is an option of a batch; leave it out of a stream")
        return self

    def reading(self, columns: tuple[str, ...]) -> ReadSettings:
        return ReadSettings(self.endpoint, self.region, columns, self.is_committed, self.origin, self.fails_on_loss)


def _first(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((values[name] for name in names if name in values), None)


def _check_combinations(values: Mapping[str, Any]) -> None:
    """Refuse options that say nothing without another one, or that contradict one.

    Raises:
        InvalidRequestError: See above; ``field`` names the option.
    """
    if not isinstance(_first(values, _START), At):
        options.refuse(
            values,
            ("startingOffsetsByTimestampStrategy",),
            "needs startingTimestamp or startingOffsetsByTimestamp beside it",
        )
    if "minOffsetsPerTrigger" not in values:
        options.refuse(values, ("maxTriggerDelay",), "needs minOffsetsPerTrigger beside it")
    low, high = values.get("minOffsetsPerTrigger", 0), values.get("maxOffsetsPerTrigger")
    if high is not None and low > high:
        raise InvalidRequestError(
            "minOffsetsPerTrigger must not exceed maxOffsetsPerTrigger: "
            f"minOffsetsPerTrigger={low} maxOffsetsPerTrigger={high}",
            field="minOffsetsPerTrigger",
        )
    for name in (*_START, *_END):
        _check_named(values, name)
    _check_order(values)


def _check_named(values: Mapping[str, Any], name: str) -> None:
    """Refuse an edge of other topics, or other partitions, than those that are read, as far as options tell."""
    edge = values.get(name)
    each = edge.partitions if isinstance(edge, PartitionOffsets) else edge.each if isinstance(edge, At) else {}
    if not each:
        return
    assigned: Mapping[str, tuple[int, ...]] | None = values.get("assign")
    read = set(assigned) if assigned is not None else set(values.get("subscribe", each))
    check_each(name, "topic", read=read, named=each)
    for topic, numbers in (assigned or {}).items():
        check_each(name, "partition", read=numbers, named=each[topic], where=f"topic={topic} ")


def check_each(name: str, kind: str, *, read: Iterable[T], named: Iterable[T], where: str = "") -> None:
    """Check that an option names all topics, or all partitions, that are read.

    Args:
        where: The words of the message that name what they belong to.

    Raises:
        InvalidRequestError: Some are missing, or are not read; the message says which.
    """
    found = (("missing", set(read) - set(named)), ("not_read", set(named) - set(read)))
    wrong = [f"{what}={','.join(map(str, sorted(those)[:_NAMES_SHOWN_MAX]))}" for what, those in found if those]
    if wrong:
        raise InvalidRequestError(
            f"{name} must name each {kind} that is read, and no other: {where}{' '.join(wrong)}", field=name
        )


def _check_order(values: Mapping[str, Any]) -> None:
    """Refuse a range that ends before it starts, as far as both of its edges are numbers."""
    start, end = _first(values, _START), _first(values, _END)
    if isinstance(start, At) and isinstance(end, At) and start.everywhere is not None and end.everywhere is not None:
        if start.everywhere > end.everywhere:
            raise InvalidRequestError(
                "startingTimestamp must not lie after endingTimestamp: "
                f"startingTimestamp={start.everywhere} endingTimestamp={end.everywhere}",
                field="startingTimestamp",
            )
    elif isinstance(start, PartitionOffsets) and isinstance(end, PartitionOffsets):
        for topic, offsets in start.partitions.items():
            for number, offset in offsets.items():
                last = end.of_topic(topic).get(number, LATEST)
                if 0 <= last < offset:
                    raise InvalidRequestError(
                        "startingOffsets must not lie after endingOffsets: "
                        f"topic={topic} partition={number} start={offset} end={last}",
                        field="startingOffsets",
                    )
