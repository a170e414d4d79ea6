"""A handler with its log lines, its metrics and, where that is set, its traces.

The rule: what is told is numbers, codes, routes and ids. An error that is not documented is told by its type and its
place, never by its text, which may hold a key or a value; it goes on as such an error, so that Lambda counts it.

A produce request is one line of metrics (EMF: CloudWatch makes them of what is logged, nothing is sent), told with
what it asked of the stores. Other requests are told at DEBUG, and refusals at INFO.
"""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, Protocol, TypeAlias

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import Metrics, MetricUnit, single_metric

from fenceline.errors import ContendedError, CorruptLogError, FencelineError
from fenceline.ports import StoreFact
from fenceline_http.store_meter import Counts
from fenceline_http.wiring import Service
from functions.telemetry import metric_names

Handler: TypeAlias = Callable[[Mapping[str, Any], Any], dict[str, Any]]

# In an answer of ours a quote within a text is escaped, so this is found only where a code stands.
_CODES = re.compile(r'"code":"([A-Z_]+)"')
_DUPLICATE = '"duplicate":true'


class LambdaContext(Protocol):
    aws_request_id: str


class FunctionFailedError(Exception):
    """An error that is none of the documented ones; its type and its place, without its text."""


def observed(name: str, handler: Handler, service: Service) -> Handler:
    """Return ``handler`` as Lambda should call it."""
    settings = service.settings
    told = _Told(name, service)

    def handle(event: Mapping[str, Any], context: LambdaContext) -> dict[str, Any]:
        began = perf_counter()
        try:
            answer = handler(event, context)
        except (FencelineError, StoreFact) as error:  # a scheduled function's; the others answer theirs
            told.failed(context, [error])
            raise
        except ExceptionGroup as group:
            told.failed(context, [one for one in group.exceptions if isinstance(one, FencelineError | StoreFact)])
            raise FunctionFailedError(_place(group)) from None
        except Exception as error:  # noqa: BLE001  not swallowed: Lambda would log its text, which may hold a value
            raise FunctionFailedError(_place(error)) from None
        told.answered(event, context, answer, (perf_counter() - began) * 1000)
        return answer

    return _traced(handle, settings.service) if settings.tracing else handle


class _Told:
    """The voice of one function."""

    def __init__(self, name: str, service: Service) -> None:
        self._name = name
        self._service = service
        settings = service.settings
        self._logger = Logger(service=settings.service, level=settings.log_level)
        self._metrics = Metrics(namespace=metric_names.NAMESPACE, service=settings.service)

    def answered(
        self, event: Mapping[str, Any], context: LambdaContext, answer: Mapping[str, Any], duration_ms: float
    ) -> None:
        counts = self._taken()
        status = answer.get("statusCode", 200)
        about: dict[str, Any] = {
            "function": self._name,
            "route": event.get("routeKey", ""),
            "status": status,
            "calls": dict(counts.calls),
            "request_id": context.aws_request_id,
        }
        body = answer.get("body") if "statusCode" in answer else ""
        is_produce = self._name == "produce"
        codes = Counter(_CODES.findall(body)) if isinstance(body, str) and (is_produce or status >= 400) else Counter()
        if is_produce:
            self._appended(counts, str(body).count(_DUPLICATE), duration_ms, about)
        if codes:
            self._refused(codes)
            self._logger.info("refused", codes=dict(codes), **about)
        elif not is_produce:
            report: dict[str, Any] = {} if "statusCode" in answer else {"report": answer}
            tell = self._logger.info if report else self._logger.debug
            tell("answered", duration_ms=round(duration_ms, 1), **about, **report)

    def failed(self, context: LambdaContext, found: Sequence[FencelineError | StoreFact]) -> None:
        self._taken()
        self._refused(Counter(error.code for error in found if isinstance(error, FencelineError)))
        errors = [f"{type(error).__name__}: {error}" for error in found]
        self._logger.error("failed", function=self._name, errors=errors, request_id=context.aws_request_id)

    def _taken(self) -> Counts:
        meter = self._service.meter
        return Counts() if meter is None else meter.take()

    def _appended(self, counts: Counts, duplicates: int, duration_ms: float, about: Mapping[str, Any]) -> None:
        emf = self._metrics
        emf.add_metric(metric_names.APPEND_MS, MetricUnit.Milliseconds, duration_ms)
        emf.add_metric(metric_names.CREATES, MetricUnit.Count, counts.calls.get("objects.create", 0))
        for name, count in (
            (metric_names.LOST_RACES, counts.lost_races),
            (metric_names.CONFLICTS, counts.conflicts),
            (metric_names.DUPLICATES, duplicates),
        ):
            if count:
                emf.add_metric(name, MetricUnit.Count, count)
        if counts.checkpoint_age_ms is not None:
            emf.add_metric(metric_names.CHECKPOINT_AGE, MetricUnit.Milliseconds, counts.checkpoint_age_ms)
        for key, value in about.items():
            emf.add_metadata(key, value)
        emf.flush_metrics()

    def _refused(self, codes: Mapping[str, int]) -> None:
        emf = self._metrics
        for code, count in codes.items():
            emf.add_metric(metric_names.REFUSALS, MetricUnit.Count, count)
            if code == CorruptLogError.code:
                emf.add_metric(metric_names.CORRUPT_LOG, MetricUnit.Count, count)
            if code == ContendedError.code:
                emf.add_metric(metric_names.CONTENDED, MetricUnit.Count, count)
            with single_metric(
                metric_names.REFUSALS_BY_CODE, MetricUnit.Count, count, namespace=metric_names.NAMESPACE
            ) as by_code:
                by_code.add_dimension(metric_names.SERVICE, self._service.settings.service)
                by_code.add_dimension(metric_names.CODE, code)
        if codes:
            emf.flush_metrics()


def _place(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-8:]
    where = " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.name}" for frame in reversed(frames))
    return f"{type(error).__name__} at {where}"


def _traced(handle: Handler, service: str) -> Handler:
    from aws_lambda_powertools import Tracer  # 10 to 20 ms of each cold start: only where it is asked for

    tracer = Tracer(service=service)
    traced: Handler = tracer.capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced
