"""Logs with transactions, made without an appender and without a coordinator: a test says what stands where.

Not here: the parts of such a log that have no transaction; see ``service``.
"""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.service import LogBuilder, Part, Service, data, outcome


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
