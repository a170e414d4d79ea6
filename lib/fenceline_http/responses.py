"""Results as responses: status, headers in lower case, body.

Rule: the names of members and the statuses are those of the contract, and nothing is decided here. Errors become
responses by `problem` alone. The types of results are imported for type checkers only, so that a cold start imports no
other function's results.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from json import JSONEncoder
from typing import TYPE_CHECKING, Any

from fenceline import answers, limits
from fenceline.answers import members_of
from fenceline.errors import FencelineError, MessageTooLargeError
from fenceline_http.media_types import HTML_TYPE, JSON_TYPE, PROBLEM_TYPE

if TYPE_CHECKING:
    from fenceline.model.results import Appended, BatchPage

to_json = JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


class Response:
    """One response.

    Args:
        codes: Those of the errors that it reports: its own, or those of the single results in it.
        duplicates: How many of the batches in it were stored before.

    Attributes:
        operation: The name of the operation that was asked for; empty where it was none.
    """

    __slots__ = ("body", "codes", "duplicates", "headers", "operation", "status")

    def __init__(
        self,
        status: int,
        body: str | bytes = "",
        headers: dict[str, str] | None = None,
        *,
        codes: Iterable[str] = (),
        duplicates: int = 0,
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers or {}
        self.codes = list(codes)
        self.duplicates = duplicates
        self.operation = ""

    def fitting(self) -> Response:
        """Return this response, or, in place of one that the gateway does not carry, an error that says so."""
        if passes(self.body):
            return self
        return problem(too_large())

    def to_event(self) -> dict[str, Any]:
        """Return the response as a gateway takes it; bytes travel in base64."""
        is_binary = isinstance(self.body, bytes)
        return {
            "statusCode": self.status,
            "body": base64.b64encode(self.body).decode() if isinstance(self.body, bytes) else self.body,
            "isBase64Encoded": is_binary,
            "headers": self.headers,
            "cookies": [],
        }


def too_large() -> MessageTooLargeError:
    """Return the error in place of an answer that the gateway does not carry: it holds one record, once compressed."""
    return MessageTooLargeError(
        "the record is too large for JSON; read it as a batch, with GET …/batches", bytes_max=limits.GATEWAY_BYTES_MAX
    )


def json(body: object, status: int = 200) -> Response:
    """Respond with a declared answer, or with what is JSON as it is."""
    return text(to_json(answers.to_json(body)), status)


def text(body: str, status: int = 200) -> Response:
    """Respond with a body that is JSON already."""
    return Response(status, body if passes(body) else body.encode(), {"content-type": JSON_TYPE})


def passes(body: str | bytes) -> bool:
    """Whether the gateway carries a body: text as a string in JSON, where a quote counts twice, bytes in base64."""
    if isinstance(body, bytes):
        return len(body) <= limits.GATEWAY_BYTES_MAX // 4 * 3
    if len(body) <= limits.GATEWAY_BYTES_MAX // 4:
        return True  # whatever its characters are
    return bytes_of(body) + body.count('"') + body.count("\\") <= limits.GATEWAY_BYTES_MAX


def bytes_of(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


LIST_BYTES_MAX = limits.REPLY_BYTES_MAX - 1_024  # what stands around a list is less


def listed(page: Any, entries: Iterable[Any] | None = None, **when_cut: Any) -> Response:
    """Respond with a list, cut so that it passes the gateway.

    Args:
        page: A declared answer, whose first member is the list, and which has ``has_more``.
        entries: The list, if not the page's own.
        when_cut: The members that are others where the list is cut.
    """
    first = members_of(type(page))[0]
    rows, is_cut = fitting(getattr(page, first.attribute) if entries is None else entries)
    change = {first.attribute: (), **(({"has_more": True} | when_cut) if is_cut else {})}
    changed = getattr(page, "_replace", partial(replace, page))(**change)  # A named tuple has a way of its own.
    head, rest = f'{{"{first.name}":[', to_json(answers.to_json(changed))
    # The rows are JSON already: they were measured so.
    return text(f"{head}{','.join(rows)}{rest[len(head) :]}")


def fitting(entries: Iterable[Any]) -> tuple[list[str], bool]:
    """Return the JSON of as many entries as pass the gateway, at least one if there is one; and whether any is cut."""
    rows: list[str] = []
    left = LIST_BYTES_MAX
    for entry in entries:
        row = to_json(answers.to_json(entry))
        left -= bytes_of(row) + 1
        if left < 0 and rows:
            return rows, True
        rows.append(row)
    return rows, False


def page(body: str) -> Response:
    """Respond with HTML that may load nothing and run nothing."""
    headers = {
        "content-type": HTML_TYPE,
        "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'",
        "x-content-type-options": "nosniff",
        "vary": "accept",
    }
    return Response(200, body, headers)


def empty(status: int) -> Response:
    return Response(status)


def problem(error: FencelineError) -> Response:
    return Response(error.status, to_json(error.problem()), {"content-type": PROBLEM_TYPE}, codes=(error.code,))


def place(topic: str, partition: int) -> dict[str, Any]:
    """Return the place of a batch, as it was named; a name that is longer than any legal one is cut."""
    longest = limits.TOPIC_NAME_CHARS_MAX
    return {"topic": topic if len(topic) <= longest else topic[:longest] + "…", "partition": partition}


Result = tuple[dict[str, Any], "Appended | FencelineError | None"]  # a batch's place, and what became of the batch


def appended(result: Appended) -> Response:
    response = text(to_json(_appended(result)))
    response.duplicates = int(result.duplicate)
    return response


def results(found: Sequence[Result], **more: Any) -> Response:
    """Respond with what became of each of several batches."""
    response = json({"results": [_result(*one) for one in found], **more})
    for _, became in found:
        if isinstance(became, FencelineError):
            response.codes.append(became.code)
        elif became is not None:
            response.duplicates += became.duplicate
    return response


def _result(place: dict[str, Any], became: Appended | FencelineError | None) -> dict[str, Any]:
    if became is None:
        return place
    if isinstance(became, FencelineError):
        return {**place, "error": became.problem()}
    return {**place, **_appended(became)}


def _appended(result: Appended) -> dict[str, Any]:
    """Return the result of ``answers.to_json``, written out because that saves each produce two calls."""
    return {
        "base_offset": result.base_offset,
        "next_offset": result.next_offset,
        "count": result.count,
        "duplicate": result.duplicate,
        "topic_epoch": result.topic_epoch,
        "expected_offset_checked": result.expected_offset_checked,
        "timestamp": result.timestamp,
    }


def batches(page: BatchPage, content_type: str) -> Response:
    numbers: Mapping[str, int] = {"position": page.position, **answers.to_json(page.bounds)}
    headers = {f"fenceline-{name.replace('_', '-')}": str(number) for name, number in numbers.items()}
    return Response(200, page.body, {"content-type": content_type, **headers})
