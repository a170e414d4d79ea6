"""Answers that are no success, as the errors of errors.py.

The rule: an error keeps the promise of its ``next_step`` whoever answered. Where a problem document names a code of the
table, it is that error; what a gateway answers by itself is mapped by its status; anything else is taken to be unknown.
"""

from __future__ import annotations

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
# A code of a newer service: what to do next is still known.
_BY_NEXT_STEP: dict[str, type[errors.FencelineError]] = {
    "fix": errors.InvalidRequestError,
    "retry": errors.StoreUnavailableError,
    "check": errors.OutcomeUnknownError,
    "stop": errors.CorruptLogError,
}
_MEMBERS_OF_ALL = frozenset({"type", "title", "status", "detail", "code", "next_step"})


def error_of(response: httpx.Response) -> errors.FencelineError:
    """Return the error that ``response``, which is no success, stands for."""
    problem = _problem(response)
    if problem is None:
        detail = f"answer without a problem document: status={response.status_code} url={response.request.url}"
        if response.status_code >= 500:  # Whether a function ran before the gateway gave up, nobody can say.
            return errors.OutcomeUnknownError(detail)
        return _BY_GATEWAY.get(response.status_code, errors.InvalidRequestError)(detail)
    code, detail = problem["code"], str(problem.get("detail", ""))
    if code in errors.TABLE:
        return errors.TABLE[code](detail, **{k: v for k, v in problem.items() if k not in _MEMBERS_OF_ALL})
    known = _BY_NEXT_STEP.get(str(problem.get("next_step")), errors.OutcomeUnknownError)
    return known(f"{detail} code={code}")


def again(error: errors.FencelineError) -> errors.FencelineError:
    """Return an error equal to ``error``, to be raised in another place."""
    return type(error)(error.detail, **error.extra)


def _problem(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    return body if isinstance(body, dict) and isinstance(body.get("code"), str) else None
