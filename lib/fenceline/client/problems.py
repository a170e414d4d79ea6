"""Answers that are no success, as the errors of errors.py.

Rule: an error keeps the promise of its ``next_step``, whether the service answered or a gateway. A problem document
with a code of the table becomes the error of that code, and an answer of a gateway is mapped by its status. Any other
answer leaves the outcome unknown.

Rule: the error's detail has the text of a gateway's answer, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import httpx

from fenceline import errors
from fenceline.client.masking import masked

# A gateway gives these before a function sees the request (contract, "Errors").
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
_ALLOW = "let an administrator allow execute-api:Invoke on this path (operate/permissions in the documentation)"
# Parts of the texts of AWS's gateways, and what to do about each; the first part that is found counts.
_ADVICE = (
    ("expired", "get new credentials, such as by 'aws sso login'; if they are new, set this machine's clock"),
    (
        "security token",
        "the credentials are not valid there: look which are used, such as by 'aws sts get-caller-identity'",
    ),
    ("not authorized to perform", _ALLOW),
    ("explicit deny", _ALLOW),
    ("credential should be scoped", "give the service's own region: region=, --region or FENCELINE_AWS_REGION"),
    ("authentication token", "sign requests: give the service's region, by region=, --region or FENCELINE_AWS_REGION"),
    ("forbidden", "sign requests: give the service's region, by region=, --region or FENCELINE_AWS_REGION"),
    ("signature", "look at the credentials, the region and this machine's clock"),
    (
        "too many requests",
        "send fewer requests at once, or raise the stage's throttling (operate/settings in the documentation)",
    ),
)
_SAID_CHARS_MAX = 500
_MEMBERS_OF_ALL = frozenset({"type", "title", "status", "detail", "code", "next_step", "help"})


def error_of(response: httpx.Response) -> errors.FencelineError:
    """Return the error of ``response``, which is no success."""
    problem = _problem(response)
    if problem is None:
        detail = _told(response)
        if response.status_code >= 500:
            # A function may have run before the gateway gave up.
            return errors.OutcomeUnknownError(detail)
        return _BY_GATEWAY.get(response.status_code, errors.InvalidRequestError)(detail)
    return error_in(problem)


def _told(response: httpx.Response) -> str:
    """Return the text of a gateway's answer, and what to do about it."""
    status, url = response.status_code, masked(str(response.request.url))
    said = _said(response)
    if said is None:
        return f"the answer has no problem document, so it is not the service's own: status={status} url={url}"
    advice = next((f"; {advice}" for part, advice in _ADVICE if part in said.lower()), "")
    return f"a gateway, and not the service, answered: {said}{advice}: status={status} url={url}"


def _said(response: httpx.Response) -> str | None:
    """Return the text of a gateway's answer in one line: AWS's gateways write it as ``message`` or ``Message``."""
    try:
        body = response.json()
    except ValueError:
        is_text = response.headers.get("content-type", "").partition(";")[0].strip() == "text/plain"
        body = {"message": response.text} if is_text else None
    if not isinstance(body, dict):
        return None
    said = body.get("message") or body.get("Message")
    if not isinstance(said, str):
        return None
    line = " ".join("".join(char if char.isprintable() else " " for char in said).split())
    return line[:_SAID_CHARS_MAX].rstrip(" .") or None


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
