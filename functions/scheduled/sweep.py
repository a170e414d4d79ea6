"""The sweeper, called by a schedule: one bounded run. The next run goes on where this one stopped.

Rule: a run ends well before the function's time does. Its report names what went wrong with single partitions. A run
fails, so that an alarm reports it, only for damaged data or for an error that no step should raise. Its numbers are
metrics even then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fenceline import limits
from fenceline.errors import CorruptLogError, InvalidRequestError
from fenceline.sweeper.sweep import sweep
from fenceline_http.request import schedule_ms
from fenceline_http.wiring import Service
from functions.telemetry.observed import FunctionFailedError, LambdaContext, RunFailedError

_MARGIN_MS = 10_000  # for the step that is under way when the run should end


def run(event: Mapping[str, Any], context: LambdaContext, service: Service) -> dict[str, Any]:
    """Sweep, and return the report.

    Args:
        event: ``deletes_max``, how many objects and items the run deletes at most. ``is_thorough``: look also for what
            is rare, though the last such look was less than an hour ago. Both are optional. Other members are ignored.

    Raises:
        InvalidRequestError: The event.
        FencelineError, StoreFact: A store; the next run goes on.
        RunFailedError: Stored data is damaged, or a step raised what none should; all the rest was swept.
    """
    deletes_max = event.get("deletes_max", limits.SWEEP_DELETES_MAX)
    is_thorough = event.get("is_thorough", False)
    if not isinstance(deletes_max, int) or isinstance(deletes_max, bool) or deletes_max < 1:
        raise InvalidRequestError("deletes_max is a positive integer", field="deletes_max")
    if not isinstance(is_thorough, bool):
        raise InvalidRequestError("is_thorough is true or false", field="is_thorough")
    log = service.log
    log.note_event(schedule_ms(event))
    report = sweep(
        log,
        duration_ms=max(context.get_remaining_time_in_millis() - _MARGIN_MS, 1),
        deletes_max=deletes_max,
        is_thorough=is_thorough,
    )
    assert report is not None  # only who asks for a pause gets none
    failed: Exception | None = None
    if report.is_corrupt:
        failed = CorruptLogError(f"the sweeper met damage: {'; '.join(report.problems)}")
    elif report.unexpected:
        failed = FunctionFailedError(f"the sweeper met errors that no step should raise: {'; '.join(report.problems)}")
    if failed is not None:
        raise RunFailedError(failed, asdict(report))
    return asdict(report)
