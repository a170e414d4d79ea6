"""Logs with transactions, made without an appender and without a coordinator, and their pages of committed records.

Not here: the parts of such a log that have no transaction; see ``service``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fenceline.model.requests import ReadRequest
from fenceline.model.results import Page
from fenceline.service.log import Log
from tests.support.service import TOPIC, LogBuilder, Part, Service, data, outcome


def in_(producer: int, *named: str, epoch: int = 0, sequence: int = 0) -> Part:
    return data(*named, producer=(producer, epoch, sequence), is_transactional=True)


def commit(producer: int, epoch: int = 1) -> Part:
    return outcome(producer, epoch, is_commit=True)


def abort(producer: int, epoch: int = 1) -> Part:
    return outcome(producer, epoch, is_commit=False)


def made(service: Service, *segments: Sequence[Part]) -> LogBuilder:
    log = LogBuilder(topic_id=service.topic_id())
    for parts in segments:
        log.add(*parts)
    log.store(service.objects)
    return log


def store(service: Service, log: LogBuilder, *parts: Part) -> None:
    """Put one more segment at the log's end."""
    log.add(*parts)
    log.store(service.objects, len(log.segments) - 1)


def read(log: Log, offset: int | None = 0, **options: Any) -> Page:
    """Return a page of what is committed; ``options`` are those of a ``ReadRequest``."""
    options = {"is_read_committed": True, **options}
    return log.partitions.read(TOPIC, 0, ReadRequest(offset=offset, **options))


def values(page: Page) -> list[str]:
    return [(record.value or b"").decode() for record in page.records]


def offsets(page: Page) -> list[int]:
    return [record.offset for record in page.records]
