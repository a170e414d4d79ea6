"""Compaction of the partition that the event names, or of all that are due.

Rule: a compaction that is too large for one function, or would not end within its time, is reported and never begun.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from fenceline import limits
from fenceline.compaction.compact import OTHER_ORDER, CompactionTooLarge
from fenceline.errors import InvalidRequestError, UnknownTopicOrPartitionError
from fenceline.service.log import Log
from fenceline_http.request import schedule_ms
from fenceline_http.wiring import Service
from functions.telemetry.observed import LambdaContext

_TIME_MS = 300_000  # what the largest one that is begun here may take


def run(event: Mapping[str, Any], context: LambdaContext, service: Service) -> dict[str, Any]:
    """Compact ``{"topic", "partition"}``, or, without a topic, every partition that is due.

    Raises:
        ExceptionGroup: Some failed; their old views stand, and the others were compacted.
    """
    log = service.log
    log.note_event(schedule_ms(event))
    is_named = "topic" in event
    wanted = iter([(event["topic"], event["partition"])]) if is_named else _compacted_partitions(log)
    horizons: list[dict[str, Any]] = []
    left: list[dict[str, Any]] = []
    failed: list[Exception] = []
    for topic, partition in wanted:
        place = {"topic": topic, "partition": partition}
        left_ms = context.get_remaining_time_in_millis()
        if left_ms < _TIME_MS:
            left.append({**place, "reason": "out of time"})
            continue
        try:
            view = log.partitions.compact_now(
                topic,
                partition,
                is_forced=is_named,
                bytes_max=limits.COMPACTION_FUNCTION_BYTES_MAX,
                is_over=partial(_is_over, context, left_ms - _TIME_MS // 2),
            )
            if is_named and view is not None and view.is_by_timestamp != log.topics.get(topic).is_by_timestamp:
                left.append({**place, "reason": OTHER_ORDER})
                continue
        except CompactionTooLarge as error:
            left.append({**place, "reason": str(error)})
        except (UnknownTopicOrPartitionError, InvalidRequestError) as error:
            if is_named:  # else it was deleted, or altered, since it was listed
                failed.append(error)
        except Exception as error:  # noqa: BLE001  one partition holds no other up; all that failed is raised below
            failed.append(error)
        else:
            horizons.append({**place, "compaction_horizon": 0 if view is None else view.horizon})
    if failed:
        raise ExceptionGroup("some partitions were not compacted", failed)
    return {"compacted": horizons, "left": left}


def _is_over(context: LambdaContext, until_ms: int) -> bool:
    """Return True once a compaction stops to read the log: it decodes what it has read a second time."""
    return context.get_remaining_time_in_millis() < until_ms


def _compacted_partitions(log: Log) -> Iterator[tuple[str, int]]:
    after, has_more = "", True
    while has_more:
        topics, has_more = log.topics.list(start_after=after, limit=limits.LIST_MAX)
        for topic in topics:
            after = topic.name
            if topic.is_compacted:
                yield from ((topic.name, partition) for partition in range(topic.partitions))
