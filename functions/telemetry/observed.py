"""A function with its log lines, its metrics and, where that is set, its traces.

Rule: reports have numbers, codes, routes and ids, as values. An error that is not documented is reported by its type
and its place, and never by its text, because the text may hold a key or a value. The error is then raised in this form,
so that Lambda counts it. Only the replicator keeps an error of one partition in its report, and only the partition's
messages fail.

A produce request is one line of metrics, with the calls that it made to the stores. The line is in EMF, of which
CloudWatch makes metrics, so that nothing is sent. Other requests are reported at DEBUG, and refusals at INFO.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple, Protocol, TypeAlias

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import Metrics, MetricUnit, single_metric

from fenceline.errors import ContendedError, CorruptLogError, FencelineError, place_of
from fenceline.ports import StoreFact
from fenceline_http import dispatch
from fenceline_http.route import Function
from fenceline_http.store_meter import Counts
from fenceline_http.wiring import Service
from functions.telemetry import metric_names

Event: TypeAlias = Mapping[str, Any]
Handler: TypeAlias = Callable[[Event, Any], dict[str, Any]]
Run: TypeAlias = Callable[[Event, Any, Service], dict[str, Any]]

LEAVE = "DELETE /v1/groups/{group}/members/{member_id}"  # a member that leaves was not removed


class LambdaContext(Protocol):
    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


class FunctionFailedError(Exception):
    """An error that is none of the documented ones; its type and its place, without its text."""


class RunFailedError(Exception):
    """A run that fails with ``error`` after it has done all the rest, which is in its ``report``."""

    def __init__(self, error: Exception, report: Mapping[str, Any]) -> None:
        super().__init__(str(error))
        self.error = error
        self.report = report


class RequestTelemetry(NamedTuple):
    """The reported facts of one request.

    Args:
        codes: Those of the errors in the response.
        duplicates: How many of its batches were stored before.
        duration_ms: As the function saw it.
    """

    route: str
    status: int
    codes: Sequence[str]
    duplicates: int
    duration_ms: float
    request_id: str


def answering(name: Function, service: Service) -> Handler:
    """Return the handler of a function that answers requests, as Lambda should call it."""
    reporter = _Reporter(name, service)

    def handle(event: Event, context: LambdaContext) -> dict[str, Any]:
        began = perf_counter()
        with _reported(reporter, context):
            response = dispatch.respond(name, event, service)
        duration_ms = (perf_counter() - began) * 1000
        reporter.answered(
            RequestTelemetry(
                event.get("routeKey", ""),
                response.status,
                response.codes,
                response.duplicates,
                duration_ms,
                context.aws_request_id,
            )
        )
        return response.to_event()

    return _traced(handle, service)


def running(name: str, run: Run, service: Service) -> Handler:
    """Return the handler of a function that a schedule calls, as Lambda should call it."""
    reporter = _Reporter(name, service)

    def handle(event: Event, context: LambdaContext) -> dict[str, Any]:
        began = perf_counter()
        with _reported(reporter, context):
            try:
                report = run(event, context, service)
            except RunFailedError as failed:
                reporter.measured(failed.report)  # an alarm that asks for these numbers must not miss this run
                raise failed.error from None
        reporter.ran(report, (perf_counter() - began) * 1000, context.aws_request_id)
        return report

    return _traced(handle, service)


@contextmanager
def _reported(reporter: _Reporter, context: LambdaContext) -> Iterator[None]:
    """Report an error, and let it go on: as it is where it is documented, else by its type and its place alone."""
    try:
        yield
    except (FencelineError, StoreFact) as error:  # a scheduled function's: the others answer theirs
        reporter.failed([error], context.aws_request_id)
        raise
    except ExceptionGroup as group:
        reporter.failed(group.exceptions, context.aws_request_id)
        raise FunctionFailedError(place_of(group)) from None
    except FunctionFailedError:
        raise
    except Exception as error:  # noqa: BLE001  not swallowed: Lambda would log its text, which may hold a value
        raise FunctionFailedError(place_of(error)) from None


class _Reporter:
    """The log and the metrics of one function."""

    def __init__(self, name: str, service: Service) -> None:
        self._name = name
        self._service = service
        settings = service.settings
        self._logger = Logger(service=settings.service, level=settings.log_level)
        self._metrics = Metrics(namespace=metric_names.NAMESPACE, service=settings.service)

    def answered(self, request: RequestTelemetry) -> None:
        counts = self._taken()
        about: dict[str, Any] = {
            "function": self._name,
            "route": request.route,
            "status": request.status,
            "calls": dict(counts.calls),
            "request_id": request.request_id,
        }
        is_produce = self._name == "produce"
        if is_produce:
            self._appended(counts, request, about)
        self._shared_out(counts, request.route)
        if request.codes:
            codes = Counter(request.codes)
            self._refused(codes)
            self._logger.info("refused", codes=dict(codes), **about)
        elif not is_produce:
            self._logger.debug("answered", duration_ms=round(request.duration_ms, 1), **about)

    def ran(self, report: Mapping[str, Any], duration_ms: float, request_id: str) -> None:
        counts = self._taken()
        self._logger.info(
            "answered",
            duration_ms=round(duration_ms, 1),
            function=self._name,
            route="",
            status=200,
            calls=dict(counts.calls),
            request_id=request_id,
            report=report,
        )
        self._shared_out(counts, "")
        self.measured(report)

    def measured(self, report: Mapping[str, Any]) -> None:
        measured = {**metric_names.OF_REPORTS, **metric_names.OF_REPLICATION, **metric_names.OF_NEWS}
        counts = {name: report[member] for member, name in measured.items() if report.get(member) is not None}
        for name, count in counts.items():
            unit = MetricUnit.Milliseconds if name.endswith("Ms") else MetricUnit.Count
            self._metrics.add_metric(name, unit, count)
        if counts:
            self._metrics.flush_metrics()

    def failed(self, found: Sequence[Exception], request_id: str) -> None:
        self._taken()
        self._refused(Counter(error.code for error in found if isinstance(error, FencelineError)))
        errors = [text_of(error) for error in found]
        self._logger.error("failed", function=self._name, errors=errors, request_id=request_id)

    def _taken(self) -> Counts:
        meter = self._service.meter
        return Counts() if meter is None else meter.take()

    def _appended(self, counts: Counts, request: RequestTelemetry, about: Mapping[str, Any]) -> None:
        emf = self._metrics
        emf.add_metric(metric_names.APPEND_MS, MetricUnit.Milliseconds, request.duration_ms)
        emf.add_metric(metric_names.CREATES, MetricUnit.Count, counts.calls.get("objects.create", 0))
        for name, count in (
            (metric_names.LOST_RACES, counts.lost_races),
            (metric_names.CONFLICTS, counts.conflicts),
            (metric_names.DUPLICATES, request.duplicates),
        ):
            if count:
                emf.add_metric(name, MetricUnit.Count, count)
        if counts.checkpoint_age_ms is not None:
            emf.add_metric(metric_names.CHECKPOINT_AGE, MetricUnit.Milliseconds, counts.checkpoint_age_ms)
        for key, value in about.items():
            emf.add_metadata(key, value)
        emf.flush_metrics()

    def _shared_out(self, counts: Counts, route: str) -> None:
        """Report what befell groups, where there is something to report."""
        found = {
            metric_names.MEMBERS_REMOVED: 0 if route == LEAVE else counts.members_ended,
            metric_names.LOST_GROUP_WRITES: counts.lost_group_writes,
        }
        for name, count in found.items():
            if count:
                self._metrics.add_metric(name, MetricUnit.Count, count)
        if any(found.values()):
            self._metrics.flush_metrics()

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


def text_of(error: Exception) -> str:
    """Return an error as it is reported: with its text where it is documented, else by its type and its place."""
    is_documented = isinstance(error, FencelineError | StoreFact)
    return f"{type(error).__name__}: {error}" if is_documented else place_of(error)


def _traced(handle: Handler, service: Service) -> Handler:
    """Return ``handle`` with traces if the settings ask for them, because they cost 10 to 20 ms of each cold start."""
    if not service.settings.tracing:
        return handle
    from aws_lambda_powertools import Tracer

    tracer = Tracer(service=service.settings.service)
    traced: Handler = tracer.capture_lambda_handler(handle, capture_response=False, capture_error=False)
    return traced
