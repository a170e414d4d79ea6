"""Answers that are no success, as the errors of errors.py.

Rule: an error keeps the promise of its ``next_step``, whether the service answered or a gateway. A problem document
with a code of the table becomes that error. An answer of a gateway is mapped by its status. Anything else leaves the
outcome unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from fenceline import errors

# A gateway gives these before a function sees the request (API.md, "Errors").
_BY_GATEWAY: dict[int, type[errors.FencelineError]] = {
    401: errors.UnauthenticatedError,
    403: errors.NotAuthorizedError,
    404: errors.NotFoundError,
    413: errors.RecordListTooLargeError,
    429: errors.ThrottledError,
}
# For a code of a newer service: its next step is still known.
_BY_NEXT_STEP: dict[str, type[errors.FencelineError]] = {
    "fix": errors.InvalidRequestError,
    "retry": errors.StoreUnavailableError,
    "check": errors.OutcomeUnknownError,
    "stop": errors.CorruptLogError,
}
_MEMBERS_OF_ALL = frozenset({"type", "title", "status", "detail", "code", "next_step"})


def error_of(response: httpx.Response) -> errors.FencelineError:
    """Return the error of ``response``, which is no success."""
    problem = _problem(response)
    if problem is None:
        detail = (
            f"the answer has no problem document, so it is not the service's own: status={response.status_code} "
            f"url={response.request.url}"
        )
        if response.status_code >= 500:
            # A function may have run before the gateway gave up.
            return errors.OutcomeUnknownError(detail)
        return _BY_GATEWAY.get(response.status_code, errors.InvalidRequestError)(detail)
    return error_in(problem)


def error_in(problem: Mapping[str, Any]) -> errors.FencelineError:
    """Return the error of a problem document: an answer, or a member of one."""
    code, detail = problem["code"], str(problem.get("detail", ""))
    if code in errors.TABLE:
        return errors.TABLE[code](detail, **{k: v for k, v in problem.items() if k not in _MEMBERS_OF_ALL})
    known = _BY_NEXT_STEP.get(str(problem.get("next_step")), errors.OutcomeUnknownError)
    return known(f"{detail} code={code}")


def again(error: errors.FencelineError) -> errors.FencelineError:
    """Return a new error equal to ``error``, to be raised in another place."""
    return type(error)(error.detail, **error.extra)


def _problem(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) and isinstance(body.get("code"), str) else None
