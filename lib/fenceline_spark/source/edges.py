"""The start and the end of a read in each partition, from its options and the bounds of the log.

Rule: "latest" is the last stable offset for a committed read, and the next offset for any other. No end lies after it.

Rule: a time means the first record at or after it, which one request finds in 100 partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fenceline.client import Client
from fenceline.errors import InvalidRequestError
from fenceline.model.results import Bounds
from fenceline_spark.source.bounds import TopicBounds, offsets_at
from fenceline_spark.source.offsets import EARLIEST, LATEST, PartitionOffsets
from fenceline_spark.source.options import At, Edge, SourceOptions, check_each


def latest(bounds: Bounds, *, is_committed: bool) -> int:
    """Return the offset at which a read of what there is now ends."""
    return bounds.last_stable_offset if is_committed else bounds.next_offset


def starts(
    client: Client, options: SourceOptions, found: Mapping[str, TopicBounds], default: Edge
) -> dict[str, dict[int, int]]:
    """Return the offset of each partition at which the read starts, as asked for.

    Raises:
        InvalidRequestError: The option leaves a partition out or names another one, or no record is as late as it asks.
    """
    edge = default if options.starting is None else options.starting
    resolved: dict[str, dict[int, int]] = {}
    _check_topics("startingOffsets", edge, found)
    for topic, bounds in found.items():
        if isinstance(edge, At):
            resolved[topic] = _starts_at(client, options, edge, bounds)
        else:
            resolved[topic] = _as_given("startingOffsets", options, edge, bounds)
    return resolved


def ends(client: Client, options: SourceOptions, found: Mapping[str, TopicBounds]) -> dict[str, dict[int, int]]:
    """Return the offset of each partition at which a batch ends, as asked for.

    Raises:
        InvalidRequestError: The option leaves a partition out or names another one.
    """
    edge: Edge = "latest" if options.ending is None else options.ending
    resolved: dict[str, dict[int, int]] = {}
    _check_topics("endingOffsets", edge, found)
    for topic, bounds in found.items():
        if isinstance(edge, At):
            resolved[topic] = _ends_at(client, options, edge, bounds)
        else:
            resolved[topic] = _as_given("endingOffsets", options, edge, bounds)
    return resolved


def _ends_at(client: Client, options: SourceOptions, edge: At, bounds: TopicBounds) -> dict[int, int]:
    last = {number: latest(one, is_committed=options.is_committed) for number, one in bounds.partitions.items()}
    at = _at(client, "endingOffsets", edge, bounds)
    return {number: last[number] if offset is None else offset for number, offset in at.items()}


def _as_given(name: str, options: SourceOptions, edge: Edge, bounds: TopicBounds) -> dict[int, int]:
    if isinstance(edge, PartitionOffsets):
        asked = edge.of_topic(bounds.topic)
        _check_partitions(name, bounds, asked)
    else:
        asked = dict.fromkeys(bounds.partitions, EARLIEST if edge == "earliest" else LATEST)
    special = {
        number: {EARLIEST: one.log_start_offset, LATEST: latest(one, is_committed=options.is_committed)}
        for number, one in bounds.partitions.items()
    }
    return {number: special[number].get(offset, offset) for number, offset in asked.items()}


def _starts_at(client: Client, options: SourceOptions, edge: At, bounds: TopicBounds) -> dict[int, int]:
    at = _at(client, "startingOffsets", edge, bounds)
    resolved: dict[int, int] = {}
    for number, offset in at.items():
        if offset is None and options.is_strict_start:
            time = edge.everywhere if edge.everywhere is not None else edge.each[bounds.topic][number]
            raise InvalidRequestError(
                "no record is as late as the start; give an earlier time, or "
                "startingOffsetsByTimestampStrategy=latest to start at the end: "
                f"topic={bounds.topic} partition={number} timestamp={time}",
                field="startingTimestamp" if edge.everywhere is not None else "startingOffsetsByTimestamp",
            )
        end = latest(bounds.partitions[number], is_committed=options.is_committed)
        resolved[number] = end if offset is None else offset
    return resolved


def _at(client: Client, name: str, edge: At, bounds: TopicBounds) -> dict[int, int | None]:
    """Return the offset of the first record at or after the time of each partition: one request for each time."""
    if edge.everywhere is not None:
        times = dict.fromkeys(bounds.partitions, edge.everywhere)
    else:
        times = dict(edge.each[bounds.topic])
        _check_partitions(f"{name}ByTimestamp", bounds, times)
    found = {time: offsets_at(client, bounds.topic, time) for time in sorted(set(times.values()))}
    return {number: found[time].get(number) for number, time in times.items()}


def _check_topics(name: str, edge: Edge, found: Iterable[str]) -> None:
    """Refuse offsets or times of other topics than a pattern has found."""
    each = edge.partitions if isinstance(edge, PartitionOffsets) else edge.each if isinstance(edge, At) else {}
    if each:
        check_each(
            name if isinstance(edge, PartitionOffsets) else f"{name}ByTimestamp", "topic", read=found, named=each
        )


def _check_partitions(name: str, bounds: TopicBounds, asked: Mapping[int, int]) -> None:
    check_each(name, "partition", read=bounds.partitions, named=asked, where=f"topic={bounds.topic} ")
